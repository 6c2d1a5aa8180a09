/* Pools: one connection for each URL. */

#include "support.h"

#include <stdio.h>
#include <string.h>

struct pool {
    struct pair pair;
    blip_pool *pool;
    blip_module *module;
    struct counter opened, closed;
    atomic_int close_code;
};

static void watch(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    struct pool *pool = context;
    (void)message, (void)status;
    int32_t code = 0;
    if (what == BLIP_OBSERVE_OPEN) {
        counter_add(&pool->opened, 1);
        return;
    }
    CHECK_OK(blip_connection_close_code(connection, &code));
    atomic_store(&pool->close_code, code);
    counter_add(&pool->closed, 1);
}

static void pool_open(struct pool *pool)
{
    struct pair_options options = {.no_client = true};
    memset(pool, 0, sizeof *pool);
    counter_init(&pool->opened);
    counter_init(&pool->closed);
    pair_open(&pool->pair, &options);
    REQUIRE_OK(blip_pool_new(pool->pair.client_runtime, NULL, &pool->pool));
    REQUIRE_OK(blip_module_new(S("watch"), &pool->module));
    REQUIRE_OK(blip_module_set_observer(
        pool->module, BLIP_OBSERVE_OPEN | BLIP_OBSERVE_CLOSED, NULL, watch, pool, NULL));
    REQUIRE_OK(blip_pool_add_module(pool->pool, pool->module));
    CHECK_STATUS(blip_pool_add_module(pool->pool, pool->module), BLIP_ERROR_STATE);
}

static void pool_close(struct pool *pool)
{
    blip_pool_release(pool->pool);
    blip_module_release(pool->module);
    pair_close(&pool->pair);
}

static size_t pool_count(struct pool *pool)
{
    size_t count = 99;
    CHECK_OK(blip_pool_count(pool->pool, &count));
    return count;
}

TEST(urls_that_mean_the_same_share_a_connection)
{
    struct pool pool;
    blip_connection *first = NULL, *second = NULL, *other = NULL, *user = NULL;
    char url[600];
    pool_open(&pool);
    CHECK_STATUS(blip_pool_existing_connection(pool.pool, S(pool.pair.url), &first), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_pool_connection(pool.pool, S("gopher://x"), &first), BLIP_ERROR_URL);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(pool.pair.url), &first));
    REQUIRE_OK(blip_connection_wait_open(first, SOON));
    snprintf(url, sizeof url, "HTTP%s", pool.pair.url + 2);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(url), &second));
    CHECK_POINTER(first, second);
    snprintf(url, sizeof url, "%sother", pool.pair.url);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(url), &other));
    CHECK(other != first);
    snprintf(url, sizeof url, "ws://me:secret@%s", pool.pair.url + 5);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(url), &user));
    CHECK(user != first);
    CHECK_INT(pool_count(&pool), 3);
    blip_connection_release(second);
    blip_connection_release(user);
    /* The pool keeps it. */
    blip_connection_release(first);
    REQUIRE_OK(blip_pool_existing_connection(pool.pool, S(pool.pair.url), &second));
    CHECK_POINTER(first, second);
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(send_request(second, "echo", "pooled", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "pooled");
    blip_connection_release(second);
    REQUIRE_REACHES(&pool.opened, 3);
    CHECK_STATUS(blip_pool_close_all(pool.pool, 1005, S("")), BLIP_ERROR_ARGUMENT);
    CHECK_INT(pool_count(&pool), 3);
    CHECK_OK(blip_pool_close_all(pool.pool, 4123, S("enough")));
    CHECK_INT(pool_count(&pool), 0);
    REQUIRE_REACHES(&pool.closed, 3);
    CHECK_INT(atomic_load(&pool.close_code), 4123);
    blip_connection_release(other);
    /* And it goes on. */
    REQUIRE_OK(blip_pool_connection(pool.pool, S(pool.pair.url), &first));
    REQUIRE_OK(blip_connection_wait_open(first, SOON));
    blip_connection_release(first);
    CHECK_INT(pool_count(&pool), 1);
    pool_close(&pool);
    REQUIRE_REACHES(&pool.closed, 4);
    CHECK_INT(atomic_load(&pool.close_code), 1001);
}

TEST(a_connection_that_has_ended_is_replaced)
{
    struct pool pool;
    blip_connection *first = NULL, *second = NULL;
    pool_open(&pool);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(pool.pair.url), &first));
    REQUIRE_OK(blip_connection_wait_open(first, SOON));
    CHECK_OK(blip_connection_close(first, 1000, S("")));
    /* At once: it is closing. */
    REQUIRE_OK(blip_pool_connection(pool.pool, S(pool.pair.url), &second));
    CHECK(second != first);
    REQUIRE_OK(blip_connection_wait_open(second, SOON));
    REQUIRE_OK(blip_connection_wait_closed(first, SOON));
    CHECK_INT(pool_count(&pool), 1);
    blip_connection_release(first);
    blip_connection_release(second);
    pool_close(&pool);
}

TEST(what_nobody_uses_is_closed)
{
    struct pool pool;
    blip_connection *held = NULL, *idle = NULL;
    char url[600];
    pool_open(&pool);
    CHECK_STATUS(blip_pool_set_idle_timeout(pool.pool, -2), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_pool_set_idle_timeout(pool.pool, 100));
    REQUIRE_OK(blip_pool_connection(pool.pool, S(pool.pair.url), &held));
    snprintf(url, sizeof url, "%sidle", pool.pair.url);
    REQUIRE_OK(blip_pool_connection(pool.pool, S(url), &idle));
    REQUIRE_OK(blip_connection_wait_open(held, SOON));
    REQUIRE_OK(blip_connection_wait_open(idle, SOON));
    struct outcome outcome;
    outcome_init(&outcome);
    REQUIRE_OK(send_request(idle, "never", "", &outcome));
    blip_connection_release(idle);
    sleep_ms(400);
    CHECK_INT(counter_get(&pool.closed), 0); /* one is held, one has a request under way */
    CHECK_OK(blip_pool_existing_connection(pool.pool, S(url), &idle));
    CHECK_OK(blip_connection_close(idle, 1000, S("")));
    CHECK(outcome_wait(&outcome));
    blip_connection_release(idle);
    REQUIRE_REACHES(&pool.closed, 1);
    blip_connection_release(held);
    REQUIRE_REACHES(&pool.closed, 2);
    CHECK_INT(pool_count(&pool), 0);
    pool_close(&pool);
}

struct rush {
    struct pool *pool;
    blip_connection *got;
};

static void *get(void *argument)
{
    struct rush *rush = argument;
    CHECK_OK(blip_pool_connection(rush->pool->pool, S(rush->pool->pair.url), &rush->got));
    return NULL;
}

TEST(many_threads_get_one_connection)
{
    struct pool pool;
    struct rush rushes[16];
    pthread_t threads[16];
    pool_open(&pool);
    for (int i = 0; i < 16; i++) {
        rushes[i] = (struct rush){&pool, NULL};
        REQUIRE_INT(pthread_create(&threads[i], NULL, get, &rushes[i]), 0);
    }
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 16; i++)
        CHECK_POINTER(rushes[i].got, rushes[0].got);
    REQUIRE_OK(blip_connection_wait_open(rushes[0].got, SOON));
    for (int i = 0; i < 16; i++)
        blip_connection_release(rushes[i].got);
    CHECK_INT(pool_count(&pool), 1);
    REQUIRE_REACHES(&pool.opened, 1);
    sleep_ms(20);
    CHECK_INT(counter_get(&pool.opened), 1);
    pool_close(&pool);
}
