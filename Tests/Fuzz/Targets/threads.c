/* Legal calls of blip.h from several threads at once, on one connection whose peer is made up: a transport of the program,
 * to which one more thread brings frames, in order or not. Each thread has a part of the input as its script; they begin
 * together and are joined before the run ends, so that an input means the same calls each time, if not at the same moments.
 * Checked: nothing traps or hangs, a live handle is good, what was accepted completes exactly once and before the close
 * callback, every context is released exactly once and not used afterwards. */

#define _GNU_SOURCE

#include <blip.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition_) do { if (!(condition_)) finding(#condition_, __LINE__, 0); } while (0)

static void finding(const char *text, int line, blip_status status)
{
    fprintf(stderr, "threads.c:%d: not true: %s (%s)\n", line, text, blip_status_name(status));
    abort();
}

/* The handle is alive: any status but that it is not. */
#define st(status_) st_at((status_), __LINE__)

static blip_status st_at(blip_status status, int line)
{
    if (status == BLIP_ERROR_HANDLE || status == BLIP_ERROR_INTERNAL
        || (status < 0 && strcmp(blip_status_name(status), "BLIP_ERROR_UNKNOWN") == 0))
        finding("a status that is expected", line, status);
    return status;
}

static void nap(void)
{
    struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
}

/* ---- scripts ---- */

struct script {
    const uint8_t *at, *end;
};

static uint8_t byte(struct script *script) { return script->at < script->end ? *script->at++ : 0; }

/* ---- contexts ---- */

struct context {
    struct context *next;
    bool is_owed; /* exactly one call */
    bool is_once; /* at most one */
    bool counts; /* as a request that has to complete before the connection's end */
    int line;
    atomic_int calls, released;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts;
static atomic_bool is_closed;
static bool has_queue;

#define context_new(is_once_) context_make((is_once_), __LINE__)

static struct context *context_make(bool is_once, int line)
{
    struct context *context = calloc(1, sizeof *context);
    context->is_once = is_once;
    context->line = line;
    pthread_mutex_lock(&mutex);
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&mutex);
    return context;
}

static void released(void *pointer)
{
    struct context *context = pointer;
    CHECK(atomic_fetch_add(&context->released, 1) == 0);
}

static void called(void *pointer)
{
    struct context *context = pointer;
    CHECK(atomic_load(&context->released) == 0);
    int before = atomic_fetch_add(&context->calls, 1);
    CHECK(!context->is_once || before == 0);
    /* With a queue several threads make calls at once. */
    CHECK(has_queue || !context->counts || !atomic_load(&is_closed));
}

/* ---- what the threads share ---- */

enum { SLOTS = 6, THREADS = 4 };

static blip_runtime *runtime;
static blip_queue *queue;
static blip_connection *connection;
static blip_transport *transport;
/* Requests that were sent, and requests of the peer. */
static blip_message *sent[SLOTS], *kept[SLOTS];
static char large[40000];

/* Puts a reference into a slot; what was there goes. */
static void put(blip_message **slots, uint8_t which, blip_message *message)
{
    pthread_mutex_lock(&mutex);
    blip_message *old = slots[which % SLOTS];
    slots[which % SLOTS] = message;
    pthread_mutex_unlock(&mutex);
    blip_message_release(old);
}

/* A reference of one's own; NULL if the slot is empty. */
static blip_message *get(blip_message **slots, uint8_t which)
{
    pthread_mutex_lock(&mutex);
    blip_message *message = slots[which % SLOTS] == NULL ? NULL : blip_message_retain(slots[which % SLOTS]);
    pthread_mutex_unlock(&mutex);
    return message;
}

/* ---- callbacks ---- */

static atomic_uint sink;

static void touch(blip_slice slice)
{
    unsigned sum = 0;
    for (size_t index = 0; index < slice.size; index++)
        sum += ((const unsigned char *)slice.data)[index];
    atomic_fetch_add(&sink, sum);
}

static size_t on_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    (void)message, (void)status;
    called(context);
    touch(data);
    return data.size % 3 == 0 ? data.size / 2 : data.size;
}

