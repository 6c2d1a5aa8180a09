/* Runtimes: threads, none of them, foreign event loops, stopping, logs; what waits may not wait on a loop thread. */

#define _GNU_SOURCE

#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

TEST(threads_as_many_as_asked_for)
{
    static const uint32_t counts[] = {1, 2, 7};
    size_t before = own_threads();
    for (int i = 0; i < 3; i++) {
        blip_runtime *runtime = make_runtime(counts[i]);
        uint32_t count = 0;
        int descriptor = -1;
        CHECK_OK(blip_runtime_thread_count(runtime, &count));
        CHECK_INT(count, counts[i]);
        CHECK_INT(own_threads(), before + counts[i]);
        CHECK(blip_runtime_fd(runtime, &descriptor) < 0);
        CHECK(blip_runtime_run_once(runtime, 0, &count) < 0);
        CHECK_OK(blip_runtime_stop(runtime, SOON));
        /* A joined thread may be seen in /proc for a moment longer. */
        int64_t end = now_ms() + 1000;
        while (own_threads() > before && now_ms() < end)
            sleep_ms(1);
        CHECK_INT(own_threads(), before);
        drop_runtime(runtime);
    }
    blip_runtime_options *options = blip_runtime_options_new();
    CHECK_OK(blip_runtime_options_set_threads(options, 256));
    CHECK_STATUS(blip_runtime_options_set_threads(options, 257), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_runtime_options_set_threads(options, UINT32_MAX), BLIP_ERROR_ARGUMENT);
    blip_runtime_options_release(options);
}

TEST(options_may_be_left_out_and_are_copied)
{
    blip_runtime *first = NULL, *second = NULL;
    uint32_t count = 0;
    REQUIRE_OK(blip_runtime_new(NULL, &first));
    CHECK_OK(blip_runtime_thread_count(first, &count));
    CHECK_INT(count, 1);
    blip_runtime_options *options = blip_runtime_options_new();
    CHECK_OK(blip_runtime_options_set_threads(options, 3));
    REQUIRE_OK(blip_runtime_new(options, &second));
    CHECK_OK(blip_runtime_options_set_threads(options, 1));
    CHECK_OK(blip_runtime_thread_count(second, &count));
    CHECK_INT(count, 3);
    blip_runtime_options_release(options);
    blip_runtime_release(first);
    blip_runtime_release(second);
}

TEST(releasing_ends_threads_and_descriptors)
{
    /* The first use may open things that stay, such as a random source. */
    blip_runtime_release(make_runtime(1));
    sleep_ms(50);
    size_t threads = own_threads(), descriptors = open_descriptors();
    for (int i = 0; i < 50; i++)
        blip_runtime_release(make_runtime(2));
    int64_t end = now_ms() + SOON;
    while ((own_threads() > threads || open_descriptors() > descriptors) && now_ms() < end)
        sleep_ms(5);
    CHECK_INT(own_threads(), threads);
    CHECK_INT(open_descriptors(), descriptors);
}

TEST(the_default_runtime_is_one)
{
    blip_runtime *first = blip_runtime_default(), *second = blip_runtime_default();
    uint32_t count = 0;
    REQUIRE(first != NULL);
    CHECK_POINTER(first, second);
    CHECK_OK(blip_runtime_thread_count(first, &count));
    CHECK_INT(count, 1);
    /* It is borrowed: a release too many may not end it. */
    blip_connection *connection = NULL;
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_connection_new(first, S(url), NULL, &connection));
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_REFUSED);
    blip_connection_release(connection);
}

