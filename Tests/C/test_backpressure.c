/* Backpressure as the program sees it: marks of the backlog, streamed bodies that are paused, slow consumers. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- marks ---- */

struct marks {
    struct counter told, above, below;
    atomic_ullong bytes;
    atomic_int released;
};

static void tell_marks(blip_connection *connection, blip_status status, uint64_t bytes, void *context)
{
    struct marks *marks = context;
    (void)connection;
    atomic_store(&marks->bytes, bytes);
    counter_add(status == BLIP_AGAIN ? &marks->above : &marks->below, 1);
    counter_add(&marks->told, 1);
}

static void release_marks(void *context) { atomic_fetch_add(&((struct marks *)context)->released, 1); }

static void init_marks(struct marks *marks)
{
    memset(marks, 0, sizeof *marks);
    counter_init(&marks->told);
    counter_init(&marks->above);
    counter_init(&marks->below);
}

/* Takes a request and reads nothing of it. */
static blip_message *_Atomic held;

static blip_status hold(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection, (void)context;
    CHECK_OK(blip_message_defer(request));
    CHECK_OK(blip_message_pause_reading(request));
    atomic_store(&held, blip_message_retain(request));
    return BLIP_OK;
}

/* Reads all that a held request has, and answers. */
static void drain_held(void)
{
    static char buffer[65536];
    size_t size = 0;
    blip_message *request = NULL;
    for (int64_t end = now_ms() + SOON; request == NULL && now_ms() < end; sleep_ms(1))
        request = atomic_exchange(&held, NULL);
    REQUIRE(request != NULL);
    while (blip_message_read_wait(request, buffer, sizeof buffer, SOON, &size) == BLIP_OK)
        continue;
    CHECK_OK(blip_message_respond_empty(request));
    blip_message_release(request);
}

static blip_message *big_request(const char *profile, size_t size)
{
    blip_message *request = make_request(profile, NULL);
    char *body = calloc(1, size);
    CHECK_OK(blip_message_set_body(request, bytes_slice(body, size)));
    free(body);
    return request;
}

enum { BIG = 1 << 20 };

TEST(marks_tell_of_too_much_and_of_room)
{
    struct pair pair;
    struct marks marks;
    struct outcome outcome;
    uint64_t backlog = 0;
    pair_open(&pair, NULL);
    init_marks(&marks);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("hold"), BLIP_HANDLER_STREAM, hold, NULL, NULL));
    CHECK_STATUS(
        blip_connection_set_backlog_callback(pair.client, 2, 1, tell_marks, &marks, release_marks),
        BLIP_ERROR_ARGUMENT);
    CHECK_INT(atomic_load(&marks.released), 1);
    REQUIRE_OK(blip_connection_set_backlog_callback(
        pair.client, BIG / 2, 2 * BIG - 1, tell_marks, &marks, release_marks));
    /* At once how things are. */
    REQUIRE_REACHES(&marks.below, 1);
    blip_message *request = big_request("hold", BIG);
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    /* It counts as soon as it is accepted, whoever has seen it. */
    CHECK_OK(blip_connection_backlog(pair.client, &backlog));
    CHECK_AT_LEAST((int64_t)backlog, BIG);
    sleep_ms(50);
    CHECK_INT(counter_get(&marks.told), 1);
    /* The second one passes the high mark. */
    struct outcome more;
    outcome_init(&more);
    request = big_request("sink", BIG);
    REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &more, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&more));
    REQUIRE_REACHES(&marks.above, 1);
    CHECK_AT_LEAST((int64_t)atomic_load(&marks.bytes), BIG);
    /* One of them is on its way, the other one waits: between the marks nothing is told. */
    sleep_ms(50);
    CHECK_INT(counter_get(&marks.below), 1);
    drain_held();
    CHECK(outcome_wait(&outcome));
    REQUIRE_REACHES(&marks.below, 2);
    CHECK_AT_MOST((int64_t)atomic_load(&marks.bytes), BIG / 2);
    REQUIRE_REACHES(&marks.told, 3);
    CHECK_INT(counter_get(&marks.told), 3);
    /* Taken away: nothing more is told. */
    CHECK_OK(blip_connection_set_backlog_callback(pair.client, 0, 0, NULL, NULL, NULL));
    for (int i = 0; i < 200 && atomic_load(&marks.released) < 2; i++)
        sleep_ms(10);
    CHECK_INT(atomic_load(&marks.released), 2);
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(counter_get(&marks.told), 3);
    pair_close(&pair);
    CHECK_STATUS(
        blip_connection_set_backlog_callback(pair.client, 0, 1, tell_marks, &marks, NULL), BLIP_ERROR_HANDLE);
}