static void on_response(
    blip_connection *on, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)on, (void)request;
    called(context);
    CHECK(response == NULL || status == BLIP_OK);
    blip_slice body;
    if (response != NULL && blip_message_body(response, &body) == BLIP_OK)
        touch(body);
}

static blip_status on_request(blip_connection *on, blip_message *request, void *context)
{
    blip_slice body = {NULL, 0};
    called(context);
    (void)st(blip_message_body(request, &body));
    uint8_t choice = body.size > 0 ? *(const uint8_t *)body.data : 0;
    switch (choice & 7) {
    case 0: return BLIP_OK;
    case 1: return BLIP_ERROR_STATE;
    case 2: (void)st(blip_message_respond_data(request, body, blip_text("a/b"))); return BLIP_OK;
    case 3: (void)st(blip_message_respond_error(request, blip_text("Test"), 7, blip_text("no"))); return BLIP_OK;
    case 4: (void)st(blip_connection_send_data(on, blip_text("back"), body, 0, NULL, NULL, NULL)); return BLIP_OK;
    default: break;
    }
    (void)st(blip_message_defer(request));
    put(kept, choice >> 3, blip_message_retain(request));
    return BLIP_OK;
}

static blip_status on_stream(blip_connection *on, blip_message *request, void *context)
{
    (void)on;
    called(context);
    (void)st(blip_message_defer(request));
    uint64_t number = 0;
    (void)st(blip_message_number(request, &number));
    put(kept, (uint8_t)number, blip_message_retain(request));
    return BLIP_OK;
}

static void on_event(blip_connection *on, void *context) { (void)on, called(context); }
static void on_sent(blip_message *message, blip_status status, void *context)
{
    (void)message, (void)status;
    called(context);
}
static void on_pong(blip_connection *on, blip_status status, int64_t microseconds, void *context)
{
    (void)on, (void)status, (void)microseconds;
    called(context);
}
static void on_close(blip_connection *on, blip_status status, void *context)
{
    (void)on, (void)status;
    called(context);
    CHECK(!atomic_exchange(&is_closed, true));
}

static atomic_uint pulls;

static blip_status on_pull(void *buffer, size_t capacity, size_t *written, void *context)
{
    called(context);
    unsigned turn = atomic_fetch_add(&pulls, 1);
    *written = capacity < 3000 ? capacity : 3000;
    memset(buffer, 'p', *written);
    return turn % 3 == 2 ? BLIP_DATA_END : turn % 5 == 4 ? BLIP_AGAIN : BLIP_OK;
}

/* ---- the peer ---- */

static int version;
static atomic_bool is_full;
static atomic_uint unanswered[16], unanswered_at;

static size_t varint(uint8_t *to, uint64_t value)
{
    size_t size = 0;
    for (; value > 0x7F; value >>= 7)
        to[size++] = (uint8_t)(value | 0x80);
    to[size++] = (uint8_t)value;
    return size;
}

/* Takes the library's frames: remembers which requests may be answered. */
static blip_status carry(blip_transport *of, blip_slice frame, void *context)
{
    const uint8_t *at = frame.data, *end = at + frame.size;
    uint64_t values[2] = {0, 0};
    (void)of;
    called(context);
    if (atomic_load(&is_full))
        return BLIP_AGAIN;
    for (int index = 0; index < 2; index++)
        for (int shift = 0; at < end; shift += 7) {
            values[index] |= (uint64_t)(*at & 0x7F) << shift;
            if (*at++ < 0x80)
                break;
        }
    /* A request whose last frame this is, and that wants an answer. */
    if ((values[1] & 0x67) == 0)
        atomic_store(&unanswered[atomic_fetch_add(&unanswered_at, 1) % 16], (unsigned)values[0]);
    return BLIP_OK;
}

struct peer {
    uint64_t next;
    uint32_t checksum;
    uint64_t open, open_response; /* messages that go on */
};

