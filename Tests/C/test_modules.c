/* Modules: observers, interceptors and handlers that are registered as one. */

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an observer that keeps what it is told ---- */

struct diary {
    pthread_mutex_t mutex;
    uint32_t told[64];
    blip_status statuses[64];
    int count;
    struct counter entries, closed, released;
    blip_module *module;
    blip_connection *remove_from; /* removes itself there when it is told of the open connection */
};

static void diary_init(struct diary *diary)
{
    memset(diary, 0, sizeof *diary);
    pthread_mutex_init(&diary->mutex, NULL);
    counter_init(&diary->entries);
    counter_init(&diary->closed);
    counter_init(&diary->released);
}

static void diary_write(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    struct diary *diary = context;
    int32_t state = -1, type = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    if ((what & (BLIP_OBSERVE_SENT | BLIP_OBSERVE_REQUEST | BLIP_OBSERVE_RESPONSE | BLIP_OBSERVE_FILTERED)) != 0)
        CHECK_OK(blip_message_type(message, &type));
    else if (what != BLIP_OBSERVE_NOT_SENT)
        CHECK(message == NULL);
    pthread_mutex_lock(&diary->mutex);
    if (diary->count < 64) {
        diary->told[diary->count] = what;
        diary->statuses[diary->count++] = status;
    }
    pthread_mutex_unlock(&diary->mutex);
    if (what == BLIP_OBSERVE_OPEN && diary->remove_from != NULL)
        CHECK_OK(blip_connection_remove_module(diary->remove_from, diary->module));
    counter_add(&diary->entries, 1);
    if (what == BLIP_OBSERVE_CLOSED)
        counter_add(&diary->closed, 1);
}

static void diary_release(void *context)
{
    struct diary *diary = context;
    counter_add(&diary->released, 1);
}

static blip_module *observe(struct diary *diary, uint32_t what, blip_queue *queue)
{
    blip_module *module = NULL;
    REQUIRE_OK(blip_module_new(S("diary"), &module));
    REQUIRE_OK(blip_module_set_observer(module, what, queue, diary_write, diary, diary_release));
    diary->module = module;
    return module;
}

/* What was told, without what is about messages, in order. */
static void check_diary(struct diary *diary, const uint32_t *expected, int count)
{
    pthread_mutex_lock(&diary->mutex);
    int at = 0;
    for (int i = 0; i < diary->count; i++) {
        if ((diary->told[i] & 0x7c00u) != 0)
            continue;
        if (CHECK_AT_LEAST(count, at + 1))
            CHECK_INT(diary->told[i], expected[at]);
        at++;
    }
    CHECK_INT(at, count);
    pthread_mutex_unlock(&diary->mutex);
}

static int told(struct diary *diary, uint32_t what)
{
    int found = 0;
    pthread_mutex_lock(&diary->mutex);
    for (int i = 0; i < diary->count; i++)
        found += diary->told[i] == what;
    pthread_mutex_unlock(&diary->mutex);
    return found;
}

static blip_status status_of(struct diary *diary, uint32_t what)
{
    blip_status status = 12345;
    pthread_mutex_lock(&diary->mutex);
    for (int i = 0; i < diary->count; i++)
        if (diary->told[i] == what)
            status = diary->statuses[i];
    pthread_mutex_unlock(&diary->mutex);
    return status;
}

/* ---- a queue that is emptied by a thread ---- */

struct emptier {
    blip_queue *queue;
    bool pulls;
    atomic_bool stops;
    pthread_t thread;
};

static void *empty_queue(void *argument)
{
    struct emptier *emptier = argument;
    while (!atomic_load(&emptier->stops)) {
        if (!emptier->pulls) {
            blip_queue_dispatch(emptier->queue, 100, 100, NULL);
            continue;
        }
        blip_event *events[16];
        size_t count = 0;
        blip_queue_next(emptier->queue, events, 16, 100, &count);
        for (size_t i = 0; i < count; i++) {
            int32_t kind = 0;
            int64_t value = 0;
            void *context = NULL;
            blip_event_kind(events[i], &kind);
            if (CHECK_INT(kind, BLIP_EVENT_OBSERVED)) {
                CHECK_OK(blip_event_value(events[i], &value));
                CHECK_OK(blip_event_context(events[i], &context));
                diary_write(blip_event_connection(events[i]), (uint32_t)value, blip_event_message(events[i]),
                    blip_event_status(events[i]), context);
            }
            blip_event_release(events[i]);
        }
    }
    return NULL;
}

