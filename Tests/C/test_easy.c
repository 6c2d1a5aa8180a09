/* The header of conveniences. */

#define _POSIX_C_SOURCE 200809L

#include "support.h"

#include <blip_easy.h>

#include <stdlib.h>

/* What a function writes to a stream. */
static char *written(void (*write_to)(FILE *stream, void *context), void *context)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    REQUIRE(stream != NULL);
    write_to(stream, context);
    fclose(stream);
    return text;
}

TEST(slices)
{
    char buffer[4] = "???", text[32];
    blip_slice literal = BLIP_LITERAL("a\0b");
    CHECK_INT(literal.size, 3);
    CHECK(memcmp(literal.data, "a\0b", 3) == 0);
    CHECK_INT(BLIP_LITERAL("").size, 0);
    CHECK(blip_easy_equals(S("abc"), "abc"));
    CHECK(!blip_easy_equals(S("abc"), "ab"));
    CHECK(!blip_easy_equals(S("abc"), "abd"));
    CHECK(blip_easy_equals(S(""), ""));
    CHECK(blip_easy_equals(S(NULL), NULL));
    CHECK_INT(blip_easy_copy(S("abcdef"), buffer, sizeof buffer), 6);
    CHECK_TEXT(S(buffer), "abc");
    CHECK_INT(blip_easy_copy(S("x"), buffer, sizeof buffer), 1);
    CHECK_TEXT(S(buffer), "x");
    CHECK_INT(blip_easy_copy(S(NULL), buffer, sizeof buffer), 0);
    CHECK_TEXT(S(buffer), "");
    CHECK_INT(blip_easy_copy(S("abc"), NULL, 0), 3);
    snprintf(
        text, sizeof text, "[" BLIP_FORMAT "|" BLIP_FORMAT "]", BLIP_ARGUMENTS(S("one")), BLIP_ARGUMENTS(S(NULL)));
    CHECK_TEXT(S(text), "[one|]");
}

static void write_slice(FILE *stream, void *context)
{
    CHECK(blip_easy_write(stream, *(blip_slice *)context));
}

TEST(writing)
{
    blip_slice slice = BLIP_LITERAL("hello");
    char *text = written(write_slice, &slice);
    CHECK_TEXT(S(text), "hello");
    free(text);
    FILE *full = fopen("/dev/full", "w");
    if (full != NULL) {
        setvbuf(full, NULL, _IONBF, 0);
        CHECK(!blip_easy_write(full, slice));
        fclose(full);
    }
}

TEST(messages)
{
    blip_message *request = blip_easy_request_new("profile", "body");
    REQUIRE(request != NULL);
    CHECK_OK(blip_easy_set(request, "k", "v"));
    CHECK_TEXT(blip_easy_get(request, "k"), "v");
    CHECK_TEXT(blip_easy_get(request, "Profile"), "profile");
    CHECK_INT(blip_easy_get(request, "absent").size, 0);
    CHECK_TEXT(blip_easy_body(request), "body");
    CHECK(!blip_easy_is_error(request));
    blip_message_release(request);
    CHECK_INT(blip_easy_body(request).size, 0);
    CHECK_POINTER(blip_easy_request_new("\xff", NULL), NULL);
    request = blip_easy_request_new(NULL, NULL);
    CHECK(request != NULL);
    blip_message_release(request);
}

static blip_status greet(blip_connection *connection, blip_message *request, void *context)
{
    char text[64];
    (void)connection;
    CHECK(context != NULL);
    if (blip_easy_equals(blip_easy_body(request), "nobody"))
        return blip_message_respond_error(request, BLIP_LITERAL("Manners"), 7, BLIP_LITERAL("who?"));
    snprintf(text, sizeof text, "hello, " BLIP_FORMAT, BLIP_ARGUMENTS(blip_easy_body(request)));
    return blip_message_respond_text(request, blip_text(text));
}

static void write_error(FILE *stream, void *context)
{
    blip_easy_print_error(stream, context);
}

