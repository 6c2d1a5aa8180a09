/* Connections without a network: transports of the program, pairs, and connections to a listener in memory. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static blip_status echo_handler(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *response = NULL;
    blip_slice body;
    uint32_t flags = 0;
    (void)connection, (void)context;
    REQUIRE_OK(blip_response_new(request, &response));
    CHECK_OK(blip_message_body(request, &body));
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_OK(blip_message_set_body(response, body));
    CHECK_OK(blip_message_set_compressed(response, flags & BLIP_FLAG_COMPRESSED));
    CHECK_OK(blip_message_respond(request, response));
    blip_message_release(response);
    return BLIP_OK;
}

static void big_echo(blip_connection *connection, size_t size, bool compressed)
{
    char *body = malloc(size);
    struct outcome outcome;
    REQUIRE(body != NULL);
    fill_pattern(body, size, 0, 5);
    blip_message *request = make_request("echo", "");
    REQUIRE_OK(blip_message_set_body(request, bytes_slice(body, size)));
    REQUIRE_OK(blip_message_set_compressed(request, compressed));
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(connection, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.size, size);
    CHECK_INT(outcome.checksum, checksum(0, body, size));
    free(body);
}

static void keep_status(blip_connection *connection, blip_status status, void *context)
{
    (void)connection;
    atomic_store((atomic_int *)context, status);
}

static const char *protocols[] = {"BLIP_3", "BLIP_3+App", "BLIP"};

static blip_connection_options *options_of(const char *protocol)
{
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_add_subprotocol(options, S(protocol)));
    return options;
}

/* ---- pairs ---- */

struct two {
    blip_runtime *first, *second;
    blip_connection *a, *b;
    atomic_int a_status, b_status;
};

enum { UNTOLD = 12345 };

static void open_two(struct two *two, bool same_loop, blip_connection_options *options)
{
    memset(two, 0, sizeof *two);
    atomic_store(&two->a_status, UNTOLD);
    atomic_store(&two->b_status, UNTOLD);
    two->first = make_runtime(1);
    two->second = same_loop ? blip_runtime_retain(two->first) : make_runtime(1);
    REQUIRE_OK(blip_connection_pair(two->first, two->second, options, &two->a, &two->b));
    blip_connection_options_release(options);
    blip_connection *both[] = {two->a, two->b};
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(blip_connection_set_handler(both[i], S("echo"), 0, echo_handler, NULL, NULL));
        REQUIRE_OK(blip_connection_set_close_callback(
            both[i], keep_status, i == 0 ? &two->a_status : &two->b_status, NULL));
    }
}

static void close_two(struct two *two)
{
    CHECK_OK(blip_connection_close(two->a, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(two->a, SOON));
    CHECK_OK(blip_connection_wait_closed(two->b, SOON));
    CHECK(atomic_load(&two->a_status) != UNTOLD);
    CHECK(atomic_load(&two->b_status) != UNTOLD);
    blip_connection_release(two->a);
    blip_connection_release(two->b);
    CHECK_OK(blip_runtime_stop(two->first, SOON));
    CHECK_OK(blip_runtime_stop(two->second, SOON));
    blip_runtime_release(two->first);
    blip_runtime_release(two->second);
}

TEST(a_pair_is_open_and_answers)
{
    for (int same = 0; same < 2; same++) {
        for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
            struct two two;
            int32_t state = -1;
            blip_slice text;
            bool flag = true;
            open_two(&two, same, options_of(protocols[i]));
            CHECK_OK(blip_connection_state(two.b, &state));
            CHECK_INT(state, BLIP_STATE_OPEN);
            CHECK_OK(blip_connection_wait_open(two.a, 0));
            CHECK_OK(blip_connection_subprotocol(two.b, &text));
            CHECK_TEXT(text, protocols[i]);
            CHECK_OK(blip_connection_is_incoming(two.b, &flag));
            CHECK(!flag);
            CHECK_STATUS(blip_connection_url(two.a, &text), BLIP_ERROR_NOT_FOUND);
            CHECK_STATUS(blip_connection_remote_address(two.a, &text), BLIP_ERROR_NOT_FOUND);
            CHECK_STATUS(blip_connection_ping(two.a, 1000, NULL, NULL, NULL), BLIP_ERROR_UNSUPPORTED);
            CHECK_STATUS(blip_connection_connect(two.a), BLIP_ERROR_STATE);
            expect_echo(two.a, "from a");
            expect_echo(two.b, "from b");
            expect_echo(two.a, "");
            close_two(&two);
            CHECK_STATUS(atomic_load(&two.a_status), BLIP_OK);
            CHECK_STATUS(atomic_load(&two.b_status), BLIP_OK);
        }
    }
}

