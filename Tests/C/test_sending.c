/* Every request that is accepted completes exactly once, before the closed callback, whatever fails; and in what
 * order. */

#define _GNU_SOURCE

#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 500 };

TEST(a_request_gets_its_response)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "echo", "hello", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
    CHECK(strcmp(outcome.text, "hello") == 0);
    sleep_ms(20);
    CHECK_INT(counter_get(&outcome.done), 1);
    CHECK_INT(atomic_load(&outcome.released), 1);
    pair_close(&pair);
}

TEST(request_waits_for_the_response)
{
    struct pair pair;
    blip_slice body, type;
    blip_message *response = NULL, *request;
    bool flag;
    uint64_t number = 0;
    pair_open(&pair, NULL);
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "number %d", i);
        request = make_request("echo", NULL);
        CHECK_OK(blip_message_set_text(request, S(text)));
        response = NULL;
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
        CHECK_OK(blip_message_body(response, &body));
        CHECK_TEXT(body, text);
        CHECK_OK(blip_message_content_type(response, &type));
        CHECK_TEXT(type, "text/plain; charset=UTF-8");
        CHECK_OK(blip_message_is_mine(response, &flag));
        CHECK(!flag);
        CHECK_OK(blip_message_is_complete(response, &flag));
        CHECK(flag);
        CHECK_OK(blip_message_number(response, &number));
        CHECK_INT(number, i + 1);
        blip_message_release(request);
        blip_message_release(response);
    }
    /* An error response is a response. */
    request = make_request("error", NULL);
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    int32_t kind = -1;
    CHECK_OK(blip_message_type(response, &kind));
    CHECK_INT(kind, BLIP_MESSAGE_ERROR);
    blip_message_release(request);
    blip_message_release(response);
    /* Time that is up ends the waiting and completes the request. */
    request = make_request("never", NULL);
    response = NULL;
    int64_t start = now_ms();
    CHECK_STATUS(blip_connection_request(pair.client, request, 100, &response), BLIP_ERROR_TIMEOUT);
    CHECK_AT_LEAST(now_ms() - start, 80);
    CHECK_AT_MOST(now_ms() - start, 3000);
    CHECK_POINTER(response, NULL);
    blip_message_release(request);
    pair_close(&pair);
}

static void *ask_in_no_time(void *connection)
{
    for (int i = 0; i < 3000; i++) {
        blip_message *request = make_request("never", NULL), *response = NULL;
        CHECK_STATUS(blip_connection_request(connection, request, 0, &response), BLIP_ERROR_TIMEOUT);
        blip_message_release(request);
    }
    return NULL;
}

/* They are given up while they are on their way to the loop, or before. */
TEST_SECONDS(several_threads_wait_for_no_time, 60)
{
    struct pair pair;
    pthread_t threads[6];
    pair_open(&pair, NULL);
    for (int i = 0; i < 6; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, ask_in_no_time, pair.client), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

TEST(requests_may_be_sent_before_the_connection_opens)
{
    struct pair pair;
    struct outcome outcomes[10];
    blip_connection *client = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    for (int i = 0; i < 5; i++)
        CHECK_OK(send_request(client, "echo", "early", &outcomes[i]));
    CHECK_OK(blip_connection_connect(client));
    for (int i = 5; i < 10; i++)
        CHECK_OK(send_request(client, "echo", "early", &outcomes[i]));
    for (int i = 0; i < 10; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        CHECK(strcmp(outcomes[i].text, "early") == 0);
    }
    blip_connection_close(client, 1000, S(""));
    blip_connection_wait_closed(client, SOON);
    blip_connection_release(client);
    pair_close(&pair);
}

TEST(a_null_callback_is_fine)
{
    struct pair pair;
    struct counter released = COUNTER;
    struct outcome outcome;
    pair_open(&pair, NULL);
    for (int i = 0; i < 10; i++) {
        blip_message *request = make_request("echo", "x");
        CHECK_OK(blip_connection_send(pair.client, request, NULL, &released, count_release));
        blip_message_release(request);
    }
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK(counter_wait(&released, 10, SOON));
    CHECK_INT(counter_get(&released), 10);
    pair_close(&pair);
}

struct ending {
    struct counter count;
    blip_status status;
    blip_message *response;
};

static void note_ending(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct ending *ending = context;
    (void)connection;
    (void)request;
    ending->status = status;
    ending->response = response;
    counter_add(&ending->count, 1);
}

TEST(a_control_character_is_no_property_of_version_2)
{
    struct pair pair;
    struct outcome outcome, other;
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_add_subprotocol(options, S("BLIP")));
    pair_open(&pair, &(struct pair_options){.client = options});
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_message_set_property(request, S("Key"), S("\x01")));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_PROPERTIES);
    CHECK_OK(send_request(pair.client, "echo", "still here", &other));
    CHECK(outcome_wait(&other));
    CHECK_STATUS(other.status, BLIP_OK);
    pair_close(&pair);
}

