#ifndef BLIP_H
#define BLIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLIP_VERSION_MAJOR 1
#define BLIP_VERSION_MINOR 0
#define BLIP_VERSION_PATCH 0
#define BLIP_VERSION_NUMBER (BLIP_VERSION_MAJOR * 1000000 + BLIP_VERSION_MINOR * 1000 + BLIP_VERSION_PATCH)

/* ---- types ---- */
typedef int32_t blip_status;
typedef struct blip_slice { const void *data; size_t size; } blip_slice;

typedef struct blip_runtime_options blip_runtime_options;
typedef struct blip_runtime blip_runtime;
typedef struct blip_queue blip_queue;
typedef struct blip_event blip_event;
typedef struct blip_connection_options blip_connection_options;
typedef struct blip_connection blip_connection;
typedef struct blip_listener_options blip_listener_options;
typedef struct blip_listener blip_listener;
typedef struct blip_message blip_message;
typedef struct blip_error blip_error;

/* ---- statuses ---- */
#define BLIP_OK 0
/* misuse -1.. */
#define BLIP_ERROR_HANDLE (-1)            /* not a live handle of the right kind */
#define BLIP_ERROR_ARGUMENT (-2)          /* an argument is out of range or NULL where it may not be */
#define BLIP_ERROR_TEXT (-3)              /* text that is not UTF-8, or has an embedded NUL */
#define BLIP_ERROR_IMMUTABLE (-4)         /* the message was sent or received: it cannot be changed */
#define BLIP_ERROR_WOULD_DEADLOCK (-5)    /* a waiting call on a loop thread */
#define BLIP_ERROR_FORKED (-6)            /* the handle belongs to the parent process */
#define BLIP_ERROR_URL (-7)               /* the URL cannot be parsed or has an unknown scheme */
#define BLIP_ERROR_NOT_FOUND (-8)         /* no such property, header, event ... */
#define BLIP_ERROR_UNSUPPORTED (-9)
/* state -50.. */
#define BLIP_ERROR_STATE (-50)            /* not in this state of the object */
#define BLIP_ERROR_CLOSED (-51)           /* the connection is closing or closed by this side */
#define BLIP_ERROR_CANCELLED (-52)
#define BLIP_ERROR_TIMEOUT (-53)
#define BLIP_ERROR_NO_REPLY (-54)         /* the request says no-reply / cannot be responded to */
#define BLIP_ERROR_ALREADY_REPLIED (-55)
#define BLIP_ERROR_NOT_COMPLETE (-56)     /* the body has not arrived whole */
#define BLIP_ERROR_STOPPED (-57)          /* the runtime was stopped */
/* peer, protocol -100.. */
#define BLIP_ERROR_PROTOCOL (-100)        /* the peer broke BLIP */
#define BLIP_ERROR_WEBSOCKET (-101)       /* the peer broke WebSocket */
#define BLIP_ERROR_SUBPROTOCOL (-102)     /* subprotocol not agreed */
#define BLIP_ERROR_PEER_CLOSED (-103)     /* the peer closed the connection */
#define BLIP_ERROR_PROPERTIES (-104)      /* the message's properties are malformed */
#define BLIP_ERROR_BODY (-105)            /* the message's body cannot be decompressed, or its source failed */
/* network -200.. */
#define BLIP_ERROR_NETWORK (-200)
#define BLIP_ERROR_RESOLVE (-201)         /* host name lookup failed */
#define BLIP_ERROR_REFUSED (-202)
#define BLIP_ERROR_UNREACHABLE (-203)
#define BLIP_ERROR_CONNECTION_LOST (-204) /* reset, or ended without a close */
#define BLIP_ERROR_ADDRESS_IN_USE (-205)
#define BLIP_ERROR_PERMISSION (-206)
#define BLIP_ERROR_PEER_SILENT (-207)     /* no byte in spite of pings */
#define BLIP_ERROR_FILE (-208)            /* a file could not be read */
/* TLS -300.. */
#define BLIP_ERROR_TLS (-300)
#define BLIP_ERROR_CERTIFICATE (-301)     /* the peer's certificate is not trusted or is for another name */
#define BLIP_ERROR_TLS_SETUP (-302)       /* a certificate, key or CA file of ours cannot be used */
/* HTTP, authentication -400.. */
#define BLIP_ERROR_HTTP (-400)            /* malformed or unexpected HTTP */
#define BLIP_ERROR_HTTP_STATUS (-401)     /* the server answered the upgrade with another status; the error's code has it */
/* limits -500.. */
#define BLIP_ERROR_LIMIT (-500)           /* a size limit was exceeded */
#define BLIP_ERROR_RESOURCES (-501)       /* descriptors, threads or memory ran out */
/* internal -900.. */
#define BLIP_ERROR_INTERNAL (-900)

