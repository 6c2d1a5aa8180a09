/* Measures how fast a server answers requests.
 *
 *     echo_client [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-c connections] [-t loop-threads]
 *                 [-P profile] [-n requests] [-r requests-a-second] [-z] [-o] [-j] url
 *
 * Each response sends the next request; the window is per connection. With -r requests are sent at fixed times,
 * whether or not responses come, and latency runs from the time at which a request was to be sent: a server that stalls
 * is charged for every request that it held up, also for those that could not be sent meanwhile. -z sends JSON and asks
 * for compression. -o sends messages that want no reply, but for one in 256, which paces the sender. -n ends after that
 * many responses.
 *
 * Prints a line to read, or with -j one JSON object. */

#include "json_bodies.h"
#include "library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { GROUP = 256 }; /* messages without reply to each one that wants a reply */

struct tally { /* of one loop thread */
    struct histogram times;
    uint64_t first, last; /* when responses that count came */
    struct tally *next;
};

struct slot { /* a request of the window */
    blip_connection *connection;
    uint64_t sent_at;
};

static uint32_t window = 64, connections = 1, threads = 1;
static size_t body_size = 64;
static const char *profile_text = "echo";
static double seconds = 2, warm_up = 0.3;
static uint64_t limit, rate;
static bool compressed, one_way, as_json;

static blip_slice profile;
static struct bodies bodies;
static unsigned char *body;
static uint64_t opens, closes; /* the time in which responses count; closes is 0 with -n */
static atomic_uint_fast64_t answered, busy;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static struct tally *tallies;
static _Thread_local struct tally *tally;
static _Thread_local unsigned next_body;

static struct tally *own_tally(void)
{
    if (tally == NULL) {
        tally = room(1, sizeof *tally);
        pthread_mutex_lock(&mutex);
        tally->next = tallies;
        tallies = tally;
        pthread_mutex_unlock(&mutex);
    }
    return tally;
}

static void count(uint64_t time, uint64_t since)
{
    if (time < opens || (closes != 0 && time >= closes))
        return;
    struct tally *own = own_tally();
    if (own->first == 0)
        own->first = time;
    own->last = time;
    record(&own->times, time - since, 1);
}

static void check(blip_message *response, blip_status status)
{
    blip_slice echoed;
    must(status, "a request was not answered");
    must(blip_message_body(response, &echoed), "a response cannot be read");
    if (one_way)
        return;
    if (echoed.size != body_size)
        die("the server did not echo the body");
}

static blip_slice some_body(void)
{
    if (!compressed)
        return (blip_slice){body, body_size};
    next_body = (next_body + 1) % bodies.count;
    return (blip_slice){bodies.bytes + next_body * bodies.size, bodies.size};
}

static void send_request(blip_connection *connection, bool no_reply, blip_response_fn completed, void *context)
{
    blip_message *request = NULL;
    blip_status status = blip_request_new(no_reply ? blip_text("nothing") : profile, &request);
    if (status == BLIP_OK)
        status = blip_message_set_body(request, some_body());
    if (status == BLIP_OK && compressed)
        status = blip_message_set_compressed(request, true);
    if (status == BLIP_OK && no_reply)
        status = blip_message_set_no_reply(request, true);
    if (status == BLIP_OK)
        status = blip_connection_send(connection, request, completed, context, NULL);
    must(status, "cannot send a request");
    blip_message_release(request);
}

static void end_one(void)
{
    if (atomic_fetch_sub(&busy, 1) == 1) {
        pthread_mutex_lock(&mutex);
        pthread_cond_signal(&idle);
        pthread_mutex_unlock(&mutex);
    }
}

static void responded(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context);

static void send_slot(struct slot *slot, uint64_t time)
{
    slot->sent_at = time;
    if (one_way)
        for (unsigned i = 1; i < GROUP; i++)
            send_request(slot->connection, true, NULL, NULL);
    send_request(slot->connection, false, responded, slot);
}

static void responded(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct slot *slot = context;
    (void)connection;
    (void)request;
    check(response, status);
    uint64_t time = nanoseconds();
    count(time, slot->sent_at);
    if (closes != 0 ? time >= closes : atomic_fetch_add(&answered, 1) + 1 + atomic_load(&busy) > limit)
        end_one();
    else
        send_slot(slot, time);
}

/* The context is the time at which the request was to be sent. */
static void responded_at_rate(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection;
    (void)request;
    check(response, status);
    count(nanoseconds(), (uint64_t)(uintptr_t)context);
    atomic_fetch_sub(&busy, 1);
}

static blip_connection **open_all(blip_runtime *runtime, const char *url)
{
    blip_connection **all = room(connections, sizeof(blip_connection *));
    blip_connection_options *options = make_connection_options();
    for (uint32_t begun = 0, opened = 0; opened < connections; opened++) {
        for (; begun < connections && begun < opened + 128; begun++) {
            must(blip_connection_new(runtime, blip_text(url), options, &all[begun]), url);
            must(blip_connection_connect(all[begun]), url);
        }
        must(blip_connection_wait_open(all[opened], 20000), url);
    }
    blip_connection_options_release(options);
    return all;
}

static void set_times(void)
{
    opens = nanoseconds() + (uint64_t)(warm_up * 1e9);
    closes = limit != 0 ? 0 : opens + (uint64_t)(seconds * 1e9);
}

