/* Reconnectors: another connection whenever one has ended. */

#include "support.h"

#include <stdio.h>
#include <string.h>

/* What a reconnector tells: how often each state came, and the last status. */
struct story {
    struct counter states[5], released, all;
    atomic_int last_status;
};

static void story_init(struct story *story)
{
    memset(story, 0, sizeof *story);
    for (int i = 0; i < 5; i++)
        counter_init(&story->states[i]);
    counter_init(&story->released);
    counter_init(&story->all);
}

static void story_tell(blip_reconnector *reconnector, int32_t state, blip_status status, void *context)
{
    struct story *story = context;
    int32_t now = -1;
    CHECK_OK(blip_reconnector_state(reconnector, &now));
    CHECK(state > BLIP_RECONNECTOR_NEW && state <= BLIP_RECONNECTOR_STOPPED);
    CHECK_INT(counter_get(&story->states[BLIP_RECONNECTOR_STOPPED]), 0);
    atomic_store(&story->last_status, status);
    counter_add(&story->all, 1);
    counter_add(&story->states[state], 1);
}

static void story_release(void *context)
{
    counter_add(&((struct story *)context)->released, 1);
}

/* A server that can go away and come back at the same port. */
struct server {
    blip_runtime *runtime;
    blip_listener *listener;
    struct counter requests;
    blip_message *held; /* the last request of profile "hold" */
    struct counter is_held;
    uint16_t port;
};

static blip_status count_request(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    counter_add(&((struct server *)context)->requests, 1);
    return blip_message_respond_text(request, S("counted"));
}

static blip_status hold_request(blip_connection *connection, blip_message *request, void *context)
{
    struct server *server = context;
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    server->held = blip_message_retain(request);
    counter_add(&server->requests, 1);
    counter_add(&server->is_held, 1);
    return BLIP_OK;
}

static void server_start(struct server *server)
{
    server->runtime = make_runtime(1);
    REQUIRE_OK(blip_listener_new(server->runtime, NULL, &server->listener));
    set_server_handlers(server->listener);
    REQUIRE_OK(blip_listener_set_handler(server->listener, S("count"), 0, count_request, server, NULL));
    REQUIRE_OK(blip_listener_set_handler(server->listener, S("hold"), 0, hold_request, server, NULL));
    blip_status status = BLIP_ERROR_ADDRESS_IN_USE;
    for (int64_t end = now_ms() + SOON; status == BLIP_ERROR_ADDRESS_IN_USE && now_ms() < end; sleep_ms(10))
        status = blip_listener_start(server->listener, S("127.0.0.1"), server->port);
    REQUIRE_OK(status);
    REQUIRE_OK(blip_listener_port(server->listener, &server->port));
}

static void server_init(struct server *server)
{
    memset(server, 0, sizeof *server);
    counter_init(&server->requests);
    counter_init(&server->is_held);
    server_start(server);
}

static void server_stop(struct server *server)
{
    CHECK_OK(blip_listener_stop(server->listener, false, 0));
    CHECK_OK(blip_listener_wait_stopped(server->listener, SOON));
    blip_listener_release(server->listener);
    blip_message_release(server->held);
    server->held = NULL;
    drop_runtime(server->runtime);
}

struct client {
    blip_runtime *runtime;
    blip_reconnector *reconnector;
    struct story story;
};

static void client_init(struct client *client, uint16_t port, blip_queue *queue)
{
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", port);
    story_init(&client->story);
    client->runtime = make_runtime(1);
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_reconnector_new(client->runtime, S(url), options, &client->reconnector));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_reconnector_set_backoff(client->reconnector, 1, 50, 200));
    REQUIRE_OK(blip_reconnector_set_state_callback(client->reconnector, story_tell, &client->story, story_release));
}

