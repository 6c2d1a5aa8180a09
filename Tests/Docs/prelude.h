/* What fragments of C in the pages may speak of without declaring it. */
#include <blip_easy.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static blip_runtime *runtime;
static blip_queue *queue;
static blip_connection *connection;
static blip_connection_options *options;
static blip_listener *listener;
static blip_listener_options *listener_options;
static blip_message *request, *message, *response;
static blip_error *error;
static blip_slice body, bytes, text;
static blip_status status;
static void *context, *data;
static void (*release_context)(void *);
static uint64_t backlog;
static char buffer[65536];
static size_t size;
static int fd;

static inline void unused(void)
{
    (void)runtime, (void)queue, (void)connection, (void)options, (void)listener, (void)listener_options, (void)request;
    (void)message, (void)response, (void)error, (void)body, (void)bytes, (void)text, (void)status, (void)context, (void)data;
    (void)release_context, (void)backlog, (void)buffer, (void)size, (void)fd;
}
