/* Bodies that are received piece by piece, at the pace of the program; progress and sent callbacks; urgency;
 * compression; both subprotocols. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Receives a body of the pattern and checks it as it comes. */
struct drain {
    uint64_t consumed;
    uint32_t seed;
    size_t most;         /* consumed in one call; 0: everything */
    size_t least;        /* leaves less than that for the next call, unless it is the end */
    int calls, ends, losses, after_end, wrong;
    blip_status end_status;
    struct counter began, ended, released;
    blip_message *message; /* retained by whoever wants to read it */
};

static void drain_init(struct drain *drain, uint32_t seed)
{
    memset(drain, 0, sizeof *drain);
    drain->seed = seed;
    counter_init(&drain->began);
    counter_init(&drain->ended);
    counter_init(&drain->released);
}

static size_t drain_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct drain *drain = context;
    (void)message;
    drain->calls++;
    if (drain->ends + drain->losses > 0)
        drain->after_end++;
    size_t take = data.size;
    if (drain->most != 0 && take > drain->most)
        take = drain->most;
    if (data.size < drain->least && status == BLIP_OK)
        take = 0;
    if (!matches_pattern(data.data, data.size, drain->consumed, drain->seed))
        drain->wrong++;
    drain->consumed += take;
    if (status == BLIP_DATA_END && take == data.size) {
        drain->ends++;
        counter_add(&drain->ended, 1);
    } else if (status < 0) {
        drain->losses++;
        drain->end_status = status;
        counter_add(&drain->ended, 1);
    }
    return take;
}

static void drain_released(void *context)
{
    struct drain *drain = context;
    counter_add(&drain->released, 1);
}

static blip_status stream_handler(blip_connection *connection, blip_message *request, void *context)
{
    struct drain *drain = context;
    blip_slice value;
    (void)connection;
    CHECK_OK(blip_message_property(request, S("k"), &value));
    CHECK_TEXT(value, "v");
    CHECK_OK(blip_message_set_data_callback(request, drain_data, drain, drain_released));
    counter_add(&drain->began, 1);
    return BLIP_OK;
}

static blip_message *pattern_request(const char *profile, size_t size, uint32_t seed)
{
    blip_message *request = make_request(profile, NULL);
    unsigned char *bytes = malloc(size + 1);
    fill_pattern(bytes, size, 0, seed);
    CHECK_OK(blip_message_set_property(request, S("k"), S("v")));
    CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, size)));
    free(bytes);
    return request;
}

TEST(a_request_body_comes_in_pieces)
{
    static const size_t sizes[] = {0, 1, 1000, 16384, 100000, 5000000};
    struct pair pair;
    pair_open(&pair, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct drain drain;
        struct outcome outcome;
        drain_init(&drain, 4);
        CHECK_OK(blip_connection_set_handler(
            pair.accepted, S("stream"), BLIP_HANDLER_STREAM, stream_handler, &drain, NULL));
        blip_message *request = pattern_request("stream", sizes[i], 4);
        outcome_init(&outcome);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
        blip_message_release(request);
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
        CHECK(counter_wait(&drain.ended, 1, SOON));
        CHECK(counter_wait(&drain.released, 1, SOON));
        CHECK_INT(drain.consumed, sizes[i]);
        CHECK_INT(drain.wrong, 0);
        CHECK_INT(drain.ends, 1);
        CHECK_INT(drain.losses, 0);
        CHECK_INT(drain.after_end, 0);
        CHECK_INT(counter_get(&drain.began), 1);
        if (sizes[i] > 1000000)
            CHECK_AT_LEAST(drain.calls, 5);
    }
    pair_close(&pair);
}

TEST(data_that_is_not_consumed_is_given_again)
{
    struct pair pair;
    struct drain drain;
    struct outcome outcome;
    pair_open(&pair, NULL);
    drain_init(&drain, 4);
    drain.least = 50000; /* wants at least that much before it takes anything */
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, stream_handler, &drain, NULL));
    blip_message *request = pattern_request("stream", 2000000, 4);
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(counter_wait(&drain.ended, 1, SOON));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(drain.consumed, 2000000);
    CHECK_INT(drain.wrong, 0);
    CHECK_INT(drain.ends, 1);
    pair_close(&pair);
}

static size_t consume_too_much(blip_message *message, blip_slice data, blip_status status, void *context)
{
    (void)message;
    (void)data;
    if (status != BLIP_OK)
        counter_add(context, 1);
    return SIZE_MAX;
}

