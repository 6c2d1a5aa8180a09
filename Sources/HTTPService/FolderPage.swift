import CSystem
import Glibc
import WebSocketProtocol

/// The page of a folder: what is in it, and with a writable service the forms to change it. Owns the descriptor.
struct FolderPage {
    private struct Entry {
        var name: [UInt8]
        var text: String
        var isFolder: Bool
        var size: UInt64
        var modified: Int
    }

    private static let maximumEntries = 10_000

    let service: FileService
    let place: FilePath
    let descriptor: Int32
    let query: Substring

    func response() -> HTTPResponse {
        guard let folder = fdopendir(descriptor) else {
            let code = errno
            _ = Glibc.close(descriptor)
            return FileFailure(code: code).response
        }
        defer { closedir(folder) }
        var entries: [Entry] = []
        var isCut = false
        while let next = readdir(folder) {
            let name = Self.name(next)
            guard FilePath.isName(name), service.options.showsHidden || name.first != UInt8(ascii: ".") else {
                continue
            }
            guard entries.count < Self.maximumEntries else {
                isCut = true
                break
            }
            var facts = stat()
            guard name.withCString({ fstatat(dirfd(folder), $0, &facts, AT_SYMLINK_NOFOLLOW) }) == 0 else { continue }
            let kind = facts.st_mode & S_IFMT
            guard kind == S_IFREG || kind == S_IFDIR else { continue }
            entries.append(
                Entry(
                    name: name, text: String(decoding: name, as: UTF8.self), isFolder: kind == S_IFDIR,
                    size: UInt64(max(0, facts.st_size)), modified: facts.st_mtim.tv_sec))
        }
        sort(&entries)
        let title = place.names.isEmpty ? "Files" : place.name
        let body = """
            <header><h1>\(breadcrumbs)</h1></header>
            <main>
            \(table(entries))
            \(isCut ? "<p>Only the first \(Self.maximumEntries) entries are shown.</p>" : "")
            \(service.options.isWritable ? forms : "")
            </main>
            """
        return HTTPResponse(
            status: 200, type: "text/html; charset=utf-8",
            text: HTML.page(title: title, assets: SiteAssets.prefix, body: body), headers: SitePolicy.page)
    }

    private static func name(_ entry: UnsafeMutablePointer<dirent>) -> [UInt8] {
        withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
    }

    private func sort(_ entries: inout [Entry]) {
        entries.sort { one, other in
            if one.isFolder != other.isFolder { return one.isFolder }
            switch query {
            case "sort=size" where one.size != other.size: return one.size > other.size
            case "sort=time" where one.modified != other.modified: return one.modified > other.modified
            default: return one.name.lexicographicallyPrecedes(other.name)
            }
        }
    }

    private var breadcrumbs: String {
        var result = place.names.isEmpty ? "Files" : "<a href=\"\(HTML.escape(service.prefix))\">Files</a>"
        var path = service.prefix
        for (index, name) in place.names.enumerated() {
            path += PercentEncoding.encode(name) + "/"
            let text = HTML.escape(String(decoding: name, as: UTF8.self))
            result += index == place.names.count - 1 ? " / \(text)" : " / <a href=\"\(HTML.escape(path))\">\(text)</a>"
        }
        return result
    }

    private func table(_ entries: [Entry]) -> String {
        guard !entries.isEmpty else { return "<p>This folder is empty.</p>" }
        var rows: [String] = []
        rows.reserveCapacity(entries.count)
        for entry in entries {
            let link = PercentEncoding.encode(entry.name) + (entry.isFolder ? "/" : "")
            let text = HTML.escape(entry.text) + (entry.isFolder ? "/" : "")
            let remove =
                service.options.isWritable
                ? "<td><form method=\"post\" enctype=\"multipart/form-data\">\(tokenField)"
                    + "<button name=\"remove\" value=\"\(PercentEncoding.encode(entry.name))\" "
                    + "aria-label=\"Remove \(HTML.escape(entry.text))\">Remove</button></form></td>" : ""
            rows.append(
                "<tr><td class=\"name\"><a href=\"./\(link)\">\(text)</a></td>"
                    + "<td class=\"number\">\(entry.isFolder ? "" : FileSize.text(entry.size))</td>"
                    + "<td class=\"number\"><time>\(HTTPDate.short(entry.modified))</time></td>\(remove)</tr>")
        }
        let action = service.options.isWritable ? "<th><span class=\"hidden\">Remove</span></th>" : ""
        return """
            <table>
            <thead><tr><th><a href="?sort=name">Name</a></th><th class="number"><a href="?sort=size">Size</a></th>\
            <th class="number"><a href="?sort=time">Changed (UTC)</a></th>\(action)</tr></thead>
            <tbody>
            \(rows.joined(separator: "\n"))
            </tbody>
            </table>
            """
    }

    private var tokenField: String { "<input type=\"hidden\" name=\"token\" value=\"\(HTML.escape(service.token))\">" }

    private var forms: String {
        """
        <form class="bar" method="post" enctype="multipart/form-data">\(tokenField)
        <label>Upload <input type="file" name="file" multiple required></label>
        <button>Upload</button></form>
        <form class="bar" method="post" enctype="multipart/form-data">\(tokenField)
        <label>New folder <input type="text" name="folder" required maxlength="255"></label>
        <button>Create</button></form>
        """
    }
}
