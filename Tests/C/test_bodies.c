/* Bodies of all sources: copied, borrowed, file ranges, pulled; in order; and big ones both ways. */

#define _GNU_SOURCE

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The server hands the whole body to the test. */
struct catch {
    struct counter caught;
    unsigned char *bytes;
    size_t size;
};

static blip_status catch_body(blip_connection *connection, blip_message *request, void *context)
{
    struct catch *catch = context;
    blip_slice body;
    (void)connection;
    CHECK_OK(blip_message_body(request, &body));
    free(catch->bytes);
    catch->bytes = malloc(body.size + 1);
    memcpy(catch->bytes, body.size ? body.data : "", body.size);
    catch->size = body.size;
    counter_add(&catch->caught, 1);
    return BLIP_OK;
}

struct rig {
    struct pair pair;
    struct catch catch;
};

static void rig_open(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    counter_init(&rig->catch.caught);
    pair_open(&rig->pair, NULL);
    CHECK_OK(blip_connection_set_handler(rig->pair.accepted, S("catch"), 0, catch_body, &rig->catch, NULL));
}

static void rig_close(struct rig *rig)
{
    pair_close(&rig->pair);
    free(rig->catch.bytes);
}

/* Sends and releases the request; its body has arrived when this returns. */
static void rig_send(struct rig *rig, blip_message *request)
{
    struct outcome outcome;
    int64_t before = counter_get(&rig->catch.caught);
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(rig->pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(counter_get(&rig->catch.caught), before + 1);
}

#define CHECK_CAUGHT(rig_, text_) \
    test_check_bytes((rig_)->catch.bytes, (rig_)->catch.size, (text_), sizeof(text_) - 1, __FILE__, __LINE__, "body")

TEST(borrowed_bytes_are_released_once_after_sending)
{
    struct rig rig;
    struct counter released = COUNTER;
    static char text[] = "borrowed bytes";
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(text, sizeof text - 1), count_release, &released));
    CHECK_INT(counter_get(&released), 0);
    rig_send(&rig, request);
    CHECK_CAUGHT(&rig, "borrowed bytes");
    CHECK(counter_wait(&released, 1, SOON));
    sleep_ms(20);
    CHECK_INT(counter_get(&released), 1);
    rig_close(&rig);
}

TEST(borrowed_bytes_of_a_message_that_is_never_sent)
{
    struct counter released = COUNTER, empty = COUNTER, replaced = COUNTER;
    blip_message *request = make_request("x", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, S("borrowed"), count_release, &released));
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(NULL, 0), count_release, &empty));
    blip_message_release(request);
    CHECK_INT(counter_get(&released), 1);
    CHECK_INT(counter_get(&empty), 1);
    request = make_request("x", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, S("borrowed"), count_release, &replaced));
    CHECK_OK(blip_message_set_body(request, S("instead")));
    CHECK_INT(counter_get(&replaced), 1);
    blip_message_release(request);
    CHECK_INT(counter_get(&replaced), 1);
}

TEST(big_borrowed_bytes_arrive_unchanged)
{
    struct rig rig;
    struct counter released = COUNTER;
    size_t size = 10 * 1000 * 1000 + 7;
    unsigned char *bytes = malloc(size);
    fill_pattern(bytes, size, 0, 3);
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(bytes, size), count_release, &released));
    rig_send(&rig, request);
    CHECK_INT(rig.catch.size, size);
    CHECK(matches_pattern(rig.catch.bytes, rig.catch.size, 0, 3));
    CHECK(counter_wait(&released, 1, SOON));
    free(bytes);
    rig_close(&rig);
}

