/* What else blip.h promises in so many words. */

#define _POSIX_C_SOURCE 200809L

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TEST(null_stands_for_the_shared_runtime)
{
    struct pair pair;
    struct outcome outcome;
    blip_connection *connection = NULL;
    blip_listener *listener = NULL;
    blip_slice url;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(NULL, S(pair.url), NULL, &connection));
    REQUIRE_OK(blip_connection_wait_open(connection, SOON));
    CHECK_OK(send_request(connection, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    blip_connection_release(connection);
    REQUIRE_OK(blip_listener_new(NULL, NULL, &listener));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_url(listener, &url));
    blip_listener_release(listener);
    /* After a stop the next use makes another. */
    CHECK_OK(blip_runtime_stop(blip_runtime_default(), SOON));
    REQUIRE_OK(blip_connection_new(NULL, S(pair.url), NULL, &connection));
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    blip_connection_release(connection);
    pair_close(&pair);
}

TEST(times_below_minus_one_are_refused)
{
    struct pair pair;
    struct outcome outcome;
    blip_queue *queue = NULL;
    blip_event *event = NULL;
    blip_message *request = make_request("echo", "x"), *response = NULL;
    blip_connection_options *client = blip_connection_options_new();
    blip_listener_options *server = blip_listener_options_new();
    blip_runtime *own = make_runtime(0);
    size_t count = 0;
    char byte;
    static const int64_t times[] = {-2, -1000, INT64_MIN};
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_queue_new(0, &queue));
    for (int i = 0; i < 3; i++) {
        int64_t time = times[i];
        CHECK_STATUS(blip_runtime_run_once(own, time, NULL), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_runtime_stop(own, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_queue_dispatch(queue, 1, time, &count), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_queue_next(queue, &event, 1, time, &count), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_options_set_connect_timeout(client, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_options_set_close_timeout(client, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_options_set_handshake_timeout(server, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_options_set_close_timeout(server, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_wait_open(pair.client, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_wait_closed(pair.client, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_close_gracefully(pair.client, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_ping(pair.client, time, NULL, NULL, NULL), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_request(pair.client, request, time, &response), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_message_set_timeout(request, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_message_wait_sent(request, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_message_read_wait(request, &byte, 1, time, &count), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_stop(pair.listener, true, time), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_listener_wait_stopped(pair.listener, time), BLIP_ERROR_ARGUMENT);
    }
    /* Nothing has happened. */
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    blip_message_release(request);
    blip_connection_options_release(client);
    blip_listener_options_release(server);
    blip_queue_release(queue);
    blip_runtime_release(own);
    pair_close(&pair);
}

TEST(forms_of_urls)
{
    static const struct {
        const char *given, *shown; /* NULL: as given */
    } urls[] = {{"ws://host/", NULL}, {"ws://host:81/path?query=1", NULL}, {"wss://host/x", NULL},
        {"ws://[::1]:8080/", NULL}, {"ws://host", "ws://host/"}, {"http://host:81/", "ws://host:81/"},
        {"https://host/", "wss://host/"}, {"WS://HOST/Path", "ws://host/Path"},
        {"ws://user:secret@host/", "ws://host/"}, {"ws+unix://%2Frun%2Fblip.sock/path", NULL}};
    blip_runtime *runtime = make_runtime(1);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        blip_connection *connection = NULL;
        blip_slice url;
        if (!CHECK_OK(blip_connection_new(runtime, S(urls[i].given), NULL, &connection))) {
            test_note("%s", urls[i].given);
            continue;
        }
        CHECK_OK(blip_connection_url(connection, &url));
        CHECK_TEXT(url, urls[i].shown != NULL ? urls[i].shown : urls[i].given);
        blip_connection_release(connection);
    }
    drop_runtime(runtime);
}

static void remember_authorization(blip_listener *listener, blip_connection *connection, void *context)
{
    blip_slice value;
    char *text = context;
    (void)listener;
    if (CHECK_OK(blip_connection_http_header(connection, S("authorization"), &value)))
        snprintf(text, 100, "%.*s", (int)value.size, (const char *)value.data);
}

TEST(user_and_password_of_the_url_are_sent)
{
    struct pair pair;
    char url[100], authorization[100] = "";
    uint16_t port = 0;
    blip_connection *connection = NULL;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    CHECK_OK(blip_listener_set_accept_callback(pair.listener, remember_authorization, authorization, NULL));
    CHECK_OK(blip_listener_port(pair.listener, &port));
    snprintf(url, sizeof url, "ws://Aladdin:open%%20sesame@127.0.0.1:%u/", port);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), NULL, &connection));
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    CHECK_TEXT(S(authorization), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    blip_connection_release(connection);
    pair_close(&pair);
}

TEST(the_listeners_url_has_its_first_path)
{
    struct pair pair;
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_add_path(options, S("/first")));
    CHECK_OK(blip_listener_options_add_path(options, S("/second")));
    pair_open(&pair, &(struct pair_options){.listener = options});
    const char *end = strrchr(pair.url, '/');
    REQUIRE(end != NULL);
    CHECK_TEXT(S(end), "/first");
    pair_close(&pair);
}

static blip_status end_at_once(void *buffer, size_t capacity, size_t *written, void *context)
{
    (void)buffer;
    (void)capacity;
    (void)written;
    (void)context;
    return BLIP_DATA_END;
}

TEST(bodies_with_parts_elsewhere_are_neither_shown_nor_copied)
{
    char path[128];
    blip_slice body;
    blip_message *copy = NULL;
    snprintf(path, sizeof path, "%s/part", temporary_directory());
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE_INT(write(descriptor, "12345", 5), 5);
    for (int kind = 0; kind < 3; kind++) {
        blip_message *request = make_request("x", "start");
        if (kind == 0)
            CHECK_OK(blip_message_append_body_borrowed(request, S("borrowed"), NULL, NULL));
        else if (kind == 1)
            CHECK_OK(blip_message_append_body_file(request, descriptor, 0, UINT64_MAX, false));
        else
            CHECK_OK(blip_message_append_body_pulled(request, end_at_once, NULL, NULL));
        CHECK_STATUS(blip_message_body(request, &body), BLIP_ERROR_UNSUPPORTED);
        CHECK_STATUS(blip_message_copy(request, &copy), BLIP_ERROR_UNSUPPORTED);
        CHECK_POINTER(copy, NULL);
        /* A new body takes the place of all parts. */
        CHECK_OK(blip_message_set_body(request, S("whole")));
        CHECK_OK(blip_message_body(request, &body));
        CHECK_TEXT(body, "whole");
        blip_message_release(request);
    }
    close(descriptor);
}

TEST(file_errors_have_their_status)
{
    int pipes[2];
    blip_message *request = make_request("x", NULL);
    REQUIRE_INT(pipe(pipes), 0);
    CHECK_STATUS(blip_message_append_body_file(request, pipes[0], 0, 1, true), BLIP_ERROR_FILE);
    /* On failure the descriptor stays the caller's. */
    CHECK(fcntl(pipes[0], F_GETFD) >= 0);
    CHECK_STATUS(blip_message_append_body_file(request, -1, 0, 1, false), BLIP_ERROR_FILE);
    close(pipes[0]);
    close(pipes[1]);
    blip_message_release(request);
}

TEST(properties_by_the_letter)
{
    static const char twice[] = "k\0one\0k\0two";
    blip_message *request = make_request("profile", NULL);
    blip_slice value;
    size_t count = 0;
    CHECK_STATUS(blip_message_set_properties(request, bytes_slice(twice, sizeof twice)), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_message_remove_property(request, S("absent")), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_message_set_content_type(request, S("a/b")));
    CHECK_OK(blip_message_set_profile(request, S("")));
    CHECK_STATUS(blip_message_property(request, S("Profile"), &value), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_message_set_content_type(request, S("")));
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 0);
    CHECK_STATUS(blip_message_property_at(request, 0, &value, &value), BLIP_ERROR_NOT_FOUND);
    blip_message_release(request);
}

TEST(functions_for_streamed_messages_refuse_others)
{
    struct pair pair;
    struct counter released = COUNTER;
    blip_message *request = make_request("echo", "x"), *response = NULL;
    char byte;
    size_t size = 9;
    pair_open(&pair, NULL);
    CHECK_STATUS(blip_message_read(request, &byte, 1, &size), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_message_read_wait(request, &byte, 1, 10, &size), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_message_set_data_callback(request, NULL, &released, count_release), BLIP_ERROR_STATE);
    CHECK_INT(counter_get(&released), 1);
    CHECK_STATUS(blip_message_resume_body(request), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK_STATUS(blip_message_read(response, &byte, 1, &size), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_message_wait_sent(response, 10), BLIP_ERROR_STATE);
    CHECK(blip_message_set_streamed(response, true) < 0); /* neither a request nor mutable */
    CHECK_STATUS(blip_message_set_streamed(request, true), BLIP_ERROR_IMMUTABLE);
    CHECK_OK(blip_message_resume_body(request));
    CHECK_INT(size, 9);
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

struct answering {
    struct counter answered;
};

static blip_status answer_with_error(blip_connection *connection, blip_message *request, void *context)
{
    struct answering *answering = context;
    blip_message *response = NULL;
    (void)connection;
    CHECK_OK(blip_response_new(request, &response));
    CHECK_STATUS(blip_message_set_no_reply(response, true), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_message_set_flags(response, BLIP_FLAG_NO_REPLY), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_message_set_timeout(response, 10), BLIP_ERROR_ARGUMENT);
    blip_message_release(response);
    counter_add(&answering->answered, 1);
    return blip_message_respond_error(request, S(""), 409, S("busy"));
}

TEST(errors_of_responses)
{
    struct pair pair;
    struct answering answering = {COUNTER};
    blip_message *request = make_request("ask", "x"), *response = NULL;
    blip_error *error = NULL;
    blip_slice text;
    int64_t code = 0;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("ask"), 0, answer_with_error, &answering, NULL));
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    REQUIRE_OK(blip_message_error(response, &error));
    CHECK_STATUS(blip_error_status(error), BLIP_OK);
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, 409);
    CHECK_OK(blip_error_domain(error, &text));
    CHECK_TEXT(text, "BLIP");
    CHECK_STATUS(blip_message_error(request, &error), BLIP_ERROR_NOT_FOUND);
    /* The error goes with its response unless it is retained. */
    CHECK_POINTER(blip_error_retain(error), error);
    blip_message_release(response);
    CHECK_OK(blip_error_message(error, &text));
    CHECK_TEXT(text, "busy");
    blip_error_release(error);
    blip_message_release(request);
    pair_close(&pair);
}

TEST(setters_after_the_end)
{
    struct pair pair;
    struct counter released = COUNTER;
    pair_open(&pair, NULL);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_STATUS(
        blip_connection_set_open_callback(pair.client, NULL, &released, count_release), BLIP_ERROR_CLOSED);
    CHECK_STATUS(
        blip_connection_set_default_handler(pair.client, 0, NULL, &released, count_release), BLIP_ERROR_CLOSED);
    CHECK_STATUS(blip_connection_remove_handler(pair.client, S("x")), BLIP_ERROR_CLOSED);
    CHECK_INT(counter_get(&released), 2);
    CHECK_STATUS(blip_connection_connect(pair.client), BLIP_ERROR_CLOSED);
    CHECK_STATUS(blip_connection_wait_open(pair.client, 10), BLIP_ERROR_CLOSED);
    CHECK_STATUS(blip_connection_connect(pair.accepted), BLIP_ERROR_STATE);
    pair_close(&pair);
}

TEST(handlers_need_a_function_unless_there_is_a_queue)
{
    blip_runtime *runtime = make_runtime(1);
    blip_queue *queue = NULL;
    blip_connection *plain = NULL, *queued = NULL;
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_queue_new(0, &queue));
    CHECK_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &plain));
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), options, &queued));
    CHECK_STATUS(blip_connection_set_handler(plain, S("x"), 0, NULL, NULL, NULL), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_connection_set_handler(queued, S("x"), 0, NULL, NULL, NULL));
    CHECK_OK(blip_connection_set_default_handler(plain, 0, NULL, NULL, NULL));
    blip_connection_release(plain);
    blip_connection_release(queued);
    blip_connection_options_release(options);
    blip_queue_release(queue);
    drop_runtime(runtime);
}

