/* A server that sends every request of profile "echo" back.
 *
 *     echo_server [port]          then, for example:  request_client ws://127.0.0.1:4984/ echo hello
 *
 * Build: cc echo_server.c -o echo_server $(pkg-config --cflags --libs blip) */

#define _POSIX_C_SOURCE 200809L

#include <blip_easy.h>

#include <signal.h>
#include <stdlib.h>

/* Runs on the library's thread, once for each request. What it is given is valid until it returns. */
static blip_status echo(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body, type;
    (void)connection;
    (void)context;
    blip_status status = blip_message_body(request, &body);
    if (status == BLIP_OK)
        status = blip_message_content_type(request, &type);
    if (status == BLIP_OK)
        status = blip_message_respond_data(request, body, type);
    return status; /* anything negative is answered with the error BLIP/501 */
}

static void opened(blip_connection *connection, void *context)
{
    blip_slice address;
    (void)context;
    if (blip_connection_remote_address(connection, &address) == BLIP_OK)
        fprintf(stderr, BLIP_FORMAT " connected\n", BLIP_ARGUMENTS(address));
}

static void closed(blip_connection *connection, blip_status status, void *context)
{
    blip_slice address;
    (void)context;
    if (blip_connection_remote_address(connection, &address) == BLIP_OK)
        fprintf(stderr, BLIP_FORMAT " gone: %s\n", BLIP_ARGUMENTS(address), blip_status_message(status));
}

int main(int argc, char **argv)
{
    /* Wait for these signals instead of being killed by them. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);

    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 4984;
    if (port > 65535) {
        fprintf(stderr, "usage: echo_server [port]\n");
        return 2;
    }
    blip_listener *listener = blip_easy_listener_new();
    if (!blip_easy_ok(blip_easy_handle(listener, "echo", echo, NULL), "setting the handler")
        || !blip_easy_ok(blip_listener_set_open_callback(listener, opened, NULL, NULL), "setting a callback")
        || !blip_easy_ok(blip_listener_set_close_callback(listener, closed, NULL, NULL), "setting a callback")
        || blip_easy_listen(listener, "127.0.0.1", (int)port, stderr) != BLIP_OK)
        return 1;
    blip_slice url;
    if (!blip_easy_ok(blip_listener_url(listener, &url), "the URL"))
        return 1;
    printf(BLIP_FORMAT "\n", BLIP_ARGUMENTS(url));
    fflush(stdout);

    int which;
    sigwait(&ends, &which);

    /* Requests under way are finished, within two seconds. */
    blip_listener_stop(listener, true, 2000);
    blip_listener_wait_stopped(listener, 3000);
    blip_listener_release(listener);
    return 0;
}