static void deliver(struct peer *peer, uint64_t number, uint8_t flags, const uint8_t *payload, size_t size)
{
    static _Thread_local uint8_t frame[5000];
    size_t length = varint(frame, number);
    length += varint(frame + length, flags);
    memcpy(frame + length, payload, size);
    length += size;
    if (version == 3 && (flags & 7) < 3) {
        peer->checksum = ~peer->checksum;
        for (size_t index = 0; index < size; index++) {
            peer->checksum ^= payload[index];
            for (int bit = 0; bit < 8; bit++)
                peer->checksum = peer->checksum >> 1 ^ (0xEDB88320u & -(peer->checksum & 1));
        }
        peer->checksum = ~peer->checksum;
        for (int index = 0; index < 4; index++)
            frame[length++] = (uint8_t)(peer->checksum >> (24 - 8 * index));
    }
    blip_slice slice = {frame, length};
    for (int turn = 0; turn < 20 && st(blip_transport_did_receive(transport, slice)) == BLIP_AGAIN; turn++)
        nap();
}

static void peer_step(struct peer *peer, struct script *script)
{
    uint8_t what = byte(script), shape = byte(script), payload[4200];
    size_t size = 0;
    switch (what & 15) {
    case 0: case 1: case 2: case 3: {
        const char *profile = shape & 1 ? "echo" : shape & 2 ? "stream" : "none";
        payload[size++] = (uint8_t)(9 + strlen(profile));
        memcpy(payload + size, "Profile", 8);
        memcpy(payload + size + 8, profile, strlen(profile) + 1);
        size += 9 + strlen(profile);
        size_t body = shape & 4 ? 4000 : 20;
        memset(payload + size, byte(script), body);
        bool goes_on = shape & 8 && peer->open == 0;
        if (goes_on)
            peer->open = peer->next;
        deliver(peer, peer->next++, (shape & 0x10 ? 0x20 : 0) | (goes_on ? 0x40 : 0) | (shape & 0x20 ? 0x10 : 0), payload,
            size + body);
        break;
    }
    case 4: case 5:
        if (peer->open == 0)
            break;
        memset(payload, shape, 4000);
        deliver(peer, peer->open, shape & 1 ? 0x40 : 0, payload, 4000);
        if ((shape & 1) == 0)
            peer->open = 0;
        break;
    case 6: case 7: case 8: case 9: {
        unsigned number = peer->open_response != 0 ? (unsigned)peer->open_response
                                                   : atomic_exchange(&unanswered[shape % 16], 0);
        if (number == 0)
            break;
        payload[size++] = 0;
        memset(payload + size, shape, 200);
        peer->open_response = shape & 0x80 ? number : 0;
        deliver(peer, number, (shape & 0x40 ? 2 : 1) | (shape & 0x80 ? 0x40 : 0), payload, size + 200);
        break;
    }
    case 10:
        size = varint(payload, (uint64_t)byte(script) << 9);
        deliver(peer, shape, 4 | (what >> 4 & 1), payload, size);
        break;
    case 11: atomic_store(&is_full, shape & 1); break;
    case 12:
        atomic_store(&is_full, false);
        (void)st(blip_transport_did_drain(transport));
        break;
    case 13:
        if (shape >= 0xF0)
            deliver(peer, shape, what >> 4, payload, 0);
        else
            nap();
        break;
    case 14:
        if (shape >= 0xF8)
            (void)st(blip_transport_did_close(transport, shape & 1 ? BLIP_OK : BLIP_ERROR_CONNECTION_LOST));
        break;
    default: nap();
    }
}

/* ---- the program's threads ---- */