static void client_end(struct client *client)
{
    CHECK_OK(blip_reconnector_stop(client->reconnector, 0));
    CHECK_OK(blip_reconnector_wait_stopped(client->reconnector, SOON));
    REQUIRE_REACHES(&client->story.states[BLIP_RECONNECTOR_STOPPED], 1);
    REQUIRE_REACHES(&client->story.released, 1);
    blip_reconnector_release(client->reconnector);
    drop_runtime(client->runtime);
}

/* As outcome_response; but a request that was on no connection has none to tell. */
static void response(
    blip_connection *connection, blip_message *request, blip_message *answer, blip_status status, void *context)
{
    static char none;
    CHECK(connection != NULL || status < 0);
    outcome_response(connection != NULL ? connection : (blip_connection *)&none, request, answer, status, context);
}

static void send_through(blip_reconnector *reconnector, const char *profile, int64_t timeout, struct outcome *outcome)
{
    blip_message *request = make_request(profile, "hello");
    outcome_init(outcome);
    CHECK_OK(blip_message_set_timeout(request, timeout));
    REQUIRE_OK(blip_reconnector_send(reconnector, request, response, outcome, outcome_release));
    blip_message_release(request);
}

TEST(it_connects_again)
{
    struct server server;
    struct client client;
    struct outcome outcome;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    CHECK_STATUS(blip_reconnector_start(client.reconnector), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_reconnector_set_carry_over(client.reconnector, true), BLIP_ERROR_STATE);
    send_through(client.reconnector, "echo", -1, &outcome);
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "hello");
    for (int round = 1; round <= 3; round++) {
        server_stop(&server);
        REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], round);
        server_start(&server);
        REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
        blip_message *request = make_request("echo", "again"), *response = NULL;
        blip_slice body;
        REQUIRE_OK(blip_reconnector_request(client.reconnector, request, SOON, &response));
        CHECK_OK(blip_message_body(response, &body));
        CHECK_TEXT(body, "again");
        blip_message_release(request);
        blip_message_release(response);
    }
    blip_connection *connection = NULL;
    CHECK_OK(blip_reconnector_connection(client.reconnector, &connection));
    /* Letting go of it does not close it, closing it makes another. */
    blip_connection_release(connection);
    CHECK_OK(blip_reconnector_connection(client.reconnector, &connection));
    int64_t opened = counter_get(&client.story.states[BLIP_RECONNECTOR_OPEN]);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    blip_connection_release(connection);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_OPEN], opened + 1);
    client_end(&client);
    CHECK_INT(atomic_load(&client.story.last_status), BLIP_OK);
    server_stop(&server);
}

TEST(what_was_not_sent_is_carried_over)
{
    enum { COUNT = 20 };
    struct server server;
    struct client client;
    struct outcome outcomes[COUNT], under_way, waiting;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    /* Before it is started, too. */
    send_through(client.reconnector, "count", -1, &waiting);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    CHECK(outcome_wait(&waiting));
    CHECK_TEXT(S(waiting.text), "counted");
    send_through(client.reconnector, "hold", -1, &under_way);
    REQUIRE_REACHES(&server.is_held, 1);
    server_stop(&server);
    /* The peer had it: it is not sent again. */
    CHECK(outcome_wait(&under_way));
    CHECK(under_way.status < 0);
    for (int i = 0; i < COUNT; i++)
        send_through(client.reconnector, "count", -1, &outcomes[i]);
    sleep_ms(50);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(counter_get(&outcomes[i].done), 0);
    server_start(&server);
    for (int i = 0; i < COUNT; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        CHECK_TEXT(S(outcomes[i].text), "counted");
    }
    sleep_ms(50);
    CHECK_INT(counter_get(&server.requests), COUNT + 2);
    client_end(&client);
    server_stop(&server);
}

