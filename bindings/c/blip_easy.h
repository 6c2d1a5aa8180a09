/* blip_easy.h: what C programs type all day, on top of blip.h.
 *
 * Everything here is a static inline function or a macro made of blip.h's functions: nothing to link, nothing to keep
 * in step, no state. Take what you like; whatever you do not find here, blip.h has. C99 and C++.
 *
 * Statuses are blip.h's. Texts are NUL-terminated here and slices there. */

#ifndef BLIP_EASY_H
#define BLIP_EASY_H

#include <blip.h>

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- slices ---- */

/* A slice of any bytes. They are not copied. */
static inline blip_slice blip_easy_bytes(const void *data, size_t size)
{
    blip_slice slice;
    slice.data = data;
    slice.size = size;
    return slice;
}

/* A string literal as a slice, measured when compiled; it may contain NULs. */
#define BLIP_LITERAL(literal) blip_easy_bytes("" literal "", sizeof(literal) - 1)

/* Prints a slice: printf("got " BLIP_FORMAT "\n", BLIP_ARGUMENTS(slice)). Ends at a NUL, cuts at 2 GiB. */
#define BLIP_FORMAT "%.*s"
#define BLIP_ARGUMENTS(slice) \
    ((slice).size > 0x7fffffff ? 0x7fffffff : (int)(slice).size), ((slice).size > 0 ? (const char *)(slice).data : "")

/* Writes all bytes of a slice, NULs included. False: the stream failed. */
static inline bool blip_easy_write(FILE *stream, blip_slice slice)
{
    return slice.size == 0 || fwrite(slice.data, 1, slice.size, stream) == slice.size;
}

/* Whether a slice is exactly that text. */
static inline bool blip_easy_equals(blip_slice slice, const char *text)
{
    size_t size = text != NULL ? strlen(text) : 0;
    return slice.size == size && (size == 0 || memcmp(slice.data, text, size) == 0);
}

/* Copies a slice into a buffer and ends it with a NUL. Returns the slice's size: at least `capacity` means that the
 * text was cut, as with snprintf. */
static inline size_t blip_easy_copy(blip_slice slice, char *buffer, size_t capacity)
{
    if (capacity > 0) {
        size_t size = slice.size < capacity ? slice.size : capacity - 1;
        if (size > 0)
            memcpy(buffer, slice.data, size);
        buffer[size] = 0;
    }
    return slice.size;
}

/* ---- messages ---- */

/* A new request with a profile and a text as its body (NULL: none), to be released by the caller. NULL: the profile is
 * not UTF-8. */
static inline blip_message *blip_easy_request_new(const char *profile, const char *body)
{
    blip_message *request = NULL;
    if (blip_request_new(blip_text(profile), &request) != BLIP_OK)
        return NULL;
    if (body != NULL && blip_message_set_body(request, blip_text(body)) != BLIP_OK) {
        blip_message_release(request);
        return NULL;
    }
    return request;
}

/* A property of a message, empty if there is none. Valid as long as the message, while no property is changed. */
static inline blip_slice blip_easy_get(blip_message *message, const char *key)
{
    blip_slice value;
    if (blip_message_property(message, blip_text(key), &value) != BLIP_OK)
        value = blip_text(NULL);
    return value;
}

static inline blip_status blip_easy_set(blip_message *message, const char *key, const char *value)
{
    return blip_message_set_property(message, blip_text(key), blip_text(value));
}

/* The whole body, empty if there is none or it is not complete. */
static inline blip_slice blip_easy_body(blip_message *message)
{
    blip_slice body;
    if (blip_message_body(message, &body) != BLIP_OK)
        body = blip_text(NULL);
    return body;
}

static inline bool blip_easy_is_error(blip_message *response)
{
    int32_t type = -1;
    return blip_message_type(response, &type) == BLIP_OK && type == BLIP_MESSAGE_ERROR;
}

/* ---- connections ---- */

/* Makes a connection on the shared runtime that does not open yet: set its handlers, then call blip_easy_open. On
 * success *connection is yours to release. On failure it is NULL, and the reason was written to `errors` (NULL:
 * nowhere). */
static inline blip_status blip_easy_connection_new(const char *url, blip_connection **connection, FILE *errors)
{
    blip_status status;
    *connection = NULL;
    status = blip_connection_new(blip_runtime_default(), blip_text(url), NULL, connection);
    if (status != BLIP_OK && errors != NULL) {
        blip_error *error = NULL;
        blip_slice text = blip_text(blip_status_message(status));
        if (blip_url_check(blip_text(url), &error) == BLIP_ERROR_URL)
            (void)blip_error_message(error, &text);
        /* Without the URL, which may hold a password. */
        fprintf(errors, "cannot connect: " BLIP_FORMAT " (%s)\n", BLIP_ARGUMENTS(text), blip_status_name(status));
        blip_error_release(error);
    }
    return status;
}

