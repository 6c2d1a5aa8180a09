/* Talks with whoever is connected to the same chat_server.c. What is typed goes out as an urgent message, which
 * overtakes anything big that is being sent, and wants no reply.
 *
 *     chat url name          then type lines
 *
 * Build: cc chat.c -o chat $(pkg-config --cflags --libs blip) */

#include <blip_easy.h>

#include <stdlib.h>

static blip_status hear(blip_connection *connection, blip_message *message, void *context)
{
    (void)connection;
    (void)context;
    printf(BLIP_FORMAT ": " BLIP_FORMAT "\n", BLIP_ARGUMENTS(blip_easy_get(message, "From")),
        BLIP_ARGUMENTS(blip_easy_body(message)));
    fflush(stdout);
    return BLIP_OK;
}

static blip_status say(blip_connection *connection, const char *name, blip_slice line)
{
    blip_message *message = blip_easy_request_new("say", NULL);
    blip_status status = blip_easy_set(message, "From", name);
    if (status == BLIP_OK)
        status = blip_message_set_text(message, line);
    if (status == BLIP_OK)
        status = blip_message_set_flags(message, BLIP_FLAG_URGENT | BLIP_FLAG_NO_REPLY);
    if (status == BLIP_OK)
        status = blip_connection_send(connection, message, NULL, NULL, NULL);
    blip_message_release(message);
    return status;
}

int main(int argc, char **argv)
{
    blip_connection *connection = NULL;
    char line[1000];
    if (argc != 3) {
        fprintf(stderr, "usage: chat url name\n");
        return 2;
    }
    /* The handler is set before the connection opens, so that nothing is missed. */
    blip_status status = blip_connection_new(blip_runtime_default(), blip_text(argv[1]), NULL, &connection);
    if (status == BLIP_OK)
        status = blip_connection_set_handler(connection, blip_text("say"), 0, hear, NULL, NULL);
    if (status == BLIP_OK)
        status = blip_connection_wait_open(connection, 10000);
    if (!blip_easy_ok(status, argv[1]))
        return 1;
    while (status == BLIP_OK && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] != 0)
            status = say(connection, argv[2], blip_text(line));
        if (status == BLIP_ERROR_TEXT) {
            fprintf(stderr, "that line is not UTF-8\n");
            status = BLIP_OK;
        }
    }
    bool well = blip_easy_ok(status, "you are alone now");
    blip_connection_close_gracefully(connection, 2000); /* what was said goes out first */
    blip_connection_wait_closed(connection, 3000);
    blip_connection_release(connection);
    return well ? 0 : 1;
}
