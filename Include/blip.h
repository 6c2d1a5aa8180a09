#ifndef BLIP_H
#define BLIP_H

/**
 * @file
 *
 * libblip: BLIP messages over WebSocket, for every language that can call C.
 *
 * BLIP carries requests and responses over one connection, any number at a time and both ways. A
 * message has properties (pairs of texts) and a body of any size. Bodies are cut into frames and
 * interleaved, so that a small urgent request passes a large body that is under way. This header
 * has clients (blip_connection_new), servers (blip_listener_new) and what both need. What follows
 * is worth a page of reading; after it each function can be read alone.
 *
 *     blip_connection *connection = NULL;
 *     blip_message *request = NULL, *reply = NULL;
 *     blip_slice body;
 *     blip_connection_new(NULL, blip_text("ws://localhost:4984/"), NULL, &connection);
 *     if (blip_connection_wait_open(connection, 5000) == BLIP_OK
 *         && blip_request_new(blip_text("echo"), &request) == BLIP_OK
 *         && blip_message_set_text(request, blip_text("hello")) == BLIP_OK
 *         && blip_connection_request(connection, request, 5000, &reply) == BLIP_OK
 *         && blip_message_body(reply, &body) == BLIP_OK)
 *         fwrite(body.data, 1, body.size, stdout);
 *     blip_message_release(reply);
 *     blip_message_release(request);
 *     blip_connection_release(connection);
 *
 * @par Handles
 * A pointer to an opaque type is a handle: a number that is looked up in a table at every use.
 * NULL, a released handle, a handle of another kind or a number out of thin air gives
 * BLIP_ERROR_HANDLE from every function that returns a status, NULL from those that return a
 * handle, and is ignored by release functions. It never crashes, on any thread.
 *
 * @par Ownership
 * Handles are counted. What a function named _new, _retain or _copy gives, and what is said to be
 * the caller's, is released by the function named _release of its kind, once for each time it was
 * given. What a callback is given is borrowed until the callback returns; _retain keeps it. Objects
 * keep alive what they need, so that handles may be released in any order, on any thread, inside
 * callbacks too. Releasing NULL is fine. Nothing is ever released with free(). Handles of one
 * object that are valid at the same time are equal, so that they may be compared.
 *
 * @par Statuses
 * Functions that can fail return a blip_status: BLIP_OK is 0, errors are negative, and the few
 * positive ones are no errors. Outputs come last and are written on success only. blip_status_name
 * and blip_status_message take any integer, also those of later versions. There is no last error of
 * a thread: detail (domain, code, text) is a blip_error of the connection, listener or response
 * that failed. An error response of the peer is no status: it is a response of type
 * BLIP_MESSAGE_ERROR, delivered with BLIP_OK. Where a function below names BLIP_ERROR_TEXT,
 * BLIP_ERROR_ARGUMENT also stands for a slice with NULL data and a size above 0.
 *
 * @par Slices
 * Text and bytes are a blip_slice, an address and a size. Text is UTF-8 without NUL and is not
 * NUL-terminated; an empty slice is allowed unless the function says otherwise. Slices given to a
 * function are borrowed for the call, unless it says otherwise. Slices that a function gives lie in
 * the object they come from; they end with it, or when it is changed. A slice of a mutable message
 * must not be given to a function that changes this message.
 *
 * @par Callbacks
 * A callback is set with its context and a function that releases the context, in this order. The
 * context is the last argument of each call. release_context is called exactly once, after the last
 * call: when the callback was replaced, when its object has ended, or at once if the setter fails;
 * on whatever thread lets go of it last. No lock is held during a callback, and every function may
 * be called in one, except that those which wait refuse on a loop thread
 * (BLIP_ERROR_WOULD_DEADLOCK). A callback on a loop thread should return soon: all connections of
 * that loop wait for it.
 *
 * @par Threads
 * Each function has a tag. [any]: any thread at any time. [object]: one thread at a time for one
 * object; this goes for messages that are not sent yet and for options. [callback]: also in
 * callbacks, on loop threads. A connection lives on one loop of its runtime; its callbacks come one
 * at a time, in order, on that loop's thread, unless a queue is used.
 *
 * @par Queues
 * With a blip_queue, callbacks and completions become events that a thread of the program takes:
 * blip_queue_dispatch runs the callbacks there, blip_queue_next hands out the events as objects,
 * for languages that cannot take callbacks. The queue has a descriptor for poll. Of things that
 * have a setter only those that were set make events; with a queue the function may be NULL, and
 * the context still identifies the event. When a queue is full the library stops reading from the
 * peers that fill it.
 *
 * @par Exactly once
 * A request that was accepted for sending (blip_connection_send or blip_connection_request gave
 * BLIP_OK) completes exactly once: with a response, an error response, or a negative status,
 * whatever happens to the connection. All completions of a connection come before its close
 * callback, which comes once and last. A request of the peer that wants a reply is answered exactly
 * once: by the program, or by the library in its place.
 *
 * @par Time
 * Times are milliseconds on the monotonic clock, as int64_t: -1 for ever, 0 not at all; less than
 * -1 is BLIP_ERROR_ARGUMENT.
 *
 * @par fork
 * In a child process each handle of the parent gives BLIP_ERROR_FORKED, and release functions do
 * nothing with it. The child may make new objects. Sockets are closed in children that exec. While
 * a process forks, the loops rest where they hold no lock: fork waits for that, at most 100 ms if a
 * callback does not return. Threads of the program's that are inside a function of the library at
 * that moment may hold a lock that nobody in the child can unlock: let them pause, or exec.
 *
 * @par Versions
 * Functions and constants are only ever added. A program must be ready to meet statuses and kinds
 * of events that it does not know: a status by its sign, an event by releasing it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup library Library and types
 *
 * The version of header and library, the types that everything else uses, and the texts of
 * statuses.
 *
 * @{
 */

/** Major version of this header: changes when a program has to be changed. Since 1.0. */
#define BLIP_VERSION_MAJOR 1

/** Minor version of this header: changes when something was added. Since 1.0. */
#define BLIP_VERSION_MINOR 0

/** Patch version of this header. Since 1.0. */
#define BLIP_VERSION_PATCH 0

/** Version of this header as one number that grows, such as 1002003 for 1.2.3. Since 1.0. */
#define BLIP_VERSION_NUMBER (BLIP_VERSION_MAJOR*1000000+BLIP_VERSION_MINOR*1000+BLIP_VERSION_PATCH)

/**
 * What became of a call: BLIP_OK (0), an error (negative), or one of the few positive ones.
 * Since 1.0.
 */
typedef int32_t blip_status;

/**
 * Bytes, or text in UTF-8: where they lie and how many they are.
 *
 * The only public structure; its layout never changes. data may be NULL if size is 0. Text is not
 * NUL-terminated: print it with "%.*s", (int)slice.size, (const char *)slice.data.
 *
 * Since 1.0.
 */
typedef struct blip_slice {
    /** The first byte. */
    const void *data;
    /** The number of bytes. */
    size_t size;
} blip_slice;

/** Options of a runtime, copied when it is made. Since 1.0. */
typedef struct blip_runtime_options blip_runtime_options;

/** Loops, and the threads that run them, with everything that lives on them. Since 1.0. */
typedef struct blip_runtime blip_runtime;

/** Events on their way to a thread of the program. Since 1.0. */
typedef struct blip_queue blip_queue;

/** Something that has happened, taken from a queue. Since 1.0. */
typedef struct blip_event blip_event;

/** Options of a connection, copied when it is made. Since 1.0. */
typedef struct blip_connection_options blip_connection_options;

/** One BLIP connection: outgoing, accepted by a listener, or without a network. Since 1.0. */
typedef struct blip_connection blip_connection;

/** Options of a listener, copied when it is made. Since 1.0. */
typedef struct blip_listener_options blip_listener_options;

/** How a listener serves files, copied when it is told to. Since 1.0. */
typedef struct blip_files_options blip_files_options;

/** Accepts connections on a port or a Unix socket. Since 1.0. */
typedef struct blip_listener blip_listener;

/** A request, a response or an error response, either way. Since 1.0. */
typedef struct blip_message blip_message;

/** A certificate of a peer that the program is to judge. Since 1.0. */
typedef struct blip_trust blip_trust;

/** Why something failed: domain, code and text. Since 1.0. */
typedef struct blip_error blip_error;

/** A server's or proxy's demand for authentication. Since 1.0. */
typedef struct blip_challenge blip_challenge;

/** Figures of a connection, listener or runtime, all of one moment. Since 1.0. */
typedef struct blip_counters blip_counters;

/** A bundle of observer, interceptor and handlers, registered as one. Since 1.0. */
typedef struct blip_module blip_module;

/** Keeps a connection to a URL, with another one whenever it is lost. Since 1.0. */
typedef struct blip_reconnector blip_reconnector;

/** One open connection for each URL. Since 1.0. */
typedef struct blip_pool blip_pool;

/** What a program brings to carry the frames of one connection itself. Since 1.0. */
typedef struct blip_transport blip_transport;

/**
 * Gives the version of the library that is loaded.
 *
 * @return The version, made as BLIP_VERSION_NUMBER.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
uint32_t blip_version_number(void);

/**
 * Gives the version of the library that is loaded, as text.
 *
 * @return A NUL-terminated text such as "1.0.0".
 *
 * Ownership: the text is the library's and stays for ever.
 * Threads: [any] [callback]. Since 1.0.
 */
const char *blip_version_string(void);

/**
 * Names a status.
 *
 * @param status Any integer.
 * @return The constant's name, such as "BLIP_ERROR_TIMEOUT"; "BLIP_ERROR_UNKNOWN" for a number that
 *     is none.
 *
 * Ownership: the text is the library's and stays for ever.
 * Threads: [any] [callback]. Since 1.0.
 */
const char *blip_status_name(blip_status status);

/**
 * Says in one English sentence what a status means.
 *
 * @param status Any integer.
 * @return A NUL-terminated sentence; never NULL.
 *
 * Ownership: the text is the library's and stays for ever.
 * Threads: [any] [callback]. Since 1.0.
 */
const char *blip_status_message(blip_status status);

/**
 * Makes a slice of a NUL-terminated text.
 *
 * @param text A NUL-terminated text, or NULL.
 * @return The slice, without the NUL; empty for NULL.
 *
 * Ownership: the slice points to text and ends with it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_slice blip_text(const char *text);

/** @} */

/**
 * @defgroup statuses Statuses
 *
 * Errors lie in bands, with gaps for later ones: misuse from -1, state from -50, peer and protocol
 * from -100, network from -200, TLS from -300, HTTP from -400, limits from -500, internal ones from
 * -900. Numbers are never used again for something else.
 *
 * @{
 */

/** Success. Since 1.0. */
#define BLIP_OK 0

/** The handle is not a live object of the right kind. Since 1.0. */
#define BLIP_ERROR_HANDLE (-1)

/** An argument is out of its range, or NULL where it may not be. Since 1.0. */
#define BLIP_ERROR_ARGUMENT (-2)

/** A text is not UTF-8 or has an embedded NUL. Since 1.0. */
#define BLIP_ERROR_TEXT (-3)

/**
 * The message was sent or received: it cannot be changed, nor sent again; blip_message_copy makes
 * one that can. Since 1.0.
 */
#define BLIP_ERROR_IMMUTABLE (-4)

/**
 * A waiting function was called on a loop thread, in a callback: use the asynchronous form.
 * Since 1.0.
 */
#define BLIP_ERROR_WOULD_DEADLOCK (-5)

/** The handle belongs to the parent process. Since 1.0. */
#define BLIP_ERROR_FORKED (-6)

/** The URL cannot be parsed, or its scheme is unknown. Since 1.0. */
#define BLIP_ERROR_URL (-7)

/** There is no such property, header, address, error or other thing. Since 1.0. */
#define BLIP_ERROR_NOT_FOUND (-8)

/** Not possible with this object. Since 1.0. */
#define BLIP_ERROR_UNSUPPORTED (-9)

/** The object is not in the state that this needs. Since 1.0. */
#define BLIP_ERROR_STATE (-50)

/** The connection is closing or closed, or this side has closed it. Since 1.0. */
#define BLIP_ERROR_CLOSED (-51)

/** The request was cancelled by blip_message_cancel. Since 1.0. */
#define BLIP_ERROR_CANCELLED (-52)

/** The time was over first. Since 1.0. */
#define BLIP_ERROR_TIMEOUT (-53)

/** The request wants no reply and cannot be responded to. Since 1.0. */
#define BLIP_ERROR_NO_REPLY (-54)

/** The request was responded to already. Since 1.0. */
#define BLIP_ERROR_ALREADY_RESPONDED (-55)

/** The body has not arrived as a whole. Since 1.0. */
#define BLIP_ERROR_NOT_COMPLETE (-56)

/** The runtime was stopped. Since 1.0. */
#define BLIP_ERROR_STOPPED (-57)

/** An interceptor dropped the message. Since 1.0. */
#define BLIP_ERROR_FILTERED (-58)

/** The peer broke the BLIP protocol; the connection ends. Since 1.0. */
#define BLIP_ERROR_PROTOCOL (-100)

/** The peer broke the WebSocket protocol; the connection ends. Since 1.0. */
#define BLIP_ERROR_WEBSOCKET (-101)

/** Client and server agreed on no subprotocol. Since 1.0. */
#define BLIP_ERROR_SUBPROTOCOL (-102)

/** The peer closed the connection; the connection's error has the code. Since 1.0. */
#define BLIP_ERROR_PEER_CLOSED (-103)

/** The properties of the received message are malformed. Since 1.0. */
#define BLIP_ERROR_PROPERTIES (-104)

/**
 * The body of a received message cannot be decompressed, or the source of one to be sent failed.
 * Since 1.0.
 */
#define BLIP_ERROR_BODY (-105)

/** The network failed in a way that has no status of its own. Since 1.0. */
#define BLIP_ERROR_NETWORK (-200)

/** The host name cannot be looked up. Since 1.0. */
#define BLIP_ERROR_RESOLVE (-201)

/** The connection was refused: nothing listens there. Since 1.0. */
#define BLIP_ERROR_REFUSED (-202)

/** The host or network cannot be reached, or the address is none of this machine's. Since 1.0. */
#define BLIP_ERROR_UNREACHABLE (-203)

/** The connection was reset, or ended without a WebSocket close. Since 1.0. */
#define BLIP_ERROR_CONNECTION_LOST (-204)

/** The address or port is in use. Since 1.0. */
#define BLIP_ERROR_ADDRESS_IN_USE (-205)

/** The operating system did not permit it. Since 1.0. */
#define BLIP_ERROR_PERMISSION (-206)

/** Nothing was received in spite of pings. Since 1.0. */
#define BLIP_ERROR_PEER_SILENT (-207)

/**
 * A file is not a regular one, the range lies outside of it, or its descriptor is not good; or the
 * path of a Unix socket leads to none. Since 1.0.
 */
#define BLIP_ERROR_FILE (-208)

/** The proxy refuses, does not reach the server, or is none. Since 1.0. */
#define BLIP_ERROR_PROXY (-209)

/** TLS failed. Since 1.0. */
#define BLIP_ERROR_TLS (-300)

/** The peer's certificate is not trusted, or is for another name. Since 1.0. */
#define BLIP_ERROR_CERTIFICATE (-301)

/** A certificate, key or CA file of this side cannot be used; the error says why. Since 1.0. */
#define BLIP_ERROR_TLS_SETUP (-302)

/** The peer sent malformed or unexpected HTTP, or a request that was refused. Since 1.0. */
#define BLIP_ERROR_HTTP (-400)

/**
 * The server answered the upgrade with another HTTP status, which is the error's code. Since 1.0.
 */
#define BLIP_ERROR_HTTP_STATUS (-401)

/** A size limit was exceeded. Since 1.0. */
#define BLIP_ERROR_LIMIT (-500)

/** Descriptors, threads, handles or memory ran out. Since 1.0. */
#define BLIP_ERROR_RESOURCES (-501)

/** An error of the library itself; please report it. Since 1.0. */
#define BLIP_ERROR_INTERNAL (-900)

/** @} */

/**
 * @defgroup errors Errors
 *
 * A blip_error belongs to the connection, listener or error response that it was got from, and
 * lives as long. To keep it longer, retain it.
 *
 * @{
 */

/** Domain of an error: BLIP itself; its codes are BLIP_CODE_BAD_REQUEST and so on. Since 1.0. */
#define BLIP_DOMAIN_BLIP "BLIP"

/** Domain of an error: codes of the WebSocket close (RFC 6455 §7.4). Since 1.0. */
#define BLIP_DOMAIN_WEBSOCKET "WebSocket"

/** Domain of an error: HTTP statuses (RFC 9110 §15). Since 1.0. */
#define BLIP_DOMAIN_HTTP "HTTP"

/** Domain of an error: errno of the operating system. Since 1.0. */
#define BLIP_DOMAIN_POSIX "POSIX"

/** Domain of an error: verification results and errors of OpenSSL. Since 1.0. */
#define BLIP_DOMAIN_TLS "TLS"

/** Domain of an error: results of getaddrinfo. Since 1.0. */
#define BLIP_DOMAIN_DNS "DNS"

/** Code of the domain BLIP: data that cannot be read. Since 1.0. */
#define BLIP_CODE_BAD_DATA 1

/** Code of the domain BLIP: a frame that breaks the protocol. Since 1.0. */
#define BLIP_CODE_BAD_FRAME 2

/** Code of the domain BLIP: the connection ended before the response. Since 1.0. */
#define BLIP_CODE_DISCONNECTED 3

/** Code of the domain BLIP: the peer is not allowed to connect. Since 1.0. */
#define BLIP_CODE_PEER_NOT_ALLOWED 4

/** Code of the domain BLIP: something else. Since 1.0. */
#define BLIP_CODE_MISC 99

/** Code of the domain BLIP: the request makes no sense. Since 1.0. */
#define BLIP_CODE_BAD_REQUEST 400

/** Code of the domain BLIP: the peer may not do this. Since 1.0. */
#define BLIP_CODE_FORBIDDEN 403

/** Code of the domain BLIP: nobody handles the profile, or there is no such thing. Since 1.0. */
#define BLIP_CODE_NOT_FOUND 404

/** Code of the domain BLIP: there is no such range. Since 1.0. */
#define BLIP_CODE_BAD_RANGE 416

/** Code of the domain BLIP: the request's handler failed. Since 1.0. */
#define BLIP_CODE_HANDLER_FAILED 501

/** Code of the domain BLIP: an error response that gives no code. Since 1.0. */
#define BLIP_CODE_UNSPECIFIED 599

/**
 * Says in one English sentence what a code of the domain BLIP means.
 *
 * @param code Any integer.
 * @return A NUL-terminated sentence; never NULL.
 *
 * Ownership: the text is the library's and stays for ever.
 * Threads: [any] [callback]. Since 1.0.
 */
const char *blip_code_message(int32_t code);

/**
 * Gives the status that fits the error.
 *
 * @param error The error.
 * @return The status; BLIP_OK for the error of an error response, which is no failure of this side;
 *     BLIP_ERROR_HANDLE or BLIP_ERROR_FORKED if the handle is not good.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_error_status(blip_error *error);

/**
 * Tells whose code the error's code is.
 *
 * "BLIP" (of a protocol error, the code of the WebSocket close), "WebSocket" (the peer's close
 * code), "HTTP" (HTTP status), "POSIX" (errno), "TLS" (OpenSSL's), "DNS" (getaddrinfo's). Of an
 * error response: what the peer says; "BLIP" if it says nothing.
 *
 * @param error The error.
 * @param domain Receives the domain.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: domain is NULL.
 *
 * Ownership: domain: it lies in the error: valid while the error lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_error_domain(blip_error *error, blip_slice *domain);

/**
 * Gives the error's number in its domain.
 *
 * 0 where there is none. Of an error response without a readable code, or with 0: 599.
 *
 * @param error The error.
 * @param code Receives the code.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: code is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_error_code(blip_error *error, int64_t *code);

/**
 * Gives the error's text: what happened, to what, and what to do.
 *
 * In English; of an error response the peer's own text, which is its body. If the response is
 * streamed, the text is complete only as far as the body was in memory when the error was first
 * asked for: read the body instead.
 *
 * @param error The error.
 * @param message Receives the text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: message is NULL.
 *
 * Ownership: message: it lies in the error: valid while the error lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_error_message(blip_error *error, blip_slice *message);

/**
 * Takes one more reference.
 *
 * @param error The error.
 * @return error, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_error_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_error *blip_error_retain(blip_error *error);

/**
 * Gives a reference back.
 *
 * @param error The error.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_error_release(blip_error *error);

/** @} */

/**
 * @defgroup runtimes Runtimes
 *
 * A runtime has loops; each loop carries any number of connections. By default each loop has a
 * thread of the library's ("blip-0" and so on, with all signals blocked). A runtime without threads
 * has one loop that the program runs inside its own: poll blip_runtime_fd, then
 * blip_runtime_run_once. Waiting functions then run the loop themselves, on the thread that waits;
 * only one thread at a time may drive it. Most programs need none of this: NULL in place of a
 * runtime is the shared one.
 *
 * @{
 */

/**
 * Makes options of a runtime, all at their defaults.
 *
 * @return The options; NULL if memory or handles ran out.
 *
 * Ownership: the options are the caller's: blip_runtime_options_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_runtime_options *blip_runtime_options_new(void);

/**
 * Gives the options back.
 *
 * @param options The options.
 *
 * Ownership: ends the caller's reference; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_runtime_options_release(blip_runtime_options *options);

/**
 * Sets the number of loop threads.
 *
 * Default 1. With 0 the program runs the loop. More than one spread connections; a single
 * connection never uses more than one.
 *
 * @param options The options.
 * @param threads 0 to 256.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: more than 256.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_runtime_options_set_threads(blip_runtime_options *options, uint32_t threads);

/**
 * Sets the queue of connections and listeners that have none of their own.
 *
 * @param options The options.
 * @param queue The queue; NULL: none (the default), callbacks run on loop threads.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: the options, and all that is made with them, keep the queue alive.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_runtime_options_set_queue(blip_runtime_options *options, blip_queue *queue);

/**
 * Limits the memory of received messages of all connections together.
 *
 * Counts what BLIP_LIMIT_UNFINISHED_BYTES counts for one connection. The message that exceeds it
 * fails in the same way: requests of peers are answered with BLIP/503, requests of ours end with
 * BLIP_ERROR_LIMIT. Each loop may be wrong by some 64 KiB, and by what one connection brings in a
 * turn. Default: no limit.
 *
 * @param options The options.
 * @param bytes At least 1 MiB; 0: no limit.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below 1 MiB or above
 *     2^50.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_runtime_options_set_memory_limit(blip_runtime_options *options, uint64_t bytes);

/**
 * Makes a runtime and starts its threads.
 *
 * @param options Options, copied; NULL: the defaults.
 * @param runtime Receives the runtime.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: runtime is NULL;
 *     BLIP_ERROR_RESOURCES: no thread or descriptor could be made.
 *
 * Ownership: the runtime is the caller's: blip_runtime_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_new(blip_runtime_options *options, blip_runtime **runtime);

/**
 * Gives the shared runtime, with one thread, which is made on first use.
 *
 * It is used wherever NULL is given for a runtime. After blip_runtime_stop of it, or in a child of
 * fork, the next use makes a new one.
 *
 * @return The runtime; NULL if none can be made.
 *
 * Ownership: borrowed: it is not to be released.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_runtime *blip_runtime_default(void);

/**
 * Takes one more reference.
 *
 * @param runtime The runtime.
 * @return runtime, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_runtime_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_runtime *blip_runtime_retain(blip_runtime *runtime);

/**
 * Gives a reference back; the last one lets the threads end once no connection or listener is left.
 *
 * Never waits: blip_runtime_stop does.
 *
 * @param runtime The runtime.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_runtime_release(blip_runtime *runtime);

/**
 * Gives the number of loop threads.
 *
 * @param runtime The runtime.
 * @param count Receives the number; 0 if the program runs the loop.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_thread_count(blip_runtime *runtime, uint32_t *count);

/**
 * Gives the descriptor to poll of a runtime without threads.
 *
 * Readable while blip_runtime_run_once has something to do, due timers included. It is only to be
 * polled: never read, written or closed. It can be put into another epoll set.
 *
 * @param runtime The runtime.
 * @param fd Receives the descriptor.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fd is NULL;
 *     BLIP_ERROR_STATE: the runtime has threads.
 *
 * Ownership: the descriptor is the runtime's and ends with it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_fd(blip_runtime *runtime, int *fd);

/**
 * Runs one turn of the loop of a runtime without threads; callbacks run inside.
 *
 * Does what is due: input, output, timers, callbacks. Returns at once, with 0, if another thread is
 * in the loop.
 *
 * @param runtime The runtime.
 * @param timeout How long to wait for something to do, in milliseconds; -1: for ever; 0: not at
 *     all.
 * @param events Receives how many things were done; may be NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_STATE: the runtime has threads; BLIP_ERROR_WOULD_DEADLOCK: called inside a loop.
 *
 * Threads: [any], one thread at a time. Since 1.0.
 */
blip_status blip_runtime_run_once(blip_runtime *runtime, int64_t timeout, uint32_t *events);

/**
 * Closes all connections and listeners of the runtime, completes everything, and ends its threads.
 *
 * Connections close with 1001; what is pending completes with BLIP_ERROR_STOPPED. Who has not ended
 * in time is dropped. Then the threads are joined: a callback that does not return holds this up.
 * Events that wait in a queue stay there for the program. Afterwards nothing can be made with the
 * runtime (BLIP_ERROR_STOPPED). A second call returns BLIP_OK at once, even while the first one
 * waits.
 *
 * @param runtime The runtime.
 * @param timeout How long connections may take to close, in milliseconds; -1: as long as they need.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_TIMEOUT: connections had to be dropped, everything is stopped nevertheless;
 *     BLIP_ERROR_WOULD_DEADLOCK: called on a loop thread.
 *
 * Ownership: the handle stays the caller's to release.
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_runtime_stop(blip_runtime *runtime, int64_t timeout);

/** Level of the log: an object could not be made. Since 1.0. */
#define BLIP_LOG_ERROR 1

/** Level of the log: a peer broke a protocol, or accepting failed. Since 1.0. */
#define BLIP_LOG_WARNING 2

