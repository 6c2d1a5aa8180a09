import CBLIP
import Glibc

/// `blip serve`: a server with a handful of built-in profiles.
enum ServeCommand {
    static let command = Command(
        name: "serve",
        summary: "Listen for connections and answer requests of the built-in profiles.",
        operands: "ADDRESS",
        operandCount: 1...1,
        options: [
            Option(
                name: "--path", value: "/PATH", isRepeatable: true,
                help: "serve this path only; may be given several times (default: any)"),
            Option(
                name: "--protocol", value: "NAME", isRepeatable: true,
                help: "WebSocket subprotocol to speak, as BLIP_3+CBMobile_3 (default: BLIP_3 and BLIP)"),
            Option(name: "--blip1", help: "also serve clients of BLIP 1 (blip://) on the same port"),
            Option(name: "--tls-cert", value: "FILE", help: "certificate chain (PEM): serve wss, with --tls-key"),
            Option(name: "--tls-key", value: "FILE", help: "private key (PEM) of --tls-cert"),
            Option(name: "--client-ca", value: "FILE", help: "require client certificates signed by these (PEM)"),
            Option(
                name: "--user", value: "NAME:PASS", isRepeatable: true,
                help: "let in this user only; several times for several; @FILE: a user a line, hashed or not"),
            Option(name: "--realm", value: "TEXT", help: "what clients are told when a password is asked for"),
            Option(
                name: "--origin", value: "ORIGIN", isRepeatable: true,
                help: "let in web pages of this origin, as https://app.example (default: the server's own)"),
            Option(
                name: "--host", value: "NAME", isRepeatable: true,
                help: "answer browsers that ask for pages by this name, as files.example"),
            Option(name: "--threads", value: "N", help: "loop threads (default 1)"),
            Option(
                name: "--metrics", value: "WHERE",
                help: "answer HTTP GET with figures for Prometheus: /PATH on the same port, or HOST:PORT for /metrics"),
            Option(
                name: "--files", value: "DIR",
                help: "show browsers the files below this folder, at /files/ on the same port"),
            Option(name: "--dashboard", help: "show browsers what the server does, at /dashboard/ on the same port"),
            Option(name: "--files-writable", help: "with --files: allow uploads, new folders and removal"),
            .verbose, .json, .helpOption,
        ],
        notes: """
            ADDRESS: ws://host:port/path, wss://…, host:port, :port (every interface), port (127.0.0.1 only), or
            unix:/path. With blip:// or blips:// it serves BLIP 1 alone, which has no path. Port 0 takes a free one. The
            URL to connect to is printed as one line. SIGINT and SIGTERM end it.

            Profiles:
              echo    answers with the request's body, properties and flags, whatever the size
              sink    takes the body and answers with its size in bytes
              source  answers with as many bytes as the property "size" says: numbered lines of 16 bytes
              error   answers with an error of the properties "domain", "code" and "text"
              sleep   answers after as many milliseconds as the property "ms" says
            """,
        run: run)

    private static func run(_ arguments: Arguments) throws(Failure) -> Int32 {
        let address = try Address(parsing: arguments.operands[0], isListening: true)
        let identity = try Client.identity(arguments, "--tls-cert", "--tls-key")
        for option in ["--tls-cert", "--tls-key", "--client-ca"] {
            if let path = arguments.value(option) { try File.checkReadable(path, for: option) }
        }
        if address.isSecure && identity == nil {
            throw .usage(
                "\(Terminal.quote(arguments.operands[0])) needs a certificate: give --tls-cert FILE and --tls-key FILE")
        }
        if arguments.has("--client-ca") && identity == nil {
            throw .usage("--client-ca needs --tls-cert and --tls-key beside it")
        }
        let threads = try arguments.integer("--threads", 1...256, default: 1)
        // Before any thread is made, so that the signals reach this one alone.
        let signals = Signals(SIGINT, SIGTERM)
        let log = ServeLog(isJSON: arguments.has("--json"), isVerbose: arguments.has("--verbose"))
        let runtime = try self.runtime(threads: UInt32(threads), log)
        defer { blip_runtime_release(runtime) }
        let listener = try self.listener(runtime, address, arguments, identity)
        defer { blip_listener_release(listener) }
        let metrics = try metricsListener(runtime, arguments)
        defer { blip_listener_release(metrics) }
        Profiles.install(on: listener)
        try servePages(of: listener, arguments)
        log.watch(listener: listener)
        try start(listener, at: address, shown: arguments.operands[0])
        let url = Library.slice { blip_listener_url(listener, $0) }?.string ?? ""
        log.listening(url)
        if arguments.has("--dashboard") { log.pages("dashboard", at: "/dashboard/", of: url) }
        if arguments.has("--files") { log.pages("files", at: "/files/", of: url) }
        if let metrics { log.metrics(Library.slice { blip_listener_url(metrics, $0) }?.string ?? "") }
        signals.wait()
        // A second signal ends the program at once.
        signals.unblock()
        _ = blip_listener_stop(listener, true, 2000)
        _ = blip_listener_wait_stopped(listener, 5000)
        _ = blip_runtime_stop(runtime, 2000)
        log.stopped()
        return ExitCode.success
    }

