/* Random calls of blip.h, legal and illegal, against a listener in the same process: live handles, released ones,
 * handles of another kind, numbers out of thin air; from the calling thread and from inside callbacks. In half of the
 * runs the runtime has no thread, and all is repeatable. Checked: nothing traps or hangs, a bad handle gives
 * BLIP_ERROR_HANDLE, what was accepted completes exactly once and before the close callback, every context is released
 * exactly once and not used afterwards. */

#define _DEFAULT_SOURCE

#include <blip.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition_) do { if (!(condition_)) finding(#condition_, __LINE__, 0); } while (0)
#define CHECK_STATUS(condition_, status_) do { if (!(condition_)) finding(#condition_, __LINE__, (status_)); } while (0)

static void finding(const char *text, int line, blip_status status)
{
    fprintf(stderr, "api.c:%d: not true: %s (%s)\n", line, text, blip_status_name(status));
    abort();
}

/* ---- the input ---- */

static const uint8_t *input;
static size_t input_size, input_at;

static uint8_t byte(void)
{
    return input_at < input_size ? input[input_at++] : 0;
}

static uint32_t below(uint32_t bound)
{
    return byte() % bound;
}

/* What callbacks do is taken from the input too, from its end, by a count of its own. */
static atomic_size_t script_at;

static uint8_t script(void)
{
    size_t at = atomic_fetch_add(&script_at, 1);
    return at < input_size ? input[input_size - 1 - at] : 0;
}

/* ---- contexts ---- */

enum kind { OTHER, RESPONSE, CLOSE, ONCE };

struct link;

struct context {
    struct context *next;
    enum kind kind;
    bool is_accepted;
    bool is_owed; /* a call: there is a function and no queue that may drop it */
    atomic_int calls, released;
    struct link *link;
    int pieces; /* of a pulled body */
    int line; /* where it was made */
};

/* A connection as far as its callbacks are concerned. */
struct link {
    struct link *next;
    atomic_int closed;
    struct context *close; /* is owed a call unless it is replaced */
};

static struct context *contexts;
static struct link *links;

#define context_new(kind_, link_) context_make((kind_), (link_), __LINE__)

static struct context *context_make(enum kind kind, struct link *link, int line)
{
    struct context *context = calloc(1, sizeof *context);
    context->kind = kind;
    context->line = line;
    context->link = link;
    context->next = contexts;
    contexts = context;
    return context;
}

static void released(void *pointer)
{
    struct context *context = pointer;
    if (context != NULL)
        CHECK(atomic_fetch_add(&context->released, 1) == 0);
}

static void called(struct context *context)
{
    if (context == NULL)
        return;
    CHECK(atomic_load(&context->released) == 0);
    int before = atomic_fetch_add(&context->calls, 1);
    CHECK(context->kind == OTHER || before == 0);
}

/* What a setter or an asynchronous call has said of its context. */
static blip_status given(struct context *context, blip_status status)
{
    CHECK_STATUS(strcmp(blip_status_name(status), "BLIP_ERROR_UNKNOWN") != 0, status);
    CHECK_STATUS(status != BLIP_ERROR_INTERNAL, status);
    context->is_accepted = status == BLIP_OK;
    if (status != BLIP_OK) {
        CHECK_STATUS(atomic_load(&context->released) == 1, status);
        CHECK_STATUS(atomic_load(&context->calls) == 0, status);
    }
    return status;
}

/* ---- handles ---- */

enum { CONNECTIONS = 4, MESSAGES = 8, QUEUES = 2, EVENTS = 6, LISTENERS = 2, ERRORS = 2, STALE = 8 };

/* Callbacks put messages in. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static blip_connection *connections[CONNECTIONS];
static struct link *connection_links[CONNECTIONS];
static bool has_queue[CONNECTIONS];
static blip_message *messages[MESSAGES];
static blip_queue *queues[QUEUES];
static blip_event *events[EVENTS];
static blip_listener *listeners[LISTENERS];
static blip_error *errors[ERRORS];
static void *stale[STALE];
static uint32_t stale_count;
static blip_runtime *runtime;
static blip_queue *runtime_queue;
static uint32_t threads;
static char socket_path[108], socket_url[400];
static int file = -1;

static void note_stale(void *handle)
{
    if (handle != NULL)
        stale[stale_count++ % STALE] = handle;
}

/* One of the slots, or something that is no handle of this kind. */
static bool is_good;

static void *pick(void **slots, uint32_t count)
{
    uint8_t choice = byte();
    is_good = false;
    if (choice < 0xF0) {
        pthread_mutex_lock(&mutex);
        void *handle = slots[choice % count];
        pthread_mutex_unlock(&mutex);
        is_good = handle != NULL;
        return handle;
    }
    switch (choice & 3) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)(((uint64_t)byte() << 56) | ((uint64_t)byte() << 32) | byte());
    case 2: return (void *)runtime;
    default: return stale[byte() % STALE];
    }
}

#define PICK(slots_) pick((void **)(slots_), sizeof (slots_) / sizeof (slots_)[0])

/* Statuses are known; a bad handle is told as such. A handle that was released once may be good still or again. */
static blip_status st(blip_status status)
{
    CHECK_STATUS(strcmp(blip_status_name(status), "BLIP_ERROR_UNKNOWN") != 0 || status > 0, status);
    CHECK_STATUS(status != BLIP_ERROR_INTERNAL, status);
    return status;
}

