/* Sends a request from a program with a poll loop of its own, without any thread of the library.
 *
 *     poll_client url profile [body]
 *
 * The runtime has no threads: its descriptor is one more in the program's poll, and blip_runtime_run_once does what is
 * due, callbacks included, on the thread that calls it.
 *
 * Build: cc poll_client.c -o poll_client $(pkg-config --cflags --libs blip) */

#include <blip_easy.h>

#include <poll.h>
#include <unistd.h>

struct state {
    bool done;
    int result;
};

static void answered(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct state *state = context;
    (void)request;
    if (blip_easy_ok(status, "request") && !blip_easy_is_error(response)) {
        printf(BLIP_FORMAT "\n", BLIP_ARGUMENTS(blip_easy_body(response)));
        state->result = 0;
    } else if (response != NULL) {
        blip_easy_print_error(stderr, response);
    }
    blip_connection_close_gracefully(connection, 2000);
}

static void closed(blip_connection *connection, blip_status status, void *context)
{
    struct state *state = context;
    (void)connection;
    blip_easy_ok(status, "connection");
    state->done = true;
}

int main(int argc, char **argv)
{
    struct state state = {false, 1};
    blip_connection *connection = NULL;
    blip_runtime *runtime = NULL;
    int fd = -1;
    if (argc < 3) {
        fprintf(stderr, "usage: poll_client url profile [body]\n");
        return 2;
    }
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime_options_set_threads(options, 0);
    if (!blip_easy_ok(blip_runtime_new(options, &runtime), "runtime")
        || !blip_easy_ok(blip_runtime_fd(runtime, &fd), "descriptor")
        || !blip_easy_ok(blip_connection_new(runtime, blip_text(argv[1]), NULL, &connection), argv[1]))
        return 1;
    blip_connection_set_close_callback(connection, closed, &state, NULL);

    /* Sent at once: it waits until the connection is open. */
    blip_message *request = blip_easy_request_new(argv[2], argc > 3 ? argv[3] : NULL);
    if (!blip_easy_ok(blip_connection_send(connection, request, answered, &state, NULL), "sending")
        || !blip_easy_ok(blip_connection_connect(connection), "connecting"))
        return 1;

    while (!state.done) {
        /* The program's own descriptors stand beside this one. */
        struct pollfd descriptors[] = {{.fd = fd, .events = POLLIN}};
        if (poll(descriptors, 1, -1) > 0)
            blip_runtime_run_once(runtime, 0, NULL);
    }

    blip_message_release(request);
    blip_connection_release(connection);
    blip_runtime_release(runtime);
    blip_runtime_options_release(options);
    return state.result;
}
