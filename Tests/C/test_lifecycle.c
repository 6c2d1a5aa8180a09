/* Connections from new to closed: refused, silent, closed and released in every state and inside every callback. */

#define _GNU_SOURCE

#include "support.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Everything that a connection's callbacks tell. */
struct life {
    struct counter opened, closed, states, after_close, releases;
    int32_t seen[16];
    blip_status status;
    int32_t state_in_close;
};

static void life_opened(blip_connection *connection, void *context)
{
    struct life *life = context;
    int32_t state = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK(state == BLIP_STATE_OPEN || state == BLIP_STATE_CLOSING); /* another thread may close it already */
    CHECK_INT(counter_get(&life->closed), 0);
    counter_add(&life->opened, 1);
}

static void life_state(blip_connection *connection, int32_t state, void *context)
{
    struct life *life = context;
    int64_t index = counter_get(&life->states);
    (void)connection;
    if (counter_get(&life->closed) != 0)
        counter_add(&life->after_close, 1);
    if (index < 16)
        life->seen[index] = state;
    counter_add(&life->states, 1);
}

static void life_closed(blip_connection *connection, blip_status status, void *context)
{
    struct life *life = context;
    life->status = status;
    CHECK_OK(blip_connection_state(connection, &life->state_in_close));
    counter_add(&life->closed, 1);
}

static void life_released(void *context)
{
    struct life *life = context;
    counter_add(&life->releases, 1);
}

static blip_connection *make_connection(
    blip_runtime *runtime, const char *url, blip_connection_options *options, struct life *life)
{
    blip_connection *connection = NULL;
    memset(life, 0, sizeof *life);
    counter_init(&life->opened);
    counter_init(&life->closed);
    counter_init(&life->states);
    counter_init(&life->after_close);
    counter_init(&life->releases);
    life->status = 12345;
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    CHECK_OK(blip_connection_set_open_callback(connection, life_opened, life, life_released));
    CHECK_OK(blip_connection_set_state_callback(connection, life_state, life, life_released));
    CHECK_OK(blip_connection_set_close_callback(connection, life_closed, life, life_released));
    return connection;
}

/* Waits for the end and checks that it came once and last; releases the connection. */
static void expect_end(blip_connection *connection, struct life *life)
{
    int32_t state = -1;
    REQUIRE(counter_wait(&life->closed, 1, SOON));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_CLOSED);
    CHECK_INT(life->state_in_close, BLIP_STATE_CLOSED);
    for (int64_t i = 1; i < counter_get(&life->states) && i < 16; i++)
        CHECK(life->seen[i] > life->seen[i - 1]);
    blip_connection_release(connection);
    CHECK(counter_wait(&life->releases, 3, SOON));
    sleep_ms(20);
    CHECK_INT(counter_get(&life->closed), 1);
    CHECK_INT(counter_get(&life->releases), 3);
    CHECK_INT(counter_get(&life->after_close), 0);
}

TEST(a_connection_opens_and_closes)
{
    struct pair pair;
    struct life life;
    int32_t state = -1, version = -1, code = -1;
    blip_slice slice;
    bool flag = true;
    blip_error *error = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    blip_connection *connection = make_connection(pair.client_runtime, pair.url, NULL, &life);
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_NEW);
    CHECK_OK(blip_connection_protocol_version(connection, &version));
    CHECK_INT(version, 0);
    CHECK_OK(blip_connection_connect(connection));
    CHECK(counter_wait(&life.opened, 1, SOON));
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_OPEN);
    CHECK_OK(blip_connection_protocol_version(connection, &version));
    CHECK_INT(version, 3);
    CHECK_OK(blip_connection_subprotocol(connection, &slice));
    CHECK_TEXT(slice, "BLIP_3");
    CHECK_OK(blip_connection_is_incoming(connection, &flag));
    CHECK(!flag);
    CHECK_OK(blip_connection_is_secure(connection, &flag));
    CHECK(!flag);
    CHECK_OK(blip_connection_remote_address(connection, &slice));
    CHECK_AT_LEAST(slice.size, 11);
    CHECK(memcmp(slice.data, "127.0.0.1:", 10) == 0);
    CHECK_OK(blip_connection_local_address(connection, &slice));
    CHECK(slice.size > 10 && memcmp(slice.data, "127.0.0.1:", 10) == 0);
    CHECK_OK(blip_connection_url(connection, &slice));
    CHECK_AT_LEAST(slice.size, 15);
    CHECK_STATUS(blip_connection_error(connection, &error), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_connect(connection), BLIP_ERROR_STATE);
    CHECK_OK(blip_connection_close(connection, 1000, S("done")));
    CHECK(counter_wait(&life.closed, 1, SOON));
    CHECK_STATUS(life.status, BLIP_OK);
    CHECK_OK(blip_connection_close_code(connection, &code));
    CHECK_INT(code, 1000);
    CHECK_INT(counter_get(&life.opened), 1);
    expect_end(connection, &life);
    pair_close(&pair);
}

