// swift-tools-version: 6.2
import PackageDescription

// The layers under test are no products of the library's package; their folders stand here as links.
let package = Package(
    name: "websocket-echo",
    targets: [
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .target(name: "CSystem"),
        .target(name: "WebSocketProtocol", dependencies: ["COpenSSL"]),
        .target(name: "Transport", dependencies: ["CSystem", "COpenSSL"]),
        .executableTarget(name: "Echo", dependencies: ["Transport", "WebSocketProtocol"]),
    ],
    swiftLanguageModes: [.v6]
)