TEST(connections_are_spread_over_threads)
{
    blip_runtime *runtime = make_runtime(4);
    blip_listener *listener = NULL;
    blip_connection *clients[16];
    struct outcome outcomes[16];
    blip_slice url;
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_url(listener, &url));
    for (int i = 0; i < 16; i++) {
        REQUIRE_OK(blip_connection_new(runtime, url, NULL, &clients[i]));
        CHECK_OK(send_request(clients[i], "echo", "x", &outcomes[i]));
        CHECK_OK(blip_connection_connect(clients[i]));
    }
    for (int i = 0; i < 16; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        blip_connection_release(clients[i]);
    }
    CHECK_OK(blip_runtime_stop(runtime, SOON));
    blip_listener_release(listener);
    drop_runtime(runtime);
}

/* ---- without threads ---- */

static bool run_until(blip_runtime *runtime, struct counter *counter, int64_t value)
{
    int64_t end = now_ms() + SOON;
    int descriptor = -1;
    CHECK_OK(blip_runtime_fd(runtime, &descriptor));
    while (counter_get(counter) < value && now_ms() < end) {
        struct pollfd waited = {descriptor, POLLIN, 0};
        uint32_t events = 0;
        /* Timers of the runtime have to make the descriptor readable too. */
        poll(&waited, 1, 2000);
        CHECK_OK(blip_runtime_run_once(runtime, 0, &events));
    }
    return counter_get(counter) >= value;
}

static void close_counts(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    (void)status;
    counter_add(context, 1);
}

TEST(a_runtime_without_threads_is_driven_by_poll)
{
    size_t before = own_threads();
    blip_runtime *runtime = make_runtime(0);
    blip_listener *listener = NULL;
    blip_connection *client = NULL;
    struct counter closed = COUNTER;
    static struct outcome outcomes[100];
    blip_slice url;
    uint32_t count = 9;
    CHECK_OK(blip_runtime_thread_count(runtime, &count));
    CHECK_INT(count, 0);
    CHECK_INT(own_threads(), before);
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_url(listener, &url));
    REQUIRE_OK(blip_connection_new(runtime, url, NULL, &client));
    CHECK_OK(blip_connection_set_close_callback(client, close_counts, &closed, NULL));
    CHECK_OK(blip_connection_connect(client));
    for (int i = 0; i < 100; i++)
        CHECK_OK(send_request(client, "echo", "polled", &outcomes[i]));
    sleep_ms(50);
    CHECK_INT(counter_get(&outcomes[0].done), 0); /* nothing runs by itself */
    for (int i = 0; i < 100; i++) {
        CHECK(run_until(runtime, &outcomes[i].done, 1));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    CHECK_INT(own_threads(), before);
    /* Nothing to do: the descriptor is quiet and run_once waits as long as it is told. */
    int descriptor = -1;
    CHECK_OK(blip_runtime_fd(runtime, &descriptor));
    uint32_t events = 0;
    for (int i = 0; i < 20; i++)
        blip_runtime_run_once(runtime, 0, &events);
    struct pollfd waited = {descriptor, POLLIN, 0};
    CHECK_INT(poll(&waited, 1, 50), 0);
    int64_t start = now_ms();
    CHECK_OK(blip_runtime_run_once(runtime, 100, &events));
    CHECK_AT_LEAST(now_ms() - start, 80);
    CHECK_INT(events, 0);
    CHECK_OK(blip_connection_close(client, 1000, S("")));
    CHECK(run_until(runtime, &closed, 1));
    blip_connection_release(client);
    CHECK_OK(blip_runtime_stop(runtime, SOON));
    blip_listener_release(listener);
    drop_runtime(runtime);
}

TEST(the_descriptor_of_a_runtime_tells_of_timers)
{
    int silent;
    char url[64];
    blip_runtime *runtime = make_runtime(0);
    blip_connection *client = NULL;
    struct counter closed = COUNTER;
    blip_connection_options *options = blip_connection_options_new();
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&silent));
    CHECK_OK(blip_connection_options_set_connect_timeout(options, 300));
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &client));
    blip_connection_options_release(options);
    CHECK_OK(blip_connection_set_close_callback(client, close_counts, &closed, NULL));
    CHECK_OK(blip_connection_connect(client));
    int64_t start = now_ms();
    CHECK(run_until(runtime, &closed, 1));
    CHECK_AT_LEAST(now_ms() - start, 250);
    CHECK_AT_MOST(now_ms() - start, 1500);
    blip_connection_release(client);
    drop_runtime(runtime);
    close(silent);
}

