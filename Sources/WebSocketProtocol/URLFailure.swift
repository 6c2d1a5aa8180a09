/// Why a text is not a URL that we can connect to.
public struct URLFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// What is wrong and what to write instead. It never quotes user names or passwords.
    public let text: String
    /// The byte of the URL's UTF-8 form at which the trouble starts.
    public let offset: Int

    /// `text`.
    public var description: String { text }

    init(_ text: String, at offset: Int) {
        self.text = text
        self.offset = offset
    }
}