TEST(no_reply_requests_complete_too)
{
    struct pair pair;
    struct outcome barrier;
    struct counter released = COUNTER;
    pair_open(&pair, NULL);
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_message_set_no_reply(request, true));
    CHECK_OK(blip_connection_send(pair.client, request, NULL, &released, count_release));
    blip_message_release(request);
    CHECK_OK(send_request(pair.client, "echo", "x", &barrier));
    CHECK(outcome_wait(&barrier));
    CHECK(counter_wait(&released, 1, SOON));
    CHECK_INT(counter_get(&released), 1);
    blip_message *waited = make_request("echo", "x"), *response = NULL;
    CHECK_OK(blip_message_set_no_reply(waited, true));
    CHECK_STATUS(blip_connection_request(pair.client, waited, SOON, &response), BLIP_ERROR_NO_REPLY);
    CHECK_POINTER(response, NULL);
    /* With a callback it ends when it was sent, without a response. */
    struct ending ending = {COUNTER, 12345, waited};
    CHECK_OK(blip_connection_send(pair.client, waited, note_ending, &ending, NULL));
    CHECK(counter_wait(&ending.count, 1, SOON));
    CHECK_STATUS(ending.status, BLIP_OK);
    CHECK_POINTER(ending.response, NULL);
    blip_message_release(waited);
    pair_close(&pair);
}

/* ---- completion ---- */

struct crowd {
    struct outcome *outcomes;
    int accepted;
    struct counter closed;
    int late; /* completions that were missing when the closed callback ran */
};

static void crowd_closed(blip_connection *connection, blip_status status, void *context)
{
    struct crowd *crowd = context;
    (void)connection;
    (void)status;
    for (int i = 0; i < MANY; i++)
        if (crowd->outcomes[i].type == -2 && counter_get(&crowd->outcomes[i].done) == 0)
            crowd->late++;
    counter_add(&crowd->closed, 1);
}

static void crowd_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct outcome *outcome = context;
    (void)connection;
    (void)request;
    CHECK((status == BLIP_OK) == (response != NULL));
    outcome->status = status;
    counter_add(&outcome->done, 1);
}

static void crowd_send(struct crowd *crowd, blip_connection *connection, const char *const *profiles, size_t kinds)
{
    crowd->outcomes = calloc(MANY, sizeof *crowd->outcomes);
    crowd->accepted = 0;
    crowd->late = 0;
    counter_init(&crowd->closed);
    for (int i = 0; i < MANY; i++)
        outcome_init(&crowd->outcomes[i]);
    CHECK_OK(blip_connection_set_close_callback(connection, crowd_closed, crowd, NULL));
    for (int i = 0; i < MANY; i++) {
        struct outcome *outcome = &crowd->outcomes[i];
        blip_message *request = make_request(profiles[(size_t)i % kinds], "some body");
        outcome->type = -2;
        blip_status status = blip_connection_send(connection, request, crowd_response, outcome, outcome_release);
        if (status == BLIP_OK)
            crowd->accepted++;
        else
            outcome->type = -1;
        blip_message_release(request);
    }
}

