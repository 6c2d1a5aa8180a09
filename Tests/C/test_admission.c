/* Who gets in when nobody decides, when the decision comes late, and when everything ends meanwhile. */

#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(descriptor >= 0);
    REQUIRE_INT(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}

static uint16_t port_of(blip_listener *listener)
{
    uint16_t port = 0;
    REQUIRE_OK(blip_listener_port(listener, &port));
    return port;
}

/* ---- an accept event that nobody has seen ---- */

TEST(a_client_that_nobody_has_seen_does_not_get_in)
{
    /* The event waits when the queue ends, or comes later. */
    for (int late = 0; late < 2; late++) {
        blip_queue *queue = NULL;
        blip_runtime *server = NULL, *client_runtime = make_runtime(1);
        blip_listener *listener = NULL;
        blip_connection *client = NULL;
        blip_slice url;
        blip_error *error = NULL;
        int64_t code = 0;
        size_t count = 0;
        REQUIRE_OK(blip_queue_new(0, &queue));
        blip_runtime_options *options = blip_runtime_options_new();
        REQUIRE_OK(blip_runtime_options_set_queue(options, queue));
        REQUIRE_OK(blip_runtime_new(options, &server));
        blip_runtime_options_release(options);
        REQUIRE_OK(blip_listener_new(server, NULL, &listener));
        REQUIRE_OK(blip_listener_set_accept_callback(listener, NULL, NULL, NULL));
        REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
        REQUIRE_OK(blip_listener_url(listener, &url));
        if (late) {
            blip_queue_release(queue);
            queue = NULL;
        }
        REQUIRE_OK(blip_connection_new(client_runtime, url, NULL, &client));
        REQUIRE_OK(blip_connection_connect(client));
        if (!late) {
            int64_t end = now_ms() + SOON;
            while (blip_queue_count(queue, &count) == BLIP_OK && count == 0 && now_ms() < end)
                sleep_ms(2);
            CHECK_INT(count, 1);
            blip_queue_release(queue);
        }
        CHECK_STATUS(blip_connection_wait_open(client, SOON), BLIP_ERROR_HTTP_STATUS);
        CHECK_OK(blip_connection_wait_closed(client, SOON));
        REQUIRE_OK(blip_connection_error(client, &error));
        CHECK_OK(blip_error_code(error, &code));
        CHECK_INT(code, 403);
        blip_connection_release(client);
        CHECK_OK(blip_listener_stop(listener, false, 0));
        CHECK_OK(blip_listener_wait_stopped(listener, SOON));
        blip_listener_release(listener);
        drop_runtime(server);
        drop_runtime(client_runtime);
    }
}

/* ---- decisions about clients without a socket ---- */

enum what { REJECT, DEFER_AND_REJECT, DEFER_AND_ACCEPT, DEFER_FOR_EVER };
static atomic_int wanted;
static blip_connection *waiting;
static struct counter asked = COUNTER;

static void decide(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener, (void)context;
    if (atomic_load(&wanted) == REJECT) {
        CHECK_OK(blip_connection_reject(connection, 403, S("no")));
    } else {
        CHECK_OK(blip_connection_defer_accept(connection));
        waiting = blip_connection_retain(connection);
    }
    counter_add(&asked, 1);
}

