/* Everything at once, in random order, for a few seconds: what was accepted completes exactly once, every context is
 * released exactly once, and every connection ends exactly once, after its completions. STRESS_SECONDS makes it longer,
 * STRESS_SEED repeats a run as far as threads can be. */

#define _POSIX_C_SOURCE 200809L

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 6, WORKERS = 3, TAKERS = 3, RUNTIMES = 2, POCKETS = 64, LARGE = 300000 };

struct shared {
    blip_runtime *server_runtime, *client_runtimes[RUNTIMES];
    blip_queue *server_queue, *client_queue;
    blip_listener *listener;
    char url[160];
    atomic_bool is_over, are_queues_over;
    uint32_t seed;
    atomic_long accepted, refused, completed, released, connections, closed, closes_released, late, twice;
    atomic_long server_opened, server_closed, stopped, answered, data_released, data_set, sent_told, sent_wanted;
    atomic_long bodies_wrong, bodies_read, pings, pongs;
    /* Requests of the server that are answered later, on other threads. */
    pthread_mutex_t mutex;
    blip_message *pocket[POCKETS];
};

static struct shared shared;

enum { SEED = 3 };
static unsigned char pattern[LARGE]; /* what bodies are cut from */

static uint32_t random_next(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static uint32_t random_below(uint32_t *state, uint32_t limit)
{
    return random_next(state) % limit;
}

static _Thread_local uint32_t callback_random;

/* Callbacks run on threads that others made. */
static uint32_t chance(uint32_t limit)
{
    if (callback_random == 0)
        callback_random = (uint32_t)(uintptr_t)&callback_random * 2654435761u | 1;
    return random_below(&callback_random, limit);
}

/* ---- a connection of a client ---- */

struct link {
    atomic_int references;
    atomic_bool has_closed;
    atomic_long open; /* accepted and not completed */
};

static void link_release(struct link *link)
{
    if (atomic_fetch_sub(&link->references, 1) == 1)
        free(link);
}

static void link_closed(blip_connection *connection, blip_status status, void *context)
{
    struct link *link = context;
    (void)status;
    if (atomic_exchange(&link->has_closed, true))
        atomic_fetch_add(&shared.twice, 1);
    atomic_fetch_add(&shared.closed, 1);
    if (chance(2) == 0)
        blip_connection_close(connection, 1000, S("again"));
    if (chance(4) == 0)
        blip_connection_release(blip_connection_retain(connection));
}

static void link_closed_release(void *context)
{
    atomic_fetch_add(&shared.closes_released, 1);
    link_release(context);
}

/* ---- requests of a client ---- */

struct ask {
    struct link *link;
    atomic_int calls;
    bool is_echo;
    size_t size;
};

static size_t take_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    (void)context;
    (void)status;
    if (chance(50) == 0)
        blip_message_release(blip_message_retain(message));
    if (chance(200) == 0)
        blip_message_set_data_callback(message, NULL, NULL, NULL);
    return chance(10) == 0 ? data.size / 2 : data.size;
}

static void data_released(void *context)
{
    (void)context;
    atomic_fetch_add(&shared.data_released, 1);
}

static void set_data(blip_message *message)
{
    atomic_fetch_add(&shared.data_set, 1);
    blip_message_set_data_callback(message, take_data, &shared, data_released);
}

static void *read_stream(void *context)
{
    blip_message *message = context;
    char buffer[5000];
    size_t size;
    int64_t start = now_ms();
    while (blip_message_read_wait(message, buffer, sizeof buffer, SOON, &size) == BLIP_OK) {
        start = now_ms();
        if (chance(100) == 0)
            break;
    }
    /* The end of the connection wakes it; so does the deadline of the request. */
    CHECK_AT_MOST(now_ms() - start, SOON - 1);
    blip_message_release(message);
    return NULL;
}

