import Testing

@testable import WebSocketProtocol

@Suite("Challenges")
struct HTTPChallengeTests {
    private func shape(_ values: [String]) -> String {
        switch HTTPChallenge.parse(values) {
        case .failure(let failure): "failed: \(failure.text)"
        case .success(let list):
            list.map { challenge in
                challenge.scheme + "(" + (challenge.token68 ?? "")
                    + challenge.parameters.map { "\($0.name)=\($0.value)" }.joined(separator: "|") + ")"
            }.joined(separator: " ")
        }
    }

    @Test(arguments: [
        (["Basic realm=\"a\""], "basic(realm=a)"),
        (["BASIC REALM=a"], "basic(realm=a)"),
        (["Basic"], "basic()"),
        (["Basic realm = \"a b\" , charset=\"UTF-8\""], "basic(realm=a b|charset=UTF-8)"),
        (["Basic realm=\"a\\\"b\\\\c\""], "basic(realm=a\"b\\c)"),
        (["Basic realm=\"a, Digest realm=b\""], "basic(realm=a, Digest realm=b)"),
        (["Basic realm=\"\""], "basic(realm=)"),
        (["Negotiate"], "negotiate()"),
        (["Negotiate YWJj"], "negotiate(YWJj)"),
        (["Negotiate YWJjZA=="], "negotiate(YWJjZA==)"),
        (["Negotiate a="], "negotiate(a=)"),
        (["Negotiate abc=, Basic realm=x"], "negotiate(abc=) basic(realm=x)"),
        (["Negotiate, Basic realm=x"], "negotiate() basic(realm=x)"),
        (["Basic realm=x, Negotiate"], "basic(realm=x) negotiate()"),
        (["Basic realm=x", "Bearer"], "basic(realm=x) bearer()"),
        ([",, ,Basic realm=x,, ,"], "basic(realm=x)"),
        (
            ["Newauth realm=\"apps\", type=1, title=\"Login to \\\"apps\\\"\", Basic realm=\"simple\""],
            "newauth(realm=apps|type=1|title=Login to \"apps\") basic(realm=simple)"
        ),
        (
            ["Digest realm=\"r\",qop=\"auth, auth-int\",algorithm=SHA-256,nonce=\"n\""],
            "digest(realm=r|qop=auth, auth-int|algorithm=SHA-256|nonce=n)"
        ),
        (["Basic realm=\"gr\u{FC}n\""], "basic(realm=gr\u{FC}n)"),
        ([""], "failed: nothing in it"),
        ([], "failed: no challenge"),
        ([" , ,"], "failed: nothing in it"),
        (["realm=x"], "failed: a parameter before any scheme"),
        (["Basic realm=\"a"], "failed: a quoted text without an end"),
        (["Basic realm=\"a\\"], "failed: a backslash with nothing to be quoted behind it"),
        (["Basic realm="], "basic(realm=)"),
        (["Basic realm= , x=y"], "failed: parameters beside a token"),
        (["Basic realm=a realm=b"], "failed: no comma behind a parameter or token"),
        (["Basic realm=a, realm=b"], "failed: a parameter twice"),
        (["Basic realm=a, REALM=b"], "failed: a parameter twice"),
        (["Basic a b"], "failed: a parameter without a value"),
        (["Basic \"x\""], "failed: a name that is not a token"),
        (["Basic=x"], "failed: a parameter before any scheme"),
        (["Basic,\"x\""], "failed: a name that is not a token"),
        (["Basic/x"], "failed: a scheme with something behind it"),
        (["(Basic)"], "failed: a name that is not a token"),
        (["Basic realm=\u{FC}"], "failed: a parameter without a value"),
    ])
    func reads(_ values: [String], _ expected: String) {
        // "realm=" alone is a token68 by the grammar.
        let seen = shape(values)
        #expect(seen == expected || seen == "basic(realm=)" && expected == "basic(realm=)", "\(values)")
    }

    @Test func limits() {
        #expect(shape([[String](repeating: "A", count: 16).joined(separator: ",")]).hasPrefix("a()"))
        #expect(
            shape([[String](repeating: "A", count: 17).joined(separator: ",")]) == "failed: more than 16 challenges")
        #expect(shape([String](repeating: "A", count: 17)) == "failed: more than 16 challenges")
        let many = (0..<33).map { "p\($0)=x" }.joined(separator: ",")
        #expect(shape(["A " + many]) == "failed: more than 32 parameters")
    }

    @Test func credentials() throws {
        let one = try HTTPChallenge.parseCredentials("Bearer abc.def").get()
        #expect(one.scheme == "bearer" && one.token68 == "abc.def")
        #expect(throws: HTTPChallengeFailure.self) {
            try HTTPChallenge.parseCredentials("Basic YQ==, Basic Yg==").get()
        }
        #expect(throws: HTTPChallengeFailure.self) { try HTTPChallenge.parseCredentials("").get() }
    }
}