/* Opens a connection and waits. On failure the reason was written to `errors` (NULL: nowhere). */
static inline blip_status blip_easy_open(blip_connection *connection, int64_t timeout, FILE *errors)
{
    blip_status status = blip_connection_wait_open(connection, timeout);
    if (status != BLIP_OK && errors != NULL) {
        blip_error *error = NULL;
        blip_slice url = blip_text("(no URL)"), text = blip_text(blip_status_message(status));
        (void)blip_connection_url(connection, &url);
        if (blip_connection_error(connection, &error) == BLIP_OK)
            (void)blip_error_message(error, &text);
        fprintf(errors, "cannot connect to " BLIP_FORMAT ": " BLIP_FORMAT " (%s)\n", BLIP_ARGUMENTS(url),
            BLIP_ARGUMENTS(text), blip_status_name(status));
    }
    return status;
}

/* Both at once, for programs that only ask: requests of the peer may come before a handler could be set. */
static inline blip_status blip_easy_connect(
    const char *url, int64_t timeout, blip_connection **connection, FILE *errors)
{
    blip_status status = blip_easy_connection_new(url, connection, errors);
    if (status == BLIP_OK)
        status = blip_easy_open(*connection, timeout, errors);
    if (status != BLIP_OK) {
        blip_connection_release(*connection);
        *connection = NULL;
    }
    return status;
}

/* Closes, waits until the peer has answered or `timeout` is over, and releases. */
static inline void blip_easy_close(blip_connection *connection, int64_t timeout)
{
    (void)blip_connection_close(connection, 1000, blip_text(NULL));
    (void)blip_connection_wait_closed(connection, timeout);
    blip_connection_release(connection);
}

/* One request, one response: sends bytes to a profile and waits. On BLIP_OK *response is yours to release; it may be an
 * error response (blip_easy_is_error). */
static inline blip_status blip_easy_request(
    blip_connection *connection, const char *profile, blip_slice body, int64_t timeout, blip_message **response)
{
    blip_message *request = NULL;
    blip_status status = blip_request_new(blip_text(profile), &request);
    if (status == BLIP_OK)
        status = blip_message_set_body(request, body);
    if (status == BLIP_OK)
        status = blip_connection_request(connection, request, timeout, response);
    blip_message_release(request);
    return status;
}

/* ---- listeners ---- */

/* Makes a listener on the shared runtime. Set its handlers, then call blip_easy_listen. NULL: out of resources. */
static inline blip_listener *blip_easy_listener_new(void)
{
    blip_listener *listener = NULL;
    return blip_listener_new(blip_runtime_default(), NULL, &listener) == BLIP_OK ? listener : NULL;
}

/* The requests of a profile go to a function. */
static inline blip_status blip_easy_handle(
    blip_listener *listener, const char *profile, blip_request_fn fn, void *context)
{
    return blip_listener_set_handler(listener, blip_text(profile), 0, fn, context, NULL);
}

/* Listens on a port, 0 for any free one, of one address ("127.0.0.1"), or of all ("" or NULL): blip_listener_start. On
 * failure the reason, such as which file of a certificate cannot be read, was written to `errors` (NULL: nowhere). */
static inline blip_status blip_easy_listen(blip_listener *listener, const char *address, int port, FILE *errors)
{
    blip_status status;
    if (port < 0 || port > 65535) {
        if (errors != NULL)
            fprintf(errors, "cannot listen: a port is 0 to 65535, not %d (BLIP_ERROR_ARGUMENT)\n", port);
        return BLIP_ERROR_ARGUMENT;
    }
    status = blip_listener_start(listener, blip_text(address), (uint16_t)port);
    if (status != BLIP_OK && errors != NULL) {
        blip_error *error = NULL;
        blip_slice text = blip_text(blip_status_message(status));
        if (blip_listener_error(listener, &error) == BLIP_OK)
            (void)blip_error_message(error, &text);
        fprintf(errors, "cannot listen: " BLIP_FORMAT " (%s)\n", BLIP_ARGUMENTS(text), blip_status_name(status));
    }
    return status;
}

/* ---- what went wrong ---- */

/* Writes "what: meaning (BLIP_ERROR_NAME)" and returns whether the status is BLIP_OK, in which case it writes nothing:
 *     if (!blip_easy_ok(blip_connection_send(…), "sending")) return 1; */
static inline bool blip_easy_ok(blip_status status, const char *what)
{
    if (status != BLIP_OK)
        fprintf(stderr, "%s: %s (%s)\n", what, blip_status_message(status), blip_status_name(status));
    return status == BLIP_OK;
}

/* Writes an error response: "DOMAIN/code: text". */
static inline void blip_easy_print_error(FILE *stream, blip_message *response)
{
    blip_error *error = NULL;
    blip_slice domain = blip_text(NULL), text = blip_text(NULL);
    int64_t code = 0;
    if (blip_message_error(response, &error) != BLIP_OK)
        return;
    (void)blip_error_domain(error, &domain);
    (void)blip_error_code(error, &code);
    (void)blip_error_message(error, &text);
    fprintf(stream, BLIP_FORMAT "/%lld: " BLIP_FORMAT "\n", BLIP_ARGUMENTS(domain), (long long)code,
        BLIP_ARGUMENTS(text));
}

#ifdef __cplusplus
}
#endif

#endif
