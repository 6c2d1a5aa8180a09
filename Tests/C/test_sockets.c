/* Sockets that the program brings, and what it may ask about those of connections. */

#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static bool is_open_soon(int fd, bool open)
{
    int64_t end = now_ms() + SOON;
    while (is_open(fd) != open && now_ms() < end)
        sleep_ms(5);
    return is_open(fd) == open;
}

static blip_listener *echo_listener(blip_runtime *runtime)
{
    blip_listener *listener = NULL;
    REQUIRE_OK(blip_listener_new(runtime, NULL, &listener));
    set_server_handlers(listener);
    return listener;
}

static void stop(blip_listener *listener)
{
    CHECK_OK(blip_listener_stop(listener, false, 0));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
}

static void check_echo(blip_connection *connection)
{
    struct outcome outcome;
    CHECK_OK(send_request(connection, "echo", "hello", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, "hello") == 0);
}

/* Connects to a URL, uses it and closes. */
static void check_url(blip_runtime *runtime, blip_slice url)
{
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_connection_new(runtime, url, NULL, &connection));
    REQUIRE_OK(blip_connection_wait_open(connection, SOON));
    check_echo(connection);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
}

static int listening_socket(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE_INT(bind(fd, (struct sockaddr *)address, sizeof *address), 0);
    REQUIRE_INT(listen(fd, 10), 0);
    REQUIRE_INT(getsockname(fd, (struct sockaddr *)address, &size), 0);
    return fd;
}

TEST(both_ends_of_a_connected_pair)
{
    int ends[2];
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = echo_listener(runtime);
    blip_connection *connection = NULL;
    size_t before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        REQUIRE_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        REQUIRE_OK(blip_listener_accept_fd(listener, ends[0]));
        REQUIRE_OK(blip_connection_from_fd(runtime, ends[1], S("ws://localhost/"), NULL, &connection));
        REQUIRE_OK(blip_connection_wait_open(connection, SOON));
        check_echo(connection);
        CHECK_OK(blip_connection_close(connection, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(connection, SOON));
        blip_connection_release(connection);
        CHECK(is_open_soon(ends[0], false));
        CHECK(is_open_soon(ends[1], false));
    }
    blip_slice url;
    uint16_t port;
    CHECK_STATUS(blip_listener_url(listener, &url), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_listener_port(listener, &port), BLIP_ERROR_STATE);
    stop(listener);
    CHECK_AT_MOST(open_descriptors(), before + 2);
    drop_runtime(runtime);
}

TEST(a_descriptor_that_was_taken_is_closed_in_the_end)
{
    int ends[2];
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL;
    REQUIRE_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    REQUIRE_OK(blip_connection_from_fd(runtime, ends[0], S("ws://localhost/"), NULL, &connection));
    CHECK(is_open(ends[0]));
    blip_connection_release(connection); /* never told to connect */
    CHECK(is_open_soon(ends[0], false));
    close(ends[1]);
    drop_runtime(runtime);
}

TEST(descriptors_that_are_no_such_sockets_stay_the_programs)
{
    int pipes[2], ends[2], datagram[2];
    struct sockaddr_in address;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = echo_listener(runtime);
    blip_connection *connection = NULL;
    REQUIRE_INT(pipe(pipes), 0);
    REQUIRE_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    REQUIRE_INT(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram), 0);
    int listening = listening_socket(&address), unconnected = socket(AF_INET, SOCK_STREAM, 0);
    int bad[] = {-1, 9999, pipes[0], datagram[0], listening, unconnected};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(
            blip_connection_from_fd(runtime, bad[i], S("ws://localhost/"), NULL, &connection), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_accept_fd(listener, bad[i]), BLIP_ERROR_ARGUMENT);
    }
    CHECK_STATUS(blip_connection_from_fd(runtime, ends[0], S("nonsense"), NULL, &connection), BLIP_ERROR_URL);
    CHECK_STATUS(blip_connection_from_fd(runtime, ends[0], S("ws://x/"), NULL, NULL), BLIP_ERROR_ARGUMENT);
    int not_listening[] = {-1, 9999, pipes[0], ends[0], unconnected};
    for (size_t i = 0; i < sizeof not_listening / sizeof *not_listening; i++)
        CHECK(blip_listener_start_fd(listener, not_listening[i]) < 0);
    for (size_t i = 2; i < sizeof bad / sizeof *bad; i++)
        CHECK(is_open(bad[i]));
    CHECK(is_open(ends[0]) && is_open(ends[1]));
    CHECK_OK(blip_listener_start_fd(listener, listening));
    stop(listener);
    CHECK(is_open_soon(listening, false));
    CHECK_STATUS(blip_connection_from_fd(runtime, ends[0], S("ws://x/"), NULL, &connection), BLIP_OK);
    blip_connection_release(connection);
    drop_runtime(runtime);
}

