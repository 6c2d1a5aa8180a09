/* Answers every request of profile "echo" with its own body. The counterpart of echo_client.c.
 *
 *     echo_server [-p port] [-u socket-path] [-t loop-threads]
 *
 * Prints its URL on the first line and runs until it is interrupted. */

#define _POSIX_C_SOURCE 200809L

#include <blip.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what, blip_status status)
{
    fprintf(stderr, "echo_server: %s: %s (%s)\n", what, blip_status_message(status), blip_status_name(status));
    exit(1);
}

static blip_status echo(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    blip_status status = blip_message_body(request, &body);
    (void)connection;
    (void)context;
    if (status != BLIP_OK)
        return status;
    return blip_message_respond_data(request, body, blip_text(NULL));
}

static blip_runtime *make_runtime(uint32_t threads)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    blip_status status = blip_runtime_options_set_threads(options, threads);
    if (status == BLIP_OK)
        status = blip_runtime_new(options, &runtime);
    if (status != BLIP_OK)
        fail("cannot make a runtime", status);
    blip_runtime_options_release(options);
    return runtime;
}

int main(int argc, char **argv)
{
    uint16_t port = 0;
    uint32_t threads = 1;
    const char *path = NULL;
    int option;
    while ((option = getopt(argc, argv, "p:u:t:")) != -1) {
        switch (option) {
        case 'p': port = (uint16_t)strtoul(optarg, NULL, 10); break;
        case 'u': path = optarg; break;
        case 't': threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        default:
            fprintf(stderr, "usage: echo_server [-p port] [-u socket-path] [-t loop-threads]\n");
            return 2;
        }
    }

    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);

    blip_runtime *runtime = make_runtime(threads);
    blip_listener *listener = NULL;
    blip_status status = blip_listener_new(runtime, NULL, &listener);
    if (status != BLIP_OK)
        fail("cannot make a listener", status);
    status = blip_listener_set_handler(listener, blip_text("echo"), 0, echo, NULL, NULL);
    if (status == BLIP_OK)
        status = path != NULL ? blip_listener_start_unix(listener, blip_text(path))
                              : blip_listener_start(listener, blip_text("127.0.0.1"), port);
    if (status != BLIP_OK)
        fail("cannot listen", status);

    blip_slice url;
    status = blip_listener_url(listener, &url);
    if (status != BLIP_OK)
        fail("cannot tell the URL", status);
    printf("%.*s\n", (int)url.size, (const char *)url.data);
    fflush(stdout);

    int which = 0;
    sigwait(&ends, &which);
    blip_runtime_stop(runtime, 1000);
    blip_listener_release(listener);
    blip_runtime_release(runtime);
    return 0;
}