/** Level of the log: connections and listeners begin and end. Since 1.0. */
#define BLIP_LOG_INFO 3

/** Level of the log: details. Since 1.0. */
#define BLIP_LOG_DEBUG 4

/**
 * Takes one line of the log.
 *
 * Called on whatever thread has something to say, a loop's or one that calls the library; it must
 * be ready to run on several at once. With blip_runtime_set_log_queue on a thread that takes from
 * that queue; no other queue gets it.
 *
 * @param level BLIP_LOG_ERROR and so on.
 * @param domain Which part speaks: "connection", "listener"; more may come.
 * @param text The line, without its end.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [any]. Since 1.0.
 */
typedef void (*blip_log_fn)(int32_t level, blip_slice domain, blip_slice text, void *context);

/**
 * Sets who takes the log of a runtime.
 *
 * There is no log by default. Text is made only for levels that are wanted.
 *
 * @param runtime The runtime.
 * @param level The highest level wanted, from BLIP_LOG_ERROR to BLIP_LOG_DEBUG; 0: none.
 * @param fn The function; NULL: no log.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: level is none of
 *     these.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_set_log(
    blip_runtime *runtime, int32_t level, blip_log_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets that the log of a runtime goes through a queue.
 *
 * Takes the place of what blip_runtime_set_log has set, and the other way round. Lines for which
 * the queue has no room are lost: the log holds nobody up. Let it have a queue of its own if none
 * may be missed while many other events wait.
 *
 * @param runtime The runtime.
 * @param level The highest level wanted, from BLIP_LOG_ERROR to BLIP_LOG_DEBUG; 0: none.
 * @param queue Where the lines go.
 * @param fn The function that blip_queue_dispatch runs; NULL: an event without function.
 * @param context What fn is given as its last argument, and the event has; may be NULL.
 * @param release_context Called exactly once with context, when no event with it is left or to
 *     come; or NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: level is none of
 *     these.
 *
 * Ownership: the runtime keeps the queue alive. context is lent until release_context is called,
 * which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_set_log_queue(
    blip_runtime *runtime, int32_t level, blip_queue *queue, blip_log_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Puts a cookie into the runtime's jar.
 *
 * As if the server of that URL had sent it in a Set-Cookie header: it goes with the upgrade
 * requests of connections that use cookies (blip_connection_options_set_cookies) and whose URLs fit
 * its domain and path. One of the same name, domain and path is replaced; Max-Age=0 removes it. A
 * jar holds 1000 cookies, 50 of a domain, of 4096 bytes each, for at most 400 days, in memory only.
 *
 * Source: RFC 6265 §5.2, §5.3.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param url Whose cookie it is, such as "wss://host/db".
 * @param cookie Such as "SyncGatewaySession=0123abcd; Path=/db".
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_URL;
 *     BLIP_ERROR_ARGUMENT: it has no name, is too large, has control characters, is for another
 *     domain than the URL's, or is Secure and the URL is not; BLIP_ERROR_RESOURCES.
 *
 * Ownership: url and cookie are borrowed for the call; wiping them is the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_set_cookie(blip_runtime *runtime, blip_slice url, blip_slice cookie);

/** The most bytes that blip_runtime_cookies gives. Since 1.0. */
#define BLIP_COOKIES_SIZE 8192

/**
 * Gives the cookies that would be sent to a URL, as "name=value; name=value".
 *
 * Source: RFC 6265 §5.4.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param url The URL.
 * @param buffer Where they go; not NUL-terminated.
 * @param capacity Room in buffer; BLIP_COOKIES_SIZE is always enough.
 * @param size Receives the number of bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_URL;
 *     BLIP_ERROR_ARGUMENT: buffer or size is NULL; BLIP_ERROR_NOT_FOUND: there are none;
 *     BLIP_ERROR_LIMIT: they do not fit; BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call; the bytes are copied into the caller's buffer.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_cookies(
    blip_runtime *runtime, blip_slice url, void *buffer, size_t capacity, size_t *size);

/**
 * Forgets all cookies of a runtime.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_RESOURCES.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_clear_cookies(blip_runtime *runtime);

/** @} */

/**
 * @defgroup queues Queues and events
 *
 * A queue takes events from loop threads to threads of the program. It is given to options of a
 * runtime, connection or listener, and carries everything that would be a callback then, except
 * blip_body_fn, blip_frame_fn, blip_timeout_fn, and blip_log_fn, for which there is
 * blip_runtime_set_log_queue. Take from it with blip_queue_dispatch or with blip_queue_next, not
 * both. Several threads may take; what they take is in order, what they make of it runs side by
 * side. The capacity is no wall: at that many events the connections that bring more stop reading
 * from their peers, until half of them are taken; completions of what the program sent still go in.
 * A queue is to be emptied until the close and stopped events have come: events that wait keep
 * their connections alive.
 *
 * @{
 */

/**
 * Makes a queue.
 *
 * @param capacity How many events may wait before connections stop reading; 0: 4096.
 * @param queue Receives the queue.
 * @return BLIP_OK; BLIP_ERROR_ARGUMENT: queue is NULL; BLIP_ERROR_RESOURCES: memory or handles ran
 *     out.
 *
 * Ownership: the queue is the caller's: blip_queue_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_queue_new(uint32_t capacity, blip_queue **queue);

/**
 * Takes one more reference.
 *
 * @param queue The queue.
 * @return queue, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_queue_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_queue *blip_queue_retain(blip_queue *queue);

/**
 * Gives a reference back; with the last one of the program, all events are dropped, now and later.
 *
 * Contexts are released, and requests of the peer that waited are answered with ERR BLIP/501.
 *
 * @param queue The queue.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_queue_release(blip_queue *queue);

/**
 * Gives a descriptor that is readable while events wait.
 *
 * Level-triggered, and readable after blip_queue_wake too. It is made on first request and only to
 * be polled: never read, written or closed.
 *
 * @param queue The queue.
 * @param fd Receives the descriptor.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fd is NULL;
 *     BLIP_ERROR_RESOURCES: no descriptor could be made.
 *
 * Ownership: the descriptor is the queue's and ends with it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_queue_fd(blip_queue *queue, int *fd);

/**
 * Runs the callbacks of events that wait, on the calling thread.
 *
 * Waits for the first event only; then takes what is there, up to max. Waiting functions may be
 * called in these callbacks.
 *
 * @param queue The queue.
 * @param max The most events to run.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @param count Receives how many were run; may be NULL.
 * @return BLIP_OK, also if there was none; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_ARGUMENT: timeout below -1; BLIP_ERROR_WOULD_DEADLOCK: timeout is not 0 on a loop
 *     thread.
 *
 * Threads: [any], waits unless timeout is 0. Since 1.0.
 */
blip_status blip_queue_dispatch(blip_queue *queue, size_t max, int64_t timeout, size_t *count);

/**
 * Hands out events that wait, as objects.
 *
 * Waits for the first event only. A request that is handed out so counts as deferred
 * (blip_message_defer): respond whenever; if its last handle, the event's included, is released
 * without, BLIP/501 is answered. A client that waits to be accepted (BLIP_EVENT_ACCEPT) goes on
 * when the event is released.
 *
 * @param queue The queue.
 * @param events Receives up to max handles; room for as many.
 * @param max The most events to take; at most 65,536 are taken at a time.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @param count Receives how many were taken.
 * @return BLIP_OK, also if there was none; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_ARGUMENT: timeout below -1; or events or count is NULL; BLIP_ERROR_WOULD_DEADLOCK:
 *     timeout is not 0 on a loop thread.
 *
 * Ownership: each event is the caller's: blip_event_release.
 * Threads: [any], waits unless timeout is 0. Since 1.0.
 */
blip_status blip_queue_next(
    blip_queue *queue, blip_event **events, size_t max, int64_t timeout, size_t *count);

/**
 * Makes one waiting blip_queue_dispatch or blip_queue_next return now.
 *
 * If none waits, the next one does not wait. Calls before that count once.
 *
 * @param queue The queue.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_queue_wake(blip_queue *queue);

/**
 * Gives the number of events that wait.
 *
 * @param queue The queue.
 * @param count Receives the number.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_queue_count(blip_queue *queue, size_t *count);

/** Kind of event. A request of the peer: connection, message. Since 1.0. */
#define BLIP_EVENT_REQUEST 1

/**
 * Kind of event. A request of ours has ended: connection, request, message (NULL without response),
 * status. Made if the function or the context of the sending call is not NULL. Since 1.0.
 */
#define BLIP_EVENT_RESPONSE 2

/**
 * Kind of event. More of a streamed body can be read: connection, message; status as for
 * blip_data_fn. Read until BLIP_AGAIN or the end: what is left is not told of again before more
 * comes. Since 1.0.
 */
#define BLIP_EVENT_DATA 3

/**
 * Kind of event. A message is on its way, or will never be: connection, message, status; see
 * blip_sent_fn. Since 1.0.
 */
#define BLIP_EVENT_SENT 4

/**
 * Kind of event. More of a message's body was cut into frames: connection, message, value: bytes so
 * far. Since 1.0.
 */
#define BLIP_EVENT_SEND_PROGRESS 5

/**
 * Kind of event. The connection's state has changed: connection, value: BLIP_STATE_NEW and so on.
 * Since 1.0.
 */
#define BLIP_EVENT_STATE 6

/** Kind of event. The connection is open: connection. Since 1.0. */
#define BLIP_EVENT_OPEN 7

/** Kind of event. The connection has ended: connection, status; its last event. Since 1.0. */
#define BLIP_EVENT_CLOSE 8

/**
 * Kind of event. A ping has ended: connection, status, value: the round trip in microseconds.
 * Since 1.0.
 */
#define BLIP_EVENT_PONG 9

/**
 * Kind of event. A client asks to connect: listener, connection; it goes on when the event is
 * released. Since 1.0.
 */
#define BLIP_EVENT_ACCEPT 10

/** Kind of event. The listener has stopped: listener, status. Since 1.0. */
#define BLIP_EVENT_LISTENER_STOPPED 11

/**
 * Kind of event. The peer has answered blip_connection_say_bye: connection, status, value: 1 if it
 * agrees. Since 1.0.
 */
#define BLIP_EVENT_BYE 12

/**
 * Kind of event. The peer asks to close: connection; answer with
 * blip_connection_answer_close_request. Releasing the event unanswered agrees. Since 1.0.
 */
#define BLIP_EVENT_CLOSE_REQUEST 13

/**
 * Kind of event. The backlog of a connection has passed a mark: connection, status and value as
 * blip_backlog_fn has them. Since 1.0.
 */
#define BLIP_EVENT_BACKLOG 14

/**
 * Kind of event. A peer's certificate is to be judged: connection, blip_event_trust. Releasing the
 * event without an answer, and without keeping the trust object, refuses. Since 1.0.
 */
#define BLIP_EVENT_TRUST 15

/**
 * Kind of event. A server or proxy asks for authentication that the options do not answer:
 * connection, blip_event_challenge. Since 1.0.
 */
#define BLIP_EVENT_CHALLENGE 16

/**
 * Kind of event. An observer with a queue is told something: connection, message, status, value:
 * BLIP_OBSERVE_OPEN and so on. Since 1.0.
 */
#define BLIP_EVENT_OBSERVED 17

/**
 * Kind of event. A reconnector's state has changed: status, value: BLIP_RECONNECTOR_OPEN and so on.
 * Since 1.0.
 */
#define BLIP_EVENT_RECONNECTOR 18

/**
 * Kind of event. A line of a runtime's log, by blip_runtime_set_log_queue: blip_event_log_line;
 * value: its level. Since 1.0.
 */
#define BLIP_EVENT_LOG 19

/**
 * Tells what has happened.
 *
 * A kind that the program does not know is to be released unread.
 *
 * @param event The event.
 * @param kind Receives BLIP_EVENT_REQUEST and so on.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: kind is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_event_kind(blip_event *event, int32_t *kind);

/**
 * Gives the status that the event tells of.
 *
 * @param event The event.
 * @return The event's own status, BLIP_OK for kinds without; BLIP_ERROR_HANDLE or BLIP_ERROR_FORKED
 *     if the handle is not good.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_event_status(blip_event *event);

/**
 * Gives the number that the event tells of.
 *
 * @param event The event.
 * @param value Receives the number; 0 for kinds without.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: value is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_event_value(blip_event *event, int64_t *value);

/**
 * Gives the context that was set with the callback.
 *
 * @param event The event.
 * @param context Receives the context.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: context is NULL.
 *
 * Ownership: the context stays whose it was; it is valid until blip_event_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_event_context(blip_event *event, void **context);

/**
 * Gives the event's connection.
 *
 * @param event The event.
 * @return The connection; NULL if the event has none or is not good.
 *
 * Ownership: lent by the event: valid until blip_event_release; retain it to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_connection *blip_event_connection(blip_event *event);

/**
 * Gives the event's listener.
 *
 * @param event The event.
 * @return The listener; NULL if the event has none or is not good.
 *
 * Ownership: lent by the event: valid until blip_event_release; retain it to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_listener *blip_event_listener(blip_event *event);

/**
 * Gives the challenge of BLIP_EVENT_CHALLENGE.
 *
 * @param event The event.
 * @return The challenge; NULL if the event has none or is not good.
 *
 * Ownership: lent by the event; retain it to keep it and to answer later: when the event is
 * released and no reference is left, the challenge counts as cancelled.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_challenge *blip_event_challenge(blip_event *event);

/**
 * Gives the event's message; of BLIP_EVENT_RESPONSE the response.
 *
 * @param event The event.
 * @return The message; NULL if the event has none or is not good.
 *
 * Ownership: lent by the event: valid until blip_event_release; retain it to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_message *blip_event_message(blip_event *event);

/**
 * Gives the event's request of ours, of BLIP_EVENT_RESPONSE.
 *
 * @param event The event.
 * @return The request; NULL if the event has none or is not good.
 *
 * Ownership: lent by the event: valid until blip_event_release; retain it to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_message *blip_event_request(blip_event *event);

/**
 * Gives the event's certificate that is to be judged.
 *
 * @param event The event.
 * @return The trust object; NULL if the event has none.
 *
 * Ownership: lent by the event, until that is released; blip_trust_retain keeps it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_trust *blip_event_trust(blip_event *event);

/**
 * Gives what BLIP_EVENT_LOG says.
 *
 * @param event The event.
 * @param domain Receives which part speaks, as blip_log_fn is told.
 * @param text Receives the line, without its end.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: domain or text is
 *     NULL; BLIP_ERROR_NOT_FOUND: the event is of another kind.
 *
 * Ownership: domain and text: they lie in the event: valid until that is released.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_event_log_line(blip_event *event, blip_slice *domain, blip_slice *text);

/**
 * Gives an event back, and with it the handles that it lends.
 *
 * @param event The event.
 *
 * Ownership: ends the caller's reference; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_event_release(blip_event *event);

/** @} */

/**
 * @defgroup callbacks Callbacks
 *
 * The functions that a program writes. Handles and slices that they are given are borrowed until
 * they return.
 *
 * @{
 */

/**
 * Handles a request of the peer.
 *
 * Called when the request has arrived whole; with BLIP_HANDLER_STREAM when its properties have.
 * Answer with a respond function, or defer (blip_message_defer) to answer later. If it does
 * neither, an empty response is sent: when it returns, or for a streamed body when the whole body
 * has arrived. With a queue a streaming handler must respond or defer.
 *
 * @param connection The connection.
 * @param request The request; retain it to keep it.
 * @param context What was given with the function.
 * @return BLIP_OK; something negative: if the request was neither answered nor deferred, the error
 *     BLIP/501 is answered.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef blip_status (*blip_request_fn)(
    blip_connection *connection, blip_message *request, void *context);

/**
 * Tells how a request of ours has ended, exactly once.
 *
 * response is NULL unless status is BLIP_OK. It may be an error response: look at
 * blip_message_type. A request with BLIP_FLAG_NO_REPLY ends with BLIP_OK and NULL once it was
 * handed to the operating system. Of a streamed request (blip_message_set_streamed) this is called
 * when the properties of the response are there; the body follows. Negative statuses:
 * BLIP_ERROR_CLOSED, BLIP_ERROR_CANCELLED, BLIP_ERROR_TIMEOUT, BLIP_ERROR_STOPPED,
 * BLIP_ERROR_PEER_CLOSED, BLIP_ERROR_PROTOCOL, BLIP_ERROR_WEBSOCKET, BLIP_ERROR_PROPERTIES,
 * BLIP_ERROR_BODY, BLIP_ERROR_LIMIT, and what can keep a connection from opening.
 *
 * @param connection The connection.
 * @param request The request that was sent.
 * @param response The response, or NULL; retain it to keep it.
 * @param status BLIP_OK, or why there is no response.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_response_fn)(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status,
    void *context);

/** Not an error: these are the last bytes, or there are no more. Since 1.0. */
#define BLIP_DATA_END 1

/**
 * Takes bytes of a streamed body, and says how many it has consumed.
 *
 * What it does not consume comes again, in front of what arrives next; only what was consumed is
 * acknowledged to the peer, which stops at about 128,000 unacknowledged bytes. If it consumes
 * nothing of 64 KiB or more, it is taken to wait for more than that: what it leaves is held in
 * memory, up to the message limit, and acknowledged, so that more can come. With BLIP_DATA_END or
 * a negative status the callback is not called again; what it leaves then can still be read with
 * blip_message_read. A streamed message that has neither a data callback nor a handle left is
 * thrown away as it comes.
 *
 * @param message The message.
 * @param data The bytes; may be empty at the end.
 * @param status BLIP_OK: more follows; BLIP_DATA_END: this is the end; negative: the rest is lost,
 *     with the status of what happened.
 * @param context What was given with the function.
 * @return How many bytes from the front of data are consumed; more than there are counts as all.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef size_t (*blip_data_fn)(
    blip_message *message, blip_slice data, blip_status status, void *context);

/**
 * Tells once that a message was handed to the operating system, or never will be.
 *
 * Of a message that is never sent at all it is not called.
 *
 * @param message The message.
 * @param status BLIP_OK: its last byte was handed over; negative: why it was not.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_sent_fn)(blip_message *message, blip_status status, void *context);

/**
 * Tells how much of a message's body was cut into frames.
 *
 * Called after each frame with body bytes in it.
 *
 * @param message The message.
 * @param sent Body bytes so far, before compression.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_progress_fn)(blip_message *message, uint64_t sent, void *context);

/** Not an error: nothing now, try again later. Since 1.0. */
#define BLIP_AGAIN 2

/**
 * Fills a buffer with the next bytes of a body that is pulled.
 *
 * Always called on the loop thread of the connection, from inside its output, also with a queue: it
 * must not wait. After a failure before the first frame the message alone fails with
 * BLIP_ERROR_BODY; later the connection is closed with 1011, because BLIP cannot take a message
 * back.
 *
 * @param buffer Where the bytes go.
 * @param capacity Room in buffer, in bytes, at least 1.
 * @param written Receives the number of bytes; 0 when called.
 * @param context What was given with the function.
 * @return BLIP_OK with at least one byte; BLIP_DATA_END with the last bytes, or none; BLIP_AGAIN:
 *     nothing now, blip_message_resume_body will be called; negative: the body failed.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef blip_status (*blip_body_fn)(void *buffer, size_t capacity, size_t *written, void *context);

/**
 * Tells that a connection is open: messages can come and go.
 *
 * Not called for a connection that ends before.
 *
 * @param connection The connection.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_open_fn)(blip_connection *connection, void *context);

/**
 * Tells that the state of a connection has changed.
 *
 * BLIP_STATE_NEW is never told. States may be left out, none comes after BLIP_STATE_CLOSED.
 *
 * @param connection The connection.
 * @param state BLIP_STATE_CONNECTING and so on.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_state_fn)(blip_connection *connection, int32_t state, void *context);

/**
 * Tells that a connection has ended, exactly once, as its last callback.
 *
 * It comes for connections that never opened too, and, if set on a listener, for clients that were
 * refused. The connection's error, if there is one, says more.
 *
 * @param connection The connection.
 * @param status BLIP_OK: closed by this side, or by the peer with 1000, 1001 or no code;
 *     BLIP_ERROR_PEER_CLOSED: by the peer with another code; else why it could not open or was
 *     lost.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_close_fn)(blip_connection *connection, blip_status status, void *context);

/**
 * Tells how a ping has ended, once.
 *
 * @param connection The connection.
 * @param status BLIP_OK; BLIP_ERROR_TIMEOUT; or why the connection has ended.
 * @param microseconds The round trip; 0 without one.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_pong_fn)(
    blip_connection *connection, blip_status status, int64_t microseconds, void *context);

/**
 * Tells what the peer says to blip_connection_say_bye, once.
 *
 * @param connection The connection.
 * @param status BLIP_OK: the peer has answered; else why no answer came, as BLIP_ERROR_CLOSED.
 * @param agreed Whether it agrees: the connection closes when nothing is under way any more.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_bye_fn)(
    blip_connection *connection, blip_status status, bool agreed, void *context);

/**
 * Decides whether the peer may close the connection, which it asks for by a message "Bye".
 *
 * @param connection The connection.
 * @param context What was given with the function.
 * @return true: it may, and no new request can be sent from now on; false: it is told BLIP/403 and
 *     everything goes on.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef bool (*blip_close_request_fn)(blip_connection *connection, void *context);

/**
 * Tells that the backlog of a connection has passed a mark, or how it stands at the beginning.
 *
 * @param connection The connection.
 * @param status BLIP_AGAIN: above the high mark, so send no more; BLIP_OK: at or below the low one.
 * @param bytes The backlog, as blip_connection_backlog gives it.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_backlog_fn)(
    blip_connection *connection, blip_status status, uint64_t bytes, void *context);

/**
 * Looks at a BLIP frame that was received or is about to be sent.
 *
 * Always called on the loop's thread, also with a queue, from inside its input and output: what it
 * does slows everything down. Frames are shown as they are on the wire, compressed or not, without
 * what carries them.
 *
 * @param connection The connection.
 * @param outgoing Whether it is to be sent.
 * @param number The message's number.
 * @param type 0 request, 1 response, 2 error; 4 and 5: acknowledgement of a request, of a response.
 * @param flags The other bits: BLIP_FLAG_COMPRESSED and so on, and 0x40 for "more coming".
 * @param frame The frame, header included.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_frame_fn)(
    blip_connection *connection, bool outgoing, uint64_t number, uint32_t type, uint32_t flags,
    blip_slice frame, void *context);

/**
 * Asks whether a peer's certificate is to be trusted, in the middle of the TLS handshake.
 *
 * Answer with blip_trust_accept or blip_trust_reject, now or later: the handshake waits, at most
 * for the connect timeout or handshake timeout. To answer later, keep the object with
 * blip_trust_retain; if it is let go of unanswered the peer is refused.
 *
 * @param connection The connection, in state BLIP_STATE_CONNECTING.
 * @param trust What there is to judge.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_trust_fn)(blip_connection *connection, blip_trust *trust, void *context);

/**
 * Asks whether a connection on which nothing moves gets more time.
 *
 * Always called on the loop's thread, also with a queue.
 *
 * @param connection The connection.
 * @param writing true: the write timeout is over; false: the read timeout.
 * @param elapsed For how many milliseconds nothing has moved that way.
 * @param bytes The bytes that went that way since the connection was made.
 * @param context What was given with the function.
 * @return How many milliseconds more it gets; 0 or less: none, and it ends with BLIP_ERROR_TIMEOUT.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef int64_t (*blip_timeout_fn)(
    blip_connection *connection, bool writing, int64_t elapsed, uint64_t bytes, void *context);

/**
 * Is given the socket of a connection.
 *
 * Nothing is sent or received while it runs. The descriptor stays the library's: it must not be
 * closed, read from, written to, or kept.
 *
 * @param connection The connection.
 * @param fd The descriptor; -1: the connection has no socket, or none any more.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_fd_fn)(blip_connection *connection, int fd, void *context);

/**
 * Looks at a challenge of a server or proxy that the options do not answer, and may answer it now
 * or later.
 *
 * Called for each answer with status 401, of a proxy 407, that neither the options nor what was
 * answered before satisfies, so also when a password was wrong, and for each round of a scheme with
 * several. At most 20 times for one origin, and as often for a proxy, which blip_challenge_is_proxy
 * tells from the server; it is asked before TLS with the server. Answer with
 * blip_challenge_answer_password, _token or _header, or retain the challenge and answer later on
 * any thread. The time until the answer does not count for the connect timeout. When the last
 * reference is gone without an answer, or with blip_challenge_cancel, the connection fails with
 * BLIP_ERROR_HTTP_STATUS and code 401, of a proxy with BLIP_ERROR_PROXY and code 407.
 *
 * @param connection The connection, in state BLIP_STATE_CONNECTING.
 * @param challenge What is asked for.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns; blip_challenge_retain keeps it.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_challenge_fn)(
    blip_connection *connection, blip_challenge *challenge, void *context);

/**
 * Looks at a client that asks to connect, before it is answered and before any message.
 *
 * Path, headers, addresses, TLS and certificate can be read. Set handlers, callbacks and user data
 * here; blip_connection_reject turns the client away, blip_connection_close does so with HTTP 403,
 * and after blip_connection_defer_accept it waits for a later decision. With a queue the client
 * waits until the callback was run or the event released; the handshake timeout goes on.
 *
 * @param listener The listener.
 * @param connection The connection, in state BLIP_STATE_CONNECTING.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_accept_fn)(blip_listener *listener, blip_connection *connection, void *context);

/**
 * Tells that a listener has stopped and all of its connections have ended, once.
 *
 * The close callback of its last connection may come after it.
 *
 * @param listener The listener.
 * @param status BLIP_OK.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_stopped_fn)(blip_listener *listener, blip_status status, void *context);

/**
 * Tells an observer what a connection does.
 *
 * @param connection The connection.
 * @param what BLIP_OBSERVE_OPEN and so on, one of those that the observer wants.
 * @param message The message that it is about, or NULL.
 * @param status BLIP_OK, or what the event says.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_observe_fn)(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status,
    void *context);

/**
 * Looks at a message on its way, may change it, and says whether it goes on.
 *
 * Always called on the loop thread, one message at a time, in the order in which they are sent or
 * handled; it must not wait. Until it returns, the setters of properties, Content-Type, Profile and
 * the body (blip_message_set_body and those of text and JSON) work on the message, on this thread;
 * of one to be sent also those of its flags, except BLIP_FLAG_NO_REPLY. A body that is streamed or
 * has parts other than copied bytes cannot be replaced. A request of the peer may be answered here.
 *
 * @param connection The connection.
 * @param message The message: see blip_message_is_mine and blip_message_type.
 * @param context What was given with the function.
 * @return BLIP_OK: it goes on, to the next interceptor; anything else: it is dropped.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef blip_status (*blip_intercept_fn)(
    blip_connection *connection, blip_message *message, void *context);

/**
 * Runs on the loop thread of a connection.
 *
 * @param connection The connection.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_perform_fn)(blip_connection *connection, void *context);

/**
 * Tells that the state of a reconnector has changed.
 *
 * @param reconnector The reconnector.
 * @param state BLIP_RECONNECTOR_CONNECTING and so on; none comes after BLIP_RECONNECTOR_STOPPED.
 * @param status Of BLIP_RECONNECTOR_WAITING and BLIP_RECONNECTOR_STOPPED: how the last connection
 *     ended; else BLIP_OK.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_reconnector_state_fn)(
    blip_reconnector *reconnector, int32_t state, blip_status status, void *context);

/** @} */

