/* Measures how fast a server echoes requests, in callback mode: each response sends the next request.
 *
 *     echo_client [-w window] [-b body-bytes] [-n requests | -s seconds] [-c connections] [-t loop-threads]
 *                 [-m warm-up] [-z] url
 *
 * Prints one line: requests a second, MB/s of bodies each way, and the 50th, 99th, 99.9th percentile and maximum of the
 * round trip in microseconds. The window is per connection; -z asks for compression. */

#define _POSIX_C_SOURCE 200809L

#include <blip.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Round trips by their nanoseconds: 64 buckets to each power of two, so a figure is right to 1.6 %. */
enum { SUB_BITS = 6, SUB = 1 << SUB_BITS, BUCKETS = 64 * SUB };

struct lane {
    blip_connection *connection;
    uint64_t histogram[BUCKETS]; /* touched on the connection's loop thread alone */
    uint64_t slowest;
};

struct slot {
    struct lane *lane;
    uint64_t sent_at;
};

static uint32_t body_size = 64;
static char *body;
static bool compressed;
static uint64_t wanted = 200000, warm_up = 2000;
static uint64_t deadline; /* nanoseconds, 0: none */
static atomic_uint_fast64_t started, finished, busy, first_counted_at, last_counted_at;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *what, blip_status status)
{
    fprintf(stderr, "echo_client: %s: %s (%s)\n", what, blip_status_message(status), blip_status_name(status));
    exit(1);
}

static unsigned bucket_of(uint64_t value)
{
    unsigned shift = 0;
    while ((value >> shift) >= 2 * SUB)
        shift++;
    return shift * SUB + (unsigned)(value >> shift);
}

static double bucket_middle(unsigned bucket)
{
    if (bucket < 2 * SUB)
        return bucket;
    unsigned shift = bucket / SUB - 1;
    return ((double)(bucket - shift * SUB) + 0.5) * (double)(UINT64_C(1) << shift);
}

static void record(struct slot *slot, uint64_t time)
{
    uint64_t count = atomic_fetch_add(&finished, 1) + 1;
    if (count <= warm_up) {
        if (count == warm_up)
            atomic_store(&first_counted_at, time);
        return;
    }
    uint64_t taken = time - slot->sent_at;
    slot->lane->histogram[bucket_of(taken)]++;
    if (taken > slot->lane->slowest)
        slot->lane->slowest = taken;
    atomic_store(&last_counted_at, time);
}

static bool send_next(struct slot *slot, uint64_t time);

static void responded(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct slot *slot = context;
    blip_slice echoed;
    (void)connection;
    (void)request;
    if (status != BLIP_OK)
        fail("request", status);
    status = blip_message_body(response, &echoed);
    if (status != BLIP_OK || echoed.size != body_size)
        fail("the server did not echo the body", status);
    uint64_t time = now();
    record(slot, time);
    if (!send_next(slot, time) && atomic_fetch_sub(&busy, 1) == 1) {
        pthread_mutex_lock(&mutex);
        pthread_cond_signal(&idle);
        pthread_mutex_unlock(&mutex);
    }
}

/* False once enough requests were started. */
static bool send_next(struct slot *slot, uint64_t time)
{
    if (deadline != 0 ? time >= deadline : atomic_fetch_add(&started, 1) >= wanted + warm_up)
        return false;
    blip_message *request = NULL;
    blip_status status = blip_request_new(blip_text("echo"), &request);
    if (status == BLIP_OK)
        status = blip_message_set_body(request, (blip_slice){body, body_size});
    if (status == BLIP_OK && compressed)
        status = blip_message_set_compressed(request, true);
    if (status != BLIP_OK)
        fail("cannot make a request", status);
    slot->sent_at = time;
    status = blip_connection_send(slot->lane->connection, request, responded, slot, NULL);
    if (status != BLIP_OK)
        fail("cannot send", status);
    blip_message_release(request);
    return true;
}

static double percentile(const uint64_t *histogram, uint64_t total, uint64_t slowest, double share)
{
    uint64_t target = (uint64_t)((double)total * share), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > target)
            return (bucket_middle(i) < (double)slowest ? bucket_middle(i) : (double)slowest) / 1000;
    }
    return 0;
}