TEST(a_server_and_a_client)
{
    blip_listener *listener = blip_easy_listener_new();
    blip_connection *connection = NULL;
    blip_message *response = NULL;
    blip_slice slice;
    char url[100];
    REQUIRE(listener != NULL);
    CHECK_OK(blip_easy_handle(listener, "greet", greet, url));
    REQUIRE_OK(blip_easy_listen(listener, "127.0.0.1", 0, stderr));
    CHECK_OK(blip_listener_url(listener, &slice));
    blip_easy_copy(slice, url, sizeof url);
    REQUIRE_OK(blip_easy_connect(url, SOON, &connection, stderr));
    REQUIRE_OK(blip_easy_request(connection, "greet", BLIP_LITERAL("world"), SOON, &response));
    CHECK(!blip_easy_is_error(response));
    CHECK_TEXT(blip_easy_body(response), "hello, world");
    blip_message_release(response);
    REQUIRE_OK(blip_easy_request(connection, "greet", BLIP_LITERAL("nobody"), SOON, &response));
    CHECK(blip_easy_is_error(response));
    char *text = written(write_error, response);
    CHECK_TEXT(S(text), "Manners/7: who?\n");
    free(text);
    blip_message_release(response);
    blip_easy_close(connection, SOON);
    blip_listener_stop(listener, false, 1000);
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
}

static void connect_in_vain(FILE *stream, void *context)
{
    blip_connection *connection = (blip_connection *)context;
    char url[64];
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", unused_port());
    CHECK_STATUS(blip_easy_connect(url, SOON, &connection, stream), BLIP_ERROR_REFUSED);
    CHECK_POINTER(connection, NULL);
    CHECK_STATUS(blip_easy_connect("nonsense", SOON, &connection, stream), BLIP_ERROR_URL);
    CHECK_STATUS(blip_easy_connect(NULL, SOON, &connection, NULL), BLIP_ERROR_URL);
}

static void listen_in_vain(FILE *stream, void *context)
{
    blip_listener_options *options = blip_listener_options_new();
    blip_listener *listener = NULL;
    (void)context;
    CHECK_OK(blip_listener_options_set_tls_identity(options, blip_text("not/there.pem"), blip_text("not/there.key")));
    CHECK_OK(blip_listener_new(NULL, options, &listener));
    CHECK_STATUS(blip_easy_listen(listener, "127.0.0.1", 0, stream), BLIP_ERROR_TLS_SETUP);
    CHECK_STATUS(blip_easy_listen(listener, "127.0.0.1", 80000, stream), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_easy_listen(listener, "127.0.0.1", -1, NULL), BLIP_ERROR_ARGUMENT);
    blip_listener_release(listener);
    blip_listener_options_release(options);
    CHECK_STATUS(blip_easy_listen(NULL, NULL, 0, stream), BLIP_ERROR_HANDLE);
}

TEST(failures_are_explained)
{
    char *said = written(listen_in_vain, NULL);
    CHECK(strstr(said, "cannot listen: ") == said);
    CHECK(strstr(said, "not/there.pem: No such file") != NULL);
    CHECK(strstr(said, "a port is 0 to 65535, not 80000 (BLIP_ERROR_ARGUMENT)") != NULL);
    CHECK(strstr(said, "(BLIP_ERROR_HANDLE)") != NULL);
    free(said);
    char *text = written(connect_in_vain, &text);
    CHECK(strstr(text, "cannot connect to ws://127.0.0.1:") == text);
    CHECK(strstr(text, "(BLIP_ERROR_REFUSED)") != NULL);
    CHECK(strstr(text, "(BLIP_ERROR_URL)") != NULL);
    free(text);
    CHECK(blip_easy_ok(BLIP_OK, "x"));
    FILE *quiet = freopen("/dev/null", "w", stderr);
    CHECK(quiet != NULL);
    CHECK(!blip_easy_ok(BLIP_ERROR_TIMEOUT, "x"));
}
