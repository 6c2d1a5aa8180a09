import CBLIP
import Glibc
import Transport

/// Sockets that a service manager has opened for this process: systemd's socket activation, sd_listen_fds(3).
public enum ServiceManager {
    private static let first: Int32 = 3
    private static let maximum: Int32 = 4096
    /// Each is given away once.
    private static let taken = Locked<Set<Int32>>([])

    /// The descriptors with a name, or all for an empty one. Those that were taken are left out until they are given
    /// back.
    public static func take(_ name: String) -> [Int32] {
        guard let process = value("LISTEN_PID").flatMap({ Int32($0) }), process == getpid(),
            let count = value("LISTEN_FDS").flatMap({ Int32($0) }), count > 0, count <= maximum
        else { return [] }
        let names = (value("LISTEN_FDNAMES") ?? "").split(separator: ":", omittingEmptySubsequences: false)
        return taken.withLock { taken in
            let found = (first..<first + count).filter { descriptor in
                let index = Int(descriptor - first)
                let own = index < names.count ? String(names[index]) : "unknown"
                return !taken.contains(descriptor) && (name.isEmpty || own == name)
            }
            taken.formUnion(found)
            return found
        }
    }

    public static func giveBack(_ descriptors: [Int32]) { taken.withLock { $0.subtract(descriptors) } }

    private static func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
