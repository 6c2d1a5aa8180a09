/* Peers that have ended their own direction of the stream and still listen. Both ends are the library's: one is made
 * to end its direction behind its back, and hears what comes all the same. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char *const versions[] = {"BLIP_3", "BLIP", "BLIP_1"};
enum { VERSIONS = 3 };

static void end_output(blip_connection *connection, int fd, void *context)
{
    (void)connection;
    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    counter_add(context, 1);
}

static void half_close(blip_connection *connection)
{
    struct counter done = COUNTER;
    REQUIRE_OK(blip_connection_perform_fd(connection, end_output, &done, NULL));
    REQUIRE_REACHES(&done, 1);
}

/* A pair that speaks this version; `server` and `client` are the times that each goes on for. */
static void open_pair(struct pair *pair, const char *version, int64_t server, int64_t client)
{
    bool is_stream = strcmp(version, "BLIP_1") == 0;
    struct pair_options options = {.listener = blip_listener_options_new(), .client = blip_connection_options_new()};
    REQUIRE_OK(blip_listener_options_set_half_close(options.listener, server));
    REQUIRE_OK(blip_connection_options_set_half_close(options.client, client));
    REQUIRE_OK(blip_listener_options_set_blip1(options.listener, is_stream));
    REQUIRE_OK(blip_listener_options_set_websocket(options.listener, !is_stream));
    if (!is_stream)
        REQUIRE_OK(blip_connection_options_add_subprotocol(options.client, S(version)));
    pair_open(pair, &options);
}

/* Sends and waits until it is out. */
static void send_out(blip_connection *connection, const char *profile, const char *body, struct outcome *outcome)
{
    blip_message *request = make_request(profile, body);
    outcome_init(outcome);
    REQUIRE_OK(blip_message_set_property(request, S("Size"), S("3000000")));
    REQUIRE_OK(blip_connection_send(connection, request, outcome_response, outcome, outcome_release));
    REQUIRE_OK(blip_message_wait_sent(request, SOON));
    blip_message_release(request);
}

/* What the connection's end was reported as. */
static blip_status end_of(blip_connection *connection)
{
    blip_error *error = NULL;
    blip_status status = BLIP_OK;
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    if (blip_connection_error(connection, &error) == BLIP_OK)
        status = blip_error_status(error);
    return status;
}

static int32_t state_of(blip_connection *connection)
{
    int32_t state = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    return state;
}

TEST(clients_that_send_no_more_are_answered)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome slow[3];
        open_pair(&pair, versions[i], -1, 0);
        for (int j = 0; j < 3; j++)
            send_out(pair.client, "slow", "answered", &slow[j]);
        int64_t start = now_ms();
        half_close(pair.client);
        for (int j = 0; j < 3; j++) {
            REQUIRE(outcome_wait(&slow[j]));
            CHECK_STATUS(slow[j].status, BLIP_OK);
            CHECK(strcmp(slow[j].text, "answered") == 0);
        }
        CHECK_STATUS(end_of(pair.accepted), BLIP_OK);
        CHECK_STATUS(end_of(pair.client), BLIP_OK);
        /* Nobody waits for a closing frame, which cannot come: that would be five seconds. */
        CHECK_AT_MOST(now_ms() - start, 4000);
        pair_close(&pair);
    }
}

static blip_message *kept;
static struct counter arrived = COUNTER;

static blip_status keep(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_defer(request));
    kept = blip_message_retain(request);
    counter_add(&arrived, 1);
    return BLIP_OK;
}

TEST(servers_that_send_no_more_are_answered)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome outcome;
        open_pair(&pair, versions[i], 0, 10000);
        REQUIRE_OK(blip_connection_set_handler(pair.client, S("keep"), 0, keep, NULL, NULL));
        REQUIRE_REACHES(&pair.server_opened, 1);
        send_out(pair.accepted, "keep", "x", &outcome);
        REQUIRE_REACHES(&arrived, i + 1);
        half_close(pair.accepted);
        for (int tries = 0; state_of(pair.client) != BLIP_STATE_CLOSING && tries < SOON; tries++)
            sleep_ms(1);
        CHECK_INT(state_of(pair.client), BLIP_STATE_CLOSING);
        /* It costs nothing while there is nothing to send. */
        int64_t before = processor_ms();
        sleep_ms(200);
        CHECK_AT_MOST(processor_ms() - before, 100);
        struct outcome refused;
        CHECK_STATUS(send_request(pair.client, "echo", "x", &refused), BLIP_ERROR_CLOSED);
        REQUIRE_OK(blip_message_respond_text(kept, S("late but here")));
        blip_message_release(kept);
        REQUIRE(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK(strcmp(outcome.text, "late but here") == 0);
        CHECK_STATUS(end_of(pair.client), BLIP_OK);
        pair_close(&pair);
    }
}