TEST(marks_are_told_before_the_end_and_never_after)
{
    struct pair pair;
    struct marks marks;
    pair_open(&pair, NULL);
    init_marks(&marks);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("hold"), BLIP_HANDLER_STREAM, hold, NULL, NULL));
    REQUIRE_OK(blip_connection_set_backlog_callback(pair.client, 0, 1000, tell_marks, &marks, release_marks));
    blip_message *request = big_request("hold", BIG);
    REQUIRE_OK(blip_connection_send(pair.client, request, NULL, NULL, NULL));
    blip_message_release(request);
    REQUIRE_REACHES(&marks.above, 1);
    blip_connection_close(pair.client, 1000, S(""));
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    int64_t told = counter_get(&marks.told);
    sleep_ms(50);
    CHECK_INT(counter_get(&marks.told), told);
    CHECK_INT(atomic_load(&marks.released), 1);
    CHECK_STATUS(
        blip_connection_set_backlog_callback(pair.client, 0, 1, tell_marks, &marks, release_marks),
        BLIP_ERROR_CLOSED);
    CHECK_INT(atomic_load(&marks.released), 2);
    blip_message_release(atomic_exchange(&held, NULL));
    pair_close(&pair);
}

static void play_marks_with_queue(bool pull)
{
    struct pair pair;
    struct marks marks;
    blip_queue *queue = NULL;
    int64_t end = now_ms() + SOON;
    size_t count = 0;
    REQUIRE_OK(blip_queue_new(0, &queue));
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_queue(options, queue));
    struct pair_options with = {.client = options, .no_client = true};
    pair_open(&pair, &with);
    options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &pair.client));
    blip_connection_options_release(options);
    init_marks(&marks);
    REQUIRE_OK(blip_connection_set_backlog_callback(
        pair.client, 0, 1000, pull ? NULL : tell_marks, &marks, release_marks));
    REQUIRE_OK(blip_connection_wait_open(pair.client, SOON));
    blip_message *request = big_request("sink", BIG);
    REQUIRE_OK(blip_connection_send(pair.client, request, NULL, NULL, NULL));
    blip_message_release(request);
    while (counter_get(&marks.below) < 2 && now_ms() < end) {
        if (!pull) {
            CHECK_OK(blip_queue_dispatch(queue, 10, 100, &count));
            continue;
        }
        blip_event *event = NULL;
        CHECK_OK(blip_queue_next(queue, &event, 1, 100, &count));
        if (count == 0)
            continue;
        int32_t kind = 0;
        int64_t value = -1;
        void *context = NULL;
        CHECK_OK(blip_event_kind(event, &kind));
        CHECK_INT(kind, BLIP_EVENT_BACKLOG);
        CHECK_OK(blip_event_value(event, &value));
        CHECK_OK(blip_event_context(event, &context));
        CHECK_POINTER(context, &marks);
        CHECK_POINTER(blip_event_connection(event), pair.client);
        tell_marks(pair.client, blip_event_status(event), (uint64_t)value, &marks);
        blip_event_release(event);
    }
    CHECK_INT(counter_get(&marks.above), 1);
    CHECK_INT(counter_get(&marks.below), 2);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    blip_connection_release(pair.client);
    pair.client = NULL;
    blip_queue_release(queue);
    for (int i = 0; i < 200 && atomic_load(&marks.released) < 1; i++)
        sleep_ms(10);
    CHECK_INT(atomic_load(&marks.released), 1);
    pair_close(&pair);
}

TEST(marks_are_dispatched) { play_marks_with_queue(false); }
TEST(marks_are_pulled) { play_marks_with_queue(true); }

/* ---- pausing ---- */

struct reader {
    atomic_size_t taken;
    atomic_size_t pause_at; /* pauses when it has taken that many */
    bool wrong;
    struct counter paused, ended;
    blip_status end;
    atomic_int calls, released;
};

