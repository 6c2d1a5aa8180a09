/// A version of TLS that this library speaks.
public enum TLSVersion: UInt16, Sendable, Comparable {
    case v12 = 0x0303
    case v13 = 0x0304

    public static func < (a: TLSVersion, b: TLSVersion) -> Bool { a.rawValue < b.rawValue }
}
