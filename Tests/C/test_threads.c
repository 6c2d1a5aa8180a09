/* Many threads in the library at once. */

#define _POSIX_C_SOURCE 200809L

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 32 };

struct crowd {
    blip_connection *connection;
    struct counter completed;
    atomic_int accepted, refused, released, strange;
    atomic_bool closed;
};

static void completed(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct crowd *crowd = context;
    (void)connection;
    (void)request;
    CHECK((status == BLIP_OK) == (response != NULL));
    if (status != BLIP_OK && status != BLIP_ERROR_CLOSED)
        atomic_fetch_add(&crowd->strange, 1);
    if (atomic_load(&crowd->closed))
        atomic_fetch_add(&crowd->strange, 1);
    counter_add(&crowd->completed, 1);
}

static void count_context(void *context)
{
    struct crowd *crowd = context;
    atomic_fetch_add(&crowd->released, 1);
}

static void mark_closed(blip_connection *connection, blip_status status, void *context)
{
    struct crowd *crowd = context;
    (void)connection;
    (void)status;
    atomic_store(&crowd->closed, true);
}

static void *send_until_refused(void *context)
{
    struct crowd *crowd = context;
    for (int i = 0; i < 100000; i++) {
        blip_message *request = make_request(i % 3 ? "echo" : "empty", "from a thread");
        blip_status status = blip_connection_send(crowd->connection, request, completed, crowd, count_context);
        blip_message_release(request);
        if (status != BLIP_OK) {
            CHECK(status == BLIP_ERROR_CLOSED || status == BLIP_ERROR_HANDLE || status == BLIP_ERROR_STOPPED);
            atomic_fetch_add(&crowd->refused, 1);
            break;
        }
        atomic_fetch_add(&crowd->accepted, 1);
        if (i % 64 == 63)
            sleep_ms(1);
    }
    return NULL;
}

static void crowd_open(struct crowd *crowd, struct pair *pair)
{
    memset(crowd, 0, sizeof *crowd);
    counter_init(&crowd->completed);
    REQUIRE_OK(blip_connection_new(pair->client_runtime, S(pair->url), NULL, &crowd->connection));
    CHECK_OK(blip_connection_set_close_callback(crowd->connection, mark_closed, crowd, NULL));
    REQUIRE_OK(blip_connection_wait_open(crowd->connection, SOON));
}

/* Waits until the first request got in: on a busy machine the threads may begin late. */
static void crowd_begin(struct crowd *crowd)
{
    int64_t end = now_ms() + SOON;
    while (!atomic_load(&crowd->accepted) && now_ms() < end)
        sleep_ms(0);
}

static void crowd_check(struct crowd *crowd)
{
    CHECK(counter_wait(&crowd->completed, atomic_load(&crowd->accepted), SOON));
    int64_t end = now_ms() + SOON;
    while (atomic_load(&crowd->released) < atomic_load(&crowd->accepted) + atomic_load(&crowd->refused)
        && now_ms() < end)
        sleep_ms(5);
    CHECK_INT(counter_get(&crowd->completed), atomic_load(&crowd->accepted));
    CHECK_INT(atomic_load(&crowd->released), atomic_load(&crowd->accepted) + atomic_load(&crowd->refused));
    CHECK_INT(atomic_load(&crowd->strange), 0);
    CHECK_AT_LEAST(atomic_load(&crowd->accepted), 1);
    test_note("%d requests accepted", atomic_load(&crowd->accepted));
}

TEST_SECONDS(thirty_two_threads_send_while_another_closes, 60)
{
    struct pair pair;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    for (int round = 0; round < 6; round++) {
        struct crowd crowd;
        pthread_t threads[THREADS];
        crowd_open(&crowd, &pair);
        for (int i = 0; i < THREADS; i++)
            REQUIRE_INT(pthread_create(&threads[i], NULL, send_until_refused, &crowd), 0);
        crowd_begin(&crowd);
        sleep_ms(round * 20);
        CHECK_OK(blip_connection_close(crowd.connection, 1000, S("")));
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_OK(blip_connection_wait_closed(crowd.connection, SOON));
        crowd_check(&crowd);
        blip_connection_release(crowd.connection);
    }
    pair_close(&pair);
}

