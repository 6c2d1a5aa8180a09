/* Sends each line of the input as a request, whatever happens to the connection meanwhile.
 *
 *     reconnect url profile
 *
 * Lines that are typed while the server is away wait until it is back. Lines that it may have handled already are not
 * sent again: they are reported. State changes go to the error output. Ends with the input.
 *
 * Build: cc reconnect.c -o reconnect $(pkg-config --cflags --libs blip) */

#include <blip_easy.h>

#include <stdlib.h>

enum { TIMEOUT = 60000 }; /* milliseconds that a line may wait */

static void tell_state(blip_reconnector *reconnector, int32_t state, blip_status status, void *context)
{
    static const char *const names[] = {"new", "connecting", "connected", "waiting", "stopped"};
    (void)context;
    fprintf(stderr, "%s", state >= 0 && state < 5 ? names[state] : "?");
    if (status != BLIP_OK)
        fprintf(stderr, ": %s", blip_status_message(status));
    int64_t delay;
    if (blip_reconnector_delay(reconnector, &delay) == BLIP_OK)
        fprintf(stderr, " Next try in %lld ms.", (long long)delay);
    fputc('\n', stderr);
}

static void print_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)connection, (void)request, (void)context;
    if (status != BLIP_OK)
        fprintf(stderr, "no response: %s\n", blip_status_message(status));
    else if (blip_easy_is_error(response))
        blip_easy_print_error(stderr, response);
    else if (blip_easy_write(stdout, blip_easy_body(response)))
        fputc('\n', stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: reconnect url profile\n");
        return 2;
    }
    blip_reconnector *reconnector;
    if (!blip_easy_ok(blip_reconnector_new(NULL, blip_text(argv[1]), NULL, &reconnector), argv[1]))
        return 2;
    blip_reconnector_set_carry_over(reconnector, true);
    blip_reconnector_set_state_callback(reconnector, tell_state, NULL, NULL);
    if (!blip_easy_ok(blip_reconnector_start(reconnector), "start"))
        return 2;

    int result = 0;
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        blip_message *request = blip_easy_request_new(argv[2], line);
        if (request == NULL) {
            fprintf(stderr, "the line is not UTF-8\n");
            continue;
        }
        blip_message_set_timeout(request, TIMEOUT);
        if (!blip_easy_ok(blip_reconnector_send(reconnector, request, print_response, NULL, NULL), "send"))
            result = 1;
        blip_message_release(request);
    }
    /* What is under way may finish; then everything is ended before the process is. */
    blip_reconnector_stop(reconnector, 10000);
    blip_reconnector_wait_stopped(reconnector, -1);
    blip_reconnector_release(reconnector);
    blip_runtime_stop(blip_runtime_default(), 2000);
    return result;
}
