/* A million connections in one process, without sockets: how long they take to make, to answer one request each, and to
 * close, and what memory they hold.
 *
 *     memory_pairs [-n connections] [-c core] [-w requests in flight]
 *
 * Each is a connection to a listener of the same process and the accepted one, on one loop thread: two ends. The
 * requests are sent by the main thread and have 16 bytes of body; so many are in flight. Memory is the process's growth
 * (resident), divided by the ends. Nothing here is wire speed: what is measured is the library's own work. */

#include "bench.h"

#include <blip.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

static sem_t window;
static atomic_uint_fast64_t answered, failed, closed, opened;

static void check(blip_status status, const char *what)
{
    if (status < 0)
        die("%s: %s", what, blip_status_name(status));
}

static uint64_t resident(void)
{
    unsigned long long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%llu %llu", &size, &pages) != 2)
        die("no /proc/self/statm");
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static blip_status echo(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    (void)connection, (void)context;
    blip_status status = blip_message_body(request, &body);
    return status < 0 ? status : blip_message_respond_data(request, body, blip_text(""));
}

static void response(
    blip_connection *connection, blip_message *request, blip_message *message, blip_status status, void *context)
{
    (void)connection, (void)request, (void)context;
    int32_t type = 0;
    if (status != BLIP_OK || blip_message_type(message, &type) != BLIP_OK || type != BLIP_MESSAGE_RESPONSE)
        atomic_fetch_add(&failed, 1);
    atomic_fetch_add(&answered, 1);
    sem_post(&window);
}

static void did_open(blip_connection *connection, void *context)
{
    (void)connection, (void)context;
    atomic_fetch_add(&opened, 1);
}

static void did_close(blip_connection *connection, blip_status status, void *context)
{
    (void)connection, (void)status, (void)context;
    atomic_fetch_add(&closed, 1);
}

static void wait_for(atomic_uint_fast64_t *counter, uint64_t value)
{
    while (atomic_load(counter) < value)
        usleep(1000);
}

static double since(uint64_t start) { return (double)(nanoseconds() - start) / 1e9; }

int main(int argc, char **argv)
{
    uint64_t count = 1000000, in_flight = 256;
    for (int option; (option = getopt(argc, argv, "n:c:w:")) != -1;) {
        switch (option) {
        case 'n': count = number(optarg); break;
        case 'c': pin((int)number(optarg)); break;
        case 'w': in_flight = number(optarg); break;
        default: return 64;
        }
    }
    blip_runtime *runtime = NULL;
    blip_listener *listener = NULL;
    sem_init(&window, 0, (unsigned)in_flight);
    check(blip_runtime_new(NULL, &runtime), "runtime");
    check(blip_listener_new(runtime, NULL, &listener), "listener");
    check(blip_listener_set_default_handler(listener, 0, echo, NULL, NULL), "handler");
    check(blip_listener_set_open_callback(listener, did_open, NULL, NULL), "open callback");
    check(blip_listener_set_close_callback(listener, did_close, NULL, NULL), "close callback");
    check(blip_listener_start(listener, blip_text("127.0.0.1"), 0), "start");
    blip_connection **connections = room(count, sizeof *connections);
    memset(connections, 1, count * sizeof *connections);
    uint64_t before = resident(), start = nanoseconds();
    for (uint64_t i = 0; i < count; i++)
        check(blip_listener_connect(listener, runtime, NULL, &connections[i]), "connect");
    wait_for(&opened, count);
    double setup = since(start);
    uint64_t idle = resident();

    start = nanoseconds();
    for (uint64_t i = 0; i < count; i++) {
        blip_message *request = NULL;
        while (sem_wait(&window) != 0) {}
        check(blip_request_new(blip_text("echo"), &request), "request");
        check(blip_message_set_body(request, blip_text("sixteen bytes ..")), "body");
        check(blip_connection_send(connections[i], request, response, NULL, NULL), "send");
        blip_message_release(request);
    }
    wait_for(&answered, count);
    double requests = since(start);
    uint64_t used = resident();
    if (atomic_load(&failed) > 0)
        die("%" PRIuFAST64 " requests were not answered", atomic_load(&failed));

    start = nanoseconds();
    for (uint64_t i = 0; i < count; i++)
        blip_connection_release(connections[i]);
    wait_for(&closed, count);
    double closing = since(start);
    double ends = (double)count * 2;
    printf("{\"connections\": %" PRIu64 ", \"setup_s\": %.3f, \"requests_s\": %.3f, \"close_s\": %.3f, "
           "\"idle_bytes_per_end\": %.1f, \"used_bytes_per_end\": %.1f, \"resident_bytes\": %" PRIu64 "}\n",
        count, setup, requests, closing, (double)(idle - before) / ends, (double)(used - before) / ends, used);
    free(connections);
    blip_listener_stop(listener, false, 1000);
    blip_listener_release(listener);
    check(blip_runtime_stop(runtime, 10000), "stop");
    blip_runtime_release(runtime);
    return 0;
}
