/// One challenge of a WWW-Authenticate or Proxy-Authenticate header (RFC 9110 §11.3).
public struct HTTPChallenge: Sendable, Equatable {
    /// The scheme in lower case, such as "basic".
    public var scheme: String
    /// What some schemes have in the place of parameters (RFC 9110 §11.2); nil if it is not there.
    public var token68: String?
    /// Names in lower case, values without quotes, in the order in which they came; each name once.
    public var parameters: [HTTPHeader]

    /// Makes a challenge; nothing is checked.
    public init(scheme: String, token68: String? = nil, parameters: [HTTPHeader] = []) {
        self.scheme = scheme
        self.token68 = token68
        self.parameters = parameters
    }

    /// The value of a parameter, by its name in lower case.
    public subscript(name: String) -> String? { parameters.first { HTTPSyntax.identical($0.name, name) }?.value }

    /// The protection space (RFC 9110 §11.5); empty if the challenge names none.
    public var realm: String { self["realm"] ?? "" }

    /// Reads the challenges of all header lines of that name, in their order.
    ///
    /// - Parameter values: the lines' values, each a list of its own.
    /// - Returns: at least one challenge; or what is wrong, in words that quote nothing.
    public static func parse(_ values: [String]) -> Result<[HTTPChallenge], HTTPChallengeFailure> {
        do throws(HTTPChallengeFailure) {
            var all: [HTTPChallenge] = []
            for value in values {
                var reader = HTTPChallengeReader(value)
                all += try reader.readList()
                if all.count > HTTPChallengeReader.maximumChallenges {
                    throw HTTPChallengeFailure("more than \(HTTPChallengeReader.maximumChallenges) challenges")
                }
            }
            guard !all.isEmpty else { throw HTTPChallengeFailure("no challenge") }
            return .success(all)
        } catch {
            return .failure(error)
        }
    }

    /// Reads the value of an Authorization or Proxy-Authorization header: one scheme with its token or parameters
    /// (RFC 9110 §11.4).
    public static func parseCredentials(_ value: String) -> Result<HTTPChallenge, HTTPChallengeFailure> {
        do throws(HTTPChallengeFailure) {
            var reader = HTTPChallengeReader(value)
            let all = try reader.readList()
            guard all.count == 1, let one = all.first else {
                throw HTTPChallengeFailure("credentials of several schemes")
            }
            return .success(one)
        } catch {
            return .failure(error)
        }
    }
}
