#define _GNU_SOURCE

#include "network.h"

#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 256 * 1024 };

/* What befalls one direction, or both. */
enum fault { NONE, TRUNCATE, HALF_CLOSE, RESET, STALL, STALL_FOR_EVER, FAULTS };

struct network {
    int listener;
    uint16_t port, target;
    uint64_t seed;
    pthread_t thread;
    atomic_bool is_over;
    atomic_int pairs;
    atomic_long faults;
};

struct direction {
    int from, to;
    unsigned char *bytes;
    size_t start, end;
    uint64_t passed;
    bool is_ended, is_told; /* the sender has ended its output; the receiver was told */
    enum fault fault;
    uint64_t at;       /* the byte at which it strikes */
    int64_t stalled;   /* until then */
    uint32_t largest;  /* piece that is written at once */
    uint32_t gather;   /* bytes to wait for before any goes on, for at most some milliseconds */
    uint32_t delay;    /* milliseconds at most */
    int64_t due;
};

struct pair {
    struct network *network;
    int client;
    struct chance chance;
};

static int make_socket(void)
{
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return descriptor;
}

static void address_of(struct sockaddr_in *address, uint16_t port)
{
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address->sin_port = htons(port);
}

/* Closes with RST instead of FIN. */
static void reset(int descriptor)
{
    struct linger now = {1, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void plan(struct direction *direction, struct chance *chance)
{
    static const uint32_t pieces[] = {1, 2, 7, 100, 1460, 16384, ROOM, ROOM};
    static const uint32_t delays[] = {0, 0, 0, 1, 3, 10};
    direction->largest = pieces[chance_below(chance, 8)];
    direction->delay = delays[chance_below(chance, 6)];
    direction->gather = chance_one_in(chance, 6) ? chance_size(chance, 30000) : 0;
}

static void strike(struct direction *direction, struct chance *chance)
{
    direction->fault = (enum fault)(1 + chance_below(chance, FAULTS - 1));
    /* Mostly early: in the TLS handshake, in the upgrade, in the first messages. */
    direction->at = chance_one_in(chance, 3) ? chance_size(chance, 400000) : chance_below(chance, 3000);
}

/* Reads what comes, as far as there is room. False: the connection is broken. */
static bool fill(struct direction *d, struct chance *chance)
{
    if (d->start == d->end)
        d->start = d->end = 0;
    if (d->is_ended || d->end == ROOM)
        return true;
    ssize_t count = recv(d->from, d->bytes + d->end, ROOM - d->end, MSG_DONTWAIT);
    if (count == 0)
        d->is_ended = true;
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    if (count > 0 && d->start == d->end)
        d->due = now_ms() + (d->delay == 0 ? 0 : chance_below(chance, d->delay + 1)) + (d->gather > 0 ? 8 : 0);
    d->end += (size_t)count;
    return true;
}

enum outcome { GOES_ON, BROKEN, TO_BE_RESET };

/* Passes on what may go now. */
static enum outcome drain(struct direction *d, struct chance *chance)
{
    int64_t now = now_ms();
    size_t held = d->end - d->start;
    if (d->fault != NONE && d->passed >= d->at) {
        switch (d->fault) {
        case TRUNCATE: return BROKEN;
        case RESET: return TO_BE_RESET;
        case HALF_CLOSE:
            /* The receiver sees the end of the stream, while its own bytes still go through. */
            if (!d->is_told)
                shutdown(d->to, SHUT_WR);
            d->is_told = true;
            d->start = d->end = 0;
            return GOES_ON;
        case STALL:
            if (d->stalled == 0)
                d->stalled = now + 20 + chance_below(chance, 150);
            if (now < d->stalled)
                return GOES_ON;
            d->fault = NONE;
            break;
        default: return GOES_ON;
        }
    }
    if (held == 0) {
        if (d->is_ended && !d->is_told) {
            d->is_told = true;
            shutdown(d->to, SHUT_WR);
        }
        return GOES_ON;
    }
    if (now < d->due && (held < d->gather || d->gather == 0))
        return GOES_ON;
    /* Small pieces are written a few at a time, so that a large body comes to its end. */
    for (int turn = 0; turn < 40 && d->start < d->end; turn++) {
        size_t size = 1 + chance_below(chance, d->largest);
        if (size > d->end - d->start)
            size = d->end - d->start;
        if (d->fault != NONE && d->passed < d->at && size > d->at - d->passed)
            size = (size_t)(d->at - d->passed);
        ssize_t count = send(d->to, d->bytes + d->start, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0)
            return errno == EAGAIN || errno == EINTR ? GOES_ON : BROKEN;
        d->start += (size_t)count;
        d->passed += (uint64_t)count;
        if (d->fault != NONE && d->passed >= d->at)
            return GOES_ON;
        if (d->delay > 0 && chance_one_in(chance, 20)) {
            d->due = now + chance_below(chance, d->delay + 1);
            break;
        }
        /* Single bytes for the first kilobytes only. */
        if (d->passed > 4000 && d->largest < 1460)
            d->largest = 1460;
    }
    return GOES_ON;
}

static void forward(struct pair *pair, int server)
{
    struct direction up = {.from = pair->client, .to = server}, down = {.from = server, .to = pair->client};
    struct chance *chance = &pair->chance;
    plan(&up, chance);
    plan(&down, chance);
    if (!chance_one_in(chance, 3)) {
        strike(chance_one_in(chance, 2) ? &up : &down, chance);
        atomic_fetch_add(&pair->network->faults, 1);
    }
    up.bytes = malloc(ROOM);
    down.bytes = malloc(ROOM);
    enum outcome outcome = GOES_ON;
    while (outcome == GOES_ON && !atomic_load(&pair->network->is_over)) {
        struct pollfd polled[2] = {{.fd = pair->client}, {.fd = server}};
        bool is_waiting = up.start < up.end || down.start < down.end;
        if (!up.is_ended && up.end < ROOM)
            polled[0].events = POLLIN;
        if (!down.is_ended && down.end < ROOM)
            polled[1].events = POLLIN;
        /* A hang-up is reported whatever was asked for: who has heard of it sleeps instead. */
        for (int side = 0; side < 2; side++)
            if (polled[side].events == 0)
                polled[side].fd = -1;
        poll(polled, 2, is_waiting || up.stalled || down.stalled ? 1 : 20);
        if (!fill(&up, chance) || !fill(&down, chance))
            break;
        outcome = drain(&up, chance);
        if (outcome == GOES_ON)
            outcome = drain(&down, chance);
        if (up.is_told && down.is_told)
            break;
        /* Both ends have gone, and nothing of what is stalled will ever pass. */
        if (up.is_ended && down.is_ended && (up.fault >= STALL || down.fault >= STALL))
            break;
        if ((up.is_ended && down.fault == STALL_FOR_EVER) || (down.is_ended && up.fault == STALL_FOR_EVER))
            break;
    }
    if (outcome == TO_BE_RESET) {
        reset(pair->client);
        reset(server);
    }
    free(up.bytes);
    free(down.bytes);
}

static void *serve_pair(void *context)
{
    struct pair *pair = context;
    struct network *network = pair->network;
    struct sockaddr_in address;
    uint32_t kind = chance_below(&pair->chance, 40);
    if (kind == 0) {
        reset(pair->client);
    } else if (kind == 1) {
        /* Accepts and says nothing, until the client gives up. */
        struct pollfd polled = {.fd = pair->client, .events = POLLIN};
        unsigned char ignored[4096];
        while (!atomic_load(&network->is_over)) {
            if (poll(&polled, 1, 50) > 0 && recv(pair->client, ignored, sizeof ignored, MSG_DONTWAIT) <= 0)
                break;
        }
    } else if (kind > 2) {
        int server = make_socket();
        address_of(&address, network->target);
        if (server >= 0 && connect(server, (struct sockaddr *)&address, sizeof address) == 0)
            forward(pair, server);
        if (server >= 0)
            close(server);
    }
    if (kind <= 2)
        atomic_fetch_add(&network->faults, 1);
    close(pair->client);
    free(pair);
    atomic_fetch_sub(&network->pairs, 1);
    return NULL;
}

static void *accept_all(void *context)
{
    struct network *network = context;
    uint64_t number = 0;
    while (!atomic_load(&network->is_over)) {
        struct pollfd polled = {.fd = network->listener, .events = POLLIN};
        if (poll(&polled, 1, 50) <= 0)
            continue;
        int client = accept4(network->listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        int one = 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct pair *pair = calloc(1, sizeof *pair);
        pthread_t thread;
        pair->network = network;
        pair->client = client;
        pair->chance.state = network->seed ^ (++number * UINT64_C(0xD1342543DE82EF95));
        atomic_fetch_add(&network->pairs, 1);
        if (pthread_create(&thread, NULL, serve_pair, pair) == 0) {
            pthread_detach(thread);
        } else {
            atomic_fetch_sub(&network->pairs, 1);
            close(client);
            free(pair);
        }
    }
    return NULL;
}

struct network *network_start(uint16_t target, uint64_t seed)
{
    struct network *network = calloc(1, sizeof *network);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    network->target = target;
    network->seed = seed;
    network->listener = make_socket();
    address_of(&address, 0);
    if (network->listener < 0 || bind(network->listener, (struct sockaddr *)&address, sizeof address) != 0
        || listen(network->listener, 512) != 0
        || getsockname(network->listener, (struct sockaddr *)&address, &size) != 0
        || pthread_create(&network->thread, NULL, accept_all, network) != 0) {
        if (network->listener >= 0)
            close(network->listener);
        free(network);
        return NULL;
    }
    network->port = ntohs(address.sin_port);
    return network;
}

uint16_t network_port(struct network *network)
{
    return network->port;
}

long network_faults(struct network *network)
{
    return atomic_load(&network->faults);
}

void network_stop(struct network *network)
{
    atomic_store(&network->is_over, true);
    pthread_join(network->thread, NULL);
    while (atomic_load(&network->pairs) > 0)
        sleep_ms(1);
    close(network->listener);
    free(network);
}
