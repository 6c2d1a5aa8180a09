/* Queues; and one suite of scenarios that runs with callbacks on loop threads, with callbacks dispatched by the
 * program's own thread, and with events that are pulled. */

#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mode { CALLBACK, DISPATCH, PULL };

static const char *const mode_names[] = {"callback", "dispatch", "pull"};

/* A function with its context: the context that the library is given in every mode. In callback and dispatch modes the
 * library calls run_*; in pull mode the worker does it by the event. */
struct hook {
    blip_request_fn request;
    blip_response_fn response;
    blip_data_fn data;
    blip_sent_fn sent;
    blip_progress_fn progress;
    blip_open_fn open;
    blip_state_fn state;
    blip_close_fn close;
    blip_pong_fn pong;
    blip_accept_fn accept;
    blip_stopped_fn stopped;
    void *context;
    bool has_ended; /* a pulled body */
};

struct stage {
    enum mode mode;
    blip_queue *queue;
    pthread_t worker;
    atomic_bool ends;
    pthread_t callback_thread;
    atomic_int events, other_threads;
    blip_runtime *server_runtime, *client_runtime;
    blip_listener *listener;
    blip_connection *client;
    char url[160];
};

static struct stage stage;

static void arrived(void)
{
    atomic_fetch_add(&stage.events, 1);
    if (stage.mode != CALLBACK && !pthread_equal(pthread_self(), stage.worker))
        atomic_fetch_add(&stage.other_threads, 1);
}

static blip_status run_request(blip_connection *connection, blip_message *request, void *context)
{
    struct hook *hook = context;
    arrived();
    return hook->request(connection, request, hook->context);
}

static void run_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->response(connection, request, response, status, hook->context);
}

static size_t run_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct hook *hook = context;
    arrived();
    return hook->data(message, data, status, hook->context);
}

static void run_sent(blip_message *message, blip_status status, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->sent(message, status, hook->context);
}

static void run_progress(blip_message *message, uint64_t sent, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->progress(message, sent, hook->context);
}

static void run_open(blip_connection *connection, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->open(connection, hook->context);
}

static void run_state(blip_connection *connection, int32_t state, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->state(connection, state, hook->context);
}

static void run_close(blip_connection *connection, blip_status status, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->close(connection, status, hook->context);
}

static void run_pong(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->pong(connection, status, microseconds, hook->context);
}

static void run_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->accept(listener, connection, hook->context);
}

static void run_stopped(blip_listener *listener, blip_status status, void *context)
{
    struct hook *hook = context;
    arrived();
    hook->stopped(listener, status, hook->context);
}

/* The callback for a call: the real one, or NULL in pull mode. */
#define HOOKED(function) (stage.mode == PULL ? NULL : (function))

/* Reads what has come of a streamed body and shows it to the data function until nothing is there. */
static void pull_data(blip_message *message, struct hook *hook)
{
    unsigned char buffer[8192];
    size_t size = 0;
    blip_status status = BLIP_OK;
    /* An event may tell of bytes that were read with those of the event before. */
    while (status == BLIP_OK && !hook->has_ended) {
        status = blip_message_read(message, buffer, sizeof buffer, &size);
        if (status == BLIP_AGAIN)
            break;
        hook->has_ended = status != BLIP_OK;
        hook->data(message, bytes_slice(buffer, status >= 0 ? size : 0), status, hook->context);
    }
}

static void play_event(blip_event *event)
{
    int32_t kind = 0;
    int64_t value = 0;
    void *context = NULL;
    CHECK_OK(blip_event_kind(event, &kind));
    CHECK_OK(blip_event_context(event, &context));
    blip_event_value(event, &value);
    blip_status status = blip_event_status(event);
    blip_connection *connection = blip_event_connection(event);
    blip_message *message = blip_event_message(event);
    struct hook *hook = context;
    if (hook == NULL)
        return;
    switch (kind) {
    case BLIP_EVENT_REQUEST:
        if (run_request(connection, message, hook) < 0)
            blip_message_respond_error(message, S(""), 501, S(""));
        break;
    case BLIP_EVENT_RESPONSE: run_response(connection, blip_event_request(event), message, status, hook); break;
    case BLIP_EVENT_DATA: arrived(); pull_data(message, hook); break;
    case BLIP_EVENT_SENT: run_sent(message, status, hook); break;
    case BLIP_EVENT_SEND_PROGRESS: run_progress(message, (uint64_t)value, hook); break;
    case BLIP_EVENT_STATE: run_state(connection, (int32_t)value, hook); break;
    case BLIP_EVENT_OPEN: run_open(connection, hook); break;
    case BLIP_EVENT_CLOSE: run_close(connection, status, hook); break;
    case BLIP_EVENT_PONG: run_pong(connection, status, value, hook); break;
    case BLIP_EVENT_ACCEPT: run_accept(blip_event_listener(event), connection, hook); break;
    case BLIP_EVENT_LISTENER_STOPPED: run_stopped(blip_event_listener(event), status, hook); break;
    default: test_note("event kind %d is not known", kind);
    }
}

