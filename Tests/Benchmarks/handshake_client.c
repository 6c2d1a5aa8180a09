/* Opens WebSocket connections to a BLIP server, with as little work as possible on this side.
 *
 *     handshake_client [-s seconds] [-w handshakes-at-a-time] url
 *     handshake_client -n connections url
 *
 * The first form opens and drops connections and prints how many a second, as a JSON object. The second one opens that
 * many, prints "open", and keeps them until its standard input ends. */

#include "sockets.h"

#include <sys/epoll.h>

static const char upgrade[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Protocol: BLIP_3\r\n\r\n";

static int epoll;
static uint16_t port;

static void begin(void)
{
    int connection = connect_to_port(port);
    /* Dropped by a reset: thousands of closed connections a second would use up the ports. */
    struct linger drop = {1, 0};
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &drop, sizeof drop);
    if (!send_all(connection, upgrade, sizeof upgrade - 1))
        die("cannot send: %s", strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = connection};
    epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &event);
}

static void finish(int connection)
{
    char answer[1024];
    ssize_t size = recv(connection, answer, sizeof answer, 0);
    if (size < 12 || memcmp(answer, "HTTP/1.1 101", 12) != 0 || memcmp(answer + size - 4, "\r\n\r\n", 4) != 0)
        die("the server refused an upgrade");
}

int main(int argc, char **argv)
{
    double seconds = 2;
    uint64_t width = 64, keep = 0;
    int option;
    while ((option = getopt(argc, argv, "s:w:n:")) != -1) {
        switch (option) {
        case 's': seconds = strtod(optarg, NULL); break;
        case 'w': width = number(optarg); break;
        case 'n': keep = number(optarg); break;
        default: optind = argc + 1; break;
        }
    }
    if (optind + 1 != argc || width == 0) {
        fprintf(stderr, "usage: handshake_client [-s seconds] [-w handshakes-at-a-time] [-n connections] url\n");
        return 2;
    }
    raise_descriptor_limit();
    port = port_of(argv[optind]);
    epoll = epoll_create1(EPOLL_CLOEXEC);

    uint64_t begun = 0, open = 0, start = nanoseconds(), now = start, stop = start + (uint64_t)(seconds * 1e9);
    while (keep != 0 ? open < keep : now < stop) {
        for (; begun - open < width && (keep == 0 || begun < keep); begun++)
            begin();
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, 64, 5000);
        if (count == 0)
            die("no answer for 5 s");
        for (int i = 0; i < count; i++) {
            finish(events[i].data.fd);
            open++;
            if (keep == 0)
                close(events[i].data.fd);
            else
                epoll_ctl(epoll, EPOLL_CTL_DEL, events[i].data.fd, NULL);
        }
        now = nanoseconds();
    }
    if (keep == 0) {
        printf("{\"rate\": %.1f, \"count\": %" PRIu64 "}\n", (double)open / ((double)(now - start) / 1e9), open);
        return 0;
    }
    printf("open\n");
    fflush(stdout);
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0) { }
    return 0;
}