static volatile unsigned sink;

static void touch(blip_slice slice)
{
    const unsigned char *bytes = slice.data;
    CHECK(slice.size == 0 || bytes != NULL);
    for (size_t index = 0; index < slice.size; index++)
        sink += bytes[index];
}

static char long_text[5000];

static blip_slice text(void)
{
    static const struct { const char *data; size_t size; } samples[] = {
        {"", 0}, {NULL, 0}, {"echo", 4}, {"defer", 5}, {"fail", 4}, {"stream", 6}, {"close", 5}, {"keep", 4},
        {"Profile", 7}, {"Content-Type", 12}, {"text", 4}, {"\xff\xfe", 2}, {"a\0b", 3}, {NULL, 5}, {"Error-Code", 10},
        {"12", 2}, {"\xc3\xa9", 2}, {"\x01", 1}, {"BLIP_3", 6}, {"BLIP", 4}, {"BLIP_3+x", 8}, {"/db", 3}, {"none", 4},
    };
    uint8_t choice = byte();
    if (choice >= 0xFC)
        return (blip_slice) {long_text, (size_t)byte() * 19};
    if (choice >= 0xE0 && input_at < input_size) {
        size_t size = choice & 15;
        if (size > input_size - input_at)
            size = input_size - input_at;
        blip_slice slice = {input + input_at, size};
        input_at += size;
        return slice;
    }
    uint32_t index = choice % (sizeof samples / sizeof samples[0]);
    return (blip_slice) {samples[index].data, samples[index].size};
}

static char large[200000];

static blip_slice body(void)
{
    uint8_t choice = byte();
    if (choice < 0x60)
        return text();
    return (blip_slice) {large, choice < 0xC0 ? (size_t)byte() * 64 : (size_t)byte() * 780};
}

static int64_t duration(void)
{
    static const int64_t samples[] = {0, 1, 2, 5, 0, -2, INT64_MIN, 1};
    return samples[below(8)];
}

/* For what may be waited for without end by the loop: long enough never to matter. */
static int64_t limit_time(void)
{
    static const int64_t samples[] = {-1, 0, 1, 5, 1000, INT64_MAX, -2, 100000};
    return samples[below(8)];
}

/* ---- callbacks ---- */

static size_t on_data(blip_message *message, blip_slice data, blip_status status, void *pointer)
{
    called(pointer);
    touch(data);
    st(status);
    uint8_t choice = script();
    if (choice == 0xFF)
        blip_message_set_data_callback(message, NULL, NULL, NULL);
    return choice & 1 ? SIZE_MAX : choice & 2 ? data.size / 2 : data.size;
}

static void on_sent(blip_message *message, blip_status status, void *context)
{
    (void)message;
    st(status);
    called(context);
}

static void on_progress(blip_message *message, uint64_t sent, void *context)
{
    (void)message;
    (void)sent;
    called(context);
}

/* What any callback may do besides. */
static void act(blip_connection *connection, blip_message *message)
{
    switch (script() & 31) {
    case 1: blip_connection_close(connection, 1000, blip_text("bye")); break;
    case 2: blip_connection_close_gracefully(connection, 10); break;
    case 3: blip_message_cancel(message); break;
    case 4: {
        int32_t state;
        st(blip_connection_state(connection, &state));
        break;
    }
    case 5: {
        /* On a loop thread, or in a program's own: never a hang. */
        blip_status status = blip_connection_wait_closed(connection, 1);
        CHECK_STATUS(runtime_queue != NULL || status == BLIP_ERROR_WOULD_DEADLOCK || status == BLIP_ERROR_HANDLE
            || status == BLIP_ERROR_TIMEOUT || status == BLIP_OK, status);
        break;
    }
    case 6: {
        blip_slice value;
        if (blip_connection_http_header(connection, blip_text("host"), &value) == BLIP_OK)
            sink += (unsigned)value.size;
        break;
    }
    case 7: {
        uint64_t values[2];
        const int32_t which[2] = {BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_REQUESTS_PENDING};
        st(blip_connection_counter_values(connection, which, values, 2));
        break;
    }
    case 8: {
        blip_message *request = NULL;
        if (blip_request_new(blip_text("echo"), &request) == BLIP_OK) {
            st(blip_connection_send(connection, request, NULL, NULL, NULL));
            blip_message_release(request);
        }
        break;
    }
    case 9: blip_runtime_stop(runtime, 0); break;
    case 10: blip_connection_retain(connection); blip_connection_release(connection); break;
    case 11: {
        blip_slice description;
        if (blip_message_describe(message, true, &description) == BLIP_OK)
            sink += (unsigned)description.size;
        break;
    }
    case 12: st(blip_connection_ping(connection, 5, NULL, NULL, NULL)); break;
    default: break;
    }
}