static blip_status greedy_handler(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    return blip_message_set_data_callback(request, consume_too_much, context, NULL);
}

TEST(consuming_more_than_there_is_consumes_what_there_is)
{
    static struct counter ended = COUNTER;
    static struct outcome outcome;
    struct pair pair;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, greedy_handler, &ended, NULL));
    blip_message *request = pattern_request("stream", 300000, 4);
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(counter_wait(&ended, 1, SOON));
    pair_close(&pair);
}

static blip_status leave_alone(blip_connection *connection, blip_message *request, void *context)
{
    blip_message **kept = context;
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    __atomic_store_n(kept, blip_message_retain(request), __ATOMIC_RELEASE);
    return BLIP_OK;
}

/* Reads until the end with calls of the given capacity; returns the bytes or -1. */
static int64_t read_all(blip_message *message, size_t capacity, uint32_t seed)
{
    unsigned char *buffer = malloc(capacity);
    int64_t total = 0;
    for (;;) {
        size_t size = 0;
        blip_status status = blip_message_read_wait(message, buffer, capacity, SOON, &size);
        if (status != BLIP_OK && status != BLIP_DATA_END) {
            test_note("read_wait after %d bytes: %s", (int)total, blip_status_name(status));
            total = -1;
            break;
        }
        CHECK_AT_MOST(size, capacity);
        CHECK(matches_pattern(buffer, size, (uint64_t)total, seed));
        total += (int64_t)size;
        if (status == BLIP_DATA_END)
            break;
        if (!CHECK_AT_LEAST(size, 1))
            break;
    }
    free(buffer);
    return total;
}

TEST(a_body_is_read_by_a_thread_that_waits)
{
    static const size_t sizes[] = {0, 1, 20000, 3000000};
    struct pair pair;
    pair_open(&pair, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        blip_message *incoming = NULL;
        struct outcome outcome;
        CHECK_OK(blip_connection_set_handler(
            pair.accepted, S("stream"), BLIP_HANDLER_STREAM, leave_alone, &incoming, NULL));
        blip_message *request = pattern_request("stream", sizes[i], 4);
        outcome_init(&outcome);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
        blip_message_release(request);
        int64_t end = now_ms() + SOON;
        while (__atomic_load_n(&incoming, __ATOMIC_ACQUIRE) == NULL && now_ms() < end)
            sleep_ms(1);
        REQUIRE(incoming != NULL);
        CHECK_INT(read_all(incoming, 7777, 4), sizes[i]);
        size_t size = 1;
        char byte;
        CHECK_STATUS(blip_message_read(incoming, &byte, 1, &size), BLIP_DATA_END);
        CHECK_OK(blip_message_respond_text(incoming, S("read it")));
        blip_message_release(incoming);
        CHECK(outcome_wait(&outcome));
        CHECK(strcmp(outcome.text, "read it") == 0);
    }
    pair_close(&pair);
}

TEST(reading_without_waiting)
{
    struct pair pair;
    blip_message *incoming = NULL;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, leave_alone, &incoming, NULL));
    blip_message *request = pattern_request("stream", 500000, 4);
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    int64_t end = now_ms() + SOON, total = 0;
    while (__atomic_load_n(&incoming, __ATOMIC_ACQUIRE) == NULL && now_ms() < end)
        sleep_ms(1);
    REQUIRE(incoming != NULL);
    unsigned char buffer[4096];
    blip_status status = BLIP_OK;
    int agains = 0;
    while (status != BLIP_DATA_END && now_ms() < end) {
        size_t size = 99;
        status = blip_message_read(incoming, buffer, sizeof buffer, &size);
        if (status == BLIP_AGAIN) {
            agains++;
            sleep_ms(1);
            continue;
        }
        if (!CHECK(status == BLIP_OK || status == BLIP_DATA_END))
            break;
        CHECK(matches_pattern(buffer, size, (uint64_t)total, 4));
        total += (int64_t)size;
    }
    CHECK_INT(total, 500000);
    test_note("%d times nothing there", agains);
    blip_message_respond_empty(incoming);
    blip_message_release(incoming);
    CHECK(outcome_wait(&outcome));
    pair_close(&pair);
}

struct streamed_response {
    struct counter responded;
    blip_message *response;
    struct drain *drain;
};

