import CBLIP

/// What the commands that connect have in common: their options, and opening a connection with them.
struct Client {
    static let options: [Option] =
        [
            Option(
                name: "--protocol", value: "NAME", isRepeatable: true,
                help: "WebSocket subprotocol to offer, as BLIP_3+CBMobile_3 (default: BLIP_3, then BLIP)"),
            Option(
                name: "--header", value: "'NAME: VALUE'", isRepeatable: true,
                help: "HTTP header of the upgrade request"),
            Option(
                name: "--user", value: "NAME:PASSWORD",
                help: "for servers that ask for them (Digest or Basic); @FILE: the file's first line"),
            Option(name: "--bearer", value: "TOKEN", help: "bearer token; @FILE: the file's first line"),
            Option(
                name: "--cookie", value: "NAME=VALUE", isRepeatable: true,
                help: "cookie of the upgrade request; @FILE: the file's lines"),
            Option(name: "--ca-file", value: "FILE", help: "certificates (PEM) to trust instead of the system's"),
            Option(name: "--insecure", help: "do not check the server's certificate"),
            Option(
                name: "--server-name", value: "NAME",
                help: "whom the server's certificate is for, if not the URL's host"),
            Option(name: "--cert", value: "FILE", help: "own certificate chain (PEM), with --key"),
            Option(name: "--key", value: "FILE", help: "private key (PEM) of --cert"),
            Option(
                name: "--timeout", value: "SECONDS",
                help: "give up when nothing moves for that long (default 30; connecting: 15)"),
        ] + Way.options

    private let url: String
    /// The URL as messages show it.
    private let shown: String
    /// How long nothing may happen, in milliseconds.
    let patience: Int64
    private let connectTimeout: Int64
    private let protocols: [String]
    private let headers: [(String, String)]
    private let user: (user: String, password: String)?
    private let token: String?
    private let cookies: [String]
    private let authorities: String?
    private let isInsecure: Bool
    private let serverName: String?
    private let identity: (certificate: String, key: String)?
    private let way: Way

    init(_ arguments: Arguments) throws(Failure) {
        guard let text = arguments.operands.first else { throw .usage("there is no URL") }
        url = try Address.clientURL(text)
        shown = text.hasPrefix("unix:") ? text : Credentials.removed(from: url)
        let timeout = try arguments.milliseconds("--timeout")
        patience = timeout ?? 30_000
        connectTimeout = timeout ?? 15_000
        protocols = arguments.all("--protocol")
        var headers: [(String, String)] = []
        for line in arguments.all("--header") {
            guard let colon = line.firstIndex(of: ":"), colon > line.startIndex else {
                throw .usage("--header wants 'Name: value', not \(Terminal.quote(line))")
            }
            headers.append((String(line[..<colon]), String(line[line.index(after: colon)...].drop { $0 == " " })))
        }
        self.headers = headers
        user = try Secret.value(arguments, "--user").map { text throws(Failure) in try Secret.pair(text, "--user") }
        token = try Secret.value(arguments, "--bearer")
        guard user == nil || token == nil else { throw .usage("--user and --bearer exclude each other") }
        var cookies: [String] = []
        for text in arguments.all("--cookie") { cookies += try Secret.lines(text, "--cookie") }
        self.cookies = cookies
        authorities = arguments.value("--ca-file")
        isInsecure = arguments.has("--insecure")
        serverName = arguments.value("--server-name")
        identity = try Self.identity(arguments, "--cert", "--key")
        way = try Way(arguments)
        for option in ["--ca-file", "--cert", "--key"] {
            if let path = arguments.value(option) { try File.checkReadable(path, for: option) }
        }
    }

    /// Two options that only make sense together.
    static func identity(
        _ arguments: Arguments, _ certificate: String, _ key: String
    ) throws(Failure) -> (certificate: String, key: String)? {
        switch (arguments.value(certificate), arguments.value(key)) {
        case (nil, nil): return nil
        case (let file?, let other?): return (file, other)
        case (nil, _): throw .usage("\(key) needs \(certificate) beside it")
        case (_, nil): throw .usage("\(certificate) needs \(key) beside it")
        }
    }