TEST(the_descriptor_fits_into_other_loops)
{
    blip_runtime *runtime = make_runtime(0);
    int descriptor = -1, outer = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    blip_connection *client = NULL;
    struct counter closed = COUNTER;
    char url[64];
    CHECK_OK(blip_runtime_fd(runtime, &descriptor));
    CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    REQUIRE_INT(epoll_ctl(outer, EPOLL_CTL_ADD, descriptor, &event), 0);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    CHECK_OK(blip_connection_set_close_callback(client, close_counts, &closed, NULL));
    CHECK_OK(blip_connection_connect(client));
    int64_t end = now_ms() + SOON;
    while (counter_get(&closed) == 0 && now_ms() < end) {
        uint32_t events;
        if (epoll_wait(outer, &event, 1, 1000) == 1)
            CHECK_OK(blip_runtime_run_once(runtime, 0, &events));
    }
    CHECK_INT(counter_get(&closed), 1);
    close(outer);
    blip_connection_release(client);
    drop_runtime(runtime);
}

/* Waiting calls would never end on the only thread that could make them end. */
TEST(waiting_calls_drive_or_refuse_without_threads)
{
    blip_runtime *runtime = make_runtime(0);
    blip_connection *client = NULL;
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    int64_t start = now_ms();
    blip_status status = blip_connection_wait_open(client, 500);
    test_note("wait_open without threads: %s", blip_status_name(status));
    CHECK(status == BLIP_ERROR_TIMEOUT || status == BLIP_ERROR_REFUSED || status == BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_AT_MOST(now_ms() - start, 3000);
    blip_connection_release(client);
    drop_runtime(runtime);
}

struct driver {
    blip_runtime *runtime;
    atomic_bool stop;
    int turns;
};

static void *run_from_elsewhere(void *context)
{
    struct pollfd waited;
    uint32_t events;
    int descriptor = -1;
    struct driver *driver = context;
    CHECK_OK(blip_runtime_fd(driver->runtime, &descriptor));
    waited = (struct pollfd){descriptor, POLLIN, 0};
    while (!atomic_load(&driver->stop)) {
        /* Long: what other threads do has to end the waiting. */
        int64_t start = now_ms();
        poll(&waited, 1, 3000);
        if (!atomic_load(&driver->stop))
            CHECK_AT_MOST(now_ms() - start, 2500);
        CHECK_OK(blip_runtime_run_once(driver->runtime, 0, &events));
        driver->turns++;
    }
    return NULL;
}

TEST(other_threads_wake_a_runtime_without_threads)
{
    struct pair pair;
    struct outcome outcome;
    blip_runtime *runtime = make_runtime(0);
    struct driver driver = {runtime, false, 0};
    blip_connection *client = NULL;
    pthread_t thread;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(runtime, S(pair.url), NULL, &client));
    REQUIRE_INT(pthread_create(&thread, NULL, run_from_elsewhere, &driver), 0);
    CHECK_OK(blip_connection_wait_open(client, SOON));
    CHECK_OK(send_request(client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    atomic_store(&driver.stop, true);
    blip_connection_close(client, 1000, S(""));
    pthread_join(thread, NULL);
    test_note("%d turns", driver.turns);
    CHECK_AT_MOST(driver.turns, 200);
    blip_connection_release(client);
    drop_runtime(runtime);
    pair_close(&pair);
}

TEST(idle_runtimes_take_no_time)
{
    struct pair pair;
    pair_open(&pair, NULL);
    sleep_ms(100);
    int64_t before = processor_ms();
    sleep_ms(1000);
    CHECK_AT_MOST(processor_ms() - before, 50);
    pair_close(&pair);
}

/* ---- stopping ---- */

TEST(after_stop_everything_says_so)
{
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL, *early = NULL;
    blip_listener *listener = NULL, *fresh = NULL;
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &early));
    REQUIRE_OK(blip_listener_new(runtime, NULL, &fresh));
    CHECK_OK(blip_runtime_stop(runtime, SOON));
    CHECK_OK(blip_runtime_stop(runtime, 0));
    CHECK_STATUS(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection), BLIP_ERROR_STOPPED);
    CHECK_STATUS(blip_listener_new(runtime, NULL, &listener), BLIP_ERROR_STOPPED);
    CHECK_STATUS(blip_listener_start(fresh, S("127.0.0.1"), 0), BLIP_ERROR_STOPPED);
    CHECK(blip_connection_connect(early) < 0);
    CHECK(blip_connection_wait_open(early, 100) < 0);
    CHECK_POINTER(connection, NULL);
    CHECK_POINTER(listener, NULL);
    blip_connection_release(early);
    blip_listener_release(fresh);
    drop_runtime(runtime);
}