static void take_from_a_loop(blip_connection *connection, void *context)
{
    blip_queue *queue = context;
    size_t count = 9;
    (void)connection;
    CHECK_STATUS(blip_queue_dispatch(queue, 1, 10, &count), BLIP_ERROR_WOULD_DEADLOCK);
    CHECK_OK(blip_queue_dispatch(queue, 1, 0, &count));
    CHECK_INT(count, 0);
}

TEST(queues_may_be_taken_from_but_not_waited_for_on_loop_threads)
{
    struct pair pair;
    blip_queue *queue = NULL;
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_queue_new(0, &queue));
    pair_open(&pair, &(struct pair_options){.no_client = true});
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &connection));
    CHECK_OK(blip_connection_set_open_callback(connection, take_from_a_loop, queue, NULL));
    CHECK_OK(blip_connection_wait_open(connection, SOON));
    blip_connection_close(connection, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(what_is_not_known_is_not_found)
{
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL;
    blip_slice slice;
    struct pair pair;
    blip_error *error = NULL;
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    CHECK_STATUS(blip_connection_subprotocol(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_local_address(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_remote_address(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_tls_version(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_tls_cipher(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_peer_certificate(connection, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_http_header(connection, S("Server"), &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_error(connection, &error), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_ping(connection, 10, NULL, NULL, NULL), BLIP_ERROR_STATE);
    blip_connection_release(connection);
    drop_runtime(runtime);
    pair_open(&pair, NULL);
    CHECK_STATUS(blip_connection_url(pair.accepted, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_tls_version(pair.client, &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_listener_error(pair.listener, &error), BLIP_ERROR_NOT_FOUND);
    pair_close(&pair);
}

TEST(limits_have_ranges)
{
    blip_connection_options *options = blip_connection_options_new();
    for (int32_t limit = BLIP_LIMIT_INCOMING_FRAME; limit <= BLIP_LIMIT_RESPONSES; limit++) {
        CHECK_STATUS(blip_connection_options_set_limit(options, limit, 0), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(
            blip_connection_options_set_limit(options, limit, (UINT64_C(1) << 40) + 1), BLIP_ERROR_ARGUMENT);
        CHECK_STATUS(blip_connection_options_set_limit(options, limit, UINT64_MAX), BLIP_ERROR_ARGUMENT);
    }
    CHECK_STATUS(blip_connection_options_set_limit(options, BLIP_LIMIT_INCOMING_FRAME, 63), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(
        blip_connection_options_set_limit(options, BLIP_LIMIT_HTTP_HEAD, (1 << 20) + 1), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_ping(options, 1000, 0), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_connection_options_set_ping(options, 0, 0));
    blip_connection_options_release(options);
}

TEST(a_connect_timeout_of_zero_fails_at_once)
{
    int descriptor;
    char url[64];
    blip_connection *connection = NULL;
    blip_runtime *runtime = make_runtime(1);
    blip_connection_options *options = blip_connection_options_new();
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    CHECK_OK(blip_connection_options_set_connect_timeout(options, 0));
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    int64_t start = now_ms();
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_TIMEOUT);
    CHECK_AT_MOST(now_ms() - start, 1000);
    blip_connection_release(connection);
    blip_connection_options_release(options);
    drop_runtime(runtime);
    close(descriptor);
}

TEST(a_request_on_a_connection_that_nobody_connects_times_out)
{
    blip_runtime *runtime = make_runtime(1);
    blip_connection *connection = NULL;
    blip_message *request = make_request("x", NULL), *response = NULL;
    REQUIRE_OK(blip_connection_new(runtime, S("ws://127.0.0.1:9/"), NULL, &connection));
    CHECK_STATUS(blip_connection_request(connection, request, 100, &response), BLIP_ERROR_TIMEOUT);
    blip_message_release(request);
    blip_connection_release(connection);
    drop_runtime(runtime);
}