TEST(urls_are_checked_with_a_reason)
{
    static const char *const bad[] = {"", "nothing", "ftp://host/", "ws://", "ws://host:70000/", "ws://a b/", "ws://[::1/"};
    CHECK_OK(blip_url_check(S("ws://localhost:4984/db"), NULL));
    CHECK_OK(blip_url_check(S("wss+unix://%2Frun%2Fx.sock/"), NULL));
    CHECK_STATUS(blip_url_check(bytes_slice("ws://\xff/", 7), NULL), BLIP_ERROR_TEXT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        blip_error *error = NULL;
        blip_slice message = {NULL, 0};
        CHECK_STATUS(blip_url_check(blip_text(bad[i]), NULL), BLIP_ERROR_URL);
        CHECK_STATUS(blip_url_check(blip_text(bad[i]), &error), BLIP_ERROR_URL);
        CHECK_STATUS(blip_error_status(error), BLIP_ERROR_URL);
        CHECK_OK(blip_error_message(error, &message));
        CHECK_AT_LEAST(message.size, 10);
        test_note("%s: %.*s", bad[i], (int)message.size, (const char *)message.data);
        blip_error_release(error);
    }
}

TEST(refused)
{
    char url[64];
    struct life life;
    blip_runtime *runtime = make_runtime(1);
    blip_error *error = NULL;
    blip_slice text;
    int64_t code = 0;
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/x", unused_port());
    blip_connection *connection = make_connection(runtime, url, NULL, &life);
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_REFUSED);
    CHECK(counter_wait(&life.closed, 1, SOON));
    CHECK_STATUS(life.status, BLIP_ERROR_REFUSED);
    CHECK_INT(counter_get(&life.opened), 0);
    REQUIRE_OK(blip_connection_error(connection, &error));
    CHECK_STATUS(blip_error_status(error), BLIP_ERROR_REFUSED);
    CHECK_OK(blip_error_domain(error, &text));
    CHECK_TEXT(text, "POSIX");
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, 111);
    CHECK_OK(blip_error_message(error, &text));
    CHECK(memmem(text.data, text.size, "127.0.0.1", 9) != NULL);
    test_note("%.*s", (int)text.size, (const char *)text.data);
    /* The error outlives its connection if it is retained. */
    CHECK_POINTER(blip_error_retain(error), error);
    expect_end(connection, &life);
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, 111);
    blip_error_release(error);
    /* The connection's own reference goes when its loop is done with it. */
    int64_t end = now_ms() + SOON;
    while (blip_error_code(error, &code) == BLIP_OK && now_ms() < end)
        sleep_ms(1);
    CHECK_STATUS(blip_error_code(error, &code), BLIP_ERROR_HANDLE);
    drop_runtime(runtime);
}

TEST(a_name_that_does_not_exist)
{
    struct life life;
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = make_connection(runtime, "ws://does-not-exist.invalid/", NULL, &life);
    blip_error *error = NULL;
    blip_slice domain;
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_RESOLVE);
    REQUIRE_OK(blip_connection_error(connection, &error));
    CHECK_OK(blip_error_domain(error, &domain));
    CHECK_TEXT(domain, "DNS");
    expect_end(connection, &life);
    drop_runtime(runtime);
}

