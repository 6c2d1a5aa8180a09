/* What looks like a pointer is checked: anything but a live handle of the right kind is refused by every function of
 * the header, and nothing crashes. The table comes from blip.h itself. */

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct function {
    const char *name;
    int32_t (*call)(void **handles, bool null_results);
    int kinds[3];
    int handles;
    int results;
    unsigned optional; /* bit i: handle i may be NULL */
    bool has_release, is_void, optional_results;
};

static uint64_t results[6][8];
static char scratch[64];
static const int32_t some_counters[1] = {BLIP_COUNTER_MESSAGES_SENT};
static atomic_int releases;

static void count_one_release(void *context)
{
    CHECK_POINTER(context, scratch);
    atomic_fetch_add(&releases, 1);
}

#include "handles.inc"

enum { FUNCTIONS = sizeof functions / sizeof *functions };

static void *live[KINDS], *released[KINDS];
static blip_runtime *runtime;

static void release_kind(int kind, void *handle)
{
    switch (kind) {
    case KIND_RUNTIME_OPTIONS: blip_runtime_options_release(handle); break;
    case KIND_RUNTIME: blip_runtime_release(handle); break;
    case KIND_QUEUE: blip_queue_release(handle); break;
    case KIND_EVENT: blip_event_release(handle); break;
    case KIND_CONNECTION_OPTIONS: blip_connection_options_release(handle); break;
    case KIND_CONNECTION: blip_connection_release(handle); break;
    case KIND_LISTENER_OPTIONS: blip_listener_options_release(handle); break;
    case KIND_LISTENER: blip_listener_release(handle); break;
    case KIND_MODULE: blip_module_release(handle); break;
    case KIND_RECONNECTOR: blip_reconnector_release(handle); break;
    case KIND_POOL: blip_pool_release(handle); break;
    case KIND_MESSAGE: blip_message_release(handle); break;
    case KIND_TRUST: blip_trust_release(handle); break;
    case KIND_CHALLENGE: blip_challenge_release(handle); break;
    case KIND_ERROR: blip_error_release(handle); break;
    case KIND_COUNTERS: blip_counters_release(handle); break;
    case KIND_TRANSPORT: blip_transport_release(handle); break;
    }
}

/* An event and an error come from a connection that is refused. */
static void make_event_and_error(void **event, void **error)
{
    blip_queue *queue = NULL;
    blip_connection *connection = NULL;
    blip_connection_options *options = blip_connection_options_new();
    blip_error *borrowed = NULL;
    blip_event *taken = NULL;
    size_t count = 0;
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_queue_new(0, &queue));
    REQUIRE_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    /* Events without a function are those of callbacks that were set to none. */
    REQUIRE_OK(blip_connection_set_close_callback(connection, NULL, NULL, NULL));
    REQUIRE_OK(blip_connection_connect(connection));
    REQUIRE_OK(blip_queue_next(queue, &taken, 1, SOON, &count));
    REQUIRE_INT(count, 1);
    blip_connection_wait_closed(connection, SOON);
    REQUIRE_OK(blip_connection_error(connection, &borrowed));
    *event = taken;
    *error = blip_error_retain(borrowed);
    REQUIRE(*error != NULL);
    blip_connection_options_release(options);
    blip_connection_release(connection);
    blip_queue_release(queue);
}

static blip_status take_frame(blip_transport *transport, blip_slice frame, void *context)
{
    (void)transport, (void)frame, (void)context;
    return BLIP_OK;
}

