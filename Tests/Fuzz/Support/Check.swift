#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Ends the run as a finding unless `condition` holds.
@inline(__always)
func check(
    _ condition: @autoclosure () -> Bool, _ text: @autoclosure () -> String, line: Int = #line, file: String = #fileID
) {
    if !condition() { finding(text(), line: line, file: file) }
}

@inline(never)
func finding(_ text: String, line: Int = #line, file: String = #fileID) -> Never {
    let line = "\(file):\(line): \(text)\n"
    _ = write(2, line, line.utf8.count)
    abort()
}

/// A copy of `bytes` in memory of exactly that size, so that the address sanitizer sees a step beyond either end.
func withExact<R>(_ bytes: [UInt8], _ body: (UnsafeMutableRawBufferPointer) -> R) -> R {
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
    defer { memory.deallocate() }
    memory.copyBytes(from: bytes)
    return body(memory)
}