TEST(what_waits_in_a_connection_is_carried_over)
{
    /* A peer that opens and reads nothing: requests stay in the connection's queue behind a large one. */
    enum { COUNT = 10 };
    struct server server;
    struct client client;
    struct outcome large, outcomes[COUNT];
    static char body[8 << 20];
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    int silent = -1;
    uint16_t port = open_silent_server(&silent);
    (void)port;
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_reconnector_connection(client.reconnector, &connection));
    blip_message *request = make_request("sink", "");
    CHECK_OK(blip_message_set_body(request, bytes_slice(body, sizeof body)));
    outcome_init(&large);
    /* Closed in the same breath: nothing that is sent now gets out. */
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    REQUIRE_OK(blip_reconnector_send(client.reconnector, request, response, &large, outcome_release));
    blip_message_release(request);
    for (int i = 0; i < COUNT; i++)
        send_through(client.reconnector, "count", -1, &outcomes[i]);
    CHECK(outcome_wait(&large));
    CHECK_STATUS(large.status, BLIP_OK);
    CHECK_TEXT(S(large.text), "8388608");
    for (int i = 0; i < COUNT; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    CHECK_INT(counter_get(&server.requests), COUNT);
    blip_connection_release(connection);
    client_end(&client);
    server_stop(&server);
}

TEST(deadlines_and_cancelling_go_on_without_a_connection)
{
    struct server server;
    struct client client;
    struct outcome late, cancelled, left;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    server_stop(&server);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], 1);
    send_through(client.reconnector, "count", 50, &late);
    blip_message *request = make_request("count", "");
    outcome_init(&cancelled);
    REQUIRE_OK(blip_reconnector_send(client.reconnector, request, response, &cancelled, outcome_release));
    CHECK_STATUS(blip_reconnector_send(client.reconnector, request, NULL, NULL, NULL), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_wait_sent(request, 0), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_message_cancel(request));
    CHECK(outcome_wait(&cancelled));
    CHECK_STATUS(cancelled.status, BLIP_ERROR_CANCELLED);
    CHECK_STATUS(blip_message_wait_sent(request, SOON), BLIP_ERROR_CANCELLED);
    blip_message_release(request);
    CHECK(outcome_wait(&late));
    CHECK_STATUS(late.status, BLIP_ERROR_TIMEOUT);
    blip_message *response = NULL;
    request = make_request("count", "");
    CHECK_STATUS(blip_reconnector_request(client.reconnector, request, 20, &response), BLIP_ERROR_TIMEOUT);
    blip_message_release(request);
    send_through(client.reconnector, "count", -1, &left);
    client_end(&client);
    CHECK(outcome_wait(&left));
    CHECK_STATUS(left.status, BLIP_ERROR_CLOSED);
    CHECK_INT(counter_get(&server.requests), 0);
}

TEST(without_carrying_over_nothing_waits)
{
    struct server server;
    struct client client;
    struct outcome under_way;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    send_through(client.reconnector, "never", -1, &under_way);
    server_stop(&server);
    CHECK(outcome_wait(&under_way));
    CHECK(under_way.status < 0);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], 1);
    blip_message *request = make_request("count", "");
    blip_status status = BLIP_OK;
    for (int i = 0; i < 1000 && status != BLIP_ERROR_STATE; i++) {
        /* While it tries a request waits for that try, and fails with it. */
        struct outcome outcome;
        outcome_init(&outcome);
        status = blip_reconnector_send(client.reconnector, request, response, &outcome, outcome_release);
        if (status == BLIP_OK) {
            CHECK(outcome_wait(&outcome));
            CHECK(outcome.status < 0);
            blip_message_release(request);
            request = make_request("count", "");
        }
    }
    CHECK_STATUS(status, BLIP_ERROR_STATE);
    blip_message_release(request);
    client_end(&client);
}