/* ---- library ---- */
uint32_t blip_version_number(void);
const char *blip_version_string(void);
const char *blip_status_name(blip_status status);      /* "BLIP_ERROR_TIMEOUT"; "BLIP_ERROR_UNKNOWN" for others */
const char *blip_status_message(blip_status status);
blip_slice blip_text(const char *text);                /* NUL-terminated -> slice; NULL -> empty */

/* ---- errors: domain, code, text; borrowed from what failed ---- */
blip_status blip_error_status(blip_error *error);      /* the status that fits */
blip_status blip_error_domain(blip_error *error, blip_slice *domain); /* "BLIP", "WebSocket", "HTTP", "POSIX", "TLS", "DNS", or the peer's */
blip_status blip_error_code(blip_error *error, int64_t *code);
blip_status blip_error_message(blip_error *error, blip_slice *message);
blip_error *blip_error_retain(blip_error *error);
void blip_error_release(blip_error *error);

/* ---- runtime ---- */
blip_runtime_options *blip_runtime_options_new(void);
void blip_runtime_options_release(blip_runtime_options *options);
blip_status blip_runtime_options_set_threads(blip_runtime_options *options, uint32_t threads); /* 0: the program calls run_once; default 1; at most 256 */
blip_status blip_runtime_options_set_queue(blip_runtime_options *options, blip_queue *queue);  /* default queue of its connections and listeners */

blip_status blip_runtime_new(blip_runtime_options *options, blip_runtime **runtime);
blip_runtime *blip_runtime_default(void);                          /* shared, one thread; borrowed */
blip_runtime *blip_runtime_retain(blip_runtime *runtime);
void blip_runtime_release(blip_runtime *runtime);                  /* last reference and no object left: threads end */
blip_status blip_runtime_thread_count(blip_runtime *runtime, uint32_t *count);
blip_status blip_runtime_fd(blip_runtime *runtime, int *fd);       /* threads == 0 only */
blip_status blip_runtime_run_once(blip_runtime *runtime, int64_t timeout, uint32_t *events);
blip_status blip_runtime_stop(blip_runtime *runtime, int64_t timeout); /* closes all, completes all, joins threads */

#define BLIP_LOG_ERROR 1
#define BLIP_LOG_WARNING 2
#define BLIP_LOG_INFO 3
#define BLIP_LOG_DEBUG 4
typedef void (*blip_log_fn)(int32_t level, blip_slice domain, blip_slice text, void *context); /* domain: "connection", "listener", "tls", ... ; called on any thread */
blip_status blip_runtime_set_log(blip_runtime *runtime, int32_t level, blip_log_fn fn, void *context, void (*release_context)(void *));

/* ---- queue ---- */
blip_status blip_queue_new(uint32_t capacity, blip_queue **queue); /* capacity 0: 4096 */
blip_queue *blip_queue_retain(blip_queue *queue);
void blip_queue_release(blip_queue *queue);
blip_status blip_queue_fd(blip_queue *queue, int *fd);             /* level-triggered readable while events wait */
blip_status blip_queue_dispatch(blip_queue *queue, size_t max, int64_t timeout, size_t *count);
blip_status blip_queue_next(blip_queue *queue, blip_event **events, size_t max, int64_t timeout, size_t *count); /* events are the caller's to release */
blip_status blip_queue_wake(blip_queue *queue);                    /* makes one waiting dispatch/next return now */
blip_status blip_queue_count(blip_queue *queue, size_t *count);