static void *work(void *context)
{
    (void)context;
    while (!atomic_load(&stage.ends)) {
        size_t count = 0;
        if (stage.mode == DISPATCH) {
            CHECK_OK(blip_queue_dispatch(stage.queue, 10, 1000, &count));
            continue;
        }
        blip_event *events[7];
        CHECK_OK(blip_queue_next(stage.queue, events, 7, 1000, &count));
        CHECK_AT_MOST(count, 7);
        for (size_t i = 0; i < count; i++) {
            play_event(events[i]);
            blip_event_release(events[i]);
        }
    }
    return NULL;
}

static blip_runtime *runtime_of_stage(void)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    if (stage.queue != NULL)
        REQUIRE_OK(blip_runtime_options_set_queue(options, stage.queue));
    REQUIRE_OK(blip_runtime_new(options, &runtime));
    blip_runtime_options_release(options);
    return runtime;
}

static struct counter client_closed, server_closed, server_opened, stopped, accepted;

static void count_open(blip_connection *connection, void *context)
{
    (void)connection;
    counter_add(context, 1);
}

static void count_close(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    (void)status;
    counter_add(context, 1);
}

static void count_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener;
    CHECK(connection != NULL);
    counter_add(context, 1);
}

static void count_stopped(blip_listener *listener, blip_status status, void *context)
{
    (void)listener;
    CHECK_OK(status);
    counter_add(context, 1);
}

static blip_status echo(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_body(request, &body));
    return blip_message_respond_data(request, body, S(""));
}

static blip_status say_nothing(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_OK;
}

static blip_status fail(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_ERROR_STATE;
}

static struct hook open_hook = {.open = count_open, .context = &server_opened},
    close_hook = {.close = count_close, .context = &server_closed},
    client_close_hook = {.close = count_close, .context = &client_closed},
    accept_hook = {.accept = count_accept, .context = &accepted},
    stopped_hook = {.stopped = count_stopped, .context = &stopped}, echo_hook = {.request = echo},
    nothing_hook = {.request = say_nothing}, fail_hook = {.request = fail};

static void stage_open(enum mode mode)
{
    memset(&stage, 0, sizeof stage);
    stage.mode = mode;
    counter_init(&client_closed);
    counter_init(&server_closed);
    counter_init(&server_opened);
    counter_init(&stopped);
    counter_init(&accepted);
    if (mode != CALLBACK) {
        REQUIRE_OK(blip_queue_new(0, &stage.queue));
        REQUIRE_INT(pthread_create(&stage.worker, NULL, work, NULL), 0);
    }
    stage.server_runtime = runtime_of_stage();
    stage.client_runtime = runtime_of_stage();
    REQUIRE_OK(blip_listener_new(stage.server_runtime, NULL, &stage.listener));
    blip_listener *listener = stage.listener;
    CHECK_OK(blip_listener_set_open_callback(listener, HOOKED(run_open), &open_hook, NULL));
    CHECK_OK(blip_listener_set_close_callback(listener, HOOKED(run_close), &close_hook, NULL));
    CHECK_OK(blip_listener_set_accept_callback(listener, HOOKED(run_accept), &accept_hook, NULL));
    CHECK_OK(blip_listener_set_stopped_callback(listener, HOOKED(run_stopped), &stopped_hook, NULL));
    CHECK_OK(blip_listener_set_handler(listener, S("echo"), 0, HOOKED(run_request), &echo_hook, NULL));
    CHECK_OK(blip_listener_set_handler(listener, S("nothing"), 0, HOOKED(run_request), &nothing_hook, NULL));
    CHECK_OK(blip_listener_set_handler(listener, S("fail"), 0, HOOKED(run_request), &fail_hook, NULL));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    blip_slice url;
    REQUIRE_OK(blip_listener_url(listener, &url));
    snprintf(stage.url, sizeof stage.url, "%.*s", (int)url.size, (const char *)url.data);
    REQUIRE_OK(blip_connection_new(stage.client_runtime, S(stage.url), NULL, &stage.client));
    CHECK_OK(
        blip_connection_set_close_callback(stage.client, HOOKED(run_close), &client_close_hook, NULL));
    REQUIRE_OK(blip_connection_wait_open(stage.client, SOON));
}