    /// Makes the connection, lets the caller prepare it, and waits until it is open.
    func open(_ prepare: (Connection) -> Void = { _ in }) throws(Failure) -> Connection {
        let connection = try make()
        prepare(connection)
        let status = blip_connection_wait_open(connection.handle, connectTimeout + 1000)
        guard status >= 0 else { throw failure(connection, status) }
        return connection
    }

    private func make() throws(Failure) -> Connection {
        let options = blip_connection_options_new()
        defer { blip_connection_options_release(options) }
        for name in protocols {
            let status = name.withSlice { blip_connection_options_add_subprotocol(options, $0) }
            guard status >= 0 else {
                throw .usage(
                    "--protocol wants BLIP_3, BLIP or BLIP_3+NAME, not \(Terminal.quote(name))", status: status)
            }
        }
        for (name, value) in headers {
            let status = name.withSlice { name in
                value.withSlice { blip_connection_options_add_header(options, name, $0) }
            }
            guard status >= 0 else {
                throw Self.wrongHeader(name, status)
            }
        }
        try addSecrets(to: options)
        let version = blip_version_string().map { String(cString: $0) } ?? ""
        _ = "blip/\(version)".withSlice { blip_connection_options_set_user_agent(options, $0) }
        try Library.check(
            blip_connection_options_set_connect_timeout(options, connectTimeout), "use --timeout")
        if let authorities {
            try Library.check(
                authorities.withSlice { blip_connection_options_set_tls_ca_file(options, $0) }, "use --ca-file")
        }
        if isInsecure {
            try Library.check(blip_connection_options_set_tls_verify(options, false), "use --insecure")
        }
        if let serverName {
            try Library.check(
                serverName.withSlice { blip_connection_options_set_tls_server_name(options, $0) }, "use --server-name")
        }
        if let identity {
            let status = identity.certificate.withSlice { certificate in
                identity.key.withSlice { blip_connection_options_set_tls_identity(options, certificate, $0) }
            }
            try Library.check(status, "use --cert and --key")
        }
        try way.apply(to: options)
        var handle: OpaquePointer?
        let status = url.withSlice { blip_connection_new(nil, $0, options, &handle) }
        guard status >= 0, let handle else {
            if status == BLIP_ERROR_URL || status == BLIP_ERROR_TEXT || status == BLIP_ERROR_ARGUMENT {
                throw .usage(
                    "cannot use the address \(Terminal.quote(shown)): \(Address.forms)", status: status)
            }
            if status == BLIP_ERROR_TLS_SETUP {
                throw File.notCertificates([authorities, identity?.certificate, identity?.key])
            }
            throw .usage("cannot prepare a connection: \(Library.message(of: status))", status: status)
        }
        return Connection(handle, url: shown)
    }

    /// What must not be shown in any message.
    private func addSecrets(to options: OpaquePointer?) throws(Failure) {
        if let user {
            let status = user.user.withSlice { name in
                user.password.withSlice { blip_connection_options_set_credentials(options, name, $0) }
            }
            try Library.check(status, "use --user")
        }
        if let token {
            try Library.check(
                token.withSlice { blip_connection_options_set_bearer_token(options, $0) }, "use --bearer")
        }
        guard !cookies.isEmpty else { return }
        try Library.check(blip_connection_options_set_cookies(options, true), "use --cookie")
        for cookie in cookies {
            let status = url.withSlice { url in
                // Only the name and value: the rest of such a line is for the server to say.
                (String(cookie.prefix { $0 != ";" }) + "; Path=/").withSlice { blip_runtime_set_cookie(nil, url, $0) }
            }
            guard status >= 0 else { throw .usage("--cookie wants NAME=VALUE without control characters") }
        }
    }

    private static func wrongHeader(_ name: String, _ status: blip_status) -> Failure {
        let reserved = [
            "connection", "upgrade", "content-length", "transfer-encoding", "te", "trailer", "expect", "keep-alive",
        ]
        let lower = name.lowercased()
        let isReserved = reserved.contains(lower) || lower.hasPrefix("sec-websocket-")
        let why =
            isReserved
            ? "\(Terminal.escape(name)) is set by the library"
            : "\(Terminal.quote(name)) cannot be sent: the name is letters, digits and -, the value has no control "
                + "characters and no spaces at its end"
        return .usage("--header: \(why)", status: status)
    }