static void keep(blip_message *message)
{
    if (blip_message_retain(message) == NULL)
        return;
    pthread_mutex_lock(&mutex);
    for (int index = 0; index < MESSAGES; index++) {
        if (messages[index] == NULL) {
            messages[index] = message;
            message = NULL;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    blip_message_release(message);
}

static void on_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *pointer)
{
    struct context *context = pointer;
    called(context);
    CHECK_STATUS(status <= 0, st(status));
    CHECK_STATUS(response == NULL || status == BLIP_OK, status);
    if (context != NULL && context->link != NULL)
        CHECK(atomic_load(&context->link->closed) == 0);
    if (response != NULL) {
        blip_slice value;
        bool is_complete = false;
        CHECK(blip_message_is_complete(response, &is_complete) == BLIP_OK);
        if (is_complete && blip_message_body(response, &value) == BLIP_OK)
            touch(value);
        blip_error *error;
        if (blip_message_error(response, &error) == BLIP_OK) {
            CHECK(blip_error_message(error, &value) == BLIP_OK);
            touch(value);
        }
        if (!is_complete && (script() & 3) != 0)
            blip_message_set_data_callback(response, on_data, NULL, NULL);
        if ((script() & 3) == 0)
            keep(response);
    }
    act(connection, request);
}

static void on_close(blip_connection *connection, blip_status status, void *pointer)
{
    struct context *context = pointer;
    called(context);
    CHECK_STATUS(status <= 0, st(status));
    if (context != NULL && context->link != NULL)
        atomic_store(&context->link->closed, 1);
    blip_error *error;
    blip_slice value;
    if (blip_connection_error(connection, &error) == BLIP_OK && blip_error_message(error, &value) == BLIP_OK)
        touch(value);
    act(connection, NULL);
}

static void on_open(blip_connection *connection, void *context)
{
    called(context);
    act(connection, NULL);
}

static void on_state(blip_connection *connection, int32_t state, void *pointer)
{
    struct context *context = pointer;
    called(context);
    CHECK(state > BLIP_STATE_NEW && state <= BLIP_STATE_CLOSED);
    act(connection, NULL);
}

static void on_pong(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    called(context);
    CHECK_STATUS(st(status) <= 0 && microseconds >= 0, status);
    act(connection, NULL);
}

static void on_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener;
    called(context);
    blip_slice value;
    if (blip_connection_request_path(connection, &value) == BLIP_OK)
        touch(value);
    if ((script() & 7) == 7)
        st(blip_connection_close(connection, 1008, blip_text("")));
    act(connection, NULL);
}

static void on_stopped(blip_listener *listener, blip_status status, void *context)
{
    (void)listener;
    CHECK_STATUS(status == BLIP_OK, status);
    called(context);
}

static void on_log(int32_t level, blip_slice domain, blip_slice line, void *context)
{
    CHECK(level >= BLIP_LOG_ERROR && level <= BLIP_LOG_DEBUG);
    touch(domain);
    touch(line);
    called(context);
}

static blip_status on_request(blip_connection *connection, blip_message *request, void *context)
{
    called(context);
    bool is_complete = false;
    blip_slice value;
    CHECK(blip_message_is_complete(request, &is_complete) == BLIP_OK);
    CHECK(blip_message_profile(request, &value) == BLIP_OK);
    touch(value);
    if (is_complete && blip_message_body(request, &value) == BLIP_OK)
        touch(value);
    if (!is_complete && (script() & 3) != 0)
        st(blip_message_set_data_callback(request, on_data, NULL, NULL));
    act(connection, request);
    switch (script() & 15) {
    case 0: break;
    case 1: return BLIP_ERROR_INTERNAL;
    case 2: st(blip_message_respond_error(request, blip_text("BLIP"), 404, blip_text("no"))); break;
    case 3: st(blip_message_respond_error(request, blip_text(""), 0, blip_text("\xff"))); break;
    case 4:
        st(blip_message_respond_empty(request));
        st(blip_message_respond_empty(request));
        break;
    case 5: st(blip_message_respond_json(request, blip_text("{\"a\":1}"))); break;
    case 6: case 7: case 8:
        if (st(blip_message_defer(request)) == BLIP_OK || (script() & 1))
            keep(request);
        break;
    case 9: st(blip_message_defer(request)); break;
    case 10: st(blip_message_respond_data(request, (blip_slice) {large, sizeof large}, blip_text("x/y"))); break;
    case 11: {
        blip_message *response = NULL;
        if (st(blip_response_new(request, &response)) == BLIP_OK) {
            st(blip_message_append_body_pushed(response));
            st(blip_message_push_body(response, blip_text("some"), false));
            st(blip_message_respond(request, response));
            st(blip_message_push_body(response, blip_text("more"), (script() & 1) != 0));
            blip_message_release(response);
        }
        break;
    }
    default: st(blip_message_respond_text(request, blip_text("fine"))); break;
    }
    return BLIP_OK;
}

static blip_status on_body(void *buffer, size_t capacity, size_t *written, void *pointer)
{
    struct context *context = pointer;
    CHECK(capacity > 0 && *written == 0);
    uint8_t choice = script();
    called(context);
    if (context->pieces-- <= 0 || (choice & 15) == 15)
        return BLIP_DATA_END;
    size_t size = capacity < 1000 ? capacity : (size_t)choice * 3 + 1;
    if (size > capacity)
        size = capacity;
    memset(buffer, 'b', size);
    *written = size;
    switch (choice & 15) {
    case 14: return BLIP_ERROR_STATE;
    case 13: *written = 0; return BLIP_AGAIN;
    case 12: *written = capacity + 1; return BLIP_OK;
    case 11: *written = 0; return BLIP_OK;
    case 10: return 12345;
    default: return BLIP_OK;
    }
}

/* ---- steps ---- */

static void store_message(blip_message *message)
{
    pthread_mutex_lock(&mutex);
    uint32_t index = below(MESSAGES);
    blip_message *old = messages[index];
    messages[index] = message;
    pthread_mutex_unlock(&mutex);
    note_stale(old);
    blip_message_release(old);
}

