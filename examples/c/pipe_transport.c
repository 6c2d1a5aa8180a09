/* BLIP between two processes over a pair of sockets of their own: a transport of the program.
 *
 *     pipe_transport [text]
 *
 * The child answers "shout"; the parent asks it and prints the reply. Each packet is one frame; in a stream of bytes,
 * frames would need their lengths in front.
 *
 * Build: cc pipe_transport.c -o pipe_transport $(pkg-config --cflags --libs blip) -pthread */

#define _GNU_SOURCE

#include <blip_easy.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static int peer;            /* the socket */
static atomic_bool is_full; /* a frame waits */

/* Carries one frame to the other process. On a loop thread: it must not wait. */
static blip_status send_frame(blip_transport *transport, blip_slice frame, void *context)
{
    (void)transport, (void)context;
    if (send(peer, frame.data, frame.size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return BLIP_OK;
    atomic_store(&is_full, errno == EAGAIN);
    return errno == EAGAIN ? BLIP_AGAIN : BLIP_ERROR_CONNECTION_LOST;
}

/* This side ends the connection: the other process sees the end of the socket. */
static void close_peer(blip_transport *transport, uint16_t code, blip_slice reason, void *context)
{
    (void)transport, (void)code, (void)reason, (void)context;
    shutdown(peer, SHUT_RDWR);
}

/* Hands over what comes, on a thread of the program. */
static void *read_frames(void *transport)
{
    static char frame[1 << 16];
    for (ssize_t size = -1; size != 0;) {
        struct pollfd events = {.fd = peer, .events = POLLIN | (atomic_load(&is_full) ? POLLOUT : 0)};
        poll(&events, 1, 50);
        if ((events.revents & POLLOUT) != 0 && atomic_exchange(&is_full, false))
            blip_transport_did_drain(transport);
        size = recv(peer, frame, sizeof frame, MSG_DONTWAIT);
        while (size > 0 && blip_transport_did_receive(transport, blip_easy_bytes(frame, (size_t)size)) == BLIP_AGAIN)
            poll(NULL, 0, 1); /* blip_transport_set_resume_callback would tell when */
    }
    blip_transport_did_close(transport, BLIP_OK);
    return NULL;
}

static blip_status shout(blip_connection *connection, blip_message *request, void *context)
{
    char text[1000];
    (void)connection, (void)context;
    blip_easy_copy(blip_easy_body(request), text, sizeof text);
    for (char *at = text; *at != 0; at++)
        *at = (char)toupper((unsigned char)*at);
    return blip_message_respond_text(request, blip_text(text));
}

int main(int argc, char **argv)
{
    blip_transport *transport;
    blip_connection *connection;
    blip_message *response = NULL;
    pthread_t thread;
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0)
        return 2;
    bool is_child = fork() == 0; /* before there are threads */
    peer = sockets[is_child];
    close(sockets[!is_child]);
    if (!blip_easy_ok(blip_transport_new(send_frame, NULL, NULL, &transport), "no transport") ||
        !blip_easy_ok(blip_transport_set_close_callback(transport, close_peer, NULL, NULL), "no transport") ||
        !blip_easy_ok(blip_connection_from_transport(NULL, transport, blip_text("BLIP_3"), NULL, &connection), "BLIP"))
        return 2;
    blip_connection_set_handler(connection, blip_text("shout"), 0, shout, NULL, NULL);
    blip_transport_did_open(transport);
    pthread_create(&thread, NULL, read_frames, transport);
    if (!is_child) {
        blip_easy_request(connection, "shout", blip_text(argc > 1 ? argv[1] : "hello"), 10000, &response);
        blip_easy_write(stdout, blip_easy_body(response));
        blip_connection_close(connection, 1000, blip_text(""));
    }
    pthread_join(thread, NULL);
    blip_connection_wait_closed(connection, -1);
    blip_message_release(response);
    blip_connection_release(connection);
    blip_transport_release(transport);
    return is_child || response != NULL ? 0 : 2;
}
