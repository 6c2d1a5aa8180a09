/* Read and write timeouts: connections on which nothing moves although it should. */

#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct stall {
    struct counter asked, closed;
    int grants;      /* how often more time is given */
    bool writing;    /* which way it was */
    int64_t elapsed;
    uint64_t bytes;
    blip_status status;
};

static int64_t asked(blip_connection *connection, bool writing, int64_t elapsed, uint64_t bytes, void *context)
{
    struct stall *stall = context;
    (void)connection;
    stall->writing = writing;
    stall->elapsed = elapsed;
    stall->bytes = bytes;
    counter_add(&stall->asked, 1);
    return stall->grants-- > 0 ? 200 : 0;
}

static void closed(blip_connection *connection, blip_status status, void *context)
{
    struct stall *stall = context;
    (void)connection;
    stall->status = status;
    counter_add(&stall->closed, 1);
}

static void stall_init(struct stall *stall)
{
    memset(stall, 0, sizeof *stall);
    counter_init(&stall->asked);
    counter_init(&stall->closed);
}

/* A WebSocket client by hand: the upgrade is done when it returns. */
static int raw_client(uint16_t port)
{
    static const char request[] =
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: BLIP_3\r\n\r\n";
    char answer[2000];
    size_t size = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    REQUIRE_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    REQUIRE_INT(write(fd, request, sizeof request - 1), (int64_t)sizeof request - 1);
    do {
        REQUIRE_INT(read(fd, answer + size, 1), 1);
        size++;
    } while (size < 4 || memcmp(answer + size - 4, "\r\n\r\n", 4) != 0);
    return fd;
}

static blip_listener *start(blip_runtime *runtime, blip_listener_options *options, struct stall *stall, uint16_t *port)
{
    blip_listener *listener = NULL;
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_set_timeout_callback(listener, asked, stall, NULL));
    REQUIRE_OK(blip_listener_set_close_callback(listener, closed, stall, NULL));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_port(listener, port));
    return listener;
}

static void stop(blip_listener *listener, blip_runtime *runtime)
{
    CHECK_OK(blip_listener_stop(listener, false, 0));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
    drop_runtime(runtime);
}

/* The first frame of a request (number 1, "more coming"), whose rest never comes. */
static void send_half_a_request(int fd)
{
    unsigned char frame[64] = {0x82, 0x80, 0, 0, 0, 0};
    size_t size = 0;
    uint32_t crc = 0xffffffff;
    unsigned char body[40];
    body[size++] = 1;
    body[size++] = 0x40;
    static const unsigned char message[] = {10, 'P', 'r', 'o', 'f', 'i', 'l', 'e', 0, 'e', 0, 'x', 'y'};
    for (size_t i = 0; i < sizeof message; i++) {
        body[size++] = message[i];
        crc ^= message[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    crc = ~crc;
    for (int shift = 24; shift >= 0; shift -= 8)
        body[size++] = (unsigned char)(crc >> shift);
    frame[1] = (unsigned char)(0x80 | size);
    memcpy(frame + 6, body, size);
    REQUIRE_INT(write(fd, frame, size + 6), (int64_t)size + 6);
}

TEST(half_a_message)
{
    struct stall stall;
    uint16_t port = 0;
    stall_init(&stall);
    stall.grants = 2;
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    CHECK_STATUS(blip_listener_options_set_read_timeout(options, -2), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_listener_options_set_read_timeout(options, 200));
    blip_listener *listener = start(runtime, options, &stall, &port);
    int fd = raw_client(port);
    sleep_ms(600); /* nothing is under way: nobody is asked */
    CHECK_INT(counter_get(&stall.asked), 0);
    send_half_a_request(fd);
    REQUIRE_REACHES(&stall.closed, 1);
    CHECK_INT(counter_get(&stall.asked), 3);
    CHECK(!stall.writing);
    CHECK_AT_LEAST(stall.elapsed, 600);
    CHECK_AT_LEAST(stall.bytes, 20);
    CHECK_STATUS(stall.status, BLIP_ERROR_TIMEOUT);
    close(fd);
    stop(listener, runtime);
}

TEST_SECONDS(a_peer_that_takes_nothing, 60)
{
    struct stall stall;
    uint16_t port = 0;
    stall_init(&stall);
    stall.grants = 1;
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_set_write_timeout(options, 200));
    blip_listener *listener = start(runtime, options, &stall, &port);
    int fd = raw_client(port);
    static unsigned char ping[] = {0x89, 0x80 | 100, 0, 0, 0, 0};
    unsigned char frame[106] = {0};
    memcpy(frame, ping, sizeof ping);
    /* Pings are answered; the answers fill the socket. */
    struct timeval patience = {0, 100000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int64_t end = now_ms() + 50000;
    while (counter_get(&stall.closed) == 0 && now_ms() < end)
        if (send(fd, frame, sizeof frame, MSG_NOSIGNAL) < 0)
            sleep_ms(5);
    CHECK_INT(counter_get(&stall.closed), 1);
    CHECK(stall.writing);
    CHECK_STATUS(stall.status, BLIP_ERROR_TIMEOUT);
    CHECK_INT(counter_get(&stall.asked), 2);
    test_note("%s, asked %d times", blip_status_name(stall.status), (int)counter_get(&stall.asked));
    close(fd);
    stop(listener, runtime);
}

/* What moves, and what is idle, is left alone. */
TEST(nothing_wrong)
{
    struct pair pair;
    blip_connection_options *client = blip_connection_options_new();
    blip_listener_options *server = blip_listener_options_new();
    CHECK_OK(blip_connection_options_set_read_timeout(client, 100));
    CHECK_OK(blip_connection_options_set_write_timeout(client, 100));
    CHECK_OK(blip_listener_options_set_read_timeout(server, 100));
    CHECK_OK(blip_listener_options_set_write_timeout(server, 100));
    pair_open(&pair, &(struct pair_options){.client = client, .listener = server});
    for (int i = 0; i < 5; i++) {
        struct outcome outcome;
        CHECK_OK(send_request(pair.client, "slow", "x", &outcome));
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        sleep_ms(150);
    }
    pair_close(&pair);
    CHECK_STATUS(pair.client_status, BLIP_OK);
}