static blip_message *request_make(struct script *script)
{
    static const char *const profiles[] = {"a", "b", "long/profile", ""};
    blip_message *message = NULL;
    uint8_t shape = byte(script);
    CHECK(blip_request_new(blip_text(profiles[shape & 3]), &message) == BLIP_OK);
    blip_slice body = {large, shape & 4 ? sizeof large : (size_t)byte(script)};
    (void)st(blip_message_set_body(message, body));
    (void)st(blip_message_set_compressed(message, shape & 8));
    (void)st(blip_message_set_urgent(message, shape & 16));
    (void)st(blip_message_set_no_reply(message, (shape & 0xE0) == 0x20));
    switch (shape >> 5) {
    case 2: (void)st(blip_message_append_body_pushed(message)); break;
    case 3: {
        struct context *context = context_new(false);
        (void)st(blip_message_append_body_pulled(message, on_pull, context, released));
        break;
    }
    case 4: (void)st(blip_message_set_streamed(message, true)); break;
    case 5: (void)st(blip_message_set_timeout(message, shape & 3)); break;
    case 6: {
        struct context *context = context_new(true);
        (void)st(blip_message_set_sent_callback(message, on_sent, context, released));
        break;
    }
    default: break;
    }
    return message;
}

static void send_one(struct script *script)
{
    uint8_t shape = byte(script);
    blip_message *message = request_make(script);
    if (shape & 1) {
        struct context *context = context_new(true);
        context->counts = true;
        blip_status status = st(blip_connection_send(connection, message, on_response, context, released));
        context->is_owed = status == BLIP_OK && !has_queue;
    } else if (shape & 2) {
        blip_message *response = NULL;
        blip_status status = st(blip_connection_request(connection, message, shape >> 6, &response));
        CHECK(response == NULL || status == BLIP_OK);
        blip_message_release(response);
    } else {
        (void)st(blip_connection_send(connection, message, NULL, NULL, NULL));
    }
    put(sent, shape >> 2, message);
}

static void use_sent(struct script *script)
{
    uint8_t what = byte(script), which = byte(script);
    blip_message *message = get(sent, which);
    blip_slice value;
    uint64_t bytes;
    void *data;
    if (message == NULL)
        return;
    switch (what % 12) {
    case 0: case 1: (void)st(blip_message_cancel(message)); break;
    case 2: {
        blip_slice piece = {large, byte(script) * 64u};
        (void)st(blip_message_push_body(message, piece, which & 0x40));
        break;
    }
    case 3: (void)st(blip_message_push_body(message, blip_text(""), true)); break;
    case 4: (void)st(blip_message_resume_body(message)); break;
    case 5: (void)st(blip_message_bytes_sent(message, &bytes)); break;
    case 6: (void)st(blip_message_wait_sent(message, which >> 6)); break;
    case 7:
        if (st(blip_message_describe(message, true, &value)) == BLIP_OK)
            touch(value);
        break;
    case 8: {
        blip_message *copy = NULL;
        if (st(blip_message_copy(message, &copy)) == BLIP_OK)
            blip_message_release(copy);
        break;
    }
    case 9: {
        struct context *context = context_new(true);
        (void)st(blip_message_set_user_data(message, context, released));
        (void)st(blip_message_user_data(message, &data));
        break;
    }
    case 10: put(sent, which, NULL); break;
    default: (void)st(blip_message_number(message, &bytes));
    }
    blip_message_release(message);
}

static void use_kept(struct script *script)
{
    uint8_t what = byte(script), which = byte(script);
    blip_message *message = get(kept, which), *response = NULL;
    blip_slice value;
    uint64_t size;
    uint8_t buffer[100];
    size_t count;
    bool flag;
    if (message == NULL)
        return;
    switch (what % 12) {
    case 0: (void)st(blip_message_respond_text(message, blip_text("late"))); break;
    case 1:
        if (st(blip_response_new(message, &response)) != BLIP_OK)
            break;
        value = (blip_slice) {large, sizeof large};
        (void)st(blip_message_set_body(response, value));
        (void)st(blip_message_respond(message, response));
        blip_message_release(response);
        break;
    case 2: (void)st(blip_message_respond_error(message, blip_text("Test"), which, blip_text("late"))); break;
    case 3: {
        struct context *context = context_new(false);
        (void)st(blip_message_set_data_callback(message, on_data, context, released));
        break;
    }
    case 4: (void)st(blip_message_read(message, buffer, sizeof buffer, &count)); break;
    case 5: (void)st(blip_message_read_wait(message, buffer, sizeof buffer, which >> 6, &count)); break;
    case 6: (void)st(blip_message_pause_reading(message)); break;
    case 7: (void)st(blip_message_resume_reading(message)); break;
    case 8: put(kept, which, NULL); break;
    case 9: (void)st(blip_message_is_responded(message, &flag)); break;
    case 10: (void)st(blip_message_is_complete(message, &flag)); break;
    default:
        (void)st(blip_message_body_size(message, &size));
        (void)st(blip_message_body(message, &value));
    }
    blip_message_release(message);
}

