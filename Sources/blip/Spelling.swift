/// Guesses what a person meant to type.
enum Spelling {
    /// The candidate that is at most two edits away, or nil.
    static func nearest(to word: String, among candidates: [String]) -> String? {
        guard word.utf8.count <= 64 else { return nil }
        let near = candidates.map { (distance(word, $0), $0) }.min { $0.0 < $1.0 }
        return near.flatMap { $0.0 <= 2 ? $0.1 : nil }
    }

    private static func distance(_ a: String, _ b: String) -> Int {
        let a = Array(a.utf8), b = Array(b.utf8)
        var row = Array(0...b.count)
        for i in a.indices {
            var diagonal = row[0]
            row[0] = i + 1
            for j in b.indices {
                let substituted = diagonal + (a[i] == b[j] ? 0 : 1)
                diagonal = row[j + 1]
                row[j + 1] = min(substituted, row[j] + 1, diagonal + 1)
            }
        }
        return row[b.count]
    }
}
