import Glibc

/// What a dashboard tells of host and process.
enum HostFacts {
    static func write(to json: inout JSONText, started: Int) {
        json.value("host", name)
        json.value("process", getpid())
        json.value("version", LibraryVersion.text)
        json.value("time", time(nil))
        json.value("uptime", max(0, time(nil) - started))
        var loads = [Double](repeating: 0, count: 3)
        json.array("load") { json in
            guard getloadavg(&loads, 3) == 3 else { return }
            for load in loads { json.item(Int((max(0, min(load, 1e6)) * 100).rounded())) }
        }
        json.value("processors", max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))))
        json.value("memory", residentBytes)
        json.value("descriptors", openDescriptors)
        var limit = rlimit()
        if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
            json.value("descriptorLimit", limit.rlim_cur)
        }
    }

    /// By which names others in the same network know this host.
    static var names: [String] {
        let full = name
        let first = String(full.prefix { $0 != "." })
        return first.isEmpty ? [] : [full, first, first + ".local"]
    }

    private static var name: String {
        var buffer = [CChar](repeating: 0, count: 256)
        guard gethostname(&buffer, buffer.count - 1) == 0 else { return "" }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// 0 if the system does not tell.
    private static var residentBytes: Int {
        let words = read("/proc/self/statm").split(separator: UInt8(ascii: " "))
        guard words.count > 1, let pages = Int(String(decoding: words[1], as: UTF8.self)) else { return 0 }
        return pages.multipliedReportingOverflow(by: max(1, sysconf(Int32(_SC_PAGESIZE)))).partialValue
    }

    private static var openDescriptors: Int {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        // Neither "." and ".." nor the folder itself.
        var count = -3
        while readdir(folder) != nil { count += 1 }
        return max(0, count)
    }

    private static func read(_ path: String) -> [UInt8] {
        let descriptor = Glibc.open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { _ = Glibc.close(descriptor) }
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        return count > 0 ? Array(buffer[..<count]) : []
    }
}