static void use_connection(struct script *script)
{
    uint8_t what = byte(script);
    struct context *context;
    switch (what % 16) {
    case 0: {
        static const int32_t which[] = {BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_REQUESTS_PENDING};
        uint64_t values[2];
        (void)st(blip_connection_counter_values(connection, which, values, 2));
        break;
    }
    case 1: {
        blip_counters *counters = NULL;
        if (what & 16 ? st(blip_connection_counters(connection, &counters)) == BLIP_OK
                      : st(blip_runtime_counters(runtime, &counters)) == BLIP_OK)
            blip_counters_release(counters);
        break;
    }
    case 2:
        context = context_new(true);
        (void)st(blip_connection_ping(connection, what >> 6, on_pong, context, released));
        break;
    case 3:
        context = context_new(true);
        (void)st(blip_connection_perform(connection, on_event, context, released));
        break;
    case 4: {
        int32_t state;
        (void)st(blip_connection_state(connection, &state));
        break;
    }
    case 5:
        context = context_new(false);
        (void)st(blip_connection_set_handler(connection, blip_text("echo"), 0, on_request, context, released));
        break;
    case 6:
        context = context_new(false);
        (void)st(blip_connection_set_handler(
            connection, blip_text("stream"), BLIP_HANDLER_STREAM, on_stream, context, released));
        break;
    case 7: (void)st(blip_connection_remove_handler(connection, blip_text(what & 16 ? "echo" : "stream"))); break;
    case 8: blip_connection_release(blip_connection_retain(connection)); break;
    case 9: {
        blip_error *error = NULL;
        (void)st(blip_connection_error(connection, &error));
        break;
    }
    case 10: {
        uint64_t bytes;
        (void)st(blip_connection_backlog(connection, &bytes));
        break;
    }
    case 11:
        context = context_new(false);
        (void)st(blip_connection_set_user_data(connection, context, released));
        break;
    case 12:
        if (byte(script) >= 0xF0)
            (void)st(blip_connection_close_gracefully(connection, what >> 6));
        break;
    case 13:
        if (byte(script) >= 0xF8)
            (void)st(blip_connection_close(connection, 1000, blip_text("done")));
        break;
    case 14: (void)st(blip_connection_wait_closed(connection, what >> 6 == 3)); break;
    default: (void)st(blip_connection_answer_close_request(connection, what & 16));
    }
}

static void use_queue(struct script *script)
{
    uint8_t what = byte(script);
    size_t count = 0;
    if (queue == NULL)
        return;
    if (what & 1) {
        (void)st(blip_queue_dispatch(queue, what >> 2, what & 2 ? 1 : 0, &count));
    } else if (what & 2) {
        (void)st(blip_queue_wake(queue));
    } else {
        (void)st(blip_queue_count(queue, &count));
    }
}

struct work {
    struct script script;
    bool is_peer;
    pthread_t thread;
};

static pthread_barrier_t barrier;

static void *work(void *pointer)
{
    struct work *own = pointer;
    struct peer peer = {.next = 1};
    pthread_barrier_wait(&barrier);
    if (own->is_peer) {
        (void)st(blip_transport_did_open(transport));
        while (own->script.at < own->script.end)
            peer_step(&peer, &own->script);
        return NULL;
    }
    while (own->script.at < own->script.end) {
        switch (byte(&own->script) & 7) {
        case 0: case 1: send_one(&own->script); break;
        case 2: use_sent(&own->script); break;
        case 3: case 4: use_kept(&own->script); break;
        case 5: case 6: use_connection(&own->script); break;
        default: use_queue(&own->script);
        }
    }
    return NULL;
}

