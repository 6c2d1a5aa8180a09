/* All the forms of an answer, and what the library answers when nobody does. */

#include "support.h"

#include <stdio.h>
#include <string.h>

/* What a response was like. */
struct answer {
    struct counter done;
    blip_status status;
    int32_t type;
    uint32_t flags;
    char body[256], content_type[64], domain[64], message[256];
    int64_t code;
};

static void copy_text(char *to, size_t size, blip_slice text)
{
    size_t count = text.size < size - 1 ? text.size : size - 1;
    if (count > 0)
        memcpy(to, text.data, count);
    to[count] = 0;
}

static void answered(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct answer *answer = context;
    blip_slice slice;
    blip_error *error = NULL;
    (void)connection;
    (void)request;
    answer->status = status;
    if (status == BLIP_OK) {
        CHECK_OK(blip_message_type(response, &answer->type));
        CHECK_OK(blip_message_flags(response, &answer->flags));
        CHECK_OK(blip_message_body(response, &slice));
        copy_text(answer->body, sizeof answer->body, slice);
        CHECK_OK(blip_message_content_type(response, &slice));
        copy_text(answer->content_type, sizeof answer->content_type, slice);
        if (answer->type == BLIP_MESSAGE_ERROR) {
            CHECK_OK(blip_message_error(response, &error));
            CHECK_OK(blip_error_domain(error, &slice));
            copy_text(answer->domain, sizeof answer->domain, slice);
            CHECK_OK(blip_error_code(error, &answer->code));
            CHECK_OK(blip_error_message(error, &slice));
            copy_text(answer->message, sizeof answer->message, slice);
        } else {
            CHECK(blip_message_error(response, &error) < 0);
        }
    }
    counter_add(&answer->done, 1);
}

/* Sends a request to the profile, which fn answers, and waits for the response. */
static void ask(struct pair *pair, blip_request_fn fn, void *context, uint32_t flags, struct answer *answer)
{
    memset(answer, 0, sizeof *answer);
    counter_init(&answer->done);
    answer->type = -1;
    if (fn != NULL)
        CHECK_OK(blip_connection_set_handler(pair->accepted, S("ask"), 0, fn, context, NULL));
    blip_message *request = make_request("ask", "question");
    CHECK_OK(blip_message_set_flags(request, flags));
    CHECK_OK(blip_connection_send(pair->client, request, answered, answer, NULL));
    blip_message_release(request);
    REQUIRE(counter_wait(&answer->done, 1, SOON));
    CHECK_STATUS(answer->status, BLIP_OK);
}

static blip_status with_object(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *response = NULL;
    bool replied = true;
    int32_t type = -1;
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_is_responded(request, &replied));
    CHECK(!replied);
    CHECK_OK(blip_response_new(request, &response));
    CHECK_OK(blip_message_type(response, &type));
    CHECK_INT(type, BLIP_MESSAGE_RESPONSE);
    CHECK_OK(blip_message_set_property(response, S("Content-Type"), S("x/y")));
    CHECK_OK(blip_message_set_body(response, S("from an ")));
    CHECK_OK(blip_message_append_body(response, S("object")));
    CHECK_OK(blip_message_respond(request, response));
    CHECK_OK(blip_message_is_responded(request, &replied));
    CHECK(replied);
    CHECK_STATUS(blip_message_set_body(response, S("late")), BLIP_ERROR_IMMUTABLE);
    blip_message_release(response);
    return BLIP_OK;
}

static blip_status with_data(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_data(request, S("data"), S("application/x-test"));
}

static blip_status with_text(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_text(request, S("text"));
}

static blip_status with_json(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_json(request, S("{\"a\":[1,2]}"));
}

static blip_status with_empty(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_empty(request);
}

static blip_status with_error(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_error(request, S("HTTP"), 403, S("not yours"));
}

static blip_status with_blip_error(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_error(request, S(""), 416, S(""));
}

static blip_status with_nothing(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_OK;
}

static blip_status with_failure(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_ERROR_LIMIT;
}

static blip_status with_answer_and_failure(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_respond_text(request, S("answered")));
    return BLIP_ERROR_STATE;
}

