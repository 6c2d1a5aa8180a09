/* What a peer can make this side hold: of one connection, and of all together. */

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 64 };

/* Keeps each request without answering it. */
struct keeper {
    blip_message *kept[100000];
    struct counter count;
};
static struct keeper keeper;

static blip_status keep(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection, (void)context;
    int64_t index = counter_get(&keeper.count);
    CHECK_OK(blip_message_defer(request));
    if (CHECK(index < (int64_t)(sizeof keeper.kept / sizeof *keeper.kept)))
        keeper.kept[index] = blip_message_retain(request);
    counter_add(&keeper.count, 1);
    return BLIP_OK;
}

static void let_go(bool answer)
{
    int64_t count = counter_get(&keeper.count);
    for (int64_t i = 0; i < count; i++) {
        if (answer)
            blip_message_respond_empty(keeper.kept[i]);
        blip_message_release(keeper.kept[i]);
    }
    counter_add(&keeper.count, -count);
}

static uint64_t memory_of(blip_connection *connection)
{
    blip_counters *counters = NULL;
    uint64_t value = 0;
    REQUIRE_OK(blip_connection_counters(connection, &counters));
    CHECK_OK(blip_counters_value(counters, BLIP_COUNTER_MEMORY, &value));
    blip_counters_release(counters);
    return value;
}

static void send_body(blip_connection *connection, const char *profile, size_t size, struct outcome *outcome)
{
    blip_message *request = make_request(profile, NULL);
    char *body = calloc(1, size);
    CHECK_OK(blip_message_set_body(request, bytes_slice(body, size)));
    free(body);
    outcome_init(outcome);
    REQUIRE_OK(blip_connection_send(connection, request, outcome_response, outcome, outcome_release));
    blip_message_release(request);
}

static void check_refused(struct outcome *outcome)
{
    CHECK(outcome_wait(outcome));
    CHECK_STATUS(outcome->status, BLIP_OK);
    CHECK_INT(outcome->type, BLIP_MESSAGE_ERROR);
    CHECK_INT(outcome->error_code, 503);
    CHECK(strcmp(outcome->error_domain, "BLIP") == 0);
}

static void open_with_limit(struct pair *pair, uint64_t limit)
{
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_set_limit(options, BLIP_LIMIT_UNFINISHED_BYTES, limit));
    struct pair_options with = {.listener = options};
    pair_open(pair, &with);
    counter_init(&keeper.count);
    REQUIRE_OK(blip_connection_set_handler(pair->accepted, S("keep"), 0, keep, NULL, NULL));
}

/* Sends requests of a size, one after the other, until one is refused; how many were kept. */
static int fill(struct pair *pair, size_t size, int most, struct outcome *outcomes, struct outcome *last)
{
    for (int i = 0; i < most; i++) {
        struct outcome *outcome = &outcomes[i];
        send_body(pair->client, "keep", size, outcome);
        for (int64_t end = now_ms() + SOON; counter_get(&keeper.count) == i && now_ms() < end; sleep_ms(1)) {
            if (counter_get(&outcome->done) > 0) {
                *last = *outcome;
                check_refused(outcome);
                return i;
            }
        }
    }
    return most;
}

TEST(deferred_requests_count_until_they_are_let_go)
{
    static struct outcome outcomes[KEPT + 1];
    struct outcome outcome, last;
    struct pair pair;
    open_with_limit(&pair, 8 << 20);
    int kept = fill(&pair, 1 << 20, KEPT, outcomes, &last);
    CHECK_AT_LEAST(kept, 4);
    CHECK_AT_MOST(kept, 8);
    CHECK_AT_LEAST((int64_t)memory_of(pair.accepted), kept << 20);
    CHECK_AT_MOST((int64_t)memory_of(pair.accepted), 20 << 20);
    /* In one frame, too. */
    send_body(pair.client, "keep", 9000, &outcome);
    if (!counter_wait(&outcome.done, 1, 200)) {
        /* There may be some room left for small ones; it ends. */
        for (int i = 0; i < 2000 && counter_get(&outcome.done) == 0; i++) {
            struct outcome *more = malloc(sizeof *more);
            send_body(pair.client, "keep", 9000, more);
            if (counter_wait(&more->done, 1, i < 4 ? 50 : 2)) {
                check_refused(more);
                free(more);
                break;
            }
        }
    }
    /* Answered and let go: there is room again. */
    let_go(true);
    for (int i = 0; i < kept; i++)
        CHECK(outcome_wait(&outcomes[i]));
    for (int64_t end = now_ms() + SOON; now_ms() < end; sleep_ms(10)) {
        CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
        CHECK(outcome_wait(&outcome));
        if (memory_of(pair.accepted) < 100000)
            break;
    }
    CHECK_AT_MOST((int64_t)memory_of(pair.accepted), 100000);
    send_body(pair.client, "sink", 4 << 20, &outcome);
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
    pair_close(&pair);
}

