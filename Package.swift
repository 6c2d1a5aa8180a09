// swift-tools-version: 6.2
import PackageDescription

let warningsAreErrors = Context.environment["BLIP_WARNINGS_AS_ERRORS"] == "1"

let settings: [SwiftSetting] =
    [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        // Exclusive access is proven by the debug build's checks in the tests; a release build must not trap.
        .unsafeFlags(
            ["-cross-module-optimization", "-enforce-exclusivity=unchecked"], .when(configuration: .release)),
    ] + (warningsAreErrors ? [.treatAllWarnings(as: .error)] : [])

// The tool is written against blip.h alone. It contains the library unless BLIP_LINK names a folder with libblip.so,
// to which it is then linked; BLIP_RPATH is where it looks for that file at run time.
var toolDependencies: [Target.Dependency] = ["CBLIP"]
var toolLinkerSettings: [LinkerSetting] = []
if let folder = Context.environment["BLIP_LINK"] {
    var flags = ["-static-stdlib", "-L\(folder)", "-lblip", "-Xlinker", "--gc-sections"]
    flags += ["-Xlinker", "-z", "-Xlinker", "relro", "-Xlinker", "-z", "-Xlinker", "now"]
    if let path = Context.environment["BLIP_RPATH"] {
        flags += ["-Xlinker", "-rpath", "-Xlinker", path]
    }
    toolLinkerSettings = [.unsafeFlags(flags)]
} else {
    toolDependencies.append("BLIPCInterface")
}

// Pages for browsers are off by default and far from BLIP's hot paths: small counts for more than fast.
let small: [SwiftSetting] = [.unsafeFlags(["-Osize"], .when(configuration: .release))]

let hardened: [CSetting] = [
    .unsafeFlags(
        ["-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-Wformat", "-Werror=format-security"],
        .when(configuration: .release))
]

let package = Package(
    name: "libblip",
    products: [
        .library(name: "BLIPShared", type: .dynamic, targets: ["LibBLIP"]),
        .executable(name: "blip", targets: ["blip"]),
    ],
    targets: [
        .systemLibrary(name: "CBLIP", path: "Include"),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CISAL", pkgConfig: "libisal", providers: [.apt(["libisal-dev"])]),
        .target(name: "CSystem", cSettings: hardened),
        .target(name: "CForkRepair", cSettings: hardened),
        .target(name: "BLIPProtocol", dependencies: ["CZlib", "CISAL"], swiftSettings: settings),
        .target(name: "WebSocketProtocol", dependencies: ["COpenSSL"], swiftSettings: settings),
        .target(
            name: "Transport", dependencies: ["CSystem", "COpenSSL"], swiftSettings: settings),
        .target(name: "CSiteAssets"),
        .target(
            name: "HTTPService", dependencies: ["WebSocketProtocol", "CSystem", "CZlib", "CSiteAssets"],
            swiftSettings: settings + small),
        .target(
            name: "BLIP",
            dependencies: ["HTTPService", "BLIPProtocol", "WebSocketProtocol", "Transport", "CBLIP", "CSystem"],
            swiftSettings: settings),
        .target(
            name: "BLIPCInterface", dependencies: ["BLIP", "BLIPProtocol", "CBLIP"],
            swiftSettings: settings),
        .target(
            name: "LibBLIP", dependencies: ["BLIPCInterface", "CForkRepair"], exclude: ["libblip.map"],
            swiftSettings: settings,
            linkerSettings: [
                .unsafeFlags([
                    "-static-stdlib", "-use-ld=lld",
                    "-Xlinker", "--gc-sections",
                    "-Xlinker", "--version-script=Sources/LibBLIP/libblip.map",
                    "-Xlinker", "-soname=libblip.so.1",
                    "-Xlinker", "-z", "-Xlinker", "nodelete",
                    "-Xlinker", "-z", "-Xlinker", "relro", "-Xlinker", "-z", "-Xlinker", "now",
                ])
            ]),
        .executableTarget(
            name: "blip", dependencies: toolDependencies, swiftSettings: settings,
            linkerSettings: toolLinkerSettings),
        .testTarget(
            name: "BLIPProtocolTests", dependencies: ["BLIPProtocol"], swiftSettings: settings),
        .testTarget(
            name: "WebSocketProtocolTests", dependencies: ["WebSocketProtocol"],
            swiftSettings: settings),
        .testTarget(
            name: "SimulationTests", dependencies: ["BLIPProtocol", "WebSocketProtocol"], swiftSettings: settings),
        .testTarget(
            name: "HTTPServiceTests", dependencies: ["HTTPService"], swiftSettings: settings),
        .testTarget(name: "TransportTests", dependencies: ["Transport"], swiftSettings: settings),
        .testTarget(
            name: "CInterfaceTests", dependencies: ["BLIP", "BLIPCInterface", "CBLIP"],
            swiftSettings: settings),
    ],
    swiftLanguageModes: [.v6]
)