TEST(all_forms_of_an_answer)
{
    struct pair pair;
    struct answer answer;
    pair_open(&pair, NULL);
    ask(&pair, with_object, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_RESPONSE);
    CHECK_TEXT(S(answer.body), "from an object");
    CHECK_TEXT(S(answer.content_type), "x/y");
    ask(&pair, with_data, NULL, 0, &answer);
    CHECK_TEXT(S(answer.body), "data");
    CHECK_TEXT(S(answer.content_type), "application/x-test");
    ask(&pair, with_text, NULL, 0, &answer);
    CHECK_TEXT(S(answer.body), "text");
    CHECK_TEXT(S(answer.content_type), "text/plain; charset=UTF-8");
    ask(&pair, with_json, NULL, 0, &answer);
    CHECK_TEXT(S(answer.body), "{\"a\":[1,2]}");
    CHECK_TEXT(S(answer.content_type), "application/json");
    ask(&pair, with_empty, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_RESPONSE);
    CHECK_TEXT(S(answer.body), "");
    ask(&pair, with_error, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_ERROR);
    CHECK_TEXT(S(answer.domain), "HTTP");
    CHECK_INT(answer.code, 403);
    CHECK_TEXT(S(answer.message), "not yours");
    ask(&pair, with_blip_error, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_ERROR);
    CHECK_TEXT(S(answer.domain), "BLIP");
    CHECK_INT(answer.code, 416);
    pair_close(&pair);
}

TEST(what_the_library_answers)
{
    struct pair pair;
    struct answer answer;
    pair_open(&pair, NULL);
    ask(&pair, with_nothing, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_RESPONSE);
    CHECK_TEXT(S(answer.body), "");
    ask(&pair, with_failure, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_ERROR);
    CHECK_TEXT(S(answer.domain), "BLIP");
    CHECK_INT(answer.code, 501);
    ask(&pair, with_answer_and_failure, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_RESPONSE);
    CHECK_TEXT(S(answer.body), "answered");
    CHECK_OK(blip_connection_remove_handler(pair.accepted, S("ask")));
    ask(&pair, NULL, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_ERROR);
    CHECK_TEXT(S(answer.domain), "BLIP");
    CHECK_INT(answer.code, 404);
    CHECK_TEXT(S(answer.message), "No handler for BLIP request");
    CHECK_STATUS(blip_connection_remove_handler(pair.accepted, S("ask")), BLIP_ERROR_NOT_FOUND);
    pair_close(&pair);
}

TEST(urgency_is_inherited_and_no_flag_else)
{
    struct pair pair;
    struct answer answer;
    pair_open(&pair, NULL);
    ask(&pair, with_text, NULL, BLIP_FLAG_URGENT, &answer);
    CHECK_INT(answer.flags, BLIP_FLAG_URGENT);
    ask(&pair, with_object, NULL, BLIP_FLAG_URGENT, &answer);
    CHECK_INT(answer.flags, BLIP_FLAG_URGENT);
    ask(&pair, with_error, NULL, BLIP_FLAG_URGENT, &answer);
    CHECK_INT(answer.flags & BLIP_FLAG_URGENT, BLIP_FLAG_URGENT);
    ask(&pair, with_text, NULL, BLIP_FLAG_COMPRESSED, &answer);
    CHECK_INT(answer.flags, 0);
    pair_close(&pair);
}

static blip_status default_handler(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice profile;
    (void)connection;
    CHECK_OK(blip_message_profile(request, &profile));
    counter_add(context, 1);
    return blip_message_respond_data(request, profile, S(""));
}

