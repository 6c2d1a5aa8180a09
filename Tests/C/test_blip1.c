/* BLIP 1 on the bare byte stream, beside WebSockets on one port; and "Bye", of BLIP 1 and 2. */

#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static blip_listener_options *listener_options(bool websocket)
{
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_set_blip1(options, true));
    REQUIRE_OK(blip_listener_options_set_websocket(options, websocket));
    return options;
}

static void open_blip1(struct pair *pair)
{
    struct pair_options options = {.listener = listener_options(false)};
    pair_open(pair, &options);
}

/* ---- a peer of plain sockets ---- */

static int dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(descriptor >= 0);
    REQUIRE_INT(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}

static uint16_t port_of(struct pair *pair)
{
    uint16_t port = 0;
    REQUIRE_OK(blip_listener_port(pair->listener, &port));
    return port;
}

static void put_frame(int descriptor, uint32_t number, uint16_t flags, const void *payload, size_t size)
{
    unsigned char frame[512] = {0x9B, 0x34, 0xF2, 0x06};
    uint32_t wire_number = htonl(number);
    uint16_t wire_flags = htons(flags), wire_size = htons((uint16_t)(size + 12));
    REQUIRE(size <= sizeof frame - 12);
    memcpy(frame + 4, &wire_number, 4);
    memcpy(frame + 8, &wire_flags, 2);
    memcpy(frame + 10, &wire_size, 2);
    if (size > 0)
        memcpy(frame + 12, payload, size);
    REQUIRE_INT(send(descriptor, frame, size + 12, MSG_NOSIGNAL), (ssize_t)size + 12);
}

/* Reads up to `size` bytes; fewer at the end of the stream. */
static size_t take(int descriptor, void *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        struct pollfd waits = {.fd = descriptor, .events = POLLIN};
        REQUIRE_INT(poll(&waits, 1, SOON), 1);
        ssize_t count = recv(descriptor, (char *)buffer + done, size - done, 0);
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    return done;
}

