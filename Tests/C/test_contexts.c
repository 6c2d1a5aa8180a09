/* release_context runs exactly once, after the last call: when an object ends, a function is replaced or a setter
 * fails. */

#include "support.h"

#include <string.h>

static blip_status on_request(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_OK;
}

static void on_open(blip_connection *connection, void *context)
{
    (void)connection;
    (void)context;
}

static void on_close(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    (void)status;
    (void)context;
}

static void on_state(blip_connection *connection, int32_t state, void *context)
{
    (void)connection;
    (void)state;
    (void)context;
}

static void on_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener;
    (void)connection;
    (void)context;
}

static void on_stopped(blip_listener *listener, blip_status status, void *context)
{
    (void)listener;
    (void)status;
    (void)context;
}

static void on_sent(blip_message *message, blip_status status, void *context)
{
    (void)message;
    (void)status;
    (void)context;
}

static void on_progress(blip_message *message, uint64_t sent, void *context)
{
    (void)message;
    (void)sent;
    (void)context;
}

/* Each setter of the connection with the given handle and context. */
static int set_all_of_connection(blip_connection *connection, struct counter *counter)
{
    blip_status statuses[] = {
        blip_connection_set_handler(connection, S("x"), 0, on_request, counter, count_release),
        blip_connection_set_handler(connection, S("y"), BLIP_HANDLER_STREAM, on_request, counter, count_release),
        blip_connection_set_default_handler(connection, 0, on_request, counter, count_release),
        blip_connection_set_open_callback(connection, on_open, counter, count_release),
        blip_connection_set_close_callback(connection, on_close, counter, count_release),
        blip_connection_set_state_callback(connection, on_state, counter, count_release),
        blip_connection_set_user_data(connection, counter, count_release),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        failed += statuses[i] != BLIP_OK;
    return failed;
}

enum { OF_CONNECTION = 7, OF_LISTENER = 7, OF_MESSAGE = 4 };

static int set_all_of_listener(blip_listener *listener, struct counter *counter)
{
    blip_status statuses[] = {
        blip_listener_set_handler(listener, S("x"), 0, on_request, counter, count_release),
        blip_listener_set_handler(listener, S("y"), 0, on_request, counter, count_release),
        blip_listener_set_default_handler(listener, 0, on_request, counter, count_release),
        blip_listener_set_accept_callback(listener, on_accept, counter, count_release),
        blip_listener_set_open_callback(listener, on_open, counter, count_release),
        blip_listener_set_close_callback(listener, on_close, counter, count_release),
        blip_listener_set_stopped_callback(listener, on_stopped, counter, count_release),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        failed += statuses[i] != BLIP_OK;
    return failed;
}

static blip_status pull_nothing(void *buffer, size_t capacity, size_t *written, void *context)
{
    (void)buffer;
    (void)capacity;
    (void)context;
    *written = 0;
    return BLIP_DATA_END;
}

static int set_all_of_message(blip_message *message, struct counter *counter)
{
    blip_status statuses[] = {
        blip_message_set_sent_callback(message, on_sent, counter, count_release),
        blip_message_set_progress_callback(message, on_progress, counter, count_release),
        blip_message_set_user_data(message, counter, count_release),
        blip_message_append_body_pulled(message, pull_nothing, counter, count_release),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        failed += statuses[i] != BLIP_OK;
    return failed;
}

TEST(contexts_of_a_connection_that_is_never_used)
{
    struct counter first = COUNTER, second = COUNTER;
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    CHECK_INT(set_all_of_connection(connection, &first), 0);
    sleep_ms(20);
    CHECK_INT(counter_get(&first), 0);
    CHECK_INT(set_all_of_connection(connection, &second), 0);
    CHECK(counter_wait(&first, OF_CONNECTION, SOON));
    CHECK_INT(counter_get(&second), 0);
    blip_connection_release(connection);
    CHECK(counter_wait(&second, OF_CONNECTION, SOON));
    drop_runtime(runtime);
    sleep_ms(20);
    CHECK_INT(counter_get(&first), OF_CONNECTION);
    CHECK_INT(counter_get(&second), OF_CONNECTION);
}

TEST(contexts_of_a_connection_that_was_used)
{
    struct pair pair;
    struct counter first = COUNTER, second = COUNTER;
    blip_connection *connection = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &connection));
    CHECK_INT(set_all_of_connection(connection, &first), 0);
    REQUIRE_OK(blip_connection_wait_open(connection, SOON));
    CHECK_INT(set_all_of_connection(connection, &second), 0);
    CHECK(counter_wait(&first, OF_CONNECTION, SOON));
    CHECK_OK(blip_connection_remove_handler(connection, S("x")));
    CHECK(counter_wait(&second, 1, SOON));
    blip_connection_close(connection, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    /* Set after the end: never called, still released. */
    struct counter third = COUNTER;
    set_all_of_connection(connection, &third);
    blip_connection_release(connection);
    CHECK(counter_wait(&second, OF_CONNECTION, SOON));
    CHECK(counter_wait(&third, OF_CONNECTION, SOON));
    pair_close(&pair);
    CHECK_INT(counter_get(&first), OF_CONNECTION);
    CHECK_INT(counter_get(&second), OF_CONNECTION);
    CHECK_INT(counter_get(&third), OF_CONNECTION);
}

TEST(contexts_of_setters_that_fail)
{
    struct counter released = COUNTER;
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL;
    blip_listener *listener = NULL;
    blip_slice bad = bytes_slice("\xff", 1);
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    CHECK(blip_connection_set_handler(connection, bad, 0, on_request, &released, count_release) < 0);
    CHECK_INT(counter_get(&released), 1);
    CHECK(blip_connection_set_handler(connection, S("x"), 0xfffffffe, on_request, &released, count_release) < 0);
    CHECK_INT(counter_get(&released), 2);
    CHECK(blip_connection_set_default_handler(connection, 0x80000000, on_request, &released, count_release) < 0);
    CHECK_INT(counter_get(&released), 3);
    CHECK(blip_listener_set_handler(listener, bad, 0, on_request, &released, count_release) < 0);
    CHECK_INT(counter_get(&released), 4);
    CHECK_INT(set_all_of_connection(NULL, &released), OF_CONNECTION);
    CHECK_INT(counter_get(&released), 4 + OF_CONNECTION);
    CHECK_INT(set_all_of_listener(NULL, &released), OF_LISTENER);
    CHECK_INT(counter_get(&released), 4 + OF_CONNECTION + OF_LISTENER);
    CHECK_INT(set_all_of_message(NULL, &released), OF_MESSAGE);
    CHECK_INT(counter_get(&released), 4 + OF_CONNECTION + OF_LISTENER + OF_MESSAGE);
    blip_connection_release(connection);
    blip_listener_release(listener);
    drop_runtime(runtime);
}

TEST(contexts_of_a_listener)
{
    struct counter first = COUNTER, second = COUNTER;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = NULL;
    blip_connection *client = NULL;
    blip_slice url;
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    CHECK_INT(set_all_of_listener(listener, &first), 0);
    CHECK_INT(set_all_of_listener(listener, &second), 0);
    CHECK(counter_wait(&first, OF_LISTENER, SOON));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_url(listener, &url));
    REQUIRE_OK(blip_connection_new(runtime, url, NULL, &client));
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    CHECK_INT(counter_get(&second), 0);
    CHECK_OK(blip_listener_stop(listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
    blip_connection_release(client);
    CHECK(counter_wait(&second, OF_LISTENER, SOON));
    drop_runtime(runtime);
    CHECK_INT(counter_get(&first), OF_LISTENER);
    CHECK_INT(counter_get(&second), OF_LISTENER);
}

TEST(contexts_of_messages)
{
    struct pair pair;
    struct counter unsent = COUNTER, replaced = COUNTER, sent = COUNTER;
    blip_message *request = make_request("echo", "x"), *response = NULL;
    CHECK_INT(set_all_of_message(request, &unsent), 0);
    blip_message_release(request);
    CHECK(counter_wait(&unsent, OF_MESSAGE, SOON));
    pair_open(&pair, NULL);
    request = make_request("echo", "x");
    CHECK_INT(set_all_of_message(request, &replaced), 0);
    CHECK_OK(blip_message_set_sent_callback(request, on_sent, &sent, count_release));
    CHECK_OK(blip_message_set_progress_callback(request, NULL, NULL, NULL));
    CHECK_OK(blip_message_set_user_data(request, NULL, NULL));
    CHECK(counter_wait(&replaced, 3, SOON));
    CHECK_OK(blip_connection_request(pair.client, request, SOON, &response));
    blip_message_release(request);
    blip_message_release(response);
    CHECK(counter_wait(&replaced, OF_MESSAGE, SOON));
    CHECK(counter_wait(&sent, 1, SOON));
    pair_close(&pair);
    CHECK_INT(counter_get(&unsent), OF_MESSAGE);
    CHECK_INT(counter_get(&replaced), OF_MESSAGE);
    CHECK_INT(counter_get(&sent), 1);
}

struct replacing {
    blip_connection *connection;
    struct counter calls, released;
    atomic_bool running;
};

static void replaced_context(void *context)
{
    struct replacing *replacing = context;
    CHECK(!atomic_load(&replacing->running));
    counter_add(&replacing->released, 1);
}

/* Replaces itself while it runs: its context has to live until it returns. */
static blip_status replace_self(blip_connection *connection, blip_message *request, void *context)
{
    struct replacing *replacing = context;
    atomic_store(&replacing->running, true);
    CHECK_OK(blip_connection_set_handler(connection, S("self"), 0, on_request, NULL, NULL));
    CHECK_INT(counter_get(&replacing->released), 0);
    counter_add(&replacing->calls, 1);
    blip_status status = blip_message_respond_text(request, S("replaced"));
    atomic_store(&replacing->running, false);
    return status;
}

TEST(a_handler_that_replaces_itself)
{
    struct pair pair;
    struct replacing replacing;
    struct outcome outcome;
    memset(&replacing, 0, sizeof replacing);
    counter_init(&replacing.calls);
    counter_init(&replacing.released);
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("self"), 0, replace_self, &replacing, replaced_context));
    CHECK_OK(send_request(pair.client, "self", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "replaced") == 0);
    CHECK(counter_wait(&replacing.released, 1, SOON));
    CHECK_OK(send_request(pair.client, "self", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.size, 0);
    CHECK_INT(counter_get(&replacing.calls), 1);
    pair_close(&pair);
    CHECK_INT(counter_get(&replacing.released), 1);
}

static void release_calls_the_library(void *context)
{
    struct pair *pair = context;
    int32_t state;
    blip_message *request = make_request("echo", "from a release function");
    CHECK_OK(blip_connection_state(pair->client, &state));
    blip_connection_send(pair->client, request, NULL, NULL, NULL);
    blip_message_release(request);
    blip_connection_set_handler(pair->client, S("other"), 0, on_request, NULL, NULL);
}

TEST(release_functions_may_call_the_library)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    for (int i = 0; i < 10; i++)
        CHECK_OK(blip_connection_set_handler(
            pair.client, S("x"), 0, on_request, &pair, release_calls_the_library));
    for (int i = 0; i < 10; i++) {
        blip_message *request = make_request("echo", "x");
        CHECK_OK(blip_connection_send(pair.client, request, NULL, &pair, release_calls_the_library));
        blip_message_release(request);
    }
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_OK(blip_connection_remove_handler(pair.client, S("x")));
    pair_close(&pair);
}