TEST_SECONDS(large_bodies_go_through_pairs, 60)
{
    for (int same = 0; same < 2; same++) {
        struct two two;
        open_two(&two, same, NULL);
        for (int compressed = 0; compressed < 2; compressed++) {
            big_echo(two.a, 5 << 20, compressed);
            big_echo(two.b, 200000, compressed);
        }
        close_two(&two);
    }
}

TEST(many_requests_at_once_go_through_pairs)
{
    enum { MANY = 2000 };
    static struct outcome outcomes[MANY];
    for (int same = 0; same < 2; same++) {
        struct two two;
        open_two(&two, same, NULL);
        for (int i = 0; i < MANY; i++)
            REQUIRE_OK(send_request(i & 1 ? two.a : two.b, "echo", "some body", &outcomes[i]));
        for (int i = 0; i < MANY; i++) {
            REQUIRE(outcome_wait(&outcomes[i]));
            CHECK_STATUS(outcomes[i].status, BLIP_OK);
        }
        close_two(&two);
    }
}

/* More pairs than a loop keeps sessions of: what they have counted goes on. */
TEST_SECONDS(sessions_of_pairs_rest_and_go_on, 120)
{
    enum { MANY = 1500, ROUNDS = 3 };
    static blip_connection *a[MANY], *b[MANY];
    static struct outcome outcomes[MANY];
    blip_runtime *runtime = make_runtime(1);
    for (int i = 0; i < MANY; i++) {
        REQUIRE_OK(blip_connection_pair(runtime, runtime, NULL, &a[i], &b[i]));
        REQUIRE_OK(blip_connection_set_handler(b[i], S("echo"), 0, echo_handler, NULL, NULL));
    }
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < MANY; i++)
            REQUIRE_OK(send_request(a[i], "echo", "again", &outcomes[i]));
        for (int i = 0; i < MANY; i++) {
            REQUIRE(outcome_wait(&outcomes[i]));
            CHECK_STATUS(outcomes[i].status, BLIP_OK);
            CHECK(strcmp(outcomes[i].text, "again") == 0);
        }
    }
    for (int i = 0; i < MANY; i++) {
        blip_counters *counters = NULL;
        uint64_t figure = 0;
        REQUIRE_OK(blip_connection_counters(a[i], &counters));
        CHECK_OK(blip_counters_value(counters, BLIP_COUNTER_MESSAGES_SENT, &figure));
        CHECK_INT(figure, ROUNDS);
        CHECK_OK(blip_counters_value(counters, BLIP_COUNTER_BYTES_SENT, &figure));
        CHECK_INT(figure % ROUNDS, 0);
        CHECK(figure > 0);
        blip_counters_release(counters);
        blip_connection_close(a[i], 1000, S(""));
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(blip_connection_wait_closed(b[i], SOON));
        blip_connection_release(a[i]);
        blip_connection_release(b[i]);
    }
    drop_runtime(runtime);
}

TEST(the_end_of_a_pair_has_its_code)
{
    for (int same = 0; same < 2; same++) {
        struct two two;
        struct outcome outcome;
        int32_t code = 0;
        open_two(&two, same, NULL);
        REQUIRE_OK(send_request(two.a, "nobody", "", &outcome));
        REQUIRE(outcome_wait(&outcome));
        CHECK_INT(outcome.error_code, 404);
        CHECK_OK(blip_connection_close(two.b, 4321, S("why not")));
        CHECK_OK(blip_connection_wait_closed(two.a, SOON));
        CHECK_OK(blip_connection_close_code(two.a, &code));
        CHECK_INT(code, 4321);
        CHECK_STATUS(atomic_load(&two.a_status), BLIP_ERROR_PEER_CLOSED);
        close_two(&two);
        CHECK_STATUS(atomic_load(&two.b_status), BLIP_OK);
    }
}