static void stage_close(void)
{
    blip_connection_close(stage.client, 1000, S(""));
    CHECK(counter_wait(&client_closed, 1, SOON));
    CHECK_OK(blip_listener_stop(stage.listener, false, 1000));
    CHECK(counter_wait(&stopped, 1, SOON));
    CHECK(counter_wait(&server_closed, counter_get(&server_opened), SOON));
    blip_connection_release(stage.client);
    blip_listener_release(stage.listener);
    CHECK_OK(blip_runtime_stop(stage.client_runtime, SOON));
    CHECK_OK(blip_runtime_stop(stage.server_runtime, SOON));
    blip_runtime_release(stage.client_runtime);
    blip_runtime_release(stage.server_runtime);
    if (stage.mode != CALLBACK) {
        atomic_store(&stage.ends, true);
        CHECK_OK(blip_queue_wake(stage.queue));
        pthread_join(stage.worker, NULL);
        blip_queue_release(stage.queue);
        CHECK_INT(atomic_load(&stage.other_threads), 0);
    }
    CHECK_INT(counter_get(&client_closed), 1);
    CHECK_INT(counter_get(&stopped), 1);
    CHECK_INT(counter_get(&server_closed), counter_get(&server_opened));
    CHECK_INT(counter_get(&accepted), counter_get(&server_opened));
}

static blip_status stage_send(blip_message *request, struct outcome *outcome, struct hook *hook)
{
    outcome_init(outcome);
    outcome->no_release = true;
    *hook = (struct hook){.response = outcome_response, .context = outcome};
    blip_status status = blip_connection_send(stage.client, request, HOOKED(run_response), hook, NULL);
    blip_message_release(request);
    return status;
}

/* ---- scenarios ---- */

static void scenario_requests(void)
{
    static struct outcome outcomes[300];
    static struct hook hooks[300];
    for (int i = 0; i < 300; i++) {
        char text[32];
        snprintf(text, sizeof text, "body %d", i);
        CHECK_OK(stage_send(make_request("echo", text), &outcomes[i], &hooks[i]));
    }
    for (int i = 0; i < 300; i++) {
        char text[32];
        snprintf(text, sizeof text, "body %d", i);
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        CHECK_TEXT(S(outcomes[i].text), text);
    }
}

static void scenario_default_answers(void)
{
    static const struct {
        const char *profile;
        int32_t type;
        int64_t code;
    } cases[] = {{"nothing", BLIP_MESSAGE_RESPONSE, 0}, {"fail", BLIP_MESSAGE_ERROR, 501},
        {"nobody", BLIP_MESSAGE_ERROR, 404}};
    for (int i = 0; i < 3; i++) {
        static struct outcome outcome;
        static struct hook hook;
        CHECK_OK(stage_send(make_request(cases[i].profile, ""), &outcome, &hook));
        if (!CHECK(outcome_wait(&outcome)))
            test_note("profile %s in %s mode", cases[i].profile, mode_names[stage.mode]);
        /* An event that is dropped without an answer is a request that was let go of. */
        bool dropped = stage.mode == PULL && i == 0;
        CHECK_INT(outcome.type, dropped ? BLIP_MESSAGE_ERROR : cases[i].type);
        CHECK_INT(outcome.error_code, dropped ? 501 : cases[i].code);
    }
}

static void sent_counts(blip_message *message, blip_status status, void *context)
{
    (void)message;
    CHECK_OK(status);
    counter_add(context, 1);
}

static void progress_grows(blip_message *message, uint64_t sent, void *context)
{
    (void)message;
    *(uint64_t *)context = sent;
}

static void scenario_sent_and_progress(void)
{
    static struct outcome outcome;
    static struct hook hook, sent_hook, progress_hook;
    static struct counter sent;
    static unsigned char bytes[1000000];
    uint64_t reported = 0;
    counter_init(&sent);
    sent_hook = (struct hook){.sent = sent_counts, .context = &sent};
    progress_hook = (struct hook){.progress = progress_grows, .context = &reported};
    blip_message *request = make_request("echo", NULL);
    CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, sizeof bytes)));
    CHECK_OK(blip_message_set_sent_callback(request, HOOKED(run_sent), &sent_hook, NULL));
    CHECK_OK(blip_message_set_progress_callback(request, HOOKED(run_progress), &progress_hook, NULL));
    CHECK_OK(stage_send(request, &outcome, &hook));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.size, sizeof bytes);
    CHECK(counter_wait(&sent, 1, SOON));
    CHECK_INT(reported, sizeof bytes);
}

struct flow {
    struct counter ended, begun;
    uint64_t total;
    int wrong;
    struct hook hook;
};

static size_t flow_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct flow *flow = context;
    flow->wrong += !matches_pattern(data.data, data.size, flow->total, 11);
    flow->total += data.size;
    if (status == BLIP_DATA_END) {
        CHECK_OK(blip_message_respond_text(message, S("drained")));
        counter_add(&flow->ended, 1);
    } else if (status < 0) {
        flow->wrong++;
        counter_add(&flow->ended, 1);
    }
    if (status != BLIP_OK)
        blip_message_release(message);
    return data.size;
}