TEST(urls_that_cannot_be_used)
{
    static const char *const urls[] = {"", "x", "ftp://host/", "ws://", "ws://:80/", "ws://host:0/", "ws://host:65536/",
        "ws://host:x/", "ws://[::1/", "ws:/host/", "ws://ho st/", "ws+unix://", "http//x", "ws://host/\xff"};
    blip_runtime *runtime = make_runtime(1);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        blip_connection *connection = NULL;
        blip_status status = blip_connection_new(runtime, S(urls[i]), NULL, &connection);
        if (!CHECK(status == BLIP_ERROR_URL || status == BLIP_ERROR_TEXT))
            test_note("\"%s\" gives %s", urls[i], blip_status_name(status));
        CHECK_POINTER(connection, NULL);
    }
    drop_runtime(runtime);
}

TEST(a_server_that_says_nothing)
{
    int descriptor;
    char url[64];
    struct life life;
    blip_runtime *runtime = make_runtime(1);
    blip_connection_options *options = blip_connection_options_new();
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    CHECK_OK(blip_connection_options_set_connect_timeout(options, 300));
    blip_connection *connection = make_connection(runtime, url, options, &life);
    blip_connection_options_release(options);
    int64_t start = now_ms();
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_TIMEOUT);
    CHECK_AT_LEAST(now_ms() - start, 250);
    CHECK_AT_MOST(now_ms() - start, 2000);
    CHECK(counter_wait(&life.closed, 1, SOON));
    CHECK_STATUS(life.status, BLIP_ERROR_TIMEOUT);
    expect_end(connection, &life);
    close(descriptor);
    drop_runtime(runtime);
}

TEST(waiting_to_open_gives_up_and_may_be_repeated)
{
    int descriptor;
    char url[64];
    struct life life;
    int32_t state = -1;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    blip_connection *connection = make_connection(runtime, url, NULL, &life);
    CHECK_STATUS(blip_connection_wait_open(connection, 0), BLIP_ERROR_TIMEOUT);
    CHECK_STATUS(blip_connection_wait_open(connection, 50), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_CONNECTING);
    CHECK_STATUS(blip_connection_wait_closed(connection, 50), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    expect_end(connection, &life);
    close(descriptor);
    drop_runtime(runtime);
}

TEST(a_server_that_dies_during_the_upgrade)
{
    int descriptor;
    char url[64];
    struct life life;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    blip_connection *connection = make_connection(runtime, url, NULL, &life);
    CHECK_OK(blip_connection_connect(connection));
    struct pollfd waits = {descriptor, POLLIN, 0};
    CHECK_INT(poll(&waits, 1, SOON), 1);
    close(descriptor); /* resets what waits to be accepted */
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_CONNECTION_LOST);
    expect_end(connection, &life);
    drop_runtime(runtime);
}

TEST(closed_before_it_was_connected)
{
    struct life life;
    struct outcome outcome;
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = make_connection(runtime, "ws://127.0.0.1:9/", NULL, &life);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    /* Refused, or accepted and completed with the same status. */
    if (send_request(connection, "x", "", &outcome) == BLIP_OK) {
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    }
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    CHECK_STATUS(blip_connection_connect(connection), BLIP_ERROR_CLOSED);
    CHECK_STATUS(blip_connection_wait_open(connection, 1000), BLIP_ERROR_CLOSED);
    CHECK_STATUS(send_request(connection, "x", "", &outcome), BLIP_ERROR_CLOSED);
    CHECK_INT(counter_get(&life.opened), 0);
    expect_end(connection, &life);
    drop_runtime(runtime);
}

TEST(closed_while_it_connects)
{
    struct pair pair;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    /* After every delay from "not started" to "open for long". */
    for (int i = 0; i < 60; i++) {
        struct life life;
        blip_connection *connection = make_connection(pair.client_runtime, pair.url, NULL, &life);
        CHECK_OK(blip_connection_connect(connection));
        for (volatile int spin = 0; spin < i * i * 400; spin++)
            continue;
        CHECK_OK(blip_connection_close(connection, 1000, S("")));
        REQUIRE(counter_wait(&life.closed, 1, SOON));
        CHECK(life.status == BLIP_OK || life.status == BLIP_ERROR_CLOSED);
        expect_end(connection, &life);
    }
    pair_close(&pair);
}