static void read_elsewhere(blip_message *message)
{
    pthread_t thread;
    if (blip_message_retain(message) == NULL)
        return;
    if (pthread_create(&thread, NULL, read_stream, message) == 0)
        pthread_detach(thread);
    else
        blip_message_release(message);
}

static void completed(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct ask *ask = context;
    if (atomic_fetch_add(&ask->calls, 1) != 0)
        atomic_fetch_add(&shared.twice, 1);
    if (atomic_load(&ask->link->has_closed))
        atomic_fetch_add(&shared.late, 1);
    atomic_fetch_add(&shared.completed, 1);
    bool is_whole = false;
    blip_slice body;
    if (response != NULL && blip_message_is_complete(response, &is_whole) == BLIP_OK) {
        if (!is_whole && chance(3) == 0)
            set_data(response);
        else if (!is_whole && chance(3) == 0)
            read_elsewhere(response);
        else if (is_whole && ask->is_echo && blip_message_body(response, &body) == BLIP_OK) {
            int32_t type;
            CHECK_OK(blip_message_type(response, &type));
            if (type == BLIP_MESSAGE_RESPONSE && body.size == ask->size) {
                atomic_fetch_add(&shared.bodies_read, 1);
                if (!matches_pattern(body.data, body.size, 0, SEED))
                    atomic_fetch_add(&shared.bodies_wrong, 1);
            }
        }
    }
    (void)status;
    switch (chance(12)) {
    case 0: blip_message_cancel(request); break;
    case 1: blip_message_release(blip_message_retain(request)); break;
    case 2: blip_connection_set_default_handler(connection, 0, NULL, NULL, NULL); break;
    case 3: if (chance(20) == 0) blip_connection_close(connection, 1000, S("")); break;
    case 4: {
        blip_message *more = make_request("empty", NULL);
        blip_connection_send(connection, more, NULL, NULL, NULL);
        blip_message_release(more);
        break;
    }
    case 5: blip_connection_release(blip_connection_retain(connection)); break;
    default: break;
    }
}

static void completed_release(void *context)
{
    struct ask *ask = context;
    atomic_fetch_add(&shared.released, 1);
    /* Accepted ones were called first. */
    if (atomic_load(&ask->calls) == 0)
        atomic_fetch_add(&shared.refused, 1);
    atomic_fetch_sub(&ask->link->open, 1);
    link_release(ask->link);
    free(ask);
}

static void was_sent(blip_message *message, blip_status status, void *context)
{
    (void)message;
    (void)status;
    (void)context;
    atomic_fetch_add(&shared.sent_told, 1);
}

static void was_ponged(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    (void)connection;
    (void)status;
    (void)microseconds;
    (void)context;
}

static void pong_released(void *context)
{
    (void)context;
    atomic_fetch_add(&shared.pongs, 1);
}

static const char *const profiles[] = {"echo", "echo", "echo", "later", "stream", "source", "empty", "missing", "back"};

/* Sends something; gives the request back now and then. */
static blip_message *ask_something(blip_connection *connection, struct link *link, uint32_t *random)
{
    const char *profile = profiles[random_below(random, sizeof profiles / sizeof *profiles)];
    blip_message *request = make_request(profile, NULL);
    struct ask *ask = calloc(1, sizeof *ask);
    REQUIRE(ask != NULL);
    ask->link = link;
    ask->is_echo = strcmp(profile, "echo") == 0;
    ask->size = random_below(random, 10) == 0 ? random_below(random, LARGE) : random_below(random, 200);
    CHECK_OK(blip_message_set_body(request, bytes_slice(pattern, ask->size)));
    if (random_below(random, 8) == 0)
        CHECK_OK(blip_message_set_compressed(request, true));
    if (random_below(random, 8) == 0)
        CHECK_OK(blip_message_set_urgent(request, true));
    if (random_below(random, 16) == 0)
        CHECK_OK(blip_message_set_no_reply(request, true));
    if (random_below(random, 6) == 0)
        CHECK_OK(blip_message_set_timeout(request, random_below(random, 20)));
    if (random_below(random, 4) == 0)
        CHECK_OK(blip_message_set_streamed(request, true));
    bool wants_sent = random_below(random, 8) == 0;
    if (wants_sent)
        CHECK_OK(blip_message_set_sent_callback(request, was_sent, &shared, NULL));
    atomic_fetch_add(&link->references, 1);
    atomic_fetch_add(&link->open, 1);
    blip_status status = blip_connection_send(connection, request, completed, ask, completed_release);
    if (status == BLIP_OK) {
        atomic_fetch_add(&shared.accepted, 1);
        if (wants_sent)
            atomic_fetch_add(&shared.sent_wanted, 1);
    } else {
        CHECK(status == BLIP_ERROR_CLOSED || status == BLIP_ERROR_STOPPED || status == BLIP_ERROR_HANDLE);
    }
    return request;
}