static blip_status flow_request(blip_connection *connection, blip_message *request, void *context)
{
    struct flow *flow = context;
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    CHECK(blip_message_retain(request) != NULL); /* released at the end of its data */
    flow->hook = (struct hook){.data = flow_data, .context = flow};
    CHECK_OK(blip_message_set_data_callback(request, HOOKED(run_data), &flow->hook, NULL));
    counter_add(&flow->begun, 1);
    return BLIP_OK;
}

static void scenario_streaming(void)
{
    static struct flow flow;
    static struct hook request_hook, hook;
    static struct outcome outcome;
    static unsigned char bytes[3000000];
    memset(&flow, 0, sizeof flow);
    counter_init(&flow.ended);
    counter_init(&flow.begun);
    request_hook = (struct hook){.request = flow_request, .context = &flow};
    CHECK_OK(blip_listener_set_handler(
        stage.listener, S("flow"), BLIP_HANDLER_STREAM, HOOKED(run_request), &request_hook, NULL));
    fill_pattern(bytes, sizeof bytes, 0, 11);
    /* Handlers set now are those of later connections. */
    blip_connection *second = NULL;
    REQUIRE_OK(blip_connection_new(stage.client_runtime, S(stage.url), NULL, &second));
    REQUIRE_OK(blip_connection_wait_open(second, SOON));
    blip_message *request = make_request("flow", NULL);
    CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, sizeof bytes)));
    outcome_init(&outcome);
    outcome.no_release = true;
    hook = (struct hook){.response = outcome_response, .context = &outcome};
    CHECK_OK(blip_connection_send(second, request, HOOKED(run_response), &hook, NULL));
    blip_message_release(request);
    CHECK(counter_wait(&flow.ended, 1, SOON));
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "drained");
    CHECK_INT(flow.total, sizeof bytes);
    CHECK_INT(flow.wrong, 0);
    CHECK_INT(counter_get(&flow.begun), 1);
    blip_connection_close(second, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(second, SOON));
    blip_connection_release(second);
}

static void pong_counts(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    (void)connection;
    CHECK_OK(status);
    CHECK_AT_LEAST(microseconds, 0);
    counter_add(context, 1);
}

static void scenario_ping(void)
{
    static struct counter pongs;
    static struct hook hook;
    counter_init(&pongs);
    hook = (struct hook){.pong = pong_counts, .context = &pongs};
    CHECK_OK(blip_connection_ping(stage.client, 2000, HOOKED(run_pong), &hook, NULL));
    CHECK(counter_wait(&pongs, 1, SOON));
}

struct states {
    struct counter count, opened, closed;
    int32_t seen[8];
    blip_status status;
};

static void states_seen(blip_connection *connection, int32_t state, void *context)
{
    struct states *states = context;
    int64_t index = counter_get(&states->count);
    (void)connection;
    CHECK_INT(counter_get(&states->closed), 0);
    if (index < 8)
        states->seen[index] = state;
    counter_add(&states->count, 1);
}

static void states_closed(blip_connection *connection, blip_status status, void *context)
{
    struct states *states = context;
    (void)connection;
    states->status = status;
    counter_add(&states->closed, 1);
}

static void scenario_life(void)
{
    static struct states states;
    static struct hook state_hook, open_h, close_h;
    memset(&states, 0, sizeof states);
    counter_init(&states.count);
    counter_init(&states.opened);
    counter_init(&states.closed);
    state_hook = (struct hook){.state = states_seen, .context = &states};
    open_h = (struct hook){.open = count_open, .context = &states.opened};
    close_h = (struct hook){.close = states_closed, .context = &states};
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_connection_new(stage.client_runtime, S(stage.url), NULL, &connection));
    CHECK_OK(blip_connection_set_state_callback(connection, HOOKED(run_state), &state_hook, NULL));
    CHECK_OK(blip_connection_set_open_callback(connection, HOOKED(run_open), &open_h, NULL));
    CHECK_OK(blip_connection_set_close_callback(connection, HOOKED(run_close), &close_h, NULL));
    CHECK_OK(blip_connection_connect(connection));
    CHECK(counter_wait(&states.opened, 1, SOON));
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK(counter_wait(&states.closed, 1, SOON));
    CHECK_STATUS(states.status, BLIP_OK);
    CHECK_AT_LEAST(counter_get(&states.count), 3);
    CHECK_INT(states.seen[0], BLIP_STATE_CONNECTING);
    CHECK_INT(states.seen[1], BLIP_STATE_OPEN);
    blip_connection_release(connection);
}