TEST(the_default_handler_takes_what_has_no_other)
{
    struct pair pair;
    struct outcome outcome;
    struct counter calls = COUNTER;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_default_handler(pair.accepted, 0, default_handler, &calls, NULL));
    CHECK_OK(send_request(pair.client, "whatever", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "whatever") == 0);
    CHECK_OK(send_request(pair.client, "", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.size, 0);
    CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
    CHECK_INT(counter_get(&calls), 2);
    CHECK_OK(send_request(pair.client, "echo", "has its own", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(counter_get(&calls), 2);
    CHECK_OK(blip_connection_set_default_handler(pair.accepted, 0, NULL, NULL, NULL));
    CHECK_OK(send_request(pair.client, "whatever", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_INT(outcome.error_code, 404);
    pair_close(&pair);
}

TEST(a_handler_of_the_connection_goes_before_the_listeners)
{
    struct pair pair;
    struct answer answer;
    blip_connection *later = NULL;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_listener_set_handler(pair.listener, S("ask"), 0, with_data, NULL, NULL));
    ask(&pair, with_text, NULL, 0, &answer);
    CHECK_TEXT(S(answer.body), "text");
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &later));
    REQUIRE_OK(blip_connection_wait_open(later, SOON));
    CHECK_OK(send_request(later, "ask", "", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_TEXT(S(outcome.text), "data");
    blip_connection_close(later, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(later, SOON));
    blip_connection_release(later);
    pair_close(&pair);
}

/* ---- twice ---- */

static blip_status twice(blip_connection *connection, blip_message *request, void *context)
{
    struct counter *calls = context;
    blip_message *response = NULL;
    (void)connection;
    CHECK_OK(blip_message_respond_text(request, S("first")));
    CHECK_STATUS(blip_message_respond_text(request, S("second")), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_STATUS(blip_message_respond_json(request, S("2")), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_STATUS(blip_message_respond_data(request, S("second"), S("")), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_STATUS(blip_message_respond_empty(request), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_STATUS(blip_message_respond_error(request, S(""), 400, S("second")), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_STATUS(blip_message_defer(request), BLIP_ERROR_ALREADY_RESPONDED);
    blip_status status = blip_response_new(request, &response);
    CHECK(status == BLIP_OK || status == BLIP_ERROR_ALREADY_RESPONDED);
    if (status == BLIP_OK) {
        bool is_mutable = false;
        CHECK_STATUS(blip_message_respond(request, response), BLIP_ERROR_ALREADY_RESPONDED);
        CHECK_OK(blip_message_is_mutable(response, &is_mutable));
        CHECK(is_mutable);
        blip_message_release(response);
    }
    counter_add(calls, 1);
    return BLIP_OK;
}

TEST(only_the_first_answer_counts)
{
    struct pair pair;
    struct answer answer;
    struct counter calls = COUNTER;
    pair_open(&pair, NULL);
    ask(&pair, twice, &calls, 0, &answer);
    CHECK_TEXT(S(answer.body), "first");
    CHECK_INT(counter_get(&calls), 1);
    pair_close(&pair);
}

static blip_status no_reply_wanted(blip_connection *connection, blip_message *request, void *context)
{
    struct counter *calls = context;
    blip_message *response = NULL;
    uint32_t flags = 0;
    (void)connection;
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, BLIP_FLAG_NO_REPLY);
    CHECK_STATUS(blip_message_respond_text(request, S("x")), BLIP_ERROR_NO_REPLY);
    CHECK_STATUS(blip_message_respond_error(request, S(""), 400, S("x")), BLIP_ERROR_NO_REPLY);
    CHECK_STATUS(blip_response_new(request, &response), BLIP_ERROR_NO_REPLY);
    CHECK_POINTER(response, NULL);
    counter_add(calls, 1);
    return BLIP_OK;
}

TEST(a_request_without_reply_cannot_be_answered)
{
    struct pair pair;
    struct counter calls = COUNTER;
    struct outcome barrier;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("ask"), 0, no_reply_wanted, &calls, NULL));
    blip_message *request = make_request("ask", "x");
    CHECK_OK(blip_message_set_no_reply(request, true));
    CHECK_OK(blip_connection_send(pair.client, request, NULL, NULL, NULL));
    blip_message_release(request);
    CHECK(counter_wait(&calls, 1, SOON));
    /* Nor is a missing or failing handler told. */
    static const char *const profiles[] = {"nobody", "fail"};
    for (int i = 0; i < 2; i++) {
        request = make_request(profiles[i], "x");
        CHECK_OK(blip_message_set_no_reply(request, true));
        CHECK_OK(blip_connection_send(pair.client, request, NULL, NULL, NULL));
        blip_message_release(request);
    }
    CHECK_OK(send_request(pair.client, "echo", "x", &barrier));
    CHECK(outcome_wait(&barrier));
    static const int32_t received = BLIP_COUNTER_MESSAGES_RECEIVED;
    uint64_t count = 0;
    sleep_ms(50);
    CHECK_OK(blip_connection_counter_values(pair.client, &received, &count, 1));
    CHECK_INT(count, 1);
    pair_close(&pair);
}

TEST(only_incoming_requests_can_be_answered)
{
    struct pair pair;
    blip_message *request = make_request("echo", "x"), *response = NULL, *other = NULL;
    pair_open(&pair, NULL);
    CHECK(blip_message_respond_text(request, S("x")) < 0);
    CHECK(blip_response_new(request, &other) < 0);
    CHECK(blip_message_defer(request) < 0);
    CHECK_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK(blip_message_respond_text(request, S("x")) < 0);
    CHECK(blip_message_respond_text(response, S("x")) < 0);
    CHECK(blip_message_respond(request, response) < 0);
    CHECK(blip_message_defer(response) < 0);
    CHECK_POINTER(other, NULL);
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

/* A response belongs to its request. */
static blip_status crossed(blip_connection *connection, blip_message *request, void *context)
{
    blip_message **kept = context;
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    if (*kept == NULL) {
        *kept = blip_message_retain(request);
        return BLIP_OK;
    }
    blip_message *response = NULL;
    CHECK_OK(blip_response_new(*kept, &response));
    CHECK_OK(blip_message_set_body(response, S("for the first")));
    CHECK_STATUS(blip_message_respond(request, response), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_message_respond(*kept, response));
    CHECK_OK(blip_message_respond_text(request, S("for the second")));
    blip_message_release(response);
    blip_message_release(*kept);
    return BLIP_OK;
}

TEST(a_response_belongs_to_its_request)
{
    struct pair pair;
    blip_message *kept = NULL;
    struct outcome first, second;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("crossed"), 0, crossed, &kept, NULL));
    CHECK_OK(send_request(pair.client, "crossed", "", &first));
    CHECK_OK(send_request(pair.client, "crossed", "", &second));
    CHECK(outcome_wait(&first));
    CHECK(outcome_wait(&second));
    CHECK(strcmp(first.text, "for the first") == 0);
    CHECK(strcmp(second.text, "for the second") == 0);
    pair_close(&pair);
}

/* ---- later ---- */

struct later {
    struct counter arrived;
    blip_message *requests[10];
};

static blip_status keep(blip_connection *connection, blip_message *request, void *context)
{
    struct later *later = context;
    (void)connection;
    CHECK_OK(blip_message_defer(request));
    later->requests[counter_get(&later->arrived) % 10] = blip_message_retain(request);
    counter_add(&later->arrived, 1);
    return BLIP_OK;
}

TEST(deferred_requests_are_answered_from_any_thread_in_any_order)
{
    struct pair pair;
    struct later later = {COUNTER, {NULL}};
    struct outcome outcomes[10];
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("keep"), 0, keep, &later, NULL));
    for (int i = 0; i < 10; i++)
        CHECK_OK(send_request(pair.client, "keep", "", &outcomes[i]));
    CHECK(counter_wait(&later.arrived, 10, SOON));
    for (int i = 9; i >= 0; i--) {
        char text[16];
        snprintf(text, sizeof text, "answer %d", i);
        CHECK_INT(counter_get(&outcomes[i].done), 0);
        CHECK_OK(blip_message_respond_text(later.requests[i], S(text)));
        CHECK(outcome_wait(&outcomes[i]));
        CHECK(strcmp(outcomes[i].text, text) == 0);
        blip_message_release(later.requests[i]);
    }
    pair_close(&pair);
}

TEST(a_dropped_deferred_request_is_answered_501)
{
    struct pair pair;
    struct later later = {COUNTER, {NULL}};
    struct outcome kept;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("keep"), 0, keep, &later, NULL));
    CHECK_OK(send_request(pair.client, "keep", "", &kept));
    CHECK(counter_wait(&later.arrived, 1, SOON));
    sleep_ms(20);
    CHECK_INT(counter_get(&kept.done), 0);
    blip_message_release(later.requests[0]);
    CHECK(outcome_wait(&kept));
    CHECK_STATUS(kept.status, BLIP_OK);
    CHECK_INT(kept.type, BLIP_MESSAGE_ERROR);
    CHECK(strcmp(kept.error_domain, "BLIP") == 0);
    CHECK_INT(kept.error_code, 501);
    pair_close(&pair);
}

