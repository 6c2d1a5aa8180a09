/* Sends a request from a program with GLib's main loop, as those of GTK have, by a queue.
 *
 *     glib_client url profile [body]
 *
 * The library's thread does the work; what would be its callbacks waits in a queue, whose descriptor GLib watches.
 * blip_queue_dispatch runs the callbacks on the main loop's thread, where widgets may be touched.
 *
 * Build: cc glib_client.c -o glib_client $(pkg-config --cflags --libs blip glib-2.0) */

#include <blip_easy.h>

#include <glib-unix.h>

struct state {
    GMainLoop *loop;
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
    g_main_loop_quit(state->loop);
}

static gboolean ready(gint fd, GIOCondition condition, gpointer queue)
{
    (void)fd;
    (void)condition;
    blip_queue_dispatch(queue, 64, 0, NULL);
    return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv)
{
    struct state state = {g_main_loop_new(NULL, FALSE), 1};
    blip_connection *connection = NULL;
    blip_queue *queue = NULL;
    int fd = -1;
    if (argc < 3) {
        fprintf(stderr, "usage: glib_client url profile [body]\n");
        return 2;
    }
    blip_connection_options *options = blip_connection_options_new();
    if (!blip_easy_ok(blip_queue_new(0, &queue), "queue") || !blip_easy_ok(blip_queue_fd(queue, &fd), "descriptor")
        || !blip_easy_ok(blip_connection_options_set_queue(options, queue), "options")
        || !blip_easy_ok(blip_connection_new(NULL, blip_text(argv[1]), options, &connection), argv[1]))
        return 1;
    blip_connection_set_close_callback(connection, closed, &state, NULL);

    /* Sent at once: it waits until the connection is open. */
    blip_message *request = blip_easy_request_new(argv[2], argc > 3 ? argv[3] : NULL);
    if (!blip_easy_ok(blip_connection_send(connection, request, answered, &state, NULL), "sending")
        || !blip_easy_ok(blip_connection_connect(connection), "connecting"))
        return 1;

    g_unix_fd_add(fd, G_IO_IN, ready, queue);
    g_main_loop_run(state.loop);

    blip_message_release(request);
    blip_connection_release(connection);
    blip_connection_options_release(options);
    blip_queue_release(queue);
    g_main_loop_unref(state.loop);
    return state.result;
}