/* Each accepted request completed once, with one of the two statuses or a response. */
static void crowd_check(struct crowd *crowd, blip_status first, blip_status second)
{
    CHECK(counter_wait(&crowd->closed, 1, SOON));
    sleep_ms(20);
    CHECK_INT(crowd->late, 0);
    int completed = 0, strange = 0, released = 0;
    for (int i = 0; i < MANY; i++) {
        struct outcome *outcome = &crowd->outcomes[i];
        completed += (int)counter_get(&outcome->done);
        released += atomic_load(&outcome->released);
        if (outcome->status != BLIP_OK && outcome->status != first && outcome->status != second && strange++ == 0)
            test_note("request %d completed with %s", i, blip_status_name(outcome->status));
    }
    CHECK_INT(completed, crowd->accepted);
    CHECK_INT(released, MANY);
    CHECK_INT(strange, 0);
    free(crowd->outcomes);
}

static const char *const mixed[] = {"never", "echo", "slow", "empty", "error"};
static const char *const unanswered[] = {"never"};

TEST(all_complete_when_this_side_closes)
{
    struct pair pair;
    struct crowd crowd;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    for (int pause = 0; pause < 40; pause += 13) {
        blip_connection *client = NULL;
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
        CHECK_OK(blip_connection_wait_open(client, SOON));
        crowd_send(&crowd, client, mixed, 5);
        CHECK_INT(crowd.accepted, MANY);
        sleep_ms(pause);
        CHECK_OK(blip_connection_close(client, 1000, S("")));
        crowd_check(&crowd, BLIP_ERROR_CLOSED, BLIP_ERROR_CLOSED);
        blip_connection_release(client);
    }
    pair_close(&pair);
}

TEST(all_complete_when_the_peer_closes)
{
    struct pair pair;
    struct crowd crowd;
    blip_connection *client = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    CHECK_OK(blip_connection_wait_open(client, SOON));
    REQUIRE_REACHES(&pair.server_opened, 1);
    crowd_send(&crowd, client, mixed, 5);
    sleep_ms(10);
    CHECK_OK(blip_connection_close(pair.accepted, 1000, S("")));
    crowd_check(&crowd, BLIP_ERROR_PEER_CLOSED, BLIP_ERROR_CLOSED);
    blip_connection_release(client);
    pair_close(&pair);
}

TEST(all_complete_when_the_last_reference_is_released)
{
    struct pair pair;
    struct crowd crowd;
    blip_connection *client = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    CHECK_OK(blip_connection_wait_open(client, SOON));
    crowd_send(&crowd, client, mixed, 5);
    blip_connection_release(client);
    crowd_check(&crowd, BLIP_ERROR_CLOSED, BLIP_ERROR_CLOSED);
    pair_close(&pair);
}

TEST(all_complete_when_the_runtime_stops)
{
    struct pair pair;
    struct crowd crowd;
    pair_open(&pair, NULL);
    crowd_send(&crowd, pair.client, mixed, 5);
    CHECK_OK(blip_runtime_stop(pair.client_runtime, SOON));
    /* stop waits for it. */
    CHECK_INT(counter_get(&crowd.closed), 1);
    crowd_check(&crowd, BLIP_ERROR_STOPPED, BLIP_ERROR_CLOSED);
    struct outcome outcome;
    CHECK(send_request(pair.client, "echo", "x", &outcome) < 0);
    blip_connection_release(pair.client);
    pair.client = NULL;
    pair_close(&pair);
}

TEST(all_complete_when_the_connection_cannot_be_made)
{
    char url[64];
    struct crowd crowd;
    blip_connection *client = NULL;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    crowd_send(&crowd, client, unanswered, 1);
    CHECK_INT(crowd.accepted, MANY);
    CHECK_OK(blip_connection_connect(client));
    crowd_check(&crowd, BLIP_ERROR_REFUSED, BLIP_ERROR_REFUSED);
    blip_connection_release(client);
    drop_runtime(runtime);
}

