/* A server and clients that do everything at once, and what must hold whatever happens to them: each accepted request
 * completes exactly once and before the close callback, which comes once; each context is released exactly once and not
 * used afterwards; bodies are right. */

#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "common.h"

#include <blip.h>

struct server;

struct server_options {
    uint32_t threads;
    const char *certificate, *key; /* NULL: plain */
    const char *unix_path;         /* NULL: TCP */
    bool has_patience;             /* the usual timeouts instead of short ones */
};

/* NULL if it could not be made: `status` says why. */
struct server *server_start(const struct server_options *options, blip_status *status);
uint16_t server_port(struct server *server);
const char *server_url(struct server *server);
size_t server_connections(struct server *server);
/* Waits for its connections to end; false: they do not. */
bool server_settle(struct server *server);
void server_stop(struct server *server);

struct workload {
    struct server *server;
    blip_runtime *runtime;
    const char *url;
    const char *ca;      /* for wss */
    int file;            /* a descriptor of a regular file, 100,000 bytes of the pattern with seed 5; -1: none */
    uint32_t clients;    /* at a time */
    uint32_t requests;   /* at most, of each client */
    uint32_t largest;    /* body */
    bool has_patience;
    bool must_succeed;   /* nothing fails, so that everything has to be answered */
};

struct tally {
    long connections, opened, requests, answered, failed, refused;
    uint64_t body_bytes;
};

/* Makes clients, lets them work and waits until they have ended. False: something never ended. */
bool workload_run(const struct workload *workload, uint64_t seed, struct tally *tally);

#endif