static void make_all(void **handles)
{
    blip_transport *transport = NULL;
    REQUIRE_OK(blip_transport_new(take_frame, NULL, NULL, &transport));
    handles[KIND_TRANSPORT] = transport;
    blip_message *message = NULL;
    blip_queue *queue = NULL;
    blip_connection *connection = NULL;
    blip_listener *listener = NULL;
    blip_module *module = NULL;
    blip_reconnector *reconnector = NULL;
    blip_pool *pool = NULL;
    REQUIRE_OK(blip_request_new(S("x"), &message));
    REQUIRE_OK(blip_queue_new(0, &queue));
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    REQUIRE_OK(blip_module_new(S("module"), &module));
    REQUIRE_OK(blip_reconnector_new(runtime, S("ws://127.0.0.1:9/"), NULL, &reconnector));
    REQUIRE_OK(blip_pool_new(runtime, NULL, &pool));
    handles[KIND_RUNTIME_OPTIONS] = blip_runtime_options_new();
    handles[KIND_RUNTIME] = make_runtime(1);
    handles[KIND_QUEUE] = queue;
    handles[KIND_CONNECTION_OPTIONS] = blip_connection_options_new();
    handles[KIND_CONNECTION] = connection;
    handles[KIND_LISTENER_OPTIONS] = blip_listener_options_new();
    handles[KIND_LISTENER] = listener;
    handles[KIND_FILES_OPTIONS] = blip_files_options_new();
    handles[KIND_MESSAGE] = message;
    handles[KIND_COUNTERS] = blip_counters_new();
    handles[KIND_MODULE] = module;
    handles[KIND_RECONNECTOR] = reconnector;
    handles[KIND_POOL] = pool;
    handles[KIND_TRUST] = make_trust(runtime);
    handles[KIND_CHALLENGE] = make_challenge(runtime);
    make_event_and_error(&handles[KIND_EVENT], &handles[KIND_ERROR]);
    for (int kind = 0; kind < KINDS; kind++)
        REQUIRE(handles[kind] != NULL);
}

static void set_up(void)
{
    runtime = make_runtime(1);
    make_all(released);
    make_all(live);
    for (int kind = 0; kind < KINDS; kind++)
        release_kind(kind, released[kind]);
    sleep_ms(50); /* an error goes when the loop of its connection is done with that */
}

static void check_live(void)
{
    int32_t number = -1;
    size_t size = 0;
    uint16_t port = 0;
    uint32_t threads = 0;
    int64_t code = 0;
    blip_slice text;
    CHECK_OK(blip_runtime_options_set_threads(live[KIND_RUNTIME_OPTIONS], 1));
    CHECK_OK(blip_runtime_thread_count(live[KIND_RUNTIME], &threads));
    CHECK_OK(blip_queue_count(live[KIND_QUEUE], &size));
    CHECK_OK(blip_event_kind(live[KIND_EVENT], &number));
    CHECK_OK(blip_connection_options_set_close_timeout(live[KIND_CONNECTION_OPTIONS], 1000));
    CHECK_OK(blip_connection_state(live[KIND_CONNECTION], &number));
    CHECK_INT(number, BLIP_STATE_NEW);
    CHECK_OK(blip_listener_options_set_close_timeout(live[KIND_LISTENER_OPTIONS], 1000));
    CHECK_STATUS(blip_listener_port(live[KIND_LISTENER], &port), BLIP_ERROR_STATE);
    CHECK_OK(blip_message_type(live[KIND_MESSAGE], &number));
    CHECK_OK(blip_trust_verdict(live[KIND_TRUST], &number, &text));
    CHECK_OK(blip_error_code(live[KIND_ERROR], &code));
    uint64_t figure = 1;
    CHECK_OK(blip_counters_value(live[KIND_COUNTERS], BLIP_COUNTER_MESSAGES_SENT, &figure));
    blip_slice name;
    CHECK_OK(blip_module_name(live[KIND_MODULE], &name));
    CHECK_TEXT(name, "module");
    CHECK_OK(blip_reconnector_state(live[KIND_RECONNECTOR], &number));
    CHECK_INT(number, BLIP_RECONNECTOR_NEW);
    CHECK_OK(blip_pool_count(live[KIND_POOL], &size));
    CHECK_STATUS(blip_transport_did_drain(live[KIND_TRANSPORT]), BLIP_ERROR_STATE);
}

static void tear_down(void)
{
    check_live();
    for (int kind = 0; kind < KINDS; kind++)
        release_kind(kind, live[kind]);
    drop_runtime(runtime);
}

/* Calls the function with one bad handle among good ones; it has to be refused and to touch nothing. */
static bool refuses(const struct function *function, int position, void *bad)
{
    void *handles[3];
    for (int i = 0; i < function->handles; i++)
        handles[i] = live[function->kinds[i]];
    handles[position] = bad;
    memset(results, 0xA5, sizeof results);
    atomic_store(&releases, 0);
    int32_t status = function->call(handles, false);
    bool held = status == BLIP_ERROR_HANDLE || status == BLIP_ERROR_ARGUMENT;
    if (!held && bad == NULL && (function->optional >> position & 1) != 0)
        return true;
    const unsigned char *bytes = (const unsigned char *)results;
    bool untouched = true;
    for (size_t i = 0; i < sizeof results; i++)
        untouched = untouched && bytes[i] == 0xA5;
    int expected = function->has_release ? 1 : 0;
    if (held && untouched && atomic_load(&releases) == expected)
        return true;
    test_note("%s with %p for its %s: %s, results %s, %d releases", function->name, bad,
        kind_names[function->kinds[position]], blip_status_name(status), untouched ? "untouched" : "WRITTEN",
        atomic_load(&releases));
    return false;
}

