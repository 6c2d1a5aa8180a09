/// The path of a file below a root folder, from the path of a URL: every segment is an ordinary name.
struct FilePath: Equatable {
    /// Names, decoded, without "/" and NUL; none: the root folder itself.
    let names: [[UInt8]]
    /// The URL's path ended with a slash.
    let isFolder: Bool

    /// Nil for what can be no file: "." and "..", empty segments, encoded slashes and NULs, bad encodings, and with
    /// `showsHidden` false names that begin with a dot.
    init?(_ path: some Collection<UInt8>, showsHidden: Bool) {
        var segments = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        isFolder = segments.last?.isEmpty ?? true
        if isFolder, !segments.isEmpty { segments.removeLast() }
        var names: [[UInt8]] = []
        for segment in segments {
            guard let name = PercentEncoding.decode(segment), Self.isName(name),
                showsHidden || name.first != UInt8(ascii: ".")
            else { return nil }
            names.append(name)
        }
        guard names.count <= 64 else { return nil }
        self.names = names
    }

    private init(names: [[UInt8]], isFolder: Bool) {
        self.names = names
        self.isFolder = isFolder
    }

    /// An ordinary name: not empty, at most 255 bytes, without "/" and NUL, and neither "." nor "..".
    static func isName(_ name: [UInt8]) -> Bool {
        guard !name.isEmpty, name.count <= 255, !name.contains(0), !name.contains(UInt8(ascii: "/")) else {
            return false
        }
        return name != [UInt8(ascii: ".")] && name != [UInt8(ascii: "."), UInt8(ascii: ".")]
    }

    /// As the operating system wants it, NUL at the end.
    var text: [CChar] {
        guard !names.isEmpty else { return [CChar(UInt8(ascii: ".")), 0] }
        return names.joined(separator: [UInt8(ascii: "/")]).map { CChar(bitPattern: $0) } + [0]
    }

    /// The folder that holds it; nil for the root.
    var parent: FilePath? { names.isEmpty ? nil : FilePath(names: names.dropLast(), isFolder: true) }

    /// The last name, for people.
    var name: String { names.last.map { String(decoding: $0, as: UTF8.self) } ?? "" }
}