TEST(all_complete_when_it_was_never_connected)
{
    struct crowd crowd;
    blip_connection *client = NULL;
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &client));
    crowd_send(&crowd, client, unanswered, 1);
    CHECK_OK(blip_connection_close(client, 1000, S("")));
    crowd_check(&crowd, BLIP_ERROR_CLOSED, BLIP_ERROR_CLOSED);
    blip_connection_release(client);
    drop_runtime(runtime);
}

/* A server in a process of its own, that can be killed. To be called before this process uses the library: a forked
 * child of a process with loop threads could not use it. */
static pid_t start_server(char *url, size_t size)
{
    int pipes[2];
    REQUIRE_INT(pipe(pipes), 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        blip_listener *listener = NULL;
        blip_slice text;
        blip_runtime *runtime = make_runtime(1);
        REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
        set_server_handlers(listener);
        REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
        REQUIRE_OK(blip_listener_url(listener, &text));
        REQUIRE(write(pipes[1], text.data, text.size) == (ssize_t)text.size);
        close(pipes[1]);
        alarm(60);
        for (;;)
            pause();
    }
    close(pipes[1]);
    memset(url, 0, size);
    ssize_t got, used = 0;
    while ((got = read(pipes[0], url + used, size - 1 - (size_t)used)) > 0)
        used += got;
    close(pipes[0]);
    REQUIRE(used > 0);
    return child;
}

TEST(all_complete_when_the_server_dies)
{
    char urls[4][128];
    pid_t children[4];
    for (int i = 0; i < 4; i++)
        children[i] = start_server(urls[i], sizeof urls[i]);
    blip_runtime *runtime = make_runtime(1);
    for (int i = 0; i < 4; i++) {
        struct crowd crowd;
        blip_connection *client = NULL;
        REQUIRE_OK(blip_connection_new(runtime, S(urls[i]), NULL, &client));
        REQUIRE_OK(blip_connection_wait_open(client, SOON));
        crowd_send(&crowd, client, mixed, 5);
        sleep_ms(i * 9);
        kill(children[i], SIGKILL);
        crowd_check(&crowd, BLIP_ERROR_CONNECTION_LOST, BLIP_ERROR_CONNECTION_LOST);
        waitpid(children[i], NULL, 0);
        blip_connection_release(client);
    }
    drop_runtime(runtime);
}

TEST(a_server_that_stops_reading_does_not_delay_closing)
{
    char url[128];
    struct crowd crowd;
    blip_connection *client = NULL;
    pid_t child = start_server(url, sizeof url);
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_close_timeout(options, 300));
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &client));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    kill(child, SIGSTOP);
    /* More than the socket's buffers hold. */
    size_t size = 64 << 20;
    void *body = malloc(size);
    fill_pattern(body, size, 0, 1);
    blip_message *request = make_request("sink", NULL);
    CHECK_OK(blip_message_set_body(request, bytes_slice(body, size)));
    free(body);
    struct outcome outcome;
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    crowd_send(&crowd, client, mixed, 5);
    sleep_ms(100);
    int64_t start = now_ms();
    CHECK_OK(blip_connection_close(client, 1000, S("")));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    crowd_check(&crowd, BLIP_ERROR_CLOSED, BLIP_ERROR_CLOSED);
    CHECK_AT_MOST(now_ms() - start, 3000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    blip_connection_release(client);
    drop_runtime(runtime);
}

/* ---- time limits and cancelling ---- */