TEST(small_deferred_requests_count_too)
{
    enum { MANY = 3000 };
    struct pair pair;
    struct counter refused = COUNTER;
    int sent = 0;
    open_with_limit(&pair, 2 << 20);
    blip_queue *queue = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_queue(options, queue));
    blip_connection *client = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &client));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    REQUIRE_REACHES(&pair.server_opened, 2);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("keep"), 0, keep, NULL, NULL));
    for (; sent < MANY; sent++)
        REQUIRE_OK(blip_connection_send_data(client, S("keep"), S("x"), 0, NULL, &refused, NULL));
    for (int64_t end = now_ms() + SOON; now_ms() < end && counter_get(&refused) + counter_get(&keeper.count) < sent;) {
        blip_event *events[100];
        size_t count = 0;
        CHECK_OK(blip_queue_next(queue, events, 100, 50, &count));
        for (size_t i = 0; i < count; i++) {
            int32_t type = 0;
            CHECK_OK(blip_message_type(blip_event_message(events[i]), &type));
            CHECK_INT(type, BLIP_MESSAGE_ERROR);
            blip_event_release(events[i]);
            counter_add(&refused, 1);
        }
    }
    /* 1 KiB each, and at most a turn's worth more. */
    CHECK_INT(counter_get(&refused) + counter_get(&keeper.count), sent);
    CHECK_AT_LEAST(counter_get(&keeper.count), 900);
    CHECK_AT_MOST((int64_t)memory_of(pair.accepted), 4 << 20);
    CHECK_OK(blip_connection_close(client, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    let_go(false);
    blip_connection_release(client);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(what_is_unread_of_streamed_bodies_counts)
{
    static struct outcome outcomes[KEPT];
    struct pair pair;
    open_with_limit(&pair, 1 << 20);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("keep"), BLIP_HANDLER_STREAM, keep, NULL, NULL));
    for (int i = 0; i < 12; i++)
        send_body(pair.client, "keep", 1 << 20, &outcomes[i]);
    /* Each may have 128 KB unacknowledged: twelve are too many, and the last ones fail. */
    int failed = 0;
    for (int64_t end = now_ms() + SOON; failed == 0 && now_ms() < end; sleep_ms(10)) {
        char byte;
        size_t size;
        for (int64_t i = 0; i < counter_get(&keeper.count); i++) {
            bool replied = false;
            CHECK_OK(blip_message_is_responded(keeper.kept[i], &replied));
            failed += replied;
        }
        (void)byte, (void)size;
    }
    CHECK_AT_LEAST(failed, 1);
    CHECK_AT_MOST((int64_t)memory_of(pair.accepted), 3 << 20);
    let_go(false);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    for (int i = 0; i < 12; i++)
        CHECK(outcome_wait(&outcomes[i]));
    pair_close(&pair);
}

TEST_SECONDS(a_runtime_has_a_budget_for_all, 60)
{
    enum { CLIENTS = 8, EACH = 4 << 20, BUDGET = 12 << 20 };
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *server = NULL, *runtime = make_runtime(1);
    blip_listener *listener = NULL;
    blip_connection *clients[CLIENTS] = {0};
    static struct outcome outcomes[CLIENTS];
    blip_slice url;
    CHECK_STATUS(blip_runtime_options_set_memory_limit(options, 1000), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_runtime_options_set_memory_limit(options, BUDGET));
    REQUIRE_OK(blip_runtime_new(options, &server));
    blip_runtime_options_release(options);
    REQUIRE_OK(blip_listener_new(server, NULL, &listener));
    counter_init(&keeper.count);
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_set_handler(listener, S("keep"), 0, keep, NULL, NULL));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(listener, &url));
    int refused = 0;
    for (int i = 0; i < CLIENTS; i++) {
        REQUIRE_OK(blip_connection_new(runtime, url, NULL, &clients[i]));
        REQUIRE_OK(blip_connection_wait_open(clients[i], SOON));
        int64_t before = counter_get(&keeper.count);
        send_body(clients[i], "keep", EACH, &outcomes[i]);
        for (int64_t end = now_ms() + SOON; counter_get(&keeper.count) == before && now_ms() < end; sleep_ms(1)) {
            if (counter_get(&outcomes[i].done) > 0) {
                check_refused(&outcomes[i]);
                refused++;
                break;
            }
        }
    }
    CHECK_AT_LEAST(refused, CLIENTS - 3);
    CHECK_AT_LEAST(counter_get(&keeper.count), 1);
    /* Let go: the budget is free again, for everybody. */
    let_go(true);
    for (int i = 0; i < CLIENTS; i++)
        CHECK(outcome_wait(&outcomes[i]));
    bool done = false;
    for (int64_t end = now_ms() + SOON; !done && now_ms() < end; sleep_ms(10)) {
        struct outcome outcome;
        send_body(clients[CLIENTS - 1], "sink", EACH, &outcome);
        CHECK(outcome_wait(&outcome));
        done = outcome.type == BLIP_MESSAGE_RESPONSE;
    }
    CHECK(done);
    for (int i = 0; i < CLIENTS; i++) {
        blip_connection_close(clients[i], 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(clients[i], SOON));
        blip_connection_release(clients[i]);
    }
    CHECK_OK(blip_listener_stop(listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
    drop_runtime(runtime);
    drop_runtime(server);
}

/* A response that is too much fails the request, and nothing else. */
TEST(a_response_may_be_too_much)
{
    struct pair pair;
    struct outcome outcome;
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_limit(options, BLIP_LIMIT_UNFINISHED_BYTES, 2 << 20));
    struct pair_options with = {.client = options};
    pair_open(&pair, &with);
    blip_message *request = make_request("source", NULL), *kept[4] = {0}, *response = NULL;
    CHECK_OK(blip_message_set_property(request, S("Size"), S("700000")));
    blip_status status = BLIP_OK;
    int count = 0;
    for (; count < 4 && status == BLIP_OK; count++) {
        blip_message *copy = NULL;
        REQUIRE_OK(blip_message_copy(request, &copy));
        status = blip_connection_request(pair.client, copy, SOON, &kept[count]);
        blip_message_release(copy);
    }
    CHECK_STATUS(status, BLIP_ERROR_LIMIT);
    CHECK_AT_LEAST(count, 2);
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    for (int i = 0; i < 4; i++)
        blip_message_release(kept[i]);
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}