TEST_SECONDS(large_answers_need_no_acknowledgements_then, 60)
{
    enum { SIZE = 3000000 };
    char *expected = malloc(SIZE);
    REQUIRE(expected != NULL);
    fill_pattern(expected, SIZE, 0, 7);
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome outcome;
        open_pair(&pair, versions[i], -1, 0);
        send_out(pair.client, "source", "", &outcome);
        half_close(pair.client);
        REQUIRE(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK_INT(outcome.size, SIZE);
        CHECK_INT(outcome.checksum, checksum(0, expected, SIZE));
        CHECK_STATUS(end_of(pair.accepted), BLIP_OK);
        pair_close(&pair);
    }
    free(expected);
}

TEST(by_default_it_is_a_lost_connection)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome outcome;
        open_pair(&pair, versions[i], 0, 0);
        send_out(pair.client, "never", "x", &outcome);
        half_close(pair.client);
        CHECK_STATUS(end_of(pair.accepted), BLIP_ERROR_CONNECTION_LOST);
        REQUIRE(outcome_wait(&outcome));
        CHECK(outcome.status < 0);
        pair_close(&pair);
    }
}

TEST(what_this_side_asked_cannot_be_answered)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome ours, theirs;
        open_pair(&pair, versions[i], -1, 0);
        int64_t before = counter_get(&arrived);
        REQUIRE_OK(blip_connection_set_handler(pair.client, S("keep"), 0, keep, NULL, NULL));
        REQUIRE_REACHES(&pair.server_opened, 1);
        send_out(pair.accepted, "keep", "x", &ours);
        REQUIRE_REACHES(&arrived, before + 1);
        send_out(pair.client, "slow", "answered", &theirs);
        half_close(pair.client);
        REQUIRE(outcome_wait(&ours));
        CHECK_STATUS(ours.status, BLIP_ERROR_CONNECTION_LOST);
        REQUIRE(outcome_wait(&theirs));
        CHECK_STATUS(theirs.status, BLIP_OK);
        CHECK(strcmp(theirs.text, "answered") == 0);
        CHECK_STATUS(end_of(pair.accepted), BLIP_ERROR_CONNECTION_LOST);
        blip_message_release(kept);
        pair_close(&pair);
    }
}

/* A request of which the first bytes are out and the last ones never come. */
static blip_message *begin_request(blip_connection *connection, const char *profile, struct outcome *outcome)
{
    static char bytes[20000];
    blip_message *request = make_request(profile, NULL);
    outcome_init(outcome);
    REQUIRE_OK(blip_message_append_body_pushed(request));
    REQUIRE_OK(blip_connection_send(connection, request, outcome_response, outcome, outcome_release));
    REQUIRE_OK(blip_message_push_body(request, bytes_slice(bytes, sizeof bytes), false));
    uint64_t sent = 0;
    for (int tries = 0; sent < sizeof bytes && tries < SOON; tries++) {
        sleep_ms(1);
        REQUIRE_OK(blip_message_bytes_sent(request, &sent));
    }
    REQUIRE_INT(sent, sizeof bytes);
    return request;
}