static blip_status defer_without_keeping(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_defer(request));
    return BLIP_OK;
}

TEST(deferring_without_keeping_is_dropping)
{
    struct pair pair;
    struct answer answer;
    pair_open(&pair, NULL);
    ask(&pair, defer_without_keeping, NULL, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_ERROR);
    CHECK_INT(answer.code, 501);
    pair_close(&pair);
}

static blip_status retain_without_deferring(blip_connection *connection, blip_message *request, void *context)
{
    blip_message **kept = context;
    (void)connection;
    *kept = blip_message_retain(request);
    return BLIP_OK;
}

TEST(keeping_without_deferring_gets_the_default_answer)
{
    struct pair pair;
    struct answer answer;
    blip_message *kept = NULL;
    blip_slice body;
    pair_open(&pair, NULL);
    ask(&pair, retain_without_deferring, &kept, 0, &answer);
    CHECK_INT(answer.type, BLIP_MESSAGE_RESPONSE);
    CHECK_TEXT(S(answer.body), "");
    CHECK_STATUS(blip_message_respond_text(kept, S("late")), BLIP_ERROR_ALREADY_RESPONDED);
    CHECK_OK(blip_message_body(kept, &body));
    CHECK_TEXT(body, "question");
    blip_message_release(kept);
    pair_close(&pair);
}