TEST(stop_closes_listeners_and_connections)
{
    struct pair pair;
    struct outcome outcome;
    int32_t state = -1;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "never", "", &outcome));
    sleep_ms(20);
    CHECK_OK(blip_runtime_stop(pair.server_runtime, SOON));
    CHECK_INT(counter_get(&pair.server_closed), 1);
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK(outcome_wait(&outcome));
    CHECK_OK(blip_connection_state(pair.accepted, &state));
    CHECK_INT(state, BLIP_STATE_CLOSED);
    CHECK_OK(blip_runtime_stop(pair.client_runtime, SOON));
    blip_connection_release(pair.client);
    blip_connection_release(pair.accepted);
    blip_listener_release(pair.listener);
    blip_runtime_release(pair.client_runtime);
    blip_runtime_release(pair.server_runtime);
}

static void *stop_it(void *runtime)
{
    CHECK_OK(blip_runtime_stop(runtime, SOON));
    return NULL;
}

TEST(several_threads_stop_at_once)
{
    struct pair pair;
    pthread_t threads[8];
    pair_open(&pair, NULL);
    for (int i = 0; i < 8; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, stop_it, pair.client_runtime), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(counter_get(&pair.client_closed), 1);
    pair_close(&pair);
}

/* ---- deadlocks ---- */

struct waiting {
    struct counter done;
    struct pair *pair;
};