TEST(what_came_in_part_is_refused)
{
    static const char *const profiles[] = {"echo", "taken"};
    for (int i = 0; i < 2 * VERSIONS; i++) {
        struct pair pair;
        struct outcome cut, whole;
        open_pair(&pair, versions[i / 2], -1, 0);
        REQUIRE_REACHES(&pair.server_opened, 1);
        int64_t before = counter_get(&arrived);
        REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("taken"), BLIP_HANDLER_STREAM, keep, NULL, NULL));
        blip_message *request = begin_request(pair.client, profiles[i % 2], &cut);
        send_out(pair.client, "slow", "answered", &whole);
        if (i % 2 == 1)
            REQUIRE_REACHES(&arrived, before + 1);
        half_close(pair.client);
        REQUIRE(outcome_wait(&whole));
        CHECK(strcmp(whole.text, "answered") == 0);
        CHECK_STATUS(end_of(pair.accepted), BLIP_ERROR_CONNECTION_LOST);
        REQUIRE(outcome_wait(&cut));
        /* The end of the client's own direction is no news to it. */
        CHECK_STATUS(cut.status, BLIP_OK);
        CHECK_INT(cut.type, BLIP_MESSAGE_ERROR);
        CHECK_INT(cut.error_code, 400);
        if (i % 2 == 1) {
            char byte;
            size_t size = 0;
            blip_status status;
            while ((status = blip_message_read(kept, &byte, 1, &size)) == BLIP_OK && size == 1)
                continue;
            CHECK_STATUS(status, BLIP_ERROR_CONNECTION_LOST);
            blip_message_release(kept);
        }
        blip_message_release(request);
        pair_close(&pair);
    }
}

TEST(what_is_under_way_to_be_answered_is_given_up)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome ours, large, theirs;
        open_pair(&pair, versions[i], -1, 0);
        REQUIRE_REACHES(&pair.server_opened, 1);
        /* One waits for the program, one for acknowledgements or for its turn. */
        blip_message *request = begin_request(pair.accepted, "nobody", &ours);
        char *body = calloc(1, 3000000);
        blip_message *second = make_request("nobody", "");
        REQUIRE(body != NULL);
        REQUIRE_OK(blip_message_set_body(second, bytes_slice(body, 3000000)));
        free(body);
        outcome_init(&large);
        send_out(pair.client, "slow", "answered", &theirs);
        half_close(pair.client);
        blip_status status = blip_connection_send(pair.accepted, second, outcome_response, &large, outcome_release);
        REQUIRE(outcome_wait(&ours));
        CHECK_STATUS(ours.status, BLIP_ERROR_CONNECTION_LOST);
        if (status == BLIP_OK) {
            REQUIRE(outcome_wait(&large));
            CHECK_STATUS(large.status, BLIP_ERROR_CONNECTION_LOST);
        } else {
            CHECK_STATUS(status, BLIP_ERROR_CLOSED);
        }
        REQUIRE(outcome_wait(&theirs));
        CHECK(strcmp(theirs.text, "answered") == 0);
        CHECK_STATUS(end_of(pair.accepted), BLIP_ERROR_CONNECTION_LOST);
        blip_message_release(request);
        blip_message_release(second);
        pair_close(&pair);
    }
}

TEST(it_does_not_go_on_for_ever)
{
    for (int i = 0; i < VERSIONS; i++) {
        struct pair pair;
        struct outcome outcome;
        open_pair(&pair, versions[i], 300, 0);
        send_out(pair.client, "never", "x", &outcome);
        int64_t start = now_ms();
        half_close(pair.client);
        CHECK_STATUS(end_of(pair.accepted), BLIP_ERROR_CONNECTION_LOST);
        CHECK_AT_LEAST(now_ms() - start, 290);
        REQUIRE(outcome_wait(&outcome));
        CHECK(outcome.status < 0);
        pair_close(&pair);
    }
}

TEST(times_of_half_closing)
{
    blip_connection_options *client = blip_connection_options_new();
    blip_listener_options *server = blip_listener_options_new();
    static const int64_t good[] = {-1, 0, 1, INT64_MAX}, bad[] = {-2, INT64_MIN};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(blip_connection_options_set_half_close(client, good[i]));
        CHECK_OK(blip_listener_options_set_half_close(server, good[i]));
        CHECK_OK(blip_connection_options_set_bye_timeout(client, good[i]));
        CHECK_OK(blip_listener_options_set_bye_timeout(server, good[i]));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(blip_connection_options_set_half_close(client, bad[i]), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_options_set_half_close(server, bad[i]), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_options_set_bye_timeout(client, bad[i]), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_options_set_bye_timeout(server, bad[i]), BLIP_ERROR_ARGUMENT);
    }
    blip_connection_options_release(client);
    blip_listener_options_release(server);
}
