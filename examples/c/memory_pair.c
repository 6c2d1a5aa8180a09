/* Two parts of one program that talk BLIP without a network: a pair of connections, joined in memory.
 *
 *     memory_pair [number of requests]
 *
 * One part counts, the other asks it to. What works here works over a network too, with blip_connection_new and a
 * listener instead of the pair.
 *
 * Build: cc memory_pair.c -o memory_pair $(pkg-config --cflags --libs blip) */

#include <blip_easy.h>

#include <stdlib.h>

enum { TIMEOUT = 10000 };

static blip_status count(blip_connection *connection, blip_message *request, void *context)
{
    char text[32];
    int *number = context; /* touched on one loop thread only */
    (void)connection;
    snprintf(text, sizeof text, "%d", ++*number);
    return blip_message_respond_text(request, blip_text(text));
}

int main(int argc, char **argv)
{
    int number = 0;
    blip_connection *asks = NULL, *counts = NULL;
    if (!blip_easy_ok(blip_connection_pair(NULL, NULL, NULL, &asks, &counts), "no pair"))
        return 2;
    blip_connection_set_handler(counts, BLIP_LITERAL("count"), 0, count, &number, NULL);
    for (int i = argc > 1 ? atoi(argv[1]) : 3; i > 0; i--) {
        blip_message *request = blip_easy_request_new("count", NULL), *response = NULL;
        blip_slice body;
        if (!blip_easy_ok(blip_connection_request(asks, request, TIMEOUT, &response), "no response"))
            return 2;
        blip_message_body(response, &body);
        printf(BLIP_FORMAT "\n", BLIP_ARGUMENTS(body));
        blip_message_release(response);
        blip_message_release(request);
    }
    blip_connection_close(asks, 1000, blip_text(""));
    blip_connection_wait_closed(asks, TIMEOUT);
    blip_connection_wait_closed(counts, TIMEOUT);
    blip_connection_release(asks);
    blip_connection_release(counts);
    return 0;
}