TEST_SECONDS(thirty_two_threads_send_while_another_releases, 60)
{
    struct pair pair;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    for (int round = 0; round < 6; round++) {
        struct crowd crowd;
        pthread_t threads[THREADS];
        crowd_open(&crowd, &pair);
        for (int i = 0; i < THREADS; i++)
            REQUIRE_INT(pthread_create(&threads[i], NULL, send_until_refused, &crowd), 0);
        crowd_begin(&crowd);
        sleep_ms(round * 20);
        blip_connection_release(crowd.connection);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        crowd_check(&crowd);
        int64_t end = now_ms() + SOON;
        while (!atomic_load(&crowd.closed) && now_ms() < end)
            sleep_ms(1);
        CHECK(atomic_load(&crowd.closed));
    }
    pair_close(&pair);
}

TEST_SECONDS(thirty_two_threads_send_while_the_runtime_stops, 60)
{
    struct pair pair;
    struct crowd crowd;
    pthread_t threads[THREADS];
    pair_open(&pair, &(struct pair_options){.no_client = true});
    crowd_open(&crowd, &pair);
    for (int i = 0; i < THREADS; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, send_until_refused, &crowd), 0);
    sleep_ms(30);
    CHECK_OK(blip_runtime_stop(pair.client_runtime, 4 * SOON));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(counter_get(&crowd.completed), atomic_load(&crowd.accepted));
    CHECK_INT(atomic_load(&crowd.released), atomic_load(&crowd.accepted) + atomic_load(&crowd.refused));
    blip_connection_release(crowd.connection);
    pair_close(&pair);
}

struct asker {
    struct pair *pair;
    int number, wrong;
};

static void *ask(void *context)
{
    struct asker *asker = context;
    for (int i = 0; i < 200; i++) {
        char text[64];
        blip_slice body;
        snprintf(text, sizeof text, "thread %d, question %d", asker->number, i);
        blip_message *request = make_request("echo", text), *response = NULL;
        blip_status status = blip_connection_request(asker->pair->client, request, SOON, &response);
        if (status != BLIP_OK || blip_message_body(response, &body) != BLIP_OK || body.size != strlen(text)
            || memcmp(body.data, text, body.size) != 0)
            asker->wrong++;
        blip_message_release(request);
        blip_message_release(response);
    }
    return NULL;
}

TEST_SECONDS(thirty_two_threads_wait_for_responses, 60)
{
    struct pair pair;
    struct asker askers[THREADS];
    pthread_t threads[THREADS];
    pair_open(&pair, NULL);
    for (int i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){&pair, i, 0};
        REQUIRE_INT(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(askers[i].wrong, 0);
    }
    pair_close(&pair);
}

static void *wait_for_response(void *context)
{
    struct pair *pair = context;
    blip_message *request = make_request("never", ""), *response = NULL;
    blip_status status = blip_connection_request(pair->client, request, -1, &response);
    CHECK_STATUS(status, BLIP_ERROR_CLOSED);
    CHECK_POINTER(response, NULL);
    blip_message_release(request);
    return NULL;
}

static void *wait_for_close(void *context)
{
    struct pair *pair = context;
    CHECK_OK(blip_connection_wait_closed(pair->client, -1));
    return NULL;
}

TEST(closing_wakes_all_who_wait)
{
    struct pair pair;
    pthread_t threads[16];
    pair_open(&pair, NULL);
    for (int i = 0; i < 16; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, i % 2 ? wait_for_close : wait_for_response, &pair), 0);
    sleep_ms(50);
    CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

static void *open_and_close(void *context)
{
    struct pair *pair = context;
    for (int i = 0; i < 40; i++) {
        blip_connection *connection = NULL;
        if (!CHECK_OK(blip_connection_new(pair->client_runtime, S(pair->url), NULL, &connection)))
            break;
        if (i % 3 != 0)
            CHECK_OK(blip_connection_wait_open(connection, SOON));
        else
            CHECK_OK(blip_connection_connect(connection));
        if (i % 2 == 0)
            blip_connection_close(connection, 1000, S(""));
        blip_connection_release(connection);
    }
    return NULL;
}