static void emptier_start(struct emptier *emptier, bool pulls)
{
    memset(emptier, 0, sizeof *emptier);
    emptier->pulls = pulls;
    REQUIRE_OK(blip_queue_new(0, &emptier->queue));
    REQUIRE_INT(pthread_create(&emptier->thread, NULL, empty_queue, emptier), 0);
}

static void emptier_stop(struct emptier *emptier)
{
    atomic_store(&emptier->stops, true);
    blip_queue_wake(emptier->queue);
    pthread_join(emptier->thread, NULL);
    blip_queue_release(emptier->queue);
}

/* ---- observers ---- */

enum mode { ON_LOOP, DISPATCHED, PULLED };

static void observe_a_life(enum mode mode)
{
    struct emptier emptier;
    struct diary ours, theirs;
    struct pair pair;
    struct outcome outcome;
    diary_init(&ours);
    diary_init(&theirs);
    if (mode != ON_LOOP)
        emptier_start(&emptier, mode == PULLED);
    blip_queue *queue = mode == ON_LOOP ? NULL : emptier.queue;

    struct pair_options options = {.no_client = true};
    pair_open(&pair, &options);
    blip_module *module = observe(&theirs, BLIP_OBSERVE_ALL, queue);
    CHECK_OK(blip_listener_add_module(pair.listener, module));
    CHECK_STATUS(blip_listener_add_module(pair.listener, module), BLIP_ERROR_STATE);
    blip_module_release(module);

    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &pair.client));
    module = observe(&ours, BLIP_OBSERVE_ALL, queue);
    CHECK_OK(blip_connection_add_module(pair.client, module));
    CHECK_STATUS(blip_connection_add_module(pair.client, module), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_module_set_observer(module, 1, NULL, diary_write, NULL, NULL), BLIP_ERROR_STATE);
    blip_module_release(module);
    REQUIRE_OK(blip_connection_wait_open(pair.client, SOON));
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "echo", "hello", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.status, BLIP_OK);
    CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    REQUIRE_REACHES(&ours.closed, 1);
    REQUIRE_REACHES(&theirs.closed, 1);
    REQUIRE_REACHES(&ours.released, 1);

    static const uint32_t client[] = {BLIP_OBSERVE_WILL_CONNECT, BLIP_OBSERVE_CONNECTED,
        BLIP_OBSERVE_WILL_AUTHENTICATE, BLIP_OBSERVE_AUTHENTICATED, BLIP_OBSERVE_OPEN, BLIP_OBSERVE_WILL_CLOSE,
        BLIP_OBSERVE_CLOSED};
    static const uint32_t server[] = {BLIP_OBSERVE_CONNECTED, BLIP_OBSERVE_WILL_AUTHENTICATE,
        BLIP_OBSERVE_AUTHENTICATED, BLIP_OBSERVE_OPEN, BLIP_OBSERVE_WILL_CLOSE, BLIP_OBSERVE_CLOSED};
    check_diary(&ours, client, 7);
    check_diary(&theirs, server, 6);
    CHECK_INT(told(&ours, BLIP_OBSERVE_SENT), 1);
    CHECK_INT(told(&ours, BLIP_OBSERVE_RESPONSE), 1);
    CHECK_INT(told(&ours, BLIP_OBSERVE_REQUEST), 0);
    CHECK_INT(told(&theirs, BLIP_OBSERVE_REQUEST), 1);
    CHECK_INT(told(&theirs, BLIP_OBSERVE_SENT), 1);
    CHECK_STATUS(status_of(&ours, BLIP_OBSERVE_WILL_CLOSE), BLIP_OK);
    CHECK_STATUS(status_of(&theirs, BLIP_OBSERVE_WILL_CLOSE), BLIP_ERROR_PEER_CLOSED);
    CHECK_STATUS(status_of(&ours, BLIP_OBSERVE_CLOSED), BLIP_OK);
    blip_connection_release(pair.client);
    pair.client = NULL;
    pair_close(&pair);
    REQUIRE_REACHES(&theirs.released, 1);
    if (mode != ON_LOOP)
        emptier_stop(&emptier);
    CHECK_INT(counter_get(&ours.released), 1);
}

TEST(observers_are_told_the_whole_life_on_the_loop) { observe_a_life(ON_LOOP); }
TEST(observers_are_told_the_whole_life_by_dispatch) { observe_a_life(DISPATCHED); }
TEST(observers_are_told_the_whole_life_by_events) { observe_a_life(PULLED); }