static void begin_drain(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct streamed_response *streamed = context;
    (void)connection;
    (void)request;
    CHECK_OK(status);
    if (response != NULL) {
        streamed->response = blip_message_retain(response);
        if (streamed->drain != NULL)
            CHECK_OK(blip_message_set_data_callback(response, drain_data, streamed->drain, drain_released));
    }
    counter_add(&streamed->responded, 1);
}

static blip_message *source_request(uint64_t size)
{
    blip_message *request = make_request("source", NULL);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)size);
    CHECK_OK(blip_message_set_property(request, S("Size"), S(text)));
    return request;
}

TEST(a_response_body_comes_in_pieces)
{
    struct pair pair;
    pair_open(&pair, NULL);
    for (int reading = 0; reading < 2; reading++) {
        struct drain drain;
        struct streamed_response streamed = {COUNTER, NULL, reading ? NULL : &drain};
        drain_init(&drain, 7);
        blip_message *request = source_request(4000000);
        CHECK_OK(blip_message_set_streamed(request, true));
        CHECK_OK(blip_connection_send(pair.client, request, begin_drain, &streamed, NULL));
        blip_message_release(request);
        CHECK(counter_wait(&streamed.responded, 1, SOON));
        REQUIRE(streamed.response != NULL);
        blip_slice type;
        CHECK_OK(blip_message_content_type(streamed.response, &type));
        CHECK_TEXT(type, "application/octet-stream");
        if (reading) {
            CHECK_INT(read_all(streamed.response, 10000, 7), 4000000);
        } else {
            CHECK(counter_wait(&drain.ended, 1, SOON));
            CHECK_INT(drain.consumed, 4000000);
            CHECK_INT(drain.wrong, 0);
            CHECK_INT(drain.ends, 1);
        }
        blip_message_release(streamed.response);
        if (!reading)
            CHECK(counter_wait(&drain.released, 1, SOON));
        CHECK_INT(counter_get(&streamed.responded), 1);
    }
    pair_close(&pair);
}

TEST(a_waiting_request_may_stream_its_response)
{
    struct pair pair;
    pair_open(&pair, NULL);
    blip_message *request = source_request(2000000), *response = NULL;
    CHECK_OK(blip_message_set_streamed(request, true));
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK_INT(read_all(response, 4096, 7), 2000000);
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

/* A response that fits one frame, streamed, with a deadline that is far away: the deadline must not hold the request. */
TEST(a_short_streamed_response_ends_the_deadline)
{
    struct pair pair;
    struct counter released, answered;
    counter_init(&released);
    counter_init(&answered);
    pair_open(&pair, NULL);
    for (int i = 0; i < 3; i++) {
        blip_message *request = make_request("source", NULL);
        CHECK_OK(blip_message_set_property(request, S("Size"), S("100")));
        CHECK_OK(blip_message_set_streamed(request, true));
        CHECK_OK(blip_message_set_timeout(request, i == 0 ? 10 : 3600000));
        CHECK_OK(blip_message_set_user_data(request, &released, count_release));
        CHECK_OK(blip_connection_send(pair.client, request, NULL, &answered, count_release));
        blip_message_release(request);
    }
    REQUIRE_REACHES(&answered, 3);
    pair_close(&pair);
    REQUIRE_REACHES(&released, 3);
}

TEST(an_unread_streamed_body_is_not_complete)
{
    struct pair pair;
    blip_slice body;
    bool complete = true;
    pair_open(&pair, NULL);
    blip_message *request = source_request(20000000), *response = NULL;
    CHECK_OK(blip_message_set_streamed(request, true));
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK_OK(blip_message_is_complete(response, &complete));
    CHECK(!complete);
    CHECK_STATUS(blip_message_body(response, &body), BLIP_ERROR_NOT_COMPLETE);
    CHECK_INT(read_all(response, 100000, 7), 20000000);
    CHECK_OK(blip_message_is_complete(response, &complete));
    CHECK(complete);
    CHECK_OK(blip_message_body(response, &body));
    CHECK_INT(body.size, 0);
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

/* A source that waits for ever. */
static blip_status never_more(void *buffer, size_t capacity, size_t *written, void *context)
{
    (void)buffer;
    (void)capacity;
    (void)written;
    (void)context;
    return BLIP_AGAIN;
}

TEST(reading_gives_up_after_its_time)
{
    struct pair pair;
    blip_message *incoming = NULL;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, leave_alone, &incoming, NULL));
    /* A body that stops in the middle: its source says AGAIN for ever. */
    blip_message *request = pattern_request("stream", 10000, 4);
    CHECK_OK(blip_message_append_body_pulled(request, never_more, NULL, NULL));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    int64_t end = now_ms() + SOON;
    while (__atomic_load_n(&incoming, __ATOMIC_ACQUIRE) == NULL && now_ms() < end)
        sleep_ms(1);
    REQUIRE(incoming != NULL);
    unsigned char buffer[20000];
    size_t size = 0, total = 0;
    blip_status status;
    while ((status = blip_message_read_wait(incoming, buffer, sizeof buffer, 200, &size)) == BLIP_OK)
        total += size;
    CHECK_STATUS(status, BLIP_ERROR_TIMEOUT);
    CHECK_INT(total, 10000);
    CHECK_STATUS(blip_message_read(incoming, buffer, sizeof buffer, &size), BLIP_AGAIN);
    /* The sender's end ends the reading. */
    blip_connection_close(pair.client, 1000, S(""));
    status = blip_message_read_wait(incoming, buffer, sizeof buffer, SOON, &size);
    CHECK(status < 0 && status != BLIP_ERROR_TIMEOUT);
    blip_message_release(incoming);
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    pair_close(&pair);
}

