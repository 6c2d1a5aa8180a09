/* ZeroMQ: a DEALER keeps the window under way to a ROUTER, which sends each message back. */

#include "peer.h"

#include <zmq.h>

static void must(int result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, zmq_strerror(zmq_errno()));
}

static void serve(void *router)
{
    for (;;) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        must(zmq_msg_recv(&part, router, 0), "receive");
        must(zmq_msg_send(&part, router, zmq_msg_more(&part) ? ZMQ_SNDMORE : 0), "send");
    }
}

static void ask(void *dealer)
{
    uint64_t *sent_at = room(plan.window, sizeof *sent_at), sent = 0, received = 0;
    start_clock();
    for (bool going = true; going;) {
        zmq_msg_t message;
        for (; sent - received < plan.window; sent++) {
            sent_at[sent % plan.window] = nanoseconds();
            must(zmq_msg_init_size(&message, plan.body_size), "message");
            fill(zmq_msg_data(&message));
            must(zmq_msg_send(&message, dealer, 0), "send");
        }
        zmq_msg_init(&message);
        must(zmq_msg_recv(&message, dealer, 0), "receive");
        check(zmq_msg_data(&message), zmq_msg_size(&message));
        zmq_msg_close(&message);
        going = answered(sent_at[received++ % plan.window]);
    }
}

int main(int argc, char **argv)
{
    char url[64];
    bool is_server = begin(argc, argv);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", plan.port);
    void *socket = zmq_socket(zmq_ctx_new(), is_server ? ZMQ_ROUTER : ZMQ_DEALER);
    if (is_server) {
        must(zmq_bind(socket, url), "bind");
        serve(socket);
    }
    must(zmq_connect(socket, url), "connect");
    ask(socket);
    report();
    _exit(0); /* messages under way need not be waited for */
}