TEST(a_request_times_out)
{
    struct pair pair;
    struct outcome outcome, answered;
    pair_open(&pair, NULL);
    blip_message *request = make_request("never", "x");
    CHECK_OK(blip_message_set_timeout(request, 150));
    outcome_init(&outcome);
    int64_t start = now_ms();
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_AT_LEAST(now_ms() - start, 130);
    CHECK_AT_MOST(now_ms() - start, 2000);
    CHECK_STATUS(outcome.status, BLIP_ERROR_TIMEOUT);
    CHECK_INT(atomic_load(&outcome.released), 1);
    blip_message_release(request);
    /* In time. */
    request = make_request("slow", "x");
    CHECK_OK(blip_message_set_timeout(request, 3000));
    outcome_init(&answered);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &answered, outcome_release));
    CHECK(outcome_wait(&answered));
    CHECK_STATUS(answered.status, BLIP_OK);
    blip_message_release(request);
    pair_close(&pair);
}

TEST(a_late_response_is_thrown_away)
{
    struct pair pair;
    struct outcome outcomes[50], after;
    pair_open(&pair, NULL);
    for (int i = 0; i < 50; i++) {
        blip_message *request = make_request("slow", "late");
        CHECK_OK(blip_message_set_timeout(request, 10));
        outcome_init(&outcomes[i]);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcomes[i], outcome_release));
        blip_message_release(request);
    }
    for (int i = 0; i < 50; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_ERROR_TIMEOUT);
    }
    sleep_ms(150);
    for (int i = 0; i < 50; i++)
        CHECK_INT(counter_get(&outcomes[i].done), 1);
    CHECK_OK(send_request(pair.client, "echo", "still fine", &after));
    CHECK(outcome_wait(&after));
    CHECK(strcmp(after.text, "still fine") == 0);
    pair_close(&pair);
}

TEST(a_time_limit_counts_before_the_connection_is_open)
{
    int descriptor;
    char url[64];
    struct outcome outcome;
    blip_connection *client = NULL;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    CHECK_OK(blip_connection_connect(client));
    blip_message *request = make_request("x", NULL);
    CHECK_OK(blip_message_set_timeout(request, 100));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(client, request, outcome_response, &outcome, outcome_release));
    CHECK(counter_wait(&outcome.done, 1, 3000));
    CHECK_STATUS(outcome.status, BLIP_ERROR_TIMEOUT);
    blip_message_release(request);
    blip_connection_close(client, 1000, S(""));
    blip_connection_wait_closed(client, SOON);
    CHECK_INT(counter_get(&outcome.done), 1);
    blip_connection_release(client);
    drop_runtime(runtime);
    close(descriptor);
}

TEST(a_request_is_cancelled)
{
    struct pair pair;
    struct outcome outcomes[100], after;
    blip_message *requests[100];
    pair_open(&pair, NULL);
    for (int i = 0; i < 100; i++) {
        requests[i] = make_request(i % 2 ? "slow" : "never", "x");
        outcome_init(&outcomes[i]);
        CHECK_OK(blip_connection_send(pair.client, requests[i], outcome_response, &outcomes[i], outcome_release));
    }
    for (int i = 0; i < 100; i++)
        CHECK_OK(blip_message_cancel(requests[i]));
    for (int i = 0; i < 100; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_ERROR_CANCELLED);
        /* Once more changes nothing. */
        blip_message_cancel(requests[i]);
        blip_message_release(requests[i]);
    }
    sleep_ms(100);
    for (int i = 0; i < 100; i++) {
        CHECK_INT(counter_get(&outcomes[i].done), 1);
        CHECK_INT(atomic_load(&outcomes[i].released), 1);
    }
    CHECK_OK(send_request(pair.client, "echo", "fine", &after));
    CHECK(outcome_wait(&after));
    CHECK_STATUS(after.status, BLIP_OK);
    pair_close(&pair);
}

TEST(cancelling_what_is_not_under_way)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    blip_message *request = make_request("echo", "x");
    CHECK_STATUS(blip_message_cancel(request), BLIP_ERROR_STATE);
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_OK(blip_message_cancel(request));
    CHECK_INT(counter_get(&outcome.done), 1);
    blip_message_release(request);
    pair_close(&pair);
}