/* One frame: its payload's size, or -1 at the end of the stream. */
static int take_frame(int descriptor, uint32_t *number, uint16_t *flags, unsigned char *payload, size_t capacity)
{
    unsigned char header[12];
    size_t got = take(descriptor, header, sizeof header);
    if (got == 0)
        return -1;
    REQUIRE_INT(got, 12);
    CHECK(memcmp(header, "\x9B\x34\xF2\x06", 4) == 0);
    *number = (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 | header[7];
    *flags = (uint16_t)(header[8] << 8 | header[9]);
    int size = (header[10] << 8 | header[11]) - 12;
    REQUIRE(size >= 0 && (size_t)size <= capacity);
    REQUIRE_INT(take(descriptor, payload, (size_t)size), size);
    return size;
}

static const char bye[] = "\0\6\2\0Bye"; /* with its NUL: length, properties, abbreviated */
static const char echo_request[] = "\0\7\2\0echo\0hello"; /* the body's NUL is not sent */

/* ---- messages ---- */

TEST(messages_go_over_blip1)
{
    struct pair pair;
    open_blip1(&pair);
    int32_t version = 0;
    blip_slice text;
    bool incoming = true;
    CHECK(strncmp(pair.url, "blip://127.0.0.1:", 17) == 0);
    CHECK_OK(blip_connection_subprotocol(pair.client, &text));
    CHECK_TEXT(text, "BLIP_1");
    CHECK_OK(blip_connection_protocol_version(pair.client, &version));
    CHECK_INT(version, 1);
    CHECK_OK(blip_connection_subprotocol(pair.accepted, &text));
    CHECK_TEXT(text, "BLIP_1");
    CHECK_OK(blip_connection_is_incoming(pair.accepted, &incoming));
    CHECK(incoming);
    CHECK_STATUS(blip_connection_request_path(pair.accepted, &text), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_ping(pair.client, 1000, NULL, NULL, NULL), BLIP_ERROR_UNSUPPORTED);

    expect_echo(pair.client, "hello");
    expect_echo(pair.client, "");
    struct outcome outcome;
    REQUIRE_OK(send_request(pair.client, "error", "", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_INT(outcome.type, BLIP_MESSAGE_ERROR);
    CHECK(strcmp(outcome.error_domain, "TestDomain") == 0);
    CHECK_INT(outcome.error_code, -7);
    REQUIRE_OK(send_request(pair.client, "nobody", "", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_INT(outcome.error_code, 404);
    REQUIRE_OK(send_request(pair.client, "empty", "", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_INT(outcome.size, 0);
    pair_close(&pair);
}

static void big_body(struct pair *pair, size_t size, bool compressed, bool urgent)
{
    char *body = malloc(size);
    struct outcome outcome;
    REQUIRE(body != NULL);
    fill_pattern(body, size, 0, 3);
    blip_message *request = make_request("echo", "");
    REQUIRE_OK(blip_message_set_body(request, bytes_slice(body, size)));
    REQUIRE_OK(blip_message_set_compressed(request, compressed));
    REQUIRE_OK(blip_message_set_urgent(request, urgent));
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(pair->client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.size, size);
    CHECK_INT(outcome.checksum, checksum(0, body, size));
    free(body);
}

TEST_SECONDS(large_bodies_go_over_blip1, 60)
{
    struct pair pair;
    open_blip1(&pair);
    for (int i = 0; i < 4; i++) {
        big_body(&pair, 3 << 20, i & 1, i & 2);
        big_body(&pair, 16384 - 12 - 9, i & 1, i & 2);
        big_body(&pair, 1, i & 1, i & 2);
    }
    pair_close(&pair);
}

TEST(one_port_answers_all_versions)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    pair_open(&pair, &options);
    const char *wanted[] = {"BLIP_3", "BLIP", "BLIP_1"};
    for (int i = 0; i < 3; i++) {
        char url[64];
        blip_connection *client = NULL;
        blip_connection_options *client_options = blip_connection_options_new();
        blip_slice protocol;
        if (i < 2)
            REQUIRE_OK(blip_connection_options_add_subprotocol(client_options, S(wanted[i])));
        snprintf(url, sizeof url, "%s://127.0.0.1:%u", i < 2 ? "ws" : "blip", port_of(&pair));
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), client_options, &client));
        blip_connection_options_release(client_options);
        REQUIRE_OK(blip_connection_wait_open(client, SOON));
        CHECK_OK(blip_connection_subprotocol(client, &protocol));
        CHECK_TEXT(protocol, wanted[i]);
        expect_echo(client, "hello");
        REQUIRE_REACHES(&pair.server_opened, i + 1);
        CHECK_OK(blip_connection_subprotocol(pair.accepted, &protocol));
        CHECK_TEXT(protocol, wanted[i]);
        blip_connection_close(client, 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(client, SOON));
        blip_connection_release(client);
    }
    pair_close(&pair);
}

TEST(blip1_is_off_unless_asked_for)
{
    struct pair pair;
    struct pair_options options = {.no_client = true};
    pair_open(&pair, &options);
    int peer = dial(port_of(&pair));
    uint32_t number;
    uint16_t flags;
    unsigned char payload[64];
    put_frame(peer, 1, 0, echo_request, sizeof echo_request - 1);
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), -1);
    close(peer);
    REQUIRE_REACHES(&pair.server_closed, 1);
    CHECK_INT(counter_get(&pair.server_opened), 0);
    pair_close(&pair);
}

static void keep_error(blip_connection *connection, blip_status status, void *context)
{
    blip_error *error = NULL;
    blip_slice text;
    char *kept = context;
    if (CHECK(status < 0) && CHECK_OK(blip_connection_error(connection, &error)) &&
        CHECK_OK(blip_error_message(error, &text)))
        snprintf(kept, 200, "%.*s", (int)text.size, (const char *)text.data);
}

TEST(blip_1_0_is_turned_away)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    static char error[200];
    pair_open(&pair, &options);
    REQUIRE_OK(blip_listener_set_close_callback(pair.listener, keep_error, error, NULL));
    int peer = dial(port_of(&pair));
    REQUIRE_INT(send(peer, "\x9B\x34\xF2\x05\0\0\0\1\0\0\0\x0E\0\0", 14, MSG_NOSIGNAL), 14);
    char byte;
    CHECK_INT(take(peer, &byte, 1), 0);
    close(peer);
    pair_close(&pair);
    CHECK(strstr(error, "BLIP 1.0") != NULL);
}

