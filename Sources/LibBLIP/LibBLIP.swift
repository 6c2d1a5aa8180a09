@_exported import BLIPCInterface
import CForkRepair