TEST(it_gives_up_after_so_many_tries)
{
    struct client client;
    struct outcome outcome;
    client_init(&client, unused_port(), NULL);
    REQUIRE_OK(blip_reconnector_set_attempts(client.reconnector, 4));
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    send_through(client.reconnector, "count", -1, &outcome);
    CHECK_STATUS(blip_reconnector_wait_open(client.reconnector, SOON), BLIP_ERROR_REFUSED);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_STOPPED], 1);
    CHECK_INT(counter_get(&client.story.states[BLIP_RECONNECTOR_CONNECTING]), 4);
    CHECK_INT(counter_get(&client.story.states[BLIP_RECONNECTOR_WAITING]), 3);
    CHECK_INT(atomic_load(&client.story.last_status), BLIP_ERROR_REFUSED);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_REFUSED);
    blip_error *error = NULL;
    CHECK_OK(blip_reconnector_error(client.reconnector, &error));
    CHECK_STATUS(blip_error_status(error), BLIP_ERROR_REFUSED);
    blip_error_release(error);
    CHECK_STATUS(blip_reconnector_wake(client.reconnector), BLIP_ERROR_CLOSED);
    client_end(&client);
}

TEST(what_cannot_get_better_is_not_tried_again)
{
    struct pair pair;
    struct client client;
    char url[200];
    struct pair_options options = {.listener = blip_listener_options_new(), .no_client = true};
    REQUIRE_OK(blip_listener_options_add_path(options.listener, S("/only")));
    pair_open(&pair, &options);
    uint16_t port = 0;
    CHECK_OK(blip_listener_port(pair.listener, &port));
    client_init(&client, port, NULL);
    CHECK_STATUS(blip_reconnector_wait_open(client.reconnector, SOON), BLIP_ERROR_HTTP_STATUS);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_STOPPED], 1);
    CHECK_INT(counter_get(&client.story.states[BLIP_RECONNECTOR_CONNECTING]), 1);
    client_end(&client);
    /* Unless it is told to. */
    client_init(&client, port, NULL);
    CHECK_OK(blip_reconnector_set_persistent(client.reconnector, true));
    CHECK_OK(blip_reconnector_start(client.reconnector));
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_CONNECTING], 3);
    client_end(&client);
    snprintf(url, sizeof url, "gopher://x/");
    blip_reconnector *none = NULL;
    CHECK_STATUS(blip_reconnector_new(NULL, S(url), NULL, &none), BLIP_ERROR_URL);
    CHECK(none == NULL);
    pair_close(&pair);
}

TEST(it_waits_and_can_be_woken)
{
    struct server server;
    struct client client;
    int64_t delay = -1;
    server_init(&server);
    client_init(&client, server.port, NULL);
    CHECK_STATUS(blip_reconnector_set_backoff(client.reconnector, -1, 50, 200), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_reconnector_set_backoff(client.reconnector, 60, 50, 200), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_reconnector_set_backoff(client.reconnector, 1, 50, 99), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_reconnector_set_backoff(client.reconnector, 1000000000, 1000000000, 200));
    CHECK_STATUS(blip_reconnector_delay(client.reconnector, &delay), BLIP_ERROR_NOT_FOUND);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    server_stop(&server);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], 1);
    CHECK_OK(blip_reconnector_delay(client.reconnector, &delay));
    CHECK_AT_LEAST(delay, 0);
    CHECK_AT_MOST(delay, 1000000000);
    server_start(&server);
    CHECK_STATUS(blip_reconnector_wait_open(client.reconnector, 20), BLIP_ERROR_TIMEOUT);
    CHECK_STATUS(blip_reconnector_wait_stopped(client.reconnector, 20), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_reconnector_wake(client.reconnector));
    CHECK_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    client_end(&client);
    server_stop(&server);
}

static blip_status answer_peer(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    return blip_message_respond_text(request, S((const char *)context));
}

static void count_open(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    (void)connection, (void)message, (void)status;
    if (CHECK_INT(what, BLIP_OBSERVE_OPEN))
        counter_add(context, 1);
}

