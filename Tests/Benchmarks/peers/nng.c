/* nng: request and reply over its WebSocket transport, a context for each request of the window. */

#include "peer.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/transport/ws/websocket.h>
#include <pthread.h>
#include <semaphore.h>

struct turn { /* one request under way, of either side */
    nng_ctx context;
    nng_aio *io;
    bool sending;
    uint64_t sent_at;
};

static sem_t ended;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void must(int result, const char *what)
{
    if (result != 0)
        die("%s: %s", what, nng_strerror(result));
}

static void serve_one(void *argument)
{
    struct turn *turn = argument;
    must(nng_aio_result(turn->io), "serving");
    turn->sending = !turn->sending;
    if (turn->sending)
        nng_ctx_send(turn->context, turn->io); /* what was received is what is sent */
    else
        nng_ctx_recv(turn->context, turn->io);
}

static void ask(struct turn *turn)
{
    nng_msg *message;
    must(nng_msg_alloc(&message, plan.body_size), "message");
    fill(nng_msg_body(message));
    nng_aio_set_msg(turn->io, message);
    turn->sending = true;
    turn->sent_at = nanoseconds();
    nng_ctx_send(turn->context, turn->io);
}

static void go_on(void *argument)
{
    struct turn *turn = argument;
    must(nng_aio_result(turn->io), "asking");
    if (turn->sending) {
        turn->sending = false;
        nng_ctx_recv(turn->context, turn->io);
        return;
    }
    nng_msg *message = nng_aio_get_msg(turn->io);
    check(nng_msg_body(message), nng_msg_len(message));
    nng_msg_free(message);
    pthread_mutex_lock(&counting);
    bool more = answered(turn->sent_at);
    pthread_mutex_unlock(&counting);
    if (more)
        ask(turn);
    else
        sem_post(&ended);
}

int main(int argc, char **argv)
{
    char url[64];
    nng_socket socket;
    bool is_server = begin(argc, argv);
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/echo", plan.port);
    must(is_server ? nng_rep0_open(&socket) : nng_req0_open(&socket), "open");
    must(nng_ws_register(), "WebSocket");
    must(nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, 16 << 20), "limit");
    if (is_server)
        must(nng_listen(socket, url, NULL, 0), "listen");
    else
        while (nng_dial(socket, url, NULL, 0) != 0)
            usleep(10000);
    start_clock();
    sem_init(&ended, 0, 0);
    uint64_t count = is_server ? plan.window + 8 : plan.window;
    struct turn *turns = room(count, sizeof *turns);
    for (uint64_t i = 0; i < count; i++) {
        must(nng_ctx_open(&turns[i].context, socket), "context");
        must(nng_aio_alloc(&turns[i].io, is_server ? serve_one : go_on, &turns[i]), "asynchronous operation");
        if (is_server)
            nng_ctx_recv(turns[i].context, turns[i].io);
        else
            ask(&turns[i]);
    }
    if (is_server)
        for (;;)
            pause();
    for (uint64_t i = 0; i < count; i++)
        sem_wait(&ended);
    report();
    _exit(0);
}