static void run_windows(blip_connection **all)
{
    uint32_t total = connections * window;
    struct slot *slots = room(total, sizeof *slots);
    if (limit != 0)
        warm_up = 0;
    if (limit != 0 && total > limit)
        total = (uint32_t)limit;
    set_times();
    atomic_store(&busy, total);
    for (uint32_t i = 0; i < total; i++) {
        slots[i].connection = all[i % connections];
        send_slot(&slots[i], nanoseconds());
    }
    pthread_mutex_lock(&mutex);
    while (atomic_load(&busy) != 0)
        pthread_cond_wait(&idle, &mutex);
    pthread_mutex_unlock(&mutex);
    free(slots);
}

/* Never sleeps: a clock that wakes threads is not good to 10 microseconds. */
static void run_rate(blip_runtime *runtime, blip_connection **all)
{
    set_times();
    uint64_t start = nanoseconds(), sent = 0;
    for (;;) {
        uint64_t time = nanoseconds();
        for (;; sent++) {
            uint64_t due = start + (uint64_t)((double)sent * 1e9 / (double)rate);
            if (due > time || due >= closes)
                break;
            atomic_fetch_add(&busy, 1);
            send_request(all[sent % connections], false, responded_at_rate, (void *)(uintptr_t)due);
        }
        if (time >= closes && (atomic_load(&busy) == 0 || time > closes + UINT64_C(5000000000)))
            break;
        must(blip_runtime_run_once(runtime, 0, NULL), "cannot run the loop");
    }
    if (atomic_load(&busy) != 0)
        die("%" PRIu64 " requests were not answered 5 s after the end", (uint64_t)atomic_load(&busy));
}

static void report(blip_connection **all)
{
    struct histogram sum = {.total = 0};
    uint64_t first = UINT64_MAX, last = 0, sent = 0, received = 0, messages = 0;
    for (struct tally *one = tallies; one != NULL; one = one->next) {
        merge(&sum, &one->times);
        first = one->first != 0 && one->first < first ? one->first : first;
        last = one->last > last ? one->last : last;
    }
    for (uint32_t c = 0; c < connections; c++) {
        static const int32_t which[] = {
            BLIP_COUNTER_BYTES_SENT, BLIP_COUNTER_BYTES_RECEIVED, BLIP_COUNTER_MESSAGES_SENT};
        uint64_t values[3] = {0};
        blip_connection_counter_values(all[c], which, values, 3);
        sent += values[0];
        received += values[1];
        messages += values[2];
    }
    /* A time that is given in advance counts whole, for a rate of few large bodies. */
    double passed = limit != 0 ? (double)(last - (first == UINT64_MAX ? 0 : first)) / 1e9 : seconds;
    double done = (double)sum.total * (one_way ? GROUP : 1);
    double per_second = passed > 0 ? done / passed : 0;
    if (!as_json) {
        printf("%.0f/s  %.1f MB/s  p50 %.1f us  p99 %.1f us  p99.9 %.1f us  max %.1f us\n", per_second,
            per_second * (double)body_size / 1e6, percentile(&sum, 0.50) / 1e3, percentile(&sum, 0.99) / 1e3,
            percentile(&sum, 0.999) / 1e3, (double)sum.greatest / 1e3);
        return;
    }
    printf("{\"rate\": %.1f, \"mb_per_s\": %.3f, \"count\": %" PRIu64 ", ", per_second,
        per_second * (double)body_size / 1e6, sum.total);
    print_latency(&sum);
    printf(", \"wire_sent_per_message\": %.2f, \"wire_received_per_message\": %.2f, \"peak_memory\": %" PRIu64
           ", \"processor_s\": %.3f}\n",
        messages == 0 ? 0 : (double)sent / (double)messages, messages == 0 ? 0 : (double)received / (double)messages,
        peak_memory(), processor_time());
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:m:b:w:c:t:P:n:r:zoj")) != -1) {
        switch (option) {
        case 's': seconds = strtod(optarg, NULL); break;
        case 'm': warm_up = strtod(optarg, NULL); break;
        case 'b': body_size = (size_t)number(optarg); break;
        case 'w': window = (uint32_t)number(optarg); break;
        case 'c': connections = (uint32_t)number(optarg); break;
        case 't': threads = (uint32_t)number(optarg); break;
        case 'P': profile_text = optarg; break;
        case 'n': limit = number(optarg); break;
        case 'r': rate = number(optarg); break;
        case 'z': compressed = true; break;
        case 'o': one_way = true; break;
        case 'j': as_json = true; break;
        default: optind = argc + 1; break;
        }
    }
    if (optind + 1 != argc || window == 0 || connections == 0 || seconds <= 0 || (rate != 0 && limit != 0)) {
        fprintf(stderr,
            "usage: echo_client [-s seconds] [-m warm-up-seconds] [-b body-bytes] [-w window] [-c connections]\n"
            "                   [-t loop-threads] [-P profile] [-n requests] [-r requests-a-second]\n"
            "                   [-z] [-o] [-j] url\n");
        return 2;
    }
    make_pattern();
    raise_descriptor_limit();
    profile = blip_text(profile_text);
    if (compressed) {
        bodies = make_json_bodies(body_size);
        body_size = bodies.size;
    }
    body = room(body_size, 1);
    for (size_t i = 0; i < body_size; i++)
        body[i] = pattern[i % PATTERN];

    blip_runtime *runtime = make_runtime(rate != 0 ? 0 : threads);
    blip_connection **all = open_all(runtime, argv[optind]);
    if (rate != 0)
        run_rate(runtime, all);
    else
        run_windows(all);
    usleep(10000); /* counters of bytes follow when a connection has no more to read */
    report(all);
    for (uint32_t c = 0; c < connections; c++)
        disconnect(all[c]);
    stop(runtime);
    return 0;
}