TEST(a_listener_that_speaks_nothing_does_not_start)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    blip_listener *listener = NULL;
    REQUIRE_OK(blip_listener_options_set_websocket(options, false));
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    CHECK_STATUS(blip_listener_start(listener, S("127.0.0.1"), 0), BLIP_ERROR_ARGUMENT);
    blip_listener_release(listener);
    drop_runtime(runtime);
}

TEST(a_client_that_says_nothing_speaks_blip1)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    REQUIRE_OK(blip_listener_options_set_handshake_timeout(options.listener, 200));
    pair_open(&pair, &options);
    int peer = dial(port_of(&pair));
    REQUIRE_REACHES(&pair.server_opened, 1);
    /* The server may begin. */
    struct outcome outcome;
    REQUIRE_OK(send_request(pair.accepted, "hi", "", &outcome));
    uint32_t number;
    uint16_t flags;
    unsigned char payload[64];
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), 7);
    CHECK_INT(number, 1);
    CHECK(memcmp(payload, "\0\5\2\0hi\0", 7) == 0);
    put_frame(peer, 1, 1, "\0\0pong", 6);
    REQUIRE(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "pong") == 0);
    close(peer);
    pair_close(&pair);
}

TEST(frames_come_byte_by_byte)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    pair_open(&pair, &options);
    int peer = dial(port_of(&pair));
    unsigned char frame[12 + sizeof echo_request - 1] = {0x9B, 0x34, 0xF2, 0x06, 0, 0, 0, 1, 0, 0, 0, sizeof frame};
    memcpy(frame + 12, echo_request, sizeof echo_request - 1);
    for (size_t i = 0; i < sizeof frame; i++) {
        REQUIRE_INT(send(peer, frame + i, 1, MSG_NOSIGNAL), 1);
        sleep_ms(2);
    }
    uint32_t number;
    uint16_t flags;
    unsigned char payload[64];
    int size = take_frame(peer, &number, &flags, payload, sizeof payload);
    CHECK_INT(number, 1);
    CHECK_INT(flags, 1);
    CHECK(size >= 5 && memcmp(payload + size - 5, "hello", 5) == 0);
    close(peer);
    pair_close(&pair);
}

/* ---- ends ---- */

static void keep_status(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    atomic_store((atomic_int *)context, status);
}

TEST(an_end_without_bye_is_a_lost_connection)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    static atomic_int status = 1;
    pair_open(&pair, &options);
    REQUIRE_OK(blip_listener_set_close_callback(pair.listener, keep_status, &status, NULL));
    int peer = dial(port_of(&pair));
    put_frame(peer, 1, 0x40, echo_request, sizeof echo_request - 1);
    REQUIRE_REACHES(&pair.server_opened, 1);
    close(peer);
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    CHECK_STATUS(atomic_load(&status), BLIP_ERROR_CONNECTION_LOST);
    counter_add(&pair.server_closed, 1);
    pair_close(&pair);
}

TEST(closing_says_bye_and_ends_the_stream)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(false), .no_client = true};
    pair_open(&pair, &options);
    int peer = dial(port_of(&pair));
    REQUIRE_REACHES(&pair.server_opened, 1);
    CHECK_OK(blip_connection_close(pair.accepted, 1000, S("")));
    uint32_t number;
    uint16_t flags;
    unsigned char payload[64];
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), (int)sizeof bye);
    CHECK_INT(number, 1);
    CHECK_INT(flags, 0x140); /* MSG, Meta, NoReply */
    CHECK(memcmp(payload, bye, sizeof bye) == 0);
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), -1);
    close(peer);
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    pair_close(&pair);
}

