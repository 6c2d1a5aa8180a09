/* Sends a request from a program with a loop of libuv, without any thread of the library.
 *
 *     libuv_client url profile [body]
 *
 * The runtime has no threads: libuv watches its descriptor, and blip_runtime_run_once does what is due, timers and
 * callbacks included, on the loop's thread.
 *
 * Build: cc libuv_client.c -o libuv_client $(pkg-config --cflags --libs blip libuv) */

#define _GNU_SOURCE /* uv.h wants it */

#include <blip_easy.h>

#include <uv.h>

struct state {
    blip_runtime *runtime;
    uv_poll_t watcher;
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
    uv_close((uv_handle_t *)&state->watcher, NULL); /* nothing is left to watch: the loop ends */
}

static void ready(uv_poll_t *watcher, int status, int events)
{
    struct state *state = watcher->data;
    (void)events;
    if (status == 0)
        blip_runtime_run_once(state->runtime, 0, NULL);
}

int main(int argc, char **argv)
{
    struct state state = {.result = 1};
    blip_connection *connection = NULL;
    int fd = -1;
    if (argc < 3) {
        fprintf(stderr, "usage: libuv_client url profile [body]\n");
        return 2;
    }
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime_options_set_threads(options, 0);
    if (!blip_easy_ok(blip_runtime_new(options, &state.runtime), "runtime")
        || !blip_easy_ok(blip_runtime_fd(state.runtime, &fd), "descriptor")
        || !blip_easy_ok(blip_connection_new(state.runtime, blip_text(argv[1]), NULL, &connection), argv[1]))
        return 1;
    blip_connection_set_close_callback(connection, closed, &state, NULL);

    /* Sent at once: it waits until the connection is open. */
    blip_message *request = blip_easy_request_new(argv[2], argc > 3 ? argv[3] : NULL);
    if (!blip_easy_ok(blip_connection_send(connection, request, answered, &state, NULL), "sending")
        || !blip_easy_ok(blip_connection_connect(connection), "connecting"))
        return 1;

    uv_loop_t *loop = uv_default_loop();
    uv_poll_init(loop, &state.watcher, fd);
    state.watcher.data = &state;
    uv_poll_start(&state.watcher, UV_READABLE, ready);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);

    blip_message_release(request);
    blip_connection_release(connection);
    blip_runtime_release(state.runtime);
    blip_runtime_options_release(options);
    return state.result;
}
