import Testing

@testable import WebSocketProtocol

@Suite("Credentials")
struct CredentialsTests {
    private func words(_ secret: SecretBytes?) -> String? { secret.map { String(decoding: $0.bytes, as: UTF8.self) } }

    /// RFC 7617 §2 and §2.1.
    @Test func basic() throws {
        #expect(
            words(BasicCredentials.header(user: "Aladdin", password: SecretBytes("open sesame")))
                == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        #expect(
            words(BasicCredentials.header(user: "test", password: SecretBytes("123\u{A3}"))) == "Basic dGVzdDoxMjPCow=="
        )
        #expect(BasicCredentials.header(user: "a:b", password: SecretBytes("c")) == nil)
        #expect(BasicCredentials.header(user: "a\nb", password: SecretBytes("c")) == nil)
        #expect(BasicCredentials.header(user: "a", password: SecretBytes("c\u{7F}")) == nil)

        for (user, password) in [("a", "b"), ("", ""), ("\u{FC}", "p:q:r"), ("x", ""), ("long name", "\u{1F600}")] {
            let value = try #require(words(BasicCredentials.header(user: user, password: SecretBytes(password))))
            let read = try #require(BasicCredentials.read(try HTTPChallenge.parseCredentials(value).get()))
            #expect(read.user == user && words(read.password) == password)
        }
    }

    @Test(arguments: [
        "Basic", "Basic YQ==", "Basic YTpi=", "Basic YTp", "Basic YTpi YTpi", "Basic /zo=", "Basic YQo6Yg==",
        "Basic YTpj=", "Basic YTpjZB==", "Bearer YTpi", "Basic realm=x", "Basic YTpiYTp=iYTpi", "Basic YTo-",
    ])
    func basicRefused(_ value: String) {
        guard case .success(let credentials) = HTTPChallenge.parseCredentials(value) else { return }
        #expect(BasicCredentials.read(credentials) == nil)
    }

    @Test func bearer() {
        #expect(words(BearerToken.header(SecretBytes("mF_9.B5f-4.1JqM"))) == "Bearer mF_9.B5f-4.1JqM")
        for bad in ["", "a b", "a=b", "=", "a\n", "a,b", "\u{FC}"] {
            #expect(BearerToken.header(SecretBytes(bad)) == nil, "\(bad)")
        }
        #expect(BearerToken.isValid("a==".utf8))
    }

    private func digest(_ value: String) throws -> DigestChallenge {
        try DigestChallenge(try #require(try HTTPChallenge.parse([value]).get().first))
    }

    private func field(_ name: String, _ header: SecretBytes?) throws -> String? {
        try HTTPChallenge.parseCredentials(try #require(words(header))).get()[name]
    }

    /// RFC 7616 §3.9.1.
    @Test(arguments: [
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
    ])
    func digestOfTheStandard(_ algorithm: String, _ response: String) throws {
        let challenge = try digest(
            """
            Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=\(algorithm), \
            nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"
            """)
        let header = challenge.header(
            user: "Mufasa", password: SecretBytes("Circle of Life"), method: "GET", uri: "/dir/index.html", count: 1,
            clientNonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ")
        #expect(try field("response", header) == response)
        #expect(try field("nc", header) == "00000001")
        #expect(try field("opaque", header) == "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS")
        #expect(try field("algorithm", header) == algorithm)
        let credentials = try HTTPChallenge.parseCredentials(try #require(words(header))).get()
        #expect(
            DigestChallenge.check(
                credentials, password: SecretBytes("Circle of Life"), method: "GET", target: "/dir/index.html"))
        #expect(
            !DigestChallenge.check(
                credentials, password: SecretBytes("Circle of life"), method: "GET", target: "/dir/index.html"))
        #expect(
            !DigestChallenge.check(credentials, password: SecretBytes("Circle of Life"), method: "GET", target: "/"))
        #expect(DigestChallenge.user(of: credentials) == "Mufasa")
    }

    /// RFC 7616 §3.9.2 as its erratum 4897 has it.
    @Test func digestWithHiddenUser() throws {
        let challenge = try digest(
            """
            Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, \
            nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS", \
            charset=UTF-8, userhash=true
            """)
        let header = challenge.header(
            user: "J\u{E4}s\u{F8}n Doe", password: SecretBytes("Secret, or not?"), method: "GET", uri: "/doe.json",
            count: 1, clientNonce: "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v")
        #expect(
            try field("username", header) == "793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b")
        #expect(
            try field("response", header) == "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5")
        #expect(try field("userhash", header) == "true")
        let credentials = try HTTPChallenge.parseCredentials(try #require(words(header))).get()
        #expect(DigestChallenge.user(of: credentials) == nil)
    }

    /// RFC 2617 §3.5, whose challenge has no algorithm; and without qop the form of RFC 2069.
    @Test func digestOfOlderServers() throws {
        let old = try digest(
            "Digest realm=\"testrealm@host.com\", qop=\"auth\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"")
        let header = old.header(
            user: "Mufasa", password: SecretBytes("Circle Of Life"), method: "GET", uri: "/dir/index.html", count: 1,
            clientNonce: "0a4f113b")
        #expect(try field("response", header) == "6629fae49393a05397450978507c4ef1")
        let older = try digest("Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"")
        let other = older.header(
            user: "Mufasa", password: SecretBytes("Circle Of Life"), method: "GET", uri: "/dir/index.html", count: 1,
            clientNonce: "x")
        #expect(try field("response", other) == "670fd8c2df070c60b045671b8b24ff02")
        #expect(try field("qop", other) == nil)
    }

    @Test func digestOfASession() throws {
        let challenge = try digest("Digest realm=\"r\", nonce=\"n\", qop=auth, algorithm=MD5-sess")
        let header = challenge.header(
            user: "u", password: SecretBytes("p"), method: "GET", uri: "/", count: 2, clientNonce: "c")
        // Computed with Python's hashlib.
        #expect(try field("response", header) == "4eb41d597405539b77a2117ca9cb090c")
        #expect(try field("nc", header) == "00000002")
    }

    @Test func digestQuotes() throws {
        let challenge = try digest("Digest realm=\"a\\\"b\\\\c\", nonce=\"n\", qop=auth")
        let header = challenge.header(
            user: "u\"x", password: SecretBytes("p"), method: "GET", uri: "/", count: 1, clientNonce: "c")
        #expect(try field("realm", header) == "a\"b\\c")
        #expect(try field("username", header) == "u\"x")
        let foreign = challenge.header(
            user: "J\u{E4}s\u{F8}n", password: SecretBytes("p"), method: "GET", uri: "/", count: 1, clientNonce: "c")
        #expect(try field("username*", foreign) == "UTF-8''J%C3%A4s%C3%B8n")
        let read = try HTTPChallenge.parseCredentials(try #require(words(foreign))).get()
        #expect(DigestChallenge.user(of: read) == "J\u{E4}s\u{F8}n")
    }

    @Test(arguments: [
        "Digest nonce=n", "Digest realm=r", "Digest realm=r, nonce=\"\"", "Digest realm=r, nonce=n, qop=auth-int",
        "Digest realm=r, nonce=n, algorithm=SHA-1", "Digest realm=r, nonce=n, algorithm=-sess",
        "Digest realm=r, nonce=n, algorithm=MD5-sess", "Digest", "Digest abc", "Basic realm=r",
    ])
    func digestRefused(_ value: String) { #expect(throws: HTTPChallengeFailure.self) { try digest(value) } }

    @Test func secretsAreNotShown() {
        let secret = SecretBytes("hunter2")
        #expect(!"\(secret)".contains("hunter2"))
        #expect(!"\(HTTPCredentials.password(user: "u", secret))".contains("hunter2"))
        var text = ""
        dump(HTTPCredentials.token(secret), to: &text)
        #expect(!text.contains("hunter2"))
        #expect(secret.equals(SecretBytes("hunter2")) && !secret.equals(SecretBytes("hunter3")))
        #expect(!secret.equals(SecretBytes("hunter")) && SecretBytes("").equals(SecretBytes("")))
    }
}