static size_t take(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct reader *reader = context;
    size_t taken = atomic_load(&reader->taken);
    atomic_fetch_add(&reader->calls, 1);
    reader->wrong |= !matches_pattern(data.data, data.size, taken, 7);
    atomic_store(&reader->taken, taken + data.size);
    if (status != BLIP_OK) {
        reader->end = status;
        counter_add(&reader->ended, 1);
    } else if (reader->pause_at != 0 && taken + data.size >= reader->pause_at) {
        CHECK_OK(blip_message_pause_reading(message));
        counter_add(&reader->paused, 1);
    }
    return data.size;
}

static void release_reader(void *context) { atomic_fetch_add(&((struct reader *)context)->released, 1); }

static void init_reader(struct reader *reader, size_t pause_at)
{
    memset(reader, 0, sizeof *reader);
    counter_init(&reader->paused);
    counter_init(&reader->ended);
    reader->pause_at = pause_at;
}

static blip_message *ask_for(blip_connection *connection, size_t size)
{
    char text[32];
    blip_message *request = make_request("source", NULL), *response = NULL;
    snprintf(text, sizeof text, "%zu", size);
    CHECK_OK(blip_message_set_property(request, S("Size"), S(text)));
    CHECK_OK(blip_message_set_streamed(request, true));
    REQUIRE_OK(blip_connection_request(connection, request, SOON, &response));
    blip_message_release(request);
    return response;
}

TEST(a_paused_body_waits_and_others_go_on)
{
    enum { SIZE = 3000000 };
    struct pair pair;
    struct reader reader, other;
    struct outcome outcome;
    pair_open(&pair, NULL);
    init_reader(&reader, 100000);
    init_reader(&other, 0);
    blip_message *response = ask_for(pair.client, SIZE);
    REQUIRE_OK(blip_message_set_data_callback(response, take, &reader, release_reader));
    for (size_t done = 0; done < SIZE && counter_get(&reader.ended) == 0;) {
        if (!counter_wait(&reader.paused, counter_get(&reader.paused) == 0, SOON))
            break;
        sleep_ms(20);
        int calls = atomic_load(&reader.calls);
        if (done == 0) {
            /* Others go on, whole ones and streamed ones. */
            CHECK_OK(send_request(pair.client, "echo", "hello", &outcome));
            CHECK(outcome_wait(&outcome));
            blip_message *second = ask_for(pair.client, SIZE);
            CHECK_OK(blip_message_set_data_callback(second, take, &other, release_reader));
            REQUIRE_REACHES(&other.ended, 1);
            CHECK_INT(atomic_load(&other.taken), SIZE);
            blip_message_release(second);
            /* It stands still, with little of it held. */
            CHECK_INT(atomic_load(&reader.calls), calls);
            uint64_t size = 0;
            CHECK_OK(blip_message_body_size(response, &size));
            CHECK_AT_MOST((int64_t)size, 100000 + 400000);
            bool complete = true;
            CHECK_OK(blip_message_is_complete(response, &complete));
            CHECK(!complete);
        }
        done = atomic_load(&reader.taken);
        reader.pause_at = done + 500000;
        int64_t paused = counter_get(&reader.paused);
        CHECK_OK(blip_message_resume_reading(response));
        for (int64_t end = now_ms() + SOON;
             counter_get(&reader.paused) == paused && counter_get(&reader.ended) == 0 && now_ms() < end; sleep_ms(1))
            continue;
    }
    REQUIRE_REACHES(&reader.ended, 1);
    CHECK_INT(reader.end, BLIP_DATA_END);
    CHECK_INT(atomic_load(&reader.taken), SIZE);
    CHECK(!reader.wrong && !other.wrong);
    CHECK_INT(counter_get(&reader.ended), 1);
    for (int i = 0; i < 200 && atomic_load(&reader.released) == 0; i++)
        sleep_ms(10);
    CHECK_INT(atomic_load(&reader.released), 1);
    blip_message_release(response);
    pair_close(&pair);
}

