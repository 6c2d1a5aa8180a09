/// The server's side of the upgrade (RFC 6455 §4.2).
public enum ServerHandshake {
    /// `protocols`: what we speak. `paths`: the ones served; none: any. `headers`: further lines of an accepting answer.
    public static func decide(
        _ request: HTTPRequestHead, protocols: [String], paths: [String], headers: [HTTPHeader] = []
    ) -> ServerDecision { .refuse(status: 500, response: [], text: "") }

    /// The bytes of an answer that refuses a request and ends the connection.
    public static func refusal(status: Int, text: String, headers: [HTTPHeader] = []) -> [UInt8] { [] }
}