static void report(struct lane *lanes, unsigned count)
{
    static uint64_t sum[BUCKETS];
    uint64_t total = 0, slowest = 0;
    for (unsigned l = 0; l < count; l++) {
        for (unsigned i = 0; i < BUCKETS; i++) {
            sum[i] += lanes[l].histogram[i];
            total += lanes[l].histogram[i];
        }
        if (lanes[l].slowest > slowest)
            slowest = lanes[l].slowest;
    }
    double seconds = (double)(atomic_load(&last_counted_at) - atomic_load(&first_counted_at)) / 1e9;
    double rate = seconds > 0 ? (double)total / seconds : 0;
    printf("%.0f req/s  %.1f MB/s  p50 %.1f us  p99 %.1f us  p99.9 %.1f us  max %.1f us  (%" PRIu64 " in %.3f s)\n", rate,
        rate * body_size / 1e6, percentile(sum, total, slowest, 0.50), percentile(sum, total, slowest, 0.99),
        percentile(sum, total, slowest, 0.999), (double)slowest / 1000, total, seconds);
}

int main(int argc, char **argv)
{
    uint32_t window = 64, connections = 1, threads = 1;
    double seconds = 0;
    int option;
    while ((option = getopt(argc, argv, "w:b:n:s:c:t:m:z")) != -1) {
        switch (option) {
        case 'w': window = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'b': body_size = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'n': wanted = strtoull(optarg, NULL, 10); break;
        case 's': seconds = strtod(optarg, NULL); break;
        case 'c': connections = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 't': threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'm': warm_up = strtoull(optarg, NULL, 10); break;
        case 'z': compressed = true; break;
        default: optind = argc + 1; break;
        }
    }
    if (optind + 1 != argc || window == 0 || connections == 0) {
        fprintf(stderr, "usage: echo_client [-w window] [-b body-bytes] [-n requests | -s seconds] [-c connections]\n"
                        "                   [-t loop-threads] [-m warm-up] [-z] url\n");
        return 2;
    }
    body = malloc(body_size + 1u);
    struct lane *lanes = calloc(connections, sizeof *lanes);
    struct slot *slots = calloc((size_t)connections * window, sizeof *slots);
    if (body == NULL || lanes == NULL || slots == NULL)
        fail("out of memory", BLIP_ERROR_RESOURCES);
    for (uint32_t i = 0; i < body_size; i++)
        body[i] = (char)('a' + i * 7 % 26);

    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    blip_status status = blip_runtime_options_set_threads(options, threads);
    if (status == BLIP_OK)
        status = blip_runtime_new(options, &runtime);
    if (status != BLIP_OK)
        fail("cannot make a runtime", status);
    blip_runtime_options_release(options);

    for (uint32_t c = 0; c < connections; c++) {
        status = blip_connection_new(runtime, blip_text(argv[optind]), NULL, &lanes[c].connection);
        if (status == BLIP_OK)
            status = blip_connection_wait_open(lanes[c].connection, 10000);
        if (status != BLIP_OK)
            fail(argv[optind], status);
    }

    uint64_t time = now();
    if (seconds > 0)
        deadline = time + (uint64_t)(seconds * 1e9);
    if (warm_up == 0)
        atomic_store(&first_counted_at, time);
    atomic_store(&busy, (uint_fast64_t)connections * window + 1);
    for (uint32_t i = 0; i < connections * window; i++) {
        slots[i].lane = &lanes[i % connections];
        if (!send_next(&slots[i], now()))
            atomic_fetch_sub(&busy, 1);
    }
    pthread_mutex_lock(&mutex);
    atomic_fetch_sub(&busy, 1);
    while (atomic_load(&busy) != 0)
        pthread_cond_wait(&idle, &mutex);
    pthread_mutex_unlock(&mutex);
    report(lanes, connections);

    for (uint32_t c = 0; c < connections; c++) {
        blip_connection_close(lanes[c].connection, 1000, blip_text(NULL));
        blip_connection_release(lanes[c].connection);
    }
    blip_runtime_stop(runtime, 2000);
    blip_runtime_release(runtime);
    free(slots);
    free(lanes);
    free(body);
    return 0;
}
