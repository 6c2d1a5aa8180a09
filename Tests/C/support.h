/* What most tests need: counters to wait for, a server and a client, plain requests. */

#ifndef SUPPORT_H
#define SUPPORT_H

#include "test.h"

#include <blip.h>

#include <pthread.h>
#include <stdatomic.h>

/* How long to wait for what must happen (it is never waited out in a run that passes). */
enum { SOON = 8000 };

int64_t now_ms(void);
void sleep_ms(int64_t milliseconds);

/* A literal or NUL-terminated text as a slice. */
#define S(text) blip_text(text)
static inline blip_slice bytes_slice(const void *data, size_t size)
{
    blip_slice slice = {data, size};
    return slice;
}
bool test_check_text(blip_slice slice, const char *text, const char *file, int line, const char *what);

/* Something that happens a number of times, on any thread. */
struct counter {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t value;
};
#define COUNTER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}
void counter_init(struct counter *counter);
void counter_add(struct counter *counter, int64_t amount);
int64_t counter_get(struct counter *counter);
/* Waits until it is at least that much; false when the time is over. */
bool counter_wait(struct counter *counter, int64_t at_least, int64_t milliseconds);
/* A release_context: its context is a counter. */
void count_release(void *context);
#define REQUIRE_REACHES(counter_, value_) do { \
        counter_wait((counter_), (value_), SOON); \
        if (!CHECK_AT_LEAST(counter_get(counter_), (value_))) test_stop(); \
    } while (0)

/* Where the body of a request or response ended. */
struct outcome {
    struct counter done;
    blip_status status;
    int32_t type;
    int64_t error_code;
    char error_domain[64];
    char text[256]; /* the first bytes of the body, NUL-terminated */
    size_t size;
    uint32_t checksum; /* of the whole body */
    atomic_int released;
    bool no_release; /* outcome_release was not given */
};
void outcome_init(struct outcome *outcome);
/* A blip_response_fn whose context is an outcome, and its release_context. */
void outcome_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context);
void outcome_release(void *context);
/* Waits for the completion and the release of its context. */
bool outcome_wait(struct outcome *outcome);

uint32_t checksum(uint32_t so_far, const void *data, size_t size);
/* Fills with bytes that depend on the position in a body and the seed. */
void fill_pattern(void *data, size_t size, uint64_t position, uint32_t seed);
bool matches_pattern(const void *data, size_t size, uint64_t position, uint32_t seed);

blip_message *make_request(const char *profile, const char *body);
/* Sends and releases the request; completes the outcome. */
blip_status send_request(blip_connection *connection, const char *profile, const char *body, struct outcome *outcome);

blip_runtime *make_runtime(uint32_t threads);
/* Stops and releases it: a thread that is still about to end would look like a leak to sanitizers. */
void drop_runtime(blip_runtime *runtime);

/* A listener on 127.0.0.1 with the handlers below and a client connection to it, on runtimes of their own so that
 * either side can be ended alone. */
struct pair {
    blip_runtime *server_runtime, *client_runtime;
    blip_listener *listener;
    blip_connection *client;
    struct counter server_opened, server_closed, client_closed;
    blip_connection *accepted; /* retained: the last accepted */
    blip_status client_status; /* given to the client's close callback */
    char url[160];
};
/* Profiles that every pair's server answers:
 *   echo   body, content type and "Compressed" of the request
 *   empty  nothing: the library's default reply
 *   fail   the handler returns a negative status
 *   never  deferred for ever
 *   slow   deferred, answered with the body after 50 ms
 *   error  ERR TestDomain/-7 "went wrong"
 *   sink   the length of the body as text
 *   source a body of as many bytes as property "Size" says, of the pattern with seed 7 */
struct pair_options {
    blip_listener_options *listener;  /* released by pair_open */
    blip_connection_options *client;  /* likewise */
    const char *unix_path;
    blip_queue *server_queue, *client_queue; /* for the runtimes */
    const char *url;                  /* of the client, instead of the listener's */
    bool no_client;
};
void pair_open(struct pair *pair, const struct pair_options *options);
/* Closes, checks that both close callbacks came once, releases everything. */
void pair_close(struct pair *pair);
void set_server_handlers(blip_listener *listener);

/* Asks "echo" and checks the answer. */
void expect_echo(blip_connection *connection, const char *text);
/* Connects, asks once, closes, and releases the connection; the status and the text of its error. */
blip_status ask_once(blip_connection *connection, char *text, size_t size);

/* A certificate that waits to be judged, of a connection that has ended. */
blip_trust *make_trust(blip_runtime *runtime);
/* A challenge of a server that wants a password. */
blip_challenge *make_challenge(blip_runtime *runtime);

/* A TCP server that accepts and says nothing. Returns its port. */
uint16_t open_silent_server(int *descriptor);
/* A port on 127.0.0.1 at which nobody listens. */
uint16_t unused_port(void);

/* A directory for the test, removed at exit. */
const char *temporary_directory(void);
/* Runs a command of the shell in it, which has to succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t open_descriptors(void);
size_t own_threads(void);
size_t resident_bytes(void);
/* Milliseconds of processor time that the whole process has taken. */
int64_t processor_ms(void);

#endif