/**
 * @defgroup connection_options Options of connections
 *
 * Made, filled in, given to blip_connection_new, and released. They can be used for any number of
 * connections, and changed between.
 *
 * @{
 */

/** A version of TLS: 1.2 (RFC 5246). Since 1.0. */
#define BLIP_TLS_1_2 0x0303

/** A version of TLS: 1.3 (RFC 8446). Since 1.0. */
#define BLIP_TLS_1_3 0x0304

/**
 * Makes options of a connection, all at their defaults.
 *
 * @return The options; NULL if memory or handles ran out.
 *
 * Ownership: the options are the caller's: blip_connection_options_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_connection_options *blip_connection_options_new(void);

/**
 * Gives the options back.
 *
 * What was made with them goes on: it has its own copy.
 *
 * @param options The options.
 *
 * Ownership: ends the caller's reference; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_connection_options_release(blip_connection_options *options);

/**
 * Adds a subprotocol that is offered, the first one preferred.
 *
 * "BLIP_3" is version 3, "BLIP" version 2; an application's own name follows a plus sign, as in
 * "BLIP_3+CBMobile_3". They are compared whole and exactly. Default: "BLIP_3", then "BLIP". A name
 * that is there already changes nothing.
 *
 * Source: RFC 6455 §1.9, §4.1.
 *
 * @param options The options.
 * @param name The name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: another version, or
 *     not a token; BLIP_ERROR_TEXT.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_add_subprotocol(
    blip_connection_options *options, blip_slice name);

/**
 * Sets the queue that takes the place of callbacks.
 *
 * @param options The options.
 * @param queue The queue; NULL: the runtime's (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: the options, and the connection made with them, keep the queue alive.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_queue(blip_connection_options *options, blip_queue *queue);

/**
 * Adds a header to the HTTP request that opens the connection.
 *
 * Host takes the place of the one made of the URL. Not allowed are Sec-WebSocket-*, Connection,
 * Upgrade, Content-Length, Transfer-Encoding, TE, Trailer, Expect and Keep-Alive. Several of one
 * name are sent in order.
 *
 * Source: RFC 9110 §5.
 *
 * @param options The options.
 * @param name The header's name.
 * @param value The header's value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: the name is not a
 *     token or not allowed, or the value has control characters or spaces at its ends;
 *     BLIP_ERROR_TEXT.
 *
 * Ownership: name and value are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_add_header(
    blip_connection_options *options, blip_slice name, blip_slice value);

/**
 * Sets the user name and password for servers that ask for them.
 *
 * By default they are sent with the first request, by the scheme Basic. On a challenge (status 401)
 * the strongest scheme that the server offers is used: Digest with SHA-256, SHA-512-256 or MD5
 * (-sess too, qop=auth or none), else Basic. A user name in the URL takes precedence. They are for
 * the origin (scheme, host and port) of the connection's URL; no redirect carries them elsewhere.
 * On the connection's memory they are overwritten when it has ended. Takes the place of a bearer
 * token. Both empty: none (the default).
 *
 * Source: RFC 7617; RFC 7616; RFC 9110 §11.
 *
 * @param options The options.
 * @param user The user name, without colon.
 * @param password The password.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: a
 *     control character, or a colon in the user name.
 *
 * Ownership: user and password are borrowed for the call; wiping them is the caller's.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_credentials(
    blip_connection_options *options, blip_slice user, blip_slice password);

/**
 * Sets whether a password is sent before the server asks for it.
 *
 * Default true: that saves a round trip, and shows the password to a server that would have been
 * content with Digest. With false nothing is sent before a challenge has come.
 *
 * @param options The options.
 * @param preemptive true: by the scheme Basic, with the first request.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_preemptive(
    blip_connection_options *options, bool preemptive);

/**
 * Sets the bearer token that is sent with the request.
 *
 * For the origin of the connection's URL alone, as user name and password are, whose place it
 * takes. Empty: none (the default).
 *
 * Source: RFC 6750 §2.1.
 *
 * @param options The options.
 * @param token Letters, digits and "-._~+/", then "=" signs.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     has another character.
 *
 * Ownership: token is borrowed for the call; wiping it is the caller's.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_bearer_token(
    blip_connection_options *options, blip_slice token);

/**
 * Sets how many redirects are followed.
 *
 * Default 10. Followed are 301, 302, 303, 307 and 308, with an absolute or relative Location. Never
 * from TLS to no TLS, in a circle, to a Unix socket, or to a URL with a user name: then the
 * connection fails with BLIP_ERROR_HTTP_STATUS and a text that says why. To another origin go
 * neither password nor token, nor the headers Authorization, Cookie and Host of the program; to
 * another host no client certificate and no TLS server name. With 0 a redirect is an error.
 *
 * Source: RFC 9110 §15.4, §10.2.2; RFC 3986 §5.
 *
 * @param options The options.
 * @param count 0 to 100.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is above 100.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_redirect_limit(
    blip_connection_options *options, uint32_t count);

/**
 * Sets whether the connection uses the cookies of its runtime.
 *
 * Default false, because a cookie may stand for a user, and all connections of the runtime that
 * want cookies share them. With true, those that fit the URL are sent, and those that servers set
 * on the way (with redirects, challenges and the upgrade itself) are kept. See
 * blip_runtime_set_cookie.
 *
 * Source: RFC 6265.
 *
 * @param options The options.
 * @param enabled Whether cookies are used.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_cookies(blip_connection_options *options, bool enabled);

/**
 * Sets the header User-Agent.
 *
 * There is none by default.
 *
 * @param options The options.
 * @param text The value; empty: no such header.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a valid header
 *     value; BLIP_ERROR_TEXT.
 *
 * Ownership: text is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_user_agent(
    blip_connection_options *options, blip_slice text);

/**
 * Sets how long the connection may take to open: lookup, connecting, TLS and HTTP together.
 *
 * Default 15,000. With 0 it fails at once.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_connect_timeout(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how long closing waits for the peer's answer, and then for the end of the transport.
 *
 * Default 5,000.
 *
 * Source: RFC 6455 §7.1.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_close_timeout(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how long closing by the message "Bye" of BLIP 1 and 2 takes at most.
 *
 * Default 60,000. Counted from the message, of this side or of the peer, to the end of what is
 * under way: a peer that never answers, or never ends the stream, is left then, as after
 * blip_connection_close. A time given to blip_connection_close_gracefully counts if it is shorter.
 *
 * Source: BLIP 1, "Closing".
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_bye_timeout(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how long a connection goes on whose peer has ended its own direction of the stream only.
 *
 * Default 0: the connection ends at once, with BLIP_ERROR_CONNECTION_LOST unless a closing
 * handshake or "Bye" said so before. Otherwise a peer that ends its output without them (FIN; with
 * TLS 1.3 also close_notify) is taken for one that still listens: what it has asked is answered,
 * and what is queued without wanting an answer is sent. Then this side closes by itself, with a
 * closing frame or "Bye" and its own end. Meanwhile the state is BLIP_STATE_CLOSING: new requests
 * are refused, those that want an answer complete with BLIP_ERROR_CONNECTION_LOST because none can
 * come (a reconnector takes those back of which nothing was sent), messages that came in part fail
 * likewise, and no ping is sent. The peer cannot acknowledge any more either, so that bodies are
 * sent as fast as the stream takes them.
 *
 * The connection ends with BLIP_OK if nothing was cut off: no message in part, no request of this
 * side unanswered, and all was sent in time; otherwise with BLIP_ERROR_CONNECTION_LOST or what
 * broke the stream. A peer that has in fact gone is noticed when something is sent to it. After a
 * closing frame nothing more may be sent, so that this is not for peers that send one, nor for TLS
 * 1.2, whose close_notify ends both directions.
 *
 * Source: RFC 9293 §3.6; RFC 8446 §6.1; RFC 5246 §7.2.1; RFC 6455 §5.5.1; the document of BLIP 1.0.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; 0: it does not go on; -1: as long as it takes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_half_close(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how long an incomplete message may stand still while it is received.
 *
 * Default 0. When so long no byte has come although the peer is in the middle of a message, the
 * connection's timeout callback is asked, and without one the connection ends with
 * BLIP_ERROR_TIMEOUT. It is noticed at the latest a quarter of the time late. The peer may stand
 * still because this program does not consume a body: that counts too.
 *
 * @param options The options.
 * @param milliseconds The time; 0 or -1: no limit.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: milliseconds
 *     below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_read_timeout(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how long the peer may take nothing of what is to be sent.
 *
 * Default 0. Otherwise as blip_connection_options_set_read_timeout.
 *
 * @param options The options.
 * @param milliseconds The time; 0 or -1: no limit.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: milliseconds
 *     below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_write_timeout(
    blip_connection_options *options, int64_t milliseconds);

/**
 * Sets how often the peer is pinged, and how many pings it may miss.
 *
 * Every interval a ping is sent. If nothing at all was received since missed pings, the connection
 * ends with BLIP_ERROR_PEER_SILENT. While the library does not read because a queue is full, no
 * ping counts as missed. Default 300,000 and 2.
 *
 * Source: RFC 6455 §5.5.2.
 *
 * @param options The options.
 * @param interval Milliseconds between pings; 0: no pings.
 * @param missed How many pings may go without a sign of life; at least 1.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: interval is negative,
 *     or missed is 0 with an interval.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_ping(
    blip_connection_options *options, int64_t interval, uint32_t missed);

/**
 * Sets whether pings are left out while something comes from the peer.
 *
 * By default a ping goes out every interval. With true, only after an interval in which nothing was
 * received: fewer bytes, the same certainty about a peer that is gone.
 *
 * Source: RFC 6455 §5.5.2.
 *
 * @param options The options.
 * @param only_idle Whether to ping silent peers alone.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_ping_only_idle(
    blip_connection_options *options, bool only_idle);

/**
 * Sets the size of the largest BLIP frame to send, header and checksum included.
 *
 * Default 16,384. Deployed peers refuse more than 32,768.
 *
 * @param options The options.
 * @param bytes 256 to 262,144.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below 256 or above
 *     262,144.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_frame_size(
    blip_connection_options *options, uint32_t bytes);

/**
 * Sets how hard messages are compressed that ask for it.
 *
 * Default 6. A message asks with BLIP_FLAG_COMPRESSED. Levels from 7 on take about eight times as
 * long as 6 for a tenth fewer bytes.
 *
 * @param options The options.
 * @param level 1 (fast) to 9 (small); 0: nothing is ever compressed.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not 0 to 9.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_compression_level(
    blip_connection_options *options, int32_t level);

/** IP policy: both families, in the order in which the system gives them. Since 1.0. */
#define BLIP_IP_ANY 0

/** IP policy: both families, IPv4 first. Since 1.0. */
#define BLIP_IP_PREFER_4 1

/** IP policy: both families, IPv6 first. Since 1.0. */
#define BLIP_IP_PREFER_6 2

/** IP policy: IPv4 alone. Since 1.0. */
#define BLIP_IP_ONLY_4 3

/** IP policy: IPv6 alone. Since 1.0. */
#define BLIP_IP_ONLY_6 4

/**
 * A limit: the largest BLIP frame that is accepted, in bytes; 64 to 2^30, default 1 MiB.
 *
 * A larger one ends the connection with 1009. Since 1.0.
 */
#define BLIP_LIMIT_INCOMING_FRAME 1

/**
 * A limit: the most encoded properties of a message, either way, in bytes; default 102,400.
 *
 * Sending more is BLIP_ERROR_LIMIT; a message received with more fails. Since 1.0.
 */
#define BLIP_LIMIT_PROPERTIES 2

/**
 * A limit: the most body of one message held in memory, in bytes; default 64 MiB.
 *
 * A larger message fails. A streamed one may be larger, but not what waits of it unread. Since 1.0.
 */
#define BLIP_LIMIT_MESSAGE 3

/**
 * A limit: how many incoming messages may be unfinished at a time; default 4096.
 *
 * One more ends the connection. Since 1.0.
 */
#define BLIP_LIMIT_UNFINISHED_MESSAGES 4

/**
 * A limit: the memory of all incoming messages of a connection that are unfinished or that the
 * program has not let go of, in bytes; default 256 MiB.
 *
 * In it count what has arrived of unfinished messages, what is unread of streamed ones, whole ones
 * of 4096 bytes and more that wait in a queue or are retained, and 1024 bytes for each request that
 * has no answer. The message that exceeds it fails. Since 1.0.
 */
#define BLIP_LIMIT_UNFINISHED_BYTES 5

/**
 * A limit: the largest HTTP head that is accepted, in bytes; 256 to 2^20, default 16 KiB.
 * Since 1.0.
 */
#define BLIP_LIMIT_HTTP_HEAD 6

/**
 * A limit: memory of the responses that wait to be sent on a connection, in bytes, 512 for each
 * counted in; default 256 MiB. Past it the connection is closed with 1008: the peer sends requests
 * and does not read. Since 1.0.
 */
#define BLIP_LIMIT_RESPONSES 7

/**
 * Sets one of the limits of what a peer may make this side hold.
 *
 * What is one message's fault fails that message: a request of the peer is answered with an error
 * (BLIP/413, BLIP/400 or BLIP/503), a request of ours ends with BLIP_ERROR_LIMIT. Other things end
 * the connection.
 *
 * @param options The options.
 * @param limit BLIP_LIMIT_INCOMING_FRAME and so on.
 * @param value The limit's value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: the limit is not
 *     known, or the value is 0, above 2^40 or out of the limit's range.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_limit(
    blip_connection_options *options, int32_t limit, uint64_t value);

/**
 * Trusts the authorities of a file instead of the system's.
 *
 * The file is read when the connection is made.
 *
 * @param options The options.
 * @param path A PEM file; empty: the system's store (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_ca_file(
    blip_connection_options *options, blip_slice path);

/**
 * Sets whether the server's certificate must be trusted and be for the host.
 *
 * Default true. Without, the connection is encrypted, to nobody knows whom: for tests only.
 *
 * @param options The options.
 * @param verify Whether to verify.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_verify(blip_connection_options *options, bool verify);

/**
 * Sets this side's certificate and key.
 *
 * The files are read when the connection is made, for servers that ask for a certificate. The key
 * must have no password.
 *
 * @param options The options.
 * @param certificate_path A PEM file with the certificate and those that lead to its authority;
 *     empty: none.
 * @param key_path A PEM file with the key; empty: the same file.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: certificate_path and key_path are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_identity(
    blip_connection_options *options, blip_slice certificate_path, blip_slice key_path);

/**
 * Sets whom the server's certificate must be for, and the name that is sent to it.
 *
 * By default the URL's host; "localhost" for a Unix socket.
 *
 * Source: RFC 6066 §3, RFC 6125.
 *
 * @param options The options.
 * @param name A host name or IP address; empty: the default.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_server_name(
    blip_connection_options *options, blip_slice name);

/**
 * Sets the lowest and highest version of TLS.
 *
 * @param options The options.
 * @param minimum BLIP_TLS_1_2 or BLIP_TLS_1_3; 0: the default, 1.2.
 * @param maximum The same; 0: the default, 1.3.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a version is not
 *     known, or minimum is above maximum.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_versions(
    blip_connection_options *options, int32_t minimum, int32_t maximum);

/**
 * Adds a protocol to offer by ALPN, the preferred one first.
 *
 * Without any, ALPN is not used. WebSockets go by "http/1.1".
 *
 * Source: RFC 7301.
 *
 * @param options The options.
 * @param name 1 to 255 bytes; 16 names at most.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: a
 *     name of that size, or one more, is not possible.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_add_tls_alpn(
    blip_connection_options *options, blip_slice name);

/**
 * Sets the cipher suites.
 *
 * What OpenSSL does not know is reported as BLIP_ERROR_TLS_SETUP when the connection connects.
 *
 * @param options The options.
 * @param ciphers Those of TLS 1.2, as openssl-ciphers(1) has them; empty: OpenSSL's choice.
 * @param suites Those of TLS 1.3, with colons between; empty: OpenSSL's choice.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: ciphers and suites are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_ciphers(
    blip_connection_options *options, blip_slice ciphers, blip_slice suites);

/**
 * Refuses certificates that revocation lists name.
 *
 * The file is read when the connection is made. The server's own certificate is looked up in the
 * list of its issuer, which must be in the file and not out of date.
 *
 * Source: RFC 5280 §5.
 *
 * @param options The options.
 * @param path A PEM file of lists; empty: revocation is not looked at (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_crl_file(
    blip_connection_options *options, blip_slice path);

/**
 * Writes the secrets of each TLS connection to a file, for Wireshark.
 *
 * Whoever reads the file can read the connections: for debugging only. It is made for its owner
 * alone, or appended to.
 *
 * @param options The options.
 * @param path The file; empty: none (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_tls_key_log_file(
    blip_connection_options *options, blip_slice path);

/**
 * Sets the proxy that the connection goes through.
 *
 * http: HTTP CONNECT, for ws as for wss; https: the same with TLS to the proxy; socks5: SOCKS 5,
 * names are looked up here; socks5h: names are looked up by the proxy. A URL without a scheme is
 * for http, one without a port means 1080 (443 for https). User name and password in the URL are
 * sent to the proxy. Unix sockets need no proxy and use none. Takes precedence over the
 * environment. TLS with the server goes through the proxy unread.
 *
 * Source: RFC 9110 §9.3.6, RFC 1928, RFC 1929.
 *
 * @param options The options.
 * @param url Such as "http://user:password@host:3128"; empty: none (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_URL: it is no
 *     proxy's URL.
 *
 * Ownership: url is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_proxy(blip_connection_options *options, blip_slice url);

/**
 * Sets whether the environment names the proxy.
 *
 * Default false. The variables are read when the connection is made, on the thread that makes it,
 * by curl's rules: ws_proxy or http_proxy for ws, wss_proxy or https_proxy for wss, all_proxy for
 * both, lower case before upper, but never HTTP_PROXY, which in CGI programs comes from the client.
 * no_proxy lists hosts (and all below them), addresses and networks that are connected to directly,
 * with commas between; "*" means all.
 *
 * @param options The options.
 * @param enabled Whether to look.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_proxy_from_environment(
    blip_connection_options *options, bool enabled);

/**
 * Trusts the authorities of a file for proxies that speak TLS, instead of the system's.
 *
 * The file is read when the connection is made. blip_connection_options_set_tls_verify goes for the
 * proxy's certificate too.
 *
 * @param options The options.
 * @param path A PEM file; empty: the system's store (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_proxy_tls_ca_file(
    blip_connection_options *options, blip_slice path);

/**
 * Sets the interface or address, and the port, that the connection is made from.
 *
 * Of an interface the first address of each family is used. Addresses of the server whose family
 * this has not are not reached. Unix sockets are not concerned.
 *
 * @param options The options.
 * @param interface_address An IPv4 or IPv6 address of this machine, or the name of an interface;
 *     empty: what the system chooses (the default).
 * @param port The local port; 0: any free one (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: interface_address is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_local_address(
    blip_connection_options *options, blip_slice interface_address, uint16_t port);

/**
 * Sets which families of IP addresses are used.
 *
 * Both are tried side by side, the next address a quarter of a second after the one before or as
 * soon as that has failed. A preferred family goes first.
 *
 * Source: RFC 8305.
 *
 * @param options The options.
 * @param policy BLIP_IP_ANY (the default), BLIP_IP_PREFER_4, BLIP_IP_PREFER_6, BLIP_IP_ONLY_4 or
 *     BLIP_IP_ONLY_6.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: policy is none of
 *     them.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_ip_policy(
    blip_connection_options *options, int32_t policy);

/**
 * Sets whether SRV records of the host say where its servers are.
 *
 * Default false. With it the records of _blip._tcp.host are looked up if the URL has a name and the
 * scheme's port, and no proxy is used. Servers are tried by priority and weight; without records,
 * or if name servers do not answer, the host itself is connected to. Host header and certificate
 * stay those of the URL's host.
 *
 * Source: RFC 2782.
 *
 * @param options The options.
 * @param enabled Whether to look them up.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_connection_options_set_service_lookup(
    blip_connection_options *options, bool enabled);

/** @} */

/**
 * @defgroup connections Connections
 *
 * A connection is made, given handlers and callbacks, and then connected; nothing can be missed so.
 * It goes through its states once, in order, and is not used again. Texts that it gives stay as
 * long as it lives, also after its end. Setters may be called at any time and take effect for what
 * comes next; a listener's settings are the connection's until it has its own.
 *
 * @{
 */

/** State of a connection: not connected yet; requests may be sent already and wait. Since 1.0. */
#define BLIP_STATE_NEW 0

/**
 * State of a connection: looking up, connecting, TLS or HTTP; of an accepted one, until it is
 * answered. Since 1.0.
 */
#define BLIP_STATE_CONNECTING 1

/** State of a connection: messages come and go. Since 1.0. */
#define BLIP_STATE_OPEN 2

/** State of a connection: nothing new may be sent; the end is near. Since 1.0. */
#define BLIP_STATE_CLOSING 3

/** State of a connection: ended. Since 1.0. */
#define BLIP_STATE_CLOSED 4

/**
 * Says whether a URL can be connected to, and if not, what is wrong with it.
 *
 * @param url The URL, of any scheme that blip_connection_new knows.
 * @param error Receives what is wrong, where and why, if the answer is BLIP_ERROR_URL; may be NULL.
 * @return BLIP_OK; BLIP_ERROR_URL; BLIP_ERROR_TEXT: not UTF-8, or with a NUL; BLIP_ERROR_ARGUMENT:
 *     url is not usable; BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call. error: the caller's to release.
 * Source: RFC 3986, RFC 6455 §3.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_url_check(blip_slice url, blip_error **error);

/**
 * Makes a connection to a URL; it does not connect yet.
 *
 * Schemes: ws, wss (http and https mean the same), and ws+unix, wss+unix with the socket's path
 * percent-encoded as host: ws+unix://%2Frun%2Fblip.sock/path. User name and password in the URL are
 * as those of blip_connection_options_set_credentials. With blip, blips, blip+unix or blips+unix it
 * is BLIP 1 on the bare byte stream, open as soon as it is connected (and secure); such a URL has
 * neither path nor user name, means port 46353 without one, and uses no options of HTTP,
 * subprotocols or pings. Files named by the options are read now, but one that cannot be used is
 * reported when it connects. What is wrong with a URL goes to the runtime's log.
 *
 * Source: RFC 6455 §3; RFC 7617.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param url The URL, at most 8192 bytes.
 * @param options Options, copied; NULL: the defaults.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_URL; BLIP_ERROR_STOPPED: the runtime was stopped;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call. The connection is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_new(
    blip_runtime *runtime, blip_slice url, blip_connection_options *options,
    blip_connection **connection);

/**
 * Makes a connection over a socket that is connected already, as its client.
 *
 * The library takes the descriptor over: it is made non-blocking and closed when the connection
 * ends, also if that was never told to connect. Proxies, lookup and addresses of the options are
 * not used. blip_listener_accept_fd takes the other side.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param fd A stream socket, of IP or Unix, that is connected.
 * @param url What the server is to be asked for, and whom its certificate must be for.
 * @param options Options, copied; NULL: the defaults.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fd is no such socket,
 *     or connection is NULL; BLIP_ERROR_TEXT; BLIP_ERROR_URL; BLIP_ERROR_STOPPED: the runtime was
 *     stopped; BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call. fd: the library's on success, the caller's otherwise.
 * The connection is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_from_fd(
    blip_runtime *runtime, int fd, blip_slice url, blip_connection_options *options,
    blip_connection **connection);

/**
 * Takes one more reference.
 *
 * @param connection The connection.
 * @return connection, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_connection *blip_connection_retain(blip_connection *connection);

/**
 * Gives a reference back; the last one of an outgoing connection closes it with 1001.
 *
 * Callbacks and completions still come. Accepted connections live without references of the program
 * until they end.
 *
 * @param connection The connection.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_connection_release(blip_connection *connection);

/**
 * Flag of a handler: it is called when the properties are there, and takes the body piece by piece.
 * Since 1.0.
 */
#define BLIP_HANDLER_STREAM 1u

