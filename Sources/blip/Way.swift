import CBLIP

/// How the commands that connect reach the server: through which proxy, from where, over which family of addresses.
struct Way {
    static let options: [Option] = [
        Option(
            name: "--proxy", value: "URL",
            help: "http, https, socks5 or socks5h proxy; '' for none (default: http_proxy and so on)"),
        Option(name: "--interface", value: "ADDRESS", help: "address or interface to connect from"),
        Option(name: "--ipv4", short: "4", help: "connect over IPv4 alone"),
        Option(name: "--ipv6", short: "6", help: "connect over IPv6 alone"),
        Option(name: "--srv", help: "look up the host's servers (SRV records)"),
        Option(name: "--key-log", value: "FILE", help: "append the secrets of TLS, for Wireshark"),
    ]

    private let proxy: String?
    private let interface: String?
    private let policy: Int32
    private let looksUpService: Bool
    private let keyLog: String?

    init(_ arguments: Arguments) throws(Failure) {
        proxy = arguments.value("--proxy")
        interface = arguments.value("--interface")
        guard !arguments.has("--ipv4") || !arguments.has("--ipv6") else {
            throw .usage("--ipv4 and --ipv6 exclude each other: give neither for both families")
        }
        policy = arguments.has("--ipv4") ? BLIP_IP_ONLY_4 : arguments.has("--ipv6") ? BLIP_IP_ONLY_6 : BLIP_IP_ANY
        looksUpService = arguments.has("--srv")
        keyLog = arguments.value("--key-log")
    }

    /// Puts it into the options of a connection.
    func apply(to options: OpaquePointer?) throws(Failure) {
        if let proxy {
            let status = proxy.withSlice { blip_connection_options_set_proxy(options, $0) }
            guard status >= 0 else {
                throw .usage(
                    "--proxy wants http://HOST:PORT, https://, socks5:// or socks5h://, not \(Terminal.quote(proxy))",
                    status: status)
            }
        } else {
            try Library.check(blip_connection_options_set_proxy_from_environment(options, true), "use the environment")
        }
        if let interface {
            try Library.check(
                interface.withSlice { blip_connection_options_set_local_address(options, $0, 0) }, "use --interface")
        }
        try Library.check(blip_connection_options_set_ip_policy(options, policy), "use --ipv4 or --ipv6")
        try Library.check(blip_connection_options_set_service_lookup(options, looksUpService), "use --srv")
        if let keyLog {
            try Library.check(
                keyLog.withSlice { blip_connection_options_set_tls_key_log_file(options, $0) }, "use --key-log")
        }
    }
}