TEST(borrowed_bytes_are_released_when_the_connection_ends)
{
    struct rig rig;
    struct counter released = COUNTER;
    struct outcome outcomes[20];
    static unsigned char bytes[4 << 20];
    rig_open(&rig);
    for (int i = 0; i < 20; i++) {
        blip_message *request = make_request("never", NULL);
        CHECK_OK(
            blip_message_append_body_borrowed(request, bytes_slice(bytes, sizeof bytes), count_release, &released));
        outcome_init(&outcomes[i]);
        CHECK_OK(
            blip_connection_send(rig.pair.client, request, outcome_response, &outcomes[i], outcome_release));
        blip_message_release(request);
    }
    blip_connection_close(rig.pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(rig.pair.client, SOON));
    for (int i = 0; i < 20; i++)
        CHECK(outcome_wait(&outcomes[i]));
    CHECK(counter_wait(&released, 20, SOON));
    sleep_ms(20);
    CHECK_INT(counter_get(&released), 20);
    rig_close(&rig);
}

static int make_file(size_t size)
{
    char path[128];
    static int count;
    snprintf(path, sizeof path, "%s/file-%d", temporary_directory(), count++);
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(descriptor >= 0);
    unsigned char *bytes = malloc(size + 1);
    fill_pattern(bytes, size, 0, 9);
    REQUIRE_INT(write(descriptor, bytes, size), size);
    free(bytes);
    return descriptor;
}

TEST(ranges_of_files)
{
    static const struct {
        uint64_t offset, length, expected;
    } ranges[] = {{0, UINT64_MAX, 3000000}, {0, 3000000, 3000000}, {1000000, 1234567, 1234567}, {2999999, 1, 1},
        {2999999, UINT64_MAX, 1}, {0, 0, 0}, {3000000, UINT64_MAX, 0}, {100, 16384, 16384}};
    struct rig rig;
    int descriptor = make_file(3000000);
    REQUIRE(lseek(descriptor, 17, SEEK_SET) == 17);
    rig_open(&rig);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        blip_message *request = make_request("catch", NULL);
        uint64_t size = 0;
        CHECK_OK(blip_message_append_body_file(request, descriptor, ranges[i].offset, ranges[i].length, false));
        CHECK_OK(blip_message_body_size(request, &size));
        CHECK_INT(size, ranges[i].expected);
        rig_send(&rig, request);
        CHECK_INT(rig.catch.size, ranges[i].expected);
        CHECK(matches_pattern(rig.catch.bytes, rig.catch.size, ranges[i].offset, 9));
    }
    /* The program's own position in the file was left alone. */
    CHECK_INT(lseek(descriptor, 0, SEEK_CUR), 17);
    close(descriptor);
    rig_close(&rig);
}

TEST(files_are_closed_if_that_is_wanted)
{
    struct rig rig;
    rig_open(&rig);
    size_t before = open_descriptors();
    for (int i = 0; i < 10; i++) {
        blip_message *request = make_request("catch", NULL);
        CHECK_OK(blip_message_append_body_file(request, make_file(50000), 0, UINT64_MAX, true));
        if (i % 2 == 0)
            rig_send(&rig, request);
        else
            blip_message_release(request);
    }
    int64_t end = now_ms() + 2000;
    while (open_descriptors() > before && now_ms() < end)
        sleep_ms(5);
    CHECK_INT(open_descriptors(), before);
    rig_close(&rig);
}

TEST(what_is_not_a_readable_file_is_refused)
{
    int pipes[2];
    blip_message *request = make_request("x", NULL);
    CHECK(blip_message_append_body_file(request, -1, 0, 10, false) < 0);
    CHECK(blip_message_append_body_file(request, 1000, 0, 10, false) < 0);
    REQUIRE_INT(pipe(pipes), 0);
    CHECK(blip_message_append_body_file(request, pipes[0], 0, 10, false) < 0);
    int descriptor = make_file(1000);
    CHECK(blip_message_append_body_file(request, descriptor, 0, 1001, false) < 0);
    CHECK(blip_message_append_body_file(request, descriptor, 1001, UINT64_MAX, false) < 0);
    CHECK(blip_message_append_body_file(request, descriptor, UINT64_MAX - 5, 10, false) < 0);
    int for_writing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(blip_message_append_body_file(request, for_writing, 0, 10, false) < 0);
    uint64_t size = 1;
    CHECK_OK(blip_message_body_size(request, &size));
    CHECK_INT(size, 0);
    close(for_writing);
    close(descriptor);
    close(pipes[0]);
    close(pipes[1]);
    blip_message_release(request);
}

