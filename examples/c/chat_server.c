/* The room in which chat.c's people meet: everybody hears everybody else.
 *
 *     chat_server [port]
 *
 * Build: cc chat_server.c -o chat_server $(pkg-config --cflags --libs blip) */

#define _POSIX_C_SOURCE 200809L

#include <blip_easy.h>

#include <stdlib.h>
#include <unistd.h>

enum { SEATS = 100 };

/* Who is here. The shared runtime has one thread, which makes all the callbacks, so no lock is needed. */
static blip_connection *room[SEATS];

static void come_in(blip_connection *connection, void *context)
{
    (void)context;
    for (int i = 0; i < SEATS; i++)
        if (room[i] == NULL) {
            room[i] = blip_connection_retain(connection);
            return;
        }
    blip_connection_close(connection, 1013, blip_text("the room is full"));
}

static void leave(blip_connection *connection, blip_status status, void *context)
{
    (void)status;
    (void)context;
    for (int i = 0; i < SEATS; i++)
        if (room[i] == connection) {
            blip_connection_release(room[i]);
            room[i] = NULL;
        }
}

/* One message can go to one connection only: the others get copies of it. It keeps its flags, urgent and no-reply. */
static blip_status pass_on(blip_connection *connection, blip_message *message, void *context)
{
    (void)context;
    for (int i = 0; i < SEATS; i++) {
        blip_message *copy = NULL;
        if (room[i] == NULL || room[i] == connection)
            continue;
        blip_status status = blip_message_copy(message, &copy);
        if (status == BLIP_OK)
            status = blip_connection_send(room[i], copy, NULL, NULL, NULL);
        if (status != BLIP_ERROR_CLOSED)
            blip_easy_ok(status, "passing a message on");
        blip_message_release(copy);
    }
    return BLIP_OK;
}

int main(int argc, char **argv)
{
    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 4984;
    blip_listener *listener = blip_easy_listener_new();
    blip_slice url;
    if (!blip_easy_ok(blip_easy_handle(listener, "say", pass_on, NULL), "setting the handler")
        || !blip_easy_ok(blip_listener_set_open_callback(listener, come_in, NULL, NULL), "setting a callback")
        || !blip_easy_ok(blip_listener_set_close_callback(listener, leave, NULL, NULL), "setting a callback")
        || blip_easy_listen(listener, "127.0.0.1", (int)port, stderr) != BLIP_OK
        || !blip_easy_ok(blip_listener_url(listener, &url), "the URL"))
        return 1;
    printf(BLIP_FORMAT "\n", BLIP_ARGUMENTS(url));
    fflush(stdout);
    for (;;)
        pause(); /* until it is interrupted */
}
