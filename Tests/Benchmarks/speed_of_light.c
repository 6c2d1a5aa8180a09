/* The reference: the least work that BLIP 3 over a WebSocket can be done with, and nothing else.
 *
 *     speed_of_light [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-S server-core] [-C client-core]
 *     speed_of_light -p port [-l] [-n requests] ...
 *
 * One connection. Requests have the property Profile and a body that fits one frame; responses echo it. Frames are
 * framed, masked by the client, and summed up both ways; everything is read and written in batches. There are no
 * objects, no limits, no other message types, no errors but to end. What a library can do on this machine lies below.
 *
 * With -p it is only a client, of any BLIP server. -n ends after so many requests. With -l all requests of a window go
 * out in one call, and the next ones when all are answered: a server sees the same calls in each run.
 *
 * Prints one JSON object. */

#include "sockets.h"

#include <isa-l/crc.h>

enum { READ_ROOM = 256 * 1024, MAX_BODY = 16000, FRAME_ROOM = 48 };

static const char upgrade[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Protocol: BLIP_3\r\n\r\n";
/* The answer to this key, from RFC 6455 §1.3. */
static const char upgraded[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                               "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                               "Sec-WebSocket-Protocol: BLIP_3\r\n\r\n";
static const unsigned char properties[] = "\015Profile\0echo";

struct end { /* of the connection */
    int socket;
    bool is_client;
    unsigned char *in, *out;
    size_t received, queued;
    uint32_t crc_in, crc_out;
    uint64_t mask_state;
};

struct frame {
    uint64_t number;
    unsigned char *payload;
    size_t size;
};

static size_t put_varint(unsigned char *to, uint64_t value)
{
    size_t size = 0;
    for (; value > 127; value >>= 7)
        to[size++] = (unsigned char)(value | 128);
    to[size++] = (unsigned char)value;
    return size;
}

static size_t get_varint(const unsigned char *from, uint64_t *value)
{
    size_t size = 0;
    *value = 0;
    do
        *value |= (uint64_t)(from[size] & 127) << (7 * size);
    while (from[size++] & 128);
    return size;
}

static void mask(unsigned char *bytes, size_t size, uint32_t key)
{
    uint64_t both = (uint64_t)key << 32 | key;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        word ^= both;
        memcpy(bytes + i, &word, 8);
    }
    for (; i < size; i++)
        bytes[i] ^= ((unsigned char *)&key)[i & 3];
}

/* Header and payload in two parts; RFC 6455 §5.2. */
static void put_frame(struct end *end, uint64_t message, unsigned char flags, const unsigned char *first,
    size_t first_size, const unsigned char *second, size_t second_size)
{
    unsigned char head[12], *to = end->out + end->queued;
    size_t head_size = put_varint(head, message);
    head[head_size++] = flags;
    size_t size = head_size + first_size + second_size + 4;
    unsigned char masked = end->is_client ? 128 : 0;
    *to++ = 0x82;
    if (size < 126) {
        *to++ = (unsigned char)size | masked;
    } else {
        *to++ = 126 | masked;
        *to++ = (unsigned char)(size >> 8);
        *to++ = (unsigned char)size;
    }
    uint32_t key = 0;
    if (masked) {
        end->mask_state = end->mask_state * UINT64_C(6364136223846793005) + 1;
        key = (uint32_t)(end->mask_state >> 32);
        memcpy(to, &key, 4);
        to += 4;
    }
    unsigned char *start = to;
    memcpy(to, head, head_size);
    to += head_size;
    memcpy(to, first, first_size);
    memcpy(to + first_size, second, second_size);
    end->crc_out = crc32_gzip_refl(end->crc_out, to, first_size + second_size);
    to += first_size + second_size;
    uint32_t sum = htonl(end->crc_out);
    memcpy(to, &sum, 4);
    to += 4;
    if (masked)
        mask(start, size, key);
    end->queued = (size_t)(to - end->out);
}

/* The frame at an offset of what was received; 0 if it is not there as a whole, else the size of all of it. */
static size_t get_frame(struct end *end, size_t at, struct frame *frame)
{
    size_t left = end->received - at, head = 2;
    unsigned char *from = end->in + at;
    if (left < 4)
        return 0;
    size_t size = from[1] & 127;
    if (size == 126) {
        size = (size_t)from[2] << 8 | from[3];
        head = 4;
    }
    if (!end->is_client)
        head += 4;
    if (left < head + size)
        return 0;
    unsigned char *payload = from + head;
    if (!end->is_client) {
        uint32_t key;
        memcpy(&key, payload - 4, 4);
        mask(payload, size, key);
    }
    size_t skip = get_varint(payload, &frame->number) + 1;
    frame->payload = payload + skip;
    frame->size = size - skip - 4;
    end->crc_in = crc32_gzip_refl(end->crc_in, frame->payload, frame->size);
    uint32_t sum;
    memcpy(&sum, payload + size - 4, 4);
    if (ntohl(sum) != end->crc_in)
        die("a checksum is wrong");
    return head + size;
}

/* Drops the front of what was received. */
static void drop(struct end *end, size_t size)
{
    end->received -= size;
    memmove(end->in, end->in + size, end->received);
}

static bool receive(struct end *end)
{
    ssize_t count = recv(end->socket, end->in + end->received, READ_ROOM - end->received, 0);
    if (count < 0 && errno == EINTR)
        return true;
    if (count <= 0)
        return false;
    end->received += (size_t)count;
    return true;
}

/* Reads an HTTP head; what follows stays. */
static void skip_head(struct end *end)
{
    for (;;) {
        char *tail = memmem(end->in, end->received, "\r\n\r\n", 4);
        if (tail != NULL) {
            drop(end, (size_t)(tail + 4 - (char *)end->in));
            return;
        }
        if (!receive(end))
            die("the connection ended in the handshake");
    }
}

static void serve(struct end *end)
{
    skip_head(end);
    send_all(end->socket, upgraded, sizeof upgraded - 1);
    while (receive(end)) {
        struct frame frame;
        size_t at = 0;
        for (size_t size; (size = get_frame(end, at, &frame)) != 0; at += size) {
            uint64_t block;
            size_t skip = get_varint(frame.payload, &block);
            skip += (size_t)block;
            put_frame(end, frame.number, 1, (const unsigned char *)"", 1, frame.payload + skip, frame.size - skip);
        }
        drop(end, at);
        if (!send_all(end->socket, end->out, end->queued))
            break;
        end->queued = 0;
    }
}

struct plan {
    double seconds, warm_up;
    uint64_t window, limit;
    size_t body_size;
    bool lockstep;
};

static void ask(struct end *end, const struct plan *plan)
{
    static struct histogram times;
    uint64_t *sent_at = room(plan->window, sizeof *sent_at), sent = 0, answered = 0, sent_bytes = 0, counted = 0;
    send_all(end->socket, upgrade, sizeof upgrade - 1);
    skip_head(end);

    uint64_t now = nanoseconds(), opens = now + (uint64_t)(plan->warm_up * 1e9);
    uint64_t closes = plan->limit != 0 ? UINT64_MAX : opens + (uint64_t)(plan->seconds * 1e9);
    if (plan->limit != 0)
        opens = now;
    while (now < closes && (plan->limit == 0 || answered < plan->limit)) {
        bool may_send = !plan->lockstep || answered == sent;
        while (may_send && sent - answered < plan->window && (plan->limit == 0 || sent < plan->limit)) {
            sent_at[sent % plan->window] = now;
            put_frame(end, ++sent, 0, properties, sizeof properties, pattern, plan->body_size);
        }
        if (sent_bytes < end->queued) {
            ssize_t count = send(end->socket, end->out + sent_bytes, end->queued - sent_bytes, MSG_DONTWAIT);
            if (count < 0 && errno != EAGAIN && errno != EINTR)
                die("cannot send: %s", strerror(errno));
            sent_bytes += count > 0 ? (uint64_t)count : 0;
        }
        if (sent_bytes == end->queued) {
            sent_bytes = end->queued = 0;
        } else {
            struct pollfd wait = {end->socket, POLLIN | POLLOUT, 0};
            poll(&wait, 1, -1);
            if ((wait.revents & POLLIN) == 0)
                continue;
        }
        if (!receive(end))
            die("the connection ended");
        now = nanoseconds();
        struct frame frame;
        size_t at = 0;
        for (size_t size; (size = get_frame(end, at, &frame)) != 0; at += size, answered++) {
            if (frame.size != 1 + plan->body_size)
                die("the server did not echo the body");
            if (now >= opens && now < closes) {
                counted++;
                record(&times, now - sent_at[(frame.number - 1) % plan->window], 1);
            }
        }
        drop(end, at);
    }
    double passed = plan->limit != 0 ? (double)(now - opens) / 1e9 : plan->seconds;
    printf("{\"rate\": %.1f, \"mb_per_s\": %.3f, \"count\": %" PRIu64 ", ", (double)counted / passed,
        (double)counted / passed * (double)plan->body_size / 1e6, counted);
    print_latency(&times);
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct plan plan = {.seconds = 2, .warm_up = 0.3, .window = 256, .body_size = 64};
    int server_core = -1, client_core = -1, option;
    uint16_t port = 0;
    while ((option = getopt(argc, argv, "s:m:b:w:n:S:C:p:l")) != -1) {
        switch (option) {
        case 's': plan.seconds = strtod(optarg, NULL); break;
        case 'm': plan.warm_up = strtod(optarg, NULL); break;
        case 'b': plan.body_size = (size_t)number(optarg); break;
        case 'w': plan.window = number(optarg); break;
        case 'n': plan.limit = number(optarg); break;
        case 'S': server_core = (int)number(optarg); break;
        case 'C': client_core = (int)number(optarg); break;
        case 'p': port = (uint16_t)number(optarg); break;
        case 'l': plan.lockstep = true; break;
        default: optind = argc + 1; break;
        }
    }
    if (optind != argc || plan.window == 0 || plan.body_size > MAX_BODY || plan.seconds <= 0) {
        fprintf(stderr, "usage: speed_of_light [-s seconds] [-m warm-up-seconds] [-b body-bytes, at most %d]\n"
                        "                      [-w window] [-n requests] [-S server-core] [-C client-core]\n"
                        "                      [-p port [-l]]\n", MAX_BODY);
        return 2;
    }
    make_pattern();
    struct end end = {.in = room(READ_ROOM, 1)};
    int listener = port == 0 ? listen_at_any_port(&port) : -1;
    if (listener >= 0 && fork_server(server_core)) {
        end.out = room(READ_ROOM + READ_ROOM / 8 + FRAME_ROOM, 1); /* responses are smaller than requests */
        end.socket = accept_one(listener);
        serve(&end);
        return 0;
    }
    pin(client_core);
    end.out = room(plan.window, plan.body_size + FRAME_ROOM);
    end.is_client = true;
    end.mask_state = nanoseconds();
    end.socket = connect_to_port(port);
    ask(&end, &plan);
    return 0;
}