TEST(a_file_that_shrinks_while_it_is_sent_fails_cleanly)
{
    struct rig rig;
    struct outcome outcome, other;
    blip_connection *second = NULL;
    rig_open(&rig);
    int descriptor = make_file(3000000);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_file(request, descriptor, 0, UINT64_MAX, true));
    REQUIRE_INT(ftruncate(descriptor, 1000000), 0);
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    if (!CHECK(outcome.status == BLIP_ERROR_BODY || outcome.status == BLIP_ERROR_FILE))
        test_note("%s", blip_status_name(outcome.status));
    CHECK_INT(counter_get(&rig.catch.caught), 0);
    REQUIRE_OK(blip_connection_new(rig.pair.client_runtime, S(rig.pair.url), NULL, &second));
    CHECK_OK(blip_connection_wait_open(second, SOON));
    CHECK_OK(send_request(second, "echo", "x", &other));
    CHECK(outcome_wait(&other));
    CHECK_STATUS(other.status, BLIP_OK);
    blip_connection_release(second);
    rig_close(&rig);
}

/* ---- pulled bodies ---- */

struct source {
    uint64_t total, given;
    uint32_t seed;
    size_t most;         /* bytes a call */
    uint64_t pause_every; /* dry whenever that much more was given, 0: never */
    atomic_bool dry;      /* AGAIN until somebody clears it */
    int end_alone;       /* END comes with no bytes */
    int64_t fail_at;     /* a failure when that much was given, -1: never */
    struct counter waiting, released;
};

static blip_status source_read(void *buffer, size_t capacity, size_t *written, void *context)
{
    struct source *source = context;
    CHECK_INT(counter_get(&source->released), 0);
    CHECK_AT_LEAST(capacity, 1);
    if (atomic_load(&source->dry)) {
        counter_add(&source->waiting, 1);
        return BLIP_AGAIN;
    }
    if (source->fail_at >= 0 && source->given >= (uint64_t)source->fail_at)
        return BLIP_ERROR_FILE;
    uint64_t left = source->total - source->given;
    size_t size = capacity < source->most ? capacity : source->most;
    if (size > left)
        size = (size_t)left;
    fill_pattern(buffer, size, source->given, source->seed);
    if (source->pause_every != 0 && source->given / source->pause_every != (source->given + size) / source->pause_every)
        atomic_store(&source->dry, true);
    source->given += size;
    *written = size;
    if (source->end_alone && size > 0)
        return BLIP_OK;
    return source->given == source->total ? BLIP_DATA_END : BLIP_OK;
}

static void source_released(void *context)
{
    struct source *source = context;
    counter_add(&source->released, 1);
}

static void source_init(struct source *source, uint64_t total, size_t most)
{
    memset(source, 0, sizeof *source);
    source->total = total;
    source->most = most;
    source->seed = 21;
    source->fail_at = -1;
    counter_init(&source->waiting);
    counter_init(&source->released);
}

TEST(pulled_bodies_of_many_sizes)
{
    static const uint64_t sizes[] = {0, 1, 100, 16000, 16384, 16385, 100000, 1000000};
    static const size_t steps[] = {1 << 20, 1000, 16384, 37};
    struct rig rig;
    rig_open(&rig);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof steps / sizeof *steps; j++)
            for (int alone = 0; alone < 2; alone++) {
                struct source source;
                source_init(&source, sizes[i], steps[j]);
                source.end_alone = alone;
                blip_message *request = make_request("catch", NULL);
                CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
                rig_send(&rig, request);
                CHECK_INT(rig.catch.size, sizes[i]);
                CHECK(matches_pattern(rig.catch.bytes, rig.catch.size, 0, 21));
                CHECK(counter_wait(&source.released, 1, SOON));
                CHECK_INT(counter_get(&source.released), 1);
            }
    rig_close(&rig);
}