static void cancel_in_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection;
    (void)response;
    (void)status;
    blip_message_cancel(request);
    counter_add(context, 1);
}

TEST(cancelling_inside_the_completion)
{
    struct pair pair;
    struct counter done = COUNTER;
    pair_open(&pair, NULL);
    for (int i = 0; i < 20; i++) {
        blip_message *request = make_request("echo", "x");
        CHECK_OK(blip_connection_send(pair.client, request, cancel_in_response, &done, NULL));
        blip_message_release(request);
    }
    CHECK(counter_wait(&done, 20, SOON));
    sleep_ms(20);
    CHECK_INT(counter_get(&done), 20);
    pair_close(&pair);
}

TEST(cancelling_races_with_responses)
{
    struct pair pair;
    pair_open(&pair, NULL);
    for (int i = 0; i < 300; i++) {
        struct outcome outcome;
        blip_message *request = make_request("echo", "x");
        outcome_init(&outcome);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
        for (volatile int spin = 0; spin < i * 500; spin++)
            continue;
        blip_message_cancel(request);
        REQUIRE(outcome_wait(&outcome));
        CHECK(outcome.status == BLIP_OK || outcome.status == BLIP_ERROR_CANCELLED);
        while (atomic_load(&outcome.released) == 0)
            sleep_ms(1);
        CHECK_INT(counter_get(&outcome.done), 1);
        blip_message_release(request);
    }
    pair_close(&pair);
}

TEST(a_big_cancelled_request_does_not_hurt_the_others)
{
    struct pair pair;
    struct outcome big, small;
    size_t size = 30 << 20;
    void *body = malloc(size);
    fill_pattern(body, size, 0, 1);
    pair_open(&pair, NULL);
    blip_message *request = make_request("sink", NULL);
    CHECK_OK(blip_message_set_body(request, bytes_slice(body, size)));
    free(body);
    outcome_init(&big);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &big, outcome_release));
    sleep_ms(5);
    CHECK_OK(blip_message_cancel(request));
    CHECK(outcome_wait(&big));
    CHECK(big.status == BLIP_ERROR_CANCELLED || big.status == BLIP_OK);
    blip_message_release(request);
    CHECK_OK(send_request(pair.client, "echo", "ok", &small));
    CHECK(outcome_wait(&small));
    CHECK_STATUS(small.status, BLIP_OK);
    pair_close(&pair);
}

/* ---- order ---- */

struct order {
    struct counter seen;
    int last;
    int wrong;
};

static blip_status handle_in_order(blip_connection *connection, blip_message *request, void *context)
{
    struct order *order = context;
    blip_slice body;
    uint64_t number = 0;
    int value = -1;
    (void)connection;
    CHECK_OK(blip_message_body(request, &body));
    if (body.size == sizeof value)
        memcpy(&value, body.data, sizeof value);
    CHECK_OK(blip_message_number(request, &number));
    if (value != order->last + 1 || number != (uint64_t)value + 1)
        order->wrong++;
    order->last = value;
    counter_add(&order->seen, 1);
    return BLIP_OK;
}

TEST(requests_arrive_in_the_order_of_sending)
{
    struct pair pair;
    struct order order = {COUNTER, -1, 0};
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("order"), 0, handle_in_order, &order, NULL));
    for (int i = 0; i < 5000; i++) {
        blip_message *request = make_request("order", NULL);
        CHECK_OK(blip_message_set_body(request, bytes_slice(&i, sizeof i)));
        if (i % 3 == 0)
            CHECK_OK(blip_message_set_compressed(request, true));
        CHECK_OK(blip_connection_send(pair.client, request, NULL, NULL, NULL));
        blip_message_release(request);
    }
    CHECK(counter_wait(&order.seen, 5000, SOON));
    CHECK_INT(order.wrong, 0);
    pair_close(&pair);
}