static void call_everything_that_waits(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct waiting *waiting = context;
    blip_message *question = make_request("echo", "x"), *answer = NULL;
    char byte;
    size_t size;
    (void)status;
    CHECK_STATUS(blip_connection_request(connection, question, 100, &answer), BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_STATUS(blip_connection_wait_closed(connection, 100), BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_STATUS(blip_runtime_stop(waiting->pair->client_runtime, 100), BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_STATUS(blip_listener_wait_stopped(waiting->pair->listener, 100), BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_STATUS(blip_message_read_wait(response, &byte, 1, 100, &size), BLIP_ERROR_WOULD_DEADLOCK);
    blip_connection *other = NULL;
    CHECK_OK(blip_connection_new(waiting->pair->client_runtime, S(waiting->pair->url), NULL, &other));
    CHECK_STATUS(blip_connection_wait_open(other, 100), BLIP_ERROR_WOULD_DEADLOCK);
    blip_connection_release(other);
    bool is_mutable = false;
    CHECK_OK(blip_message_is_mutable(question, &is_mutable));
    CHECK(is_mutable);
    CHECK_OK(blip_connection_send(connection, question, NULL, NULL, NULL));
    CHECK_STATUS(blip_message_wait_sent(question, 100), BLIP_ERROR_WOULD_DEADLOCK);
    blip_message_release(question);
    (void)request;
    counter_add(&waiting->done, 1);
}

TEST(what_waits_is_refused_inside_callbacks)
{
    struct pair pair;
    struct waiting waiting = {COUNTER, &pair};
    pair_open(&pair, NULL);
    blip_message *request = make_request("source", NULL);
    CHECK_OK(blip_message_set_property(request, S("Size"), S("1000000")));
    CHECK_OK(blip_message_set_streamed(request, true));
    int64_t start = now_ms();
    CHECK_OK(blip_connection_send(pair.client, request, call_everything_that_waits, &waiting, NULL));
    blip_message_release(request);
    CHECK(counter_wait(&waiting.done, 1, SOON));
    CHECK_AT_MOST(now_ms() - start, 2000);
    pair_close(&pair);
}

static void wait_while_dispatched(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    blip_message *question = make_request("echo", "nested"), *answer = NULL;
    blip_slice body;
    (void)request;
    (void)response;
    CHECK_OK(status);
    /* A dispatching thread is the program's own: it may wait. */
    if (CHECK_OK(blip_connection_request(connection, question, SOON, &answer))) {
        CHECK_OK(blip_message_body(answer, &body));
        CHECK_TEXT(body, "nested");
    }
    blip_message_release(question);
    blip_message_release(answer);
    counter_add(context, 1);
}

TEST(callbacks_of_a_queue_may_wait)
{
    struct pair pair;
    struct counter done = COUNTER;
    blip_queue *queue = NULL;
    blip_connection *client = NULL;
    size_t count = 0;
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, NULL);
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &client));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_connection_send(client, request, wait_while_dispatched, &done, NULL));
    blip_message_release(request);
    int64_t end = now_ms() + SOON;
    while (counter_get(&done) == 0 && now_ms() < end)
        blip_queue_dispatch(queue, 1, 100, &count);
    CHECK_INT(counter_get(&done), 1);
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    blip_queue_release(queue);
    pair_close(&pair);
}

/* ---- logs ---- */

struct log {
    struct counter lines, released;
    int32_t highest;
    pthread_t thread;
};

static void log_line(int32_t level, blip_slice domain, blip_slice text, void *context)
{
    struct log *log = context;
    CHECK(level >= BLIP_LOG_ERROR && level <= BLIP_LOG_DEBUG);
    CHECK_AT_LEAST(domain.size, 1);
    CHECK_AT_LEAST(text.size, 1);
    CHECK_INT(counter_get(&log->released), 0);
    if (level > log->highest)
        log->highest = level;
    counter_add(&log->lines, 1);
}

static void log_released(void *context)
{
    struct log *log = context;
    counter_add(&log->released, 1);
}