TEST(either_side_closes_in_order)
{
    for (int server = 0; server < 2; server++) {
        struct pair pair;
        static atomic_int status;
        atomic_store(&status, 1);
        open_blip1(&pair);
        expect_echo(pair.client, "x");
        blip_connection *closes = server ? pair.accepted : pair.client, *waits = server ? pair.client : pair.accepted;
        if (!server)
            REQUIRE_OK(blip_connection_set_close_callback(pair.accepted, keep_status, &status, NULL));
        CHECK_OK(blip_connection_close(closes, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(waits, SOON));
        CHECK_OK(blip_connection_wait_closed(closes, SOON));
        CHECK_STATUS(server ? pair.client_status : atomic_load(&status), BLIP_OK);
        if (!server)
            counter_add(&pair.server_closed, 1);
        pair_close(&pair);
    }
}

TEST(graceful_closing_finishes_what_is_under_way)
{
    struct pair pair;
    struct outcome outcome;
    open_blip1(&pair);
    REQUIRE_OK(send_request(pair.client, "slow", "body", &outcome));
    CHECK_OK(blip_connection_close_gracefully(pair.client, -1));
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, "body") == 0);
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_STATUS(pair.client_status, BLIP_OK);
    pair_close(&pair);
}

/* ---- Bye ---- */

struct bye_outcome {
    struct counter done;
    blip_status status;
    bool agreed;
};

static void bye_answered(blip_connection *connection, blip_status status, bool agreed, void *context)
{
    struct bye_outcome *outcome = context;
    int32_t state = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    if (agreed)
        CHECK_AT_LEAST(state, BLIP_STATE_CLOSING);
    outcome->status = status;
    outcome->agreed = agreed;
    counter_add(&outcome->done, 1);
}

static bool decide(blip_connection *connection, void *context)
{
    (void)connection;
    return *(bool *)context;
}

/* Of version 1 or 2. */
static void open_pair_of(struct pair *pair, int version)
{
    if (version == 1) {
        open_blip1(pair);
        return;
    }
    struct pair_options options = {.client = blip_connection_options_new()};
    REQUIRE_OK(blip_connection_options_add_subprotocol(options.client, S(version == 2 ? "BLIP" : "BLIP_3")));
    pair_open(pair, &options);
}

static void say_bye(blip_connection *connection, struct bye_outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    counter_init(&outcome->done);
    REQUIRE_OK(blip_connection_say_bye(connection, bye_answered, outcome, NULL));
}

TEST(a_bye_that_is_agreed_to_closes)
{
    for (int version = 1; version <= 2; version++) {
        struct pair pair;
        struct bye_outcome outcome;
        struct outcome slow;
        static bool accepts = true;
        open_pair_of(&pair, version);
        REQUIRE_OK(blip_connection_set_close_request_callback(pair.accepted, decide, &accepts, NULL));
        REQUIRE_OK(send_request(pair.client, "slow", "body", &slow));
        say_bye(pair.client, &outcome);
        REQUIRE_REACHES(&outcome.done, 1);
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK(outcome.agreed);
        REQUIRE(outcome_wait(&slow));
        CHECK_STATUS(slow.status, BLIP_OK);
        CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
        CHECK_STATUS(pair.client_status, BLIP_OK);
        REQUIRE_REACHES(&pair.server_closed, 1);
        pair_close(&pair);
    }
}

TEST(a_bye_that_is_refused_changes_nothing)
{
    for (int version = 1; version <= 2; version++) {
        struct pair pair;
        struct bye_outcome outcome;
        static bool accepts = false;
        int32_t state;
        open_pair_of(&pair, version);
        REQUIRE_OK(blip_connection_set_close_request_callback(pair.accepted, decide, &accepts, NULL));
        for (int i = 0; i < 2; i++) {
            say_bye(pair.client, &outcome);
            REQUIRE_REACHES(&outcome.done, 1);
            CHECK_STATUS(outcome.status, BLIP_OK);
            CHECK(!outcome.agreed);
            CHECK_OK(blip_connection_state(pair.client, &state));
            CHECK_INT(state, BLIP_STATE_OPEN);
            expect_echo(pair.client, "still here");
        }
        pair_close(&pair);
    }
}

static bool is_saying, was_answered_inside;

static void answered_where(blip_connection *connection, blip_status status, bool agrees, void *context)
{
    (void)connection, (void)status, (void)agrees;
    was_answered_inside = was_answered_inside || is_saying;
    counter_add(context, 1);
}

static void say_bye_twice(blip_connection *connection, void *context)
{
    is_saying = true;
    CHECK_OK(blip_connection_say_bye(connection, answered_where, context, NULL));
    CHECK_OK(blip_connection_say_bye(connection, answered_where, context, NULL));
    is_saying = false;
}

