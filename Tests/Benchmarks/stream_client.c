/* Measures bodies that are streamed, and urgent requests beside them.
 *
 *     stream_client up|down|both [-b body-bytes] [-n transfers] [-u] url
 *
 * up: the body is made while it is sent, and the server takes it by a data callback. down: the other way round. both:
 * one transfer each way at a time, on the same connection. With -u an urgent request of 64 bytes is under way all the
 * time, and its latency is told too. Prints one JSON object. */

#include "library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static uint64_t body_size = UINT64_C(1) << 30;
static atomic_uint transfers;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static struct histogram urgent;
static uint64_t urgent_sent_at;
static char size_text[32];

static void end_transfer(void)
{
    pthread_mutex_lock(&mutex);
    atomic_fetch_sub(&transfers, 1);
    pthread_cond_signal(&idle);
    pthread_mutex_unlock(&mutex);
}

static void uploaded(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    blip_slice text;
    (void)connection;
    (void)request;
    (void)context;
    must(status, "an upload was not answered");
    must(blip_message_body(response, &text), "the answer to an upload cannot be read");
    if (text.size != strlen(size_text) || memcmp(text.data, size_text, text.size) != 0)
        die("the server got %.*s bytes of %s", (int)text.size, (const char *)text.data, size_text);
    end_transfer();
}

static void upload(blip_connection *connection)
{
    blip_message *request = NULL;
    must(blip_request_new(blip_text("sink"), &request), "cannot make a request");
    must(blip_message_append_body_pulled(request, pull, pulled_body(body_size), free), "cannot append a body");
    must(blip_connection_send(connection, request, uploaded, NULL, NULL), "cannot send");
    blip_message_release(request);
}

static size_t take(blip_message *response, blip_slice data, blip_status status, void *context)
{
    uint64_t *taken = context;
    (void)response;
    if (status < 0)
        must(status, "a download broke off");
    if (!fits_pattern(data.data, data.size, *taken))
        die("a streamed body is not what was sent");
    *taken += data.size;
    if (status == BLIP_DATA_END) {
        if (*taken != body_size)
            die("%" PRIu64 " bytes came of %s", *taken, size_text);
        end_transfer();
    }
    return data.size;
}

static void download_began(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    must(status, "a download was not answered");
    must(blip_message_set_data_callback(response, take, room(1, sizeof(uint64_t)), free), "cannot take a body");
}

static void download(blip_connection *connection)
{
    blip_message *request = NULL;
    must(blip_request_new(blip_text("source"), &request), "cannot make a request");
    must(blip_message_set_text(request, blip_text(size_text)), "cannot set a body");
    must(blip_message_set_streamed(request, true), "cannot ask for a stream");
    must(blip_connection_send(connection, request, download_began, NULL, NULL), "cannot send");
    blip_message_release(request);
}

static void ask_urgently(blip_connection *connection);

static void answered_urgently(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)request;
    (void)response;
    (void)context;
    if (status == BLIP_ERROR_CLOSED && atomic_load(&transfers) == 0)
        return;
    must(status, "an urgent request was not answered");
    record(&urgent, nanoseconds() - urgent_sent_at, 1);
    if (atomic_load(&transfers) != 0)
        ask_urgently(connection);
}

static void ask_urgently(blip_connection *connection)
{
    blip_message *request = NULL;
    must(blip_request_new(blip_text("echo"), &request), "cannot make a request");
    must(blip_message_set_body(request, (blip_slice){pattern, 64}), "cannot set a body");
    must(blip_message_set_urgent(request, true), "cannot make a request urgent");
    urgent_sent_at = nanoseconds();
    must(blip_connection_send(connection, request, answered_urgently, NULL, NULL), "cannot send");
    blip_message_release(request);
}

int main(int argc, char **argv)
{
    uint32_t repeats = 1;
    bool with_urgent = false;
    int option;
    while ((option = getopt(argc, argv, "b:n:u")) != -1) {
        switch (option) {
        case 'b': body_size = number(optarg); break;
        case 'n': repeats = (uint32_t)number(optarg); break;
        case 'u': with_urgent = true; break;
        default: optind = argc + 1; break;
        }
    }
    bool up = false, down = false;
    if (optind + 2 == argc) {
        up = strcmp(argv[optind], "up") == 0 || strcmp(argv[optind], "both") == 0;
        down = strcmp(argv[optind], "down") == 0 || strcmp(argv[optind], "both") == 0;
    }
    if ((!up && !down) || body_size == 0) {
        fprintf(stderr, "usage: stream_client [-b body-bytes] [-n transfers] [-u] up|down|both url\n");
        return 2;
    }
    make_pattern();
    snprintf(size_text, sizeof size_text, "%" PRIu64, body_size);
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = connect_to(runtime, argv[optind + 1]);

    uint64_t begun = nanoseconds();
    for (uint32_t i = 0; i < repeats; i++) {
        atomic_store(&transfers, (unsigned)up + (unsigned)down);
        if (up)
            upload(connection);
        if (down)
            download(connection);
        if (with_urgent && i == 0)
            ask_urgently(connection);
        pthread_mutex_lock(&mutex);
        while (atomic_load(&transfers) != 0)
            pthread_cond_wait(&idle, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    double passed = (double)(nanoseconds() - begun) / 1e9;

    disconnect(connection);
    stop(runtime);
    double moved = (double)body_size * repeats * ((up ? 1 : 0) + (down ? 1 : 0));
    printf("{\"mb_per_s\": %.1f, \"seconds\": %.3f, \"peak_memory\": %" PRIu64 ", \"count\": %" PRIu64 ", ",
        moved / passed / 1e6, passed, peak_memory(), urgent.total);
    print_latency(&urgent);
    printf("}\n");
    return 0;
}
