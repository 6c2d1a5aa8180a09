/* Sends one request and prints the response.
 *
 *     request_client url profile [body] [key=value]...
 *
 * Exits with 0 for a response, 1 for an error response, 2 when there was no response at all.
 *
 * Build: cc request_client.c -o request_client $(pkg-config --cflags --libs blip) */

#include <blip_easy.h>

#include <stdlib.h>

enum { TIMEOUT = 10000 }; /* milliseconds */

/* Adds "key=value" to the request's properties. */
static bool add_property(blip_message *request, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL) {
        fprintf(stderr, "a property looks like key=value, not \"%s\"\n", text);
        return false;
    }
    blip_slice key = blip_easy_bytes(text, (size_t)(equals - text));
    return blip_easy_ok(blip_message_set_property(request, key, blip_text(equals + 1)), text);
}

static void print_properties(blip_message *response)
{
    size_t count = 0;
    blip_message_property_count(response, &count);
    for (size_t i = 0; i < count; i++) {
        blip_slice key, value;
        if (blip_message_property_at(response, i, &key, &value) == BLIP_OK)
            fprintf(stderr, BLIP_FORMAT ": " BLIP_FORMAT "\n", BLIP_ARGUMENTS(key), BLIP_ARGUMENTS(value));
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: request_client url profile [body] [key=value]...\n");
        return 2;
    }
    blip_message *request = blip_easy_request_new(argv[2], argc > 3 ? argv[3] : NULL), *response = NULL;
    if (request == NULL) {
        fprintf(stderr, "the profile is not UTF-8\n");
        return 2;
    }
    for (int i = 4; i < argc; i++)
        if (!add_property(request, argv[i]))
            return 2;

    blip_connection *connection;
    if (blip_easy_connect(argv[1], TIMEOUT, &connection, stderr) != BLIP_OK)
        return 2;
    if (!blip_easy_ok(blip_connection_request(connection, request, TIMEOUT, &response), "no response"))
        return 2;

    int result = 0;
    print_properties(response);
    if (blip_easy_is_error(response)) {
        blip_easy_print_error(stderr, response);
        result = 1;
    } else if (!blip_easy_write(stdout, blip_easy_body(response)) || fflush(stdout) != 0) {
        perror("writing the response");
        result = 2;
    }
    blip_message_release(response);
    blip_message_release(request);
    blip_easy_close(connection, 2000);
    return result;
}
