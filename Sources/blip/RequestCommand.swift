import CBLIP
import Glibc

/// `blip request`: one request, and its reply on standard output.
enum RequestCommand {
    static let command = Command(
        name: "request",
        summary: "Send one request and print the body of its reply.",
        operands: "URL PROFILE [-]",
        operandCount: 2...3,
        options: [
            Option(
                name: "--property", short: "p", value: "KEY=VALUE", isRepeatable: true,
                help: "property of the request; may be given several times"),
            Option(name: "--data", short: "d", value: "TEXT", help: "the body"),
            Option(name: "--file", short: "f", value: "FILE", help: "send a file as the body; - alone: standard input"),
            Option(name: "--compressed", help: "compress the request"),
            Option(name: "--urgent", help: "let the request pass others of its connection"),
            Option(name: "--no-reply", help: "ask for no reply"),
            Option(name: "--output", short: "o", value: "FILE", help: "write the reply's body to a file"),
            .verbose,
        ] + Client.options + [.json, .helpOption],
        notes: """
            URL: ws://host:port/path, wss://host:port/path, host:port, a port of this machine, or unix:/path.
            -v shows the connection and the reply's properties on standard error.

            Exit codes: 0 reply, 1 error reply, 2 no connection or lost, 64 usage.
            """,
        run: run)

    private static func run(_ arguments: Arguments) throws(Failure) -> Int32 {
        let isJSON = arguments.has("--json")
        let isVerbose = arguments.has("--verbose")
        let client = try Client(arguments)
        let body = try RequestBody(arguments)
        let request = try Self.request(arguments)
        defer { blip_message_release(request) }
        let isNoReply = arguments.has("--no-reply")
        if isNoReply && arguments.has("--output") {
            throw .usage("--no-reply and --output exclude each other: without a reply there is nothing to write")
        }
        if let path = arguments.value("--output") { try File.checkWritable(path) }
        let connection = try client.open()
        // Also after a failure: a process that just ends looks like a lost connection.
        defer { connection.close() }
        if isVerbose { describe(connection) }
        let output = try arguments.value("--output").map { path throws(Failure) in try File.openForWriting(path) }
        try body.attach(to: request)
        let exchange = Exchange(connection, request, patience: client.patience, total: body.size)
        if isNoReply {
            try exchange.sendWithoutReply()
            connection.close()
            if isJSON { Output.print("{\"type\":\"sent\"}\n") }
            return ExitCode.success
        }
        let reply = try exchange.send()
        let sink = ReplySink(reply, file: output, path: arguments.value("--output"), keepsBody: isJSON)
        if isVerbose { describe(reply) }
        let started = exchange.startTime
        try exchange.receive(reply, into: sink)
        let seconds = Clock.seconds(since: started)
        connection.close()
        if isJSON {
            try Output.print(sink.json(seconds: seconds) + "\n")
        } else {
            try sink.finish()
        }
        if let error = sink.errorText {
            Output.error("blip: \(Terminal.escape(connection.url)) answered with an error: \(error)\n")
            return ExitCode.errorReply
        }
        return ExitCode.success
    }

    /// The request without its body.
    private static func request(_ arguments: Arguments) throws(Failure) -> OpaquePointer {
        let profile = arguments.operands[1]
        var message: OpaquePointer?
        let status = profile.withSlice { blip_request_new($0, &message) }
        guard status >= 0, let message else {
            throw .usage(
                "cannot use the profile \(Terminal.quote(profile)): \(Library.message(of: status))", status: status)
        }
        for text in arguments.all("--property") {
            guard let equals = text.firstIndex(of: "="), equals > text.startIndex else {
                throw .usage("--property wants KEY=VALUE, not \(Terminal.quote(text))")
            }
            let key = String(text[..<equals])
            let status = key.withSlice { key in
                String(text[text.index(after: equals)...]).withSlice { blip_message_set_property(message, key, $0) }
            }
            guard status >= 0 else {
                throw .usage(
                    "cannot set the property \(Terminal.quote(key)): \(Library.message(of: status))", status: status)
            }
        }
        try checkSize(ofProperties: message)
        var flags: UInt32 = 0
        if arguments.has("--compressed") { flags |= BLIP_FLAG_COMPRESSED }
        if arguments.has("--urgent") { flags |= BLIP_FLAG_URGENT }
        if arguments.has("--no-reply") { flags |= BLIP_FLAG_NO_REPLY }
        try Library.check(blip_message_set_flags(message, flags), "set the request's flags")
        if !arguments.has("--no-reply") {
            try Library.check(blip_message_set_streamed(message, true), "ask for the reply as a stream")
        }
        return message
    }

    /// Each key and value takes a byte more than its own.
    private static func checkSize(ofProperties message: OpaquePointer) throws(Failure) {
        var count = 0
        _ = blip_message_property_count(message, &count)
        var size = 0
        for index in 0..<count {
            var key = blip_slice()
            var value = blip_slice()
            guard blip_message_property_at(message, index, &key, &value) >= 0 else { continue }
            size += key.size + value.size + 2
        }
        guard size <= 100 << 10 else {
            throw .usage(
                "the properties are \(Number.grouped(size)) bytes, at most 102,400 are allowed",
                status: BLIP_ERROR_LIMIT)
        }
    }

    private static func describe(_ connection: Connection) {
        let handle = connection.handle
        let address = Library.slice { blip_connection_remote_address(handle, $0) }?.string ?? ""
        let subprotocol = Library.slice { blip_connection_subprotocol(handle, $0) }?.string ?? ""
        var secure = false
        _ = blip_connection_is_secure(handle, &secure)
        var text = "* connected to \(Terminal.escape(address)), \(Terminal.escape(subprotocol))"
        if secure {
            let version = Library.slice { blip_connection_tls_version(handle, $0) }?.string ?? "TLS"
            let cipher = Library.slice { blip_connection_tls_cipher(handle, $0) }?.string ?? ""
            text += ", \(Terminal.escape(version)) \(Terminal.escape(cipher))"
        }
        Output.error(text + "\n")
    }

    private static func describe(_ reply: Reply) {
        var flags = reply.flags.isEmpty ? "" : " (" + reply.flags.joined(separator: ", ") + ")"
        flags += "\n"
        Output.error("* \(reply.isError ? "error reply" : "reply") to request \(reply.number)\(flags)")
        for (key, value) in reply.properties {
            Output.error("< \(Terminal.escape(key)): \(Terminal.escape(value))\n")
        }
    }
}