/**
 * Sets who handles the peer's requests of one profile.
 *
 * The request goes to the handler of its profile, else to the default one; without any, the error
 * BLIP/404 is answered. A handler that was set before for the profile is replaced. What was set on
 * the connection's listener is kept beside it.
 *
 * Source: BLIP, property Profile.
 *
 * @param connection The connection.
 * @param profile The text of the property Profile that is to be handled.
 * @param flags 0 or BLIP_HANDLER_STREAM.
 * @param fn The handler; may be NULL with a queue that is read by blip_queue_next.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag; or
 *     fn is NULL and the connection has no queue; BLIP_ERROR_TEXT; BLIP_ERROR_CLOSED: the
 *     connection has ended.
 *
 * Ownership: profile is borrowed for the call. context is lent until release_context is called,
 * which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_handler(
    blip_connection *connection, blip_slice profile, uint32_t flags, blip_request_fn fn,
    void *context, void (*release_context)(void *));

/**
 * Removes the handler of a profile; the default one takes its place.
 *
 * @param connection The connection.
 * @param profile The text of the property Profile that is to be handled.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_NOT_FOUND:
 *     there is none; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: profile is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_remove_handler(blip_connection *connection, blip_slice profile);

/**
 * Sets who handles requests that have no other handler.
 *
 * The request goes to the handler of its profile, else to the default one; without any, the error
 * BLIP/404 is answered.
 *
 * @param connection The connection.
 * @param flags 0 or BLIP_HANDLER_STREAM.
 * @param fn The handler; NULL: none, or with a queue that is read by blip_queue_next an event
 *     without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag;
 *     BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_default_handler(
    blip_connection *connection, uint32_t flags, blip_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who is told when the connection is open.
 *
 * Takes the place of the one before, also of the listener's.
 *
 * @param connection The connection.
 * @param fn The function; NULL: none, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_open_callback(
    blip_connection *connection, blip_open_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told when the connection has ended.
 *
 * Takes the place of the one before, also of the listener's.
 *
 * @param connection The connection.
 * @param fn The function; NULL: none, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_close_callback(
    blip_connection *connection, blip_close_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told of every change of state.
 *
 * Takes the place of the one before.
 *
 * @param connection The connection.
 * @param fn The function; NULL: none, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_state_callback(
    blip_connection *connection, blip_state_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who judges the server's certificate, instead of OpenSSL; before it connects.
 *
 * It is asked about every certificate, good ones too: blip_trust_verdict has OpenSSL's opinion, and
 * accepting makes a bad one good. A client's handshake stops meanwhile. TLS sessions are not
 * resumed, because a resumed one shows no certificate.
 *
 * @param connection The connection.
 * @param fn The function; NULL: nobody, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_trust_callback(
    blip_connection *connection, blip_trust_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is asked when a read timeout or write timeout is over.
 *
 * @param connection The connection.
 * @param fn The function; NULL: nobody, and the connection ends.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the
 *     connection has ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_timeout_callback(
    blip_connection *connection, blip_timeout_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who is asked when a server wants authentication that the options do not have.
 *
 * Takes the place of the one before. Without it such a connection fails with
 * BLIP_ERROR_HTTP_STATUS and code 401.
 *
 * @param connection The connection.
 * @param fn The function; NULL: none, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_challenge_callback(
    blip_connection *connection, blip_challenge_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Changes whom the server's certificate must be for, and the name that is sent to it.
 *
 * Takes the place of the option until the TLS handshake begins; the last chance is an observer that
 * is told BLIP_OBSERVE_WILL_SECURE on the loop thread. Later it has no effect, nor for a host to
 * which the server has redirected.
 *
 * Source: RFC 6066 §3, RFC 6125.
 *
 * @param connection The connection.
 * @param name A host name or IP address; empty: what the options or the URL say.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_STATE: it is
 *     open, or an accepted one; BLIP_ERROR_CLOSED: it is closing or closed.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_tls_server_name(blip_connection *connection, blip_slice name);

/**
 * Begins to connect; the open callback or the close callback follows.
 *
 * What can go wrong is listed at blip_connection_wait_open.
 *
 * @param connection The connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it connects or is open
 *     already, or is an accepted one; BLIP_ERROR_CLOSED: it is closing or closed;
 *     BLIP_ERROR_STOPPED: the runtime was stopped.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_connect(blip_connection *connection);

/**
 * Waits until the connection is open; begins to connect if that was not done.
 *
 * After BLIP_ERROR_TIMEOUT it goes on connecting, and may be waited for again.
 *
 * @param connection The connection.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1; or
 *     the URL or a header of the options cannot be sent; BLIP_ERROR_TIMEOUT: not open yet, or the
 *     connect timeout is over; BLIP_ERROR_CLOSED: it is closing or was closed;
 *     BLIP_ERROR_WOULD_DEADLOCK; BLIP_ERROR_STOPPED; or why it could not open: BLIP_ERROR_RESOLVE,
 *     BLIP_ERROR_REFUSED, BLIP_ERROR_UNREACHABLE, BLIP_ERROR_NETWORK, BLIP_ERROR_PERMISSION,
 *     BLIP_ERROR_FILE, BLIP_ERROR_ADDRESS_IN_USE: the local port is taken; BLIP_ERROR_PROXY,
 *     BLIP_ERROR_URL: the environment's proxy is none; BLIP_ERROR_CONNECTION_LOST,
 *     BLIP_ERROR_TLS, BLIP_ERROR_CERTIFICATE, BLIP_ERROR_TLS_SETUP,
 *     BLIP_ERROR_HTTP, BLIP_ERROR_HTTP_STATUS, BLIP_ERROR_SUBPROTOCOL, BLIP_ERROR_LIMIT,
 *     BLIP_ERROR_RESOURCES; blip_connection_error has the detail.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_connection_wait_open(blip_connection *connection, int64_t timeout);

/**
 * Closes the connection; requests under way complete with BLIP_ERROR_CLOSED.
 *
 * Returns at once: completions follow from the loop, then the closing handshake with the peer, at
 * most for the close timeout, then the close callback with BLIP_OK. While connecting the attempt is
 * dropped; inside an accept callback the client is refused. Closing again changes nothing; after
 * blip_connection_close_gracefully it closes now. In BLIP 1 there are no codes: a message "Bye"
 * that wants no reply goes out, then the end of the stream.
 *
 * Source: RFC 6455 §5.5.1, §7.4.
 *
 * @param connection The connection.
 * @param code The WebSocket code: 1000 (normal) in most cases; 1000 to 1003, 1007 to 1014, 3000 to
 *     4999.
 * @param reason A text for the peer, at most 123 bytes; may be empty.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a code that may not
 *     be sent, or a reason above 123 bytes; BLIP_ERROR_TEXT.
 *
 * Ownership: reason is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_close(blip_connection *connection, uint16_t code, blip_slice reason);

/**
 * Closes the connection when everything under way is finished, both ways.
 *
 * New requests of this side are refused from now on; those of the peer are still taken and
 * answered. When nothing is under way it closes with 1000; when the time is over, with 1001, and
 * what is left completes with BLIP_ERROR_CLOSED. A connection that is not open is closed at once.
 * Does not wait itself. In BLIP 1 the peer is told by a message "Bye", which bounds the time too
 * (blip_connection_options_set_bye_timeout); whether it agrees makes no difference:
 * blip_connection_say_bye asks.
 *
 * @param connection The connection.
 * @param timeout How long to go on at most, in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_close_gracefully(blip_connection *connection, int64_t timeout);

/**
 * Asks the peer to agree to closing, by the message "Bye" of BLIP 1 and 2.
 *
 * If it agrees, this goes on like blip_connection_close_gracefully; a peer that does not know "Bye"
 * (BLIP/404) agrees. If it refuses, everything goes on as before. Without an answer, or with
 * something still under way, the connection is closed after 60 seconds, or what
 * blip_connection_options_set_bye_timeout says.
 *
 * Source: BLIP 1, "Closing"; BLIP 2 names the message, and most of its peers do not know it.
 *
 * @param connection The connection.
 * @param fn The function; NULL: nobody, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: not open yet;
 *     BLIP_ERROR_CLOSED: closing or closed; BLIP_ERROR_UNSUPPORTED: it speaks BLIP 3, which closes
 *     by its WebSocket only.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_say_bye(
    blip_connection *connection, blip_bye_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who decides whether the peer may close by the message "Bye" of BLIP 1 and 2.
 *
 * Takes the place of the one before, also of the listener's. Without one the peer may. A WebSocket
 * that is closed, or a stream that ends, asks nobody.
 *
 * @param connection The connection.
 * @param fn The function; NULL: nobody, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_close_request_callback(
    blip_connection *connection, blip_close_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Answers the peer that asks to close, for programs that take BLIP_EVENT_CLOSE_REQUEST.
 *
 * The first answer counts; without a question, nothing happens.
 *
 * @param connection The connection.
 * @param accept Whether the peer may close, as blip_close_request_fn says it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_answer_close_request(blip_connection *connection, bool accept);

/**
 * Waits until the connection has ended.
 *
 * With callbacks, the close callback has run then; with a queue, its event is in the queue.
 *
 * @param connection The connection.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_TIMEOUT; BLIP_ERROR_WOULD_DEADLOCK.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_connection_wait_closed(blip_connection *connection, int64_t timeout);

/**
 * Gives the state.
 *
 * @param connection The connection.
 * @param state Receives BLIP_STATE_NEW and so on.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: state is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_state(blip_connection *connection, int32_t *state);

/**
 * Tells whether messages are under way, either way.
 *
 * As of the last time that the connection sent or received.
 *
 * @param connection The connection.
 * @param active Receives true if requests wait for responses, or messages to be sent.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: active is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_is_active(blip_connection *connection, bool *active);

/**
 * Gives the URL of an outgoing connection, without user name and password.
 *
 * @param connection The connection.
 * @param url Receives the URL, in normal form.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: url is NULL;
 *     BLIP_ERROR_NOT_FOUND: an accepted connection.
 *
 * Ownership: url: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_url(blip_connection *connection, blip_slice *url);

/**
 * Gives why the connection could not open or has ended.
 *
 * @param connection The connection.
 * @param error Receives the error.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: error is NULL;
 *     BLIP_ERROR_NOT_FOUND: nothing went wrong, or not yet.
 *
 * Ownership: the error is lent by the connection: valid while it lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_error(blip_connection *connection, blip_error **error);

/**
 * Gives the code of the WebSocket close.
 *
 * Source: RFC 6455 §7.4.
 *
 * @param connection The connection.
 * @param code Receives the peer's code (1005 if its close had none), else the code that was sent,
 *     else 0.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: code is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_close_code(blip_connection *connection, int32_t *code);

/**
 * Gives the version of BLIP that was agreed on.
 *
 * @param connection The connection.
 * @param version Receives 3, 2 or 1; 0 before the connection is open.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: version is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_protocol_version(blip_connection *connection, int32_t *version);

/**
 * Gives the subprotocol that was agreed on, such as "BLIP_3+CBMobile_3".
 *
 * BLIP 1 has none; it is called "BLIP_1" here.
 *
 * @param connection The connection.
 * @param subprotocol Receives the subprotocol.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: subprotocol is NULL;
 *     BLIP_ERROR_NOT_FOUND: not open yet.
 *
 * Ownership: subprotocol: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_subprotocol(blip_connection *connection, blip_slice *subprotocol);

/**
 * Tells whether a listener has accepted the connection.
 *
 * @param connection The connection.
 * @param incoming Receives true if so.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: incoming is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_is_incoming(blip_connection *connection, bool *incoming);

/**
 * Gives the own address: "127.0.0.1:4984", "[::1]:80" or "unix:/path".
 *
 * @param connection The connection.
 * @param address Receives the address.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: address is NULL;
 *     BLIP_ERROR_NOT_FOUND: not connected yet.
 *
 * Ownership: address: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_local_address(blip_connection *connection, blip_slice *address);

/**
 * Gives the peer's address: "127.0.0.1:4984", "[::1]:80" or "unix:/path".
 *
 * @param connection The connection.
 * @param address Receives the address.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: address is NULL;
 *     BLIP_ERROR_NOT_FOUND: not connected yet.
 *
 * Ownership: address: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_remote_address(blip_connection *connection, blip_slice *address);

/**
 * Gives the own address as the system has it.
 *
 * @param connection The connection.
 * @param address Receives the bytes of a struct sockaddr_in, sockaddr_in6 or sockaddr_un.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: address is NULL;
 *     BLIP_ERROR_NOT_FOUND: not connected yet.
 *
 * Ownership: address: it lies in the connection: valid while the connection lives. It may not be
 * aligned.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_local_sockaddr(blip_connection *connection, blip_slice *address);

/**
 * Gives the peer's address as the system has it; through a proxy, the proxy's.
 *
 * @param connection The connection.
 * @param address Receives the bytes of a struct sockaddr_in, sockaddr_in6 or sockaddr_un.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: address is NULL;
 *     BLIP_ERROR_NOT_FOUND: not connected yet.
 *
 * Ownership: address: it lies in the connection: valid while the connection lives. It may not be
 * aligned.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_remote_sockaddr(blip_connection *connection, blip_slice *address);

/**
 * Tells whether the connection's socket is one of IPv4.
 *
 * @param connection The connection.
 * @param ipv4 Receives true if so; false before it is connected.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: ipv4 is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_is_ipv4(blip_connection *connection, bool *ipv4);

/**
 * Tells whether the connection's socket is one of IPv6.
 *
 * @param connection The connection.
 * @param ipv6 Receives true if so; false before it is connected.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: ipv6 is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_is_ipv6(blip_connection *connection, bool *ipv6);

/**
 * Calls a function with the connection's socket, on its loop: soon, or at once in a callback.
 *
 * For options of the socket that the library does not know. Queues are not concerned.
 *
 * @param connection The connection.
 * @param fn The function, called once.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fn is NULL;
 *     BLIP_ERROR_CLOSED: the loop has ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_perform_fd(
    blip_connection *connection, blip_fd_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Tells whether the connection is encrypted by TLS.
 *
 * @param connection The connection.
 * @param secure Receives true if so; false before it is open.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: secure is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_is_secure(blip_connection *connection, bool *secure);

/**
 * Gives the version of TLS, such as "TLSv1.3".
 *
 * @param connection The connection.
 * @param version Receives the version.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: version is NULL;
 *     BLIP_ERROR_NOT_FOUND: no TLS, or not open yet.
 *
 * Ownership: version: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_tls_version(blip_connection *connection, blip_slice *version);

/**
 * Gives OpenSSL's name of the cipher suite.
 *
 * @param connection The connection.
 * @param cipher Receives the name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: cipher is NULL;
 *     BLIP_ERROR_NOT_FOUND: no TLS, or not open yet.
 *
 * Ownership: cipher: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_tls_cipher(blip_connection *connection, blip_slice *cipher);

/**
 * Gives the certificate of the peer.
 *
 * @param connection The connection.
 * @param der Receives the certificate in DER.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: der is NULL;
 *     BLIP_ERROR_NOT_FOUND: it gave none, or not open yet.
 *
 * Ownership: der: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_peer_certificate(blip_connection *connection, blip_slice *der);

/**
 * Gives the protocol that ALPN agreed on.
 *
 * @param connection The connection.
 * @param name Receives the protocol.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: name is NULL;
 *     BLIP_ERROR_NOT_FOUND: none, no TLS, or not open yet.
 *
 * Ownership: name: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_tls_alpn(blip_connection *connection, blip_slice *name);

/**
 * Tells whether the TLS handshake was shortened because of an earlier connection to the server.
 *
 * Connections with the same options for TLS share what servers give them for that. Where a trust
 * callback is set, nothing is resumed.
 *
 * @param connection The connection.
 * @param resumed Receives true if so; false without TLS, or before it is open.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: resumed is NULL.
 *
 * Source: RFC 8446 §2.2.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_tls_is_resumed(blip_connection *connection, bool *resumed);

/**
 * Gives path and query of the HTTP request that opened the connection.
 *
 * @param connection The connection.
 * @param path Receives path and query, percent-encoded.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: path is NULL;
 *     BLIP_ERROR_NOT_FOUND: not known yet, or there was none.
 *
 * Ownership: path: it lies in the connection: valid while the connection lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_request_path(blip_connection *connection, blip_slice *path);

/**
 * Gives the user of an accepted connection.
 *
 * Known when the accept callback is called, if the listener has users; or as what
 * blip_connection_accept was given.
 *
 * @param connection The connection.
 * @param user Receives the name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: user is NULL;
 *     BLIP_ERROR_NOT_FOUND: no user is known.
 *
 * Ownership: user: it lies in the connection: valid while it lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_user(blip_connection *connection, blip_slice *user);

/**
 * Lets a client wait when the accept callback returns, until it is accepted or rejected.
 *
 * To be called in the accept callback, or with its event. The client waits until
 * blip_connection_accept, blip_connection_reject or blip_connection_close is called, on any thread,
 * at the longest until the handshake timeout. Keep the connection with blip_connection_retain.
 *
 * @param connection The connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is not waiting to be
 *     accepted, or is decided.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_defer_accept(blip_connection *connection);

/**
 * Accepts a client that waits.
 *
 * Only needed after blip_connection_defer_accept, or to say who the user is.
 *
 * @param connection The connection.
 * @param user What blip_connection_user gives from now on; empty: as it was.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_STATE: it is
 *     not waiting to be accepted, or is decided.
 *
 * Ownership: user is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_accept(blip_connection *connection, blip_slice user);

/**
 * Turns a client away that waits to be accepted, with an HTTP status of choice.
 *
 * With 401, say what is wanted: blip_connection_add_response_header with WWW-Authenticate.
 *
 * @param connection The connection.
 * @param status 400 to 599.
 * @param text The answer's body, for people; empty: a standard text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     status is out of its range; BLIP_ERROR_STATE: it is not waiting to be accepted, or is
 *     decided.
 *
 * Ownership: text is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_reject(blip_connection *connection, int32_t status, blip_slice text);

/**
 * Adds a header to the answer that a client who waits to be accepted will get, whatever it is.
 *
 * At most 32. Such as Set-Cookie, or WWW-Authenticate with status 401.
 *
 * @param connection The connection.
 * @param name The header's name.
 * @param value The header's value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     cannot be sent, or is one that blip_connection_options_add_header refuses; BLIP_ERROR_LIMIT:
 *     there are 32; BLIP_ERROR_STATE: it is not waiting to be accepted, or is decided.
 *
 * Ownership: name and value are borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_add_response_header(
    blip_connection *connection, blip_slice name, blip_slice value);

/**
 * Gives the scheme of the credentials that a client presents, in lower case.
 *
 * This and the next functions read its header Authorization for the accept callback. Unless the
 * listener has users of its own, nobody has checked it.
 *
 * Source: RFC 9110 §11.4.
 *
 * @param connection The connection.
 * @param scheme Receives the name, such as "basic", "digest" or "bearer".
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: scheme is NULL;
 *     BLIP_ERROR_NOT_FOUND: it presents none that can be read, or the connection is open.
 *
 * Ownership: scheme: it lies in the connection: valid until the open callback has been run.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_credential_scheme(blip_connection *connection, blip_slice *scheme);

/**
 * Gives the user name that a client presents by Basic or Digest.
 *
 * @param connection The connection.
 * @param user Receives the name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: user is NULL;
 *     BLIP_ERROR_NOT_FOUND: there is none, it is hidden, or the connection is open.
 *
 * Ownership: user: it lies in the connection: valid until the open callback has been run.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_credential_user(blip_connection *connection, blip_slice *user);

/**
 * Gives the password that a client presents by Basic, or the token by Bearer or another scheme.
 *
 * @param connection The connection.
 * @param secret Receives the password or token.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: secret is NULL;
 *     BLIP_ERROR_NOT_FOUND: there is none, or the connection is open.
 *
 * Ownership: secret: it lies in the connection: valid until the open callback has been run, then it
 * is overwritten.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_credential_secret(blip_connection *connection, blip_slice *secret);

/**
 * Gives a parameter of the credentials that a client presents, as Digest has them.
 *
 * @param connection The connection.
 * @param name The parameter's name, whatever its case, such as "nonce".
 * @param value Receives the value, without quotes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     value is NULL; BLIP_ERROR_NOT_FOUND: there is none, or the connection is open.
 *
 * Ownership: name is borrowed for the call. value lies in the connection: valid until the open
 * callback has been run.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_credential_parameter(
    blip_connection *connection, blip_slice name, blip_slice *value);

/**
 * Compares a password with what a client presents by Basic or Digest.
 *
 * In constant time. Of Digest the answer is computed for this request; that the nonce in it
 * (blip_connection_credential_parameter) is one that the program has given out, and not too often
 * used, is for the program to check.
 *
 * Source: RFC 7616 §3.4.
 *
 * @param connection The connection.
 * @param password The password that would be right.
 * @param matches Receives the answer.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     matches is NULL; BLIP_ERROR_NOT_FOUND: it presents neither Basic nor Digest, or the
 *     connection is open.
 *
 * Ownership: password is borrowed for the call; wiping it is the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_check_password(
    blip_connection *connection, blip_slice password, bool *matches);

/**
 * Gives a header of the peer's HTTP head: of the client's request, or of the server's answer.
 *
 * @param connection The connection.
 * @param name The header's name, in any case.
 * @param value Receives the value of the first one of that name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: value is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_NOT_FOUND: there is none, or no head yet.
 *
 * Ownership: name is borrowed for the call. value: it lies in the connection: valid while the
 * connection lives; of an accepted connection until its open callback has returned (or, with a
 * queue, its OPEN event was released; without an open callback, until it is open), because many
 * idle connections would weigh heavy with their heads. Copy what is needed later.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_http_header(
    blip_connection *connection, blip_slice name, blip_slice *value);

/**
 * Keeps a pointer of the program's with the connection.
 *
 * The one before is released.
 *
 * @param connection The connection.
 * @param data The pointer; may be NULL.
 * @param release_data Called exactly once with data, when it is replaced or the connection's last
 *     trace is gone; or NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: data is lent until release_data is called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_user_data(
    blip_connection *connection, void *data, void (*release_data)(void *));

/**
 * Gives the pointer that blip_connection_set_user_data has kept.
 *
 * @param connection The connection.
 * @param data Receives the pointer; NULL if none was set.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: data is NULL.
 *
 * Ownership: data stays whose it was.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_user_data(blip_connection *connection, void **data);

/**
 * Gives the size of messages that wait to be sent: a slow peer makes it grow.
 *
 * Properties and bodies, as far as their sizes are known, of all accepted messages whose last frame
 * was not written yet. A sender that looks at it before it sends more keeps memory bounded.
 *
 * @param connection The connection.
 * @param bytes Receives the number of bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: bytes is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_backlog(blip_connection *connection, uint64_t *bytes);

/**
 * Sets who is told that too much waits to be sent, and that there is room again.
 *
 * It is told at once how things are, then whenever the backlog has risen above high, and when it
 * has fallen to low after that: a sender that stops and goes on accordingly keeps little more than
 * high in memory. Called from the loop, never inside the call that sends.
 *
 * @param connection The connection.
 * @param low The low mark, in bytes.
 * @param high The high mark, in bytes; not below low.
 * @param fn The function; NULL: nobody is told, but see queues.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: low is above high;
 *     BLIP_ERROR_CLOSED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_backlog_callback(
    blip_connection *connection, uint64_t low, uint64_t high, blip_backlog_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who looks at each frame of a connection, for diagnosis.
 *
 * Without one it costs nothing.
 *
 * @param connection The connection.
 * @param fn The function; NULL: nobody.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_set_frame_callback(
    blip_connection *connection, blip_frame_fn fn, void *context, void (*release_context)(void *));

/**
 * Sends a WebSocket ping and tells when its pong comes.
 *
 * Source: RFC 6455 §5.5.2.
 *
 * @param connection The connection.
 * @param timeout How long to wait for the pong, in milliseconds; -1: for ever.
 * @param fn The function; may be NULL.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_STATE: not open yet; BLIP_ERROR_CLOSED: closing or closed;
 *     BLIP_ERROR_UNSUPPORTED: there is no WebSocket.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_ping(
    blip_connection *connection, int64_t timeout, blip_pong_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Runs a function on the loop thread of the connection, later.
 *
 * It runs there also if the connection has a queue, between other callbacks, with what belongs to
 * this connection at rest. If the connection ends first, only release_context is called.
 *
 * @param connection The connection.
 * @param fn The function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fn is NULL;
 *     BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_perform(
    blip_connection *connection, blip_perform_fn fn, void *context,
    void (*release_context)(void *));

/** @} */

/**
 * @defgroup counters Counters
 *
 * What has happened on a connection, on all connections that a listener has accepted, or on all
 * that a runtime ever had. A snapshot has all figures of one moment, the end of a turn of the loop;
 * round trips alone are counted at once. Figures that count only grow, and what an ended connection
 * has counted stays in the sums. Counting costs nothing that could be felt, so it is always on.
 * Snapshots can be added up, over processes too: their buckets are the same everywhere.
 *
 * @{
 */

/** A figure of a connection: messages whose last frame was sent. Since 1.0. */
#define BLIP_COUNTER_MESSAGES_SENT 1

/** A figure of a connection: messages received whole. Since 1.0. */
#define BLIP_COUNTER_MESSAGES_RECEIVED 2

/** A figure of a connection: BLIP frames sent, acknowledgements too. Since 1.0. */
#define BLIP_COUNTER_FRAMES_SENT 3

/** A figure of a connection: BLIP frames received, acknowledgements too. Since 1.0. */
#define BLIP_COUNTER_FRAMES_RECEIVED 4

/** A figure of a connection: bytes sent, before TLS. Since 1.0. */
#define BLIP_COUNTER_BYTES_SENT 5

/** A figure of a connection: bytes received, after TLS. Since 1.0. */
#define BLIP_COUNTER_BYTES_RECEIVED 6

/**
 * A figure of a connection: requests of ours that were begun and have no whole response. Since 1.0.
 */
#define BLIP_COUNTER_REQUESTS_PENDING 7

/** A figure of a connection: requests of the peer that have no response yet. Since 1.0. */
#define BLIP_COUNTER_REQUESTS_UNANSWERED 8

/** A figure of a connection: messages that are not fully sent. Since 1.0. */
#define BLIP_COUNTER_MESSAGES_QUEUED 9

/** A figure: bytes that were compressed for sending, as they were before. Since 1.0. */
#define BLIP_COUNTER_COMPRESSION_INPUT 10

/** A figure: what they have become on the wire; the difference is what was saved. Since 1.0. */
#define BLIP_COUNTER_COMPRESSION_OUTPUT 11

/** A figure: compressed bytes received, as they were on the wire. Since 1.0. */
#define BLIP_COUNTER_DECOMPRESSION_INPUT 12

/** A figure: what they have become. Since 1.0. */
#define BLIP_COUNTER_DECOMPRESSION_OUTPUT 13

/** A figure: error responses among the messages sent. Since 1.0. */
#define BLIP_COUNTER_ERRORS_SENT 14

/** A figure: error responses to requests of ours. Since 1.0. */
#define BLIP_COUNTER_ERRORS_RECEIVED 15

/** A figure of blip_counters: requests of ours that have got their response. Since 1.0. */
#define BLIP_COUNTER_ROUND_TRIPS 16