TEST(an_observer_is_told_why_nothing_opened)
{
    blip_runtime *runtime = make_runtime(1);
    struct diary diary;
    blip_connection *connection = NULL;
    char url[64];
    diary_init(&diary);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &connection));
    blip_module *module = observe(&diary, BLIP_OBSERVE_ALL, NULL);
    REQUIRE_OK(blip_connection_add_module(connection, module));
    blip_module_release(module);
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_REFUSED);
    REQUIRE_REACHES(&diary.closed, 1);
    static const uint32_t expected[] = {BLIP_OBSERVE_WILL_CONNECT, BLIP_OBSERVE_CLOSED};
    check_diary(&diary, expected, 2);
    CHECK_STATUS(status_of(&diary, BLIP_OBSERVE_CLOSED), BLIP_ERROR_REFUSED);
    REQUIRE_REACHES(&diary.released, 1);
    blip_connection_release(connection);

    int silent = -1;
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&silent));
    diary_init(&diary);
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_connect_timeout(options, 100));
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    blip_connection_options_release(options);
    module = observe(&diary, BLIP_OBSERVE_ALL, NULL);
    REQUIRE_OK(blip_connection_add_module(connection, module));
    blip_module_release(module);
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_TIMEOUT);
    REQUIRE_REACHES(&diary.closed, 1);
    static const uint32_t late[] = {BLIP_OBSERVE_WILL_CONNECT, BLIP_OBSERVE_CONNECTED, BLIP_OBSERVE_WILL_AUTHENTICATE,
        BLIP_OBSERVE_CONNECT_TIMED_OUT, BLIP_OBSERVE_CLOSED};
    check_diary(&diary, late, 5);
    blip_connection_release(connection);
    drop_runtime(runtime);
}

TEST(an_observer_removes_itself_in_its_callback)
{
    struct pair pair;
    struct diary leaving, staying;
    struct pair_options options = {.no_client = true};
    pair_open(&pair, &options);
    diary_init(&leaving);
    diary_init(&staying);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &pair.client));
    blip_module *first = observe(&leaving, BLIP_OBSERVE_ALL, NULL), *second = observe(&staying, BLIP_OBSERVE_ALL, NULL);
    leaving.remove_from = pair.client;
    REQUIRE_OK(blip_connection_add_module(pair.client, first));
    REQUIRE_OK(blip_connection_add_module(pair.client, second));
    blip_module *found = NULL;
    CHECK_OK(blip_connection_module_at(pair.client, 1, &found));
    CHECK_POINTER(found, second);
    blip_module_release(found);
    CHECK_STATUS(blip_connection_module_at(pair.client, 2, &found), BLIP_ERROR_NOT_FOUND);
    blip_module_release(second);
    REQUIRE_OK(blip_connection_wait_open(pair.client, SOON));
    REQUIRE_OK(blip_connection_close(pair.client, 1000, S("")));
    REQUIRE_REACHES(&staying.closed, 1);
    CHECK_INT(told(&leaving, BLIP_OBSERVE_OPEN), 1);
    CHECK_INT(told(&leaving, BLIP_OBSERVE_CLOSED), 0);
    CHECK_INT(counter_get(&leaving.released), 0);
    blip_module_release(first);
    REQUIRE_REACHES(&leaving.released, 1);
    CHECK_STATUS(blip_connection_remove_module(pair.client, second), BLIP_ERROR_HANDLE);
    blip_connection_release(pair.client);
    pair.client = NULL;
    pair_close(&pair);
}

TEST(what_waits_for_a_removed_observer_is_not_told)
{
    struct pair pair;
    struct diary diary;
    blip_queue *queue = NULL;
    size_t count = 0;
    diary_init(&diary);
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_queue_new(0, &queue));
    blip_module *module = observe(&diary, BLIP_OBSERVE_ALL, queue);
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_OK(blip_queue_count(queue, &count));
    CHECK_AT_LEAST(count, 2);
    CHECK_OK(blip_connection_remove_module(pair.client, module));
    CHECK_STATUS(blip_connection_remove_module(pair.client, module), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_queue_dispatch(queue, 100, 0, NULL));
    CHECK_INT(counter_get(&diary.entries), 0);
    blip_module_release(module);
    REQUIRE_REACHES(&diary.released, 1);
    blip_queue_release(queue);
    pair_close(&pair);
}