TEST(an_answer_to_bye_is_not_told_inside_the_call)
{
    struct pair pair;
    struct counter answers = COUNTER;
    open_blip1(&pair);
    REQUIRE_OK(blip_connection_perform(pair.client, say_bye_twice, &answers, NULL));
    REQUIRE_REACHES(&answers, 2);
    CHECK(!was_answered_inside);
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    REQUIRE_REACHES(&pair.server_closed, 1);
    pair_close(&pair);
}

/* The next event of a kind; the others are let go of. */
static blip_event *next_of(blip_queue *queue, int32_t wanted)
{
    for (int64_t end = now_ms() + SOON; now_ms() < end;) {
        blip_event *event = NULL;
        int32_t kind = 0;
        size_t count = 0;
        if (blip_queue_next(queue, &event, 1, 20, &count) != BLIP_OK || count == 0)
            continue;
        CHECK_OK(blip_event_kind(event, &kind));
        if (kind == wanted)
            return event;
        blip_event_release(event);
    }
    return NULL;
}

/* An event that is let go of late says nothing about the next question. */
TEST(each_bye_is_decided_by_its_own_event)
{
    struct pair pair;
    struct bye_outcome first, second;
    blip_queue *queue = NULL;
    blip_connection *client = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    struct pair_options options = {.server_queue = queue, .no_client = true};
    pair_open(&pair, &options);
    REQUIRE_OK(blip_listener_set_close_request_callback(pair.listener, NULL, NULL, NULL));
    blip_connection_options *own = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_add_subprotocol(own, S("BLIP")));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), own, &client));
    blip_connection_options_release(own);
    REQUIRE_OK(blip_connection_connect(client));
    blip_event *event = next_of(queue, BLIP_EVENT_OPEN);
    REQUIRE(event != NULL);
    blip_event_release(event);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    say_bye(client, &first);
    blip_event *question = next_of(queue, BLIP_EVENT_CLOSE_REQUEST);
    REQUIRE(question != NULL);
    CHECK_OK(blip_connection_answer_close_request(blip_event_connection(question), false));
    REQUIRE_REACHES(&first.done, 1);
    CHECK(!first.agreed);
    say_bye(client, &second);
    blip_event *other = next_of(queue, BLIP_EVENT_CLOSE_REQUEST);
    REQUIRE(other != NULL);
    blip_event_release(question);
    sleep_ms(50);
    CHECK_INT(counter_get(&second.done), 0);
    CHECK_OK(blip_connection_answer_close_request(blip_event_connection(other), false));
    REQUIRE_REACHES(&second.done, 1);
    CHECK_STATUS(second.status, BLIP_OK);
    CHECK(!second.agreed);
    blip_event_release(other);
    CHECK_OK(blip_connection_close(client, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    CHECK_OK(blip_listener_stop(pair.listener, false, 0));
    event = next_of(queue, BLIP_EVENT_LISTENER_STOPPED);
    if (event != NULL)
        blip_event_release(event);
    blip_listener_release(pair.listener);
    drop_runtime(pair.server_runtime);
    drop_runtime(pair.client_runtime);
    blip_queue_release(queue);
}

TEST(byes_cross)
{
    for (int version = 1; version <= 2; version++) {
        struct pair pair;
        struct bye_outcome ours, theirs;
        open_pair_of(&pair, version);
        say_bye(pair.client, &ours);
        memset(&theirs, 0, sizeof theirs);
        counter_init(&theirs.done);
        /* It may have heard ours already. */
        blip_status status = blip_connection_say_bye(pair.accepted, bye_answered, &theirs, NULL);
        CHECK(status == BLIP_OK || status == BLIP_ERROR_CLOSED);
        REQUIRE_REACHES(&ours.done, 1);
        CHECK_STATUS(ours.status, BLIP_OK);
        CHECK(ours.agreed);
        CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
        REQUIRE_REACHES(&pair.server_closed, 1);
        if (status == BLIP_OK)
            REQUIRE_REACHES(&theirs.done, 1);
        pair_close(&pair);
    }
}

/* A peer that takes messages and says nothing, not even to "Bye", nor an end. */
static int silent_peer(struct pair *pair, int64_t bye_timeout)
{
    struct pair_options options = {.listener = listener_options(false), .no_client = true};
    REQUIRE_OK(blip_listener_options_set_close_timeout(options.listener, 100));
    if (bye_timeout >= 0)
        REQUIRE_OK(blip_listener_options_set_bye_timeout(options.listener, bye_timeout));
    pair_open(pair, &options);
    int peer = dial(port_of(pair));
    REQUIRE_REACHES(&pair->server_opened, 1);
    return peer;
}

TEST(a_bye_that_is_never_answered_ends)
{
    for (int graceful = 0; graceful < 2; graceful++) {
        struct pair pair;
        struct bye_outcome outcome;
        int peer = silent_peer(&pair, 1000);
        int64_t start = now_ms();
        if (graceful)
            CHECK_OK(blip_connection_close_gracefully(pair.accepted, -1));
        else
            say_bye(pair.accepted, &outcome);
        CHECK_STATUS(blip_connection_wait_closed(pair.accepted, 800), BLIP_ERROR_TIMEOUT);
        CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
        CHECK_AT_LEAST(now_ms() - start, 990);
        if (!graceful) {
            REQUIRE_REACHES(&outcome.done, 1);
            CHECK(!outcome.agreed);
        }
        close(peer);
        pair_close(&pair);
    }
}

TEST(a_peer_that_said_bye_and_does_not_end_is_left)
{
    struct pair pair;
    unsigned char payload[64];
    uint32_t number;
    uint16_t flags;
    int peer = silent_peer(&pair, 1000);
    int64_t start = now_ms();
    put_frame(peer, 1, 0x100, bye, sizeof bye);
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), 2);
    CHECK_INT(flags, 1);
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    CHECK_AT_LEAST(now_ms() - start, 990);
    close(peer);
    pair_close(&pair);
}