TEST(a_socket_that_listens_already)
{
    struct sockaddr_in address;
    blip_slice url;
    uint16_t port = 0;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = echo_listener(runtime);
    int fd = listening_socket(&address);
    REQUIRE_OK(blip_listener_start_fd(listener, fd));
    CHECK_OK(blip_listener_port(listener, &port));
    CHECK_INT(port, ntohs(address.sin_port));
    CHECK_STATUS(blip_listener_start_fd(listener, fd), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_listener_url(listener, &url));
    check_url(runtime, url);
    stop(listener);
    CHECK(is_open_soon(fd, false));

    struct sockaddr_un file = {.sun_family = AF_UNIX};
    snprintf(file.sun_path, sizeof file.sun_path, "%s/given", temporary_directory());
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE_INT(bind(fd, (struct sockaddr *)&file, sizeof file), 0);
    REQUIRE_INT(listen(fd, 10), 0);
    listener = echo_listener(runtime);
    REQUIRE_OK(blip_listener_start_fd(listener, fd));
    REQUIRE_OK(blip_listener_url(listener, &url));
    check_url(runtime, url);
    stop(listener);
    CHECK_INT(access(file.sun_path, F_OK), 0); /* not ours to remove */
    drop_runtime(runtime);
}

struct giving {
    pthread_barrier_t *start;
    blip_listener *listener;
    int fd;
    blip_status status;
};

static void *give(void *context)
{
    struct giving *giving = context;
    pthread_barrier_wait(giving->start);
    giving->status = blip_listener_start_fd(giving->listener, giving->fd);
    return NULL;
}

