/* What the programs that use libblip share. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "bench.h"

#include <blip.h>

/* Ends the program unless the status is good. */
static inline void must(blip_status status, const char *what)
{
    if (status != BLIP_OK)
        die("%s: %s (%s)", what, blip_status_message(status), blip_status_name(status));
}

static inline blip_runtime *make_runtime(uint32_t threads)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    must(blip_runtime_options_set_threads(options, threads), "cannot set the number of threads");
    must(blip_runtime_new(options, &runtime), "cannot make a runtime");
    blip_runtime_options_release(options);
    return runtime;
}

/* Options for any server: one with TLS need not be trusted, and none is pinged while it is measured. */
static inline blip_connection_options *make_connection_options(void)
{
    blip_connection_options *options = blip_connection_options_new();
    must(blip_connection_options_set_tls_verify(options, false), "cannot set options");
    must(blip_connection_options_set_ping(options, 0, 1), "cannot set options");
    must(blip_connection_options_set_connect_timeout(options, 60000), "cannot set options");
    return options;
}

static inline blip_connection *connect_to(blip_runtime *runtime, const char *url)
{
    blip_connection_options *options = make_connection_options();
    blip_connection *connection = NULL;
    must(blip_connection_new(runtime, blip_text(url), options, &connection), url);
    must(blip_connection_wait_open(connection, 10000), url);
    blip_connection_options_release(options);
    return connection;
}

static inline void disconnect(blip_connection *connection)
{
    blip_connection_close(connection, 1000, blip_text(NULL));
    blip_connection_release(connection);
}

static inline void stop(blip_runtime *runtime)
{
    blip_runtime_stop(runtime, 2000);
    blip_runtime_release(runtime);
}

/* A body that is made while it is sent. */
struct pulled {
    uint64_t size, given;
};

static inline blip_status pull(void *buffer, size_t capacity, size_t *written, void *context)
{
    struct pulled *body = context;
    uint64_t left = body->size - body->given;
    size_t count = capacity < left ? capacity : (size_t)left;
    if (count > PATTERN)
        count = PATTERN;
    memcpy(buffer, pattern + body->given % PATTERN, count);
    body->given += count;
    *written = count;
    return body->given == body->size ? BLIP_DATA_END : BLIP_OK;
}

static inline struct pulled *pulled_body(uint64_t size)
{
    struct pulled *body = room(1, sizeof *body);
    body->size = size;
    return body;
}

#endif