/* A minute. That of the default is told by how long it is not over; the number itself by a test of the option. */
TEST(by_default_a_bye_waits_for_longer)
{
    struct pair pair;
    struct bye_outcome outcome;
    int peer = silent_peer(&pair, -1);
    say_bye(pair.accepted, &outcome);
    CHECK_STATUS(blip_connection_wait_closed(pair.accepted, 3000), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_connection_close(pair.accepted, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    close(peer);
    pair_close(&pair);
}

/* Peers of BLIP 1.0, which had no "Bye", end their direction of the stream. */
TEST(a_peer_that_ends_its_direction_is_answered)
{
    for (int cut = 0; cut < 2; cut++) {
        struct pair pair;
        struct pair_options options = {.listener = listener_options(true), .no_client = true};
        uint32_t number;
        uint16_t flags;
        unsigned char payload[64];
        blip_error *error = NULL;
        REQUIRE_OK(blip_listener_options_set_half_close(options.listener, -1));
        pair_open(&pair, &options);
        int peer = dial(port_of(&pair));
        put_frame(peer, 1, 0, echo_request, sizeof echo_request - 1);
        if (cut)
            REQUIRE_INT(send(peer, "\x9B\x34\xF2\x06\0\0\0", 7, MSG_NOSIGNAL), 7);
        REQUIRE_INT(shutdown(peer, SHUT_WR), 0);
        int size = take_frame(peer, &number, &flags, payload, sizeof payload);
        CHECK_INT(number, 1);
        CHECK_INT(flags, 1);
        CHECK(size >= 5 && memcmp(payload + size - 5, "hello", 5) == 0);
        CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), (int)sizeof bye);
        CHECK_INT(flags, 0x140); /* MSG, Meta, NoReply */
        CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), -1);
        REQUIRE_REACHES(&pair.server_opened, 1);
        CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
        CHECK_STATUS(blip_connection_error(pair.accepted, &error), cut ? BLIP_OK : BLIP_ERROR_NOT_FOUND);
        close(peer);
        pair_close(&pair);
    }
}

static const char slow_request[] = "\0\7\2\0slow\0x"; /* the body's NUL is not sent */