/** A figure of blip_counters: how long these took together, in microseconds. Since 1.0. */
#define BLIP_COUNTER_ROUND_TRIP_TIME 17

/** A figure: microseconds in which a full queue kept the library from reading. Since 1.0. */
#define BLIP_COUNTER_READING_PAUSED_TIME 18

/** A figure: microseconds in which messages waited for the peer's acknowledgements. Since 1.0. */
#define BLIP_COUNTER_SENDING_PAUSED_TIME 19

/** A figure: messages under way that wait for acknowledgements now. Since 1.0. */
#define BLIP_COUNTER_MESSAGES_PAUSED 20

/** A figure: messages that have been received in part. Since 1.0. */
#define BLIP_COUNTER_MESSAGES_UNFINISHED 21

/** A figure: memory of received messages, as BLIP_LIMIT_UNFINISHED_BYTES counts. Since 1.0. */
#define BLIP_COUNTER_MEMORY 22

/** A figure: size of messages that wait to be sent (blip_connection_backlog). Since 1.0. */
#define BLIP_COUNTER_BACKLOG 23

/** A figure: connections that are open. Since 1.0. */
#define BLIP_COUNTER_CONNECTIONS 24

/** A figure: connections that have opened, ended ones too. Since 1.0. */
#define BLIP_COUNTER_CONNECTIONS_OPENED 25

/** A figure: connections that ended before they opened, refused clients too. Since 1.0. */
#define BLIP_COUNTER_CONNECTIONS_FAILED 26

/**
 * Reads several figures of a connection, all of one moment.
 *
 * As of the last time that the connection sent or received; in its callbacks on the loop's thread
 * as of now. blip_connection_counters gives more.
 *
 * @param connection The connection.
 * @param which The counters wanted: BLIP_COUNTER_MESSAGES_SENT and so on.
 * @param values Receives a value for each.
 * @param count How many they are.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: which or values is
 *     NULL although count is not 0; or a counter is not known, or is one of blip_counters alone.
 *
 * Ownership: both arrays are borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_counter_values(
    blip_connection *connection, const int32_t *which, uint64_t *values, size_t count);

/**
 * Takes the figures of a connection.
 *
 * As of the last time that it sent or received; in its callbacks on the loop's thread as of now.
 *
 * @param connection The connection.
 * @param counters Receives the figures.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: counters is NULL;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: counters is the caller's: blip_counters_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_counters(blip_connection *connection, blip_counters **counters);

/**
 * Takes the sums over all connections that a listener has accepted, ended ones included.
 *
 * Holds up the runtime's loops for as long as it takes to add up what has changed since last time.
 *
 * @param listener The listener.
 * @param counters Receives the figures.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: counters is NULL;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: counters is the caller's: blip_counters_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_counters(blip_listener *listener, blip_counters **counters);

/**
 * Takes the sums over all connections that a runtime ever had.
 *
 * Holds up its loops for as long as it takes to add up what has changed since last time.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param counters Receives the figures.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: counters is NULL;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: counters is the caller's: blip_counters_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_counters(blip_runtime *runtime, blip_counters **counters);

/**
 * Takes the sums of a runtime and of its listeners as text for Prometheus.
 *
 * In the text format, version 0.0.4 ("text/plain; version=0.0.4; charset=utf-8"). Seconds and
 * bytes; metrics named blip_listener_ have the URL of the listener as a label and are part of those
 * named blip_.
 *
 * Source: Prometheus, "Exposition formats".
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param counters Receives the runtime's figures, in which the text lies.
 * @param text Receives the text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: counters or text is
 *     NULL; BLIP_ERROR_RESOURCES.
 *
 * Ownership: counters is the caller's: blip_counters_release. text lies in it and ends with it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_metrics_text(
    blip_runtime *runtime, blip_counters **counters, blip_slice *text);

/**
 * Makes figures that are all zero, to add others to.
 *
 * @return The figures; NULL if memory or handles ran out.
 *
 * Ownership: the figures are the caller's: blip_counters_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_counters *blip_counters_new(void);

/**
 * Takes one more reference.
 *
 * @param counters The figures.
 * @return counters, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_counters_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_counters *blip_counters_retain(blip_counters *counters);

/**
 * Gives a reference back.
 *
 * @param counters The figures.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_counters_release(blip_counters *counters);

/**
 * Gives one of the figures.
 *
 * @param counters The figures.
 * @param counter Which: BLIP_COUNTER_MESSAGES_SENT and so on.
 * @param value Receives the value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: value is NULL, or the
 *     counter is not known.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_counters_value(blip_counters *counters, int32_t counter, uint64_t *value);

/**
 * Adds other figures to these.
 *
 * @param counters The figures that grow.
 * @param other What is added.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: both stay the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_counters_add(blip_counters *counters, blip_counters *other);

/**
 * Tells how long round trips took: what so many percent of them did not exceed.
 *
 * A round trip lasts from the sending of a request to its response, of a streamed one to its
 * properties, by the clock of the loop's turns. Exact to an eighth, rounded up.
 *
 * @param counters The figures.
 * @param percent 0 to 100, such as 50 for the median.
 * @param microseconds Receives the time in microseconds.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: microseconds is NULL,
 *     or percent is out of its range; BLIP_ERROR_NOT_FOUND: there was no round trip.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_counters_percentile(
    blip_counters *counters, double percent, int64_t *microseconds);

/**
 * Gives one bucket of the histogram of round trips.
 *
 * Buckets are an eighth of a power of two wide, from 1.024 microseconds to 37 minutes; what is
 * outside is in the first and in the last one.
 *
 * @param counters The figures.
 * @param index From 0.
 * @param end Receives the end: the round trips in the bucket took fewer nanoseconds than that, and
 *     not fewer than the end of the bucket before; UINT64_MAX for the last one.
 * @param count Receives how many they are.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: end or count is NULL;
 *     BLIP_ERROR_NOT_FOUND: there are no more buckets.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_counters_bucket(
    blip_counters *counters, size_t index, uint64_t *end, uint64_t *count);

/** @} */

/**
 * @defgroup trusts Certificates to judge
 *
 * What blip_trust_fn is given: the certificates that a peer has sent, whom they should be for, and
 * OpenSSL's opinion of them. It is answered once, by blip_trust_accept or blip_trust_reject, in the
 * callback or later on any thread.
 *
 * @{
 */

/**
 * Takes one more reference.
 *
 * @param trust The trust object.
 * @return trust, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_trust_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_trust *blip_trust_retain(blip_trust *trust);

/**
 * Gives a reference back; the last one refuses the peer, if there was no answer.
 *
 * @param trust The trust object.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_trust_release(blip_trust *trust);

/**
 * Gives a certificate that the peer has sent.
 *
 * @param trust The trust object.
 * @param index 0: the peer's own; from 1: those that are to lead to an authority, as they came.
 * @param der Receives the certificate in DER.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: der is NULL;
 *     BLIP_ERROR_NOT_FOUND: there are not so many.
 *
 * Ownership: der: it lies in the trust object: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_trust_certificate(blip_trust *trust, size_t index, blip_slice *der);

/**
 * Gives whom the certificate should be for.
 *
 * @param trust The trust object.
 * @param host Receives a host name or IP address.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: host is NULL;
 *     BLIP_ERROR_NOT_FOUND: nobody in particular, as of clients.
 *
 * Ownership: host: it lies in the trust object: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_trust_host(blip_trust *trust, blip_slice *host);

/**
 * Gives OpenSSL's opinion of the certificate, by the authorities of the options.
 *
 * @param trust The trust object.
 * @param code Receives 0: it would trust the peer; else a number of X509_STORE_CTX_get_error(3).
 * @param text Receives OpenSSL's words for it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: code or text is NULL.
 *
 * Ownership: text: it lies in the trust object: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_trust_verdict(blip_trust *trust, int32_t *code, blip_slice *text);

/**
 * Trusts the peer: the handshake goes on.
 *
 * @param trust The trust object.
 * @return BLIP_OK, also if the connection has ended meanwhile; BLIP_ERROR_HANDLE,
 *     BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was answered before.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_trust_accept(blip_trust *trust);

/**
 * Refuses the peer: the connection ends with BLIP_ERROR_CERTIFICATE.
 *
 * @param trust The trust object.
 * @return BLIP_OK, also if the connection has ended meanwhile; BLIP_ERROR_HANDLE,
 *     BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was answered before.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_trust_reject(blip_trust *trust);

/** @} */

/**
 * @defgroup challenges Challenges
 *
 * What blip_challenge_fn is given: all challenges of one answer of a server or proxy, of which one
 * has to be answered, once. A program can so bring a scheme of its own, of several rounds too: it
 * answers each challenge with a header until the server agrees. If the server lets it, all rounds
 * go over one byte stream.
 *
 * @{
 */

/**
 * Takes one more reference.
 *
 * @param challenge The challenge.
 * @return challenge, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_challenge_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_challenge *blip_challenge_retain(blip_challenge *challenge);

/**
 * Gives a reference back; without an answer the last one cancels.
 *
 * @param challenge The challenge.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_challenge_release(blip_challenge *challenge);

/**
 * Gives the connection that is asked.
 *
 * @param challenge The challenge.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL.
 *
 * Ownership: the connection is lent; retain it to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_connection(blip_challenge *challenge, blip_connection **connection);

/**
 * Tells who asks: host and port as in a Host header, of a proxy its own.
 *
 * After a redirect it may be another one than the connection's URL says. A port that is the
 * scheme's is left out; that of a proxy never.
 *
 * @param challenge The challenge.
 * @param host Receives the text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: host is NULL.
 *
 * Ownership: host: it lies in the challenge: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_host(blip_challenge *challenge, blip_slice *host);

/**
 * Tells whether a proxy asks, not the server.
 *
 * @param challenge The challenge.
 * @param proxy Receives the answer.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: proxy is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_is_proxy(blip_challenge *challenge, bool *proxy);

/**
 * Counts the challenges of this origin, or of the proxy, this one included.
 *
 * Above 1, what was sent before was refused, or is one round of several.
 *
 * @param challenge The challenge.
 * @param attempts Receives the number, from 1.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: attempts is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_attempts(blip_challenge *challenge, uint32_t *attempts);

/**
 * Tells between how many schemes there is a choice.
 *
 * @param challenge The challenge.
 * @param count Receives the number, from 1 to 16.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_count(blip_challenge *challenge, size_t *count);

/**
 * Gives the name of a scheme, in lower case.
 *
 * Source: RFC 9110 §11.1.
 *
 * @param challenge The challenge.
 * @param index From 0, in the server's order.
 * @param scheme Receives the name, such as "basic".
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: scheme is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is too large.
 *
 * Ownership: scheme: it lies in the challenge: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_scheme(blip_challenge *challenge, size_t index, blip_slice *scheme);

/**
 * Gives a parameter of a scheme.
 *
 * Source: RFC 9110 §11.2.
 *
 * @param challenge The challenge.
 * @param index Of the scheme, from 0.
 * @param name The parameter's name, whatever its case, such as "realm"; empty: what some schemes
 *     have in the place of parameters (token68).
 * @param value Receives the value, without quotes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     value is NULL; BLIP_ERROR_NOT_FOUND: there is no such parameter or scheme.
 *
 * Ownership: name is borrowed for the call. value lies in the challenge: valid while that lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_parameter(
    blip_challenge *challenge, size_t index, blip_slice name, blip_slice *value);

/**
 * Answers with a user name and a password, by the strongest scheme that takes them.
 *
 * Used for this origin from now on, until they are refused.
 *
 * @param challenge The challenge.
 * @param user The user name, without colon.
 * @param password The password.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_UNSUPPORTED:
 *     neither Basic nor Digest is offered, or they cannot be sent: the challenge stays open;
 *     BLIP_ERROR_STATE: it was answered or cancelled; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: user and password are borrowed for the call; wiping them is the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_answer_password(
    blip_challenge *challenge, blip_slice user, blip_slice password);

/**
 * Answers with a bearer token, whatever the scheme is called.
 *
 * @param challenge The challenge.
 * @param token As for blip_connection_options_set_bearer_token.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     is no token; BLIP_ERROR_STATE: it was answered or cancelled; BLIP_ERROR_CLOSED: the
 *     connection has ended.
 *
 * Ownership: token is borrowed for the call; wiping it is the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_answer_token(blip_challenge *challenge, blip_slice token);

/**
 * Answers with a value for the header Authorization, by whatever scheme.
 *
 * @param challenge The challenge.
 * @param value The value, such as "Negotiate YII...".
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     is empty or cannot be a header's value; BLIP_ERROR_STATE: it was answered or cancelled;
 *     BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: value is borrowed for the call; wiping it is the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_answer_header(blip_challenge *challenge, blip_slice value);

/**
 * Gives up: the connection fails with BLIP_ERROR_HTTP_STATUS and code 401.
 *
 * @param challenge The challenge.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was answered or
 *     cancelled; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_challenge_cancel(blip_challenge *challenge);

/** @} */

/**
 * @defgroup sending Sending
 *
 * Requests of one connection arrive in the order of sending, except that urgent ones may pass
 * others and small ones large bodies. Responses come in any order.
 *
 * @{
 */

/**
 * Sends a request; fn tells how it ends, exactly once.
 *
 * On success the message is frozen. It may be sent before the connection is open, and even before
 * it connects: it waits then. On failure it is unchanged and may be sent again, and fn is not
 * called.
 *
 * Source: BLIP §"Sending Messages".
 *
 * @param connection The connection.
 * @param request A request made by blip_request_new or blip_message_copy.
 * @param fn Told the end; NULL: nobody is.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of this
 *     side; BLIP_ERROR_CLOSED: the connection is closing or closed; BLIP_ERROR_IMMUTABLE: it was
 *     sent before; BLIP_ERROR_LIMIT: its properties are above BLIP_LIMIT_PROPERTIES.
 *
 * Ownership: the library keeps what it needs of request; the handle stays the caller's. context is
 * lent until release_context is called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_send(
    blip_connection *connection, blip_message *request, blip_response_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Makes a request of bytes and sends it, in one call; fn tells how it ends, exactly once.
 *
 * For languages that pay for each call. The rest is as for blip_connection_send; the request is
 * there in fn.
 *
 * @param connection The connection.
 * @param profile What the request is about: becomes the property Profile; empty: none.
 * @param body The body.
 * @param flags BLIP_FLAG_COMPRESSED, BLIP_FLAG_URGENT, BLIP_FLAG_NO_REPLY or several of them; 0.
 * @param fn Told the end; NULL: nobody is.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a flag is not known;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_CLOSED: the connection is closing or closed; BLIP_ERROR_LIMIT:
 *     the profile is above BLIP_LIMIT_PROPERTIES; BLIP_ERROR_RESOURCES.
 *
 * Ownership: profile and body are borrowed for the call. context is lent until release_context is
 * called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_send_data(
    blip_connection *connection, blip_slice profile, blip_slice body, uint32_t flags,
    blip_response_fn fn, void *context, void (*release_context)(void *));

/**
 * Sends a request and waits for its response.
 *
 * Does not connect: a request on a connection that nobody connects waits until the time is over. If
 * the time is over the request is given up as by blip_message_cancel. The response may be an error
 * response. Of a streamed request, waits for the properties of the response. Works with a queue
 * too, which gets no event.
 *
 * @param connection The connection.
 * @param request A request made by blip_request_new or blip_message_copy.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @param response Receives the response.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1; or
 *     not a request of this side; or response is NULL; BLIP_ERROR_CLOSED; BLIP_ERROR_IMMUTABLE;
 *     BLIP_ERROR_NO_REPLY: it wants none, so blip_connection_send it; BLIP_ERROR_LIMIT;
 *     BLIP_ERROR_WOULD_DEADLOCK; BLIP_ERROR_TIMEOUT; or what blip_response_fn lists.
 *
 * Ownership: request stays the caller's. response is the caller's: blip_message_release.
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_connection_request(
    blip_connection *connection, blip_message *request, int64_t timeout, blip_message **response);

/** @} */

/**
 * @defgroup messages Messages
 *
 * A message of the program's is mutable until it is sent or responded with; then it is frozen, and
 * may be looked at from any thread. Received messages are frozen from the start. Properties keep
 * their order, and a key occurs once; in received messages that break this the first one counts. Of
 * a message whose body is still arriving (streamed), slices of its properties are to be copied:
 * they may move when more arrives.
 *
 * @{
 */

/**
 * Makes a request.
 *
 * @param profile What the request is about: becomes the property Profile; empty: none.
 * @param request Receives the request.
 * @return BLIP_OK; BLIP_ERROR_ARGUMENT: request is NULL; BLIP_ERROR_TEXT; BLIP_ERROR_RESOURCES.
 *
 * Ownership: profile is borrowed for the call. The request is the caller's: blip_message_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_request_new(blip_slice profile, blip_message **request);

/**
 * Takes one more reference.
 *
 * @param message The message.
 * @return message, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_message_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_message *blip_message_retain(blip_message *message);

/**
 * Gives a reference back.
 *
 * Of a request of the peer that was deferred, the last one without a response answers the error
 * BLIP/501. A request of ours that is under way goes on.
 *
 * @param message The message.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_message_release(blip_message *message);

/** Type of a message: a request. Since 1.0. */
#define BLIP_MESSAGE_REQUEST 0

/** Type of a message: a response. Since 1.0. */
#define BLIP_MESSAGE_RESPONSE 1

/** Type of a message: an error response; see blip_message_error. Since 1.0. */
#define BLIP_MESSAGE_ERROR 2

/**
 * Tells whether it is a request, a response or an error response.
 *
 * @param message The message.
 * @param type Receives BLIP_MESSAGE_REQUEST and so on.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: type is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_type(blip_message *message, int32_t *type);

/**
 * Gives the number of the message on its connection; a response has its request's.
 *
 * @param message The message.
 * @param number Receives the number; 0 while nothing of it was sent.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: number is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_number(blip_message *message, uint64_t *number);

/**
 * Tells whether this side has made the message.
 *
 * @param message The message.
 * @param mine Receives true if so, false for received ones.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: mine is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_is_mine(blip_message *message, bool *mine);

/**
 * Tells whether the message can still be changed.
 *
 * @param message The message.
 * @param is_mutable Receives true before it is sent.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: is_mutable is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_is_mutable(blip_message *message, bool *is_mutable);

/**
 * Tells whether the whole message has arrived.
 *
 * @param message The message.
 * @param complete Receives true if so; always for messages of this side.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: complete is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_is_complete(blip_message *message, bool *complete);

/**
 * Tells whether the message was sent.
 *
 * @param message The message.
 * @param sent Receives true once its last frame was written. Of one with a sent callback or
 *     somebody in blip_message_wait_sent, once the operating system has it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: sent is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_is_sent(blip_message *message, bool *sent);

/**
 * Gives the connection of the message.
 *
 * @param message The message.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_NOT_FOUND: a request that was not sent, or the connection has ended and nobody has
 *     a reference to it.
 *
 * Ownership: the connection is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_connection(blip_message *message, blip_connection **connection);

/** Flag of a message: it is compressed on the wire. Since 1.0. */
#define BLIP_FLAG_COMPRESSED 0x08u

/** Flag of a message: its frames go before those of others. Since 1.0. */
#define BLIP_FLAG_URGENT 0x10u

/** Flag of a request: no response is wanted, not even an error. Since 1.0. */
#define BLIP_FLAG_NO_REPLY 0x20u