static blip_connection_options *connection_options(void)
{
    if (byte() & 1)
        return NULL;
    blip_connection_options *options = blip_connection_options_new();
    CHECK(options != NULL);
    for (uint32_t count = below(4); count > 0; count--) {
        switch (below(12)) {
        case 0: st(blip_connection_options_add_subprotocol(options, text())); break;
        case 1: st(blip_connection_options_set_queue(options, PICK(queues))); break;
        case 2: {
            blip_slice name = text();
            st(blip_connection_options_add_header(options, name, text()));
            break;
        }
        case 3: st(blip_connection_options_set_user_agent(options, text())); break;
        case 4: st(blip_connection_options_set_connect_timeout(options, limit_time())); break;
        case 5: st(blip_connection_options_set_close_timeout(options, below(50))); break;
        case 6: {
            int64_t interval = duration();
            st(blip_connection_options_set_ping(options, interval, byte()));
            break;
        }
        case 7: st(blip_connection_options_set_frame_size(options, byte() * 256u)); break;
        case 8: st(blip_connection_options_set_compression_level(options, (int32_t)below(12) - 1)); break;
        case 9: {
            int32_t limit = (int32_t)below(8);
            st(blip_connection_options_set_limit(options, limit, (uint64_t)byte() << below(48)));
            break;
        }
        case 10: {
            int32_t low = byte() & 1 ? BLIP_TLS_1_2 : (int32_t)byte();
            st(blip_connection_options_set_tls_versions(options, low, BLIP_TLS_1_3));
            break;
        }
        default: st(blip_connection_options_set_tls_ca_file(options, text())); break;
        }
    }
    return options;
}

static struct link *link_new(uint32_t index, bool may_queue)
{
    struct link *link = calloc(1, sizeof *link);
    link->next = links;
    links = link;
    connection_links[index] = link;
    has_queue[index] = may_queue;
    return link;
}

static void connection_make(void)
{
    blip_connection_options *options = connection_options();
    blip_connection *connection = NULL;
    uint8_t choice = byte();
    blip_slice url = choice < 0xE0 ? blip_text(socket_url) : choice < 0xF0 ? blip_text("ws://127.0.0.1:1/") : text();
    blip_status status = st(blip_connection_new(runtime, url, options, &connection));
    CHECK_STATUS((status == BLIP_OK) == (connection != NULL), status);
    blip_connection_options_release(options);
    if (connection == NULL)
        return;
    uint32_t index = below(CONNECTIONS);
    blip_connection *old = connections[index];
    connections[index] = connection;
    note_stale(old);
    blip_connection_release(old);
    struct link *link = link_new(index, options != NULL || runtime_queue != NULL);
    if (choice & 1) {
        struct context *context = context_new(CLOSE, link);
        given(context, blip_connection_set_close_callback(connection, on_close, context, released));
        link->close = has_queue[index] ? NULL : context;
    }
    if (choice & 2)
        st(blip_connection_connect(connection));
}

static struct link *link_of(blip_connection *connection)
{
    for (int index = 0; index < CONNECTIONS; index++)
        if (connections[index] == connection)
            return connection_links[index];
    return NULL;
}

static void connection_step(void)
{
    blip_connection *connection = PICK(connections);
    bool good = is_good;
    blip_status status;
    blip_slice value;
    int32_t number;
    bool flag;
    switch (below(26)) {
    case 0: status = blip_connection_connect(connection); break;
    case 1: status = blip_connection_wait_open(connection, duration()); break;
    case 2: {
        uint16_t code = (uint16_t)(990 + byte());
        status = blip_connection_close(connection, code, text());
        break;
    }
    case 3: status = blip_connection_close_gracefully(connection, limit_time()); break;
    case 4: status = blip_connection_wait_closed(connection, duration()); break;
    case 5: status = blip_connection_state(connection, &number); break;
    case 6: status = blip_connection_is_active(connection, &flag); break;
    case 7: status = blip_connection_url(connection, &value); if (status == BLIP_OK) touch(value); break;
    case 8: {
        blip_error *error = NULL;
        status = blip_connection_error(connection, &error);
        if (status == BLIP_OK) {
            uint32_t index = below(ERRORS);
            note_stale(errors[index]);
            blip_error_release(errors[index]);
            errors[index] = blip_error_retain(error);
        }
        break;
    }
    case 9: status = blip_connection_close_code(connection, &number); break;
    case 10: status = blip_connection_subprotocol(connection, &value); if (status == BLIP_OK) touch(value); break;
    case 11: status = blip_connection_local_address(connection, &value); if (status == BLIP_OK) touch(value); break;
    case 12: status = blip_connection_tls_version(connection, &value); break;
    case 13:
        status = blip_connection_http_header(connection, text(), &value);
        if (status == BLIP_OK && threads == 0)
            touch(value);
        break;
    case 14: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_connection_set_user_data(connection, context, released));
        break;
    }
    case 15: {
        void *data;
        status = blip_connection_user_data(connection, &data);
        break;
    }
    case 16: {
        uint64_t bytes;
        status = blip_connection_backlog(connection, &bytes);
        break;
    }
    case 17: {
        struct context *context = context_new(ONCE, link_of(connection));
        int64_t timeout = limit_time();
        blip_pong_fn fn = byte() & 1 ? on_pong : NULL;
        status = given(context, blip_connection_ping(connection, timeout, fn, context, released));
        break;
    }
    case 18: {
        int32_t which[3] = {(int32_t)below(12), 1, 9};
        uint64_t values[3];
        status = blip_connection_counter_values(connection, which, byte() & 1 ? values : NULL, below(4));
        break;
    }
    case 19: {
        struct context *context = context_new(OTHER, NULL);
        blip_slice profile = text();
        status = given(context, blip_connection_set_handler(
            connection, profile, byte() % 3, byte() & 3 ? on_request : NULL, context, released));
        break;
    }
    case 20: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_connection_set_default_handler(
            connection, byte() & 1, byte() & 7 ? on_request : NULL, context, released));
        break;
    }
    case 21: status = blip_connection_remove_handler(connection, text()); break;
    case 22: {
        struct context *context = context_new(ONCE, NULL);
        status = given(context, blip_connection_set_open_callback(
            connection, byte() & 7 ? on_open : NULL, context, released));
        break;
    }
    case 23: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_connection_set_state_callback(
            connection, byte() & 7 ? on_state : NULL, context, released));
        break;
    }
    case 24: {
        struct context *context = context_new(CLOSE, NULL);
        blip_close_fn fn = byte() & 7 ? on_close : NULL;
        status = given(context, blip_connection_set_close_callback(connection, fn, context, released));
        /* A released handle may still be good: then it is not known whose callback was replaced. */
        struct link *owner = link_of(connection);
        for (struct link *link = links; link != NULL; link = link->next)
            if (status == BLIP_OK && (owner == NULL || link == owner))
                link->close = NULL;
        break;
    }
    default: {
        uint32_t index = below(CONNECTIONS);
        note_stale(connections[index]);
        blip_connection_release(connections[index]);
        connections[index] = NULL;
        return;
    }
    }
    CHECK_STATUS(!good || status != BLIP_ERROR_HANDLE, st(status));
    CHECK_STATUS(connection != NULL || status == BLIP_ERROR_HANDLE, status);
}