TEST(a_lost_connection_ends_streamed_bodies_once)
{
    struct pair pair;
    struct drain incoming, response_drain;
    struct streamed_response streamed = {COUNTER, NULL, &response_drain};
    struct outcome outcome;
    pair_open(&pair, NULL);
    drain_init(&incoming, 4);
    drain_init(&response_drain, 7);
    response_drain.most = 1; /* hardly takes anything */
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, stream_handler, &incoming, NULL));
    blip_message *request = pattern_request("stream", 10000, 4);
    CHECK_OK(blip_message_append_body_pulled(request, never_more, NULL, NULL));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    request = source_request(20000000);
    CHECK_OK(blip_message_set_streamed(request, true));
    CHECK_OK(blip_connection_send(pair.client, request, begin_drain, &streamed, NULL));
    blip_message_release(request);
    CHECK(counter_wait(&incoming.began, 1, SOON));
    CHECK(counter_wait(&streamed.responded, 1, SOON));
    blip_connection_close(pair.accepted, 4001, S(""));
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK(counter_wait(&incoming.ended, 1, SOON));
    CHECK_INT(incoming.losses, 1);
    CHECK_INT(incoming.ends, 0);
    CHECK(counter_wait(&response_drain.ended, 1, SOON));
    CHECK_INT(response_drain.losses, 1);
    blip_message_release(streamed.response);
    CHECK(counter_wait(&response_drain.released, 1, SOON));
    CHECK_INT(counter_get(&streamed.responded), 1);
    pair_close(&pair);
    CHECK_INT(incoming.losses, 1);
    CHECK_INT(response_drain.losses, 1);
}

TEST_SECONDS(a_slow_consumer_slows_its_sender_and_costs_little_memory, 60)
{
    struct pair pair;
    blip_message *incoming = NULL;
    struct outcome outcome, small;
    uint64_t sent = 0, size = 120 << 20;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(
        pair.accepted, S("stream"), BLIP_HANDLER_STREAM, leave_alone, &incoming, NULL));
    unsigned char *bytes = malloc(size);
    fill_pattern(bytes, size, 0, 4);
    blip_message *request = make_request("stream", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(bytes, size), NULL, NULL));
    size_t before = resident_bytes();
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    int64_t end = now_ms() + SOON;
    while (__atomic_load_n(&incoming, __ATOMIC_ACQUIRE) == NULL && now_ms() < end)
        sleep_ms(1);
    REQUIRE(incoming != NULL);
    sleep_ms(300);
    /* Nothing is read: the sender has stopped within its window, and others are served. */
    CHECK_OK(blip_message_bytes_sent(request, &sent));
    CHECK_AT_LEAST(sent, 50000);
    CHECK_AT_MOST(sent, 1 << 20);
    CHECK_OK(send_request(pair.client, "echo", "not held up", &small));
    CHECK(outcome_wait(&small));
    CHECK_STATUS(small.status, BLIP_OK);
    CHECK_INT(read_all(incoming, 50000, 4), size);
    size_t after = resident_bytes();
    test_note("memory grew by %d KiB over %d MiB", (int)((int64_t)(after - before) / 1024), (int)(size >> 20));
    /* An address sanitizer keeps freed memory back, to see who uses it. */
    if (!TEST_HAS_ADDRESS_SANITIZER)
        CHECK_AT_MOST((int64_t)after - (int64_t)before, 24 << 20);
    blip_message_respond_empty(incoming);
    blip_message_release(incoming);
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    free(bytes);
    pair_close(&pair);
}