TEST(releasing_one_end_closes_the_other)
{
    struct two two;
    open_two(&two, false, NULL);
    blip_connection_release(two.a);
    CHECK_OK(blip_connection_wait_closed(two.b, SOON));
    CHECK_STATUS(atomic_load(&two.b_status), BLIP_OK);
    two.a = NULL;
    blip_connection_release(two.b);
    drop_runtime(two.first);
    drop_runtime(two.second);
}

TEST(a_runtime_that_stops_ends_the_other_side)
{
    struct two two;
    struct outcome outcome;
    open_two(&two, false, NULL);
    expect_echo(two.a, "x");
    CHECK_OK(blip_runtime_stop(two.second, SOON));
    CHECK_OK(blip_connection_wait_closed(two.a, SOON));
    CHECK_STATUS(send_request(two.a, "echo", "", &outcome), BLIP_ERROR_CLOSED);
    blip_connection_release(two.a);
    blip_connection_release(two.b);
    drop_runtime(two.first);
    blip_runtime_release(two.second);
}

TEST(graceful_closing_of_a_pair)
{
    for (int same = 0; same < 2; same++) {
        struct two two;
        struct outcome outcomes[50];
        open_two(&two, same, NULL);
        for (int i = 0; i < 50; i++)
            REQUIRE_OK(send_request(two.a, "echo", "x", &outcomes[i]));
        CHECK_OK(blip_connection_close_gracefully(two.a, -1));
        for (int i = 0; i < 50; i++) {
            REQUIRE(outcome_wait(&outcomes[i]));
            CHECK_STATUS(outcomes[i].status, BLIP_OK);
        }
        CHECK_OK(blip_connection_wait_closed(two.b, SOON));
        close_two(&two);
    }
}

TEST(a_full_queue_holds_the_other_end_back)
{
    for (int same = 0; same < 2; same++) {
        blip_queue *queue = NULL;
        blip_runtime *first = make_runtime(1), *second = NULL;
        blip_runtime_options *runtime_options = blip_runtime_options_new();
        blip_connection *a = NULL, *b = NULL;
        enum { MANY = 500 };
        static struct outcome outcomes[MANY];
        size_t count = 0, total = 0;
        REQUIRE_OK(blip_queue_new(8, &queue));
        if (same) {
            /* The queue is b's alone: a has no events. */
            second = blip_runtime_retain(first);
        } else {
            REQUIRE_OK(blip_runtime_options_set_queue(runtime_options, queue));
            REQUIRE_OK(blip_runtime_new(runtime_options, &second));
        }
        blip_runtime_options_release(runtime_options);
        blip_connection_options *options = NULL;
        if (same) {
            options = blip_connection_options_new();
            REQUIRE_OK(blip_connection_options_set_queue(options, queue));
        }
        REQUIRE_OK(blip_connection_pair(first, second, options, &a, &b));
        blip_connection_options_release(options);
        REQUIRE_OK(blip_connection_set_handler(b, S("echo"), 0, echo_handler, NULL, NULL));
        char *body = calloc(1, 8192);
        for (int i = 0; i < MANY; i++) {
            blip_message *request = make_request("echo", "");
            REQUIRE_OK(blip_message_set_body(request, bytes_slice(body, 8192)));
            outcome_init(&outcomes[i]);
            REQUIRE_OK(blip_connection_send(a, request, outcome_response, &outcomes[i], outcome_release));
            blip_message_release(request);
        }
        free(body);
        sleep_ms(100);
        CHECK_OK(blip_queue_count(queue, &count));
        CHECK_AT_MOST(count, 9);
        for (int64_t end = now_ms() + SOON; now_ms() < end;) {
            blip_status status = blip_queue_dispatch(queue, 100, 50, &count);
            CHECK(status == BLIP_OK || status == BLIP_ERROR_TIMEOUT);
            total += status == BLIP_OK ? count : 0;
            if (counter_get(&outcomes[MANY - 1].done) > 0)
                break;
        }
        CHECK_AT_LEAST(total, MANY);
        for (int i = 0; i < MANY; i++)
            CHECK_INT(counter_get(&outcomes[i].done), 1);
        blip_connection_close(a, 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(a, SOON));
        CHECK_OK(blip_connection_wait_closed(b, SOON));
        blip_connection_release(a);
        blip_connection_release(b);
        drop_runtime(first);
        drop_runtime(second);
        blip_queue_release(queue);
    }
}