#define BLIP_EVENT_REQUEST 1            /* connection, message */
#define BLIP_EVENT_RESPONSE 2           /* connection, request, message (or none), status */
#define BLIP_EVENT_DATA 3               /* message: more of a streamed body can be read; status: see blip_data_fn */
#define BLIP_EVENT_SENT 4               /* message, status */
#define BLIP_EVENT_SEND_PROGRESS 5      /* message, value: bytes of the body handed to the network */
#define BLIP_EVENT_STATE 6              /* connection, value: state */
#define BLIP_EVENT_OPEN 7               /* connection */
#define BLIP_EVENT_CLOSE 8              /* connection, status */
#define BLIP_EVENT_PONG 9               /* connection, status, value: microseconds */
#define BLIP_EVENT_ACCEPT 10            /* listener, connection */
#define BLIP_EVENT_LISTENER_STOPPED 11  /* listener, status */
blip_status blip_event_kind(blip_event *event, int32_t *kind);
blip_status blip_event_status(blip_event *event);                  /* the event's own status; BLIP_ERROR_HANDLE for a bad handle */
blip_status blip_event_value(blip_event *event, int64_t *value);
blip_status blip_event_context(blip_event *event, void **context); /* the context given with the (possibly NULL) callback */
blip_connection *blip_event_connection(blip_event *event);         /* borrowed from the event, or NULL; likewise below */
blip_listener *blip_event_listener(blip_event *event);
blip_message *blip_event_message(blip_event *event);
blip_message *blip_event_request(blip_event *event);
void blip_event_release(blip_event *event);

/* ---- callbacks ---- */
/* A request has arrived (whole; or, for a streaming handler, its properties). A negative return answers ERR BLIP/501. */
typedef blip_status (*blip_request_fn)(blip_connection *connection, blip_message *request, void *context);
/* Exactly once. response is NULL unless status is BLIP_OK; it may be an error response. */
typedef void (*blip_response_fn)(blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context);
/* Streamed body bytes that have arrived and were not consumed; returns how many it consumes. status: BLIP_OK more follows; BLIP_DATA_END last; negative: lost, no more comes. */
#define BLIP_DATA_END 1
typedef size_t (*blip_data_fn)(blip_message *message, blip_slice data, blip_status status, void *context);
typedef void (*blip_sent_fn)(blip_message *message, blip_status status, void *context);  /* exactly once: last byte handed to the operating system, or never will be */
typedef void (*blip_progress_fn)(blip_message *message, uint64_t sent, void *context);
/* Fills buffer for a body that is pulled; returns BLIP_OK with *written > 0, BLIP_DATA_END with the last bytes, BLIP_AGAIN for "call blip_message_resume_body later", negative: failed. Loop thread always. */
#define BLIP_AGAIN 2
typedef blip_status (*blip_body_fn)(void *buffer, size_t capacity, size_t *written, void *context);
typedef void (*blip_open_fn)(blip_connection *connection, void *context);
typedef void (*blip_state_fn)(blip_connection *connection, int32_t state, void *context);
typedef void (*blip_close_fn)(blip_connection *connection, blip_status status, void *context); /* exactly once, last; BLIP_OK: closed as asked by either side with 1000/1001 */
typedef void (*blip_pong_fn)(blip_connection *connection, blip_status status, int64_t microseconds, void *context);
typedef void (*blip_accept_fn)(blip_listener *listener, blip_connection *connection, void *context); /* before any message: set handlers, user data; blip_connection_close refuses */
typedef void (*blip_stopped_fn)(blip_listener *listener, blip_status status, void *context);