TEST(a_streamed_body_that_nobody_reads_is_thrown_away)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++) {
        blip_message *request = source_request(3000000), *response = NULL;
        CHECK_OK(blip_message_set_streamed(request, true));
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
        blip_message_release(request);
        blip_message_release(response);
    }
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    /* The connection becomes idle: the rest of the bodies was received and dropped. */
    bool active = true;
    int64_t end = now_ms() + SOON;
    while (active && now_ms() < end) {
        sleep_ms(10);
        CHECK_OK(blip_connection_is_active(pair.client, &active));
    }
    CHECK(!active);
    pair_close(&pair);
}

/* ---- sent and progress ---- */

struct progress {
    struct counter sent, reports, released;
    blip_status status;
    uint64_t last;
    int backwards, late;
};

static void on_sent(blip_message *message, blip_status status, void *context)
{
    struct progress *progress = context;
    bool sent = false;
    CHECK_OK(blip_message_is_sent(message, &sent));
    if (status == BLIP_OK)
        CHECK(sent);
    progress->status = status;
    counter_add(&progress->sent, 1);
}

static void on_progress(blip_message *message, uint64_t sent, void *context)
{
    struct progress *progress = context;
    (void)message;
    progress->backwards += sent < progress->last;
    progress->late += counter_get(&progress->sent) != 0;
    progress->last = sent;
    counter_add(&progress->reports, 1);
}

static void on_progress_released(void *context)
{
    struct progress *progress = context;
    counter_add(&progress->released, 1);
}

static void progress_attach(struct progress *progress, blip_message *message)
{
    memset(progress, 0, sizeof *progress);
    counter_init(&progress->sent);
    counter_init(&progress->reports);
    counter_init(&progress->released);
    progress->status = 12345;
    CHECK_OK(blip_message_set_sent_callback(message, on_sent, progress, on_progress_released));
    CHECK_OK(blip_message_set_progress_callback(message, on_progress, progress, on_progress_released));
}

TEST(sent_and_progress_are_reported)
{
    static const size_t sizes[] = {0, 10, 100000, 5000000};
    struct pair pair;
    pair_open(&pair, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct progress progress;
        struct outcome outcome;
        uint64_t bytes = 0;
        blip_message *request = pattern_request("sink", sizes[i], 4);
        progress_attach(&progress, request);
        outcome_init(&outcome);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
        CHECK_OK(blip_message_wait_sent(request, SOON));
        CHECK(outcome_wait(&outcome));
        CHECK(counter_wait(&progress.sent, 1, SOON));
        CHECK_STATUS(progress.status, BLIP_OK);
        CHECK_OK(blip_message_bytes_sent(request, &bytes));
        CHECK_INT(bytes, sizes[i]);
        if (sizes[i] > 0)
            CHECK_INT(progress.last, sizes[i]);
        if (sizes[i] > 1000000)
            CHECK_AT_LEAST(counter_get(&progress.reports), 3);
        CHECK_INT(progress.backwards, 0);
        CHECK_INT(progress.late, 0);
        blip_message_release(request);
        CHECK(counter_wait(&progress.released, 2, SOON));
        CHECK_INT(counter_get(&progress.released), 2);
        CHECK_INT(counter_get(&progress.sent), 1);
    }
    pair_close(&pair);
}

TEST(what_is_never_sent_is_reported_once)
{
    int descriptor;
    char url[64];
    struct progress progress;
    struct outcome outcome;
    blip_connection *client = NULL;
    blip_runtime *runtime = make_runtime(1);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &client));
    CHECK_OK(blip_connection_connect(client));
    blip_message *request = make_request("x", "y");
    progress_attach(&progress, request);
    outcome_init(&outcome);
    CHECK_STATUS(blip_message_wait_sent(request, 10), BLIP_ERROR_STATE);
    CHECK_OK(blip_connection_send(client, request, outcome_response, &outcome, outcome_release));
    CHECK_STATUS(blip_message_wait_sent(request, 50), BLIP_ERROR_TIMEOUT);
    blip_connection_close(client, 1000, S(""));
    CHECK(outcome_wait(&outcome));
    CHECK(counter_wait(&progress.sent, 1, SOON));
    CHECK_STATUS(progress.status, BLIP_ERROR_CLOSED);
    CHECK_STATUS(blip_message_wait_sent(request, SOON), BLIP_ERROR_CLOSED);
    blip_message_release(request);
    CHECK(counter_wait(&progress.released, 2, SOON));
    CHECK_INT(counter_get(&progress.sent), 1);
    blip_connection_release(client);
    drop_runtime(runtime);
}