/* Completions come exactly once and before the closed event, also through a queue. */
static void scenario_close_with_pending(void)
{
    static struct outcome outcomes[100];
    static struct hook hooks[100];
    static struct states states;
    static struct hook close_h;
    memset(&states, 0, sizeof states);
    counter_init(&states.closed);
    close_h = (struct hook){.close = states_closed, .context = &states};
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_connection_new(stage.client_runtime, S(stage.url), NULL, &connection));
    CHECK_OK(blip_connection_set_close_callback(connection, HOOKED(run_close), &close_h, NULL));
    REQUIRE_OK(blip_connection_wait_open(connection, SOON));
    blip_connection *first = stage.client;
    stage.client = connection;
    for (int i = 0; i < 100; i++)
        CHECK_OK(stage_send(make_request("echo", "x"), &outcomes[i], &hooks[i]));
    stage.client = first;
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK(counter_wait(&states.closed, 1, SOON));
    for (int i = 0; i < 100; i++) {
        CHECK_INT(counter_get(&outcomes[i].done), 1);
        CHECK(outcomes[i].status == BLIP_OK || outcomes[i].status == BLIP_ERROR_CLOSED);
    }
    blip_connection_release(connection);
}

static void play(enum mode mode, void (*scenario)(void))
{
    stage_open(mode);
    scenario();
    stage_close();
}