TEST(a_pulled_body_pauses_and_is_resumed)
{
    struct rig rig;
    struct source source;
    struct outcome outcome, other;
    source_init(&source, 305000, 10000);
    source.pause_every = 20000;
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    int64_t rounds = 0, waits = 0;
    while (!counter_wait(&outcome.done, 1, 1)) {
        if (!counter_wait(&source.waiting, waits + 1, 20))
            continue;
        rounds++;
        /* Meanwhile, the connection serves others and asks the source no more than it must. */
        if (rounds == 1) {
            CHECK_OK(send_request(rig.pair.client, "echo", "meanwhile", &other));
            CHECK(outcome_wait(&other));
            CHECK_STATUS(other.status, BLIP_OK);
            sleep_ms(50);
            CHECK_AT_MOST(counter_get(&source.waiting), 3);
        }
        sleep_ms(2);
        waits = counter_get(&source.waiting);
        atomic_store(&source.dry, false);
        CHECK_OK(blip_message_resume_body(request));
    }
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_AT_LEAST(rounds, 10);
    CHECK_AT_MOST(counter_get(&source.waiting), 40);
    CHECK_INT(rig.catch.size, 305000);
    CHECK(matches_pattern(rig.catch.bytes, rig.catch.size, 0, 21));
    blip_message_release(request);
    CHECK(counter_wait(&source.released, 1, SOON));
    rig_close(&rig);
}

static blip_message *resumed_message;

static blip_status resumed_inside(void *buffer, size_t capacity, size_t *written, void *context)
{
    struct source *source = context;
    if (!atomic_exchange(&source->dry, false)) {
        atomic_store(&source->dry, true);
        CHECK_OK(blip_message_resume_body(resumed_message));
        return BLIP_AGAIN;
    }
    return source_read(buffer, capacity, written, source);
}

TEST(a_resume_from_inside_the_pull_is_not_lost)
{
    struct rig rig;
    struct source source;
    source_init(&source, 100000, 10000);
    rig_open(&rig);
    resumed_message = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pulled(resumed_message, resumed_inside, &source, source_released));
    rig_send(&rig, blip_message_retain(resumed_message));
    CHECK_INT(rig.catch.size, 100000);
    blip_message_release(resumed_message);
    rig_close(&rig);
}

TEST(resuming_what_does_not_wait_is_harmless)
{
    struct rig rig;
    rig_open(&rig);
    blip_message *request = make_request("catch", "x");
    blip_message_resume_body(request);
    rig_send(&rig, blip_message_retain(request));
    blip_message_resume_body(request);
    CHECK_CAUGHT(&rig, "x");
    blip_message_release(request);
    rig_close(&rig);
}

TEST(a_pushed_body_grows_while_it_is_sent)
{
    enum { CHUNK = 10000, CHUNKS = 300 };
    struct rig rig;
    struct outcome outcome;
    unsigned char chunk[CHUNK];
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_STATUS(blip_message_push_body(request, S("x"), false), BLIP_ERROR_STATE);
    CHECK_OK(blip_message_append_body_pushed(request));
    CHECK_STATUS(blip_message_append_body_pushed(request), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_message_push_body(request, (blip_slice){NULL, 1}, false), BLIP_ERROR_ARGUMENT);
    outcome_init(&outcome);
    int refused = 0;
    for (int i = 0; i < CHUNKS; i++) {
        /* The first bytes are there before it is sent, the others come while it is. */
        if (i == 3)
            CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
        fill_pattern(chunk, CHUNK, (uint64_t)i * CHUNK, 5);
        blip_status status;
        while ((status = blip_message_push_body(request, bytes_slice(chunk, CHUNK), false)) == BLIP_AGAIN) {
            refused++;
            sleep_ms(1);
        }
        CHECK_OK(status);
        if (i == 150)
            sleep_ms(20);
    }
    sleep_ms(10);
    CHECK_INT(counter_get(&outcome.done), 0);
    CHECK_OK(blip_message_push_body(request, S(""), true));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_STATUS(blip_message_push_body(request, S("x"), true), BLIP_ERROR_CLOSED);
    blip_message_release(request);
    CHECK_INT(rig.catch.size, CHUNK * CHUNKS);
    CHECK(matches_pattern(rig.catch.bytes, rig.catch.size, 0, 5));
    test_note("%d times too many bytes waited", refused);
    rig_close(&rig);
}