TEST(a_socket_that_threads_give_at_once_is_taken_once)
{
    enum { ROUNDS = 100, THREADS = 3 };
    blip_runtime *runtime = make_runtime(1);
    for (int round = 0; round < ROUNDS; round++) {
        struct sockaddr_in address;
        struct giving givings[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t start;
        blip_slice url;
        int taken = 0;
        blip_listener *listener = echo_listener(runtime);
        int fd = listening_socket(&address);
        pthread_barrier_init(&start, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            givings[i] = (struct giving){&start, listener, fd, BLIP_OK};
            REQUIRE_INT(pthread_create(&threads[i], NULL, give, &givings[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            if (givings[i].status == BLIP_OK)
                taken++;
            else
                CHECK_STATUS(givings[i].status, BLIP_ERROR_STATE);
        }
        CHECK_INT(taken, 1);
        CHECK_STATUS(blip_listener_url_at(listener, 1, &url), BLIP_ERROR_NOT_FOUND);
        pthread_barrier_destroy(&start);
        stop(listener);
        CHECK(is_open_soon(fd, false));
    }
    drop_runtime(runtime);
}

/* Whoever comes first: a descriptor that was not taken stays as it was. */
TEST(a_socket_given_while_the_listener_stops)
{
    blip_runtime *runtime = make_runtime(1);
    for (int round = 0; round < 300; round++) {
        struct sockaddr_in address;
        pthread_barrier_t start;
        pthread_t thread;
        blip_listener *listener = echo_listener(runtime);
        struct giving giving = {&start, listener, listening_socket(&address), BLIP_OK};
        REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
        pthread_barrier_init(&start, NULL, 2);
        REQUIRE_INT(pthread_create(&thread, NULL, give, &giving), 0);
        pthread_barrier_wait(&start);
        for (volatile int wait = 0; wait < round * 100; wait++)
            ;
        CHECK_OK(blip_listener_stop(listener, false, 0));
        CHECK_OK(blip_listener_wait_stopped(listener, SOON));
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&start);
        CHECK(is_open_soon(giving.fd, giving.status != BLIP_OK));
        if (giving.status != BLIP_OK) {
            CHECK_STATUS(giving.status, BLIP_ERROR_STATE);
            sleep_ms(1);
            CHECK(is_open(giving.fd));
            close(giving.fd);
        }
        blip_listener_release(listener);
    }
    drop_runtime(runtime);
}

/* As systemd does it: descriptors from 3 on, described by the environment. Ours stand at the end of such a list. */
TEST(sockets_of_a_service_manager)
{
    struct sockaddr_in address[2];
    char number[20], names[4000] = "";
    blip_slice url;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = echo_listener(runtime);
    CHECK_STATUS(blip_listener_start_systemd(listener, S("")), BLIP_ERROR_NOT_FOUND);
    int first = fcntl(listening_socket(&address[0]), F_DUPFD, 100);
    int second = fcntl(listening_socket(&address[1]), F_DUPFD, first + 1);
    REQUIRE_INT(second, first + 1);
    for (int fd = 3; fd < first; fd++)
        strcat(names, "other:");
    strcat(names, "blip:admin");
    snprintf(number, sizeof number, "%d", second - 2);
    setenv("LISTEN_FDS", number, 1);
    setenv("LISTEN_FDNAMES", names, 1);
    setenv("LISTEN_PID", "1", 1);
    CHECK_STATUS(blip_listener_start_systemd(listener, S("blip")), BLIP_ERROR_NOT_FOUND);
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    CHECK_STATUS(blip_listener_start_systemd(listener, S("nobody")), BLIP_ERROR_NOT_FOUND);
    REQUIRE_OK(blip_listener_start_systemd(listener, S("blip")));
    REQUIRE_OK(blip_listener_url(listener, &url));
    check_url(runtime, url);
    blip_listener *another = echo_listener(runtime);
    CHECK_STATUS(blip_listener_start_systemd(another, S("blip")), BLIP_ERROR_NOT_FOUND);
    REQUIRE_OK(blip_listener_start_systemd(another, S("admin")));
    uint16_t port = 0;
    CHECK_OK(blip_listener_port(another, &port));
    CHECK_INT(port, ntohs(address[1].sin_port));
    stop(another);
    stop(listener);
    drop_runtime(runtime);
}

struct seen {
    struct counter called;
    int fd;
};

static void look(blip_connection *connection, int fd, void *context)
{
    struct seen *seen = context;
    int type = 0;
    socklen_t size = sizeof type;
    (void)connection;
    seen->fd = fd;
    if (fd >= 0)
        CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM);
    counter_add(&seen->called, 1);
}

TEST(addresses_and_the_descriptor)
{
    struct pair pair;
    struct counter released = COUNTER;
    struct seen seen = {.fd = -2};
    blip_slice local, remote;
    bool ipv4 = false, ipv6 = true;
    counter_init(&seen.called);
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_local_sockaddr(pair.client, &local));
    CHECK_OK(blip_connection_remote_sockaddr(pair.accepted, &remote));
    CHECK(local.size == sizeof(struct sockaddr_in) && remote.size == local.size);
    CHECK(memcmp(local.data, remote.data, 8) == 0);
    struct sockaddr_in address;
    memcpy(&address, local.data, sizeof address);
    CHECK_INT(address.sin_family, AF_INET);
    CHECK_INT(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_OK(blip_connection_is_ipv4(pair.client, &ipv4));
    CHECK_OK(blip_connection_is_ipv6(pair.client, &ipv6));
    CHECK(ipv4 && !ipv6);
    CHECK_STATUS(blip_connection_perform_fd(pair.client, NULL, &released, count_release), BLIP_ERROR_ARGUMENT);
    CHECK_INT(counter_get(&released), 1);
    CHECK_OK(blip_connection_perform_fd(pair.client, look, &seen, NULL));
    REQUIRE_REACHES(&seen.called, 1);
    CHECK_AT_LEAST(seen.fd, 0);
    blip_connection *late = blip_connection_retain(pair.client);
    pair_close(&pair);
    if (blip_connection_perform_fd(late, look, &seen, NULL) == BLIP_OK) {
        REQUIRE_REACHES(&seen.called, 2);
        CHECK_INT(seen.fd, -1);
    }
    CHECK_OK(blip_connection_remote_sockaddr(late, &remote));
    blip_connection_release(late);
}

static struct counter refused = COUNTER;

static void refuse(blip_listener *listener, blip_connection *connection, void *context)
{
    blip_slice address = {NULL, 0};
    (void)listener;
    (void)context;
    CHECK_OK(blip_connection_remote_address(connection, &address));
    CHECK(address.size > 10 && memcmp(address.data, "127.0.0.1:", 10) == 0);
    blip_connection_close(connection, 1000, S(""));
    counter_add(&refused, 1);
}

static void refused_closed(blip_connection *connection, blip_status status, void *context)
{
    blip_slice address = {NULL, 0};
    (void)status;
    CHECK_OK(blip_connection_remote_address(connection, &address));
    counter_add(context, 1);
}

/* A client that speaks no HTTP, and one that the program refuses, have an address too. */
TEST(clients_that_are_refused_have_an_address)
{
    struct counter closed = COUNTER;
    blip_slice url;
    uint16_t port = 0;
    blip_connection *connection = NULL;
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = echo_listener(runtime);
    REQUIRE_OK(blip_listener_set_accept_callback(listener, refuse, NULL, NULL));
    REQUIRE_OK(blip_listener_set_close_callback(listener, refused_closed, &closed, NULL));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(listener, &url));
    REQUIRE_OK(blip_listener_port(listener, &port));
    REQUIRE_OK(blip_connection_new(runtime, url, NULL, &connection));
    CHECK(blip_connection_wait_open(connection, SOON) < 0);
    blip_connection_release(connection);
    REQUIRE_REACHES(&closed, 1);
    CHECK_INT(counter_get(&refused), 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_INT(write(fd, "nonsense\n", 9), 9);
    REQUIRE_REACHES(&closed, 2);
    close(fd);
    stop(listener);
    drop_runtime(runtime);
}