TEST(null_is_refused_by_every_function)
{
    set_up();
    for (size_t f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < functions[f].handles; i++)
            CHECK(refuses(&functions[f], i, NULL));
    tear_down();
}

TEST(released_handles_are_refused_by_every_function)
{
    set_up();
    for (size_t f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < functions[f].handles; i++)
            CHECK(refuses(&functions[f], i, released[functions[f].kinds[i]]));
    tear_down();
}

TEST(handles_of_another_kind_are_refused_by_every_function)
{
    set_up();
    for (size_t f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < functions[f].handles; i++)
            for (int kind = 0; kind < KINDS; kind++)
                if (kind != functions[f].kinds[i])
                    CHECK(refuses(&functions[f], i, live[kind]));
    tear_down();
}

/* A message that is lent to a callback is found in another way than others are; its kind counts all the same. */
static blip_status misuse_lent(blip_connection *connection, blip_message *request, void *context)
{
    struct counter *tried = context;
    (void)connection;
    for (size_t f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < functions[f].handles; i++) {
            void *handles[3];
            for (int h = 0; h < functions[f].handles; h++)
                handles[h] = live[functions[f].kinds[h]];
            if (functions[f].kinds[i] == KIND_MESSAGE)
                continue;
            handles[i] = request;
            /* What waits refuses on this thread before it looks. */
            blip_status status = functions[f].call(handles, false);
            if (!functions[f].is_void && !CHECK(status < 0))
                test_note("%s with a lent message: %s", functions[f].name, blip_status_name(status));
        }
    counter_add(tried, 1);
    return BLIP_OK;
}

TEST(lent_messages_are_refused_where_another_kind_is_wanted)
{
    struct pair pair;
    struct counter tried;
    struct outcome outcome;
    set_up();
    counter_init(&tried);
    outcome_init(&outcome);
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("misuse"), 0, misuse_lent, &tried, NULL));
    REQUIRE_OK(send_request(pair.client, "misuse", "", &outcome));
    REQUIRE_REACHES(&tried, 1);
    REQUIRE(outcome_wait(&outcome));
    pair_close(&pair);
    tear_down();
}

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t word = *state;
    word = (word ^ word >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ word >> 27) * UINT64_C(0x94D049BB133111EB);
    return word ^ word >> 31;
}

TEST_SECONDS(arbitrary_numbers_are_refused_by_every_function, 60)
{
    static const uint64_t numbers[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 64, 100, 255, 256, 257, 4095, 4096, 65535,
        65536, 0x7fffffff, 0x80000000, 0xdeadbeef, 0xffffffff, UINT64_C(0x100000000), UINT64_C(0x7fffffffffff),
        UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000), UINT64_C(0xfffffffffffffff0), UINT64_MAX};
    set_up();
    int on_stack = 0;
    void *allocated = malloc(64);
    uint64_t state = 1;
    for (size_t f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < functions[f].handles; i++) {
            for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
                CHECK(refuses(&functions[f], i, (void *)(uintptr_t)numbers[n]));
            CHECK(refuses(&functions[f], i, &on_stack));
            CHECK(refuses(&functions[f], i, allocated));
            CHECK(refuses(&functions[f], i, scratch));
            for (int n = 0; n < 300; n++)
                CHECK(refuses(&functions[f], i, (void *)(uintptr_t)next_random(&state)));
        }
    free(allocated);
    tear_down();
}

/* A handle with a flipped bit may be another live handle by chance, so only survival is asked for; functions that
 * release or end something are left out. */
TEST(no_flipped_bit_crashes)
{
    set_up();
    for (size_t f = 0; f < FUNCTIONS; f++) {
        const char *name = functions[f].name;
        if (functions[f].is_void || strstr(name, "stop") || strstr(name, "close") || strstr(name, "release"))
            continue;
        for (int i = 0; i < functions[f].handles; i++)
            for (int bit = 0; bit < 64; bit++) {
                void *handles[3];
                for (int h = 0; h < functions[f].handles; h++)
                    handles[h] = live[functions[f].kinds[h]];
                handles[i] = (void *)((uintptr_t)handles[i] ^ (uintptr_t)1 << bit);
                functions[f].call(handles, false);
            }
    }
}