/* What an observer does not take holds its peers back, and is not lost. */
TEST(a_full_queue_of_an_observer_stops_reading)
{
    enum { COUNT = 500 };
    struct pair pair;
    struct diary diary;
    struct counter completed = COUNTER;
    blip_queue *queue = NULL;
    size_t count = 0;
    diary_init(&diary);
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_queue_new(16, &queue));
    blip_module *module = observe(&diary, BLIP_OBSERVE_RESPONSE, queue);
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    blip_module_release(module);
    for (int i = 0; i < COUNT; i++) {
        blip_message *request = make_request("echo", "x");
        REQUIRE_OK(blip_connection_send(pair.client, request, NULL, &completed, count_release));
        blip_message_release(request);
    }
    REQUIRE_REACHES(&completed, 16);
    sleep_ms(50);
    CHECK_OK(blip_queue_count(queue, &count));
    CHECK_AT_MOST(count, 17);
    CHECK_AT_MOST(counter_get(&completed), 17);
    for (int64_t end = now_ms() + SOON; counter_get(&diary.entries) < COUNT && now_ms() < end;)
        blip_queue_dispatch(queue, 4, 50, NULL);
    CHECK_INT(counter_get(&diary.entries), COUNT);
    REQUIRE_REACHES(&completed, COUNT);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(a_runtime_registers_with_every_connection)
{
    struct pair pair;
    struct diary diary;
    diary_init(&diary);
    pair_open(&pair, NULL);
    blip_module *module = observe(&diary, BLIP_OBSERVE_OPEN | BLIP_OBSERVE_CLOSED | BLIP_OBSERVE_SENT, NULL), *found = NULL;
    REQUIRE_OK(blip_runtime_add_module(pair.client_runtime, module));
    CHECK_STATUS(blip_runtime_add_module(pair.client_runtime, module), BLIP_ERROR_STATE);
    CHECK_OK(blip_runtime_module_at(pair.client_runtime, 0, &found));
    CHECK_POINTER(found, module);
    blip_module_release(found);
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(told(&diary, BLIP_OBSERVE_SENT), 1); /* one that existed before */
    CHECK_OK(blip_connection_module_at(pair.client, 0, &found));
    blip_module_release(found);

    blip_connection *other = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &other));
    REQUIRE_OK(blip_connection_wait_open(other, SOON));
    REQUIRE_REACHES(&diary.entries, 2);
    CHECK_INT(told(&diary, BLIP_OBSERVE_OPEN), 1);
    CHECK_OK(blip_runtime_remove_module(pair.client_runtime, module));
    CHECK_STATUS(blip_runtime_remove_module(pair.client_runtime, module), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_runtime_module_at(pair.client_runtime, 0, &found), BLIP_ERROR_NOT_FOUND);
    REQUIRE_OK(blip_connection_close(other, 1000, S("")));
    REQUIRE_OK(blip_connection_wait_closed(other, SOON));
    CHECK_INT(counter_get(&diary.closed), 0);
    blip_connection_release(other);
    blip_module_release(module);
    REQUIRE_REACHES(&diary.released, 1);
    pair_close(&pair);
}

/* ---- interceptors ---- */

struct filter {
    const char *append;  /* to the property Trace */
    const char *body;    /* replaces the body */
    const char *profile; /* drops what has this profile, or any response if it is "*" */
    bool mine;           /* looks at messages of this side */
    bool answers;        /* requests that it drops */
    struct counter seen, released;
};

static blip_status filter(blip_connection *connection, blip_message *message, void *context)
{
    struct filter *filter = context;
    bool mine = false, is_mutable = false;
    int32_t type = -1;
    blip_slice profile, trace = {NULL, 0};
    CHECK(connection != NULL);
    CHECK_OK(blip_message_is_mine(message, &mine));
    CHECK_INT(mine, filter->mine);
    CHECK_OK(blip_message_type(message, &type));
    CHECK_OK(blip_message_profile(message, &profile));
    CHECK_OK(blip_message_is_mutable(message, &is_mutable));
    counter_add(&filter->seen, 1);
    if (filter->append != NULL) {
        char text[128];
        blip_message_property(message, S("Trace"), &trace);
        snprintf(text, sizeof text, "%.*s%s", (int)trace.size, trace.size > 0 ? (const char *)trace.data : "",
            filter->append);
        CHECK_OK(blip_message_set_property(message, S("Trace"), S(text)));
    }
    if (filter->body != NULL)
        CHECK_OK(blip_message_set_body(message, S(filter->body)));
    if (filter->profile == NULL)
        return BLIP_OK;
    bool drops = strcmp(filter->profile, "*") == 0 ? type != BLIP_MESSAGE_REQUEST
        : profile.size == strlen(filter->profile) && memcmp(profile.data, filter->profile, profile.size) == 0;
    if (drops && filter->answers)
        CHECK_OK(blip_message_respond_text(message, S("from the filter")));
    return drops ? BLIP_ERROR_FILTERED : BLIP_OK;
}