TEST(the_sent_callback_of_a_message_that_is_dropped)
{
    struct progress progress;
    blip_message *request = make_request("x", "y");
    progress_attach(&progress, request);
    blip_message_release(request);
    /* Nobody tried to send it: the contexts are released, whether or not the callback tells. */
    CHECK(counter_wait(&progress.released, 2, SOON));
    CHECK_AT_MOST(counter_get(&progress.sent), 1);
}

static blip_status respond_with_progress(blip_connection *connection, blip_message *request, void *context)
{
    struct progress *progress = context;
    blip_message *response = NULL;
    (void)connection;
    static unsigned char body[300000];
    CHECK_OK(blip_response_new(request, &response));
    CHECK_OK(blip_message_set_body(response, bytes_slice(body, sizeof body)));
    progress_attach(progress, response);
    CHECK_OK(blip_message_respond(request, response));
    blip_message_release(response);
    return BLIP_OK;
}

TEST(responses_report_too)
{
    struct pair pair;
    struct progress progress;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("p"), 0, respond_with_progress, &progress, NULL));
    CHECK_OK(send_request(pair.client, "p", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.size, 300000);
    CHECK(counter_wait(&progress.sent, 1, SOON));
    CHECK_STATUS(progress.status, BLIP_OK);
    CHECK_INT(progress.last, 300000);
    CHECK(counter_wait(&progress.released, 2, SOON));
    pair_close(&pair);
}

/* ---- urgency ---- */

TEST(urgent_messages_overtake_bulk)
{
    struct pair pair;
    struct outcome bulk[4], urgent[20];
    pair_open(&pair, NULL);
    size_t size = 30 << 20;
    void *bytes = calloc(1, size);
    for (int i = 0; i < 4; i++) {
        blip_message *request = make_request("sink", NULL);
        CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(bytes, size), NULL, NULL));
        outcome_init(&bulk[i]);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &bulk[i], outcome_release));
        blip_message_release(request);
    }
    int64_t longest = 0;
    int overtaken = 0;
    for (int i = 0; i < 20; i++) {
        blip_message *request = make_request("echo", "now!");
        CHECK_OK(blip_message_set_urgent(request, true));
        outcome_init(&urgent[i]);
        int64_t start = now_ms();
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &urgent[i], outcome_release));
        blip_message_release(request);
        CHECK(outcome_wait(&urgent[i]));
        if (now_ms() - start > longest)
            longest = now_ms() - start;
        overtaken += counter_get(&bulk[3].done) == 0;
    }
    test_note("the slowest urgent request took %d ms", (int)longest);
    for (int i = 0; i < 4; i++) {
        CHECK(counter_wait(&bulk[i].done, 1, 15000));
        CHECK_STATUS(bulk[i].status, BLIP_OK);
    }
    CHECK_AT_LEAST(overtaken, 1);
    CHECK_AT_MOST(longest, 2000);
    free(bytes);
    pair_close(&pair);
}

TEST(big_messages_share_the_connection)
{
    struct pair pair;
    struct outcome big, small;
    pair_open(&pair, NULL);
    size_t size = 60 << 20;
    void *bytes = calloc(1, size);
    blip_message *request = make_request("sink", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(bytes, size), NULL, NULL));
    outcome_init(&big);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &big, outcome_release));
    blip_message_release(request);
    CHECK_OK(send_request(pair.client, "echo", "small", &small));
    CHECK(outcome_wait(&small));
    CHECK_INT(counter_get(&big.done), 0);
    CHECK(counter_wait(&big.done, 1, 15000));
    CHECK_STATUS(big.status, BLIP_OK);
    free(bytes);
    pair_close(&pair);
}

/* ---- compression ---- */