/* ---- a run ---- */

static void begin(uint8_t shape)
{
    has_queue = shape & 1;
    version = shape & 2 ? 2 : 3;
    atomic_store(&is_closed, false);
    atomic_store(&is_full, false);
    atomic_store(&unanswered_at, 0);
    for (int index = 0; index < 16; index++)
        atomic_store(&unanswered[index], 0);
    blip_runtime_options *options = blip_runtime_options_new();
    CHECK(blip_runtime_options_set_threads(options, shape & 4 ? 2 : 1) == BLIP_OK);
    if (has_queue) {
        CHECK(blip_queue_new(shape & 8 ? 2 : 0, &queue) == BLIP_OK);
        CHECK(blip_runtime_options_set_queue(options, queue) == BLIP_OK);
    }
    CHECK(blip_runtime_new(options, &runtime) == BLIP_OK);
    blip_runtime_options_release(options);
    struct context *context = context_new(false);
    CHECK(blip_transport_new(carry, context, released, &transport) == BLIP_OK);
    CHECK(blip_connection_from_transport(
              runtime, transport, blip_text(version == 2 ? "BLIP" : "BLIP_3"), NULL, &connection) == BLIP_OK);
    context = context_new(true);
    context->is_owed = !has_queue;
    CHECK(blip_connection_set_close_callback(connection, on_close, context, released) == BLIP_OK);
    context = context_new(false);
    CHECK(blip_connection_set_handler(connection, blip_text("echo"), 0, on_request, context, released) == BLIP_OK);
    context = context_new(false);
    CHECK(blip_connection_set_handler(
              connection, blip_text("stream"), BLIP_HANDLER_STREAM, on_stream, context, released) == BLIP_OK);
}

static void drain(void)
{
    size_t count = 1;
    for (int turn = 0; queue != NULL && turn < 10000 && count > 0; turn++)
        if (st(blip_queue_dispatch(queue, 1000, 0, &count)) != BLIP_OK)
            break;
}

static void settle(void)
{
    for (struct context *context = contexts, *next; context != NULL; context = next) {
        next = context->next;
        for (int turn = 0; atomic_load(&context->released) == 0 && turn < 50000; turn++)
            nap();
        int calls = atomic_load(&context->calls), releases = atomic_load(&context->released);
        if (releases != 1 || (context->is_owed && calls != 1))
            fprintf(stderr, "made in line %d: %d calls, released %d times\n", context->line, calls, releases);
        CHECK(releases == 1 && (!context->is_owed || calls == 1));
        free(context);
    }
    contexts = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    uint8_t shape = data[0];
    unsigned count = 2 + (shape >> 4) % (THREADS - 1);
    struct work works[THREADS + 1];
    size_t part = (size - 1) / (count + 1);
    begin(shape);
    CHECK(pthread_barrier_init(&barrier, NULL, count + 1) == 0);
    for (unsigned index = 0; index <= count; index++) {
        const uint8_t *at = data + 1 + part * index;
        works[index].script = (struct script) {at, index == count ? data + size : at + part};
        works[index].is_peer = index == 0;
        CHECK(pthread_create(&works[index].thread, NULL, work, &works[index]) == 0);
    }
    for (unsigned index = 0; index <= count; index++)
        CHECK(pthread_join(works[index].thread, NULL) == 0);
    pthread_barrier_destroy(&barrier);
    if (shape & 0x80)
        (void)st(blip_connection_close(connection, 1000, blip_text("end")));
    drain();
    blip_status status = blip_runtime_stop(runtime, 2000);
    if (status != BLIP_OK && !has_queue)
        finding("the runtime stops", __LINE__, status);
    drain();
    for (uint8_t index = 0; index < SLOTS; index++) {
        put(sent, index, NULL);
        put(kept, index, NULL);
    }
    blip_connection_release(connection);
    blip_transport_release(transport);
    blip_queue_release(queue);
    queue = NULL;
    blip_runtime_release(runtime);
    for (uint8_t index = 0; index < SLOTS; index++)
        put(kept, index, NULL);
    settle();
    return 0;
}