static void filter_release(void *context)
{
    counter_add(&((struct filter *)context)->released, 1);
}

static blip_module *intercept(struct filter *state)
{
    blip_module *module = NULL;
    counter_init(&state->seen);
    counter_init(&state->released);
    REQUIRE_OK(blip_module_new(S("filter"), &module));
    REQUIRE_OK(blip_module_set_interceptor(
        module, state->mine ? BLIP_INTERCEPT_SEND : BLIP_INTERCEPT_RECEIVE, filter, state, filter_release));
    return module;
}

static blip_status tell_trace(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection, (void)context;
    blip_slice trace = {NULL, 0}, body = {NULL, 0};
    char text[256];
    blip_message_property(request, S("Trace"), &trace);
    CHECK_OK(blip_message_body(request, &body));
    snprintf(text, sizeof text, "%.*s|%.*s", (int)trace.size, (const char *)trace.data, (int)body.size,
        (const char *)body.data);
    return blip_message_respond_text(request, S(text));
}

TEST(interceptors_change_messages_in_order_both_ways)
{
    struct pair pair;
    struct outcome outcome;
    struct filter out_one = {.append = "a", .mine = true}, out_two = {.append = "b", .body = "changed", .mine = true};
    struct filter in_one = {.append = "c"}, in_two = {.append = "d"};
    struct filter reply = {.body = "a reply that is rather longer than it was before"};
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_listener_set_handler(pair.listener, S("trace"), 0, tell_trace, NULL, NULL));
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("trace"), 0, tell_trace, NULL, NULL));
    blip_module *modules[] = {intercept(&out_one), intercept(&out_two), intercept(&in_one), intercept(&in_two),
        intercept(&reply)};
    REQUIRE_OK(blip_connection_add_module(pair.client, modules[0]));
    REQUIRE_OK(blip_connection_add_module(pair.client, modules[1]));
    REQUIRE_OK(blip_connection_add_module(pair.accepted, modules[2]));
    REQUIRE_OK(blip_connection_add_module(pair.accepted, modules[3]));
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "trace", "original", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "abcd|changed");
    REQUIRE_OK(blip_connection_add_module(pair.client, modules[4]));
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "trace", "original", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "a reply that is rather longer than it was before");
    for (int i = 0; i < 5; i++)
        blip_module_release(modules[i]);
    pair_close(&pair);
    REQUIRE_REACHES(&out_one.released, 1);
    REQUIRE_REACHES(&in_two.released, 1);
}

/* What becomes of a request if the module is registered with one of the sides. */
static void drop(struct filter *state, bool with_client, blip_status status, int32_t type, int64_t code, const char *text)
{
    struct pair pair;
    struct outcome outcome;
    struct diary diary;
    diary_init(&diary);
    pair_open(&pair, NULL);
    blip_module *module = intercept(state), *observer = observe(&diary, BLIP_OBSERVE_FILTERED, NULL);
    blip_connection *side = with_client ? pair.client : pair.accepted;
    REQUIRE_OK(blip_connection_add_module(side, module));
    REQUIRE_OK(blip_connection_add_module(side, observer));
    for (int i = 0; i < 3; i++) {
        outcome_init(&outcome);
        REQUIRE_OK(send_request(pair.client, "echo", "hello", &outcome));
        REQUIRE(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, status);
        if (status == BLIP_OK) {
            CHECK_INT(outcome.type, type);
            CHECK_INT(outcome.error_code, code);
            if (text != NULL)
                CHECK_TEXT(S(outcome.text), text);
        }
    }
    REQUIRE_REACHES(&diary.entries, 3);
    CHECK_OK(blip_connection_remove_module(side, module));
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "echo", "hello", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
    blip_module_release(module);
    blip_module_release(observer);
    /* Nothing is left to wait for. */
    CHECK_OK(blip_connection_close_gracefully(pair.client, SOON));
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    int32_t close_code = 0;
    CHECK_OK(blip_connection_close_code(pair.client, &close_code));
    CHECK_INT(close_code, 1000);
    pair_close(&pair);
}

