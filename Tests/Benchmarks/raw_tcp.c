/* The other reference: bytes over a loopback connection, without any protocol.
 *
 *     raw_tcp [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-S server-core] [-C client-core]
 *     raw_tcp -o bytes [-S server-core] [-C client-core]
 *
 * The server sends back whatever comes. The client has a window of bodies under way; with one in flight it is a plain
 * round trip. With -o so many bytes go one way, and one byte comes back when all have arrived.
 *
 * Prints one JSON object. */

#include "sockets.h"

enum { CHUNK = 256 * 1024 };

static void serve_echo(int connection)
{
    unsigned char *buffer = room(CHUNK, 1);
    ssize_t count;
    while ((count = recv(connection, buffer, CHUNK, 0)) > 0)
        if (!send_all(connection, buffer, (size_t)count))
            return;
}

static void serve_one_way(int connection, uint64_t size)
{
    unsigned char *buffer = room(CHUNK, 1);
    uint64_t received = 0;
    ssize_t count;
    while (received < size && (count = recv(connection, buffer, CHUNK, 0)) > 0)
        received += (uint64_t)count;
    send_all(connection, "", 1);
}

static void send_one_way(int connection, uint64_t size)
{
    unsigned char *buffer = room(CHUNK, 1), end;
    uint64_t begun = nanoseconds();
    for (uint64_t sent = 0; sent < size;) {
        size_t count = size - sent < CHUNK ? (size_t)(size - sent) : CHUNK;
        if (!send_all(connection, buffer, count))
            die("cannot send");
        sent += count;
    }
    if (recv(connection, &end, 1, 0) != 1)
        die("the connection ended");
    double passed = (double)(nanoseconds() - begun) / 1e9;
    printf("{\"mb_per_s\": %.1f, \"seconds\": %.3f}\n", (double)size / passed / 1e6, passed);
}

/* Bodies are told apart by counting bytes alone. */
static void ask(int connection, size_t body_size, uint64_t window, double seconds, double warm_up)
{
    static struct histogram times;
    uint64_t capacity = body_size > CHUNK ? body_size : CHUNK / body_size * body_size;
    unsigned char *out = room(capacity, 1), *in = room(CHUNK, 1);
    uint64_t *sent_at = room(window, sizeof *sent_at), started = 0, answered = 0, sent = 0, received = 0, counted = 0;
    uint64_t now = nanoseconds(), opens = now + (uint64_t)(warm_up * 1e9), closes = opens + (uint64_t)(seconds * 1e9);
    while (now < closes) {
        for (; started - answered < window; started++)
            sent_at[started % window] = now;
        uint64_t goal = started * body_size;
        if (sent < goal) {
            uint64_t at = sent % capacity, size = capacity - at < goal - sent ? capacity - at : goal - sent;
            ssize_t count = send(connection, out + at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count < 0 && errno != EAGAIN && errno != EINTR)
                die("cannot send: %s", strerror(errno));
            sent += count > 0 ? (uint64_t)count : 0;
        }
        if (sent < goal) {
            struct pollfd wait = {connection, POLLIN | POLLOUT, 0};
            poll(&wait, 1, -1);
            if ((wait.revents & POLLIN) == 0)
                continue;
        }
        ssize_t count = recv(connection, in, CHUNK, 0);
        if (count <= 0)
            die("the connection ended");
        received += (uint64_t)count;
        now = nanoseconds();
        for (; answered < received / body_size; answered++) {
            if (now >= opens && now < closes) {
                counted++;
                record(&times, now - sent_at[answered % window], 1);
            }
        }
    }
    printf("{\"rate\": %.1f, \"mb_per_s\": %.3f, \"count\": %" PRIu64 ", ", (double)counted / seconds,
        (double)counted / seconds * (double)body_size / 1e6, counted);
    print_latency(&times);
    printf("}\n");
}

int main(int argc, char **argv)
{
    double seconds = 2, warm_up = 0.3;
    size_t body_size = 64;
    uint64_t window = 1, one_way = 0;
    int server_core = -1, client_core = -1, option;
    while ((option = getopt(argc, argv, "s:m:b:w:o:S:C:")) != -1) {
        switch (option) {
        case 's': seconds = strtod(optarg, NULL); break;
        case 'm': warm_up = strtod(optarg, NULL); break;
        case 'b': body_size = (size_t)number(optarg); break;
        case 'w': window = number(optarg); break;
        case 'o': one_way = number(optarg); break;
        case 'S': server_core = (int)number(optarg); break;
        case 'C': client_core = (int)number(optarg); break;
        default: optind = argc + 1; break;
        }
    }
    if (optind != argc || window == 0 || body_size == 0 || seconds <= 0) {
        fprintf(stderr, "usage: raw_tcp [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-o bytes]\n"
                        "               [-S server-core] [-C client-core]\n");
        return 2;
    }
    uint16_t port;
    int listener = listen_at_any_port(&port);
    if (fork_server(server_core)) {
        int connection = accept_one(listener);
        if (one_way != 0)
            serve_one_way(connection, one_way);
        else
            serve_echo(connection);
        return 0;
    }
    pin(client_core);
    int connection = connect_to_port(port);
    if (one_way != 0)
        send_one_way(connection, one_way);
    else
        ask(connection, body_size, window, seconds, warm_up);
    return 0;
}
