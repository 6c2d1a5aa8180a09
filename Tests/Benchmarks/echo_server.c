/* The server that all clients of the suite talk to.
 *
 *     echo_server [-p port] [-u socket-path] [-t loop-threads] [-c certificate.pem] [-k key.pem]
 *
 * Prints its URL on the first line and runs until it is interrupted. What requests of a profile get:
 *
 *     echo     their own body, compressed if it was
 *     work     the same, after 20 microseconds of processor time
 *     sink     after a body of any size, which is taken as it comes: its size, as text
 *     source   a body of as many bytes as the request's body says, made while it is sent
 *     nothing  nothing: for messages that want no reply */

#include "library.h"

#include <signal.h>
#include <unistd.h>

static const uint64_t WORK = 20000; /* nanoseconds */

static blip_status echo(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    uint32_t flags = 0;
    (void)connection;
    (void)context;
    blip_status status = blip_message_body(request, &body);
    if (status != BLIP_OK)
        return status;
    blip_message_flags(request, &flags);
    if ((flags & BLIP_FLAG_COMPRESSED) == 0)
        return blip_message_respond_data(request, body, blip_text(NULL));

    blip_message *response = NULL;
    status = blip_response_new(request, &response);
    if (status == BLIP_OK)
        status = blip_message_set_compressed(response, true);
    if (status == BLIP_OK)
        status = blip_message_set_body(response, body);
    if (status == BLIP_OK)
        status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

static uint64_t thread_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Processor time rather than time that passes: a thread that has no core must not get its work for nothing. */
static blip_status work(blip_connection *connection, blip_message *request, void *context)
{
    uint64_t end = thread_time() + WORK;
    while (thread_time() < end)
        for (volatile int i = 0; i < 200; i++) { }
    return echo(connection, request, context);
}

struct taken {
    blip_message *request; /* kept until it is answered */
    uint64_t size;
};

static void release_taken(void *context)
{
    struct taken *taken = context;
    blip_message_release(taken->request);
    free(taken);
}

static size_t take(blip_message *request, blip_slice data, blip_status status, void *context)
{
    struct taken *taken = context;
    if (status < 0)
        return data.size;
    if (!fits_pattern(data.data, data.size, taken->size))
        die("a streamed body is not what was sent");
    taken->size += data.size;
    if (status == BLIP_DATA_END) {
        char text[32];
        snprintf(text, sizeof text, "%" PRIu64, taken->size);
        blip_message_respond_text(request, blip_text(text));
    }
    return data.size;
}

static blip_status sink(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    blip_status status = blip_message_defer(request);
    if (status != BLIP_OK)
        return status;
    struct taken *taken = room(1, sizeof *taken);
    taken->request = blip_message_retain(request);
    return blip_message_set_data_callback(request, take, taken, release_taken);
}

static blip_status source(blip_connection *connection, blip_message *request, void *context)
{
    char text[32] = "";
    blip_slice body;
    blip_message *response = NULL;
    (void)connection;
    (void)context;
    blip_status status = blip_message_body(request, &body);
    if (status != BLIP_OK)
        return status;
    memcpy(text, body.data, body.size < sizeof text ? body.size : sizeof text - 1);
    status = blip_response_new(request, &response);
    if (status == BLIP_OK)
        status = blip_message_append_body_pulled(response, pull, pulled_body(strtoull(text, NULL, 10)), free);
    if (status == BLIP_OK)
        status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

static blip_status nothing(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    (void)connection;
    (void)context;
    return blip_message_body(request, &body);
}

int main(int argc, char **argv)
{
    uint16_t port = 0;
    uint32_t threads = 1;
    const char *path = NULL, *certificate = NULL, *key = NULL;
    int option;
    while ((option = getopt(argc, argv, "p:u:t:c:k:")) != -1) {
        switch (option) {
        case 'p': port = (uint16_t)number(optarg); break;
        case 'u': path = optarg; break;
        case 't': threads = (uint32_t)number(optarg); break;
        case 'c': certificate = optarg; break;
        case 'k': key = optarg; break;
        default:
            fprintf(stderr, "usage: echo_server [-p port] [-u socket-path] [-t loop-threads]\n"
                            "                   [-c certificate.pem] [-k key.pem]\n");
            return 2;
        }
    }
    make_pattern();
    raise_descriptor_limit();

    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);

    blip_runtime *runtime = make_runtime(threads);
    blip_listener_options *options = blip_listener_options_new();
    must(blip_listener_options_set_ping(options, 0, 1), "cannot set options");
    if (certificate != NULL) {
        must(blip_listener_options_set_tls_identity(options, blip_text(certificate), blip_text(key)), "cannot set TLS");
        must(blip_listener_options_set_tls_versions(options, BLIP_TLS_1_3, BLIP_TLS_1_3), "cannot set TLS");
    }
    blip_listener *listener = NULL;
    must(blip_listener_new(runtime, options, &listener), "cannot make a listener");
    blip_listener_options_release(options);
    must(blip_listener_set_handler(listener, blip_text("echo"), 0, echo, NULL, NULL), "cannot set a handler");
    must(blip_listener_set_handler(listener, blip_text("work"), 0, work, NULL, NULL), "cannot set a handler");
    must(blip_listener_set_handler(listener, blip_text("sink"), BLIP_HANDLER_STREAM, sink, NULL, NULL),
        "cannot set a handler");
    must(blip_listener_set_handler(listener, blip_text("source"), 0, source, NULL, NULL), "cannot set a handler");
    must(blip_listener_set_handler(listener, blip_text("nothing"), 0, nothing, NULL, NULL), "cannot set a handler");
    must(path != NULL ? blip_listener_start_unix(listener, blip_text(path))
                      : blip_listener_start(listener, blip_text("127.0.0.1"), port),
        "cannot listen");

    blip_slice url;
    must(blip_listener_url(listener, &url), "cannot tell the URL");
    printf("%.*s\n", (int)url.size, (const char *)url.data);
    fflush(stdout);

    int which = 0;
    sigwait(&ends, &which);
    blip_listener_release(listener);
    stop(runtime);
    return 0;
}