TEST(closed_while_the_server_is_silent)
{
    int descriptor;
    char url[64];
    struct life life;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    blip_connection *connection = make_connection(runtime, url, NULL, &life);
    CHECK_OK(blip_connection_connect(connection));
    sleep_ms(50);
    int64_t start = now_ms();
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    expect_end(connection, &life);
    CHECK_AT_MOST(now_ms() - start, 2000);
    close(descriptor);
    drop_runtime(runtime);
}

TEST(closing_twice_is_harmless)
{
    struct pair pair;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
    CHECK_OK(blip_connection_close(pair.client, 1001, S("")));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_OK(blip_connection_close(pair.client, 1001, S("")));
    pair_close(&pair);
}

TEST(codes_and_reasons_are_checked_and_seen_by_the_peer)
{
    static const uint16_t bad[] = {0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535};
    struct pair pair;
    char reason[200];
    int32_t code = 0;
    memset(reason, 'r', sizeof reason);
    pair_open(&pair, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK_STATUS(blip_connection_close(pair.client, bad[i], S("")), BLIP_ERROR_ARGUMENT))
            test_note("code %u", bad[i]);
    CHECK(blip_connection_close(pair.client, 1000, bytes_slice(reason, 124)) < 0);
    CHECK_STATUS(blip_connection_close(pair.client, 1000, bytes_slice("\xff", 1)), BLIP_ERROR_TEXT);
    CHECK_OK(blip_connection_close(pair.client, 4242, bytes_slice(reason, 123)));
    CHECK(counter_wait(&pair.server_closed, 1, SOON));
    CHECK_OK(blip_connection_close_code(pair.accepted, &code));
    CHECK_INT(code, 4242);
    pair_close(&pair);
}

TEST(the_peer_closes)
{
    struct pair pair;
    int32_t code = 0;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_close(pair.accepted, 1000, S("")));
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(pair.client_status, BLIP_OK);
    pair_close(&pair);

    pair_open(&pair, NULL);
    /* With what would forge a line of a log, or clear a terminal. */
    CHECK_OK(blip_connection_close(pair.accepted, 4000, S("because\nof \x1b[2J")));
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(pair.client_status, BLIP_ERROR_PEER_CLOSED);
    CHECK_OK(blip_connection_close_code(pair.client, &code));
    CHECK_INT(code, 4000);
    blip_error *error = NULL;
    blip_slice text;
    REQUIRE_OK(blip_connection_error(pair.client, &error));
    CHECK_OK(blip_error_domain(error, &text));
    CHECK_TEXT(text, "WebSocket");
    CHECK_OK(blip_error_message(error, &text));
    CHECK(memmem(text.data, text.size, "because", 7) != NULL);
    CHECK(memchr(text.data, '\n', text.size) == NULL && memchr(text.data, 0x1b, text.size) == NULL);
    pair_close(&pair);
}

TEST(both_close_at_once)
{
    for (int i = 0; i < 20; i++) {
        struct pair pair;
        pair_open(&pair, NULL);
        CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
        blip_connection_close(pair.accepted, 1000, S(""));
        CHECK(counter_wait(&pair.client_closed, 1, SOON));
        CHECK_STATUS(pair.client_status, BLIP_OK);
        pair_close(&pair);
    }
}