#define SCENARIO(name) \
    TEST(name##_by_callback) { play(CALLBACK, scenario_##name); } \
    TEST(name##_by_dispatch) { play(DISPATCH, scenario_##name); } \
    TEST(name##_by_pulling) { play(PULL, scenario_##name); }

SCENARIO(requests)
SCENARIO(default_answers)
SCENARIO(sent_and_progress)
SCENARIO(streaming)
SCENARIO(ping)
SCENARIO(life)
SCENARIO(close_with_pending)

/* ---- the queue itself ---- */

/* Another client of the pair's server, not connected, whose events go through the queue. */
static blip_connection *client_with_queue(const struct pair *pair, blip_queue *queue)
{
    blip_connection_options *options = blip_connection_options_new();
    blip_connection *client = NULL;
    CHECK_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(pair->client_runtime, S(pair->url), options, &client));
    blip_connection_options_release(options);
    return client;
}

TEST(an_empty_queue)
{
    blip_queue *queue = NULL;
    size_t count = 9;
    blip_event *event = NULL;
    int descriptor = -1;
    REQUIRE_OK(blip_queue_new(16, &queue));
    CHECK_OK(blip_queue_count(queue, &count));
    CHECK_INT(count, 0);
    int64_t start = now_ms();
    blip_status status = blip_queue_dispatch(queue, 10, 0, &count);
    CHECK(status == BLIP_OK || status == BLIP_ERROR_TIMEOUT);
    CHECK_INT(count, 0);
    status = blip_queue_next(queue, &event, 1, 100, &count);
    CHECK(status == BLIP_OK || status == BLIP_ERROR_TIMEOUT);
    test_note("an empty queue says %s", blip_status_name(status));
    CHECK_INT(count, 0);
    CHECK_POINTER(event, NULL);
    CHECK_AT_LEAST(now_ms() - start, 80);
    CHECK_AT_MOST(now_ms() - start, 2000);
    CHECK_OK(blip_queue_fd(queue, &descriptor));
    struct pollfd waited = {descriptor, POLLIN, 0};
    CHECK_INT(poll(&waited, 1, 0), 0);
    CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    blip_queue_release(queue);
    CHECK_INT(fcntl(descriptor, F_GETFD), -1);
}

static void *wake_later(void *queue)
{
    sleep_ms(100);
    CHECK_OK(blip_queue_wake(queue));
    return NULL;
}

TEST(wake_ends_one_wait)
{
    blip_queue *queue = NULL;
    pthread_t thread;
    size_t count = 9;
    REQUIRE_OK(blip_queue_new(16, &queue));
    for (int i = 0; i < 2; i++) {
        REQUIRE_INT(pthread_create(&thread, NULL, wake_later, queue), 0);
        int64_t start = now_ms();
        blip_event *event = NULL;
        blip_status status = i == 0 ? blip_queue_dispatch(queue, 1, -1, &count)
                                    : blip_queue_next(queue, &event, 1, -1, &count);
        CHECK_OK(status);
        CHECK_INT(count, 0);
        CHECK_AT_LEAST(now_ms() - start, 80);
        pthread_join(thread, NULL);
    }
    /* A wake before the wait is not lost. */
    CHECK_OK(blip_queue_wake(queue));
    CHECK_OK(blip_queue_dispatch(queue, 1, -1, &count));
    blip_queue_release(queue);
}

TEST(the_descriptor_is_readable_while_events_wait)
{
    blip_queue *queue = NULL;
    int descriptor = -1, again = -1;
    struct pair pair;
    struct outcome outcomes[20];
    REQUIRE_OK(blip_queue_new(0, &queue));
    CHECK_OK(blip_queue_fd(queue, &descriptor));
    CHECK_OK(blip_queue_fd(queue, &again));
    CHECK_INT(descriptor, again);
    pair_open(&pair, NULL);
    blip_connection *client = client_with_queue(&pair, queue);
    CHECK_OK(blip_connection_set_close_callback(client, NULL, NULL, NULL));
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    for (int i = 0; i < 20; i++)
        CHECK_OK(send_request(client, "echo", "x", &outcomes[i]));
    struct pollfd waited = {descriptor, POLLIN, 0};
    CHECK_INT(poll(&waited, 1, SOON), 1);
    /* Level-triggered: it stays readable until the last event is taken. */
    int64_t done = 0, end = now_ms() + SOON;
    while (done < 20 && now_ms() < end) {
        size_t count = 0, waiting = 0;
        if (poll(&waited, 1, 1000) != 1)
            continue;
        CHECK_OK(blip_queue_count(queue, &waiting));
        CHECK_AT_LEAST(waiting, 1);
        CHECK_OK(blip_queue_dispatch(queue, 1, 0, &count));
        CHECK_INT(count, 1);
        done = 0;
        for (int i = 0; i < 20; i++)
            done += counter_get(&outcomes[i].done);
    }
    CHECK_INT(done, 20);
    sleep_ms(50);
    size_t count = 1;
    while (blip_queue_dispatch(queue, 100, 0, &count) == BLIP_OK && count > 0)
        continue;
    CHECK_INT(poll(&waited, 1, 0), 0);
    blip_connection_close(client, 1000, S(""));
    CHECK_INT(poll(&waited, 1, SOON), 1);
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    while (blip_queue_dispatch(queue, 100, 0, &count) == BLIP_OK && count > 0)
        continue;
    blip_queue_release(queue);
    pair_close(&pair);
}

/* A full queue stops the reading; nothing is lost and memory is bounded. */
TEST(a_full_queue_holds_the_peers_back)
{
    enum { REQUESTS = 3000 };
    blip_queue *queue = NULL;
    struct pair pair;
    static struct outcome outcomes[REQUESTS];
    size_t waiting = 0, count = 0, handled = 0;
    REQUIRE_OK(blip_queue_new(32, &queue));
    pair_open(&pair, &(struct pair_options){.server_queue = queue, .no_client = true});
    blip_connection *client = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    REQUIRE_OK(blip_connection_connect(client));
    for (int i = 0; i < REQUESTS; i++)
        CHECK_OK(send_request(client, "echo", "0123456789", &outcomes[i]));
    sleep_ms(300);
    CHECK_OK(blip_queue_count(queue, &waiting));
    test_note("%zu events wait in a queue of 32", waiting);
    CHECK_AT_MOST(waiting, 32 + 4096);
    int64_t end = now_ms() + SOON;
    while (handled < REQUESTS && now_ms() < end) {
        CHECK_OK(blip_queue_dispatch(queue, 50, 100, &count));
        handled += count;
    }
    for (int i = 0; i < REQUESTS; i++) {
        while (counter_get(&outcomes[i].done) == 0 && now_ms() < end)
            blip_queue_dispatch(queue, 50, 10, &count);
        REQUIRE(counter_get(&outcomes[i].done) == 1);
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    blip_listener_stop(pair.listener, false, 1000);
    while (counter_get(&pair.server_closed) < 1 && now_ms() < end)
        blip_queue_dispatch(queue, 50, 100, &count);
    CHECK_INT(counter_get(&pair.server_closed), 1);
    blip_connection_release(pair.accepted);
    blip_listener_release(pair.listener);
    blip_runtime_release(pair.client_runtime);
    blip_runtime_release(pair.server_runtime);
    while (blip_queue_dispatch(queue, 50, 100, &count) == BLIP_OK && count > 0)
        continue;
    blip_queue_release(queue);
}

TEST(events_keep_what_they_refer_to)
{
    blip_queue *queue = NULL;
    struct pair pair;
    blip_connection *client = NULL;
    blip_event *event = NULL;
    size_t count = 0;
    int32_t kind = 0;
    blip_slice body;
    int marker = 0;
    void *context = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    client = client_with_queue(&pair, queue);
    blip_message *request = make_request("echo", "kept");
    CHECK_OK(blip_connection_send(client, request, NULL, &marker, NULL));
    CHECK_OK(blip_connection_connect(client));
    do {
        blip_event_release(event);
        event = NULL;
        REQUIRE_OK(blip_queue_next(queue, &event, 1, SOON, &count));
        REQUIRE_INT(count, 1);
        CHECK_OK(blip_event_kind(event, &kind));
    } while (kind != BLIP_EVENT_RESPONSE);
    blip_message_release(request);
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    CHECK_OK(blip_event_status(event));
    CHECK_OK(blip_event_context(event, &context));
    CHECK_POINTER(context, &marker);
    CHECK_OK(blip_message_body(blip_event_message(event), &body));
    CHECK_TEXT(body, "kept");
    CHECK_OK(blip_message_body(blip_event_request(event), &body));
    CHECK_POINTER(blip_event_connection(event), client);
    CHECK_POINTER(blip_event_listener(event), NULL);
    int32_t state = -1;
    CHECK_OK(blip_connection_state(blip_event_connection(event), &state));
    CHECK_INT(state, BLIP_STATE_CLOSED);
    blip_message *message = blip_message_retain(blip_event_message(event));
    blip_event_release(event);
    CHECK_STATUS(blip_connection_state(client, &state), BLIP_ERROR_HANDLE);
    CHECK_OK(blip_message_body(message, &body));
    CHECK_TEXT(body, "kept");
    blip_message_release(message);
    CHECK_STATUS(blip_event_status(event), BLIP_ERROR_HANDLE);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(a_released_queue_releases_contexts_of_what_waited)
{
    blip_queue *queue = NULL;
    struct pair pair;
    struct counter released = COUNTER;
    blip_connection *client = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    client = client_with_queue(&pair, queue);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    for (int i = 0; i < 50; i++) {
        blip_message *request = make_request("echo", "x");
        CHECK_OK(blip_connection_send(client, request, NULL, &released, count_release));
        blip_message_release(request);
    }
    sleep_ms(50);
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    blip_queue_release(queue);
    CHECK(counter_wait(&released, 50, SOON));
    CHECK_INT(counter_get(&released), 50);
    pair_close(&pair);
}

static void *dispatcher(void *queue)
{
    size_t count;
    for (;;) {
        blip_status status = blip_queue_dispatch(queue, 5, 300, &count);
        if ((status != BLIP_OK && status != BLIP_ERROR_TIMEOUT) || count == 0)
            return NULL;
    }
}

TEST(several_threads_dispatch)
{
    enum { REQUESTS = 2000 };
    blip_queue *queue = NULL;
    struct pair pair;
    static struct outcome outcomes[REQUESTS];
    pthread_t threads[4];
    blip_connection *client = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    client = client_with_queue(&pair, queue);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    for (int i = 0; i < REQUESTS; i++)
        CHECK_OK(send_request(client, "echo", "x", &outcomes[i]));
    for (int i = 0; i < 4; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, dispatcher, queue), 0);
    for (int i = 0; i < REQUESTS; i++)
        REQUIRE(outcome_wait(&outcomes[i]));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    dispatcher(queue);
    blip_queue_release(queue);
    pair_close(&pair);
}

static struct counter slow_begun = COUNTER, slow_told = COUNTER, last_told = COUNTER;

static void told_slowly(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    int32_t state = -1;
    (void)request, (void)response, (void)status, (void)context;
    /* Meanwhile another thread runs what is behind, to the last. */
    counter_add(&slow_begun, 1);
    CHECK(counter_wait(&last_told, 1, SOON));
    sleep_ms(20);
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_CLOSED);
    counter_add(&slow_told, 1);
}

static void told_last(blip_connection *connection, blip_status status, void *context)
{
    (void)connection, (void)status, (void)context;
    counter_add(&last_told, 1);
}

TEST(a_callback_keeps_its_connection_while_threads_run_what_follows)
{
    blip_queue *queue = NULL;
    struct pair pair;
    blip_connection *client = NULL;
    pthread_t threads[2];
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    client = client_with_queue(&pair, queue);
    CHECK_OK(blip_connection_set_close_callback(client, told_last, NULL, NULL));
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_connection_send(client, request, told_slowly, NULL, NULL));
    CHECK_OK(blip_connection_connect(client));
    CHECK_OK(blip_message_wait_sent(request, SOON));
    blip_message_release(request);
    for (int i = 0; i < 2; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, dispatcher, queue), 0);
    REQUIRE_REACHES(&slow_begun, 1);
    blip_connection_release(client);
    REQUIRE_REACHES(&slow_told, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    blip_queue_release(queue);
    pair_close(&pair);
}

static void ask_at_once(blip_connection *connection, void *context)
{
    blip_message *request = make_request("anything", "from the server");
    CHECK_OK(blip_connection_send(connection, request, outcome_response, context, outcome_release));
    blip_message_release(request);
}

static blip_status answer_nothing(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_OK;
}

static void ignore_state(blip_connection *connection, int32_t state, void *context)
{
    (void)connection;
    (void)state;
    (void)context;
}

/* The queue is full before the connection has a socket. What the server then sends first must come when there is room. */
TEST(a_queue_that_is_full_while_connecting)
{
    struct pair pair;
    struct outcome outcome;
    blip_queue *queue = NULL;
    blip_connection *client = NULL;
    size_t count = 0;
    outcome_init(&outcome);
    REQUIRE_OK(blip_queue_new(1, &queue));
    pair_open(&pair, &(struct pair_options){.client_queue = queue, .no_client = true});
    CHECK_OK(blip_listener_set_open_callback(pair.listener, ask_at_once, &outcome, NULL));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    CHECK_OK(blip_connection_set_state_callback(client, ignore_state, NULL, NULL));
    CHECK_OK(blip_connection_set_default_handler(client, 0, answer_nothing, NULL, NULL));
    CHECK_OK(blip_connection_connect(client));
    CHECK_OK(blip_connection_wait_open(client, SOON));
    sleep_ms(100); /* for the server's request to arrive */
    int64_t end = now_ms() + SOON;
    while (counter_get(&outcome.done) == 0 && now_ms() < end)
        CHECK_OK(blip_queue_dispatch(queue, 10, 5, &count));
    CHECK_INT(counter_get(&outcome.done), 1);
    CHECK_STATUS(outcome.status, BLIP_OK);
    /* And closing does not wait for room: its timeout is 5 s. */
    int64_t start = now_ms();
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    CHECK_AT_MOST(now_ms() - start, 3000);
    blip_connection_release(client);
    pair_close(&pair);
    blip_queue_release(queue);
}

static size_t ignore_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    (void)message, (void)status, (void)context;
    return data.size;
}