TEST(its_modules_are_part_of_each_connection)
{
    struct server server;
    struct client client;
    struct counter opened = COUNTER;
    blip_module *module = NULL;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_module_new(S("m"), &module));
    CHECK_OK(blip_module_set_handler(module, S("reverse"), 0, answer_peer, "from the client", NULL));
    CHECK_OK(blip_module_set_observer(module, BLIP_OBSERVE_OPEN, NULL, count_open, &opened, NULL));
    CHECK_OK(blip_reconnector_add_module(client.reconnector, module));
    CHECK_STATUS(blip_reconnector_add_module(client.reconnector, module), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    REQUIRE_REACHES(&opened, 1);
    server_stop(&server);
    server_start(&server);
    REQUIRE_REACHES(&opened, 2);
    CHECK_OK(blip_reconnector_remove_module(client.reconnector, module));
    CHECK_STATUS(blip_reconnector_remove_module(client.reconnector, module), BLIP_ERROR_NOT_FOUND);
    blip_module_release(module);
    client_end(&client);
    server_stop(&server);
}

static void *dispatch_queue(void *argument)
{
    blip_queue *queue = argument;
    size_t count = 0, idle = 0;
    while (idle < 20) {
        blip_queue_dispatch(queue, 100, 50, &count);
        idle = count > 0 ? 0 : idle + 1;
    }
    return NULL;
}

static blip_status drop_counted(blip_connection *connection, blip_message *message, void *context)
{
    blip_slice profile;
    (void)connection, (void)context;
    bool is_counted = blip_message_profile(message, &profile) == BLIP_OK && profile.size == 5
        && memcmp(profile.data, "count", 5) == 0;
    return is_counted ? BLIP_ERROR_FILTERED : BLIP_OK;
}

struct last_words {
    blip_reconnector *reconnector;
    struct outcome outcome;
};

static void send_and_close(blip_connection *connection, void *context)
{
    struct last_words *words = context;
    blip_message *request = make_request("count", "secret");
    CHECK_OK(blip_reconnector_send(
        words->reconnector, request, response, &words->outcome, outcome_release));
    blip_message_release(request);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
}

/* What an interceptor has dropped is not taken back by the end of the connection, and sent by the next one. */
TEST(what_was_dropped_is_not_carried_over)
{
    struct server server;
    struct client client;
    struct last_words words;
    blip_module *module = NULL;
    blip_connection *connection = NULL;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_module_new(S("filter"), &module));
    REQUIRE_OK(blip_module_set_interceptor(module, BLIP_INTERCEPT_SEND, drop_counted, NULL, NULL));
    REQUIRE_OK(blip_reconnector_add_module(client.reconnector, module));
    blip_module_release(module);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    REQUIRE_OK(blip_reconnector_connection(client.reconnector, &connection));
    words.reconnector = client.reconnector;
    outcome_init(&words.outcome);
    REQUIRE_OK(blip_connection_perform(connection, send_and_close, &words, NULL));
    REQUIRE(outcome_wait(&words.outcome));
    CHECK_STATUS(words.outcome.status, BLIP_ERROR_FILTERED);
    blip_connection_release(connection);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_OPEN], 2);
    CHECK_INT(counter_get(&server.requests), 0);
    client_end(&client);
    server_stop(&server);
}

TEST(with_a_queue)
{
    struct server server;
    struct client client;
    struct outcome outcome;
    blip_queue *queue = NULL;
    pthread_t thread;
    server_init(&server);
    REQUIRE_OK(blip_queue_new(0, &queue));
    client_init(&client, server.port, queue);
    REQUIRE_INT(pthread_create(&thread, NULL, dispatch_queue, queue), 0);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_OPEN], 1);
    send_through(client.reconnector, "count", -1, &outcome);
    CHECK(outcome_wait(&outcome));
    server_stop(&server);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], 1);
    send_through(client.reconnector, "count", 30, &outcome);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_TIMEOUT);
    client_end(&client);
    pthread_join(thread, NULL);
    blip_queue_release(queue);
}