TEST(released_in_every_state)
{
    struct pair pair;
    int descriptor;
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    pair_open(&pair, &(struct pair_options){.no_client = true});

    struct life fresh, connecting, open, closing;
    blip_connection_release(make_connection(pair.client_runtime, pair.url, NULL, &fresh));
    CHECK(counter_wait(&fresh.releases, 3, SOON));
    CHECK_INT(counter_get(&fresh.opened), 0);
    CHECK_AT_MOST(counter_get(&fresh.closed), 1);

    blip_connection *connection = make_connection(pair.client_runtime, url, NULL, &connecting);
    CHECK_OK(blip_connection_connect(connection));
    sleep_ms(20);
    blip_connection_release(connection);
    CHECK(counter_wait(&connecting.closed, 1, SOON));
    CHECK(counter_wait(&connecting.releases, 3, SOON));

    connection = make_connection(pair.client_runtime, pair.url, NULL, &open);
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    REQUIRE_REACHES(&pair.server_opened, 1);
    blip_connection_release(connection);
    CHECK(counter_wait(&open.closed, 1, SOON));
    CHECK(counter_wait(&open.releases, 3, SOON));
    CHECK(counter_wait(&pair.server_closed, 1, SOON));
    int32_t code = 0;
    CHECK_OK(blip_connection_close_code(pair.accepted, &code));
    CHECK_INT(code, 1001);

    connection = make_connection(pair.client_runtime, pair.url, NULL, &closing);
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    blip_connection_release(connection);
    CHECK(counter_wait(&closing.closed, 1, SOON));
    CHECK(counter_wait(&closing.releases, 3, SOON));
    close(descriptor);
    pair_close(&pair);
}

/* What a callback does to its connection. */
enum deed { CLOSE, RELEASE, CLOSE_AND_RELEASE, GRACEFULLY, STOP_LISTENER, DEEDS };
enum place { IN_OPEN, IN_STATE_CONNECTING, IN_STATE_OPEN, IN_RESPONSE, IN_REQUEST, IN_PONG, IN_SENT, IN_PROGRESS,
    IN_CLOSE, IN_DATA, IN_RELEASE, PLACES };

struct intruder {
    enum deed deed;
    enum place place;
    blip_connection *connection;
    blip_listener *listener;
    atomic_int done;
    struct counter closed, responses, contexts;
};

static void act(struct intruder *intruder, enum place place)
{
    if (place != intruder->place || atomic_exchange(&intruder->done, 1) != 0)
        return;
    switch (intruder->deed) {
    case CLOSE: blip_connection_close(intruder->connection, 1000, S("")); break;
    case RELEASE: blip_connection_release(intruder->connection); break;
    case CLOSE_AND_RELEASE:
        blip_connection_close(intruder->connection, 1000, S(""));
        blip_connection_release(intruder->connection);
        break;
    case GRACEFULLY: blip_connection_close_gracefully(intruder->connection, 500); break;
    default: blip_listener_stop(intruder->listener, false, 500); break;
    }
}

static void intruder_opened(blip_connection *connection, void *context)
{
    (void)connection;
    act(context, IN_OPEN);
}

static void intruder_state(blip_connection *connection, int32_t state, void *context)
{
    (void)connection;
    if (state == BLIP_STATE_CONNECTING)
        act(context, IN_STATE_CONNECTING);
    if (state == BLIP_STATE_OPEN)
        act(context, IN_STATE_OPEN);
}

static void intruder_closed(blip_connection *connection, blip_status status, void *context)
{
    struct intruder *intruder = context;
    (void)connection;
    (void)status;
    act(context, IN_CLOSE);
    counter_add(&intruder->closed, 1);
}

static size_t intruder_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    (void)message;
    (void)status;
    act(context, IN_DATA);
    return data.size;
}

static void intruder_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct intruder *intruder = context;
    (void)connection;
    (void)request;
    (void)status;
    CHECK_INT(counter_get(&intruder->closed), 0);
    if (response != NULL && intruder->place == IN_DATA)
        CHECK_OK(blip_message_set_data_callback(response, intruder_data, intruder, NULL));
    act(context, IN_RESPONSE);
    counter_add(&intruder->responses, 1);
}

static blip_status intruder_request(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    act(context, IN_REQUEST);
    return BLIP_OK;
}

static void intruder_pong(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    (void)connection;
    (void)status;
    (void)microseconds;
    act(context, IN_PONG);
}

static void intruder_sent(blip_message *message, blip_status status, void *context)
{
    (void)message;
    (void)status;
    act(context, IN_SENT);
}