TEST(compression_saves_bytes_and_changes_nothing)
{
    static const int32_t which[] = {BLIP_COUNTER_BYTES_SENT};
    struct pair pair;
    uint64_t before = 0, after = 0;
    pair_open(&pair, NULL);
    size_t size = 1 << 20;
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = "the same words again and again, "[i % 32];
    for (int level = 0; level < 2; level++) {
        blip_message *request = make_request("echo", NULL), *response = NULL;
        blip_slice body;
        uint32_t flags = 0;
        CHECK_OK(blip_message_set_body(request, bytes_slice(text, size)));
        CHECK_OK(blip_message_set_compressed(request, level == 1));
        CHECK_OK(blip_connection_counter_values(pair.client, which, &before, 1));
        if (level == 1)
            CHECK_OK(blip_message_set_property(request, S("Compressed"), S("yes")));
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
        CHECK_OK(blip_connection_counter_values(pair.client, which, &after, 1));
        CHECK_OK(blip_message_body(response, &body));
        CHECK(body.size == size && memcmp(body.data, text, size) == 0);
        CHECK_OK(blip_message_flags(response, &flags));
        CHECK_INT(flags, level == 1 ? BLIP_FLAG_COMPRESSED : 0);
        if (level == 1)
            CHECK_AT_MOST(after - before, size / 20);
        else
            CHECK_AT_LEAST(after - before, size);
        blip_message_release(request);
        blip_message_release(response);
    }
    free(text);
    pair_close(&pair);
}

TEST(every_compression_level)
{
    for (int level = 0; level <= 9; level++) {
        struct pair pair;
        struct outcome outcome;
        blip_listener_options *listener = blip_listener_options_new();
        blip_connection_options *client = blip_connection_options_new();
        CHECK_OK(blip_connection_options_set_compression_level(client, level));
        CHECK_OK(blip_listener_options_set_compression_level(listener, level));
        pair_open(&pair, &(struct pair_options){.listener = listener, .client = client});
        for (int i = 0; i < 20; i++) {
            size_t size = (size_t)i * 3001;
            blip_message *request = pattern_request("echo", size, 4), *response = NULL;
            blip_slice body;
            CHECK_OK(blip_message_set_compressed(request, i % 4 != 0));
            if (i % 3 != 0)
                CHECK_OK(blip_message_set_property(request, S("Compressed"), S("yes")));
            REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
            CHECK_OK(blip_message_body(response, &body));
            CHECK(body.size == size && matches_pattern(body.data, size, 0, 4));
            blip_message_release(request);
            blip_message_release(response);
        }
        CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
        CHECK(outcome_wait(&outcome));
        pair_close(&pair);
    }
    blip_connection_options *options = blip_connection_options_new();
    CHECK_STATUS(blip_connection_options_set_compression_level(options, -1), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_compression_level(options, 10), BLIP_ERROR_ARGUMENT);
    blip_connection_options_release(options);
}

/* ---- subprotocols ---- */