/**
 * Gives the flags.
 *
 * @param message The message.
 * @param flags Receives BLIP_FLAG_COMPRESSED and so on, put together.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: flags is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_flags(blip_message *message, uint32_t *flags);

/**
 * Sets all flags at once.
 *
 * @param message The message.
 * @param flags The flags, put together.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag; or
 *     BLIP_FLAG_NO_REPLY for a response; BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_flags(blip_message *message, uint32_t flags);

/**
 * Sets whether the message is compressed.
 *
 * @param message The message.
 * @param compressed Whether to.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_compressed(blip_message *message, bool compressed);

/**
 * Sets whether the message is urgent.
 *
 * Urgent messages share the connection with each other and let others through now and then.
 * Responses inherit it.
 *
 * Source: BLIP §"Sending Messages".
 *
 * @param message The message.
 * @param urgent Whether it is.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_urgent(blip_message *message, bool urgent);

/**
 * Sets whether the request wants no reply.
 *
 * @param message The message.
 * @param no_reply Whether it wants none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: true for a response;
 *     BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_no_reply(blip_message *message, bool no_reply);

/**
 * Gives the property Profile.
 *
 * @param message The message.
 * @param profile Receives the text; empty if there is none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: profile is NULL.
 *
 * Ownership: profile: it lies in the message: valid while the message lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_profile(blip_message *message, blip_slice *profile);

/**
 * Sets the property Profile.
 *
 * @param message The message.
 * @param profile The text; empty: removes it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: profile is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_profile(blip_message *message, blip_slice profile);

/**
 * Gives the property Content-Type.
 *
 * @param message The message.
 * @param type Receives the text; empty if there is none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: type is NULL.
 *
 * Ownership: type: it lies in the message: valid while the message lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_content_type(blip_message *message, blip_slice *type);

/**
 * Sets the property Content-Type.
 *
 * @param message The message.
 * @param type The text; empty: removes it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: type is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_content_type(blip_message *message, blip_slice type);

/**
 * Gives the value of a property.
 *
 * @param message The message.
 * @param key The key, compared exactly.
 * @param value Receives the value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: value is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_NOT_FOUND.
 *
 * Ownership: key is borrowed for the call. value: it lies in the message: valid while the message
 * lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_property(blip_message *message, blip_slice key, blip_slice *value);

/**
 * Sets a property: changes its value, or adds it at the end.
 *
 * A text that is one control character stands for another text in BLIP 2: a message with one is not
 * sent there, and fails with BLIP_ERROR_PROPERTIES.
 *
 * Source: BLIP 2 §"Message Properties".
 *
 * @param message The message.
 * @param key The key.
 * @param value The value; may be empty.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: key and value are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_property(blip_message *message, blip_slice key, blip_slice value);

/**
 * Removes a property.
 *
 * @param message The message.
 * @param key The key.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_NOT_FOUND.
 *
 * Ownership: key is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_remove_property(blip_message *message, blip_slice key);

/**
 * Gives the number of properties.
 *
 * @param message The message.
 * @param count Receives the number.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_property_count(blip_message *message, size_t *count);

/**
 * Gives a property by its place.
 *
 * To see all of many, blip_message_properties is faster.
 *
 * @param message The message.
 * @param index The place, from 0.
 * @param key Receives the key.
 * @param value Receives the value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: key or value is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below the count.
 *
 * Ownership: key and value: it lies in the message: valid while the message lives and is not
 * changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_property_at(
    blip_message *message, size_t index, blip_slice *key, blip_slice *value);

/**
 * Gives all properties as one text: key, NUL, value, NUL and so on.
 *
 * @param message The message.
 * @param encoded Receives the text; empty without properties.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: encoded is NULL.
 *
 * Ownership: encoded: it lies in the message: valid while the message lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_properties(blip_message *message, blip_slice *encoded);

/**
 * Replaces all properties by an encoded text.
 *
 * @param message The message.
 * @param encoded Key, NUL, value, NUL and so on; empty: none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not pairs of texts
 *     that each end with NUL; or a key occurs twice; BLIP_ERROR_IMMUTABLE: it was sent or received;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_RESOURCES.
 *
 * Ownership: encoded is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_properties(blip_message *message, blip_slice encoded);

/**
 * Replaces the body by a copy of bytes.
 *
 * All parts that were appended are dropped.
 *
 * @param message The message.
 * @param body The bytes; not of this message.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: NULL data with a
 *     size; BLIP_ERROR_IMMUTABLE: it was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: body is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_body(blip_message *message, blip_slice body);

/**
 * Appends a copy of bytes to the body.
 *
 * Parts of all kinds are sent in the order of appending.
 *
 * @param message The message.
 * @param bytes The bytes; not of this message.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: NULL data with a
 *     size; BLIP_ERROR_IMMUTABLE: it was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: bytes is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_append_body(blip_message *message, blip_slice bytes);

/**
 * Appends bytes to the body that are sent from where they lie.
 *
 * They must not change until release is called: when the message is gone, that is sent and, if a
 * request, answered, and released by the program; when the body is replaced; or at once if this
 * fails.
 *
 * @param message The message.
 * @param bytes The bytes.
 * @param release Called exactly once with context; or NULL for bytes that stay for ever.
 * @param context Given to release.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: NULL data with a
 *     size; BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Ownership: bytes are lent until release is called, on any thread.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_append_body_borrowed(
    blip_message *message, blip_slice bytes, void (*release)(void *context), void *context);

/**
 * Appends a range of a regular file to the body.
 *
 * It is read while the message is sent, without moving the file's position. If it cannot be read
 * then: BLIP_ERROR_BODY, see blip_body_fn.
 *
 * @param message The message.
 * @param fd A descriptor open for reading.
 * @param offset Where to begin, in bytes.
 * @param length How many bytes; UINT64_MAX: to the file's present end.
 * @param close_fd Whether the library closes fd when it is done with it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received; BLIP_ERROR_FILE: not a regular file, or the range lies outside of it.
 *
 * Ownership: fd is lent until the message is gone; on success with close_fd it is the library's, on
 * failure always the caller's.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_append_body_file(
    blip_message *message, int fd, uint64_t offset, uint64_t length, bool close_fd);

/**
 * Appends bytes to the body that a function gives when they are to be sent.
 *
 * @param message The message.
 * @param fn Gives the bytes.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fn is NULL;
 *     BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_append_body_pulled(
    blip_message *message, blip_body_fn fn, void *context, void (*release_context)(void *));

/**
 * Says that a function which answered BLIP_AGAIN has bytes now.
 *
 * Harmless if it does not wait.
 *
 * @param message The message.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: the message was not
 *     sent.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_resume_body(blip_message *message);

/**
 * Appends a part to the body that the program hands over with blip_message_push_body.
 *
 * For bodies that come about while they are sent, and for languages that cannot take callbacks.
 * A message can have one such part.
 *
 * @param message The message.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received; BLIP_ERROR_STATE: it has such a part already.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_append_body_pushed(blip_message *message);

/**
 * Hands over the next bytes of a body's pushed part, before the message is sent or after.
 *
 * At most 256 KiB and one call's bytes are held unsent: then the answer is BLIP_AGAIN with nothing
 * taken, and the progress callback or event tells when some have gone. If the last handle of the
 * message is released before the part has ended, the body fails as with blip_body_fn.
 *
 * @param message The message.
 * @param bytes The bytes; copied. May be empty.
 * @param last True: the part ends with them.
 * @return BLIP_OK; BLIP_AGAIN; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: bytes is
 *     not usable; BLIP_ERROR_STATE: there is no such part, or it has ended; BLIP_ERROR_CLOSED: the
 *     message will not be sent any more; BLIP_ERROR_RESOURCES.
 *
 * Ownership: bytes is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_push_body(blip_message *message, blip_slice bytes, bool last);

/**
 * Sets the body to a text, and Content-Type to "text/plain; charset=UTF-8".
 *
 * @param message The message.
 * @param text The text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: text is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_text(blip_message *message, blip_slice text);

/**
 * Sets the body to JSON, and Content-Type to "application/json"; above 100 bytes, compressed.
 *
 * Whether it is JSON is not checked, only that it is text.
 *
 * @param message The message.
 * @param json The JSON text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE: it
 *     was sent or received; BLIP_ERROR_RESOURCES.
 *
 * Ownership: json is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_json(blip_message *message, blip_slice json);

/**
 * Gives the whole body.
 *
 * Of a streamed message that has arrived, what nobody has read of it; do not read it on another
 * thread meanwhile. Of a message of this side, what was set or appended by copying.
 *
 * @param message The message.
 * @param body Receives the bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: body is NULL;
 *     BLIP_ERROR_NOT_COMPLETE: it is still arriving; BLIP_ERROR_UNSUPPORTED: a message of this side
 *     whose body has parts that are not held in memory.
 *
 * Ownership: body: it lies in the message: valid while the message lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_body(blip_message *message, blip_slice *body);

/**
 * Gives the size of the body.
 *
 * Received so far, after decompression. Of a message of this side, as far as known: a function's
 * bytes do not count, and parts that were sent from elsewhere no more.
 *
 * @param message The message.
 * @param size Receives the number of bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: size is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_body_size(blip_message *message, uint64_t *size);

/**
 * Sets whether the response to a request is delivered when its properties are there.
 *
 * The body then follows by blip_message_set_data_callback or blip_message_read. An error response
 * is always given whole: its text is its body, and it cannot be read piece by piece.
 *
 * @param request A request of this side.
 * @param streamed Whether to; default false.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request;
 *     BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_streamed(blip_message *request, bool streamed);

/**
 * Sets who takes the body of a streamed message.
 *
 * May be set inside the request handler or response callback, or later; what is there already is
 * given at once, on a loop thread even before this returns. NULL takes it away; with a queue, NULL
 * means that BLIP_EVENT_DATA tells and blip_message_read reads. Use either a callback or reading
 * for one message. One that is set when the connection has ended, as can happen when a response
 * waits in a queue, is told what is left and how it ended, even after the close callback.
 *
 * Source: BLIP §"Flow Control".
 *
 * @param message A received message that is streamed.
 * @param fn The function, or NULL.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: not a received streamed
 *     message.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_set_data_callback(
    blip_message *message, blip_data_fn fn, void *context, void (*release_context)(void *));

/**
 * Takes bytes of a streamed body, without waiting.
 *
 * What is read is acknowledged to the peer, which sends more then. Without a data callback, keep a
 * handle: the rest of a message that nobody can read is thrown away.
 *
 * @param message A received message that is streamed.
 * @param buffer Where the bytes go.
 * @param capacity Room in buffer, at least 1.
 * @param size Receives the number of bytes.
 * @return BLIP_OK with at least one byte; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_ARGUMENT: buffer is NULL or capacity is 0; or size is NULL; BLIP_AGAIN: none now;
 *     BLIP_DATA_END: all were read; BLIP_ERROR_STATE: not a received streamed message; or why the
 *     rest is lost. With BLIP_AGAIN, BLIP_DATA_END and the loss, size is 0.
 *
 * Ownership: buffer is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_read(blip_message *message, void *buffer, size_t capacity, size_t *size);

/**
 * Takes bytes of a streamed body, and waits for some.
 *
 * @param message A received message that is streamed.
 * @param buffer Where the bytes go.
 * @param capacity Room in buffer, at least 1.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @param size Receives the number of bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: buffer is NULL or
 *     capacity is 0; or timeout below -1; or size is NULL; BLIP_ERROR_TIMEOUT;
 *     BLIP_ERROR_WOULD_DEADLOCK; else as blip_message_read, but never BLIP_AGAIN.
 *
 * Ownership: buffer is borrowed for the call.
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_message_read_wait(
    blip_message *message, void *buffer, size_t capacity, int64_t timeout, size_t *size);

/**
 * Stops telling of more of one streamed body; other messages go on.
 *
 * No data callback or data event comes until blip_message_resume_reading; what arrives is held and
 * not acknowledged, so that the peer stops after some 128,000 bytes. The end waits like bytes do, a
 * failure is told at once. One callback or event that is on its way may still come. Reading
 * (blip_message_read) stays possible. If the connection ends meanwhile, no callback follows; what
 * is held can be read.
 *
 * @param message A received message that is streamed.
 * @return BLIP_OK, also if it is paused already; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_STATE: not streamed.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_pause_reading(blip_message *message);

/**
 * Goes on where blip_message_pause_reading has stopped.
 *
 * The data callback is called from the loop soon, never inside this call.
 *
 * @param message A received message that is streamed.
 * @return BLIP_OK, also if it is not paused; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_STATE: not streamed; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_resume_reading(blip_message *message);

/**
 * Sets who is told that the message was sent.
 *
 * @param message The message.
 * @param fn The function; NULL: nobody, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_sent_callback(
    blip_message *message, blip_sent_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told how far the sending of the body is.
 *
 * @param message The message.
 * @param fn The function; NULL: nobody, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE: it was sent or
 *     received.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_progress_callback(
    blip_message *message, blip_progress_fn fn, void *context, void (*release_context)(void *));

/**
 * Gives how much of the body was cut into frames.
 *
 * @param message The message.
 * @param bytes Receives the number of bytes, before compression.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: bytes is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_bytes_sent(blip_message *message, uint64_t *bytes);

/**
 * Waits until the operating system has the whole message.
 *
 * @param message The message.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_STATE: it was not sent, or is a received one; BLIP_ERROR_TIMEOUT;
 *     BLIP_ERROR_WOULD_DEADLOCK; or why it was not sent.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_message_wait_sent(blip_message *message, int64_t timeout);

/**
 * Sets how long a request may take, from its acceptance for sending to its completion.
 *
 * Time before the connection is open counts too. Then it completes with BLIP_ERROR_TIMEOUT, and is
 * given up as by blip_message_cancel. A streamed response completes the request with its
 * properties.
 *
 * @param request A request of this side.
 * @param milliseconds The time; -1: no limit but the connection's life (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request, or
 *     below -1; BLIP_ERROR_IMMUTABLE: it was sent or received.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_timeout(blip_message *request, int64_t milliseconds);

/**
 * Gives a request of ours up: it completes with BLIP_ERROR_CANCELLED.
 *
 * Returns at once; the completion follows from the loop. What was not begun is never sent; what was
 * is sent whole, and its response thrown away. A streamed response that is arriving ends with
 * BLIP_ERROR_CANCELLED. Nothing happens if it was complete.
 *
 * @param request The request.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of this
 *     side; BLIP_ERROR_STATE: it was not sent.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_cancel(blip_message *request);

/**
 * Keeps a pointer of the program's with the message.
 *
 * The one before is released.
 *
 * @param message The message.
 * @param data The pointer; may be NULL.
 * @param release_data Called exactly once with data, when it is replaced or the message is gone; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: data is lent until release_data is called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_set_user_data(
    blip_message *message, void *data, void (*release_data)(void *));

/**
 * Gives the pointer that blip_message_set_user_data has kept.
 *
 * @param message The message.
 * @param data Receives the pointer; NULL if none was set.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: data is NULL.
 *
 * Ownership: data stays whose it was.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_user_data(blip_message *message, void **data);

/**
 * Sets the trace context of a message: the properties "traceparent" and "tracestate".
 *
 * Source: W3C Trace Context, Level 2, §3.2 and §3.3.
 *
 * @param message A message that is not sent.
 * @param traceparent Such as "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
 * @param tracestate Such as "vendor=value"; empty: none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: one of them is not
 *     well-formed; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE; BLIP_ERROR_RESOURCES.
 *
 * Ownership: traceparent and tracestate are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_set_trace_context(
    blip_message *message, blip_slice traceparent, blip_slice tracestate);

/**
 * Gives the trace context of a message, if it has a well-formed one.
 *
 * Source: W3C Trace Context, Level 2, §3.2 and §3.3.
 *
 * @param message The message.
 * @param traceparent Receives the parent.
 * @param tracestate Receives the state; empty if there is none that is well-formed.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: traceparent or
 *     tracestate is NULL; BLIP_ERROR_NOT_FOUND: there is no well-formed parent.
 *
 * Ownership: both lie in the message.
 * Threads: [any] [callback]; [object] if it is not sent. Since 1.0.
 */
blip_status blip_message_trace_context(
    blip_message *message, blip_slice *traceparent, blip_slice *tracestate);

/**
 * Puts a message into the trace of another one, as a child of it with a random id of its own.
 *
 * For a request that is sent because of one that is being handled: the trace's id, whether it is
 * sampled and its state are passed on.
 *
 * Source: W3C Trace Context, Level 2, §3.2 and §4.
 *
 * @param message A message that is not sent.
 * @param of The message that it is sent because of.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_NOT_FOUND: the other message
 *     has no well-formed trace context; BLIP_ERROR_IMMUTABLE; BLIP_ERROR_RESOURCES.
 *
 * Ownership: both stay the caller's.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_continue_trace(blip_message *message, blip_message *of);

/**
 * Begins a new trace with a message: random ids, and no state.
 *
 * Source: W3C Trace Context, Level 2, §3.2.
 *
 * @param message A message that is not sent.
 * @param sampled Whether the trace is recorded.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_IMMUTABLE;
 *     BLIP_ERROR_RESOURCES.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_message_begin_trace(blip_message *message, bool sampled);

/**
 * Describes the message for people: kind, number, profile, flags, size.
 *
 * For logs; not to be parsed. Each call makes a text that stays as long as the message.
 *
 * @param message The message.
 * @param properties Whether to add the properties, a line each.
 * @param text Receives the text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: text is NULL.
 *
 * Ownership: text: it lies in the message: valid while the message lives and is not changed.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_describe(blip_message *message, bool properties, blip_slice *text);

/**
 * Makes a request of a message, to be sent again or forwarded.
 *
 * Properties, flags and body are copied; callbacks, time limit and user data are not.
 *
 * @param message A request, or a received message.
 * @param request Receives the request.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a response of this
 *     side; or request is NULL; BLIP_ERROR_NOT_COMPLETE: it is still arriving;
 *     BLIP_ERROR_UNSUPPORTED: its body has parts that are not held in memory; BLIP_ERROR_RESOURCES.
 *
 * Ownership: the request is the caller's: blip_message_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_copy(blip_message *message, blip_message **request);

/** @} */

/**
 * @defgroup responding Responding
 *
 * A request of the peer is answered once. Functions here take a received request; with one that
 * wants no reply they give BLIP_ERROR_NO_REPLY. An answer that was accepted (BLIP_OK) may still be
 * lost with the connection. One that fails leaves the request unanswered, as if it had been
 * deferred.
 *
 * @{
 */

/**
 * Makes a response, to be filled in and given to blip_message_respond.
 *
 * It is urgent if the request is. Properties, body, flags and callbacks are set as for a request.
 *
 * @param request A request of the peer.
 * @param response Receives the response.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; or response is NULL; BLIP_ERROR_NO_REPLY; BLIP_ERROR_RESOURCES.
 *
 * Ownership: the response is the caller's: blip_message_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_response_new(blip_message *request, blip_message **response);

/**
 * Makes a response an error response: of any domain, with details.
 *
 * Other properties of the response are details of the error. Replaces its body.
 *
 * @param response A response of blip_response_new that is not sent.
 * @param domain Whose code it is; empty: "BLIP".
 * @param code The code; not 0.
 * @param message The error's text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a response, or
 *     code is 0; BLIP_ERROR_TEXT; BLIP_ERROR_IMMUTABLE; BLIP_ERROR_RESOURCES.
 *
 * Ownership: domain and message are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_response_set_error(
    blip_message *response, blip_slice domain, int32_t code, blip_slice message);

/**
 * Answers a request.
 *
 * On success the response is frozen; on failure it is unchanged.
 *
 * @param request A request of the peer.
 * @param response The response.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; or not a response that blip_response_new has made for it; BLIP_ERROR_NO_REPLY;
 *     BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED: the connection has ended;
 *     BLIP_ERROR_IMMUTABLE: the response was used before; BLIP_ERROR_LIMIT: its properties are
 *     above BLIP_LIMIT_PROPERTIES.
 *
 * Ownership: the library keeps what it needs of response; the handle stays the caller's.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond(blip_message *request, blip_message *response);

/**
 * Answers a request with bytes.
 *
 * @param request A request of the peer.
 * @param body The body, copied.
 * @param content_type The property Content-Type; empty: none.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_TEXT; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED:
 *     the connection has ended.
 *
 * Ownership: body and content_type are borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond_data(
    blip_message *request, blip_slice body, blip_slice content_type);

/**
 * Answers a request with a text, as blip_message_set_text makes it.
 *
 * @param request A request of the peer.
 * @param text The text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_TEXT; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED:
 *     the connection has ended.
 *
 * Ownership: text is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond_text(blip_message *request, blip_slice text);

/**
 * Answers a request with JSON, as blip_message_set_json makes it.
 *
 * @param request A request of the peer.
 * @param json The JSON text.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_TEXT; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED:
 *     the connection has ended.
 *
 * Ownership: json is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond_json(blip_message *request, blip_slice json);

/**
 * Answers a request without properties and body.
 *
 * @param request A request of the peer.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED: the connection
 *     has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond_empty(blip_message *request);

/**
 * Answers a request with an error.
 *
 * In the domain BLIP, codes are like those of HTTP.
 *
 * @param request A request of the peer.
 * @param domain The property Error-Domain; empty: "BLIP".
 * @param code The property Error-Code; not 0, which peers take for none.
 * @param text What went wrong: the body.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_TEXT; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED; BLIP_ERROR_CLOSED:
 *     the connection has ended; BLIP_ERROR_LIMIT.
 *
 * Ownership: domain and text are borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_respond_error(
    blip_message *request, blip_slice domain, int32_t code, blip_slice text);

/**
 * Says that the request will be answered later.
 *
 * Retain the request, and answer on any thread. If the last reference is released without an
 * answer, the error BLIP/501 is answered.
 *
 * @param request A request of the peer.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of the
 *     peer; BLIP_ERROR_NO_REPLY; BLIP_ERROR_ALREADY_RESPONDED.
 *
 * Ownership: the caller retains request to keep it.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_defer(blip_message *request);

/**
 * Tells whether the request was answered.
 *
 * @param request A request of the peer.
 * @param responded Receives true if so.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: responded is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_is_responded(blip_message *request, bool *responded);

/**
 * Gives what an error response says.
 *
 * @param response An error response.
 * @param error Receives the error; its text is the response's body.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: error is NULL;
 *     BLIP_ERROR_NOT_FOUND: not an error response.
 *
 * Ownership: the error is lent by the response: valid while it lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_message_error(blip_message *response, blip_error **error);

/** @} */

/**
 * @defgroup listener_options Options of listeners
 *
 * As those of connections; they hold for all connections of the listener. Limits are named with the
 * options of connections.
 *
 * @{
 */

/**
 * Makes options of a listener, all at their defaults.
 *
 * @return The options; NULL if memory or handles ran out.
 *
 * Ownership: the options are the caller's: blip_listener_options_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_listener_options *blip_listener_options_new(void);

/**
 * Gives the options back.
 *
 * What was made with them goes on: it has its own copy.
 *
 * @param options The options.
 *
 * Ownership: ends the caller's reference; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_listener_options_release(blip_listener_options *options);

/**
 * Adds a subprotocol that is spoken.
 *
 * The first one in the client's list that is spoken here is chosen; without any, the client gets
 * HTTP 400. "BLIP_3" is version 3, "BLIP" version 2; an application's own name follows a plus sign,
 * as in "BLIP_3+CBMobile_3". They are compared whole and exactly. Default: "BLIP_3", then "BLIP". A
 * name that is there already changes nothing.
 *
 * Source: RFC 6455 §1.9, §4.1.
 *
 * @param options The options.
 * @param name The name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: another version, or
 *     not a token; BLIP_ERROR_TEXT.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_subprotocol(
    blip_listener_options *options, blip_slice name);

/**
 * Sets the queue that takes the place of callbacks.
 *
 * @param options The options.
 * @param queue The queue; NULL: the runtime's (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: the options, and the listener made with them, keep the queue alive.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_queue(blip_listener_options *options, blip_queue *queue);

/**
 * Sets the realm that clients are told when a password is asked for.
 *
 * Source: RFC 9110 §11.5.
 *
 * @param options The options.
 * @param realm The text, without control characters; empty: "BLIP", the default.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     has a control character, or spaces at its ends.
 *
 * Ownership: realm is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_realm(blip_listener_options *options, blip_slice realm);

/**
 * Adds a user, by a password.
 *
 * With at least one user, each request has to bring the name and password of one, by the scheme
 * Basic; others get status 401 and are closed. That goes for what else the port serves, too, and
 * BLIP 1, which knows no users, is turned away. Use TLS: Basic shows the password to the network.
 *
 * What is kept is a salted hash (scrypt, 16 MiB); making one takes about 50 ms, in this call. To
 * compare one takes as long and happens on up to two threads of the library's own, never on a loop;
 * at most 64 clients of a listener wait for that, more get status 503, and listeners take turns.
 * Credentials that were right are remembered by a keyed hash (1,024 of them), so that a client that
 * comes again is let in at once. Names that nobody has take as long as wrong passwords. A name that
 * was added before gets the new password.
 *
 * Source: RFC 7617; RFC 7914.
 *
 * @param options The options.
 * @param name The user name, not empty, without colon.
 * @param password The password.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: the
 *     name is empty, has a colon, or one of them a control character; BLIP_ERROR_RESOURCES: OpenSSL
 *     has no memory for it.
 *
 * Ownership: name and password are borrowed for the call; wiping them is the caller's.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_user(
    blip_listener_options *options, blip_slice name, blip_slice password);

/**
 * Adds a user, by a hash that blip_password_hash has made.
 *
 * @param options The options.
 * @param name The user name, not empty, without colon.
 * @param hash Such as "$scrypt$ln=14,r=8,p=1$salt$hash"; one that takes up to 64 MiB is allowed.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     is no such hash, or no such name.
 *
 * Ownership: name and hash are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_user_hash(
    blip_listener_options *options, blip_slice name, blip_slice hash);

/** The most bytes that blip_password_hash gives. Since 1.0. */
#define BLIP_PASSWORD_HASH_SIZE 256

/**
 * Makes a salted hash of a password, for a file of users.
 *
 * Takes about 50 ms and 16 MiB.
 *
 * Source: RFC 7914.
 *
 * @param password The password.
 * @param buffer Where the text goes; not NUL-terminated.
 * @param capacity Room in buffer; BLIP_PASSWORD_HASH_SIZE is always enough.
 * @param size Receives the number of bytes.
 * @return BLIP_OK; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: buffer or size is NULL; BLIP_ERROR_LIMIT:
 *     it does not fit; BLIP_ERROR_RESOURCES: OpenSSL has no memory for it.
 *
 * Ownership: password is borrowed for the call; the text is copied into the caller's buffer.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_password_hash(
    blip_slice password, void *buffer, size_t capacity, size_t *size);

/**
 * Adds a web page's origin whose scripts may connect.
 *
 * Browsers name the origin of the page in every upgrade, and pages cannot forge it; programs
 * usually send none and are not concerned. By default only pages of the host and port that the
 * request is for may connect, so that no other page can use a browser, which may stand behind a
 * firewall or be logged in, to reach the listener; others get status 403. Without TLS and users
 * the host has to have a name that blip_listener_options_add_host() tells of, besides, so that no
 * page can be made to have the listener's own (DNS rebinding). With a list, those on it may connect
 * and no others.
 *
 * Source: RFC 6455 §10.2; RFC 6454.
 *
 * @param options The options.
 * @param origin Such as "https://app.example:8443"; "null": pages without origin; "*": all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     is no origin.
 *
 * Ownership: origin is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_origin(blip_listener_options *options, blip_slice origin);

/**
 * Adds a name by which browsers may ask for the listener's pages, and its pages for BLIP.
 *
 * Whoever owns a name can let it mean the listener's address, so that a page of his own passes for
 * one of the listener's (DNS rebinding), and uses the browser of somebody who can reach it. So
 * the dashboard and writable files answer by names alone that are nobody else's: IP addresses,
 * "localhost" and names below it, and the host's own name, also without its domain or with
 * ".local"; other requests get status 421. What has TLS or users is safe without that, and files
 * that are only read go out by any name, unless names were added: then they go by these rules too.
 * Names count besides those above. A proxy in front passes one of them on, or its own is added.
 *
 * Source: RFC 9110 §7.4 and §15.5.20.
 *
 * @param options The options.
 * @param name Such as "files.example", without a port; "*": any.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: it
 *     is no host name.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_host(blip_listener_options *options, blip_slice name);

/**
 * Adds a path that is served.
 *
 * Compared byte by byte with what the client sends, without query; others get HTTP 404. Without
 * any, all paths are served.
 *
 * @param options The options.
 * @param path The path, percent-encoded as clients send it.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: it does not begin
 *     with a slash, or has spaces or control characters; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_path(blip_listener_options *options, blip_slice path);

/**
 * Says whether clients of BLIP 1 are taken, on the same port; the default is no.
 *
 * BLIP 1 goes over the bare byte stream: a client of it names no path, sends no HTTP headers, so no
 * credentials and no origin either, and answers no pings. It is told by its first bytes
 * (9B34F206). One that sends nothing for the handshake timeout is taken for one of BLIP 1 too.
 * Only BLIP 1.1 is spoken: a client of 1.0 (9B34F205) is turned away.
 *
 * Source: BLIP 1, "Framing".
 *
 * @param options The options.
 * @param enabled Whether they are taken.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_blip1(blip_listener_options *options, bool enabled);

/**
 * Says whether clients with WebSockets, of BLIP 2 and 3, are taken; the default is yes.
 *
 * Which of the two, the subprotocols say: blip_listener_options_add_subprotocol. Without them, and
 * with BLIP 1 switched on, connections are open as soon as they are accepted.
 *
 * @param options The options.
 * @param enabled Whether they are taken. If BLIP 1 is not either, the listener will not start.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_websocket(blip_listener_options *options, bool enabled);

/**
 * Sets how long a client may take from its connecting to the open connection: TLS, HTTP and the
 * accept callback.
 *
 * Default 15,000. With 0 every client is dropped.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_handshake_timeout(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how long closing waits for the peer's answer, and then for the end of the transport.
 *
 * Default 5,000.
 *
 * Source: RFC 6455 §7.1.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_close_timeout(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how long closing by the message "Bye" of BLIP 1 and 2 takes at most.
 *
 * Default 60,000. Counted from the message, of this side or of the peer, to the end of what is
 * under way: a peer that never answers, or never ends the stream, is left then, as after
 * blip_connection_close. A time given to blip_connection_close_gracefully counts if it is shorter.
 *
 * Source: BLIP 1, "Closing".
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_bye_timeout(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how long a connection goes on whose peer has ended its own direction of the stream only.
 *
 * Default 0: the connection ends at once, with BLIP_ERROR_CONNECTION_LOST unless a closing
 * handshake or "Bye" said so before. Otherwise a peer that ends its output without them (FIN; with
 * TLS 1.3 also close_notify) is taken for one that still listens: what it has asked is answered,
 * and what is queued without wanting an answer is sent. Then this side closes by itself, with a
 * closing frame or "Bye" and its own end. Meanwhile the state is BLIP_STATE_CLOSING: new requests
 * are refused, those that want an answer complete with BLIP_ERROR_CONNECTION_LOST because none can
 * come (a reconnector takes those back of which nothing was sent), messages that came in part fail
 * likewise, and no ping is sent. The peer cannot acknowledge any more either, so that bodies are
 * sent as fast as the stream takes them.
 *
 * The connection ends with BLIP_OK if nothing was cut off: no message in part, no request of this
 * side unanswered, and all was sent in time; otherwise with BLIP_ERROR_CONNECTION_LOST or what
 * broke the stream. A peer that has in fact gone is noticed when something is sent to it. After a
 * closing frame nothing more may be sent, so that this is not for peers that send one, nor for TLS
 * 1.2, whose close_notify ends both directions.
 *
 * Source: RFC 9293 §3.6; RFC 8446 §6.1; RFC 5246 §7.2.1; RFC 6455 §5.5.1; the document of BLIP 1.0.
 *
 * @param options The options.
 * @param milliseconds The time in milliseconds; 0: it does not go on; -1: as long as it takes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_half_close(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how long an incomplete message may stand still while it is received.
 *
 * Default 0. When so long no byte has come although the peer is in the middle of a message, the
 * listener's timeout callback is asked, and without one the connection ends with
 * BLIP_ERROR_TIMEOUT. It is noticed at the latest a quarter of the time late. The peer may stand
 * still because this program does not consume a body: that counts too.
 *
 * @param options The options.
 * @param milliseconds The time; 0 or -1: no limit.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: milliseconds
 *     below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_read_timeout(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how long the peer may take nothing of what is to be sent.
 *
 * Default 0. Otherwise as blip_listener_options_set_read_timeout.
 *
 * @param options The options.
 * @param milliseconds The time; 0 or -1: no limit.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: milliseconds
 *     below -1.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_write_timeout(
    blip_listener_options *options, int64_t milliseconds);

/**
 * Sets how often the peer is pinged, and how many pings it may miss.
 *
 * Every interval a ping is sent. If nothing at all was received since missed pings, the connection
 * ends with BLIP_ERROR_PEER_SILENT. While the library does not read because a queue is full, no
 * ping counts as missed. Default 300,000 and 2.
 *
 * Source: RFC 6455 §5.5.2.
 *
 * @param options The options.
 * @param interval Milliseconds between pings; 0: no pings.
 * @param missed How many pings may go without a sign of life; at least 1.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: interval is negative,
 *     or missed is 0 with an interval.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_ping(
    blip_listener_options *options, int64_t interval, uint32_t missed);

/**
 * Sets whether pings are left out while something comes from the peer.
 *
 * By default a ping goes out every interval. With true, only after an interval in which nothing was
 * received: fewer bytes, the same certainty about a peer that is gone.
 *
 * Source: RFC 6455 §5.5.2.
 *
 * @param options The options.
 * @param only_idle Whether to ping silent peers alone.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_ping_only_idle(
    blip_listener_options *options, bool only_idle);

/**
 * Sets the size of the largest BLIP frame to send, header and checksum included.
 *
 * Default 16,384. Deployed peers refuse more than 32,768.
 *
 * @param options The options.
 * @param bytes 256 to 262,144.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below 256 or above
 *     262,144.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_frame_size(blip_listener_options *options, uint32_t bytes);

/**
 * Sets how hard messages are compressed that ask for it.
 *
 * Default 6. A message asks with BLIP_FLAG_COMPRESSED. Levels from 7 on take about eight times as
 * long as 6 for a tenth fewer bytes.
 *
 * @param options The options.
 * @param level 1 (fast) to 9 (small); 0: nothing is ever compressed.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not 0 to 9.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_compression_level(
    blip_listener_options *options, int32_t level);

/**
 * Sets one of the limits of what a peer may make this side hold.
 *
 * What is one message's fault fails that message: a request of the peer is answered with an error
 * (BLIP/413, BLIP/400 or BLIP/503), a request of ours ends with BLIP_ERROR_LIMIT. Other things end
 * the connection.
 *
 * @param options The options.
 * @param limit BLIP_LIMIT_INCOMING_FRAME and so on.
 * @param value The limit's value.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: the limit is not
 *     known, or the value is 0, above 2^40 or out of the limit's range.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_limit(
    blip_listener_options *options, int32_t limit, uint64_t value);

/**
 * Sets this side's certificate and key. They make the listener speak TLS.
 *
 * The files are read when the listener is made; without them it speaks plain ws. The key must have
 * no password.
 *
 * @param options The options.
 * @param certificate_path A PEM file with the certificate and those that lead to its authority;
 *     empty: none.
 * @param key_path A PEM file with the key; empty: the same file.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: certificate_path and key_path are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_identity(
    blip_listener_options *options, blip_slice certificate_path, blip_slice key_path);

/**
 * Asks clients for certificates, and says whose are trusted.
 *
 * One that is given must be good, required or not. Without a TLS identity this has no effect.
 *
 * @param options The options.
 * @param path A PEM file of authorities; empty: clients are not asked (the default).
 * @param required Whether a client without a certificate is refused; needs a file.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_client_ca_file(
    blip_listener_options *options, blip_slice path, bool required);

/**
 * Sets the lowest and highest version of TLS.
 *
 * @param options The options.
 * @param minimum BLIP_TLS_1_2 or BLIP_TLS_1_3; 0: the default, 1.2.
 * @param maximum The same; 0: the default, 1.3.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a version is not
 *     known, or minimum is above maximum.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_versions(
    blip_listener_options *options, int32_t minimum, int32_t maximum);

/**
 * Answers plain GET requests for a path with the runtime's figures as text for Prometheus.
 *
 * On the listener's own port, over TLS if it has TLS: to whoever can connect. Not done by default.
 * Requests for this path never become connections of the program: a listener whose only path
 * (blip_listener_options_add_path) it is serves nothing else.
 *
 * @param options The options.
 * @param path A path such as "/metrics"; empty: not done.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: it does not begin
 *     with "/", or has spaces or control characters; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_metrics_path(
    blip_listener_options *options, blip_slice path);

/**
 * Adds a protocol to take by ALPN, the preferred one first.
 *
 * Without any, ALPN is not used. A client that offers others only is refused; one that offers none
 * is not.
 *
 * Source: RFC 7301.
 *
 * @param options The options.
 * @param name 1 to 255 bytes; 16 names at most.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT: a
 *     name of that size, or one more, is not possible.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_add_tls_alpn(
    blip_listener_options *options, blip_slice name);

/**
 * Sets the cipher suites.
 *
 * What OpenSSL does not know is reported as BLIP_ERROR_TLS_SETUP when the listener starts.
 *
 * @param options The options.
 * @param ciphers Those of TLS 1.2, as openssl-ciphers(1) has them; empty: OpenSSL's choice.
 * @param suites Those of TLS 1.3, with colons between; empty: OpenSSL's choice.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: ciphers and suites are borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_ciphers(
    blip_listener_options *options, blip_slice ciphers, blip_slice suites);

/**
 * Refuses certificates that revocation lists name.
 *
 * The file is read when the listener is made. The client's own certificate is looked up in the
 * list of its issuer, which must be in the file and not out of date.
 *
 * Source: RFC 5280 §5.
 *
 * @param options The options.
 * @param path A PEM file of lists; empty: revocation is not looked at (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_crl_file(
    blip_listener_options *options, blip_slice path);

/**
 * Writes the secrets of each TLS connection to a file, for Wireshark.
 *
 * Whoever reads the file can read the connections: for debugging only. It is made for its owner
 * alone, or appended to.
 *
 * @param options The options.
 * @param path The file; empty: none (the default).
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_tls_key_log_file(
    blip_listener_options *options, blip_slice path);

/**
 * Sets how many connections may be open at a time; more are closed as they come.
 *
 * Default 0.
 *
 * @param options The options.
 * @param count The number; 0: no limit but descriptors.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_listener_options_set_max_connections(
    blip_listener_options *options, uint32_t count);

/** @} */