TEST(a_pushed_body_that_nobody_can_end_fails)
{
    struct rig rig;
    struct outcome outcome;
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pushed(request));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    sleep_ms(10);
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_BODY);
    /* Its properties had gone ahead, and BLIP cannot take a message back. */
    CHECK_OK(blip_connection_wait_closed(rig.pair.client, SOON));
    blip_error *error = NULL;
    CHECK_OK(blip_connection_error(rig.pair.client, &error));
    CHECK_STATUS(blip_error_status(error), BLIP_ERROR_BODY);
    rig_close(&rig);
}

static blip_status hold_unread(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    *(blip_message **)context = blip_message_retain(request);
    return BLIP_OK;
}

TEST(a_pushed_body_that_nobody_can_end_fails_while_the_peer_holds_it_up)
{
    static char chunk[100000];
    struct rig rig;
    struct outcome outcome;
    blip_message *unread = NULL;
    rig_open(&rig);
    CHECK_OK(blip_listener_set_handler(
        rig.pair.listener, S("unread"), BLIP_HANDLER_STREAM, hold_unread, &unread, NULL));
    CHECK_OK(blip_connection_set_handler(
        rig.pair.accepted, S("unread"), BLIP_HANDLER_STREAM, hold_unread, &unread, NULL));
    blip_message *request = make_request("unread", NULL);
    CHECK_OK(blip_message_append_body_pushed(request));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    /* Until the flow control lets no more go. */
    uint64_t sent = 0, before = 1;
    for (int still = 0; still < 20; still = sent == before ? still + 1 : 0) {
        before = sent;
        blip_message_push_body(request, bytes_slice(chunk, sizeof chunk), false);
        sleep_ms(10);
        CHECK_OK(blip_message_bytes_sent(request, &sent));
    }
    CHECK_AT_LEAST(sent, 100000);
    CHECK_INT(counter_get(&outcome.done), 0);
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_BODY);
    CHECK_OK(blip_connection_wait_closed(rig.pair.client, SOON));
    blip_message_release(unread);
    rig_close(&rig);
}

TEST(a_source_that_fails_at_once_fails_its_message_alone)
{
    struct rig rig;
    struct source source;
    struct outcome outcome, other;
    source_init(&source, 1000, 1000);
    source.fail_at = 0;
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_BODY);
    CHECK(counter_wait(&source.released, 1, SOON));
    CHECK_OK(send_request(rig.pair.client, "echo", "x", &other));
    CHECK(outcome_wait(&other));
    CHECK_STATUS(other.status, BLIP_OK);
    rig_close(&rig);
}

TEST(a_source_that_fails_midway_is_reported)
{
    struct rig rig;
    struct source source;
    struct outcome outcome;
    source_init(&source, 1000000, 10000);
    source.fail_at = 500000;
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_BODY);
    CHECK(counter_wait(&source.released, 1, SOON));
    CHECK_INT(counter_get(&rig.catch.caught), 0);
    rig_close(&rig);
}

static blip_status returns_nonsense(void *buffer, size_t capacity, size_t *written, void *context)
{
    int kind = *(int *)context;
    (void)buffer;
    if (kind == 0)
        *written = capacity + 1;
    else if (kind == 1)
        *written = SIZE_MAX;
    else if (kind == 2)
        *written = 0; /* BLIP_OK without bytes would be a busy loop */
    else
        return 12345;
    return BLIP_OK;
}