static void respond_in_order(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct order *order = context;
    uint64_t number = 0;
    (void)connection;
    (void)response;
    CHECK_OK(status);
    CHECK_OK(blip_message_number(request, &number));
    if ((int)number != order->last + 1)
        order->wrong++;
    order->last = (int)number;
    counter_add(&order->seen, 1);
}

TEST(small_responses_come_in_the_order_of_answering)
{
    struct pair pair;
    struct order order = {COUNTER, 0, 0};
    pair_open(&pair, NULL);
    for (int i = 0; i < 5000; i++) {
        blip_message *request = make_request("echo", "x");
        CHECK_OK(blip_connection_send(pair.client, request, respond_in_order, &order, NULL));
        blip_message_release(request);
    }
    CHECK(counter_wait(&order.seen, 5000, SOON));
    CHECK_INT(order.wrong, 0);
    pair_close(&pair);
}

static void send_another(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct counter *left = context;
    (void)request;
    (void)response;
    CHECK_OK(status);
    if (counter_get(left) < 2000) {
        blip_message *next = make_request("echo", "x");
        CHECK_OK(blip_connection_send(connection, next, send_another, left, NULL));
        blip_message_release(next);
    }
    counter_add(left, 1);
}

TEST(requests_are_sent_from_inside_completions)
{
    struct pair pair;
    struct counter done = COUNTER;
    pair_open(&pair, NULL);
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_connection_send(pair.client, request, send_another, &done, NULL));
    blip_message_release(request);
    CHECK(counter_wait(&done, 2001, SOON));
    pair_close(&pair);
}

static blip_status ask_the_asker(blip_connection *connection, blip_message *request, void *context)
{
    struct outcome *outcome = context;
    (void)request;
    return send_request(connection, "name", "who are you?", outcome);
}

static blip_status tell_name(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_text(request, S("a client"));
}

TEST(the_server_sends_requests_too)
{
    struct pair pair;
    struct outcome asked, answered;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.client, S("name"), 0, tell_name, NULL, NULL));
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("ask"), 0, ask_the_asker, &answered, NULL));
    CHECK_OK(send_request(pair.client, "ask", "", &asked));
    CHECK(outcome_wait(&asked));
    CHECK(outcome_wait(&answered));
    CHECK(strcmp(answered.text, "a client") == 0);
    pair_close(&pair);
}