/**
 * @defgroup listeners Listeners
 *
 * A listener is made, given handlers and callbacks, and started. Its handlers and callbacks are
 * those of the connections accepted afterwards; each connection can have its own instead. It is
 * started once, and stopped once.
 *
 * @{
 */

/**
 * Makes a listener; it does not listen yet.
 *
 * Files named by the options are read now, but one that cannot be used is reported when it starts.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param options Options, copied; NULL: the defaults.
 * @param listener Receives the listener.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: listener is NULL;
 *     BLIP_ERROR_STOPPED: the runtime was stopped; BLIP_ERROR_RESOURCES.
 *
 * Ownership: the listener is the caller's: blip_listener_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_new(
    blip_runtime *runtime, blip_listener_options *options, blip_listener **listener);

/**
 * Takes one more reference.
 *
 * @param listener The listener.
 * @return listener, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_listener_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_listener *blip_listener_retain(blip_listener *listener);

/**
 * Gives a reference back; the last one stops the listener and closes its connections.
 *
 * The stopped callback still comes, if it was started.
 *
 * @param listener The listener.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_listener_release(blip_listener *listener);

/**
 * Sets who handles requests of one profile, on connections accepted afterwards.
 *
 * @param listener The listener.
 * @param profile The text of the property Profile that is to be handled.
 * @param flags 0 or BLIP_HANDLER_STREAM.
 * @param fn The handler; may be NULL with a queue that is read by blip_queue_next.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag; or
 *     fn is NULL and the listener has no queue; BLIP_ERROR_TEXT.
 *
 * Ownership: profile is borrowed for the call. context is lent until release_context is called,
 * which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_handler(
    blip_listener *listener, blip_slice profile, uint32_t flags, blip_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who handles requests that have no other handler, on connections accepted afterwards.
 *
 * @param listener The listener.
 * @param flags 0 or BLIP_HANDLER_STREAM.
 * @param fn The handler; NULL: none, or with a queue that is read by blip_queue_next an event
 *     without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_default_handler(
    blip_listener *listener, uint32_t flags, blip_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who looks at clients that ask to connect.
 *
 * @param listener The listener.
 * @param fn The function; NULL: none, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_accept_callback(
    blip_listener *listener, blip_accept_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told of connections that open, of those accepted afterwards.
 *
 * @param listener The listener.
 * @param fn The function; NULL: none, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_open_callback(
    blip_listener *listener, blip_open_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told of connections that end, of those accepted afterwards.
 *
 * Clients that were refused or did not get through the handshake are told of too, without an open
 * callback before.
 *
 * @param listener The listener.
 * @param fn The function; NULL: none, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_close_callback(
    blip_listener *listener, blip_close_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who judges the certificates of clients, for connections that come from now on.
 *
 * Clients are asked for a certificate then, and one that is given goes to fn instead of OpenSSL's
 * opinion, which blip_trust_verdict has. The client's own handshake is over meanwhile: one that is
 * refused sees the connection end. A client without certificate is not asked about; whether it may
 * connect is set by blip_listener_options_set_tls_client_ca_file.
 *
 * @param listener The listener.
 * @param fn The function; NULL: nobody, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_trust_callback(
    blip_listener *listener, blip_trust_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is asked when a read timeout or write timeout of a later connection is over.
 *
 * @param listener The listener.
 * @param fn The function; NULL: nobody, and the connection ends.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_timeout_callback(
    blip_listener *listener, blip_timeout_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who decides whether clients may close by the message "Bye", for those accepted afterwards.
 *
 * See blip_connection_set_close_request_callback, which takes its place for one connection.
 *
 * @param listener The listener.
 * @param fn The function; NULL: nobody, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_close_request_callback(
    blip_listener *listener, blip_close_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who looks at each frame of the connections that are accepted from now on.
 *
 * @param listener The listener.
 * @param fn The function; NULL: nobody.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_frame_callback(
    blip_listener *listener, blip_frame_fn fn, void *context, void (*release_context)(void *));

/**
 * Sets who is told that the listener has stopped.
 *
 * @param listener The listener.
 * @param fn The function; NULL: none, or with a queue an event.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_set_stopped_callback(
    blip_listener *listener, blip_stopped_fn fn, void *context, void (*release_context)(void *));

/**
 * Listens on a port.
 *
 * When it returns, clients can connect. This and the other functions that start may be called
 * again, from several threads too: the listener then listens there as well, and stopping ends all
 * of it. After a failure it may be tried again; where it listens already it goes on.
 *
 * @param listener The listener.
 * @param interface_address Empty: all addresses; an IPv4 or IPv6 address; "localhost": the loopback
 *     addresses of both; or the name of an interface.
 * @param port The port; 0: any free one, see blip_listener_port.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_STATE: it was
 *     stopped; BLIP_ERROR_TLS_SETUP: a file cannot be used; BLIP_ERROR_STOPPED: the runtime
 *     was stopped; BLIP_ERROR_ADDRESS_IN_USE; BLIP_ERROR_PERMISSION; BLIP_ERROR_UNREACHABLE: the
 *     address is none of this machine's; BLIP_ERROR_RESOURCES; BLIP_ERROR_NETWORK;
 *     blip_listener_error has the detail.
 *
 * Ownership: interface_address is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_start(
    blip_listener *listener, blip_slice interface_address, uint16_t port);

/**
 * Listens on a Unix socket.
 *
 * A socket file that nobody listens on any more is replaced. The file is removed when the listener
 * stops.
 *
 * @param listener The listener.
 * @param path The file's path, at most 107 bytes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: the path is empty;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_STATE: it was stopped; BLIP_ERROR_TLS_SETUP: a file cannot
 *     be used; BLIP_ERROR_STOPPED: the runtime was stopped; BLIP_ERROR_ADDRESS_IN_USE;
 *     BLIP_ERROR_PERMISSION; BLIP_ERROR_FILE: the path's folder is missing, or it is too long;
 *     BLIP_ERROR_RESOURCES; BLIP_ERROR_NETWORK; blip_listener_error has the detail.
 *
 * Ownership: path is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_start_unix(blip_listener *listener, blip_slice path);

/**
 * Listens on a socket that listens already.
 *
 * The library takes the descriptor over: it is made non-blocking, and closed when the listener
 * stops. The file of a Unix socket stays. After a failure it may be tried again.
 *
 * @param listener The listener.
 * @param fd A stream socket, of IP or Unix, that listens.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was stopped, or has
 *     the socket already; BLIP_ERROR_TLS_SETUP: a file cannot be used; BLIP_ERROR_STOPPED: the
 *     runtime was stopped; BLIP_ERROR_FILE, BLIP_ERROR_NETWORK: fd is no socket that listens;
 *     blip_listener_error has the detail.
 *
 * Ownership: fd: the library's on success, the caller's otherwise.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_start_fd(blip_listener *listener, int fd);

/**
 * Listens on the sockets that systemd has opened for this process.
 *
 * They are those of the environment's LISTEN_FDS, if LISTEN_PID is this process; several make one
 * listener. Each socket is taken once.
 *
 * Source: sd_listen_fds(3), systemd.socket(5).
 *
 * @param listener The listener.
 * @param name FileDescriptorName= of the sockets; empty: all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was
 *     stopped; BLIP_ERROR_TLS_SETUP: a file cannot be used; BLIP_ERROR_STOPPED: the runtime was
 *     stopped; BLIP_ERROR_TEXT; BLIP_ERROR_NOT_FOUND: there is no such socket, or it was
 *     taken; BLIP_ERROR_FILE, BLIP_ERROR_NETWORK: it does not listen; blip_listener_error has the
 *     detail.
 *
 * Ownership: name is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_start_systemd(blip_listener *listener, blip_slice name);

/**
 * Takes over a socket that is connected already, as if a client had connected to the listener.
 *
 * A listener that was not started is started by it, without listening anywhere. The descriptor is
 * made non-blocking, and closed when the connection ends.
 *
 * @param listener The listener.
 * @param fd A stream socket, of IP or Unix, that is connected.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fd is no such socket;
 *     BLIP_ERROR_STATE: the listener has stopped; BLIP_ERROR_LIMIT: it has as many connections as
 *     it may; BLIP_ERROR_TLS_SETUP: a file cannot be used; BLIP_ERROR_STOPPED: the runtime was
 *     stopped.
 *
 * Ownership: fd: the library's on success, the caller's otherwise.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_accept_fd(blip_listener *listener, int fd);

/**
 * Gives the port; of several, that of the first start.
 *
 * @param listener The listener.
 * @param port Receives the port.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: port is NULL;
 *     BLIP_ERROR_STATE: not started, or on a Unix socket.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_port(blip_listener *listener, uint16_t *port);

/**
 * Gives a URL by which a client on this machine can connect; of several, that of the first start.
 *
 * @param listener The listener.
 * @param url Receives the URL, with the first path of the options.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: url is NULL;
 *     BLIP_ERROR_STATE: not started.
 *
 * Ownership: url: it lies in the listener: valid while the listener lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_url(blip_listener *listener, blip_slice *url);

/**
 * Gives the port of one of the places where it listens.
 *
 * Each successful start is a place, in their order; of blip_listener_start_systemd each socket is
 * one. A stopped listener still knows them.
 *
 * @param listener The listener.
 * @param index The place, from 0.
 * @param port Receives the port.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: port is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below their number; BLIP_ERROR_STATE: it is a Unix socket.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_port_at(blip_listener *listener, size_t index, uint16_t *port);

/**
 * Gives a URL by which a client on this machine can connect to one of the places where it listens.
 *
 * The places are those of blip_listener_port_at.
 *
 * @param listener The listener.
 * @param index The place, from 0.
 * @param url Receives the URL, with the first path of the options.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: url is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below their number.
 *
 * Ownership: url: it lies in the listener: valid while the listener lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_url_at(blip_listener *listener, size_t index, blip_slice *url);

/**
 * Gives the number of connections that have not ended, those in the handshake included.
 *
 * @param listener The listener.
 * @param count Receives the number.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_connection_count(blip_listener *listener, size_t *count);

/**
 * Stops to accept, and closes all connections of the listener.
 *
 * Returns at once; the stopped callback follows when all have ended. Nothing happens if it is not
 * started, or stopped already.
 *
 * @param listener The listener.
 * @param graceful true: connections finish what is under way, as blip_connection_close_gracefully,
 *     and close with 1001 then; false: they close with 1001 now.
 * @param timeout For a graceful stop: how long they may go on, in milliseconds; -1: for ever.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_stop(blip_listener *listener, bool graceful, int64_t timeout);

/**
 * Waits until the listener has stopped and all its connections have ended.
 *
 * @param listener The listener.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_STATE: it was never started; BLIP_ERROR_TIMEOUT; BLIP_ERROR_WOULD_DEADLOCK.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_listener_wait_stopped(blip_listener *listener, int64_t timeout);

/**
 * Gives why the listener could not start, the last time that it was tried.
 *
 * @param listener The listener.
 * @param error Receives the error.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: error is NULL;
 *     BLIP_ERROR_NOT_FOUND: nothing went wrong.
 *
 * Ownership: the error is lent by the listener: valid while it lives and is not started again.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_error(blip_listener *listener, blip_error **error);

/** @} */

/**
 * @defgroup pages Pages
 *
 * A listener's port can answer browsers too: with the files below a folder, and pages to look at
 * them. Nothing of it is on unless a program asks for it, and connections that speak BLIP are not
 * concerned. Such connections count for blip_listener_options_set_max_connections. Users, client
 * certificates and the accept callback (for each request) decide about them as about others; no
 * other callback tells of them.
 *
 * @{
 */

/**
 * Makes options with the defaults: read only, hidden names left out.
 *
 * @return The options; NULL if memory or handles ran out.
 *
 * Ownership: the options are the caller's: blip_files_options_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_files_options *blip_files_options_new(void);

/**
 * Gives the options back; listeners have copied them.
 *
 * @param options The options.
 *
 * Ownership: ends the caller's reference; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_files_options_release(blip_files_options *options);

/**
 * Allows uploads, new folders and removal.
 *
 * Programs use PUT and DELETE, pages use forms. Browsers must send them from the listener's own
 * pages: the request's Origin is compared, and a token of the page is asked for.
 *
 * @param options The options.
 * @param writable Whether files may be changed; default false.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_files_options_set_writable(blip_files_options *options, bool writable);

/**
 * Lets uploads replace files that exist; without it they are refused with 409.
 *
 * @param options The options.
 * @param replace Whether files may be replaced; default false.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_files_options_set_replace(blip_files_options *options, bool replace);

/**
 * Serves and lists names that begin with a dot, too.
 *
 * @param options The options.
 * @param hidden Whether such names are there; default false.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_files_options_set_hidden(blip_files_options *options, bool hidden);

/**
 * Bounds the size of one uploaded file.
 *
 * @param options The options.
 * @param bytes The most bytes, 1 or more; default 1 GiB.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: bytes is 0.
 *
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_files_options_set_upload_limit(blip_files_options *options, uint64_t bytes);

/**
 * Answers HTTP requests below a path with the files below a folder (RFC 9110, RFC 9112).
 *
 * Folders are pages; files come whole or in ranges, with conditions, compressed where it helps.
 * Nothing outside of the folder is reached: no "..", no symbolic link. Requests to upgrade are
 * answered as before. For connections that are accepted from now on; may be called several times.
 * Files are read on the loop threads: a slow disk slows the loop.
 *
 * @param listener The listener.
 * @param prefix Where the files are in URLs, as "/files/"; "/" for all that is not taken.
 * @param folder The folder; it is opened now.
 * @param options Options, copied; NULL: the defaults.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     prefix does not begin with a slash or cannot be in a URL, or folder is empty;
 *     BLIP_ERROR_FILE: folder is none, or cannot be read; blip_listener_error has the detail.
 *
 * Ownership: prefix and folder are borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_serve_files(
    blip_listener *listener, blip_slice prefix, blip_slice folder,
    blip_files_options *options);

/**
 * Shows browsers a page with what the listener's runtime does.
 *
 * Host and process, connections with their figures, messages under way, charts of the last minutes,
 * recent failures; a connection can be closed, and a request sent to the listener's own handlers.
 * The page asks by BLIP 3, at "socket" below the path, where only pages of this listener, and
 * programs, may connect. Everybody who can connect can see it: see to it that those are the right
 * ones. Once for a listener; for connections that are accepted from now on.
 *
 * @param listener The listener.
 * @param prefix Where the page is, as "/dashboard/".
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_TEXT; BLIP_ERROR_ARGUMENT:
 *     prefix does not begin with a slash or cannot be in a URL; BLIP_ERROR_STATE: it has one.
 *
 * Ownership: prefix is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_serve_dashboard(blip_listener *listener, blip_slice prefix);

/** @} */

/**
 * @defgroup modules Modules
 *
 * A module is a bundle that is registered as one: an observer, which is told what a connection
 * does; an interceptor, which may change or drop messages; handlers of profiles. Fill it in, then
 * register it with a connection, or with a listener, a runtime, a reconnector or a pool: it is
 * part of each of their connections then. Any number of modules may be registered, and one module
 * with any number of objects. Their order is that of registration, those of a runtime first, then
 * of a listener, reconnector or pool, then of the connection. The connection's own handlers go
 * before those of modules, and the default handler behind them.
 *
 * An observer is told the steps of a connection in the order of the constants below; where a
 * server redirects or asks who this side is, those up to BLIP_OBSERVE_AUTHENTICATED come again for
 * each try that needs them.
 *
 * What an interceptor drops is accounted for: a request of ours completes with
 * BLIP_ERROR_FILTERED; one of the peer's that wants a reply, and was not answered or deferred by
 * the interceptor, is answered with the error BLIP/403; instead of a response of ours BLIP/403 is
 * sent; and without a response of the peer's our request completes with BLIP_ERROR_FILTERED. While
 * interceptors look at what is sent, the program must not read properties or body of a message it
 * has sent before that has completed or was sent. A request that a reconnector carries from one
 * connection to the next is seen once.
 *
 * @{
 */

/**
 * What an observer is told: an outgoing connection begins: its name is looked up next.
 * Since 1.0.
 */
#define BLIP_OBSERVE_WILL_CONNECT 0x0001u

/** What an observer is told: the socket is connected, or was accepted. Since 1.0. */
#define BLIP_OBSERVE_CONNECTED 0x0002u

/**
 * What an observer is told: the TLS handshake begins; without a queue, it may still change
 * blip_connection_set_tls_server_name. Since 1.0.
 */
#define BLIP_OBSERVE_WILL_SECURE 0x0004u

/** What an observer is told: the TLS handshake is done. Since 1.0. */
#define BLIP_OBSERVE_SECURED 0x0008u

/**
 * What an observer is told: the HTTP request that opens the connection goes out, or has come;
 * with it whoever has to says who he is. Since 1.0.
 */
#define BLIP_OBSERVE_WILL_AUTHENTICATE 0x0010u

/** What an observer is told: the server, or on the server the program, has agreed. Since 1.0. */
#define BLIP_OBSERVE_AUTHENTICATED 0x0020u

/** What an observer is told: messages come and go. Since 1.0. */
#define BLIP_OBSERVE_OPEN 0x0040u

/** What an observer is told: it took too long to open; status BLIP_ERROR_TIMEOUT. Since 1.0. */
#define BLIP_OBSERVE_CONNECT_TIMED_OUT 0x0080u

/**
 * What an observer is told: somebody wants it to end; status BLIP_OK: this side,
 * BLIP_ERROR_PEER_CLOSED: the peer, other: why. Since 1.0.
 */
#define BLIP_OBSERVE_WILL_CLOSE 0x0100u

/**
 * What an observer is told: the connection has ended, with the status of blip_close_fn; the last
 * that an observer is told of it. Since 1.0.
 */
#define BLIP_OBSERVE_CLOSED 0x0200u

/** What an observer is told: a message was handed to the operating system. Since 1.0. */
#define BLIP_OBSERVE_SENT 0x0400u

/**
 * What an observer is told: a message will not be sent, or not to its end; status: why.
 * Since 1.0.
 */
#define BLIP_OBSERVE_NOT_SENT 0x0800u

/**
 * What an observer is told: a request has come: whole, or for a streaming handler its
 * properties. Since 1.0.
 */
#define BLIP_OBSERVE_REQUEST 0x1000u

/**
 * What an observer is told: a response or error response has come, whole or its properties.
 * Since 1.0.
 */
#define BLIP_OBSERVE_RESPONSE 0x2000u

/** What an observer is told: an interceptor has dropped a message. Since 1.0. */
#define BLIP_OBSERVE_FILTERED 0x4000u

/** What an observer is told: everything, also what later versions add. Since 1.0. */
#define BLIP_OBSERVE_ALL 0xffffffffu

/** Interceptors: messages that this side sends. Since 1.0. */
#define BLIP_INTERCEPT_SEND 1u

/** Interceptors: messages that the peer has sent. Since 1.0. */
#define BLIP_INTERCEPT_RECEIVE 2u

/**
 * Makes a module that does nothing yet.
 *
 * @param name What the program calls it; may be empty.
 * @param module Receives the module.
 * @return BLIP_OK; BLIP_ERROR_ARGUMENT: module is NULL; BLIP_ERROR_TEXT; BLIP_ERROR_RESOURCES.
 *
 * Ownership: name is borrowed for the call. The module is the caller's: blip_module_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_module_new(blip_slice name, blip_module **module);

/**
 * Takes one more reference.
 *
 * @param module The module.
 * @return module, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_module_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_module *blip_module_retain(blip_module *module);

/**
 * Gives a reference back.
 *
 * A module that is registered stays so. Its contexts are released when nothing refers to it and no
 * call is under way.
 *
 * @param module The module.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_module_release(blip_module *module);

/**
 * Gives the name of a module.
 *
 * @param module The module.
 * @param name Receives the name.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: name is NULL.
 *
 * Ownership: name: it lies in the module: valid while the module lives.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_module_name(blip_module *module, blip_slice *name);

/**
 * Sets what a module observes, and who is told.
 *
 * Before the module is registered. Without a queue fn runs on the loop threads, also of connections
 * that have a queue. With one, each thing becomes an event (BLIP_EVENT_OBSERVED) in this queue,
 * which runs fn where it is dispatched.
 *
 * @param module The module.
 * @param what BLIP_OBSERVE_OPEN and so on, put together; unknown ones are never told.
 * @param queue The queue; NULL: none.
 * @param fn The function; may be NULL with a queue that is read by blip_queue_next.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fn and queue are
 *     NULL; BLIP_ERROR_STATE: it is registered already.
 *
 * Ownership: the module keeps the queue alive. context is lent until release_context is called,
 * which happens at once if the call fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_module_set_observer(
    blip_module *module, uint32_t what, blip_queue *queue, blip_observe_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who may change or drop messages.
 *
 * Before the module is registered.
 *
 * @param module The module.
 * @param which BLIP_INTERCEPT_SEND, BLIP_INTERCEPT_RECEIVE, or both.
 * @param fn The function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: fn is NULL, or which
 *     is none of these; BLIP_ERROR_STATE: it is registered already.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_module_set_interceptor(
    blip_module *module, uint32_t which, blip_intercept_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who handles requests of a profile that the connection has no own handler for.
 *
 * Before the module is registered. Of several modules the first one that has a handler counts. It
 * runs where the handlers of the connection do.
 *
 * @param module The module.
 * @param profile The text of the property Profile that is to be handled.
 * @param flags 0 or BLIP_HANDLER_STREAM.
 * @param fn The function; may be NULL for connections with a queue that is read by
 *     blip_queue_next.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: an unknown flag;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_STATE: it is registered already.
 *
 * Ownership: profile is borrowed for the call. context is lent until release_context is called,
 * which happens at once if the call fails.
 * Threads: [object] [callback]. Since 1.0.
 */