TEST(a_source_that_returns_nonsense_is_a_failed_source)
{
    for (int kind = 0; kind < 4; kind++) {
        struct rig rig;
        struct outcome outcome;
        rig_open(&rig);
        blip_message *request = make_request("catch", NULL);
        CHECK_OK(blip_message_append_body_pulled(request, returns_nonsense, &kind, NULL));
        CHECK_OK(blip_message_set_timeout(request, 3000));
        outcome_init(&outcome);
        CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
        blip_message_release(request);
        CHECK(outcome_wait(&outcome));
        if (!CHECK_STATUS(outcome.status, BLIP_ERROR_BODY))
            test_note("kind %d", kind);
        rig_close(&rig);
    }
}

TEST(a_pulled_body_is_released_when_the_connection_ends)
{
    struct rig rig;
    struct source source;
    struct outcome outcome;
    source_init(&source, 1000000, 1000);
    source.pause_every = 5000;
    rig_open(&rig);
    blip_message *request = make_request("catch", NULL);
    CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(rig.pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(counter_wait(&source.waiting, 1, SOON));
    blip_connection_close(rig.pair.client, 1000, S(""));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    blip_message_resume_body(request);
    blip_message_release(request);
    CHECK(counter_wait(&source.released, 1, SOON));
    rig_close(&rig);
    CHECK_INT(counter_get(&source.released), 1);
}

TEST(a_body_that_cannot_be_added_releases_its_context)
{
    struct counter released = COUNTER;
    blip_message *request = make_request("x", NULL);
    CHECK(blip_message_append_body_pulled(request, NULL, &released, count_release) < 0);
    CHECK_INT(counter_get(&released), 1);
    CHECK(blip_message_append_body_borrowed(request, bytes_slice(NULL, 7), count_release, &released) < 0);
    CHECK_INT(counter_get(&released), 2);
    blip_message_release(request);
    CHECK_INT(counter_get(&released), 2);
}

/* ---- parts ---- */

TEST(parts_are_sent_in_the_order_of_appending)
{
    struct rig rig;
    struct source source;
    struct counter released = COUNTER;
    rig_open(&rig);
    for (int compressed = 0; compressed < 2; compressed++) {
        source_init(&source, 50000, 777);
        int descriptor = make_file(200000);
        blip_message *request = make_request("catch", NULL);
        CHECK_OK(blip_message_set_compressed(request, compressed));
        CHECK_OK(blip_message_set_body(request, S("<begin>")));
        CHECK_OK(blip_message_append_body_file(request, descriptor, 1000, 100000, false));
        CHECK_OK(blip_message_append_body(request, S("<after the file>")));
        CHECK_OK(blip_message_append_body_pulled(request, source_read, &source, source_released));
        CHECK_OK(blip_message_append_body_borrowed(request, S("<borrowed>"), count_release, &released));
        CHECK_OK(blip_message_append_body(request, S("<end")));
        CHECK_OK(blip_message_append_body(request, S(">")));
        CHECK_OK(blip_message_append_body_file(request, descriptor, 0, 5, true));
        rig_send(&rig, request);
        const unsigned char *bytes = rig.catch.bytes;
        REQUIRE_INT(rig.catch.size, 7 + 100000 + 16 + 50000 + 10 + 5 + 5);
        CHECK(memcmp(bytes, "<begin>", 7) == 0);
        CHECK(matches_pattern(bytes + 7, 100000, 1000, 9));
        CHECK(memcmp(bytes + 100007, "<after the file>", 16) == 0);
        CHECK(matches_pattern(bytes + 100023, 50000, 0, 21));
        CHECK(memcmp(bytes + 150023, "<borrowed><end>", 15) == 0);
        CHECK(matches_pattern(bytes + 150038, 5, 0, 9));
    }
    CHECK(counter_wait(&released, 2, SOON));
    rig_close(&rig);
}

static blip_status respond_streamed(blip_connection *connection, blip_message *request, void *context)
{
    struct source *source = context;
    blip_message *response = NULL;
    (void)connection;
    CHECK_OK(blip_response_new(request, &response));
    CHECK_OK(blip_message_set_body(response, S("head:")));
    CHECK_OK(blip_message_append_body_pulled(response, source_read, source, source_released));
    blip_status status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

TEST(responses_have_all_kinds_of_bodies_too)
{
    struct rig rig;
    struct source source;
    blip_slice body;
    blip_message *request = make_request("stream", NULL), *response = NULL;
    source_init(&source, 1234567, 9999);
    rig_open(&rig);
    CHECK_OK(blip_connection_set_handler(rig.pair.accepted, S("stream"), 0, respond_streamed, &source, NULL));
    REQUIRE_OK(blip_connection_request(rig.pair.client, request, SOON, &response));
    CHECK_OK(blip_message_body(response, &body));
    REQUIRE_INT(body.size, 1234567 + 5);
    CHECK(memcmp(body.data, "head:", 5) == 0);
    CHECK(matches_pattern((const char *)body.data + 5, 1234567, 0, 21));
    CHECK(counter_wait(&source.released, 1, SOON));
    blip_message_release(request);
    blip_message_release(response);
    rig_close(&rig);
}

/* ---- sizes ---- */

TEST_SECONDS(bodies_of_all_sizes_around_the_borders, 60)
{
    static const size_t borders[] = {0, 128, 4096, 16384, 32768, 50000, 65536, 100000, 128000, 131072, 1000000};
    struct pair pair;
    pair_open(&pair, NULL);
    unsigned char *bytes = malloc(1100000);
    fill_pattern(bytes, 1100000, 0, 5);
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++)
        for (size_t size = borders[i] > 24 ? borders[i] - 24 : 0; size <= borders[i] + 4; size++)
            for (int compressed = 0; compressed < 2; compressed++) {
                blip_message *request = make_request("echo", NULL), *response = NULL;
                blip_slice body;
                CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, size)));
                CHECK_OK(blip_message_set_compressed(request, compressed));
                if (compressed)
                    CHECK_OK(blip_message_set_property(request, S("Compressed"), S("yes")));
                REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
                CHECK_OK(blip_message_body(response, &body));
                if (!CHECK(body.size == size && (size == 0 || memcmp(body.data, bytes, size) == 0)))
                    test_note("size %zu, compressed %d", size, compressed);
                blip_message_release(request);
                blip_message_release(response);
            }
    free(bytes);
    pair_close(&pair);
}