TEST(pairs_on_a_loop_of_the_program)
{
    blip_runtime *runtime = make_runtime(0);
    blip_connection *a = NULL, *b = NULL;
    struct outcome outcome;
    uint32_t events;
    REQUIRE_OK(blip_connection_pair(runtime, runtime, NULL, &a, &b));
    REQUIRE_OK(blip_connection_set_handler(b, S("echo"), 0, echo_handler, NULL, NULL));
    REQUIRE_OK(send_request(a, "echo", "x", &outcome));
    for (int i = 0; i < 100 && counter_get(&outcome.done) == 0; i++)
        CHECK_OK(blip_runtime_run_once(runtime, 0, &events));
    CHECK_INT(counter_get(&outcome.done), 1);
    CHECK_STATUS(outcome.status, BLIP_OK);
    blip_connection_release(a);
    blip_connection_release(b);
    drop_runtime(runtime);
}

/* ---- much in few bytes ---- */

enum { MUCH = 8 << 20 };

static blip_status count_much(blip_connection *connection, blip_message *request, void *context)
{
    uint64_t size = 0;
    (void)connection;
    CHECK_OK(blip_message_body_size(request, &size));
    CHECK_INT(size, MUCH);
    counter_add(context, 1);
    return BLIP_OK;
}

/* A request without an answer, whose frames become so much that they are inflated in parts. */
static void send_much(blip_connection *connection)
{
    char *body = calloc(1, MUCH);
    blip_message *request = make_request("much", "");
    REQUIRE(body != NULL);
    REQUIRE_OK(blip_message_set_body(request, bytes_slice(body, MUCH)));
    REQUIRE_OK(blip_message_set_compressed(request, true));
    REQUIRE_OK(blip_message_set_no_reply(request, true));
    REQUIRE_OK(blip_connection_send(connection, request, NULL, NULL, NULL));
    blip_message_release(request);
    free(body);
}

/* What came before the end is received before the end. */
TEST(the_end_waits_for_a_frame_that_is_inflated_in_parts)
{
    const char *all[] = {"BLIP_3", "BLIP"};
    for (int i = 0; i < 4; i++) {
        struct two two;
        struct counter received = COUNTER;
        open_two(&two, i & 1, options_of(all[i / 2]));
        REQUIRE_OK(blip_connection_set_handler(two.b, S("much"), 0, count_much, &received, NULL));
        send_much(two.a);
        CHECK_OK(blip_connection_close_gracefully(two.a, -1));
        CHECK_OK(blip_connection_wait_closed(two.b, SOON));
        CHECK_INT(counter_get(&received), 1);
        CHECK_STATUS(atomic_load(&two.b_status), BLIP_OK);
        close_two(&two);
    }
}

/* ---- to a listener ---- */

static void refuse(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener, (void)context;
    blip_connection_close(connection, 1000, S(""));
}