    private static func runtime(threads: UInt32, _ log: ServeLog) throws(Failure) -> OpaquePointer {
        let options = blip_runtime_options_new()
        defer { blip_runtime_options_release(options) }
        try Library.check(blip_runtime_options_set_threads(options, threads), "use --threads")
        var runtime: OpaquePointer?
        let status = blip_runtime_new(options, &runtime)
        guard status >= 0, let runtime else {
            throw .connection("cannot start: \(Library.message(of: status))", status: status)
        }
        log.watch(runtime: runtime)
        return runtime
    }

    private static func servePages(of listener: OpaquePointer, _ arguments: Arguments) throws(Failure) {
        if arguments.has("--dashboard") {
            try Library.check(
                "/dashboard/".withSlice { blip_listener_serve_dashboard(listener, $0) }, "use --dashboard")
        }
        guard let folder = arguments.value("--files") else {
            guard !arguments.has("--files-writable") else { throw .usage("--files-writable needs --files beside it") }
            return
        }
        let options = blip_files_options_new()
        defer { blip_files_options_release(options) }
        try Library.check(
            blip_files_options_set_writable(options, arguments.has("--files-writable")), "use --files-writable")
        let status = folder.withSlice { folder in
            "/files/".withSlice { blip_listener_serve_files(listener, $0, folder, options) }
        }
        guard status >= 0 else {
            throw .usage("cannot serve the files below \(Terminal.quote(folder)): is it a folder that can be read?")
        }
    }

    private static func listener(
        _ runtime: OpaquePointer, _ address: Address, _ arguments: Arguments,
        _ identity: (certificate: String, key: String)?
    ) throws(Failure) -> OpaquePointer {
        let options = blip_listener_options_new()
        defer { blip_listener_options_release(options) }
        for name in arguments.all("--protocol") {
            let status = name.withSlice { blip_listener_options_add_subprotocol(options, $0) }
            guard status >= 0 else {
                throw .usage(
                    "--protocol wants BLIP_3, BLIP or BLIP_3+NAME, not \(Terminal.quote(name))", status: status)
            }
        }
        for path in arguments.all("--path") + (address.path.map { [$0] } ?? []) {
            let status = path.withSlice { blip_listener_options_add_path(options, $0) }
            guard path.hasPrefix("/"), status >= 0 else {
                throw .usage("--path wants a path that begins with /, not \(Terminal.quote(path))")
            }
        }
        if address.isBLIP1 || arguments.has("--blip1") {
            try Library.check(blip_listener_options_set_blip1(options, true), "use --blip1")
        }
        if address.isBLIP1 {
            try Library.check(blip_listener_options_set_websocket(options, false), "use \(arguments.operands[0])")
        }
        if let path = arguments.value("--metrics"), path.hasPrefix("/") {
            let status = path.withSlice { blip_listener_options_set_metrics_path(options, $0) }
            guard status >= 0 else {
                throw .usage("--metrics wants a path without spaces, not \(Terminal.quote(path))", status: status)
            }
        }
        if let identity {
            let status = identity.certificate.withSlice { certificate in
                identity.key.withSlice { blip_listener_options_set_tls_identity(options, certificate, $0) }
            }
            try Library.check(status, "use --tls-cert and --tls-key")
        }
        if let authorities = arguments.value("--client-ca") {
            let status = authorities.withSlice { blip_listener_options_set_tls_client_ca_file(options, $0, true) }
            try Library.check(status, "use --client-ca")
        }
        try addAdmission(to: options, arguments)
        var listener: OpaquePointer?
        let status = blip_listener_new(runtime, options, &listener)
        guard status >= 0, let listener else {
            if status == BLIP_ERROR_TLS_SETUP {
                throw File.notCertificates([identity?.certificate, identity?.key, arguments.value("--client-ca")])
            }
            throw .usage("cannot listen: \(Library.message(of: status))", status: status)
        }
        return listener
    }