TEST(the_last_reference_stops_it)
{
    struct server server;
    struct client client;
    struct outcome outcome;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    send_through(client.reconnector, "never", -1, &outcome);
    blip_reconnector_release(client.reconnector);
    REQUIRE_REACHES(&client.story.released, 1);
    CHECK_INT(counter_get(&client.story.states[BLIP_RECONNECTOR_STOPPED]), 1);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    int32_t state = 0;
    CHECK_STATUS(blip_reconnector_state(client.reconnector, &state), BLIP_ERROR_HANDLE);
    drop_runtime(client.runtime);
    server_stop(&server);
}

TEST(one_that_was_never_started)
{
    struct client client;
    struct outcome outcome;
    client_init(&client, unused_port(), NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    send_through(client.reconnector, "never", -1, &outcome);
    client_end(&client);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
}

TEST(the_runtime_stops_before_it_was_started)
{
    struct client client;
    struct outcome outcome;
    client_init(&client, unused_port(), NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    send_through(client.reconnector, "never", -1, &outcome);
    CHECK_OK(blip_runtime_stop(client.runtime, SOON));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_STOPPED);
    REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_STOPPED], 1);
    CHECK_STATUS(blip_reconnector_start(client.reconnector), BLIP_ERROR_CLOSED);
    blip_reconnector_release(client.reconnector);
    blip_runtime_release(client.runtime);
}

TEST(a_last_try_that_is_closed_in_order_fails_what_waits)
{
    struct server server;
    struct client client;
    struct outcome outcome;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_attempts(client.reconnector, 1));
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_reconnector_connection(client.reconnector, &connection));
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    send_through(client.reconnector, "count", -1, &outcome);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    blip_connection_release(connection);
    client_end(&client);
    server_stop(&server);
}

TEST(over_blip_1)
{
    struct client client;
    struct outcome outcome;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = NULL;
    char url[64];
    uint16_t port = 0;
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_set_blip1(options, true));
    for (int round = 0; round < 2; round++) {
        REQUIRE_OK(blip_listener_new(runtime, options, &listener));
        set_server_handlers(listener);
        blip_status status = BLIP_ERROR_ADDRESS_IN_USE;
        for (int64_t end = now_ms() + SOON; status == BLIP_ERROR_ADDRESS_IN_USE && now_ms() < end; sleep_ms(10))
            status = blip_listener_start(listener, S("127.0.0.1"), port);
        REQUIRE_OK(status);
        CHECK_OK(blip_listener_port(listener, &port));
        if (round == 0) {
            snprintf(url, sizeof url, "blip://127.0.0.1:%u/", port);
            story_init(&client.story);
            client.runtime = make_runtime(1);
            REQUIRE_OK(blip_reconnector_new(client.runtime, S(url), NULL, &client.reconnector));
            REQUIRE_OK(blip_reconnector_set_backoff(client.reconnector, 1, 50, 200));
            REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
            REQUIRE_OK(blip_reconnector_set_state_callback(client.reconnector, story_tell, &client.story, story_release));
            REQUIRE_OK(blip_reconnector_start(client.reconnector));
        }
        send_through(client.reconnector, "echo", -1, &outcome);
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK_TEXT(S(outcome.text), "hello");
        CHECK_OK(blip_listener_stop(listener, false, 0));
        CHECK_OK(blip_listener_wait_stopped(listener, SOON));
        blip_listener_release(listener);
        REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], round + 1);
    }
    blip_listener_options_release(options);
    client_end(&client);
    drop_runtime(runtime);
}

static void stop_inside(blip_reconnector *reconnector, int32_t state, blip_status status, void *context)
{
    (void)status;
    if (state == BLIP_RECONNECTOR_OPEN)
        CHECK_OK(blip_reconnector_stop(reconnector, 0));
    if (state == BLIP_RECONNECTOR_STOPPED)
        counter_add(context, 1);
}

