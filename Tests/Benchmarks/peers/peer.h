/* What the programs of other libraries share: options, and the record of what came back.
 *
 *     PEER [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-S server-core] [-C client-core]
 *
 * An echo between two processes over loopback, on one connection. Prints one JSON object. */
#ifndef PEER_H
#define PEER_H

#include "../sockets.h"

struct plan {
    double seconds, warm_up;
    size_t body_size;
    uint64_t window, opens, closes;
    int server_core, client_core;
    uint16_t port;
};

static struct plan plan = {2, 0.3, 64, 64, 0, 0, -1, -1, 0};
static struct histogram times;

/* A port that was free a moment ago. */
static inline uint16_t free_port(void)
{
    uint16_t port;
    close(listen_at_any_port(&port));
    return port;
}

/* True in the server. */
static inline bool begin(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:m:b:w:S:C:")) != -1) {
        switch (option) {
        case 's': plan.seconds = strtod(optarg, NULL); break;
        case 'm': plan.warm_up = strtod(optarg, NULL); break;
        case 'b': plan.body_size = (size_t)number(optarg); break;
        case 'w': plan.window = number(optarg); break;
        case 'S': plan.server_core = (int)number(optarg); break;
        case 'C': plan.client_core = (int)number(optarg); break;
        default: exit(2);
        }
    }
    make_pattern();
    plan.port = free_port();
    if (fork_server(plan.server_core))
        return true;
    pin(plan.client_core);
    return false;
}

/* Called when the connection is there. */
static inline void start_clock(void)
{
    plan.opens = nanoseconds() + (uint64_t)(plan.warm_up * 1e9);
    plan.closes = plan.opens + (uint64_t)(plan.seconds * 1e9);
}

static inline void fill(void *body)
{
    for (size_t at = 0; at < plan.body_size; at += PATTERN)
        memcpy((char *)body + at, pattern, plan.body_size - at < PATTERN ? plan.body_size - at : PATTERN);
}

static inline void check(const void *body, size_t size)
{
    if (size != plan.body_size || !fits_pattern(body, size, 0))
        die("the server did not echo the body");
}

/* Whether to go on. */
static inline bool answered(uint64_t since)
{
    uint64_t now = nanoseconds();
    if (now >= plan.opens && now < plan.closes)
        record(&times, now - since, 1);
    return now < plan.closes;
}

static inline void report(void)
{
    double rate = (double)times.total / plan.seconds;
    printf("{\"rate\": %.1f, \"mb_per_s\": %.3f, \"count\": %" PRIu64 ", ", rate, rate * (double)plan.body_size / 1e6,
        times.total);
    print_latency(&times);
    printf("}\n");
    fflush(stdout);
}

#endif