TEST_SECONDS(two_hundred_megabytes_each_way, 60)
{
    struct pair pair;
    blip_listener_options *listener = blip_listener_options_new();
    blip_connection_options *client = blip_connection_options_new();
    uint64_t size = 200 << 20;
    /* Messages held in memory are limited to 64 MiB unless the program wants more. */
    CHECK_OK(blip_listener_options_set_limit(listener, BLIP_LIMIT_MESSAGE, size + 1));
    CHECK_OK(blip_connection_options_set_limit(client, BLIP_LIMIT_MESSAGE, size + 1));
    pair_open(&pair, &(struct pair_options){.listener = listener, .client = client});
    unsigned char *bytes = malloc(size);
    fill_pattern(bytes, size, 0, 5);
    int64_t start = now_ms();
    blip_message *request = make_request("echo", NULL), *response = NULL;
    CHECK_OK(blip_message_append_body_borrowed(request, bytes_slice(bytes, size), NULL, NULL));
    REQUIRE_OK(blip_connection_request(pair.client, request, 50000, &response));
    blip_slice body;
    CHECK_OK(blip_message_body(response, &body));
    test_note("%d MB there and back in %d ms", (int)(size >> 20), (int)(now_ms() - start));
    CHECK_INT(body.size, size);
    CHECK(body.size == size && memcmp(body.data, bytes, size) == 0);
    blip_message_release(request);
    blip_message_release(response);
    free(bytes);
    pair_close(&pair);
}