static blip_status keep_streamed(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    CHECK_OK(blip_message_set_data_callback(request, ignore_data, NULL, NULL));
    *(blip_message **)context = blip_message_retain(request);
    return BLIP_OK;
}

/* Bytes that are announced, but read before the program gets to that: there is nothing to tell, once. */
TEST(what_was_read_before_its_event_is_not_announced_again)
{
    blip_queue *queue = NULL;
    blip_runtime *plain = make_runtime(1), *queued = NULL;
    blip_connection *client = NULL, *server = NULL;
    blip_message *kept = NULL;
    size_t count = 0, size = 0;
    char buffer[100];
    REQUIRE_OK(blip_queue_new(0, &queue));
    blip_runtime_options *options = blip_runtime_options_new();
    CHECK_OK(blip_runtime_options_set_queue(options, queue));
    REQUIRE_OK(blip_runtime_new(options, &queued));
    blip_runtime_options_release(options);
    REQUIRE_OK(blip_connection_pair(plain, queued, NULL, &client, &server));
    CHECK_OK(blip_connection_set_handler(server, S("p"), BLIP_HANDLER_STREAM, keep_streamed, &kept, NULL));
    blip_message *request = make_request("p", "");
    CHECK_OK(blip_message_append_body_pushed(request));
    CHECK_OK(blip_connection_send(client, request, NULL, NULL, NULL));
    CHECK_OK(blip_message_push_body(request, S("first"), false));
    int64_t end = now_ms() + SOON;
    while (kept == NULL && now_ms() < end)
        CHECK_OK(blip_queue_dispatch(queue, 1, 5, &count));
    REQUIRE(kept != NULL);
    sleep_ms(50);
    while (blip_queue_dispatch(queue, 100, 0, &count) == BLIP_OK && count > 0 && now_ms() < end)
        continue;
    CHECK_OK(blip_message_push_body(request, S("second"), false));
    blip_status status;
    while ((status = blip_message_read(kept, buffer, sizeof buffer, &size)) == BLIP_AGAIN && now_ms() < end)
        sleep_ms(1);
    CHECK_STATUS(status, BLIP_OK);
    CHECK_INT(size, 6);
    count = 1;
    for (int turn = 0; turn < 100 && count > 0; turn++)
        CHECK_OK(blip_queue_dispatch(queue, 100, 0, &count));
    CHECK_INT(count, 0);
    /* What comes then is announced as ever. */
    CHECK_OK(blip_message_push_body(request, S("third"), true));
    while (count == 0 && now_ms() < end)
        CHECK_OK(blip_queue_dispatch(queue, 100, 5, &count));
    CHECK(count > 0);
    blip_message_release(kept);
    blip_message_release(request);
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_runtime_stop(plain, SOON));
    CHECK_OK(blip_connection_wait_closed(server, SOON));
    while (blip_queue_dispatch(queue, 100, 0, &count) == BLIP_OK && count > 0 && now_ms() < end)
        continue;
    CHECK_OK(blip_runtime_stop(queued, SOON));
    blip_connection_release(client);
    blip_connection_release(server);
    blip_runtime_release(plain);
    blip_runtime_release(queued);
    blip_queue_release(queue);
}