static void with_protocol(const char *offered, const char *supported, int32_t expected)
{
    struct pair pair;
    int32_t version = 0;
    blip_slice name;
    blip_connection_options *client = blip_connection_options_new();
    blip_listener_options *listener = blip_listener_options_new();
    CHECK_OK(blip_connection_options_add_subprotocol(client, S(offered)));
    if (supported != NULL)
        CHECK_OK(blip_listener_options_add_subprotocol(listener, S(supported)));
    pair_open(&pair, &(struct pair_options){.listener = listener, .client = client});
    CHECK_OK(blip_connection_protocol_version(pair.client, &version));
    CHECK_INT(version, expected);
    CHECK_OK(blip_connection_protocol_version(pair.accepted, &version));
    CHECK_INT(version, expected);
    CHECK_OK(blip_connection_subprotocol(pair.client, &name));
    CHECK_TEXT(name, offered);
    CHECK_OK(blip_connection_subprotocol(pair.accepted, &name));
    CHECK_TEXT(name, offered);
    static const size_t sizes[] = {0, 5, 16384, 200000, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int compressed = 0; compressed < 2; compressed++) {
            blip_message *request = pattern_request("echo", sizes[i], 4), *response = NULL;
            blip_slice body;
            CHECK_OK(blip_message_set_content_type(request, S("application/json")));
            CHECK_OK(blip_message_set_compressed(request, compressed));
            if (compressed)
                CHECK_OK(blip_message_set_property(request, S("Compressed"), S("yes")));
            REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
            CHECK_OK(blip_message_body(response, &body));
            if (!CHECK(body.size == sizes[i] && matches_pattern(body.data, body.size, 0, 4)))
                test_note("%s, %zu bytes, compressed %d", offered, sizes[i], compressed);
            if (!compressed) {
                CHECK_OK(blip_message_content_type(response, &body));
                CHECK_TEXT(body, "application/json");
            }
            blip_message_release(request);
            blip_message_release(response);
        }
    struct outcome outcome;
    CHECK_OK(send_request(pair.client, "error", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.error_code, -7);
    CHECK_OK(send_request(pair.client, "nobody", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.error_code, 404);
    pair_close(&pair);
}

TEST(the_subprotocol_blip_3)
{
    with_protocol("BLIP_3", NULL, 3);
}

TEST(the_subprotocol_blip)
{
    with_protocol("BLIP", NULL, 2);
}

TEST(the_subprotocol_of_an_application)
{
    with_protocol("BLIP_3+CBMobile_3", "BLIP_3+CBMobile_3", 3);
}

static void expect_subprotocol_failure(const char *offered, const char *supported)
{
    struct pair pair;
    blip_connection *client = NULL;
    blip_error *error = NULL;
    blip_slice text;
    blip_connection_options *options = blip_connection_options_new();
    blip_listener_options *listener = blip_listener_options_new();
    CHECK_OK(blip_connection_options_add_subprotocol(options, S(offered)));
    CHECK_OK(blip_listener_options_add_subprotocol(listener, S(supported)));
    pair_open(&pair, &(struct pair_options){.listener = listener, .no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &client));
    blip_connection_options_release(options);
    CHECK_STATUS(blip_connection_wait_open(client, SOON), BLIP_ERROR_HTTP_STATUS);
    REQUIRE_OK(blip_connection_error(client, &error));
    int64_t code = 0;
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, 400);
    CHECK_OK(blip_error_message(error, &text));
    test_note("%.*s", (int)text.size, (const char *)text.data);
    CHECK_INT(counter_get(&pair.server_opened), 0);
    blip_connection_release(client);
    pair_close(&pair);
}

TEST(subprotocols_that_do_not_agree)
{
    expect_subprotocol_failure("BLIP_3", "BLIP");
    expect_subprotocol_failure("BLIP_3", "BLIP_3+CBMobile_3");
    expect_subprotocol_failure("BLIP_3+CBMobile_2", "BLIP_3+CBMobile_3");
}

TEST(the_client_prefers)
{
    struct pair pair;
    int32_t version = 0;
    blip_connection_options *client = blip_connection_options_new();
    CHECK_OK(blip_connection_options_add_subprotocol(client, S("BLIP")));
    CHECK_OK(blip_connection_options_add_subprotocol(client, S("BLIP_3")));
    pair_open(&pair, &(struct pair_options){.client = client});
    CHECK_OK(blip_connection_protocol_version(pair.client, &version));
    CHECK_INT(version, 2);
    pair_close(&pair);
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_protocol_version(pair.client, &version));
    CHECK_INT(version, 3);
    pair_close(&pair);
    client = blip_connection_options_new();
    static const char *const bad[] = {"", "BLIP_4", "BLIP_3+", "x y", "BLIP_3, BLIP", "blip"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK(blip_connection_options_add_subprotocol(client, S(bad[i])) < 0))
            test_note("\"%s\" was taken", bad[i]);
    blip_connection_options_release(client);
}

TEST(every_frame_size)
{
    static const uint32_t sizes[] = {256, 1000, 4096, 16384, 32768, 65536, 262144};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pair pair;
        blip_listener_options *listener = blip_listener_options_new();
        blip_connection_options *client = blip_connection_options_new();
        blip_status first = blip_connection_options_set_frame_size(client, sizes[i]);
        blip_status second = blip_listener_options_set_frame_size(listener, sizes[i]);
        if (!CHECK(first == BLIP_OK && second == BLIP_OK))
            test_note("frames of %u", sizes[i]);
        pair_open(&pair, &(struct pair_options){.listener = listener, .client = client});
        blip_message *request = pattern_request("echo", 500000, 4), *response = NULL;
        blip_slice body;
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
        CHECK_OK(blip_message_body(response, &body));
        CHECK(body.size == 500000 && matches_pattern(body.data, body.size, 0, 4));
        blip_message_release(request);
        blip_message_release(response);
        pair_close(&pair);
    }
    blip_connection_options *options = blip_connection_options_new();
    CHECK(blip_connection_options_set_frame_size(options, 0) < 0);
    CHECK_STATUS(blip_connection_options_set_frame_size(options, 255), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_frame_size(options, 262145), BLIP_ERROR_ARGUMENT);
    CHECK(blip_connection_options_set_frame_size(options, UINT32_MAX) < 0);
    blip_connection_options_release(options);
}
