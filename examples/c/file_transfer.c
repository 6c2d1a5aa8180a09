/* Sends a file to file_server.c or fetches one; of any size, streamed both ways.
 *
 *     file_transfer put url file
 *     file_transfer get url file
 *
 * Build: cc file_transfer.c -o file_transfer $(pkg-config --cflags --libs blip) */

#define _POSIX_C_SOURCE 200809L

#include <blip_easy.h>

#include <fcntl.h>
#include <unistd.h>

enum { FOREVER = -1 };

static void show_progress(blip_message *message, uint64_t sent, void *context)
{
    uint64_t size = *(const uint64_t *)context;
    (void)message;
    fprintf(stderr, "\r%3u %%", size > 0 ? (unsigned)(sent * 100 / size) : 100);
}

/* Sends the request and waits for a response that is not an error. NULL: said why on stderr. */
static blip_message *ask(blip_connection *connection, blip_message *request)
{
    blip_message *response = NULL;
    if (!blip_easy_ok(blip_connection_request(connection, request, FOREVER, &response), "no response"))
        return NULL;
    if (!blip_easy_is_error(response))
        return response;
    blip_easy_print_error(stderr, response);
    blip_message_release(response);
    return NULL;
}

static bool put(blip_connection *connection, blip_message *request, const char *path)
{
    static uint64_t size; /* an error response may come while the file is still being sent */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        perror(path);
        return false;
    }
    /* The library reads the file while it sends and closes it in the end. */
    if (!blip_easy_ok(blip_message_append_body_file(request, descriptor, 0, UINT64_MAX, true), path)
        || !blip_easy_ok(blip_message_body_size(request, &size), path)
        || !blip_easy_ok(blip_message_set_progress_callback(request, show_progress, &size, NULL), "progress"))
        return false;
    blip_message *response = ask(connection, request);
    if (response != NULL)
        fprintf(stderr, "\n" BLIP_FORMAT "\n", BLIP_ARGUMENTS(blip_easy_body(response)));
    blip_message_release(response);
    return response != NULL;
}

static bool get(blip_connection *connection, blip_message *request, const char *path)
{
    static char buffer[65536];
    blip_status status = blip_message_set_streamed(request, true); /* the response comes before its body */
    blip_message *response = status == BLIP_OK ? ask(connection, request) : NULL;
    FILE *file = response != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) {
        if (response != NULL)
            perror(path);
        blip_message_release(response);
        return false;
    }
    bool written = true;
    while (status == BLIP_OK && written) {
        size_t size = 0;
        status = blip_message_read_wait(response, buffer, sizeof buffer, FOREVER, &size);
        if (status >= 0)
            written = blip_easy_write(file, blip_easy_bytes(buffer, size));
    }
    blip_message_release(response);
    if (fclose(file) != 0 || !written)
        perror(path);
    return written && (status == BLIP_DATA_END || blip_easy_ok(status, path));
}

int main(int argc, char **argv)
{
    blip_connection *connection;
    bool putting = argc == 4 && strcmp(argv[1], "put") == 0;
    if (argc != 4 || (!putting && strcmp(argv[1], "get") != 0)) {
        fprintf(stderr, "usage: file_transfer put|get url file\n");
        return 2;
    }
    if (blip_easy_connect(argv[2], 10000, &connection, stderr) != BLIP_OK)
        return 1;
    const char *slash = strrchr(argv[3], '/');
    blip_message *request = blip_easy_request_new(argv[1], NULL);
    bool done = blip_easy_ok(blip_easy_set(request, "Name", slash != NULL ? slash + 1 : argv[3]), "the name")
        && (putting ? put : get)(connection, request, argv[3]);
    blip_message_release(request);
    blip_easy_close(connection, 2000);
    return done ? 0 : 1;
}
