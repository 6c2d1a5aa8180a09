import BLIPProtocol
import CBLIP

extension BLIPMessage {
    // MARK: Flags

    public var publicFlags: UInt32 { UInt32(flags.rawValue) & Self.knownFlags }

    private static var knownFlags: UInt32 { BLIP_FLAG_COMPRESSED | BLIP_FLAG_URGENT | BLIP_FLAG_NO_REPLY }

    public func setFlags(_ flags: UInt32) -> blip_status {
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        // Who waits for what follows from these has begun already.
        guard !isFrozen || (!isIncoming && (flags ^ publicFlags) & BLIP_FLAG_NO_REPLY == 0) else {
            return BLIP_ERROR_IMMUTABLE
        }
        guard flags & ~Self.knownFlags == 0, kind == .request || flags & BLIP_FLAG_NO_REPLY == 0 else {
            return BLIP_ERROR_ARGUMENT
        }
        self.flags = MessageFlags(rawValue: UInt8(truncatingIfNeeded: flags))
        return BLIP_OK
    }

    public func setFlag(_ flag: UInt32, _ isOn: Bool) -> blip_status {
        setFlags(isOn ? publicFlags | flag : publicFlags & ~flag)
    }

    // MARK: Properties

    /// The value of a property; empty if there is none.
    @inline(__always)
    public func value(of key: StaticString) -> blip_slice {
        guard let value = property(key.bytes) else { return .empty }
        return blip_slice(value)
    }

    public func set(_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) -> blip_status {
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        guard !isIncoming || pinProperties() else { return BLIP_ERROR_RESOURCES }
        return withDetached(key, from: properties) { key in
            withDetached(value, from: properties) { setProperty(key, $0) ? BLIP_OK : BLIP_ERROR_RESOURCES }
        }
    }

    /// Sets a property; an empty value removes it.
    private func set(_ key: StaticString, orRemove value: UnsafeRawBufferPointer) -> blip_status {
        guard value.isEmpty else { return set(key.bytes, value) }
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        guard !isIncoming || pinProperties() else { return BLIP_ERROR_RESOURCES }
        removeProperty(key.bytes)
        return BLIP_OK
    }

    public func setProfile(_ profile: UnsafeRawBufferPointer) -> blip_status { set("Profile", orRemove: profile) }
    public func setContentType(_ type: UnsafeRawBufferPointer) -> blip_status { set("Content-Type", orRemove: type) }

    public func remove(_ key: UnsafeRawBufferPointer) -> blip_status {
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        guard !isIncoming || pinProperties() else { return BLIP_ERROR_RESOURCES }
        return withDetached(key, from: properties) { removeProperty($0) ? BLIP_OK : BLIP_ERROR_NOT_FOUND }
    }

    /// All properties as key NUL value NUL ….
    public var encoded: blip_slice { blip_slice(isIncoming ? incomingProperties : properties.bytes) }

    /// Replaces all properties. A key may occur once.
    public func setEncoded(_ encoded: blip_slice) -> blip_status {
        guard !isFixed else { return BLIP_ERROR_IMMUTABLE }
        guard let bytes = encoded.bytes else { return BLIP_ERROR_ARGUMENT }
        var texts: [Range<Int>] = []
        var start = 0
        for (index, byte) in bytes.enumerated() where byte == 0 {
            texts.append(start..<index)
            start = index + 1
        }
        guard start == bytes.count, texts.count % 2 == 0 else { return BLIP_ERROR_ARGUMENT }
        guard texts.allSatisfy({ UnsafeRawBufferPointer(rebasing: bytes[$0]).isText }) else { return BLIP_ERROR_TEXT }
        // Few keys are compared in place; many are sorted first, so that no input costs more than that.
        let keys = stride(from: 0, to: texts.count, by: 2).map { UnsafeRawBufferPointer(rebasing: bytes[texts[$0]]) }
        guard Self.areDistinct(keys) else { return BLIP_ERROR_ARGUMENT }
        guard !isIncoming || pinProperties() else { return BLIP_ERROR_RESOURCES }
        return withDetached(bytes, from: properties) { bytes in
            properties.removeAll(keepingCapacity: 4096)
            return properties.append(bytes) ? BLIP_OK : BLIP_ERROR_RESOURCES
        }
    }

    private static func areDistinct(_ keys: [UnsafeRawBufferPointer]) -> Bool {
        if keys.count <= 16 {
            for (index, key) in keys.enumerated() {
                for other in keys[..<index] where other.equals(key) { return false }
            }
            return true
        }
        var seen = Set<[UInt8]>(minimumCapacity: keys.count)
        return keys.allSatisfy { seen.insert([UInt8]($0)).inserted }
    }
}