blip_status blip_module_set_handler(
    blip_module *module, blip_slice profile, uint32_t flags, blip_request_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Registers a module with a connection.
 *
 * It is told what happens from now on.
 *
 * @param connection The connection.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is registered there
 *     already; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: the connection keeps the module alive until it is removed or everything has ended.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_add_module(blip_connection *connection, blip_module *module);

/**
 * Takes a module off a connection.
 *
 * No call of it begins once this has returned, except that another thread may just be about to make
 * one: when the module's release functions have run, none is under way. May be called inside its
 * callbacks. A module that a listener or runtime has registered is taken off this connection alone.
 *
 * @param connection The connection.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_NOT_FOUND: it is not registered
 *     there; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Ownership: the connection lets go of the module.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_remove_module(blip_connection *connection, blip_module *module);

/**
 * Gives a module that is registered with a connection, by its place.
 *
 * With those of its listener and runtime.
 *
 * @param connection The connection.
 * @param index The place, from 0.
 * @param module Receives the module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: module is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below their number.
 *
 * Ownership: the module is the caller's: blip_module_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_module_at(
    blip_connection *connection, size_t index, blip_module **module);

/**
 * Registers a module with all connections of a listener.
 *
 * Those that exist are included.
 *
 * @param listener The listener.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is registered there
 *     already.
 *
 * Ownership: the listener keeps the module alive until it is removed or everything has ended.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_add_module(blip_listener *listener, blip_module *module);

/**
 * Takes a module off all connections of a listener.
 *
 * No call of it begins once this has returned, except that another thread may just be about to make
 * one: when the module's release functions have run, none is under way. May be called inside its
 * callbacks.
 *
 * @param listener The listener.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_NOT_FOUND: it is not registered
 *     there.
 *
 * Ownership: the listener lets go of the module.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_remove_module(blip_listener *listener, blip_module *module);

/**
 * Gives a module that is registered with all connections of a listener, by its place.
 *
 * @param listener The listener.
 * @param index The place, from 0.
 * @param module Receives the module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: module is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below their number.
 *
 * Ownership: the module is the caller's: blip_module_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_module_at(
    blip_listener *listener, size_t index, blip_module **module);

/**
 * Registers a module with all connections of a runtime.
 *
 * Those that exist are included, outgoing and accepted ones.
 *
 * @param runtime The runtime.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is registered there
 *     already; BLIP_ERROR_STOPPED: the runtime was stopped.
 *
 * Ownership: the runtime keeps the module alive until it is removed or everything has ended.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_add_module(blip_runtime *runtime, blip_module *module);

/**
 * Takes a module off all connections of a runtime.
 *
 * No call of it begins once this has returned, except that another thread may just be about to make
 * one: when the module's release functions have run, none is under way. May be called inside its
 * callbacks.
 *
 * @param runtime The runtime.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_NOT_FOUND: it is not registered
 *     there.
 *
 * Ownership: the runtime lets go of the module.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_remove_module(blip_runtime *runtime, blip_module *module);

/**
 * Gives a module that is registered with all connections of a runtime, by its place.
 *
 * @param runtime The runtime.
 * @param index The place, from 0.
 * @param module Receives the module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: module is NULL;
 *     BLIP_ERROR_NOT_FOUND: index is not below their number.
 *
 * Ownership: the module is the caller's: blip_module_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_runtime_module_at(
    blip_runtime *runtime, size_t index, blip_module **module);

/** @} */

/**
 * @defgroup reconnectors Reconnectors
 *
 * A connection has one life; a reconnector makes another whenever one has ended, whoever ended it.
 * Register modules with it for handlers, observers and interceptors: each connection begins with
 * them. Send through it, or through the connection of the moment. Between two tries it waits for a
 * random part (full jitter) of a time that grows with each failure in a row; after a connection
 * that was open for long enough it begins anew. What another try cannot make better ends it: a
 * certificate that is not trusted, files that cannot be used, a subprotocol that was not agreed
 * on, an HTTP status from 300 to 499 but 408, 425 and 429, a close of the peer with 1002, 1003 or
 * 1007 to 1010.
 *
 * @{
 */

/** State of a reconnector: not started. Since 1.0. */
#define BLIP_RECONNECTOR_NEW 0

/** State of a reconnector: a connection is being opened. Since 1.0. */
#define BLIP_RECONNECTOR_CONNECTING 1

/** State of a reconnector: its connection is open. Since 1.0. */
#define BLIP_RECONNECTOR_OPEN 2

/** State of a reconnector: a try has failed or a connection has ended; it waits. Since 1.0. */
#define BLIP_RECONNECTOR_WAITING 3

/** State of a reconnector: it was stopped, or has given up; the last one. Since 1.0. */
#define BLIP_RECONNECTOR_STOPPED 4

/**
 * Makes a reconnector; it does not connect yet.
 *
 * All of its connections live on one loop.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param url The URL, as for blip_connection_new.
 * @param options Options of each connection, copied; NULL: the defaults.
 * @param reconnector Receives the reconnector.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: reconnector is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_URL; BLIP_ERROR_STOPPED: the runtime was stopped;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call. The reconnector is the caller's:
 * blip_reconnector_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_new(
    blip_runtime *runtime, blip_slice url, blip_connection_options *options,
    blip_reconnector **reconnector);

/**
 * Takes one more reference.
 *
 * @param reconnector The reconnector.
 * @return reconnector, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_reconnector_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_reconnector *blip_reconnector_retain(blip_reconnector *reconnector);

/**
 * Gives a reference back; the last one stops it.
 *
 * As blip_reconnector_stop with 0; callbacks and completions still come.
 *
 * @param reconnector The reconnector.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_reconnector_release(blip_reconnector *reconnector);

/**
 * Sets how long it waits between tries.
 *
 * Defaults 500, 30,000 and 200. Before try n+1 it waits for a random time up to initial *
 * (growth / 100)^(n - 1), at most maximum.
 *
 * @param reconnector The reconnector.
 * @param initial The longest wait behind the first failure, in milliseconds.
 * @param maximum The longest of all, in milliseconds.
 * @param growth Hundredths by which it grows: 200 doubles it; 100 to 1000.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a negative time,
 *     maximum below initial, or growth out of its range; BLIP_ERROR_STATE: it was started.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_backoff(
    blip_reconnector *reconnector, int64_t initial, int64_t maximum, uint32_t growth);

/**
 * Sets how many tries in a row may fail before it gives up.
 *
 * Default 0.
 *
 * @param reconnector The reconnector.
 * @param attempts The number; 0: any number.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was started.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_attempts(blip_reconnector *reconnector, uint32_t attempts);

/**
 * Sets how long a connection has to be open for the count of failures to begin anew.
 *
 * Default 10,000.
 *
 * @param reconnector The reconnector.
 * @param milliseconds The time in milliseconds; -1: the count never begins anew.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1;
 *     BLIP_ERROR_STATE: it was started.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_stable_time(
    blip_reconnector *reconnector, int64_t milliseconds);

/**
 * Sets whether requests of which nothing was sent are carried over to the next connection.
 *
 * Default false: they complete with what ended their connection, and while it waits none are
 * accepted. With true, requests are accepted at any time and wait for an open connection, for as
 * long as their own timeouts allow. A request of which a part has left is never sent again, because
 * the peer may have handled it: it completes with what ended its connection.
 *
 * @param reconnector The reconnector.
 * @param carry_over Whether to.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was started.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_carry_over(blip_reconnector *reconnector, bool carry_over);

/**
 * Sets whether it goes on trying after failures that cannot get better by themselves.
 *
 * Default false. Useful where somebody may mend the server meanwhile.
 *
 * @param reconnector The reconnector.
 * @param persistent Whether to.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was started.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_persistent(blip_reconnector *reconnector, bool persistent);

/**
 * Sets who is told of changes of the state.
 *
 * Takes the place of the one before. With a queue of the options or the runtime it becomes an
 * event.
 *
 * @param reconnector The reconnector.
 * @param fn The function; NULL: none, or with a queue an event without function.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: it has stopped.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_set_state_callback(
    blip_reconnector *reconnector, blip_reconnector_state_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Registers a module with the connection of the moment and all later ones.
 *
 * @param reconnector The reconnector.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is registered there
 *     already; BLIP_ERROR_CLOSED: it has stopped.
 *
 * Ownership: the reconnector keeps the module alive until it is removed or the end.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_add_module(blip_reconnector *reconnector, blip_module *module);

/**
 * Takes a module off, as blip_connection_remove_module does.
 *
 * @param reconnector The reconnector.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_NOT_FOUND: it is not registered
 *     there.
 *
 * Ownership: the reconnector lets go of the module.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_remove_module(
    blip_reconnector *reconnector, blip_module *module);

/**
 * Begins to connect.
 *
 * @param reconnector The reconnector.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it was started before;
 *     BLIP_ERROR_CLOSED: it has stopped; BLIP_ERROR_STOPPED: the runtime was stopped.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_start(blip_reconnector *reconnector);

/**
 * Ends for ever; BLIP_RECONNECTOR_STOPPED follows once the connection has ended.
 *
 * Requests that wait complete with BLIP_ERROR_CLOSED. Does not wait itself.
 *
 * @param reconnector The reconnector.
 * @param timeout How long an open connection may take to finish what is under way, in milliseconds,
 *     as blip_connection_close_gracefully; 0: not at all; -1: as long as it takes.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_stop(blip_reconnector *reconnector, int64_t timeout);

/**
 * Tries now if it waits, and counts failures anew.
 *
 * For programs that are told when the network is back. Otherwise nothing changes.
 *
 * @param reconnector The reconnector.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: it has stopped.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_wake(blip_reconnector *reconnector);

/**
 * Waits until a connection is open; starts if that was not done.
 *
 * @param reconnector The reconnector.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_TIMEOUT; BLIP_ERROR_WOULD_DEADLOCK; BLIP_ERROR_CLOSED: it was stopped;
 *     BLIP_ERROR_STOPPED; or why it has given up, as blip_connection_wait_open lists.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_reconnector_wait_open(blip_reconnector *reconnector, int64_t timeout);

/**
 * Waits until the reconnector has stopped, by blip_reconnector_stop or by itself.
 *
 * With callbacks, the last one has run then; with a queue, its event is in the queue.
 *
 * @param reconnector The reconnector.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1;
 *     BLIP_ERROR_TIMEOUT; BLIP_ERROR_WOULD_DEADLOCK.
 *
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_reconnector_wait_stopped(blip_reconnector *reconnector, int64_t timeout);

/**
 * Gives the state.
 *
 * @param reconnector The reconnector.
 * @param state Receives BLIP_RECONNECTOR_NEW and so on.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: state is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_state(blip_reconnector *reconnector, int32_t *state);

/**
 * Gives the time until the next try.
 *
 * @param reconnector The reconnector.
 * @param milliseconds Receives the time in milliseconds.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: milliseconds is NULL;
 *     BLIP_ERROR_NOT_FOUND: none is due.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_delay(blip_reconnector *reconnector, int64_t *milliseconds);

/**
 * Gives why the last connection has ended or could not open.
 *
 * @param reconnector The reconnector.
 * @param error Receives the error.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: error is NULL;
 *     BLIP_ERROR_NOT_FOUND: nothing went wrong, or not yet.
 *
 * Ownership: the error is the caller's: blip_error_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_error(blip_reconnector *reconnector, blip_error **error);

/**
 * Gives the connection of the moment, which may be connecting, open or closing.
 *
 * @param reconnector The reconnector.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_NOT_FOUND: there is none now.
 *
 * Ownership: the connection is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_connection(
    blip_reconnector *reconnector, blip_connection **connection);

/**
 * Sends a request; fn tells how it ends, exactly once.
 *
 * As blip_connection_send. The connection that fn is given may have ended, and is NULL if the
 * request was never on one.
 *
 * @param reconnector The reconnector.
 * @param request A request made by blip_request_new or blip_message_copy.
 * @param fn Told the end; NULL: nobody is.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: not a request of this
 *     side; BLIP_ERROR_CLOSED: it has stopped; BLIP_ERROR_STATE: it waits, and does not carry over;
 *     BLIP_ERROR_IMMUTABLE: it was sent before; BLIP_ERROR_LIMIT.
 *
 * Ownership: the library keeps what it needs of request; the handle stays the caller's. context is
 * lent until release_context is called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_reconnector_send(
    blip_reconnector *reconnector, blip_message *request, blip_response_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sends a request and waits for its response.
 *
 * As blip_connection_request; does not start.
 *
 * @param reconnector The reconnector.
 * @param request A request made by blip_request_new or blip_message_copy.
 * @param timeout How long to wait at most, in milliseconds; -1: for ever; 0: not at all.
 * @param response Receives the response.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: timeout below -1; or
 *     not a request of this side; or response is NULL; BLIP_ERROR_CLOSED; BLIP_ERROR_STATE;
 *     BLIP_ERROR_IMMUTABLE; BLIP_ERROR_NO_REPLY; BLIP_ERROR_LIMIT; BLIP_ERROR_WOULD_DEADLOCK;
 *     BLIP_ERROR_TIMEOUT; or what blip_response_fn lists.
 *
 * Ownership: request stays the caller's. response is the caller's: blip_message_release.
 * Threads: [any], waits. Since 1.0.
 */
blip_status blip_reconnector_request(
    blip_reconnector *reconnector, blip_message *request, int64_t timeout,
    blip_message **response);

/** @} */

/**
 * @defgroup pools Pools
 *
 * A pool keeps one connection for each URL, so that parts of a program that talk to the same server
 * share one. URLs are the same if their normal forms are and the same user logs in.
 *
 * @{
 */

/**
 * Makes an empty pool.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param options Options of its connections, copied; NULL: the defaults.
 * @param pool Receives the pool.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: pool is NULL;
 *     BLIP_ERROR_STOPPED: the runtime was stopped; BLIP_ERROR_RESOURCES.
 *
 * Ownership: the pool is the caller's: blip_pool_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_new(
    blip_runtime *runtime, blip_connection_options *options, blip_pool **pool);

/**
 * Takes one more reference.
 *
 * @param pool The pool.
 * @return pool, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_pool_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_pool *blip_pool_retain(blip_pool *pool);

/**
 * Gives a reference back; the last one closes its connections with 1001.
 *
 * @param pool The pool.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_pool_release(blip_pool *pool);

/**
 * Registers a module with the connections that the pool makes from now on.
 *
 * @param pool The pool.
 * @param module The module.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it is registered there
 *     already.
 *
 * Ownership: the pool keeps the module alive.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_add_module(blip_pool *pool, blip_module *module);

/**
 * Sets when connections that nobody uses are closed.
 *
 * Closed with 1000 are those that were open for so long without a message, with nothing under way
 * and no reference but the pool's. Default 0.
 *
 * @param pool The pool.
 * @param milliseconds The time in milliseconds; 0 or -1: never.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: below -1.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_set_idle_timeout(blip_pool *pool, int64_t milliseconds);

/**
 * Gives the connection to a URL: the one that there is, or a new one that connects.
 *
 * One that is closing counts as gone. The pool keeps it until it ends.
 *
 * @param pool The pool.
 * @param url The URL, as for blip_connection_new.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_URL; BLIP_ERROR_STOPPED: the runtime was stopped;
 *     BLIP_ERROR_RESOURCES.
 *
 * Ownership: url is borrowed for the call. The connection is the caller's: blip_connection_release;
 * the pool's own reference keeps it open.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_connection(
    blip_pool *pool, blip_slice url, blip_connection **connection);

/**
 * Gives the connection to a URL if the pool has one.
 *
 * @param pool The pool.
 * @param url The URL.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_TEXT; BLIP_ERROR_URL; BLIP_ERROR_NOT_FOUND.
 *
 * Ownership: url is borrowed for the call. The connection is the caller's: blip_connection_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_existing_connection(
    blip_pool *pool, blip_slice url, blip_connection **connection);

/**
 * Gives the number of connections that are not closing.
 *
 * @param pool The pool.
 * @param count Receives the number.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: count is NULL.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_count(blip_pool *pool, size_t *count);

/**
 * Closes all connections, each as blip_connection_close does.
 *
 * The pool can be used again.
 *
 * @param pool The pool.
 * @param code The WebSocket code.
 * @param reason A text for the peer, at most 123 bytes; may be empty.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a code that may not
 *     be sent, or a reason above 123 bytes; BLIP_ERROR_TEXT.
 *
 * Ownership: reason is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_pool_close_all(blip_pool *pool, uint16_t code, blip_slice reason);

/** @} */

/**
 * @defgroup transports Transports of the program, and connections within the process
 *
 * A program can carry the frames of a connection itself: over a pipe, a serial line, a message bus.
 * It makes a transport, gives it to a connection, says when it is open, hands over each frame that
 * comes, and is given each frame that is to go. Frames are carried whole, in order, and none may be
 * lost. A pair needs no transport: its two connections are joined in memory.
 *
 * @{
 */

/**
 * Carries one frame to the peer.
 *
 * Called on the connection's loop thread, one frame after another, also if there is a queue. It
 * must not wait.
 *
 * @param transport The transport.
 * @param frame The frame: all of it has to arrive as one.
 * @param context What was given with the function.
 * @return BLIP_OK: taken; BLIP_AGAIN: not now, it is offered again after blip_transport_did_drain;
 *     negative: the transport has failed, and the connection ends with this status.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef blip_status (*blip_transport_send_fn)(
    blip_transport *transport, blip_slice frame, void *context);

/**
 * Tells that this side has ended the connection: nothing more is sent or taken.
 *
 * Called once, unless the program has said so itself by blip_transport_did_close. What was taken
 * before should still be carried to the peer, whose program then calls blip_transport_did_close.
 *
 * @param transport The transport.
 * @param code The WebSocket code: 1000, what blip_connection_close was given, 1002 for a peer that
 *     broke the protocol and so on; 1006: without a word.
 * @param reason A text for the peer, at most 123 bytes; may be empty.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_transport_close_fn)(
    blip_transport *transport, uint16_t code, blip_slice reason, void *context);

/**
 * Tells that frames are taken again after blip_transport_did_receive has said BLIP_AGAIN.
 *
 * @param transport The transport.
 * @param context What was given with the function.
 *
 * Ownership: what it is given is borrowed until it returns.
 * Threads: [callback]. Since 1.0.
 */
typedef void (*blip_transport_resume_fn)(blip_transport *transport, void *context);

/**
 * Makes a transport, for one connection.
 *
 * @param fn Carries frames to the peer.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @param transport Receives the transport.
 * @return BLIP_OK; BLIP_ERROR_ARGUMENT: fn or transport is NULL; BLIP_ERROR_RESOURCES.
 *
 * Ownership: transport is the caller's: blip_transport_release. context is lent until
 * release_context is called, which happens at once if the call fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_new(
    blip_transport_send_fn fn, void *context, void (*release_context)(void *),
    blip_transport **transport);

/**
 * Takes one more reference.
 *
 * @param transport The transport.
 * @return transport, or NULL if it is not good.
 *
 * Ownership: the reference is the caller's: blip_transport_release.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_transport *blip_transport_retain(blip_transport *transport);

/**
 * Gives a reference back.
 *
 * The connection goes on; call blip_transport_did_close before if nothing will come any more.
 *
 * @param transport The transport.
 *
 * Ownership: ends one of the caller's references; NULL and bad handles are ignored.
 * Threads: [any] [callback]. Since 1.0.
 */
void blip_transport_release(blip_transport *transport);

/**
 * Sets who is told that this side has ended the connection.
 *
 * @param transport The transport.
 * @param fn The function; NULL: nobody.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_set_close_callback(
    blip_transport *transport, blip_transport_close_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Sets who is told that frames are taken again.
 *
 * @param transport The transport.
 * @param fn The function; NULL: nobody.
 * @param context What fn is given as its last argument; may be NULL.
 * @param release_context Called exactly once with context, when fn will not be called any more; or
 *     NULL.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_CLOSED: the connection has
 *     ended.
 *
 * Ownership: context is lent until release_context is called, which happens at once if the call
 * fails.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_set_resume_callback(
    blip_transport *transport, blip_transport_resume_fn fn, void *context,
    void (*release_context)(void *));

/**
 * Makes a connection over a transport of the program's; it waits for blip_transport_did_open.
 *
 * It is in state BLIP_STATE_CONNECTING, for the connect timeout at most. Both sides must speak the
 * same version: nothing is negotiated. Who of them is the client makes no difference. There are no
 * pings; options of HTTP, TLS and subprotocols are not used.
 *
 * @param runtime The runtime; NULL: the shared one.
 * @param transport The transport, which no connection has had before.
 * @param subprotocol "BLIP_3", "BLIP" or "BLIP_1"; what blip_connection_subprotocol gives. After
 *     the first two may come a plus sign and the name of an application.
 * @param options Options, copied; NULL: the defaults.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL,
 *     or the subprotocol is not known; BLIP_ERROR_TEXT; BLIP_ERROR_STATE: the transport has or had
 *     a connection; BLIP_ERROR_STOPPED; BLIP_ERROR_RESOURCES.
 *
 * Ownership: connection is the caller's: blip_connection_release. The other arguments are borrowed
 * for the call; the connection keeps the transport.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_from_transport(
    blip_runtime *runtime, blip_transport *transport, blip_slice subprotocol,
    blip_connection_options *options, blip_connection **connection);

/**
 * Says that the transport carries frames now: the connection opens.
 *
 * @param transport The transport.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it has no connection, or
 *     was open before; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_did_open(blip_transport *transport);

/**
 * Hands over a frame that has come from the peer.
 *
 * It is copied, and received on the connection's loop thread. While the connection does not read,
 * because its queue is full, or if frames come faster than they are received, about 256 KiB wait;
 * then BLIP_AGAIN is the answer: keep the frame, and go on when the resume callback says so.
 *
 * @param transport The transport.
 * @param frame The frame, as the peer's program was given it.
 * @return BLIP_OK; BLIP_AGAIN: not taken; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED;
 *     BLIP_ERROR_ARGUMENT: a bad slice; BLIP_ERROR_STATE: not open yet; BLIP_ERROR_CLOSED: the
 *     connection has ended; BLIP_ERROR_LIMIT: 4 GiB or more.
 *
 * Ownership: frame is borrowed for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_did_receive(blip_transport *transport, blip_slice frame);

/**
 * Says that the transport takes frames again, after its function has said BLIP_AGAIN.
 *
 * @param transport The transport.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_STATE: it has no connection;
 *     BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_did_drain(blip_transport *transport);

/**
 * Says that the transport has ended; the connection ends when it has received what came before.
 *
 * @param transport The transport.
 * @param status BLIP_OK: the peer has closed in order; negative: what has happened, such as
 *     BLIP_ERROR_CONNECTION_LOST, which the connection ends with.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a positive status;
 *     BLIP_ERROR_STATE: it has no connection; BLIP_ERROR_CLOSED: the connection has ended.
 *
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_transport_did_close(blip_transport *transport, blip_status status);

/**
 * Makes two connections in this process that are joined in memory, open from the start.
 *
 * What one sends the other receives, by the same protocol as over a network: the first of the
 * options' subprotocols. Open callbacks do not come. There are no addresses and no pings. On one
 * loop (the same runtime with one thread) nothing is copied on the way.
 *
 * @param runtime_a The runtime of the first one; NULL: the shared one.
 * @param runtime_b The runtime of the second one; NULL: the shared one.
 * @param options Options of both, copied; NULL: the defaults, which cost no memory.
 * @param a Receives the first one.
 * @param b Receives the second one.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: a or b is NULL;
 *     BLIP_ERROR_STOPPED; BLIP_ERROR_RESOURCES.
 *
 * Ownership: a and b are the caller's: blip_connection_release. The other arguments are borrowed
 * for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_connection_pair(
    blip_runtime *runtime_a, blip_runtime *runtime_b, blip_connection_options *options,
    blip_connection **a, blip_connection **b);

/**
 * Makes a connection to a listener of this process, joined in memory, without a socket.
 *
 * To the listener it is one that it accepts, with its handlers and callbacks; there is no path,
 * address or TLS. The first of the options' subprotocols that the listener has is taken. The
 * connection opens when the listener's accept callback agrees; if it does not, it ends with
 * BLIP_ERROR_REFUSED.
 *
 * @param listener The listener, which must have been started.
 * @param runtime The runtime; NULL: the shared one.
 * @param options Options, copied; NULL: the defaults, which cost no memory.
 * @param connection Receives the connection.
 * @return BLIP_OK; BLIP_ERROR_HANDLE, BLIP_ERROR_FORKED; BLIP_ERROR_ARGUMENT: connection is NULL;
 *     BLIP_ERROR_STATE: the listener does not listen, or has all the connections that it may have;
 *     BLIP_ERROR_SUBPROTOCOL: no subprotocol in common; BLIP_ERROR_STOPPED; BLIP_ERROR_RESOURCES.
 *
 * Ownership: connection is the caller's: blip_connection_release. The other arguments are borrowed
 * for the call.
 * Threads: [any] [callback]. Since 1.0.
 */
blip_status blip_listener_connect(
    blip_listener *listener, blip_runtime *runtime, blip_connection_options *options,
    blip_connection **connection);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
