/* libwebsockets: binary messages over one WebSocket, without anything above it. */

#include "peer.h"

#include <libwebsockets.h>

/* A message on its way out, of either side. The library writes the header in front of the bytes. */
struct outgoing {
    struct outgoing *next;
    size_t size;
    unsigned char bytes[];
};

static struct outgoing *first, **last = &first, *spare;
static unsigned char *incoming;
static size_t received;
static uint64_t *sent_at, sent, done;
static bool going = true;

static struct outgoing *make_outgoing(size_t size)
{
    struct outgoing *message = spare;
    if (message != NULL)
        spare = message->next;
    else
        message = room(1, sizeof *message + LWS_PRE + plan.body_size);
    message->size = size;
    message->next = NULL;
    *last = message;
    last = &message->next;
    return message;
}

static int write_one(struct lws *socket)
{
    struct outgoing *message = first;
    if (message == NULL)
        return 0;
    if (lws_write(socket, message->bytes + LWS_PRE, message->size, LWS_WRITE_BINARY) < (int)message->size)
        return -1;
    first = message->next;
    if (first == NULL)
        last = &first;
    message->next = spare;
    spare = message;
    if (first != NULL)
        lws_callback_on_writable(socket);
    return 0;
}

/* Whether a message is there as a whole. */
static bool take(struct lws *socket, const void *bytes, size_t size)
{
    if (received + size > plan.body_size)
        die("a message is too long");
    memcpy(incoming + received, bytes, size);
    received += size;
    return lws_is_final_fragment(socket) && lws_remaining_packet_payload(socket) == 0;
}

static int serve(struct lws *socket, enum lws_callback_reasons reason, void *user, void *bytes, size_t size)
{
    (void)user;
    if (reason == LWS_CALLBACK_SERVER_WRITEABLE)
        return write_one(socket);
    if (reason == LWS_CALLBACK_RECEIVE && take(socket, bytes, size)) {
        memcpy(make_outgoing(received)->bytes + LWS_PRE, incoming, received);
        received = 0;
        lws_callback_on_writable(socket);
    }
    return 0;
}

static void fill_window(struct lws *socket)
{
    for (; sent - done < plan.window; sent++) {
        sent_at[sent % plan.window] = nanoseconds();
        fill(make_outgoing(plan.body_size)->bytes + LWS_PRE);
    }
    lws_callback_on_writable(socket);
}

static int ask(struct lws *socket, enum lws_callback_reasons reason, void *user, void *bytes, size_t size)
{
    (void)user;
    switch (reason) {
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        die("cannot connect");
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        start_clock();
        fill_window(socket);
        break;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return write_one(socket);
    case LWS_CALLBACK_CLIENT_RECEIVE:
        if (take(socket, bytes, size)) {
            check(incoming, received);
            received = 0;
            going = answered(sent_at[done++ % plan.window]);
            if (going)
                fill_window(socket);
        }
        break;
    default:
        break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct lws_protocols server[] = {{"echo", serve, 0, 65536, 0, NULL, 0}, {NULL, NULL, 0, 0, 0, NULL, 0}};
    static const struct lws_protocols client[] = {{"echo", ask, 0, 65536, 0, NULL, 0}, {NULL, NULL, 0, 0, 0, NULL, 0}};
    bool is_server = begin(argc, argv);
    lws_set_log_level(LLL_ERR, NULL);
    incoming = room(plan.body_size, 1);
    sent_at = room(plan.window, sizeof *sent_at);
    struct lws_context_creation_info info = {.port = is_server ? plan.port : CONTEXT_PORT_NO_LISTEN,
        .iface = is_server ? "127.0.0.1" : NULL, .protocols = is_server ? server : client, .gid = (gid_t)-1,
        .uid = (uid_t)-1};
    if (!is_server)
        usleep(300000); /* until the server listens; it does not try again */
    struct lws_context *context = lws_create_context(&info);
    if (context == NULL)
        die("cannot start");
    if (!is_server) {
        struct lws_client_connect_info target = {.context = context, .address = "127.0.0.1", .port = plan.port,
            .path = "/", .host = "127.0.0.1", .origin = "127.0.0.1", .protocol = "echo"};
        if (lws_client_connect_via_info(&target) == NULL)
            die("cannot connect");
    }
    while (going)
        lws_service(context, 0);
    report();
    _exit(0);
}