static void intruder_progress(blip_message *message, uint64_t sent, void *context)
{
    (void)message;
    (void)sent;
    act(context, IN_PROGRESS);
}

static void intruder_context(void *context)
{
    struct intruder *intruder = context;
    act(context, IN_RELEASE);
    counter_add(&intruder->contexts, 1);
}

/* The server asks back, so that the client has a handler that runs. */
static blip_status ask_back(blip_connection *connection, blip_message *request, void *context)
{
    (void)context;
    blip_slice body;
    blip_message *question = make_request("question", "?");
    blip_connection_send(connection, question, NULL, NULL, NULL);
    blip_message_release(question);
    CHECK_OK(blip_message_body(request, &body));
    return blip_message_respond_data(request, body, S(""));
}

static void intrude(enum place place, enum deed deed)
{
    struct pair pair;
    struct intruder intruder;
    memset(&intruder, 0, sizeof intruder);
    counter_init(&intruder.closed);
    counter_init(&intruder.responses);
    counter_init(&intruder.contexts);
    intruder.place = place;
    intruder.deed = deed;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    CHECK_OK(blip_listener_set_handler(pair.listener, S("ask"), 0, ask_back, NULL, NULL));
    intruder.listener = pair.listener;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &intruder.connection));
    blip_connection *client = intruder.connection;
    CHECK(blip_connection_retain(client) != NULL); /* the intruder may release the other reference */
    CHECK_OK(blip_connection_set_open_callback(client, intruder_opened, &intruder, NULL));
    CHECK_OK(blip_connection_set_state_callback(client, intruder_state, &intruder, NULL));
    CHECK_OK(blip_connection_set_close_callback(client, intruder_closed, &intruder, NULL));
    CHECK_OK(blip_connection_set_handler(client, S("question"), 0, intruder_request, &intruder, NULL));
    CHECK_OK(blip_connection_connect(client));
    int64_t expected = 0;
    static char body[100000];
    for (int i = 0; i < 4; i++) {
        blip_message *request = make_request("ask", NULL);
        CHECK_OK(blip_message_set_body(request, bytes_slice(body, sizeof body)));
        CHECK_OK(blip_message_set_sent_callback(request, intruder_sent, &intruder, NULL));
        CHECK_OK(blip_message_set_progress_callback(request, intruder_progress, &intruder, NULL));
        CHECK_OK(blip_message_set_streamed(request, place == IN_DATA));
        expected +=
            blip_connection_send(client, request, intruder_response, &intruder, intruder_context) == BLIP_OK;
        blip_message_release(request);
    }
    blip_connection_ping(client, 1000, intruder_pong, &intruder, NULL);
    sleep_ms(deed == STOP_LISTENER ? 150 : 60);
    blip_connection_close(client, 1000, S(""));
    if (!CHECK(counter_wait(&intruder.closed, 1, SOON)))
        test_note("place %d, deed %d", place, deed);
    CHECK_INT(counter_get(&intruder.responses), expected);
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    if (deed != RELEASE && deed != CLOSE_AND_RELEASE)
        blip_connection_release(client);
    else if (atomic_load(&intruder.done) == 0)
        blip_connection_release(client);
    if (!CHECK(counter_wait(&intruder.contexts, 4, SOON)))
        test_note("place %d, deed %d", place, deed);
    CHECK_INT(counter_get(&intruder.closed), 1);
    pair_close(&pair);
}

static void intrude_everywhere(enum deed deed)
{
    for (int place = 0; place < PLACES; place++)
        intrude((enum place)place, deed);
}

TEST_SECONDS(closed_inside_every_callback, 60)
{
    intrude_everywhere(CLOSE);
}

TEST_SECONDS(released_inside_every_callback, 60)
{
    intrude_everywhere(RELEASE);
}

TEST_SECONDS(closed_and_released_inside_every_callback, 60)
{
    intrude_everywhere(CLOSE_AND_RELEASE);
}

TEST_SECONDS(closed_gracefully_inside_every_callback, 60)
{
    intrude_everywhere(GRACEFULLY);
}