TEST(missing_results_are_refused)
{
    set_up();
    for (size_t f = 0; f < FUNCTIONS; f++) {
        if (functions[f].results == 0)
            continue;
        void *handles[3];
        for (int h = 0; h < functions[f].handles; h++)
            handles[h] = live[functions[f].kinds[h]];
        blip_status status = functions[f].call(handles, true);
        if (!functions[f].optional_results && !CHECK(status < 0))
            test_note("%s without a place for its result: %s", functions[f].name, blip_status_name(status));
    }
    tear_down();
}

TEST(release_of_null_is_fine)
{
    for (int kind = 0; kind < KINDS; kind++)
        release_kind(kind, NULL);
}

TEST(release_twice_is_harmless_to_others)
{
    runtime = make_runtime(1);
    make_all(released);
    for (int kind = 0; kind < KINDS; kind++)
        release_kind(kind, released[kind]);
    make_all(live);
    for (int round = 0; round < 3; round++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int other = 0; other < KINDS; other++)
                release_kind(kind, released[other]);
    tear_down();
}

TEST(retain_and_release_balance)
{
    blip_message *message = make_request("x", "body");
    blip_slice body;
    for (int i = 0; i < 1000; i++)
        CHECK_POINTER(blip_message_retain(message), message);
    for (int i = 0; i < 1000; i++)
        blip_message_release(message);
    CHECK_OK(blip_message_body(message, &body));
    CHECK_TEXT(body, "body");
    blip_message_release(message);
    CHECK_STATUS(blip_message_body(message, &body), BLIP_ERROR_HANDLE);
    CHECK_POINTER(blip_message_retain(message), NULL);
}

TEST(slots_of_released_handles_are_not_mistaken)
{
    enum { OLD = 20000 };
    static blip_message *old[OLD];
    bool mine;
    for (int i = 0; i < OLD; i++) {
        old[i] = make_request("x", NULL);
        blip_message_release(old[i]);
    }
    blip_message *fresh = make_request("x", NULL);
    int live_ones = 0;
    for (int i = 0; i < OLD; i++)
        live_ones += blip_message_is_mine(old[i], &mine) != BLIP_ERROR_HANDLE;
    CHECK_INT(live_ones, 0);
    blip_message_release(fresh);
}

static void *churn(void *stop)
{
    while (!atomic_load((atomic_bool *)stop))
        blip_message_release(make_request("x", "some body"));
    return NULL;
}

static void *prod(void *stop)
{
    uint64_t state = (uintptr_t)&state;
    blip_message *seen = make_request("x", NULL);
    uintptr_t near = (uintptr_t)seen;
    blip_slice body;
    blip_message_release(seen);
    while (!atomic_load((atomic_bool *)stop)) {
        uint64_t word = next_random(&state);
        blip_message_body((blip_message *)(near ^ (word & 0xffff)), &body);
        blip_message_body((blip_message *)(near ^ (word & UINT64_C(0xffffffff))), &body);
        blip_message_body(seen, &body);
    }
    return NULL;
}

TEST(stale_handles_may_be_used_while_others_come_and_go)
{
    atomic_bool stop = false;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, i % 2 ? churn : prod, &stop), 0);
    sleep_ms(500);
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

TEST(handles_may_be_released_in_any_order)
{
    for (int order = 0; order < 6; order++) {
        struct pair pair;
        pair_open(&pair, NULL);
        struct outcome outcome;
        CHECK_OK(send_request(pair.client, "slow", "x", &outcome));
        int first = order / 2, second = (first + 1 + order % 2) % 3, third = 3 - first - second;
        int sequence[3] = {first, second, third};
        for (int i = 0; i < 3; i++) {
            switch (sequence[i]) {
            case 0: blip_runtime_release(pair.client_runtime); break;
            case 1: blip_connection_release(pair.client); break;
            default:
                blip_listener_release(pair.listener);
                blip_connection_release(pair.accepted);
                blip_runtime_release(pair.server_runtime);
            }
            sleep_ms(10);
        }
        CHECK(outcome_wait(&outcome));
        CHECK(counter_wait(&pair.client_closed, 1, SOON));
        CHECK(counter_wait(&pair.server_closed, 1, SOON));
    }
}