TEST_SECONDS(threads_open_and_close_connections, 60)
{
    struct pair pair;
    pthread_t threads[8];
    pair_open(&pair, &(struct pair_options){.no_client = true});
    for (int i = 0; i < 8; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, open_and_close, &pair), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}

struct changer {
    struct pair *pair;
    atomic_bool stop;
    struct counter set, released;
};

static blip_status answer_briefly(blip_connection *connection, blip_message *request, void *context)
{
    struct changer *changer = context;
    (void)connection;
    CHECK(changer != NULL);
    return blip_message_respond_text(request, S("ok"));
}

static void changer_released(void *context)
{
    struct changer *changer = context;
    counter_add(&changer->released, 1);
}

static void *change_handlers(void *context)
{
    struct changer *changer = context;
    while (!atomic_load(&changer->stop)) {
        CHECK_OK(blip_connection_set_handler(
            changer->pair->accepted, S("changing"), 0, answer_briefly, changer, changer_released));
        counter_add(&changer->set, 1);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return NULL;
}

/* A handler may be replaced while requests come; each context is released once, never while its function runs. */
TEST(handlers_change_under_load)
{
    struct pair pair;
    struct changer changer = {&pair, false, COUNTER, COUNTER};
    pthread_t threads[2];
    pair_open(&pair, NULL);
    for (int i = 0; i < 2; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, change_handlers, &changer), 0);
    CHECK(counter_wait(&changer.set, 1, SOON));
    for (int i = 0; i < 500; i++) {
        blip_message *request = make_request("changing", ""), *response = NULL;
        int32_t type = -1;
        CHECK_OK(blip_connection_request(pair.client, request, SOON, &response));
        CHECK_OK(blip_message_type(response, &type));
        CHECK_INT(type, BLIP_MESSAGE_RESPONSE);
        blip_message_release(request);
        blip_message_release(response);
    }
    atomic_store(&changer.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(counter_wait(&changer.released, counter_get(&changer.set) - 1, SOON));
    pair_close(&pair);
    CHECK(counter_wait(&changer.released, counter_get(&changer.set), SOON));
    CHECK_INT(counter_get(&changer.released), counter_get(&changer.set));
}

static void *read_everything(void *context)
{
    struct changer *changer = context;
    blip_connection *connection = changer->pair->client;
    static const int32_t which[] = {BLIP_COUNTER_BYTES_SENT, BLIP_COUNTER_MESSAGES_SENT};
    while (!atomic_load(&changer->stop)) {
        int32_t number;
        blip_slice slice;
        bool flag;
        uint64_t values[2], bytes;
        blip_error *error;
        void *data;
        CHECK_OK(blip_connection_state(connection, &number));
        CHECK_OK(blip_connection_is_active(connection, &flag));
        CHECK_OK(blip_connection_url(connection, &slice));
        blip_connection_error(connection, &error);
        CHECK_OK(blip_connection_close_code(connection, &number));
        CHECK_OK(blip_connection_protocol_version(connection, &number));
        blip_connection_subprotocol(connection, &slice);
        blip_connection_local_address(connection, &slice);
        blip_connection_remote_address(connection, &slice);
        CHECK_OK(blip_connection_counter_values(connection, which, values, 2));
        CHECK_OK(blip_connection_backlog(connection, &bytes));
        CHECK_OK(blip_connection_user_data(connection, &data));
        blip_connection_release(blip_connection_retain(connection));
    }
    return NULL;
}

TEST(getters_run_while_the_connection_works_and_ends)
{
    struct pair pair;
    struct changer changer = {&pair, false, COUNTER, COUNTER};
    pthread_t threads[4];
    struct outcome outcomes[200];
    pair_open(&pair, NULL);
    for (int i = 0; i < 4; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, read_everything, &changer), 0);
    for (int i = 0; i < 200; i++)
        CHECK_OK(send_request(pair.client, "echo", "x", &outcomes[i]));
    for (int i = 0; i < 200; i++)
        CHECK(outcome_wait(&outcomes[i]));
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    sleep_ms(50);
    atomic_store(&changer.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    pair_close(&pair);
}