TEST(logs_are_written_and_their_contexts_released)
{
    struct pair pair;
    struct log first = {.lines = COUNTER, .released = COUNTER}, second = {.lines = COUNTER, .released = COUNTER};
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_runtime_set_log(pair.client_runtime, BLIP_LOG_DEBUG, log_line, &first, log_released));
    blip_connection *other = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &other));
    CHECK_OK(blip_connection_wait_open(other, SOON));
    CHECK(counter_wait(&first.lines, 1, 2000));
    CHECK_OK(blip_runtime_set_log(pair.client_runtime, BLIP_LOG_ERROR, log_line, &second, log_released));
    CHECK(counter_wait(&first.released, 1, SOON));
    CHECK_OK(send_request(other, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    blip_connection_release(other);
    struct counter refused = COUNTER;
    CHECK_STATUS(
        blip_runtime_set_log(pair.client_runtime, 99, log_line, &refused, count_release), BLIP_ERROR_ARGUMENT);
    CHECK_INT(counter_get(&refused), 1);
    CHECK_OK(blip_runtime_set_log(pair.client_runtime, BLIP_LOG_ERROR, NULL, NULL, NULL));
    CHECK(counter_wait(&second.released, 1, SOON));
    CHECK_AT_MOST(second.highest, BLIP_LOG_ERROR);
    pair_close(&pair);
    CHECK_INT(counter_get(&first.released), 1);
    CHECK_INT(counter_get(&second.released), 1);
}

static void log_line_there(int32_t level, blip_slice domain, blip_slice text, void *context)
{
    struct log *log = context;
    CHECK(pthread_equal(pthread_self(), log->thread));
    log_line(level, domain, text, context);
}

/* Through a queue: with a function that is run there, and as events. What has no room is lost, and nobody waits. */
TEST(logs_go_through_queues)
{
    struct pair pair;
    struct log log = {.lines = COUNTER, .released = COUNTER, .thread = pthread_self()};
    blip_queue *queue = NULL;
    blip_connection *client = NULL;
    blip_event *event = NULL;
    blip_slice domain, text;
    size_t count = 0;
    pair_open(&pair, NULL);
    blip_runtime *runtime = pair.client_runtime;
    REQUIRE_OK(blip_queue_new(1, &queue));
    CHECK_STATUS(
        blip_runtime_set_log_queue(runtime, 99, queue, log_line_there, &log, log_released), BLIP_ERROR_ARGUMENT);
    CHECK_INT(counter_get(&log.released), 1);
    CHECK_STATUS(blip_runtime_set_log_queue(runtime, BLIP_LOG_INFO, NULL, NULL, NULL, NULL), BLIP_ERROR_HANDLE);
    log.released = (struct counter)COUNTER;

    CHECK_OK(blip_runtime_set_log_queue(runtime, BLIP_LOG_INFO, queue, log_line_there, &log, log_released));
    for (int turn = 0; turn < 2; turn++) {
        REQUIRE_OK(blip_connection_new(runtime, S(pair.url), NULL, &client));
        CHECK_OK(blip_connection_wait_open(client, SOON));
        CHECK_OK(blip_queue_count(queue, &count));
        CHECK_INT(count, 1);
        if (turn == 0)
            CHECK_OK(blip_queue_dispatch(queue, 10, SOON, NULL));
        CHECK_OK(blip_connection_close(client, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(client, SOON));
        blip_connection_release(client);
    }
    CHECK_INT(counter_get(&log.lines), 1);
    CHECK_OK(blip_runtime_set_log(runtime, 0, NULL, NULL, NULL));
    CHECK_INT(counter_get(&log.released), 0);
    CHECK_OK(blip_queue_next(queue, &event, 1, 0, &count));
    REQUIRE(count == 1);
    int32_t kind = 0;
    int64_t level = 0;
    void *context = NULL;
    CHECK_OK(blip_event_kind(event, &kind));
    CHECK_INT(kind, BLIP_EVENT_LOG);
    CHECK_OK(blip_event_value(event, &level));
    CHECK_INT(level, BLIP_LOG_INFO);
    CHECK_OK(blip_event_context(event, &context));
    CHECK(context == &log);
    CHECK_STATUS(blip_event_log_line(event, NULL, &text), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_event_log_line(event, &domain, NULL), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_event_log_line(event, &domain, &text));
    CHECK(domain.size == 10 && memcmp(domain.data, "connection", 10) == 0);
    CHECK_AT_LEAST(text.size, 1);
    blip_event_release(event);
    CHECK(counter_wait(&log.released, 1, SOON));

    /* None of the level is none. */
    CHECK_OK(blip_runtime_set_log_queue(runtime, BLIP_LOG_ERROR, queue, NULL, NULL, NULL));
    REQUIRE_OK(blip_connection_new(runtime, S(pair.url), NULL, &client));
    CHECK_OK(blip_connection_wait_open(client, SOON));
    blip_connection_release(client);
    CHECK_OK(blip_queue_count(queue, &count));
    CHECK_INT(count, 0);
    blip_queue_release(queue);
    pair_close(&pair);
}