static void send_step(void)
{
    blip_connection *connection = PICK(connections);
    bool good = is_good;
    struct link *link = good ? link_of(connection) : NULL;
    blip_message *request = PICK(messages);
    good = good && is_good;
    blip_status status;
    if (below(4) == 0) {
        blip_message *response = NULL;
        status = st(blip_connection_request(connection, request, duration(), &response));
        CHECK_STATUS((status == BLIP_OK) == (response != NULL), status);
        if (response != NULL)
            store_message(response);
        return;
    }
    struct context *context = context_new(RESPONSE, link);
    blip_response_fn fn = byte() & 7 ? on_response : NULL;
    status = given(context, blip_connection_send(connection, request, fn, context, released));
    for (int index = 0; index < CONNECTIONS; index++)
        if (link != NULL && connection_links[index] == link)
            context->is_owed = status == BLIP_OK && fn != NULL && !has_queue[index];
    CHECK_STATUS(!good || status != BLIP_ERROR_HANDLE, status);
}

static void message_make(void)
{
    blip_message *message = NULL;
    blip_status status = st(blip_request_new(text(), &message));
    CHECK_STATUS((status == BLIP_OK) == (message != NULL), status);
    if (message == NULL)
        return;
    uint8_t choice = byte();
    st(blip_message_set_flags(message, choice & 0x38));
    if (choice & 1)
        st(blip_message_set_body(message, body()));
    if (choice & 2)
        st(blip_message_set_streamed(message, true));
    if (choice & 4)
        st(blip_message_set_timeout(message, limit_time()));
    store_message(message);
}

