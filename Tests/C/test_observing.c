/* What helps to look into things: frames as they pass, trace context, errors with details, requests in one call. */

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    struct counter in, out, released;
    uint32_t types[8];
    uint64_t bytes, last_number;
    uint32_t last_flags;
    bool wrong;
};

static void look(
    blip_connection *connection, bool outgoing, uint64_t number, uint32_t type, uint32_t flags, blip_slice frame,
    void *context)
{
    struct seen *seen = context;
    int32_t state = 0;
    CHECK_OK(blip_connection_state(connection, &state));
    if (type < 8)
        seen->types[type]++;
    /* Frames of version 3 begin with number and flags, each of one byte for small ones. */
    const uint8_t *bytes = frame.data;
    seen->wrong |= frame.size < 2 || (number < 128 && (bytes[0] != number || (bytes[1] & 0x7F) != ((type | flags) & 0x7F)));
    seen->bytes += frame.size;
    seen->last_number = number;
    seen->last_flags = flags;
    counter_add(outgoing ? &seen->out : &seen->in, 1);
}

static void init_seen(struct seen *seen)
{
    memset(seen, 0, sizeof *seen);
    counter_init(&seen->in);
    counter_init(&seen->out);
    counter_init(&seen->released);
}

static void release_seen(void *context) { counter_add(&((struct seen *)context)->released, 1); }