/* ---- connection options ---- */
#define BLIP_TLS_1_2 0x0303
#define BLIP_TLS_1_3 0x0304
blip_connection_options *blip_connection_options_new(void);
void blip_connection_options_release(blip_connection_options *options);
blip_status blip_connection_options_add_protocol(blip_connection_options *options, blip_slice protocol);  /* "BLIP_3+CBMobile_3", "BLIP_3", "BLIP"; first preferred; none: BLIP_3 then BLIP */
blip_status blip_connection_options_set_queue(blip_connection_options *options, blip_queue *queue);
blip_status blip_connection_options_add_header(blip_connection_options *options, blip_slice name, blip_slice value);
blip_status blip_connection_options_set_user_agent(blip_connection_options *options, blip_slice text);
blip_status blip_connection_options_set_connect_timeout(blip_connection_options *options, int64_t milliseconds);  /* lookup + connect + TLS + upgrade; 15 s */
blip_status blip_connection_options_set_close_timeout(blip_connection_options *options, int64_t milliseconds);    /* 5 s */
blip_status blip_connection_options_set_ping(blip_connection_options *options, int64_t interval, uint32_t missed);/* 300000, 2; 0 off */
blip_status blip_connection_options_set_frame_size(blip_connection_options *options, uint32_t bytes);             /* outgoing, 16384 */
blip_status blip_connection_options_set_compression_level(blip_connection_options *options, int32_t level);       /* 0..9, 6; 0: never compress */
#define BLIP_LIMIT_INCOMING_FRAME 1
#define BLIP_LIMIT_PROPERTIES 2
#define BLIP_LIMIT_MESSAGE 3
#define BLIP_LIMIT_UNFINISHED_MESSAGES 4
#define BLIP_LIMIT_UNFINISHED_BYTES 5
#define BLIP_LIMIT_HTTP_HEAD 6
blip_status blip_connection_options_set_limit(blip_connection_options *options, int32_t limit, uint64_t value);
blip_status blip_connection_options_set_tls_ca_file(blip_connection_options *options, blip_slice path);  /* instead of the system's store */
blip_status blip_connection_options_set_tls_verify(blip_connection_options *options, bool verify);       /* default true */
blip_status blip_connection_options_set_tls_identity(blip_connection_options *options, blip_slice certificate_path, blip_slice key_path); /* PEM chain, PEM key */
blip_status blip_connection_options_set_tls_server_name(blip_connection_options *options, blip_slice name);
blip_status blip_connection_options_set_tls_versions(blip_connection_options *options, int32_t minimum, int32_t maximum); /* 0: library default */