static void message_step(void)
{
    blip_message *message = PICK(messages);
    bool good = is_good;
    blip_status status = BLIP_ERROR_HANDLE;
    blip_slice value, other;
    bool flag = false;
    uint32_t flags;
    uint64_t number;
    int32_t type;
    size_t size;
    char buffer[512];
    switch (below(44)) {
    case 0: status = blip_message_type(message, &type); break;
    case 1: status = blip_message_number(message, &number); break;
    case 2: status = blip_message_is_mutable(message, &flag); break;
    case 3: {
        blip_connection *connection = NULL;
        status = blip_message_connection(message, &connection);
        blip_connection_release(connection);
        break;
    }
    case 4: status = blip_message_flags(message, &flags); break;
    case 5: status = blip_message_set_flags(message, byte()); break;
    case 6: status = blip_message_set_compressed(message, byte() & 1); break;
    case 7: status = blip_message_set_no_reply(message, byte() & 1); break;
    case 8: status = blip_message_profile(message, &value); break;
    case 9: status = blip_message_set_profile(message, text()); break;
    case 10: status = blip_message_set_content_type(message, text()); break;
    case 11: status = blip_message_property(message, text(), &value); break;
    case 12: case 13: {
        blip_slice key = text();
        status = blip_message_set_property(message, key, text());
        break;
    }
    case 14: status = blip_message_remove_property(message, text()); break;
    case 15: status = blip_message_property_count(message, &size); break;
    case 16: status = blip_message_property_at(message, byte(), &value, &other); break;
    case 17:
        status = blip_message_properties(message, &value);
        if (status == BLIP_OK && threads == 0)
            touch(value);
        break;
    case 18: status = blip_message_set_properties(message, text()); break;
    case 19: status = blip_message_set_body(message, body()); break;
    case 20: status = blip_message_append_body(message, body()); break;
    case 21: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_message_append_body_borrowed(message, body(), released, context));
        break;
    }
    case 22: {
        uint64_t offset = byte() * 40u;
        uint64_t length = byte() & 1 ? UINT64_MAX : byte() * 40u;
        status = blip_message_append_body_file(message, byte() & 7 ? file : -1, offset, length, false);
        break;
    }
    case 23: {
        struct context *context = context_new(OTHER, NULL);
        context->pieces = byte();
        status = given(context, blip_message_append_body_pulled(
            message, byte() & 15 ? on_body : NULL, context, released));
        break;
    }
    case 24: status = blip_message_resume_body(message); break;
    case 25: status = blip_message_append_body_pushed(message); break;
    case 26: {
        blip_slice bytes = body();
        status = blip_message_push_body(message, bytes, byte() & 1);
        break;
    }
    case 27: status = blip_message_set_text(message, text()); break;
    case 28: status = blip_message_set_json(message, text()); break;
    case 29:
        status = blip_message_body(message, &value);
        if (status == BLIP_OK && threads == 0)
            touch(value);
        break;
    case 30: status = blip_message_body_size(message, &number); break;
    case 31: status = blip_message_set_streamed(message, byte() & 1); break;
    case 32: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_message_set_data_callback(
            message, byte() & 3 ? on_data : NULL, context, released));
        break;
    }
    case 33:
        status = blip_message_read(message, buffer, below(2) * sizeof buffer, &size);
        if (status == BLIP_OK)
            CHECK(size > 0 && size <= sizeof buffer);
        break;
    case 34: status = blip_message_read_wait(message, buffer, sizeof buffer, duration(), &size); break;
    case 35: {
        struct context *context = context_new(ONCE, NULL);
        status = given(context, blip_message_set_sent_callback(
            message, byte() & 7 ? on_sent : NULL, context, released));
        break;
    }
    case 36: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_message_set_progress_callback(
            message, byte() & 7 ? on_progress : NULL, context, released));
        break;
    }
    case 37: status = blip_message_wait_sent(message, duration()); break;
    case 38: status = blip_message_set_timeout(message, limit_time()); break;
    case 39: status = blip_message_cancel(message); break;
    case 40: {
        struct context *context = context_new(OTHER, NULL);
        status = given(context, blip_message_set_user_data(message, context, released));
        break;
    }
    case 41:
        status = blip_message_describe(message, byte() & 1, &value);
        if (status == BLIP_OK)
            touch(value);
        break;
    case 42: {
        blip_message *copy = NULL;
        status = blip_message_copy(message, &copy);
        if (copy != NULL)
            store_message(copy);
        break;
    }
    default:
        store_message(NULL);
        return;
    }
    CHECK_STATUS(!good || status != BLIP_ERROR_HANDLE, st(status));
    CHECK_STATUS(message != NULL || status == BLIP_ERROR_HANDLE, status);
}

static void respond_step(void)
{
    blip_message *request = PICK(messages);
    bool good = is_good;
    blip_status status;
    bool replied;
    switch (below(8)) {
    case 0: {
        blip_message *response = NULL;
        status = blip_response_new(request, &response);
        if (response != NULL)
            store_message(response);
        break;
    }
    case 1: {
        blip_message *response = PICK(messages);
        status = blip_message_respond(request, response);
        good = good && is_good;
        break;
    }
    case 2: {
        blip_slice bytes = body();
        status = blip_message_respond_data(request, bytes, text());
        break;
    }
    case 3: status = blip_message_respond_text(request, text()); break;
    case 4: {
        blip_slice domain = text();
        int32_t code = (int32_t)byte() - 3;
        status = blip_message_respond_error(request, domain, code, text());
        break;
    }
    case 5: status = blip_message_defer(request); break;
    case 6: status = blip_message_is_responded(request, &replied); break;
    default: {
        blip_error *error;
        status = blip_message_error(request, &error);
        break;
    }
    }
    CHECK_STATUS(!good || status != BLIP_ERROR_HANDLE, st(status));
}

static void queue_step(void)
{
    blip_queue *queue = PICK(queues);
    size_t count = 0;
    switch (below(6)) {
    case 0: {
        blip_event *taken[4];
        int64_t timeout = duration();
        if (st(blip_queue_next(queue, taken, below(5), timeout, &count)) != BLIP_OK)
            return;
        for (size_t index = 0; index < count; index++) {
            uint32_t slot = below(EVENTS);
            note_stale(events[slot]);
            blip_event_release(events[slot]);
            events[slot] = taken[index];
        }
        break;
    }
    case 1: case 2: {
        size_t most = byte();
        st(blip_queue_dispatch(queue, most, duration(), &count));
        break;
    }
    case 3: {
        int fd;
        st(blip_queue_fd(queue, &fd));
        break;
    }
    case 4: st(blip_queue_wake(queue)); break;
    default: {
        uint32_t index = below(QUEUES);
        note_stale(queues[index]);
        blip_queue_release(queues[index]);
        queues[index] = NULL;
        if (byte() & 1)
            CHECK(blip_queue_new(byte(), &queues[index]) == BLIP_OK);
        break;
    }
    }
}

