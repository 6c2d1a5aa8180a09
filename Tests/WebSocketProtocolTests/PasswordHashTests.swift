import Testing

@testable import WebSocketProtocol

@Suite("Hashes of passwords")
struct PasswordHashTests {
    /// RFC 7914 §12.
    @Test func vectorOfTheStandard() throws {
        let given = try #require(
            PasswordHash(
                text: "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$"
                    + "cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofLVQylVYT8Pz2LUlwUkKpr55h6F3A1lHkDfzwF7RVdYhw"))
        #expect(given.check(SecretBytes("pleaseletmein")))
        #expect(!given.check(SecretBytes("pleaseletmeinn")))
        let made = try #require(PasswordHash(SecretBytes("pleaseletmein"), salt: Array("SodiumChloride".utf8)))
        #expect(made.text == "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofI")
    }

    @Test func roundTrip() throws {
        for password in ["", "p", "p\u{E4}ss:w\u{F6}rd", String(repeating: "x", count: 1000)] {
            let hash = try #require(PasswordHash(SecretBytes(password), salt: [UInt8](repeating: 9, count: 16)))
            let read = try #require(PasswordHash(text: hash.text))
            #expect(read.text == hash.text)
            #expect(read.check(SecretBytes(password)) && !read.check(SecretBytes(password + "x")))
        }
    }

    @Test(arguments: [
        "", "$", "$scrypt$", "$scrypt$ln=14,r=8,p=1$$",
        "scrypt$ln=14,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$bcrypt$ln=14,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=8$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=8,p=1,x=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=21,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=9,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=20,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=0,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=8,p=9$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=-1,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng==$MTIzNDU2Nzg5MDEyMzQ1Ng",
        "$scrypt$ln=14,r=8,p=1$MTIz$MTIzNDU2Nzg5MDEyMzQ1Ng", "$scrypt$ln=14,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1Ng$MTIz",
        "$scrypt$ln=14,r=8,p=1$MTIzNDU2Nzg5MDEyMzQ1N$MTIzNDU2Nzg5MDEyMzQ1Ng",
    ])
    func refused(_ text: String) { #expect(PasswordHash(text: text) == nil) }
}