    /// Who is let in.
    private static func addAdmission(to options: OpaquePointer?, _ arguments: Arguments) throws(Failure) {
        for text in arguments.all("--user") {
            for line in try Secret.lines(text, "--user") {
                let (name, password) = try Secret.pair(line, "--user")
                let status = name.withSlice { name in
                    password.withSlice {
                        password.hasPrefix("$scrypt$")
                            ? blip_listener_options_add_user_hash(options, name, $0)
                            : blip_listener_options_add_user(options, name, $0)
                    }
                }
                try Library.check(status, "use --user")
            }
        }
        if let realm = arguments.value("--realm") {
            guard arguments.has("--user") else { throw .usage("--realm needs --user beside it") }
            try Library.check(realm.withSlice { blip_listener_options_set_realm(options, $0) }, "use --realm")
        }
        for origin in arguments.all("--origin") {
            let status = origin.withSlice { blip_listener_options_add_origin(options, $0) }
            guard status >= 0 else {
                throw .usage("--origin wants one such as https://app.example, not \(Terminal.quote(origin))")
            }
        }
        for name in arguments.all("--host") {
            guard name.withSlice({ blip_listener_options_add_host(options, $0) }) >= 0 else {
                throw .usage("--host wants a name such as files.example, not \(Terminal.quote(name))")
            }
        }
    }

    /// A listener for figures alone, if they are wanted at an address of their own.
    private static func metricsListener(_ runtime: OpaquePointer, _ arguments: Arguments) throws(Failure)
        -> OpaquePointer?
    {
        guard let place = arguments.value("--metrics"), !place.hasPrefix("/") else { return nil }
        let address = try Address(parsing: place, isListening: true)
        guard !address.isSecure, address.path == nil, case .tcp = address.place else {
            throw .usage("--metrics wants /PATH or HOST:PORT, not \(Terminal.quote(place))")
        }
        let options = blip_listener_options_new()
        defer { blip_listener_options_release(options) }
        try Library.check("/metrics".withSlice { blip_listener_options_set_metrics_path(options, $0) }, "use --metrics")
        try Library.check("/metrics".withSlice { blip_listener_options_add_path(options, $0) }, "use --metrics")
        var listener: OpaquePointer?
        let status = blip_listener_new(runtime, options, &listener)
        guard status >= 0, let listener else {
            throw .usage("cannot listen for --metrics: \(Library.message(of: status))", status: status)
        }
        do {
            try start(listener, at: address, shown: place)
        } catch {
            blip_listener_release(listener)
            throw error
        }
        return listener
    }

    private static func start(_ listener: OpaquePointer, at address: Address, shown: String) throws(Failure) {
        let isUnix = if case .unix = address.place { true } else { false }
        let status =
            switch address.place {
            case .tcp(let host, let port): host.withSlice { blip_listener_start(listener, $0, port) }
            case .unix(let path): path.withSlice { blip_listener_start_unix(listener, $0) }
            }
        guard status < 0 else { return }
        let advice: String
        switch status {
        case BLIP_ERROR_ADDRESS_IN_USE where !isUnix:
            advice = " (another program listens there: take another port, or 0 for a free one)"
        case BLIP_ERROR_ADDRESS_IN_USE where isUnix:
            advice = " (another program listens there: take another path)"
        case BLIP_ERROR_PERMISSION where isUnix: advice = " (check the permissions of the socket's folder)"
        case BLIP_ERROR_PERMISSION: advice = " (ports below 1024 are root's: take a higher one)"
        case BLIP_ERROR_TLS_SETUP: advice = " (check the files of --tls-cert, --tls-key and --client-ca)"
        case BLIP_ERROR_RESOLVE, BLIP_ERROR_NETWORK, BLIP_ERROR_UNREACHABLE, BLIP_ERROR_ARGUMENT:
            advice =
                isUnix
                ? " (check the path and its folder)" : " (the host is an address of this machine, such as 127.0.0.1)"
        case BLIP_ERROR_FILE where isUnix: advice = " (check the path and its folder)"
        default: advice = ""
        }
        var error: OpaquePointer?
        var why = Library.message(of: status)
        var subject = Terminal.escape(shown)
        if blip_listener_error(listener, &error) >= 0, let detail = error.flatMap({ Detail($0) }) {
            why = detail.text
            // It says itself what it is about, and a port with its host.
            if why.hasPrefix("listen on "), let end = why.indices.first(where: { why[$0...].hasPrefix(": ") }) {
                subject = String(why[..<end].dropFirst("listen on ".count))
                why = String(why[end...].dropFirst(2))
            }
        }
        let text = "cannot listen on \(subject): \(why)\(advice)"
        throw status == BLIP_ERROR_TLS_SETUP || status == BLIP_ERROR_ARGUMENT
            ? .usage(text, status: status) : .connection(text, status: status)
    }
}