    private func failure(_ connection: Connection, _ status: blip_status) -> Failure {
        let detail = connection.detail
        let why = detail?.text(without: "connect to", of: shown) ?? Library.message(of: status)
        let advice = advice(status, detail).map { " (\($0))" } ?? ""
        let text = "cannot connect to \(Terminal.escape(shown)): \(why)\(advice)"
        return status == BLIP_ERROR_TLS_SETUP ? .usage(text, status: status) : .connection(text, status: status)
    }

    private var isUnix: Bool { url.prefix { $0 != ":" }.hasSuffix("+unix") }

    private func advice(_ status: blip_status, _ detail: Detail?) -> String? {
        switch status {
        case _ where detail?.text.hasPrefix("The proxy ") == true, BLIP_ERROR_PROXY:
            "check --proxy, or the variables http_proxy, https_proxy and all_proxy"
        case BLIP_ERROR_REFUSED where isUnix:
            "nothing listens there: start a server with blip serve"
        case BLIP_ERROR_FILE where isUnix:
            "check the path, or start a server with blip serve"
        case BLIP_ERROR_PERMISSION:
            isUnix ? "check the permissions of the socket and its folder" : "a firewall may forbid it"
        case BLIP_ERROR_REFUSED:
            "nothing listens there: check host and port, or start a server with blip serve"
        case BLIP_ERROR_URL:
            "check the variables http_proxy, https_proxy and all_proxy"
        case BLIP_ERROR_RESOLVE:
            "check the host's name"
        case BLIP_ERROR_UNREACHABLE:
            "check the address and the network"
        case BLIP_ERROR_TIMEOUT, BLIP_ERROR_PEER_SILENT:
            "no answer for \(Number.fixed(Double(connectTimeout) / 1000, connectTimeout % 1000 == 0 ? 0 : 3)) s: "
                + "check the address, or give it more time with --timeout"
        case BLIP_ERROR_CERTIFICATE:
            certificateAdvice(detail)
        case BLIP_ERROR_TLS:
            tlsAdvice(detail)
        case BLIP_ERROR_TLS_SETUP:
            "check the files of --ca-file, --cert and --key"
        case BLIP_ERROR_SUBPROTOCOL:
            "offer what the server speaks with --protocol"
        case BLIP_ERROR_HTTP_STATUS:
            httpAdvice(detail)
        case BLIP_ERROR_HTTP, BLIP_ERROR_WEBSOCKET:
            "is it a WebSocket server, and is TLS to be used (wss://) or not (ws://)?"
        case BLIP_ERROR_CONNECTION_LOST, BLIP_ERROR_PEER_CLOSED:
            "it ended before it was open: is it a WebSocket server, and is TLS to be used (wss://)?"
        default:
            nil
        }
    }

    /// By OpenSSL's verify error (x509_vfy.h).
    private func certificateAdvice(_ detail: Detail?) -> String {
        switch detail?.code {
        case 62, 64: "the certificate is for another name: connect by that name, or give --server-name"
        case 9, 10: "check this machine's clock; the server may need a new certificate"
        default: "name the authority that signed it with --ca-file, or do without the check with --insecure"
        }
    }

    private func tlsAdvice(_ detail: Detail?) -> String {
        // 70: protocol version; 112: unrecognized name (RFC 8446 §6).
        if let detail, detail.isAlert, detail.code != 70, detail.code != 112 {
            return identity == nil
                ? "it may want a certificate: --cert and --key" : "it may not trust the certificate of --cert"
        }
        return "check that the server speaks TLS on this port: ws:// if it does not, wss:// if it does"
    }

    private func httpAdvice(_ detail: Detail?) -> String? {
        switch detail?.code ?? 0 {
        case 300..<400: nil
        case 401 where token != nil: "the token of --bearer may be wrong or too old"
        case 401 where user != nil: "user name or password of --user may be wrong"
        case 401:
            url == shown || isUnix
                ? "give user:password@ in the URL, or --user or --bearer"
                : "user name or password in the URL may be wrong"
        case 431: "the headers are too large"
        default: "check the URL's path, and offer what the server speaks with --protocol"
        }
    }
}