TEST(decisions_count_without_a_socket)
{
    struct pair pair;
    struct pair_options options = {.no_client = true};
    pair_open(&pair, &options);
    CHECK_OK(blip_listener_set_accept_callback(pair.listener, decide, NULL, NULL));
    for (int what = REJECT; what <= DEFER_AND_ACCEPT; what++) {
        blip_connection *client = NULL;
        blip_slice user;
        int64_t before = counter_get(&asked);
        atomic_store(&wanted, what);
        REQUIRE_OK(blip_listener_connect(pair.listener, pair.client_runtime, NULL, &client));
        REQUIRE_REACHES(&asked, before + 1);
        if (what == DEFER_AND_REJECT) {
            CHECK_STATUS(blip_connection_wait_open(client, 20), BLIP_ERROR_TIMEOUT);
            CHECK_OK(blip_connection_reject(waiting, 403, S("")));
        } else if (what == DEFER_AND_ACCEPT) {
            CHECK_STATUS(blip_connection_wait_open(client, 20), BLIP_ERROR_TIMEOUT);
            CHECK_OK(blip_connection_accept(waiting, S("ann")));
        }
        if (what == DEFER_AND_ACCEPT) {
            CHECK_OK(blip_connection_wait_open(client, SOON));
            CHECK_OK(blip_connection_user(waiting, &user));
            CHECK_TEXT(user, "ann");
        } else {
            CHECK_STATUS(blip_connection_wait_open(client, SOON), BLIP_ERROR_REFUSED);
        }
        CHECK_OK(blip_connection_close(client, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(client, SOON));
        blip_connection_release(client);
        if (what != REJECT)
            blip_connection_release(waiting);
    }
    pair_close(&pair);
}

/* ---- clients that say nothing ---- */

TEST(a_silent_client_does_not_wait_for_ever)
{
    struct pair pair;
    struct pair_options options = {.no_client = true, .listener = blip_listener_options_new()};
    REQUIRE_OK(blip_listener_options_set_blip1(options.listener, true));
    REQUIRE_OK(blip_listener_options_set_handshake_timeout(options.listener, 200));
    pair_open(&pair, &options);
    CHECK_OK(blip_listener_set_accept_callback(pair.listener, decide, NULL, NULL));
    atomic_store(&wanted, DEFER_FOR_EVER);
    int64_t before = counter_get(&asked);
    int descriptor = dial(port_of(pair.listener));
    REQUIRE_REACHES(&asked, before + 1);
    struct pollfd waits = {.fd = descriptor, .events = POLLIN};
    CHECK_INT(poll(&waits, 1, SOON), 1);
    CHECK_OK(blip_connection_wait_closed(waiting, SOON));
    blip_connection_release(waiting);
    close(descriptor);
    pair_close(&pair);
}

/* ---- passwords that are being compared while everything ends ---- */

static blip_listener *guarded(blip_runtime *runtime)
{
    blip_listener *listener = NULL;
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_add_user(options, S("ann"), S("secret")));
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    return listener;
}

enum { GUESSES = 12 };

static void guess(uint16_t port, int descriptors[GUESSES])
{
    /* ann:wrong */
    static const char request[] =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Basic YW5uOndyb25n\r\n\r\n";
    for (int i = 0; i < GUESSES; i++) {
        descriptors[i] = dial(port);
        REQUIRE_INT(send(descriptors[i], request, sizeof request - 1, MSG_NOSIGNAL), (ssize_t)sizeof request - 1);
    }
}

TEST(passwords_are_compared_while_the_listener_ends)
{
    for (int how = 0; how < 3; how++) {
        int descriptors[GUESSES];
        blip_runtime *runtime = make_runtime(1);
        blip_listener *listener = guarded(runtime);
        guess(port_of(listener), descriptors);
        sleep_ms(20 * how);
        if (how == 1) {
            CHECK_OK(blip_listener_stop(listener, true, 100));
            for (int i = 0; i < GUESSES; i++)
                close(descriptors[i]);
            CHECK_OK(blip_listener_wait_stopped(listener, SOON));
        }
        if (how != 2)
            blip_listener_release(listener);
        blip_status status = blip_runtime_stop(runtime, how == 1 ? SOON : 0);
        CHECK(status == BLIP_OK || (how != 1 && status == BLIP_ERROR_TIMEOUT));
        if (how == 2)
            blip_listener_release(listener);
        blip_runtime_release(runtime);
        for (int i = 0; i < GUESSES && how != 1; i++)
            close(descriptors[i]);
    }
}

TEST_SECONDS(a_process_exits_while_passwords_are_compared, 120)
{
#ifdef __SANITIZE_ADDRESS__
    test_skip("what is alive at exit looks like a leak");
    return;
#endif
    fflush(NULL);
    for (int round = 0; round < 15; round++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            int descriptors[GUESSES];
            alarm(30);
            blip_listener *listener = guarded(make_runtime(1));
            guess(port_of(listener), descriptors);
            sleep_ms(10 + 7 * round);
            exit(0);
        }
        int status = 0;
        REQUIRE_INT(waitpid(child, &status, 0), child);
        if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0))
            test_note("round %d: the child ended with status %x", round, status);
    }
}
