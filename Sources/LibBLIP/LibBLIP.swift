@_exported import BLIPCInterface