TEST(a_request_that_is_dropped_completes)
{
    struct filter state = {.profile = "echo", .mine = true};
    drop(&state, true, BLIP_ERROR_FILTERED, 0, 0, NULL);
}

TEST(a_request_of_the_peer_that_is_dropped_is_refused)
{
    struct filter state = {.profile = "echo"};
    drop(&state, false, BLIP_OK, BLIP_MESSAGE_ERROR, 403, NULL);
}

TEST(an_interceptor_answers_what_it_drops)
{
    struct filter state = {.profile = "echo", .answers = true};
    drop(&state, false, BLIP_OK, BLIP_MESSAGE_RESPONSE, 0, "from the filter");
}

TEST(a_response_that_is_dropped_becomes_an_error)
{
    struct filter state = {.profile = "*", .mine = true};
    drop(&state, false, BLIP_OK, BLIP_MESSAGE_ERROR, 403, NULL);
}

TEST(a_response_of_the_peer_that_is_dropped_fails_the_request)
{
    struct filter state = {.profile = "*"};
    drop(&state, true, BLIP_ERROR_FILTERED, 0, 0, NULL);
}

TEST(a_message_is_fixed_outside_of_interceptors)
{
    struct pair pair;
    struct filter state = {.mine = true};
    pair_open(&pair, NULL);
    blip_module *module = intercept(&state);
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    blip_module_release(module);
    blip_message *request = make_request("echo", "x");
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(counter_get(&state.seen), 1);
    CHECK_STATUS(blip_message_set_property(request, S("a"), S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_body(request, S("b")), BLIP_ERROR_IMMUTABLE);
    blip_message_release(request);
    pair_close(&pair);
}

static blip_status change_stream(blip_connection *connection, blip_message *message, void *context)
{
    (void)connection;
    int32_t type = -1;
    CHECK_OK(blip_message_type(message, &type));
    CHECK_OK(blip_message_set_property(message, S("Seen"), S("yes")));
    CHECK_STATUS(blip_message_set_body(message, S("no")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_no_reply(message, true), BLIP_ERROR_IMMUTABLE);
    counter_add(context, 1);
    return BLIP_OK;
}

static size_t count_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct outcome *outcome = context;
    blip_slice seen;
    CHECK_OK(blip_message_property(message, S("Seen"), &seen));
    outcome->size += data.size;
    if (status != BLIP_OK)
        counter_add(&outcome->done, 1);
    return data.size;
}

static void stream_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request;
    if (CHECK_STATUS(status, BLIP_OK))
        CHECK_OK(blip_message_set_data_callback(response, count_data, context, NULL));
}

TEST(of_streamed_messages_interceptors_see_the_properties)
{
    struct pair pair;
    struct counter seen = COUNTER;
    struct outcome outcome;
    pair_open(&pair, NULL);
    blip_module *module = NULL;
    REQUIRE_OK(blip_module_new(S(""), &module));
    REQUIRE_OK(blip_module_set_interceptor(module, BLIP_INTERCEPT_RECEIVE, change_stream, &seen, NULL));
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    blip_module_release(module);
    blip_message *request = make_request("source", "");
    outcome_init(&outcome);
    CHECK_OK(blip_message_set_property(request, S("Size"), S("1000000")));
    CHECK_OK(blip_message_set_streamed(request, true));
    REQUIRE_OK(blip_connection_send(pair.client, request, stream_response, &outcome, NULL));
    blip_message_release(request);
    REQUIRE_REACHES(&outcome.done, 1);
    CHECK_INT(outcome.size, 1000000);
    CHECK_INT(counter_get(&seen), 1);
    pair_close(&pair);
}

static blip_status drop_all(blip_connection *connection, blip_message *message, void *context)
{
    (void)connection, (void)message;
    counter_add(context, 1);
    return BLIP_ERROR_FILTERED;
}