static void play(blip_runtime *runtime, uint32_t *random)
{
    blip_connection *connection = NULL;
    struct link *link = calloc(1, sizeof *link);
    REQUIRE(link != NULL);
    atomic_store(&link->references, 2);
    blip_connection_options *options = NULL;
    if (shared.client_queue != NULL) {
        options = blip_connection_options_new();
        CHECK_OK(blip_connection_options_set_queue(options, shared.client_queue));
    }
    blip_status status = blip_connection_new(runtime, S(shared.url), options, &connection);
    blip_connection_options_release(options);
    /* Resources: the runtime was stopped, and the connection ended, before its handle could be given. */
    if (status == BLIP_ERROR_STOPPED || status == BLIP_ERROR_RESOURCES) {
        free(link);
        return;
    }
    REQUIRE_OK(status);
    CHECK_OK(blip_connection_set_close_callback(connection, link_closed, link, link_closed_release));
    atomic_fetch_add(&shared.connections, 1);
    uint32_t opening = random_below(random, 4);
    if (opening == 0)
        blip_connection_wait_open(connection, SOON);
    else if (opening == 1)
        blip_connection_wait_open(connection, random_below(random, 3));
    else if (opening == 2)
        blip_connection_connect(connection);
    blip_message *kept[8] = {NULL};
    uint32_t count = random_below(random, 200);
    for (uint32_t i = 0; i < count && !atomic_load(&shared.is_over); i++) {
        blip_message *request = ask_something(connection, link, random);
        uint32_t place = random_below(random, 8);
        if (kept[place] != NULL) {
            if (random_below(random, 2) == 0)
                blip_message_cancel(kept[place]);
            if (random_below(random, 16) == 0)
                blip_message_wait_sent(kept[place], 1);
            blip_message_release(kept[place]);
        }
        kept[place] = request;
        switch (random_below(random, 40)) {
        case 0: sleep_ms(random_below(random, 3)); break;
        case 1:
            atomic_fetch_add(&shared.pings, 1);
            blip_connection_ping(connection, 1000, was_ponged, &shared, pong_released);
            break;
        case 2: {
            blip_message *response = NULL, *more = make_request("echo", "waits");
            if (blip_connection_request(connection, more, random_below(random, 10), &response) == BLIP_OK)
                blip_message_release(response);
            blip_message_release(more);
            break;
        }
        case 3: {
            int32_t which[] = {BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_REQUESTS_PENDING};
            uint64_t values[2];
            blip_connection_counter_values(connection, which, values, 2);
            break;
        }
        case 4: blip_connection_connect(connection); break;
        default: break;
        }
        if (opening != 3 && random_below(random, 300) == 0)
            break;
    }
    switch (random_below(random, 5)) {
    case 0: blip_connection_close(connection, 1000, S("enough")); break;
    case 1: blip_connection_close_gracefully(connection, random_below(random, 50)); break;
    case 2: {
        blip_connection_close(connection, 3000, S(""));
        CHECK_OK(blip_connection_wait_closed(connection, SOON));
        if (shared.client_queue == NULL)
            CHECK_INT(atomic_load(&link->open), 0);
        break;
    }
    default: break;
    }
    for (int i = 0; i < 8; i++)
        blip_message_release(kept[i]);
    blip_connection_release(connection);
    link_release(link);
}