/* ---- connection ---- */
#define BLIP_STATE_NEW 0
#define BLIP_STATE_CONNECTING 1
#define BLIP_STATE_OPEN 2
#define BLIP_STATE_CLOSING 3
#define BLIP_STATE_CLOSED 4
blip_status blip_connection_new(blip_runtime *runtime, blip_slice url, blip_connection_options *options, blip_connection **connection); /* ws, wss, ws+unix, wss+unix */
blip_connection *blip_connection_retain(blip_connection *connection);
void blip_connection_release(blip_connection *connection);  /* the last one closes with 1001 if it is open */
#define BLIP_HANDLER_STREAM 1u  /* called when the properties are there; the body is streamed */
blip_status blip_connection_set_handler(blip_connection *connection, blip_slice profile, uint32_t flags, blip_request_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_remove_handler(blip_connection *connection, blip_slice profile);
blip_status blip_connection_set_default_handler(blip_connection *connection, uint32_t flags, blip_request_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_set_open_callback(blip_connection *connection, blip_open_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_set_close_callback(blip_connection *connection, blip_close_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_set_state_callback(blip_connection *connection, blip_state_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_connect(blip_connection *connection);
blip_status blip_connection_wait_open(blip_connection *connection, int64_t timeout);   /* connects if need be; status says why it failed */
blip_status blip_connection_close(blip_connection *connection, uint16_t code, blip_slice reason); /* pending requests complete with BLIP_ERROR_CLOSED */
blip_status blip_connection_close_gracefully(blip_connection *connection, int64_t timeout);  /* no new requests; finishes what is under way, both ways */
blip_status blip_connection_wait_closed(blip_connection *connection, int64_t timeout);
blip_status blip_connection_state(blip_connection *connection, int32_t *state);
blip_status blip_connection_is_active(blip_connection *connection, bool *active);       /* messages under way either way */
blip_status blip_connection_url(blip_connection *connection, blip_slice *url);
blip_status blip_connection_error(blip_connection *connection, blip_error **error);     /* borrowed; BLIP_ERROR_NOT_FOUND if none */
blip_status blip_connection_close_code(blip_connection *connection, int32_t *code);     /* WebSocket code received, else sent, else 0 */
blip_status blip_connection_protocol_version(blip_connection *connection, int32_t *version); /* 1, 2, 3; 0 before open */
blip_status blip_connection_protocol(blip_connection *connection, blip_slice *subprotocol);
blip_status blip_connection_is_incoming(blip_connection *connection, bool *incoming);
blip_status blip_connection_local_address(blip_connection *connection, blip_slice *address);  /* "127.0.0.1:4984", "[::1]:80", "unix:/path" */
blip_status blip_connection_remote_address(blip_connection *connection, blip_slice *address);
blip_status blip_connection_is_secure(blip_connection *connection, bool *secure);
blip_status blip_connection_tls_version(blip_connection *connection, blip_slice *version);    /* "TLSv1.3" */
blip_status blip_connection_tls_cipher(blip_connection *connection, blip_slice *cipher);
blip_status blip_connection_peer_certificate(blip_connection *connection, blip_slice *der);
blip_status blip_connection_request_path(blip_connection *connection, blip_slice *path);      /* with query */
blip_status blip_connection_http_header(blip_connection *connection, blip_slice name, blip_slice *value); /* of the peer's HTTP head */
blip_status blip_connection_set_user_data(blip_connection *connection, void *data, void (*release_data)(void *));
blip_status blip_connection_user_data(blip_connection *connection, void **data);
blip_status blip_connection_backlog(blip_connection *connection, uint64_t *bytes);            /* bytes accepted and not yet handed to the operating system */
blip_status blip_connection_ping(blip_connection *connection, int64_t timeout, blip_pong_fn fn, void *context, void (*release_context)(void *));

#define BLIP_COUNTER_MESSAGES_SENT 1
#define BLIP_COUNTER_MESSAGES_RECEIVED 2
#define BLIP_COUNTER_FRAMES_SENT 3
#define BLIP_COUNTER_FRAMES_RECEIVED 4
#define BLIP_COUNTER_BYTES_SENT 5        /* on the socket, before TLS */
#define BLIP_COUNTER_BYTES_RECEIVED 6
#define BLIP_COUNTER_REQUESTS_PENDING 7  /* ours, waiting for a response */
#define BLIP_COUNTER_REQUESTS_UNANSWERED 8 /* the peer's, not yet responded to */
#define BLIP_COUNTER_MESSAGES_QUEUED 9
blip_status blip_connection_counters(blip_connection *connection, const int32_t *which, uint64_t *values, size_t count);

/* ---- sending ---- */
blip_status blip_connection_send(blip_connection *connection, blip_message *request, blip_response_fn fn, void *context, void (*release_context)(void *));
blip_status blip_connection_request(blip_connection *connection, blip_message *request, int64_t timeout, blip_message **response); /* waits; response is the caller's */

/* ---- messages ---- */
blip_status blip_request_new(blip_slice profile, blip_message **request);  /* profile may be empty */
blip_message *blip_message_retain(blip_message *message);
void blip_message_release(blip_message *message);
#define BLIP_MESSAGE_REQUEST 0
#define BLIP_MESSAGE_RESPONSE 1
#define BLIP_MESSAGE_ERROR 2
blip_status blip_message_type(blip_message *message, int32_t *type);
blip_status blip_message_number(blip_message *message, uint64_t *number);  /* 0 before it is on its way */
blip_status blip_message_is_mine(blip_message *message, bool *mine);
blip_status blip_message_is_mutable(blip_message *message, bool *is_mutable);
blip_status blip_message_is_complete(blip_message *message, bool *complete);
blip_status blip_message_is_sent(blip_message *message, bool *sent);
blip_status blip_message_connection(blip_message *message, blip_connection **connection); /* retained: the caller's to release; BLIP_ERROR_NOT_FOUND if none */

#define BLIP_FLAG_COMPRESSED 0x08u
#define BLIP_FLAG_URGENT 0x10u
#define BLIP_FLAG_NO_REPLY 0x20u
blip_status blip_message_flags(blip_message *message, uint32_t *flags);
blip_status blip_message_set_flags(blip_message *message, uint32_t flags);          /* all three at once */
blip_status blip_message_set_compressed(blip_message *message, bool compressed);
blip_status blip_message_set_urgent(blip_message *message, bool urgent);
blip_status blip_message_set_no_reply(blip_message *message, bool no_reply);

blip_status blip_message_profile(blip_message *message, blip_slice *profile);       /* empty if none */
blip_status blip_message_set_profile(blip_message *message, blip_slice profile);
blip_status blip_message_content_type(blip_message *message, blip_slice *type);
blip_status blip_message_set_content_type(blip_message *message, blip_slice type);
blip_status blip_message_property(blip_message *message, blip_slice key, blip_slice *value); /* BLIP_ERROR_NOT_FOUND */
blip_status blip_message_set_property(blip_message *message, blip_slice key, blip_slice value);
blip_status blip_message_remove_property(blip_message *message, blip_slice key);
blip_status blip_message_property_count(blip_message *message, size_t *count);
blip_status blip_message_property_at(blip_message *message, size_t index, blip_slice *key, blip_slice *value);
blip_status blip_message_properties(blip_message *message, blip_slice *encoded);    /* key NUL value NUL ..., full texts */
blip_status blip_message_set_properties(blip_message *message, blip_slice encoded);

blip_status blip_message_set_body(blip_message *message, blip_slice body);          /* copies */
blip_status blip_message_append_body(blip_message *message, blip_slice bytes);      /* copies; after set_body_* too: parts are sent in order */
blip_status blip_message_append_body_borrowed(blip_message *message, blip_slice bytes, void (*release)(void *context), void *context); /* not copied; release runs exactly once */
blip_status blip_message_append_body_file(blip_message *message, int fd, uint64_t offset, uint64_t length, bool close_fd); /* length UINT64_MAX: to the end; regular files */
blip_status blip_message_append_body_stream(blip_message *message, blip_body_fn fn, void *context, void (*release_context)(void *));
blip_status blip_message_resume_body(blip_message *message);                        /* after BLIP_AGAIN */
blip_status blip_message_set_text(blip_message *message, blip_slice text);          /* + Content-Type text/plain; charset=UTF-8 */
blip_status blip_message_set_json(blip_message *message, blip_slice json);          /* + Content-Type application/json; compressed above 100 bytes */

blip_status blip_message_body(blip_message *message, blip_slice *body);             /* whole body held in memory; BLIP_ERROR_NOT_COMPLETE; streamed: what was left unread */
blip_status blip_message_body_size(blip_message *message, uint64_t *size);          /* received so far, or to be sent as far as known */
blip_status blip_message_set_streamed(blip_message *request, bool streamed);        /* its response is delivered at its properties, body by data callback or read */
blip_status blip_message_set_data_callback(blip_message *message, blip_data_fn fn, void *context, void (*release_context)(void *));
blip_status blip_message_read(blip_message *message, void *buffer, size_t capacity, size_t *size); /* takes bytes of a streamed body: BLIP_OK, BLIP_AGAIN none now, BLIP_DATA_END */
blip_status blip_message_read_wait(blip_message *message, void *buffer, size_t capacity, int64_t timeout, size_t *size); /* the same, waiting */
blip_status blip_message_set_sent_callback(blip_message *message, blip_sent_fn fn, void *context, void (*release_context)(void *));
blip_status blip_message_set_progress_callback(blip_message *message, blip_progress_fn fn, void *context, void (*release_context)(void *));
blip_status blip_message_bytes_sent(blip_message *message, uint64_t *bytes);
blip_status blip_message_wait_sent(blip_message *message, int64_t timeout);
blip_status blip_message_set_timeout(blip_message *request, int64_t milliseconds);  /* from acceptance to complete response */
blip_status blip_message_cancel(blip_message *request);                             /* completes now with BLIP_ERROR_CANCELLED */
blip_status blip_message_set_user_data(blip_message *message, void *data, void (*release_data)(void *));
blip_status blip_message_user_data(blip_message *message, void **data);
blip_status blip_message_describe(blip_message *message, bool properties, blip_slice *text);
blip_status blip_message_copy(blip_message *message, blip_message **request);       /* a new mutable request: properties, flags, body */

/* ---- responding ---- */
blip_status blip_response_new(blip_message *request, blip_message **response);      /* inherits urgent */
blip_status blip_message_respond(blip_message *request, blip_message *response);
blip_status blip_message_respond_data(blip_message *request, blip_slice body, blip_slice content_type);
blip_status blip_message_respond_text(blip_message *request, blip_slice text);
blip_status blip_message_respond_json(blip_message *request, blip_slice json);
blip_status blip_message_respond_empty(blip_message *request);
blip_status blip_message_respond_error(blip_message *request, blip_slice domain, int32_t code, blip_slice text); /* domain empty: BLIP */
blip_status blip_message_defer(blip_message *request);                              /* answered later; dropping the last handle answers 501 */
blip_status blip_message_is_replied(blip_message *request, bool *replied);
blip_status blip_message_error(blip_message *response, blip_error **error);         /* of an error response; borrowed */

/* ---- listener ---- */
blip_listener_options *blip_listener_options_new(void);
void blip_listener_options_release(blip_listener_options *options);
blip_status blip_listener_options_add_protocol(blip_listener_options *options, blip_slice protocol);   /* none: BLIP_3 and BLIP */
blip_status blip_listener_options_add_path(blip_listener_options *options, blip_slice path);           /* none: any path */
blip_status blip_listener_options_set_queue(blip_listener_options *options, blip_queue *queue);
blip_status blip_listener_options_set_tls_identity(blip_listener_options *options, blip_slice certificate_path, blip_slice key_path);
blip_status blip_listener_options_set_tls_client_ca_file(blip_listener_options *options, blip_slice path, bool required);
blip_status blip_listener_options_set_tls_versions(blip_listener_options *options, int32_t minimum, int32_t maximum);
blip_status blip_listener_options_set_handshake_timeout(blip_listener_options *options, int64_t milliseconds);
blip_status blip_listener_options_set_close_timeout(blip_listener_options *options, int64_t milliseconds);
blip_status blip_listener_options_set_ping(blip_listener_options *options, int64_t interval, uint32_t missed);
blip_status blip_listener_options_set_frame_size(blip_listener_options *options, uint32_t bytes);
blip_status blip_listener_options_set_compression_level(blip_listener_options *options, int32_t level);
blip_status blip_listener_options_set_limit(blip_listener_options *options, int32_t limit, uint64_t value);
blip_status blip_listener_options_set_max_connections(blip_listener_options *options, uint32_t count);  /* 0: no limit but descriptors */

blip_status blip_listener_new(blip_runtime *runtime, blip_listener_options *options, blip_listener **listener);
blip_listener *blip_listener_retain(blip_listener *listener);
void blip_listener_release(blip_listener *listener);  /* the last one stops it */
blip_status blip_listener_set_handler(blip_listener *listener, blip_slice profile, uint32_t flags, blip_request_fn fn, void *context, void (*release_context)(void *)); /* for its connections */
blip_status blip_listener_set_default_handler(blip_listener *listener, uint32_t flags, blip_request_fn fn, void *context, void (*release_context)(void *));
blip_status blip_listener_set_accept_callback(blip_listener *listener, blip_accept_fn fn, void *context, void (*release_context)(void *));
blip_status blip_listener_set_open_callback(blip_listener *listener, blip_open_fn fn, void *context, void (*release_context)(void *));
blip_status blip_listener_set_close_callback(blip_listener *listener, blip_close_fn fn, void *context, void (*release_context)(void *));
blip_status blip_listener_set_stopped_callback(blip_listener *listener, blip_stopped_fn fn, void *context, void (*release_context)(void *));
blip_status blip_listener_start(blip_listener *listener, blip_slice interface_address, uint16_t port);  /* "" all, "127.0.0.1", "::1", "localhost"; port 0: any free */
blip_status blip_listener_start_unix(blip_listener *listener, blip_slice path);
blip_status blip_listener_port(blip_listener *listener, uint16_t *port);
blip_status blip_listener_url(blip_listener *listener, blip_slice *url);                    /* one that a local client can use */
blip_status blip_listener_connection_count(blip_listener *listener, size_t *count);
blip_status blip_listener_stop(blip_listener *listener, bool graceful, int64_t timeout);    /* not waiting; its connections close, gracefully or with 1001 */
blip_status blip_listener_wait_stopped(blip_listener *listener, int64_t timeout);
blip_status blip_listener_error(blip_listener *listener, blip_error **error);

#ifdef __cplusplus
}
#endif

#endif