TEST(a_listener_is_reached_without_a_socket)
{
    struct pair pair;
    struct pair_options options = {.no_client = true};
    pair_open(&pair, &options);
    blip_runtime *runtimes[] = {pair.server_runtime, pair.client_runtime};
    for (int i = 0; i < 2; i++) {
        blip_connection *client = NULL;
        bool incoming = false;
        REQUIRE_OK(blip_listener_connect(pair.listener, runtimes[i], NULL, &client));
        expect_echo(client, "early");
        CHECK_OK(blip_connection_wait_open(client, SOON));
        REQUIRE_REACHES(&pair.server_opened, i + 1);
        CHECK_OK(blip_connection_is_incoming(pair.accepted, &incoming));
        CHECK(incoming);
        big_echo(client, 300000, true);
        CHECK_OK(blip_connection_close(client, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(client, SOON));
        REQUIRE_REACHES(&pair.server_closed, i + 1);
        blip_connection_release(client);
    }
    blip_connection *client = NULL;
    blip_connection_options *other = options_of("BLIP_3+Other");
    CHECK_STATUS(blip_listener_connect(pair.listener, NULL, other, &client), BLIP_ERROR_SUBPROTOCOL);
    blip_connection_options_release(other);
    REQUIRE_OK(blip_listener_set_accept_callback(pair.listener, refuse, NULL, NULL));
    REQUIRE_OK(blip_listener_connect(pair.listener, pair.client_runtime, NULL, &client));
    CHECK_STATUS(blip_connection_wait_open(client, SOON), BLIP_ERROR_REFUSED);
    blip_connection_release(client);
    CHECK_OK(blip_listener_stop(pair.listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(pair.listener, SOON));
    CHECK_STATUS(blip_listener_connect(pair.listener, NULL, NULL, &client), BLIP_ERROR_STATE);
    pair_close(&pair);
}

/* ---- transports of the program ---- */

/* Each end hands its frames to the other. */
struct end {
    blip_transport *transport;
    blip_connection *connection;
    struct end *other;
    atomic_int frames, closes, code, releases, resumes;
    atomic_bool is_full, fails;
    atomic_int status;
};

static blip_status carry(blip_transport *transport, blip_slice frame, void *context)
{
    struct end *end = context;
    CHECK_POINTER(transport, end->transport);
    if (atomic_load(&end->fails))
        return BLIP_ERROR_NETWORK;
    if (atomic_load(&end->is_full))
        return BLIP_AGAIN;
    atomic_fetch_add(&end->frames, 1);
    blip_status status = blip_transport_did_receive(end->other->transport, frame);
    return status == BLIP_AGAIN ? BLIP_AGAIN : BLIP_OK;
}

static void closed(blip_transport *transport, uint16_t code, blip_slice reason, void *context)
{
    struct end *end = context;
    (void)transport, (void)reason;
    atomic_store(&end->code, code);
    atomic_fetch_add(&end->closes, 1);
    blip_transport_did_close(end->other->transport, code == 1000 ? BLIP_OK : BLIP_ERROR_CONNECTION_LOST);
}

static void resumed(blip_transport *transport, void *context)
{
    struct end *end = context;
    (void)transport;
    atomic_fetch_add(&end->resumes, 1);
    blip_transport_did_drain(end->other->transport);
}

static void count_end_release(void *context) { atomic_fetch_add(&((struct end *)context)->releases, 1); }

static void open_ends(struct end ends[2], blip_runtime *runtimes[2], const char *protocol)
{
    memset(ends, 0, 2 * sizeof *ends);
    for (int i = 0; i < 2; i++) {
        struct end *end = &ends[i];
        end->other = &ends[1 - i];
        atomic_store(&end->status, UNTOLD);
        REQUIRE_OK(blip_transport_new(carry, end, count_end_release, &end->transport));
        REQUIRE_OK(blip_transport_set_close_callback(end->transport, closed, end, count_end_release));
        REQUIRE_OK(blip_transport_set_resume_callback(end->transport, resumed, end, count_end_release));
        CHECK_STATUS(blip_transport_did_open(end->transport), BLIP_ERROR_STATE);
        REQUIRE_OK(blip_connection_from_transport(
            runtimes[i], end->transport, S(protocol), NULL, &end->connection));
        REQUIRE_OK(blip_connection_set_handler(end->connection, S("echo"), 0, echo_handler, NULL, NULL));
        REQUIRE_OK(blip_connection_set_close_callback(end->connection, keep_status, &end->status, NULL));
    }
}

static void end_ends(struct end ends[2], blip_runtime *runtimes[2])
{
    for (int i = 0; i < 2; i++) {
        blip_connection_close(ends[i].connection, 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(ends[i].connection, SOON));
    }
    for (int i = 0; i < 2; i++) {
        CHECK(atomic_load(&ends[i].status) != UNTOLD);
        CHECK_STATUS(blip_transport_did_drain(ends[i].transport), BLIP_ERROR_CLOSED);
        CHECK_STATUS(blip_transport_did_receive(ends[i].transport, S("x")), BLIP_ERROR_CLOSED);
        CHECK_STATUS(blip_transport_did_close(ends[i].transport, BLIP_OK), BLIP_ERROR_CLOSED);
        blip_connection_release(ends[i].connection);
        blip_transport_release(ends[i].transport);
    }
    drop_runtime(runtimes[0]);
    drop_runtime(runtimes[1]);
    for (int i = 0; i < 2; i++)
        CHECK_INT(atomic_load(&ends[i].releases), 3);
}

TEST(a_transport_of_the_program_carries_all_versions)
{
    const char *all[] = {"BLIP_3", "BLIP_3+App", "BLIP", "BLIP_1"};
    for (size_t i = 0; i < 4; i++) {
        blip_runtime *runtimes[] = {make_runtime(1), make_runtime(1)};
        struct end ends[2];
        int32_t state = -1;
        blip_slice text;
        open_ends(ends, runtimes, all[i]);
        CHECK_OK(blip_connection_state(ends[0].connection, &state));
        CHECK_INT(state, BLIP_STATE_CONNECTING);
        CHECK_STATUS(blip_transport_did_receive(ends[0].transport, S("x")), BLIP_ERROR_STATE);
        struct outcome early;
        REQUIRE_OK(send_request(ends[0].connection, "echo", "early", &early));
        CHECK_OK(blip_transport_did_open(ends[1].transport));
        CHECK_OK(blip_transport_did_open(ends[0].transport));
        CHECK_STATUS(blip_transport_did_open(ends[0].transport), BLIP_ERROR_STATE);
        REQUIRE(outcome_wait(&early));
        CHECK_STATUS(early.status, BLIP_OK);
        CHECK_OK(blip_connection_wait_open(ends[1].connection, SOON));
        CHECK_OK(blip_connection_subprotocol(ends[1].connection, &text));
        CHECK_TEXT(text, all[i]);
        expect_echo(ends[0].connection, "hello");
        expect_echo(ends[1].connection, "hello");
        big_echo(ends[0].connection, 2 << 20, false);
        big_echo(ends[1].connection, 2 << 20, true);
        CHECK_OK(blip_connection_close(ends[0].connection, 1000, S("done")));
        CHECK_OK(blip_connection_wait_closed(ends[1].connection, SOON));
        CHECK_STATUS(atomic_load(&ends[1].status), BLIP_OK);
        CHECK_INT(atomic_load(&ends[0].closes), 1);
        CHECK_INT(atomic_load(&ends[0].code), 1000);
        CHECK_INT(atomic_load(&ends[1].closes), 0);
        end_ends(ends, runtimes);
        CHECK_STATUS(atomic_load(&ends[0].status), BLIP_OK);
    }
}

TEST(a_transport_may_be_full)
{
    blip_runtime *runtimes[] = {make_runtime(1), make_runtime(1)};
    struct end ends[2];
    struct outcome outcome;
    open_ends(ends, runtimes, "BLIP_3");
    CHECK_OK(blip_transport_did_open(ends[0].transport));
    CHECK_OK(blip_transport_did_open(ends[1].transport));
    atomic_store(&ends[0].is_full, true);
    REQUIRE_OK(send_request(ends[0].connection, "echo", "waits", &outcome));
    sleep_ms(100);
    CHECK_INT(counter_get(&outcome.done), 0);
    CHECK_INT(atomic_load(&ends[0].frames), 0);
    atomic_store(&ends[0].is_full, false);
    CHECK_OK(blip_transport_did_drain(ends[0].transport));
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, "waits") == 0);
    end_ends(ends, runtimes);
}