TEST(stopped_inside_its_callback)
{
    struct server server;
    struct client client;
    struct counter stopped = COUNTER;
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_state_callback(client.reconnector, stop_inside, &stopped, NULL));
    REQUIRE_REACHES(&client.story.released, 1);
    REQUIRE_OK(blip_reconnector_start(client.reconnector));
    REQUIRE_REACHES(&stopped, 1);
    blip_reconnector_release(client.reconnector);
    drop_runtime(client.runtime);
    server_stop(&server);
}

TEST(the_runtime_stops)
{
    for (int waits = 0; waits < 2; waits++) {
        struct server server;
        struct client client;
        struct outcome outcome;
        server_init(&server);
        client_init(&client, server.port, NULL);
        REQUIRE_OK(blip_reconnector_set_backoff(client.reconnector, 100000, 100000, 200));
        REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
        REQUIRE_OK(blip_reconnector_wait_open(client.reconnector, SOON));
        if (waits) {
            server_stop(&server);
            REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_WAITING], 1);
        }
        send_through(client.reconnector, "never", -1, &outcome);
        CHECK_OK(blip_runtime_stop(client.runtime, SOON));
        CHECK(outcome_wait(&outcome));
        CHECK(outcome.status < 0);
        REQUIRE_REACHES(&client.story.states[BLIP_RECONNECTOR_STOPPED], 1);
        REQUIRE_REACHES(&client.story.released, 1);
        blip_message *request = make_request("x", "");
        CHECK_STATUS(blip_reconnector_send(client.reconnector, request, NULL, NULL, NULL), BLIP_ERROR_CLOSED);
        blip_message_release(request);
        blip_reconnector_release(client.reconnector);
        blip_runtime_release(client.runtime);
        if (!waits)
            server_stop(&server);
    }
}

struct sender {
    blip_reconnector *reconnector;
    struct counter completed, accepted;
    atomic_bool stops;
};

static void count_completion(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request;
    CHECK(status < 0 || response != NULL);
    counter_add(context, 1);
}

static void *send_on(void *argument)
{
    struct sender *sender = argument;
    while (!atomic_load(&sender->stops)) {
        blip_message *request = make_request("count", "");
        if (blip_reconnector_send(sender->reconnector, request, count_completion, &sender->completed, NULL) == BLIP_OK)
            counter_add(&sender->accepted, 1);
        if (now_ms() % 7 == 0)
            blip_message_cancel(request);
        blip_message_release(request);
        sleep_ms(1);
    }
    return NULL;
}

TEST_SECONDS(each_request_completes_once_while_the_server_comes_and_goes, 60)
{
    struct server server;
    struct client client;
    struct sender sender;
    pthread_t threads[3];
    server_init(&server);
    client_init(&client, server.port, NULL);
    REQUIRE_OK(blip_reconnector_set_carry_over(client.reconnector, true));
    REQUIRE_OK(blip_reconnector_start(client.reconnector));
    memset(&sender, 0, sizeof sender);
    sender.reconnector = client.reconnector;
    counter_init(&sender.completed);
    counter_init(&sender.accepted);
    for (int i = 0; i < 3; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, send_on, &sender), 0);
    for (int round = 0; round < 8; round++) {
        sleep_ms(50);
        server_stop(&server);
        sleep_ms(20);
        server_start(&server);
    }
    atomic_store(&sender.stops, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    int64_t accepted = counter_get(&sender.accepted);
    REQUIRE_REACHES(&sender.completed, accepted);
    sleep_ms(20);
    CHECK_INT(counter_get(&sender.completed), accepted);
    test_note("%d requests, %d of them handled", (int)accepted, (int)counter_get(&server.requests));
    CHECK_AT_MOST(counter_get(&server.requests), accepted);
    client_end(&client);
    server_stop(&server);
}