TEST(the_backlog_is_told)
{
    char url[128];
    uint64_t bytes = 0;
    blip_connection *client = NULL;
    pid_t child = start_server(url, sizeof url);
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    CHECK_OK(blip_connection_backlog(client, &bytes));
    CHECK_INT(bytes, 0);
    kill(child, SIGSTOP);
    size_t size = 1 << 20;
    void *body = calloc(1, size);
    for (int i = 0; i < 32; i++) {
        blip_message *request = make_request("sink", NULL);
        CHECK_OK(blip_message_set_body(request, bytes_slice(body, size)));
        CHECK_OK(blip_connection_send(client, request, NULL, NULL, NULL));
        blip_message_release(request);
    }
    free(body);
    sleep_ms(100);
    CHECK_OK(blip_connection_backlog(client, &bytes));
    CHECK_AT_LEAST(bytes, 8 << 20);
    CHECK_AT_MOST(bytes, 33 << 20);
    kill(child, SIGCONT);
    int64_t end = now_ms() + SOON;
    while (blip_connection_backlog(client, &bytes) == BLIP_OK && bytes > 0 && now_ms() < end)
        sleep_ms(10);
    CHECK_INT(bytes, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    blip_connection_release(client);
    drop_runtime(runtime);
}

/* ---- receipts and copies ---- */

static blip_message *_Atomic unread;

static blip_status leave_unread(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection, (void)context;
    CHECK_OK(blip_message_defer(request));
    atomic_store(&unread, blip_message_retain(request));
    return BLIP_OK;
}

TEST(receipts_are_waited_for)
{
    enum { SIZE = 8 << 20 };
    struct pair pair;
    bool sent = false;
    pair_open(&pair, NULL);
    blip_message *small = make_request("echo", "hello");
    CHECK_STATUS(blip_message_wait_sent(small, 0), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_connection_send(pair.client, small, NULL, NULL, NULL));
    CHECK_OK(blip_message_wait_sent(small, -1));
    CHECK_OK(blip_message_wait_sent(small, 0));
    CHECK_OK(blip_message_is_sent(small, &sent));
    CHECK(sent);
    /* One that the peer does not read cannot be sent. */
    REQUIRE_OK(blip_connection_set_handler(
        pair.accepted, S("unread"), BLIP_HANDLER_STREAM, leave_unread, NULL, NULL));
    blip_message *big = make_request("unread", NULL);
    char *body = calloc(1, SIZE);
    CHECK_OK(blip_message_set_body(big, bytes_slice(body, SIZE)));
    free(body);
    REQUIRE_OK(blip_connection_send(pair.client, big, NULL, NULL, NULL));
    CHECK_STATUS(blip_message_wait_sent(big, 0), BLIP_ERROR_TIMEOUT);
    int64_t start = now_ms();
    CHECK_STATUS(blip_message_wait_sent(big, 100), BLIP_ERROR_TIMEOUT);
    CHECK_AT_LEAST(now_ms() - start, 80);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_STATUS(blip_message_wait_sent(big, SOON), BLIP_ERROR_CLOSED);
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    blip_message_release(atomic_exchange(&unread, NULL));
    blip_message_release(small);
    blip_message_release(big);
    pair_close(&pair);
}

/* Sends what it gets on to another connection, and answers with what comes back. */
struct forward {
    blip_connection *to;
};

static void answer_forwarded(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    blip_slice body = {0};
    (void)connection, (void)request;
    CHECK_OK(status);
    CHECK_OK(blip_message_body(response, &body));
    CHECK_OK(blip_message_respond_data(context, body, S("")));
}

static void release_forwarded(void *context) { blip_message_release(context); }

static blip_status forward(blip_connection *connection, blip_message *request, void *context)
{
    struct forward *forward = context;
    blip_message *copy = NULL;
    (void)connection;
    REQUIRE_OK(blip_message_copy(request, &copy));
    CHECK_OK(blip_message_set_profile(copy, S("echo")));
    CHECK_OK(blip_message_defer(request));
    CHECK_OK(blip_connection_send(
        forward->to, copy, answer_forwarded, blip_message_retain(request), release_forwarded));
    blip_message_release(copy);
    return BLIP_OK;
}

TEST(a_request_is_forwarded_and_sent_again_to_several)
{
    struct pair pair, other;
    struct outcome first, again[2];
    pair_open(&pair, NULL);
    pair_open(&other, NULL);
    struct forward to = {other.client};
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("forward"), 0, forward, &to, NULL));
    blip_message *request = make_request("forward", "hello");
    outcome_init(&first);
    REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &first, outcome_release));
    CHECK(outcome_wait(&first));
    CHECK(strcmp(first.text, "hello") == 0);
    /* One that was sent, to two connections. */
    CHECK_STATUS(blip_connection_send(other.client, request, NULL, NULL, NULL), BLIP_ERROR_IMMUTABLE);
    blip_connection *connections[] = {pair.client, other.client};
    for (int i = 0; i < 2; i++) {
        blip_message *copy = NULL;
        REQUIRE_OK(blip_message_copy(request, &copy));
        CHECK_OK(blip_message_set_profile(copy, S("echo")));
        outcome_init(&again[i]);
        REQUIRE_OK(blip_connection_send(connections[i], copy, outcome_response, &again[i], outcome_release));
        blip_message_release(copy);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(outcome_wait(&again[i]));
        CHECK(strcmp(again[i].text, "hello") == 0);
    }
    blip_message_release(request);
    pair_close(&pair);
    pair_close(&other);
}