TEST(a_transport_that_fails_ends_the_connection)
{
    blip_runtime *runtimes[] = {make_runtime(1), make_runtime(1)};
    struct end ends[2];
    struct outcome outcome;
    open_ends(ends, runtimes, "BLIP_3");
    CHECK_OK(blip_transport_did_open(ends[0].transport));
    CHECK_OK(blip_transport_did_open(ends[1].transport));
    expect_echo(ends[0].connection, "x");
    atomic_store(&ends[0].fails, true);
    REQUIRE_OK(send_request(ends[0].connection, "echo", "lost", &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_NETWORK);
    CHECK_OK(blip_connection_wait_closed(ends[0].connection, SOON));
    CHECK_STATUS(atomic_load(&ends[0].status), BLIP_ERROR_NETWORK);
    CHECK_OK(blip_transport_did_close(ends[1].transport, BLIP_ERROR_CONNECTION_LOST));
    CHECK_OK(blip_connection_wait_closed(ends[1].connection, SOON));
    CHECK_STATUS(atomic_load(&ends[1].status), BLIP_ERROR_CONNECTION_LOST);
    end_ends(ends, runtimes);
}

TEST(frames_that_break_the_protocol_end_the_connection)
{
    blip_runtime *runtimes[] = {make_runtime(1), make_runtime(1)};
    struct end ends[2];
    open_ends(ends, runtimes, "BLIP_3");
    CHECK_OK(blip_transport_did_open(ends[0].transport));
    CHECK_OK(blip_connection_wait_open(ends[0].connection, SOON));
    CHECK_OK(blip_transport_did_receive(ends[0].transport, bytes_slice("\1\0", 2)));
    CHECK_OK(blip_connection_wait_closed(ends[0].connection, SOON));
    CHECK_STATUS(atomic_load(&ends[0].status), BLIP_ERROR_PROTOCOL);
    CHECK_INT(atomic_load(&ends[0].code), 1002);
    /* The other never opened. */
    CHECK_OK(blip_connection_wait_closed(ends[1].connection, SOON));
    CHECK_STATUS(atomic_load(&ends[1].status), BLIP_ERROR_CONNECTION_LOST);
    end_ends(ends, runtimes);
}

TEST(a_transport_serves_once)
{
    blip_runtime *runtimes[] = {make_runtime(1), make_runtime(1)};
    struct end ends[2];
    blip_connection *second = NULL;
    blip_transport *transport = NULL;
    open_ends(ends, runtimes, "BLIP");
    CHECK_STATUS(
        blip_connection_from_transport(runtimes[0], ends[0].transport, S("BLIP"), NULL, &second), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_transport_new(NULL, NULL, NULL, &transport), BLIP_ERROR_ARGUMENT);
    REQUIRE_OK(blip_transport_new(carry, &ends[0], count_end_release, &transport));
    CHECK_STATUS(
        blip_connection_from_transport(runtimes[0], transport, S("BLIP_4"), NULL, &second), BLIP_ERROR_ARGUMENT);
    blip_transport_release(transport);
    CHECK_INT(atomic_load(&ends[0].releases), 1);
    atomic_store(&ends[0].releases, 0);
    end_ends(ends, runtimes);
}

TEST(a_connection_waits_for_its_transport)
{
    blip_runtime *runtime = make_runtime(1);
    blip_connection_options *options = blip_connection_options_new();
    blip_transport *transport = NULL;
    blip_connection *connection = NULL;
    struct end end;
    memset(&end, 0, sizeof end);
    REQUIRE_OK(blip_connection_options_set_connect_timeout(options, 100));
    REQUIRE_OK(blip_transport_new(carry, &end, count_end_release, &transport));
    REQUIRE_OK(blip_connection_from_transport(runtime, transport, S("BLIP_3"), options, &connection));
    blip_connection_options_release(options);
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
    blip_transport_release(transport);
    drop_runtime(runtime);
    CHECK_INT(atomic_load(&end.releases), 1);
}

TEST_SECONDS(a_transport_is_told_to_wait, 60)
{
    blip_queue *queue = NULL;
    blip_runtime *runtimes[] = {make_runtime(1), NULL};
    blip_runtime_options *runtime_options = blip_runtime_options_new();
    struct end ends[2];
    enum { MANY = 400 };
    static struct outcome outcomes[MANY];
    size_t count;
    REQUIRE_OK(blip_queue_new(4, &queue));
    REQUIRE_OK(blip_runtime_options_set_queue(runtime_options, queue));
    REQUIRE_OK(blip_runtime_new(runtime_options, &runtimes[1]));
    blip_runtime_options_release(runtime_options);
    open_ends(ends, runtimes, "BLIP_3");
    CHECK_OK(blip_transport_did_open(ends[0].transport));
    CHECK_OK(blip_transport_did_open(ends[1].transport));
    char *body = calloc(1, 8192);
    for (int i = 0; i < MANY; i++) {
        blip_message *request = make_request("echo", "");
        REQUIRE_OK(blip_message_set_body(request, bytes_slice(body, 8192)));
        outcome_init(&outcomes[i]);
        REQUIRE_OK(blip_connection_send(ends[0].connection, request, outcome_response, &outcomes[i], outcome_release));
        blip_message_release(request);
    }
    free(body);
    sleep_ms(200);
    CHECK_AT_MOST(atomic_load(&ends[0].frames), 100);
    for (int64_t end = now_ms() + 4 * SOON; now_ms() < end && counter_get(&outcomes[MANY - 1].done) == 0;)
        blip_queue_dispatch(queue, 100, 20, &count);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(counter_get(&outcomes[i].done), 1);
    CHECK_AT_LEAST(atomic_load(&ends[1].resumes), 1);
    blip_connection_close(ends[0].connection, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(ends[0].connection, SOON));
    CHECK_OK(blip_connection_wait_closed(ends[1].connection, SOON));
    blip_queue_dispatch(queue, 100, 0, &count);
    end_ends(ends, runtimes);
    blip_queue_release(queue);
}