TEST_SECONDS(the_listener_is_stopped_inside_every_callback, 60)
{
    intrude_everywhere(STOP_LISTENER);
}

struct last_reference {
    struct counter closed, response;
};

static void release_in_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct last_reference *last = context;
    blip_slice body;
    CHECK_STATUS(status, BLIP_OK);
    blip_connection_release(connection); /* the program's only reference */
    /* What the callback was given stays usable until it returns. */
    CHECK_OK(blip_message_body(response, &body));
    CHECK_TEXT(body, "x");
    CHECK_OK(blip_message_body(request, &body));
    counter_add(&last->response, 1);
}

static void last_closed(blip_connection *connection, blip_status status, void *context)
{
    struct last_reference *last = context;
    int32_t state;
    (void)status;
    CHECK_OK(blip_connection_state(connection, &state));
    counter_add(&last->closed, 1);
}

TEST(the_last_reference_is_released_in_a_callback)
{
    struct pair pair;
    struct last_reference last = {COUNTER, COUNTER};
    blip_connection *client = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    CHECK_OK(blip_connection_set_close_callback(client, last_closed, &last, NULL));
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_connection_send(client, request, release_in_response, &last, NULL));
    blip_message_release(request);
    CHECK_OK(blip_connection_connect(client));
    CHECK(counter_wait(&last.response, 1, SOON));
    CHECK(counter_wait(&last.closed, 1, SOON));
    pair_close(&pair);
}

TEST(graceful_closing_finishes_what_is_under_way)
{
    struct pair pair;
    struct outcome outcomes[5], refused;
    pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++)
        CHECK_OK(send_request(pair.client, "slow", "finish me", &outcomes[i]));
    CHECK_OK(blip_connection_close_gracefully(pair.client, 3000));
    CHECK_STATUS(send_request(pair.client, "echo", "x", &refused), BLIP_ERROR_CLOSED);
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(pair.client_status, BLIP_OK);
    for (int i = 0; i < 5; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        CHECK(strcmp(outcomes[i].text, "finish me") == 0);
    }
    pair_close(&pair);
}

TEST(graceful_closing_ends_at_its_timeout)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "never", "x", &outcome));
    int64_t start = now_ms();
    CHECK_OK(blip_connection_close_gracefully(pair.client, 300));
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_AT_LEAST(now_ms() - start, 250);
    CHECK_AT_MOST(now_ms() - start, 3000);
    CHECK(outcome_wait(&outcome));
    CHECK(outcome.status < 0);
    pair_close(&pair);
}

TEST(graceful_closing_by_the_server_lets_it_answer)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "slow", "answer me", &outcome));
    sleep_ms(20);
    CHECK_OK(blip_connection_close_gracefully(pair.accepted, 3000));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, "answer me") == 0);
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(pair.client_status, BLIP_OK);
    pair_close(&pair);
}

TEST(user_data_of_a_connection)
{
    struct counter first = COUNTER, second = COUNTER;
    void *data = &first;
    blip_connection *connection = NULL;
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    CHECK_OK(blip_connection_user_data(connection, &data));
    CHECK_POINTER(data, NULL);
    CHECK_OK(blip_connection_set_user_data(connection, &first, count_release));
    CHECK_OK(blip_connection_set_user_data(connection, &second, count_release));
    CHECK(counter_wait(&first, 1, SOON));
    CHECK_OK(blip_connection_user_data(connection, &data));
    CHECK_POINTER(data, &second);
    blip_connection_release(connection);
    CHECK(counter_wait(&second, 1, SOON));
    drop_runtime(runtime);
}

static void count_pong(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    (void)connection;
    CHECK_STATUS(status, BLIP_OK);
    CHECK_AT_LEAST(microseconds, 0);
    CHECK_AT_MOST(microseconds, 5000000);
    counter_add(context, 1);
}

static void count_failed_pong(blip_connection *connection, blip_status status, int64_t microseconds, void *context)
{
    (void)connection;
    (void)microseconds;
    CHECK(status < 0);
    counter_add(context, 1);
}