static void *client(void *context)
{
    uint32_t random = shared.seed * 2654435761u + 77 * (uint32_t)(uintptr_t)context + 1;
    while (!atomic_load(&shared.is_over))
        play(shared.client_runtimes[random_below(&random, RUNTIMES)], &random);
    return NULL;
}

/* ---- the server ---- */

static void pocket_put(blip_message *request)
{
    pthread_mutex_lock(&shared.mutex);
    uint32_t place = chance(POCKETS);
    blip_message *old = shared.pocket[place];
    shared.pocket[place] = request;
    pthread_mutex_unlock(&shared.mutex);
    /* Unanswered: the library answers. */
    blip_message_release(old);
}

static void answer(blip_message *request)
{
    blip_slice body;
    blip_message *response;
    if (request == NULL)
        return;
    switch (chance(6)) {
    case 0: blip_message_respond_error(request, S("Stress"), 7, S("no")); break;
    case 1: blip_message_respond_empty(request); break;
    case 2:
        if (blip_response_new(request, &response) == BLIP_OK) {
            bool sent = chance(2) == 0;
            blip_message_set_body(response, bytes_slice(pattern, chance(LARGE)));
            if (sent)
                blip_message_respond(request, response);
            blip_message_release(response);
        }
        break;
    case 3: break;
    default:
        if (blip_message_body(request, &body) == BLIP_OK)
            blip_message_respond_data(request, body, S("a/b"));
        if (chance(3) == 0)
            blip_message_respond_empty(request);
    }
    atomic_fetch_add(&shared.answered, 1);
}

static void *worker(void *context)
{
    (void)context;
    while (!atomic_load(&shared.is_over)) {
        pthread_mutex_lock(&shared.mutex);
        uint32_t place = chance(POCKETS);
        blip_message *request = shared.pocket[place];
        shared.pocket[place] = NULL;
        pthread_mutex_unlock(&shared.mutex);
        answer(request);
        blip_message_release(request);
        if (request == NULL)
            sleep_ms(1);
    }
    return NULL;
}

static blip_status handle(blip_connection *connection, blip_message *request, void *context)
{
    const char *kind = context;
    blip_slice body, profile;
    CHECK_OK(blip_message_profile(request, &profile));
    switch (kind[0]) {
    case 'e':
        if (chance(3) == 0) {
            blip_message *response;
            if (blip_response_new(request, &response) != BLIP_OK)
                return BLIP_OK;
            blip_message_body(request, &body);
            blip_message_set_body(response, body);
            blip_message_set_compressed(response, chance(2) == 0);
            blip_message_respond(request, response);
            blip_message_release(response);
        } else if (blip_message_body(request, &body) == BLIP_OK) {
            blip_message_respond_data(request, body, S(""));
        }
        return BLIP_OK;
    case 'l':
        if (blip_message_defer(request) == BLIP_OK)
            pocket_put(blip_message_retain(request));
        return BLIP_OK;
    case 's':
        switch (chance(4)) {
        case 0: set_data(request); break;
        case 1: read_elsewhere(request); break;
        case 2: blip_message_respond_text(request, S("early")); break;
        default: break;
        }
        return chance(10) == 0 ? BLIP_ERROR_STATE : BLIP_OK;
    case 'o': /* source */
        blip_message_respond_data(request, bytes_slice(pattern, chance(LARGE)), S(""));
        return BLIP_OK;
    case 'b': { /* back: asks the client */
        blip_message *back = make_request("anything", "from the server");
        blip_connection_send(connection, back, NULL, NULL, NULL);
        blip_message_release(back);
        if (chance(100) == 0)
            blip_connection_close(connection, 1000, S("the server has enough"));
        return BLIP_OK;
    }
    default: return BLIP_OK;
    }
}