TEST(a_peer_that_has_gone_is_noticed_by_the_answer)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    blip_error *error = NULL;
    REQUIRE_OK(blip_listener_options_set_half_close(options.listener, -1));
    pair_open(&pair, &options);
    int peer = dial(port_of(&pair));
    put_frame(peer, 1, 0, slow_request, sizeof slow_request - 1);
    close(peer);
    REQUIRE_REACHES(&pair.server_opened, 1);
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    CHECK_OK(blip_connection_error(pair.accepted, &error));
    pair_close(&pair);
}

TEST(blip3_has_no_bye)
{
    struct pair pair;
    open_pair_of(&pair, 3);
    CHECK_STATUS(blip_connection_say_bye(pair.client, bye_answered, NULL, NULL), BLIP_ERROR_UNSUPPORTED);
    pair_close(&pair);
}

TEST(the_bye_of_a_plain_peer)
{
    struct pair pair;
    struct pair_options options = {.listener = listener_options(true), .no_client = true};
    static atomic_int status = 1;
    uint32_t number;
    uint16_t flags;
    unsigned char payload[64];
    pair_open(&pair, &options);
    REQUIRE_OK(blip_listener_set_close_callback(pair.listener, keep_status, &status, NULL));
    int peer = dial(port_of(&pair));
    put_frame(peer, 1, 0x100, "\0\x08\2\0Hello\0", 10);
    /* Other messages of the protocol itself are not known. */
    CHECK_AT_LEAST(take_frame(peer, &number, &flags, payload, sizeof payload), 2);
    CHECK_INT(flags, 2);
    put_frame(peer, 2, 0x100, bye, sizeof bye);
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), 2);
    CHECK_INT(number, 2);
    CHECK_INT(flags, 1);
    CHECK(memcmp(payload, "\0\0", 2) == 0);
    /* It starts nothing any more, still answers, and waits for the end. */
    struct outcome outcome;
    CHECK_STATUS(send_request(pair.accepted, "late", "", &outcome), BLIP_ERROR_CLOSED);
    put_frame(peer, 3, 0, echo_request, sizeof echo_request - 1);
    CHECK_AT_LEAST(take_frame(peer, &number, &flags, payload, sizeof payload), 7);
    CHECK_INT(number, 3);
    shutdown(peer, SHUT_WR);
    CHECK_INT(take_frame(peer, &number, &flags, payload, sizeof payload), -1);
    close(peer);
    CHECK_OK(blip_connection_wait_closed(pair.accepted, SOON));
    CHECK_STATUS(atomic_load(&status), BLIP_OK);
    counter_add(&pair.server_closed, 1);
    pair_close(&pair);
}

TEST(an_event_asks_whether_the_peer_may_close)
{
    for (int accepts = 0; accepts < 2; accepts++) {
        struct pair pair;
        blip_queue *queue = NULL;
        blip_event *event = NULL;
        struct bye_outcome outcome;
        size_t count = 0;
        int32_t kind = 0;
        REQUIRE_OK(blip_queue_new(64, &queue));
        struct pair_options options = {.server_queue = queue, .listener = listener_options(false), .no_client = true};
        pair_open(&pair, &options);
        REQUIRE_OK(blip_listener_set_open_callback(pair.listener, NULL, NULL, NULL));
        REQUIRE_OK(blip_listener_set_close_request_callback(pair.listener, NULL, NULL, NULL));
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &pair.client));
        REQUIRE_OK(blip_connection_set_close_callback(pair.client, NULL, NULL, NULL));
        REQUIRE_OK(blip_connection_wait_open(pair.client, SOON));
        say_bye(pair.client, &outcome);
        do {
            blip_event_release(event);
            REQUIRE_OK(blip_queue_next(queue, &event, 1, SOON, &count));
            REQUIRE_INT(count, 1);
            REQUIRE_OK(blip_event_kind(event, &kind));
        } while (kind != BLIP_EVENT_CLOSE_REQUEST);
        CHECK_INT(counter_get(&outcome.done), 0);
        CHECK_OK(blip_connection_answer_close_request(blip_event_connection(event), accepts));
        blip_event_release(event);
        REQUIRE_REACHES(&outcome.done, 1);
        CHECK_INT(outcome.agreed, accepts);
        CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
        blip_connection_release(pair.client);
        pair.client = NULL;
        pair.server_closed = pair.server_opened;
        blip_queue_release(queue);
        pair_close(&pair);
    }
}
