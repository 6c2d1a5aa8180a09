/// What a program gives to pass an authentication.
public enum HTTPCredentials: Sendable {
    /// For the schemes Basic and Digest.
    case password(user: String, SecretBytes)
    /// A bearer token (RFC 6750).
    case token(SecretBytes)
}
