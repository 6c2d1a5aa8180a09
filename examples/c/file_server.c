/* Serves the files of the current folder and takes new ones, for file_transfer.c. Files of any size are streamed: no
 * more than a window of one is ever in memory.
 *
 *     file_server [port]
 *
 * Build: cc file_server.c -o file_server $(pkg-config --cflags --libs blip) */

#define _POSIX_C_SOURCE 200809L

#include <blip_easy.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Opens the file that a message names; only plain names of this folder. -1: there is none. */
static int open_named(blip_message *message, int flags)
{
    char name[256];
    size_t size = blip_easy_copy(blip_easy_get(message, "Name"), name, sizeof name);
    if (size == 0 || size >= sizeof name || strlen(name) != size || name[0] == '.' || strchr(name, '/') != NULL)
        return -1;
    return open(name, flags | O_CLOEXEC | O_NOFOLLOW, 0644);
}

/* Writes what has come of a file and answers after the last piece. Returns how much it took: everything. */
static size_t write_piece(blip_message *message, blip_slice data, blip_status status, void *context)
{
    FILE *file = context;
    bool failed = !blip_easy_write(file, data) || ferror(file);
    if (status == BLIP_OK)
        return data.size;
    if (status == BLIP_DATA_END && !failed && fflush(file) == 0)
        blip_message_respond_text(message, blip_text("stored"));
    else if (status == BLIP_DATA_END)
        blip_message_respond_error(message, blip_text("POSIX"), errno, blip_text("the file cannot be written"));
    blip_message_release(message); /* kept by put() */
    return data.size;
}

static void close_file(void *file)
{
    fclose(file);
}

static blip_status put(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    int descriptor = open_named(request, O_WRONLY | O_CREAT | O_TRUNC);
    if (descriptor < 0)
        return blip_message_respond_error(request, blip_text("HTTP"), 403, blip_text("not with that name"));
    blip_message_defer(blip_message_retain(request)); /* answered by write_piece() */
    return blip_message_set_data_callback(request, write_piece, fdopen(descriptor, "w"), close_file);
}

static blip_status get(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *response;
    (void)connection;
    (void)context;
    int descriptor = open_named(request, O_RDONLY);
    if (descriptor < 0)
        return blip_message_respond_error(request, blip_text("HTTP"), 404, blip_text("no such file"));
    blip_status status = blip_response_new(request, &response);
    if (status == BLIP_OK)
        status = blip_message_append_body_file(response, descriptor, 0, UINT64_MAX, true);
    if (status == BLIP_OK)
        status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

int main(int argc, char **argv)
{
    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 4984;
    blip_listener *listener = blip_easy_listener_new();
    blip_slice url, name = blip_text("put");
    if (!blip_easy_ok(blip_listener_set_handler(listener, name, BLIP_HANDLER_STREAM, put, NULL, NULL), "put")
        || !blip_easy_ok(blip_easy_handle(listener, "get", get, NULL), "get")
        || blip_easy_listen(listener, "127.0.0.1", (int)port, stderr) != BLIP_OK
        || !blip_easy_ok(blip_listener_url(listener, &url), "the URL"))
        return 1;
    printf(BLIP_FORMAT "\n", BLIP_ARGUMENTS(url));
    fflush(stdout);
    for (;;)
        pause(); /* until it is interrupted */
}