TEST(each_frame_is_seen)
{
    struct pair pair;
    struct seen seen, server;
    struct outcome outcome;
    init_seen(&seen);
    init_seen(&server);
    struct pair_options with = {.no_client = true};
    pair_open(&pair, &with);
    REQUIRE_OK(blip_listener_set_frame_callback(pair.listener, look, &server, release_seen));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &pair.client));
    REQUIRE_OK(blip_connection_set_frame_callback(pair.client, look, &seen, release_seen));
    REQUIRE_OK(blip_connection_wait_open(pair.client, SOON));
    CHECK_OK(send_request(pair.client, "echo", "hello", &outcome));
    CHECK(outcome_wait(&outcome));
    REQUIRE_REACHES(&seen.in, 1);
    CHECK_INT(counter_get(&seen.out), 1);
    CHECK_INT(seen.types[0], 1);
    CHECK_INT(seen.types[1], 1);
    CHECK_INT(seen.last_number, 1);
    CHECK(!seen.wrong);
    CHECK_INT(counter_get(&server.in), 1);
    CHECK_INT(counter_get(&server.out), 1);
    /* A large body has acknowledgements. */
    char *body = calloc(1, 1000001);
    memset(body, 'a', 1000000);
    CHECK_OK(send_request(pair.client, "sink", body, &outcome));
    CHECK(outcome_wait(&outcome));
    free(body);
    CHECK_AT_LEAST(seen.types[4], 5);
    CHECK_AT_LEAST((int64_t)seen.bytes, 1000000);
    CHECK(!seen.wrong);
    /* Taken away. */
    CHECK_OK(blip_connection_set_frame_callback(pair.client, NULL, NULL, NULL));
    REQUIRE_REACHES(&seen.released, 1);
    int64_t in = counter_get(&seen.in);
    CHECK_OK(send_request(pair.client, "error", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(counter_get(&seen.in), in);
    CHECK_AT_LEAST(server.types[2], 1);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    blip_connection_release(pair.client);
    pair.client = NULL;
    CHECK_OK(blip_listener_set_frame_callback(pair.listener, NULL, NULL, NULL));
    pair_close(&pair);
    REQUIRE_REACHES(&server.released, 1);
}

/* ---- trace context ---- */

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

TEST(trace_context_is_checked)
{
    static const char *const bad_parents[] = {
        "", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-", PARENT "x",
        "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x"};
    static const char *const good_parents[] = {
        PARENT, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes-later"};
    static const char *const bad_states[] = {
        "novalue", "=x", "a=", "A=x", "a=b=c", "a=x,a=y", "a=\t", "a=\x7f", "@x=1", "a b=1", "a= "};
    static const char *const good_states[] = {
        "a=1", "a=1,b=2", "a=1 , b=2\t,,c=3", "0tenant@system=x y", "a_-*/@z=!~", " a= x"};
    blip_message *message = make_request("x", NULL);
    blip_slice parent, state;
    CHECK_STATUS(blip_message_trace_context(message, &parent, &state), BLIP_ERROR_NOT_FOUND);
    for (size_t i = 0; i < sizeof bad_parents / sizeof *bad_parents; i++)
        if (!CHECK_STATUS(blip_message_set_trace_context(message, S(bad_parents[i]), S("")), BLIP_ERROR_ARGUMENT))
            test_note("%s", bad_parents[i]);
    for (size_t i = 0; i < sizeof bad_states / sizeof *bad_states; i++)
        if (!CHECK_STATUS(blip_message_set_trace_context(message, S(PARENT), S(bad_states[i])), BLIP_ERROR_ARGUMENT))
            test_note("%s", bad_states[i]);
    CHECK_STATUS(blip_message_trace_context(message, &parent, &state), BLIP_ERROR_NOT_FOUND);
    for (size_t i = 0; i < sizeof good_parents / sizeof *good_parents; i++) {
        if (!CHECK_OK(blip_message_set_trace_context(message, S(good_parents[i]), S("a=1"))))
            test_note("%s", good_parents[i]);
        CHECK_OK(blip_message_trace_context(message, &parent, &state));
        CHECK_TEXT(parent, good_parents[i]);
        CHECK_TEXT(state, "a=1");
    }
    for (size_t i = 0; i < sizeof good_states / sizeof *good_states; i++)
        if (!CHECK_OK(blip_message_set_trace_context(message, S(PARENT), S(good_states[i]))))
            test_note("%s", good_states[i]);
    /* At most 32 members, keys and values of 256 characters. */
    char many[4096], *end = many;
    for (int i = 0; i < 32; i++)
        end += sprintf(end, "%sk%d=v", i == 0 ? "" : ",", i);
    CHECK_OK(blip_message_set_trace_context(message, S(PARENT), S(many)));
    strcpy(end, ",k=v");
    CHECK_STATUS(blip_message_set_trace_context(message, S(PARENT), S(many)), BLIP_ERROR_ARGUMENT);
    snprintf(many, sizeof many, "%0256d=%0256d", 0, 0);
    CHECK_OK(blip_message_set_trace_context(message, S(PARENT), S(many)));
    snprintf(many, sizeof many, "%0257d=%0256d", 0, 0);
    CHECK_STATUS(blip_message_set_trace_context(message, S(PARENT), S(many)), BLIP_ERROR_ARGUMENT);
    snprintf(many, sizeof many, "%0256d=%0257d", 0, 0);
    CHECK_STATUS(blip_message_set_trace_context(message, S(PARENT), S(many)), BLIP_ERROR_ARGUMENT);
    /* An empty state removes the one that was there. */
    CHECK_OK(blip_message_set_trace_context(message, S(PARENT), S("")));
    CHECK_STATUS(blip_message_property(message, S("tracestate"), &state), BLIP_ERROR_NOT_FOUND);
    /* Of what a peer made up, a bad state is left out and a bad parent is none. */
    CHECK_OK(blip_message_set_property(message, S("tracestate"), S("A=1")));
    CHECK_OK(blip_message_trace_context(message, &parent, &state));
    CHECK_INT(state.size, 0);
    CHECK_OK(blip_message_set_property(message, S("traceparent"), S("garbage")));
    CHECK_STATUS(blip_message_trace_context(message, &parent, &state), BLIP_ERROR_NOT_FOUND);
    blip_message_release(message);
}

TEST(a_trace_goes_on_from_request_to_request)
{
    blip_message *first = make_request("x", NULL), *second = make_request("y", NULL);
    blip_slice parent, state, child;
    char text[64], before[64];
    CHECK_STATUS(blip_message_continue_trace(second, first), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_message_set_trace_context(first, S("cc" "-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-f5-later"),
        S("a=1,b=2")));
    CHECK_OK(blip_message_continue_trace(second, first));
    CHECK_OK(blip_message_trace_context(second, &child, &state));
    CHECK_TEXT(state, "a=1,b=2");
    REQUIRE_INT(child.size, 55);
    /* The trace's id and the known flags stay, the version is ours, the parent is new. */
    CHECK(memcmp(child.data, "00-4bf92f3577b34da6a3ce929d0e0e4736-", 36) == 0);
    CHECK(memcmp((const char *)child.data + 36, "00f067aa0ba902b7", 16) != 0);
    CHECK(memcmp((const char *)child.data + 52, "-01", 3) == 0);
    memcpy(before, child.data, 55);
    CHECK_OK(blip_message_continue_trace(second, first));
    CHECK_OK(blip_message_trace_context(second, &child, &state));
    CHECK(memcmp(before, child.data, 55) != 0);
    /* From itself. */
    CHECK_OK(blip_message_continue_trace(second, second));
    CHECK_OK(blip_message_trace_context(second, &child, &state));
    CHECK_TEXT(state, "a=1,b=2");
    CHECK(memcmp(child.data, "00-4bf92f3577b34da6a3ce929d0e0e4736-", 36) == 0);
    /* A new one. */
    CHECK_OK(blip_message_begin_trace(second, true));
    CHECK_OK(blip_message_trace_context(second, &parent, &state));
    CHECK_INT(state.size, 0);
    REQUIRE_INT(parent.size, 55);
    memcpy(text, parent.data, 55);
    CHECK(memcmp(text + 52, "-03", 3) == 0);
    CHECK_OK(blip_message_begin_trace(second, false));
    CHECK_OK(blip_message_trace_context(second, &parent, &state));
    CHECK(memcmp(text, parent.data, 36) != 0);
    CHECK(memcmp((const char *)parent.data + 52, "-02", 3) == 0);
    blip_message_release(first);
    blip_message_release(second);
}

/* A handler that passes the trace on to a request of its own. */
static blip_status pass_on(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *next = make_request("echo", NULL);
    blip_slice parent, state;
    (void)connection, (void)context;
    CHECK_OK(blip_message_continue_trace(next, request));
    CHECK_OK(blip_message_trace_context(next, &parent, &state));
    CHECK_OK(blip_message_respond_data(request, parent, S("text/plain")));
    blip_message_release(next);
    return BLIP_OK;
}

TEST(a_trace_crosses_the_wire)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("pass"), 0, pass_on, NULL, NULL));
    blip_message *request = make_request("pass", NULL);
    CHECK_OK(blip_message_set_trace_context(request, S(PARENT), S("a=1")));
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.size, 55);
    CHECK(memcmp(outcome.text, PARENT, 36) == 0);
    CHECK(memcmp(outcome.text, PARENT, 55) != 0);
    CHECK_STATUS(blip_message_begin_trace(request, true), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_trace_context(request, S(PARENT), S("")), BLIP_ERROR_IMMUTABLE);
    blip_message_release(request);
    pair_close(&pair);
}