TEST(a_streamed_response_that_is_dropped_is_thrown_away)
{
    struct pair pair;
    struct counter seen = COUNTER;
    struct outcome outcome;
    pair_open(&pair, NULL);
    blip_module *module = NULL;
    REQUIRE_OK(blip_module_new(S(""), &module));
    REQUIRE_OK(blip_module_set_interceptor(module, BLIP_INTERCEPT_RECEIVE, drop_all, &seen, NULL));
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    for (int i = 0; i < 2; i++) {
        blip_message *request = make_request("source", "");
        outcome_init(&outcome);
        CHECK_OK(blip_message_set_property(request, S("Size"), S("1000000")));
        CHECK_OK(blip_message_set_streamed(request, i == 0));
        REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
        blip_message_release(request);
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_ERROR_FILTERED);
    }
    CHECK_OK(blip_connection_remove_module(pair.client, module));
    blip_module_release(module);
    outcome_init(&outcome);
    REQUIRE_OK(send_request(pair.client, "echo", "still here", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    pair_close(&pair);
}

/* ---- handlers ---- */

static blip_status answer_text(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    return blip_message_respond_text(request, S((const char *)context));
}

static void check_answer(blip_connection *connection, const char *profile, const char *text, int64_t code)
{
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(send_request(connection, profile, "", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_INT(outcome.error_code, code);
    if (code == 0)
        CHECK_TEXT(S(outcome.text), text);
}

TEST(handlers_of_modules_stand_behind_the_own_ones)
{
    struct pair pair;
    pair_open(&pair, NULL);
    blip_module *one = NULL, *two = NULL;
    REQUIRE_OK(blip_module_new(S("one"), &one));
    REQUIRE_OK(blip_module_new(S("two"), &two));
    CHECK_OK(blip_module_set_handler(one, S("new"), 0, answer_text, "one", NULL));
    CHECK_OK(blip_module_set_handler(one, S("echo"), 0, answer_text, "never", NULL));
    CHECK_OK(blip_module_set_handler(two, S("new"), 0, answer_text, "two", NULL));
    CHECK_OK(blip_module_set_handler(two, S("newer"), 0, answer_text, "two", NULL));
    CHECK_STATUS(blip_module_set_handler(two, S("x"), 7, answer_text, "two", NULL), BLIP_ERROR_ARGUMENT);
    REQUIRE_OK(blip_connection_add_module(pair.accepted, one));
    REQUIRE_OK(blip_connection_add_module(pair.accepted, two));
    check_answer(pair.client, "echo", "", 0);
    check_answer(pair.client, "new", "one", 0);
    check_answer(pair.client, "newer", "two", 0);
    CHECK_OK(blip_connection_remove_module(pair.accepted, one));
    check_answer(pair.client, "new", "two", 0);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("new"), 0, answer_text, "own", NULL));
    check_answer(pair.client, "new", "own", 0);
    CHECK_OK(blip_connection_remove_module(pair.accepted, two));
    check_answer(pair.client, "newer", "", 404);
    blip_module_release(one);
    blip_module_release(two);
    pair_close(&pair);
}

/* ---- many threads ---- */

struct crowd {
    struct pair *pair;
    struct counter released;
    atomic_bool stops;
};

static void ignore(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    (void)connection, (void)what, (void)message, (void)status, (void)context;
}

static blip_status let_pass(blip_connection *connection, blip_message *message, void *context)
{
    (void)connection, (void)context;
    return blip_message_set_property(message, S("Passed"), S("yes"));
}

static void *come_and_go(void *argument)
{
    struct crowd *crowd = argument;
    int64_t made = 0;
    while (!atomic_load(&crowd->stops)) {
        blip_module *module = NULL;
        REQUIRE_OK(blip_module_new(S(""), &module));
        CHECK_OK(blip_module_set_observer(module, BLIP_OBSERVE_ALL, NULL, ignore, &crowd->released, count_release));
        CHECK_OK(blip_module_set_interceptor(module, 3, let_pass, NULL, NULL));
        CHECK_OK(blip_connection_add_module(crowd->pair->client, module));
        CHECK_OK(blip_connection_add_module(crowd->pair->accepted, module));
        CHECK_OK(blip_listener_add_module(crowd->pair->listener, module));
        CHECK_OK(blip_listener_remove_module(crowd->pair->listener, module));
        CHECK_OK(blip_connection_remove_module(crowd->pair->client, module));
        blip_connection_remove_module(crowd->pair->accepted, module);
        blip_module_release(module);
        made++;
        sleep_ms(1);
    }
    return (void *)(intptr_t)made;
}

TEST_SECONDS(modules_come_and_go_while_messages_pass, 60)
{
    struct pair pair;
    struct crowd crowd = {.pair = &pair};
    pthread_t threads[3];
    pair_open(&pair, NULL);
    counter_init(&crowd.released);
    for (int i = 0; i < 3; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, come_and_go, &crowd), 0);
    for (int i = 0; i < 300; i++) {
        struct outcome outcome;
        outcome_init(&outcome);
        REQUIRE_OK(send_request(pair.client, "echo", "hello", &outcome));
        REQUIRE(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK_TEXT(S(outcome.text), "hello");
    }
    atomic_store(&crowd.stops, true);
    int64_t made = 0;
    for (int i = 0; i < 3; i++) {
        void *count = NULL;
        pthread_join(threads[i], &count);
        made += (intptr_t)count;
    }
    REQUIRE_REACHES(&crowd.released, made);
    CHECK_INT(counter_get(&crowd.released), made);
    pair_close(&pair);
}

/* ---- running on the loop, texts ---- */

struct performance {
    struct counter done, released;
    pthread_t thread;
};

static void perform(blip_connection *connection, void *context)
{
    struct performance *performance = context;
    int32_t state = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_STATUS(blip_connection_wait_open(connection, 0), BLIP_ERROR_WOULD_DEADLOCK);
    performance->thread = pthread_self();
    counter_add(&performance->done, 1);
}

static void perform_release(void *context)
{
    counter_add(&((struct performance *)context)->released, 1);
}

TEST(a_function_runs_on_the_loop)
{
    struct pair pair;
    struct performance performance;
    counter_init(&performance.done);
    counter_init(&performance.released);
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_connection_perform(pair.client, perform, &performance, perform_release));
    REQUIRE_REACHES(&performance.released, 1);
    CHECK_INT(counter_get(&performance.done), 1);
    CHECK(!pthread_equal(performance.thread, pthread_self()));
    CHECK_STATUS(blip_connection_perform(pair.client, NULL, &performance, perform_release), BLIP_ERROR_ARGUMENT);
    REQUIRE_REACHES(&performance.released, 2);
    REQUIRE_OK(blip_connection_close(pair.client, 1000, S("")));
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_STATUS(blip_connection_perform(pair.client, perform, &performance, perform_release), BLIP_ERROR_CLOSED);
    REQUIRE_REACHES(&performance.released, 3);
    CHECK_INT(counter_get(&performance.done), 1);
    pair_close(&pair);
}