TEST(pings_are_answered)
{
    struct pair pair;
    struct counter pongs = COUNTER, released = COUNTER, failed = COUNTER;
    pair_open(&pair, NULL);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(blip_connection_ping(pair.client, 2000, count_pong, &pongs, NULL));
        CHECK_OK(blip_connection_ping(pair.accepted, 2000, count_pong, &pongs, NULL));
    }
    CHECK(counter_wait(&pongs, 20, SOON));
    blip_connection_close(pair.client, 1000, S(""));
    blip_connection_wait_closed(pair.client, SOON);
    /* Refused or answered, exactly one release. */
    CHECK_STATUS(blip_connection_ping(pair.client, 100, count_failed_pong, &failed, NULL), BLIP_ERROR_CLOSED);
    CHECK(blip_connection_ping(pair.client, 100, NULL, &released, count_release) < 0);
    CHECK(counter_wait(&released, 1, SOON));
    CHECK_INT(counter_get(&failed), 0);
    CHECK_INT(counter_get(&released), 1);
    pair_close(&pair);
}

TEST(counters_count)
{
    static const int32_t which[] = {BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_MESSAGES_RECEIVED,
        BLIP_COUNTER_FRAMES_SENT, BLIP_COUNTER_FRAMES_RECEIVED, BLIP_COUNTER_BYTES_SENT, BLIP_COUNTER_BYTES_RECEIVED,
        BLIP_COUNTER_REQUESTS_PENDING, BLIP_COUNTER_REQUESTS_UNANSWERED, BLIP_COUNTER_MESSAGES_QUEUED};
    static const int32_t unknown[] = {BLIP_COUNTER_MESSAGES_SENT, 12345};
    uint64_t values[9], theirs[9];
    struct pair pair;
    struct outcome outcome, pending;
    pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
        CHECK(outcome_wait(&outcome));
    }
    CHECK_OK(send_request(pair.client, "never", "x", &pending));
    sleep_ms(100);
    CHECK_OK(blip_connection_counter_values(pair.client, which, values, 9));
    CHECK_OK(blip_connection_counter_values(pair.accepted, which, theirs, 9));
    CHECK_INT(values[0], 6);
    CHECK_INT(values[1], 5);
    CHECK_AT_LEAST(values[2], 6);
    CHECK_AT_LEAST(values[3], 5);
    CHECK_INT(values[4], theirs[5]);
    CHECK_INT(values[5], theirs[4]);
    CHECK_INT(values[6], 1);
    CHECK_INT(values[7], 0);
    CHECK_INT(values[8], 0);
    CHECK_INT(theirs[0], 5);
    CHECK_INT(theirs[1], 6);
    CHECK_INT(theirs[7], 1);
    CHECK(blip_connection_counter_values(pair.client, unknown, values, 2) < 0);
    CHECK_OK(blip_connection_counter_values(pair.client, which, values, 0));
    bool active = false;
    CHECK_OK(blip_connection_is_active(pair.client, &active));
    CHECK(active);
    pair_close(&pair);
}

TEST(a_thousand_connections_come_and_go)
{
    struct pair pair;
    pair_open(&pair, NULL);
    size_t descriptors = open_descriptors();
    size_t threads = own_threads();
    for (int round = 0; round < 20; round++) {
        blip_connection *connections[50];
        for (int i = 0; i < 50; i++) {
            REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &connections[i]));
            CHECK_OK(blip_connection_connect(connections[i]));
        }
        for (int i = 0; i < 50; i++)
            CHECK_OK(blip_connection_wait_open(connections[i], SOON));
        for (int i = 0; i < 50; i++) {
            blip_connection_close(connections[i], 1000, S(""));
            CHECK_OK(blip_connection_wait_closed(connections[i], SOON));
            blip_connection_release(connections[i]);
        }
    }
    REQUIRE_REACHES(&pair.server_closed, 1000);
    int64_t end = now_ms() + SOON;
    while (open_descriptors() > descriptors && now_ms() < end)
        sleep_ms(10);
    CHECK_AT_MOST(open_descriptors(), descriptors);
    CHECK_AT_MOST(own_threads(), threads);
    pair_close(&pair);
}
