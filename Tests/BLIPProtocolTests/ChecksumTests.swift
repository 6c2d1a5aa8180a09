import CZlib
import Testing

@testable import BLIPProtocol

@Suite("The checksum")
struct ChecksumTests {
    @Test("It equals zlib's, whole and running, for every small size and alignment")
    func equalsZlib() {
        let data = noise(3000, 7)
        data.withUnsafeBytes { raw in
            guard let base = raw.baseAddress else { return }
            for offset in 0..<8 {
                for count in Array(0..<200) + [1000, 2048, 2900] {
                    let at = (base + offset).assumingMemoryBound(to: UInt8.self)
                    #expect(Checksum.update(0, base + offset, count) == UInt32(crc32(0, at, uInt(count))))
                    let half = count / 2
                    let running = Checksum.update(
                        Checksum.update(0, base + offset, half), base + offset + half, count - half)
                    #expect(running == UInt32(crc32(0, at, uInt(count))))
                }
            }
        }
    }
}