static uint64_t bytes_sent(blip_connection *connection)
{
    int32_t which = BLIP_COUNTER_BYTES_SENT;
    uint64_t value = 0;
    CHECK_OK(blip_connection_counter_values(connection, &which, &value, 1));
    return value;
}

TEST(pings_are_left_out_while_something_comes)
{
    struct pair pair;
    struct pair_options options = {.client = blip_connection_options_new()};
    REQUIRE_OK(blip_connection_options_set_ping(options.client, 1000, 2));
    REQUIRE_OK(blip_connection_options_set_ping_only_idle(options.client, true));
    pair_open(&pair, &options);
    /* While a request goes out every 50 ms nothing else is sent. */
    uint64_t expected = 0, each = 0;
    int64_t start = now_ms();
    for (int i = 0; i < 60 && now_ms() - start < 2500; i++) {
        struct outcome outcome;
        outcome_init(&outcome);
        REQUIRE_OK(send_request(pair.client, "empty", "", &outcome));
        REQUIRE(outcome_wait(&outcome));
        uint64_t sent = bytes_sent(pair.client);
        if (i == 1)
            each = sent - expected;
        if (i > 1)
            CHECK_INT(sent, expected + each);
        expected = sent;
        sleep_ms(50);
    }
    pair_close(&pair);
}

TEST(codes_have_texts)
{
    static const int32_t codes[] = {BLIP_CODE_BAD_DATA, BLIP_CODE_BAD_FRAME, BLIP_CODE_DISCONNECTED,
        BLIP_CODE_PEER_NOT_ALLOWED, BLIP_CODE_MISC, BLIP_CODE_BAD_REQUEST, BLIP_CODE_FORBIDDEN, BLIP_CODE_NOT_FOUND,
        BLIP_CODE_BAD_RANGE, BLIP_CODE_HANDLER_FAILED, BLIP_CODE_UNSPECIFIED};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        CHECK(strcmp(blip_code_message(codes[i]), blip_code_message(12345)) != 0);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(blip_code_message(codes[i]), blip_code_message(codes[j])) != 0);
    }
    CHECK_TEXT(S(BLIP_DOMAIN_BLIP), "BLIP");
    CHECK_TEXT(S(BLIP_DOMAIN_POSIX), "POSIX");
}
