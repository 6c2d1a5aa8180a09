/// What a service does with a request whose head has come.
public enum HTTPReply {
    case respond(HTTPResponse)
    /// Wants the body first.
    case receive(HTTPUpload)
}