TEST(answering_after_the_connection_has_gone)
{
    struct pair pair;
    struct later later = {COUNTER, {NULL}};
    struct outcome outcome;
    blip_message *response = NULL;
    bool is_mutable = false;
    blip_slice body;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("keep"), 0, keep, &later, NULL));
    CHECK_OK(send_request(pair.client, "keep", "", &outcome));
    CHECK(counter_wait(&later.arrived, 1, SOON));
    CHECK_OK(blip_response_new(later.requests[0], &response));
    CHECK_OK(blip_message_set_body(response, S("too late")));
    blip_connection_close(pair.client, 1000, S(""));
    CHECK(counter_wait(&pair.server_closed, 1, SOON));
    CHECK(blip_message_respond(later.requests[0], response) < 0);
    CHECK_OK(blip_message_is_mutable(response, &is_mutable));
    CHECK(is_mutable);
    CHECK_OK(blip_message_body(response, &body));
    CHECK_TEXT(body, "too late");
    CHECK(blip_message_respond_text(later.requests[0], S("x")) < 0);
    blip_message_release(response);
    blip_message_release(later.requests[0]);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_CLOSED);
    pair_close(&pair);
}

/* ---- properties of responses and forwarding ---- */

static blip_status with_properties(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *response = NULL;
    (void)connection;
    (void)context;
    CHECK_OK(blip_response_new(request, &response));
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        CHECK_OK(blip_message_set_property(response, S(key), S("v\xc3\xa4lue")));
    }
    blip_status status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

TEST(responses_carry_properties)
{
    struct pair pair;
    size_t count = 0;
    blip_slice value;
    blip_message *request = make_request("ask", NULL), *response = NULL;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("ask"), 0, with_properties, NULL, NULL));
    REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
    CHECK_OK(blip_message_property_count(response, &count));
    CHECK_INT(count, 50);
    CHECK_OK(blip_message_property(response, S("k49"), &value));
    CHECK_TEXT(value, "v\xc3\xa4lue");
    blip_message_release(request);
    blip_message_release(response);
    pair_close(&pair);
}

static void forward_answer(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    blip_message *asked = context;
    blip_slice body;
    (void)connection;
    (void)request;
    CHECK_OK(status);
    CHECK_OK(blip_message_body(response, &body));
    CHECK_OK(blip_message_respond_data(asked, body, S("")));
}

static void release_message(void *context)
{
    blip_message_release(context);
}

/* An incoming request is copied and sent back where it came from. */
static blip_status forward(blip_connection *connection, blip_message *request, void *context)
{
    blip_message *copy = NULL;
    (void)context;
    CHECK_OK(blip_message_copy(request, &copy));
    CHECK_OK(blip_message_set_profile(copy, S("final")));
    CHECK_OK(blip_message_defer(request));
    blip_status status =
        blip_connection_send(connection, copy, forward_answer, blip_message_retain(request), release_message);
    blip_message_release(copy);
    return status;
}

static blip_status at_last(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body, value;
    char text[64];
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_body(request, &body));
    CHECK_OK(blip_message_property(request, S("k"), &value));
    CHECK_TEXT(value, "v");
    snprintf(text, sizeof text, "got %.*s", (int)body.size, (const char *)body.data);
    return blip_message_respond_text(request, S(text));
}

TEST(a_request_is_forwarded)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("forward"), 0, forward, NULL, NULL));
    CHECK_OK(blip_connection_set_handler(pair.client, S("final"), 0, at_last, NULL, NULL));
    blip_message *request = make_request("forward", "cargo");
    CHECK_OK(blip_message_set_property(request, S("k"), S("v")));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    blip_message_release(request);
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "got cargo") == 0);
    pair_close(&pair);
}