static void server_opened(blip_connection *connection, void *context)
{
    (void)context;
    atomic_fetch_add(&shared.server_opened, 1);
    if (chance(20) == 0)
        blip_connection_close(connection, 1000, S("at once"));
    if (chance(4) == 0)
        blip_connection_set_handler(connection, S("back"), 0, handle, (void *)"later", NULL);
}

static void server_closed(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    (void)status;
    (void)context;
    atomic_fetch_add(&shared.server_closed, 1);
}

static void server_stopped(blip_listener *listener, blip_status status, void *context)
{
    (void)listener;
    (void)status;
    (void)context;
    atomic_fetch_add(&shared.stopped, 1);
}

static void asked_to_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener;
    (void)context;
    if (chance(30) == 0)
        blip_connection_close(connection, 1000, S("refused"));
}

static void open_server(void)
{
    blip_slice url;
    blip_listener_options *options = blip_listener_options_new();
    if (shared.server_queue != NULL)
        CHECK_OK(blip_listener_options_set_queue(options, shared.server_queue));
    REQUIRE_OK(blip_listener_new(shared.server_runtime, options, &shared.listener));
    blip_listener_options_release(options);
    blip_listener *l = shared.listener;
    CHECK_OK(blip_listener_set_handler(l, S("echo"), 0, handle, (void *)"echo", NULL));
    CHECK_OK(blip_listener_set_handler(l, S("later"), 0, handle, (void *)"later", NULL));
    CHECK_OK(blip_listener_set_handler(l, S("stream"), BLIP_HANDLER_STREAM, handle, (void *)"stream", NULL));
    CHECK_OK(blip_listener_set_handler(l, S("source"), 0, handle, (void *)"ource", NULL));
    CHECK_OK(blip_listener_set_handler(l, S("back"), 0, handle, (void *)"back", NULL));
    CHECK_OK(blip_listener_set_handler(l, S("empty"), 0, handle, (void *)"", NULL));
    CHECK_OK(blip_listener_set_open_callback(l, server_opened, NULL, NULL));
    CHECK_OK(blip_listener_set_close_callback(l, server_closed, NULL, NULL));
    CHECK_OK(blip_listener_set_stopped_callback(l, server_stopped, NULL, NULL));
    CHECK_OK(blip_listener_set_accept_callback(l, asked_to_accept, NULL, NULL));
    REQUIRE_OK(blip_listener_start(l, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(l, &url));
    snprintf(shared.url, sizeof shared.url, "%.*s", (int)url.size, (const char *)url.data);
}

/* ---- threads that take events ---- */

static void *dispatcher(void *context)
{
    while (!atomic_load(&shared.are_queues_over))
        blip_queue_dispatch(context, 1 + chance(20), 20, NULL);
    return NULL;
}

/* Treats an event as the callback would, and keeps some events for a while. */
static void take_event(blip_event *event)
{
    int32_t kind;
    void *context;
    blip_connection *connection = blip_event_connection(event);
    blip_message *message = blip_event_message(event);
    CHECK_OK(blip_event_kind(event, &kind));
    CHECK_OK(blip_event_context(event, &context));
    switch (kind) {
    case BLIP_EVENT_REQUEST:
        if (strcmp(context, "stream") != 0 && chance(3) == 0)
            answer(message);
        else
            handle(connection, message, context);
        break;
    case BLIP_EVENT_DATA: {
        char buffer[3000];
        size_t size;
        while (blip_message_read(message, buffer, sizeof buffer, &size) == BLIP_OK) { }
        break;
    }
    case BLIP_EVENT_OPEN: server_opened(connection, context); break;
    case BLIP_EVENT_CLOSE: server_closed(connection, blip_event_status(event), context); break;
    case BLIP_EVENT_LISTENER_STOPPED: server_stopped(blip_event_listener(event), 0, context); break;
    case BLIP_EVENT_ACCEPT: asked_to_accept(blip_event_listener(event), connection, context); break;
    default: break;
    }
}

static void *puller(void *context)
{
    blip_event *kept[16] = {NULL};
    while (!atomic_load(&shared.are_queues_over)) {
        blip_event *events[8];
        size_t count = 0;
        CHECK_OK(blip_queue_next(context, events, 1 + chance(8), 20, &count));
        for (size_t i = 0; i < count; i++) {
            take_event(events[i]);
            uint32_t place = chance(16);
            blip_event_release(kept[place]);
            kept[place] = events[i];
        }
        if (count == 0)
            for (int i = 0; i < 16; i++) {
                blip_event_release(kept[i]);
                kept[i] = NULL;
            }
    }
    for (int i = 0; i < 16; i++)
        blip_event_release(kept[i]);
    return NULL;
}

/* ---- runs ---- */

static long stress_seconds(long otherwise)
{
    const char *text = getenv("STRESS_SECONDS");
    return text == NULL ? otherwise : strtol(text, NULL, 10);
}

static bool reaches(atomic_long *value, atomic_long *goal)
{
    int64_t end = now_ms() + SOON;
    while (atomic_load(value) < atomic_load(goal) && now_ms() < end)
        sleep_ms(2);
    return CHECK_INT(atomic_load(value), atomic_load(goal));
}

enum { SERVER_QUEUE = 1, CLIENT_QUEUE = 2, STOP_SERVER_FIRST = 4, STOP_CLIENTS_FIRST = 8, DROP_LISTENER = 16 };

static void run(unsigned flags, int64_t milliseconds)
{
    pthread_t clients[CLIENTS], workers[WORKERS], takers[2 * TAKERS];
    size_t taker_count = 0;
    memset(&shared, 0, sizeof shared);
    pthread_mutex_init(&shared.mutex, NULL);
    const char *seed = getenv("STRESS_SEED");
    shared.seed = seed == NULL ? (uint32_t)now_ms() : (uint32_t)strtoul(seed, NULL, 10);
    test_note("seed %u", shared.seed);
    fill_pattern(pattern, LARGE, 0, SEED);
    shared.server_runtime = make_runtime(2);
    for (int i = 0; i < RUNTIMES; i++)
        shared.client_runtimes[i] = make_runtime(1 + (uint32_t)i);
    if (flags & SERVER_QUEUE)
        REQUIRE_OK(blip_queue_new(50, &shared.server_queue));
    if (flags & CLIENT_QUEUE)
        REQUIRE_OK(blip_queue_new(50, &shared.client_queue));
    open_server();
    for (int i = 0; i < TAKERS && (flags & SERVER_QUEUE); i++)
        REQUIRE_INT(pthread_create(&takers[taker_count++], NULL, puller, shared.server_queue), 0);
    for (int i = 0; i < TAKERS && (flags & CLIENT_QUEUE); i++)
        REQUIRE_INT(pthread_create(&takers[taker_count++], NULL, dispatcher, shared.client_queue), 0);
    for (int i = 0; i < WORKERS; i++)
        REQUIRE_INT(pthread_create(&workers[i], NULL, worker, NULL), 0);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        REQUIRE_INT(pthread_create(&clients[i], NULL, client, (void *)i), 0);
    sleep_ms(milliseconds);
    if (flags & STOP_SERVER_FIRST)
        CHECK_OK(blip_runtime_stop(shared.server_runtime, SOON));
    if (flags & DROP_LISTENER) {
        CHECK_OK(blip_listener_stop(shared.listener, false, 0));
        CHECK_OK(blip_listener_wait_stopped(shared.listener, SOON));
    }
    if (flags & STOP_CLIENTS_FIRST)
        for (int i = 0; i < RUNTIMES; i++)
            CHECK_OK(blip_runtime_stop(shared.client_runtimes[i], SOON));
    if (flags & (STOP_SERVER_FIRST | STOP_CLIENTS_FIRST | DROP_LISTENER))
        sleep_ms(30);
    atomic_store(&shared.is_over, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    reaches(&shared.closed, &shared.connections);
    reaches(&shared.closes_released, &shared.connections);
    reaches(&shared.completed, &shared.accepted);
    atomic_long both = atomic_load(&shared.accepted) + atomic_load(&shared.refused);
    reaches(&shared.released, &both);
    for (int i = 0; i < POCKETS; i++)
        blip_message_release(shared.pocket[i]);
    blip_listener_release(shared.listener);
    atomic_long one = 1;
    reaches(&shared.stopped, &one);
    reaches(&shared.sent_told, &shared.sent_wanted);
    reaches(&shared.data_released, &shared.data_set);
    reaches(&shared.pongs, &shared.pings);
    for (int i = 0; i < RUNTIMES; i++)
        drop_runtime(shared.client_runtimes[i]);
    drop_runtime(shared.server_runtime);
    atomic_store(&shared.are_queues_over, true);
    for (size_t i = 0; i < taker_count; i++)
        pthread_join(takers[i], NULL);
    blip_queue_release(shared.server_queue);
    blip_queue_release(shared.client_queue);
    CHECK_INT(atomic_load(&shared.completed), atomic_load(&shared.accepted));
    CHECK_INT(atomic_load(&shared.released), both);
    CHECK_INT(atomic_load(&shared.closed), atomic_load(&shared.connections));
    CHECK_INT(atomic_load(&shared.stopped), 1);
    if (!(flags & (SERVER_QUEUE | CLIENT_QUEUE)))
        CHECK_INT(atomic_load(&shared.late), 0);
    CHECK_INT(atomic_load(&shared.twice), 0);
    CHECK_INT(atomic_load(&shared.bodies_wrong), 0);
    CHECK_AT_LEAST(atomic_load(&shared.server_closed), atomic_load(&shared.server_opened));
    CHECK_AT_LEAST(atomic_load(&shared.completed), 10);
    test_note("%ld requests on %ld connections, %ld bodies compared", atomic_load(&shared.completed),
        atomic_load(&shared.connections), atomic_load(&shared.bodies_read));
    pthread_mutex_destroy(&shared.mutex);
}

TEST_SECONDS(everything_at_once, 120)
{
    run(0, stress_seconds(2) * 1000);
}

TEST_SECONDS(everything_at_once_through_queues, 120)
{
    run(SERVER_QUEUE | CLIENT_QUEUE, stress_seconds(2) * 1000);
}

TEST_SECONDS(a_listener_stops_in_the_middle_of_it, 120)
{
    int64_t end = now_ms() + stress_seconds(2) * 1000;
    do
        run(DROP_LISTENER, 60);
    while (now_ms() < end);
}

TEST_SECONDS(the_servers_runtime_stops_in_the_middle_of_it, 120)
{
    int64_t end = now_ms() + stress_seconds(2) * 1000;
    do
        run(STOP_SERVER_FIRST, 60);
    while (now_ms() < end);
}

TEST_SECONDS(the_clients_runtimes_stop_in_the_middle_of_it, 120)
{
    int64_t end = now_ms() + stress_seconds(2) * 1000;
    do
        run(STOP_CLIENTS_FIRST, 60);
    while (now_ms() < end);
}

TEST_SECONDS(runtimes_stop_under_queues, 120)
{
    int64_t end = now_ms() + stress_seconds(2) * 1000;
    do {
        run(SERVER_QUEUE | CLIENT_QUEUE | STOP_CLIENTS_FIRST, 60);
        run(SERVER_QUEUE | CLIENT_QUEUE | STOP_SERVER_FIRST, 60);
    } while (now_ms() < end);
}