/* ---- errors with details ---- */

static blip_status fail_in_detail(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *response = NULL;
    (void)connection, (void)context;
    REQUIRE_OK(blip_response_new(request, &response));
    CHECK_STATUS(blip_response_set_error(response, S("X"), 0, S("")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_response_set_error(request, S("X"), 1, S("")), BLIP_ERROR_IMMUTABLE);
    CHECK_OK(blip_message_set_property(response, S("retry-after"), S("30")));
    CHECK_OK(blip_response_set_error(response, S("Disk"), 1, S("first")));
    CHECK_OK(blip_response_set_error(response, S("Disk"), -28, S("no space left")));
    CHECK_OK(blip_message_set_property(response, S("device"), S("sda")));
    int32_t type = -1;
    CHECK_OK(blip_message_type(response, &type));
    CHECK_INT(type, BLIP_MESSAGE_ERROR);
    CHECK_OK(blip_message_respond(request, response));
    CHECK_STATUS(blip_response_set_error(response, S("X"), 1, S("")), BLIP_ERROR_IMMUTABLE);
    blip_message_release(response);
    return BLIP_OK;
}

TEST(an_error_of_any_domain_has_details)
{
    struct pair pair;
    blip_message *request, *response = NULL;
    blip_error *error = NULL;
    blip_slice text;
    int64_t code = 0;
    pair_open(&pair, NULL);
    REQUIRE_OK(blip_connection_set_handler(pair.accepted, S("detail"), 0, fail_in_detail, NULL, NULL));
    request = make_request("detail", NULL);
    CHECK_STATUS(blip_response_set_error(request, S("X"), 1, S("")), BLIP_ERROR_ARGUMENT);
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    REQUIRE_OK(blip_message_error(response, &error));
    CHECK_OK(blip_error_domain(error, &text));
    CHECK_TEXT(text, "Disk");
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, -28);
    CHECK_OK(blip_error_message(error, &text));
    CHECK_TEXT(text, "no space left");
    CHECK_OK(blip_message_property(response, S("retry-after"), &text));
    CHECK_TEXT(text, "30");
    CHECK_OK(blip_message_property(response, S("device"), &text));
    CHECK_TEXT(text, "sda");
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

/* ---- a request in one call ---- */

TEST(a_request_is_sent_in_one_call)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    outcome_init(&outcome);
    REQUIRE_OK(blip_connection_send_data(
        pair.client, S("echo"), S("hello"), BLIP_FLAG_COMPRESSED, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, "hello") == 0);
    struct counter released = COUNTER;
    REQUIRE_OK(blip_connection_send_data(
        pair.client, S(""), S(""), BLIP_FLAG_NO_REPLY, NULL, &released, count_release));
    REQUIRE_REACHES(&released, 1);
    /* What is refused releases its context at once. */
    CHECK_STATUS(
        blip_connection_send_data(pair.client, S("x"), S(""), 1, NULL, &released, count_release),
        BLIP_ERROR_ARGUMENT);
    CHECK_INT(counter_get(&released), 2);
    CHECK_STATUS(
        blip_connection_send_data(pair.client, S("\xff"), S(""), 0, NULL, &released, count_release),
        BLIP_ERROR_TEXT);
    CHECK_INT(counter_get(&released), 3);
    blip_connection_close(pair.client, 1000, S(""));
    CHECK_STATUS(
        blip_connection_send_data(pair.client, S("x"), S(""), 0, NULL, &released, count_release),
        BLIP_ERROR_CLOSED);
    CHECK_INT(counter_get(&released), 4);
    pair_close(&pair);
}