TEST(the_end_waits_while_paused)
{
    enum { SIZE = 90000 };
    struct pair pair;
    struct reader reader;
    bool complete = false;
    pair_open(&pair, NULL);
    init_reader(&reader, 0);
    blip_message *response = ask_for(pair.client, SIZE);
    CHECK_OK(blip_message_pause_reading(response));
    CHECK_OK(blip_message_pause_reading(response));
    REQUIRE_OK(blip_message_set_data_callback(response, take, &reader, release_reader));
    for (int i = 0; i < 500 && !complete; i++) {
        sleep_ms(10);
        CHECK_OK(blip_message_is_complete(response, &complete));
    }
    CHECK(complete);
    CHECK_INT(atomic_load(&reader.calls), 0);
    CHECK_OK(blip_message_resume_reading(response));
    REQUIRE_REACHES(&reader.ended, 1);
    CHECK_INT(atomic_load(&reader.taken), SIZE);
    CHECK(!reader.wrong);
    CHECK_OK(blip_message_resume_reading(response));
    sleep_ms(30);
    CHECK_INT(counter_get(&reader.ended), 1);
    CHECK_INT(atomic_load(&reader.released), 1);
    blip_message_release(response);
    /* Of what is not streamed nothing can be paused. */
    blip_message *request = make_request("echo", "x");
    CHECK_STATUS(blip_message_pause_reading(request), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK_STATUS(blip_message_pause_reading(response), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_message_resume_reading(response), BLIP_ERROR_STATE);
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

TEST(a_failure_is_told_while_paused)
{
    struct pair pair;
    struct reader reader;
    pair_open(&pair, NULL);
    init_reader(&reader, 0);
    blip_message *response = ask_for(pair.client, 10000000);
    CHECK_OK(blip_message_pause_reading(response));
    REQUIRE_OK(blip_message_set_data_callback(response, take, &reader, release_reader));
    sleep_ms(30);
    CHECK_INT(atomic_load(&reader.calls), 0);
    blip_connection_close(pair.client, 1000, S(""));
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_INT(counter_get(&reader.ended), 1);
    CHECK_INT(reader.end, BLIP_ERROR_CLOSED);
    CHECK(!reader.wrong);
    CHECK_STATUS(blip_message_resume_reading(response), BLIP_ERROR_CLOSED);
    blip_message_release(response);
    pair_close(&pair);
}

/* ---- a slow consumer ---- */

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

/* SLOW_MEGABYTES=200 is the whole thing: twenty seconds. */
TEST_SECONDS(a_slow_consumer_takes_no_memory_and_no_time_of_others, 180)
{
    enum { RATE = 10000000, MOST = 100000 };
    static int64_t times[MOST];
    const char *megabytes = getenv("SLOW_MEGABYTES");
    size_t size = (megabytes != NULL ? (size_t)atol(megabytes) : 20) * 1000000;
    struct pair pair;
    struct reader reader;
    size_t count = 0, resident = 0, most = 0;
    pair_open(&pair, NULL);
    init_reader(&reader, RATE / 50);
    blip_message *warm = ask_for(pair.client, 2000000);
    struct reader other;
    init_reader(&other, 0);
    REQUIRE_OK(blip_message_set_data_callback(warm, take, &other, NULL));
    REQUIRE_REACHES(&other.ended, 1);
    blip_message_release(warm);

    int64_t start = now_us();
    blip_message *response = ask_for(pair.client, size);
    REQUIRE_OK(blip_message_set_data_callback(response, take, &reader, NULL));
    while (counter_get(&reader.ended) == 0) {
        int64_t began = now_us();
        blip_message *request = make_request("echo", "hello"), *answer = NULL;
        CHECK_OK(blip_message_set_urgent(request, true));
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &answer));
        blip_message_release(request);
        blip_message_release(answer);
        if (count < MOST)
            times[count++] = now_us() - began;
        sleep_ms(2);
        size_t now = resident_bytes();
        if (count == 50)
            resident = now;
        most = now > most ? now : most;
        /* It takes what is due, and pauses. */
        size_t due = (size_t)((now_us() - start) * (RATE / 1000000));
        if (due > atomic_load(&reader.taken)) {
            reader.pause_at = due;
            CHECK_OK(blip_message_resume_reading(response));
        }
    }
    double seconds = (double)(now_us() - start) / 1e6;
    CHECK_INT(atomic_load(&reader.taken), size);
    CHECK(!reader.wrong);
    blip_message_release(response);
    qsort(times, count, sizeof times[0], compare);
    REQUIRE(count > 50);
    test_note("%zu MB in %.1f s; %zu urgent round trips, median %lld us; %lld KiB more resident", size / 1000000,
        seconds, count, (long long)times[count / 2], ((long long)most - (long long)resident) / 1024);
    CHECK(seconds >= (double)size / RATE * 0.8);
    if (!TEST_HAS_SANITIZER)
        CHECK_AT_MOST((int64_t)(most - resident), 2000000);
    /* 5 ms are for a machine that has nothing else to do. */
    CHECK_AT_MOST(times[count / 2], megabytes != NULL ? 5000 : 100000);
    pair_close(&pair);
}