static void event_step(void)
{
    blip_event *event = PICK(events);
    int32_t kind;
    int64_t number;
    void *pointer;
    switch (below(7)) {
    case 0: st(blip_event_kind(event, &kind)); break;
    case 1: st(blip_event_status(event)); break;
    case 2: st(blip_event_value(event, &number)); break;
    case 3: st(blip_event_context(event, &pointer)); break;
    case 4: keep(blip_event_message(event)); break;
    case 5: {
        int32_t state;
        blip_connection *connection = blip_event_connection(event);
        if (connection != NULL)
            st(blip_connection_state(connection, &state));
        break;
    }
    default: {
        uint32_t index = below(EVENTS);
        note_stale(events[index]);
        blip_event_release(events[index]);
        events[index] = NULL;
    }
    }
}

static void error_step(void)
{
    blip_error *error = PICK(errors);
    blip_slice value;
    int64_t code;
    if (blip_error_domain(error, &value) == BLIP_OK)
        touch(value);
    if (blip_error_message(error, &value) == BLIP_OK)
        touch(value);
    st(blip_error_code(error, &code));
    st(blip_error_status(error));
}

static blip_listener *listener_make(void)
{
    blip_listener_options *options = blip_listener_options_new();
    CHECK(options != NULL);
    for (uint32_t count = below(3); count > 0; count--) {
        switch (below(8)) {
        case 0: st(blip_listener_options_add_subprotocol(options, text())); break;
        case 1: st(blip_listener_options_set_queue(options, PICK(queues))); break;
        case 2: st(blip_listener_options_add_path(options, text())); break;
        case 3: st(blip_listener_options_set_handshake_timeout(options, limit_time())); break;
        case 4: st(blip_listener_options_set_max_connections(options, byte() & 3)); break;
        case 5: st(blip_listener_options_set_frame_size(options, byte() * 256u)); break;
        case 6: {
            int32_t limit = (int32_t)below(8);
            st(blip_listener_options_set_limit(options, limit, (uint64_t)byte() << below(48)));
            break;
        }
        default: {
            int64_t interval = duration();
            st(blip_listener_options_set_ping(options, interval, byte()));
            break;
        }
        }
    }
    st(blip_listener_options_set_close_timeout(options, 50));
    blip_listener *listener = NULL;
    st(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    if (listener == NULL)
        return NULL;
    struct context *context = context_new(OTHER, NULL);
    given(context, blip_listener_set_default_handler(listener, byte() & 1, on_request, context, released));
    context = context_new(OTHER, NULL);
    given(context, blip_listener_set_handler(
        listener, blip_text("stream"), BLIP_HANDLER_STREAM, on_request, context, released));
    context = context_new(OTHER, NULL);
    given(context, blip_listener_set_close_callback(listener, on_close, context, released));
    if (byte() & 1) {
        context = context_new(OTHER, NULL);
        given(context, blip_listener_set_accept_callback(listener, on_accept, context, released));
    }
    if (byte() & 1) {
        context = context_new(OTHER, NULL);
        given(context, blip_listener_set_open_callback(listener, on_open, context, released));
    }
    context = context_new(ONCE, NULL);
    given(context, blip_listener_set_stopped_callback(listener, on_stopped, context, released));
    st(blip_listener_start_unix(listener, blip_text(socket_path)));
    return listener;
}

static void listener_step(void)
{
    blip_listener *listener = PICK(listeners);
    blip_slice value;
    size_t count;
    uint16_t port;
    switch (below(10)) {
    case 0: st(blip_listener_port(listener, &port)); break;
    case 1: if (blip_listener_url(listener, &value) == BLIP_OK) touch(value); break;
    case 2: st(blip_listener_connection_count(listener, &count)); break;
    case 3: {
        bool graceful = byte() & 1;
        st(blip_listener_stop(listener, graceful, limit_time()));
        break;
    }
    case 4: st(blip_listener_wait_stopped(listener, duration())); break;
    case 5: {
        blip_error *error;
        st(blip_listener_error(listener, &error));
        break;
    }
    case 6: st(blip_listener_start_unix(listener, blip_text(socket_path))); break;
    case 7: {
        struct context *context = context_new(OTHER, NULL);
        blip_slice profile = text();
        given(context, blip_listener_set_handler(listener, profile, byte() % 3, on_request, context, released));
        break;
    }
    default: {
        uint32_t index = below(LISTENERS);
        note_stale(listeners[index]);
        blip_listener_release(listeners[index]);
        listeners[index] = listener_make();
    }
    }
}

static void runtime_step(void)
{
    uint32_t count;
    int fd;
    switch (below(8)) {
    case 0: st(blip_runtime_thread_count(runtime, &count)); break;
    case 1: st(blip_runtime_fd(runtime, &fd)); break;
    case 2: {
        struct context *context = context_new(OTHER, NULL);
        given(context, blip_runtime_set_log(runtime, (int32_t)below(6), byte() & 7 ? on_log : NULL, context, released));
        break;
    }
    case 3:
        if (byte() == 0xAA)
            st(blip_runtime_stop(runtime, duration()));
        break;
    default:
        for (int turn = 0; turn < 20 && blip_runtime_run_once(runtime, 0, &count) == BLIP_OK && count > 0; turn++)
            continue;
    }
}

/* ---- a run ---- */

static void begin(void)
{
    if (file < 0) {
        FILE *made = tmpfile();
        CHECK(made != NULL);
        file = fileno(made);
        memset(large, 'l', sizeof large);
        memset(long_text, 't', sizeof long_text);
        CHECK(write(file, large, 10000) == 10000);
        const char *folder = getenv("TMPDIR");
        snprintf(socket_path, sizeof socket_path, "%s/blip-fuzz-%d.sock", folder != NULL ? folder : P_tmpdir,
            (int)getpid());
        /* The path is the URL's host. */
        strcpy(socket_url, "ws+unix://");
        for (const char *at = socket_path; *at != 0; at++)
            snprintf(socket_url + strlen(socket_url), 4, *at == '/' ? "%%2F" : "%c", *at);
        strcat(socket_url, "/db");
    }
    uint8_t shape = byte();
    threads = shape & 1;
    atomic_store(&script_at, 0);
    for (int index = 0; index < QUEUES; index++)
        CHECK(blip_queue_new(shape & 2 ? 2 : 0, &queues[index]) == BLIP_OK);
    blip_runtime_options *options = blip_runtime_options_new();
    CHECK(options != NULL);
    CHECK(blip_runtime_options_set_threads(options, threads) == BLIP_OK);
    runtime_queue = shape & 4 ? queues[0] : NULL;
    CHECK(blip_runtime_options_set_queue(options, runtime_queue) == BLIP_OK);
    CHECK(blip_runtime_new(options, &runtime) == BLIP_OK);
    blip_runtime_options_release(options);
    listeners[0] = listener_make();
    if (shape & 8)
        return;
    /* Most runs begin with a connection that is open. */
    CHECK(blip_connection_new(runtime, blip_text(socket_url), NULL, &connections[0]) == BLIP_OK);
    link_new(0, runtime_queue != NULL);
    struct context *context = context_new(CLOSE, connection_links[0]);
    given(context, blip_connection_set_close_callback(connections[0], on_close, context, released));
    connection_links[0]->close = runtime_queue != NULL ? NULL : context;
    context = context_new(OTHER, NULL);
    given(context, blip_connection_set_default_handler(connections[0], 0, on_request, context, released));
    st(blip_connection_wait_open(connections[0], shape & 16 ? 0 : 100));
}

static void release_all(void)
{
    for (int index = 0; index < CONNECTIONS; index++) {
        blip_connection_release(connections[index]);
        connections[index] = NULL;
        connection_links[index] = NULL;
    }
    for (int index = 0; index < EVENTS; index++) {
        blip_event_release(events[index]);
        events[index] = NULL;
    }
    for (int index = 0; index < ERRORS; index++) {
        blip_error_release(errors[index]);
        errors[index] = NULL;
    }
    for (int index = 0; index < LISTENERS; index++) {
        blip_listener_release(listeners[index]);
        listeners[index] = NULL;
    }
    for (int index = 0; index < MESSAGES; index++) {
        pthread_mutex_lock(&mutex);
        blip_message *message = messages[index];
        messages[index] = NULL;
        pthread_mutex_unlock(&mutex);
        blip_message_release(message);
    }
}

static void drain_queues(void)
{
    for (int index = 0; index < QUEUES; index++) {
        size_t count = 1;
        for (int turn = 0; turn < 1000 && count > 0; turn++) {
            count = 0;
            if (blip_queue_dispatch(queues[index], 100, 0, &count) != BLIP_OK)
                break;
        }
    }
}

static void settle(struct context *context)
{
    for (int waited = 0; atomic_load(&context->released) == 0 && waited < 2000; waited++) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    bool is_settled = atomic_load(&context->released) == 1;
    if (context->is_owed)
        is_settled = is_settled && atomic_load(&context->calls) == 1;
    if (!is_settled)
        fprintf(stderr, "made in line %d: %d calls, released %d times\n", context->line, atomic_load(&context->calls),
            atomic_load(&context->released));
    CHECK(is_settled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    input_size = size;
    input_at = 0;
    begin();
    for (int steps = 0; input_at < input_size && steps < 400; steps++) {
        switch (below(20)) {
        case 0: case 1: connection_make(); break;
        case 2: case 3: case 4: connection_step(); break;
        case 5: case 6: message_make(); break;
        case 7: case 8: case 9: message_step(); break;
        case 10: case 11: send_step(); break;
        case 12: respond_step(); break;
        case 13: queue_step(); break;
        case 14: event_step(); break;
        case 15: error_step(); listener_step(); break;
        default: runtime_step(); break;
        }
    }
    bool release_first = byte() & 1;
    if (release_first)
        release_all();
    blip_status status = blip_runtime_stop(runtime, byte() & 1 ? 200 : 20);
    CHECK_STATUS(status == BLIP_OK || status == BLIP_ERROR_TIMEOUT, status);
    drain_queues();
    release_all();
    drain_queues();
    for (int index = 0; index < QUEUES; index++) {
        blip_queue_release(queues[index]);
        queues[index] = NULL;
    }
    /* What callbacks have kept meanwhile. */
    release_all();
    blip_runtime_release(runtime);
    runtime = NULL;
    for (struct link *link = links; link != NULL; link = link->next)
        if (link->close != NULL)
            link->close->is_owed = true;
    for (struct context *context = contexts, *next; context != NULL; context = next) {
        next = context->next;
        settle(context);
        free(context);
    }
    contexts = NULL;
    for (struct link *link = links, *next; link != NULL; link = next) {
        next = link->next;
        free(link);
    }
    links = NULL;
    memset(stale, 0, sizeof stale);
    stale_count = 0;
    return 0;
}