TEST_SECONDS(many_big_bodies_at_once_both_ways, 60)
{
    enum { COUNT = 24 };
    struct pair pair;
    struct outcome outcomes[COUNT];
    pair_open(&pair, NULL);
    size_t size = 3 << 20;
    unsigned char *bytes = malloc(size + COUNT);
    fill_pattern(bytes, size + COUNT, 0, 5);
    uint32_t sums[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blip_message *request = make_request("echo", NULL);
        sums[i] = checksum(0, bytes + i, size);
        CHECK_OK(blip_message_set_body(request, bytes_slice(bytes + i, size)));
        CHECK_OK(blip_message_set_compressed(request, i % 3 == 0));
        CHECK_OK(blip_message_set_urgent(request, i % 5 == 0));
        outcome_init(&outcomes[i]);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcomes[i], outcome_release));
        blip_message_release(request);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(counter_wait(&outcomes[i].done, 1, 50000));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
        CHECK_INT(outcomes[i].size, size);
        CHECK_INT(outcomes[i].checksum, sums[i]);
    }
    free(bytes);
    pair_close(&pair);
}

TEST(a_message_over_the_receivers_limit_fails_alone)
{
    struct pair pair;
    struct outcome outcomes[2], other;
    blip_listener_options *listener = blip_listener_options_new();
    CHECK_OK(blip_listener_options_set_limit(listener, BLIP_LIMIT_MESSAGE, 1 << 20));
    pair_open(&pair, &(struct pair_options){.listener = listener});
    size_t size = 4 << 20;
    void *bytes = calloc(1, size);
    for (int compressed = 0; compressed < 2; compressed++) {
        blip_message *request = make_request("echo", NULL);
        CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, size)));
        CHECK_OK(blip_message_set_compressed(request, compressed));
        struct outcome *outcome = &outcomes[compressed];
        outcome_init(outcome);
        CHECK_OK(blip_connection_send(pair.client, request, outcome_response, outcome, outcome_release));
        blip_message_release(request);
        CHECK(outcome_wait(outcome));
        CHECK_STATUS(outcome->status, BLIP_OK);
        CHECK_INT(outcome->type, BLIP_MESSAGE_ERROR);
        test_note("over the limit: %s/%d", outcome->error_domain, (int)outcome->error_code);
        CHECK_OK(send_request(pair.client, "echo", "x", &other));
        CHECK(outcome_wait(&other));
        CHECK_STATUS(other.status, BLIP_OK);
    }
    free(bytes);
    pair_close(&pair);
}

static blip_status breaks_off(void *buffer, size_t capacity, size_t *written, void *context)
{
    int *calls = context;
    if (++*calls > 8) /* long after its first frame */
        return BLIP_ERROR_BODY;
    memset(buffer, 'x', capacity);
    *written = capacity;
    return BLIP_OK;
}

/* In one turn a message is sent whole and another one's body breaks off: the first must not keep the connection, and
 * with it the runtime, for ever. */
TEST(nothing_is_kept_when_a_body_breaks_off)
{
    struct pair pair;
    int calls = 0;
    size_t before = open_descriptors();
    pair_open(&pair, &(struct pair_options){.no_client = true});
    blip_connection *client = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &client));
    blip_message *whole = make_request("empty", "x"), *broken = make_request("sink", NULL);
    CHECK_OK(blip_message_set_no_reply(whole, true));
    CHECK_OK(blip_connection_send(client, whole, NULL, NULL, NULL));
    CHECK_OK(blip_message_append_body_pulled(broken, breaks_off, &calls, NULL));
    CHECK_OK(blip_connection_send(client, broken, NULL, NULL, NULL));
    blip_message_release(whole);
    blip_message_release(broken);
    CHECK_OK(blip_connection_connect(client));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    pair_close(&pair);
    int64_t end = now_ms() + SOON;
    while (open_descriptors() > before && now_ms() < end)
        sleep_ms(5);
    CHECK_INT(open_descriptors(), before);
}
