/* Messages before they are sent: properties, flags, bodies, copies, descriptions, freezing. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(a_new_request_is_empty_mutable_and_ours)
{
    blip_message *request = NULL;
    int32_t type = -1;
    uint64_t number = 99, size = 99;
    bool flag = false;
    uint32_t flags = 99;
    size_t count = 99;
    blip_slice slice;
    blip_connection *connection = NULL;
    REQUIRE_OK(blip_request_new(S(""), &request));
    CHECK_OK(blip_message_type(request, &type));
    CHECK_INT(type, BLIP_MESSAGE_REQUEST);
    CHECK_OK(blip_message_number(request, &number));
    CHECK_INT(number, 0);
    CHECK_OK(blip_message_is_mine(request, &flag));
    CHECK(flag);
    CHECK_OK(blip_message_is_mutable(request, &flag));
    CHECK(flag);
    CHECK_OK(blip_message_is_sent(request, &flag));
    CHECK(!flag);
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, 0);
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 0);
    CHECK_OK(blip_message_profile(request, &slice));
    CHECK_INT(slice.size, 0);
    CHECK_OK(blip_message_content_type(request, &slice));
    CHECK_INT(slice.size, 0);
    CHECK_OK(blip_message_body(request, &slice));
    CHECK_INT(slice.size, 0);
    CHECK_OK(blip_message_body_size(request, &size));
    CHECK_INT(size, 0);
    CHECK_OK(blip_message_bytes_sent(request, &size));
    CHECK_INT(size, 0);
    CHECK_STATUS(blip_message_connection(request, &connection), BLIP_ERROR_NOT_FOUND);
    blip_message_release(request);
}

TEST(the_profile_is_a_property)
{
    blip_message *request = make_request("first", NULL);
    blip_slice slice;
    CHECK_OK(blip_message_property(request, S("Profile"), &slice));
    CHECK_TEXT(slice, "first");
    CHECK_OK(blip_message_set_profile(request, S("second")));
    CHECK_OK(blip_message_property(request, S("Profile"), &slice));
    CHECK_TEXT(slice, "second");
    CHECK_OK(blip_message_set_property(request, S("Profile"), S("third")));
    CHECK_OK(blip_message_profile(request, &slice));
    CHECK_TEXT(slice, "third");
    CHECK_OK(blip_message_set_content_type(request, S("text/xml")));
    CHECK_OK(blip_message_property(request, S("Content-Type"), &slice));
    CHECK_TEXT(slice, "text/xml");
    CHECK_OK(blip_message_content_type(request, &slice));
    CHECK_TEXT(slice, "text/xml");
    blip_message_release(request);
}

TEST(properties_keep_their_order)
{
    blip_message *request = make_request("p", NULL);
    size_t count = 0;
    blip_slice key, value;
    CHECK_OK(blip_message_set_property(request, S("b"), S("1")));
    CHECK_OK(blip_message_set_property(request, S("a"), S("2")));
    CHECK_OK(blip_message_set_property(request, S("c"), S("")));
    CHECK_OK(blip_message_set_property(request, S("b"), S("changed to something longer")));
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 4);
    static const char *const expected[][2] = {
        {"Profile", "p"}, {"b", "changed to something longer"}, {"a", "2"}, {"c", ""}};
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(blip_message_property_at(request, i, &key, &value));
        CHECK_TEXT(key, expected[i][0]);
        CHECK_TEXT(value, expected[i][1]);
    }
    CHECK(blip_message_property_at(request, 4, &key, &value) < 0);
    CHECK(blip_message_property_at(request, SIZE_MAX, &key, &value) < 0);
    CHECK_STATUS(blip_message_property(request, S("absent"), &value), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_message_property(request, S("B"), &value), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_message_remove_property(request, S("a")));
    CHECK_STATUS(blip_message_property(request, S("a"), &value), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 3);
    CHECK_OK(blip_message_property(request, S("c"), &value));
    CHECK_TEXT(value, "");
    blip_message_release(request);
}

TEST(properties_take_any_valid_text)
{
    blip_message *request = make_request("p", NULL);
    blip_slice value;
    const char *texts[] = {"", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x9f", "\x01", "\x7f", " spaces ", "a:b\r\nc"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_OK(blip_message_set_property(request, S("key"), S(texts[i])));
        CHECK_OK(blip_message_property(request, S("key"), &value));
        CHECK_TEXT(value, texts[i]);
    }
    blip_message_release(request);
}

TEST(texts_that_are_not_utf8_or_have_a_nul_are_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {{"\xff", 1}, {"\xc3", 1}, {"a\0b", 3}, {"\0", 1}, {"\xed\xa0\x80", 3}, {"\xc0\x80", 2},
        {"\xf5\x80\x80\x80", 4}, {"\xf0\x80\x80\x80", 4}, {"\x80", 1}, {"abc\xe2\x82", 5}};
    blip_message *request = make_request("p", NULL), *other = NULL;
    blip_slice value;
    size_t count = 0;
    CHECK_OK(blip_message_set_property(request, S("key"), S("value")));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        blip_slice text = bytes_slice(bad[i].bytes, bad[i].size);
        CHECK_STATUS(blip_message_set_property(request, S("key"), text), BLIP_ERROR_TEXT);
        CHECK_STATUS(blip_message_set_property(request, text, S("value")), BLIP_ERROR_TEXT);
        CHECK_STATUS(blip_message_set_profile(request, text), BLIP_ERROR_TEXT);
        CHECK_STATUS(blip_message_set_content_type(request, text), BLIP_ERROR_TEXT);
        CHECK_STATUS(blip_request_new(text, &other), BLIP_ERROR_TEXT);
    }
    CHECK_POINTER(other, NULL);
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 2);
    CHECK_OK(blip_message_property(request, S("key"), &value));
    CHECK_TEXT(value, "value");
    /* A body is bytes, not text. */
    CHECK_OK(blip_message_set_body(request, bytes_slice("\xff\0\x80", 3)));
    CHECK_STATUS(blip_message_set_text(request, bytes_slice("\xff", 1)), BLIP_ERROR_TEXT);
    blip_message_release(request);
}

TEST(impossible_slices_are_refused)
{
    blip_message *request = make_request("p", NULL), *other = NULL;
    blip_slice none = bytes_slice(NULL, 5), huge = bytes_slice("x", SIZE_MAX);
    CHECK_STATUS(blip_message_set_body(request, none), BLIP_ERROR_ARGUMENT);
    CHECK(blip_message_set_body(request, huge) < 0);
    CHECK(blip_message_append_body(request, huge) < 0);
    CHECK_STATUS(blip_message_set_property(request, none, S("x")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_message_set_property(request, S("x"), none), BLIP_ERROR_ARGUMENT);
    CHECK(blip_message_set_property(request, S("x"), huge) < 0);
    CHECK_STATUS(blip_request_new(none, &other), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_message_set_body(request, bytes_slice(NULL, 0)));
    blip_message_release(request);
}

TEST(encoded_properties_go_in_and_out)
{
    static const char encoded[] = "Profile\0hello\0k\0v\0empty\0"; /* one more NUL from the literal */
    blip_message *request = make_request("", NULL);
    blip_slice slice;
    size_t count = 0;
    CHECK_OK(blip_message_set_properties(request, bytes_slice(encoded, sizeof encoded)));
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 3);
    CHECK_OK(blip_message_profile(request, &slice));
    CHECK_TEXT(slice, "hello");
    CHECK_OK(blip_message_property(request, S("empty"), &slice));
    CHECK_INT(slice.size, 0);
    CHECK_OK(blip_message_properties(request, &slice));
    test_check_bytes(slice.data, slice.size, encoded, sizeof encoded, __FILE__, __LINE__, "encoded properties");
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {{"key", 3}, {"key\0value", 9}, {"key\0", 4}, {"a\0b\0c\0", 6}, {"\xff\0b\0", 4}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(blip_message_set_properties(request, bytes_slice(bad[i].bytes, bad[i].size)) < 0);
    CHECK_OK(blip_message_properties(request, &slice));
    CHECK_INT(slice.size, sizeof encoded);
    CHECK_OK(blip_message_set_properties(request, S("")));
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 0);
    blip_message_release(request);
}

TEST(many_properties)
{
    blip_message *request = make_request("p", NULL);
    char key[32], text[32];
    blip_slice value;
    size_t count = 0;
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        snprintf(text, sizeof text, "value-%d", i * 3);
        REQUIRE_OK(blip_message_set_property(request, S(key), S(text)));
    }
    CHECK_OK(blip_message_property_count(request, &count));
    CHECK_INT(count, 2001);
    CHECK_OK(blip_message_property(request, S("key-1234"), &value));
    CHECK_TEXT(value, "value-3702");
    blip_message_release(request);
}

TEST(flags_are_set_alone_and_together)
{
    blip_message *request = make_request("p", NULL);
    uint32_t flags = 0;
    CHECK_OK(blip_message_set_compressed(request, true));
    CHECK_OK(blip_message_set_urgent(request, true));
    CHECK_OK(blip_message_set_no_reply(request, true));
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, BLIP_FLAG_COMPRESSED | BLIP_FLAG_URGENT | BLIP_FLAG_NO_REPLY);
    CHECK_OK(blip_message_set_urgent(request, false));
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, BLIP_FLAG_COMPRESSED | BLIP_FLAG_NO_REPLY);
    CHECK_OK(blip_message_set_flags(request, BLIP_FLAG_URGENT));
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, BLIP_FLAG_URGENT);
    for (int bit = 0; bit < 32; bit++) {
        uint32_t flag = UINT32_C(1) << bit;
        if ((flag & (BLIP_FLAG_COMPRESSED | BLIP_FLAG_URGENT | BLIP_FLAG_NO_REPLY)) == 0)
            CHECK_STATUS(blip_message_set_flags(request, flag), BLIP_ERROR_ARGUMENT);
    }
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags, BLIP_FLAG_URGENT);
    blip_message_release(request);
}

TEST(bodies_are_copied)
{
    blip_message *request = make_request("p", NULL);
    char buffer[] = "first";
    blip_slice body;
    uint64_t size = 0;
    CHECK_OK(blip_message_set_body(request, S(buffer)));
    memset(buffer, 'x', sizeof buffer - 1);
    CHECK_OK(blip_message_body(request, &body));
    CHECK_TEXT(body, "first");
    CHECK_OK(blip_message_append_body(request, S(", second")));
    CHECK_OK(blip_message_body(request, &body));
    CHECK_TEXT(body, "first, second");
    CHECK_OK(blip_message_body_size(request, &size));
    CHECK_INT(size, 13);
    CHECK_OK(blip_message_set_body(request, S("new")));
    CHECK_OK(blip_message_body(request, &body));
    CHECK_TEXT(body, "new");
    blip_message_release(request);
}

TEST(text_and_json_set_the_content_type)
{
    blip_message *request = make_request("p", NULL);
    blip_slice slice;
    uint32_t flags = 99;
    char json[120];
    CHECK_OK(blip_message_set_text(request, S("h\xc3\xa9llo")));
    CHECK_OK(blip_message_content_type(request, &slice));
    CHECK_TEXT(slice, "text/plain; charset=UTF-8");
    CHECK_OK(blip_message_body(request, &slice));
    CHECK_TEXT(slice, "h\xc3\xa9llo");
    CHECK_OK(blip_message_set_json(request, S("{\"a\":1}")));
    CHECK_OK(blip_message_content_type(request, &slice));
    CHECK_TEXT(slice, "application/json");
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags & BLIP_FLAG_COMPRESSED, 0);
    snprintf(json, sizeof json, "[\"%0100d\"]", 1);
    CHECK_OK(blip_message_set_json(request, S(json)));
    CHECK_OK(blip_message_flags(request, &flags));
    CHECK_INT(flags & BLIP_FLAG_COMPRESSED, BLIP_FLAG_COMPRESSED);
    CHECK_OK(blip_message_body(request, &slice));
    CHECK_TEXT(slice, json);
    blip_message_release(request);
}

TEST(a_copy_is_a_request_of_its_own)
{
    blip_message *request = make_request("p", "body"), *copy = NULL;
    blip_slice slice;
    uint32_t flags = 0;
    bool is_mutable = false;
    CHECK_OK(blip_message_set_property(request, S("k"), S("v")));
    CHECK_OK(blip_message_set_flags(request, BLIP_FLAG_URGENT | BLIP_FLAG_COMPRESSED));
    REQUIRE_OK(blip_message_copy(request, &copy));
    CHECK(copy != request);
    CHECK_OK(blip_message_set_property(request, S("k"), S("changed")));
    CHECK_OK(blip_message_set_body(request, S("changed")));
    CHECK_OK(blip_message_property(copy, S("k"), &slice));
    CHECK_TEXT(slice, "v");
    CHECK_OK(blip_message_body(copy, &slice));
    CHECK_TEXT(slice, "body");
    CHECK_OK(blip_message_flags(copy, &flags));
    CHECK_INT(flags, BLIP_FLAG_URGENT | BLIP_FLAG_COMPRESSED);
    CHECK_OK(blip_message_is_mutable(copy, &is_mutable));
    CHECK(is_mutable);
    blip_message_release(request);
    CHECK_OK(blip_message_profile(copy, &slice));
    CHECK_TEXT(slice, "p");
    blip_message_release(copy);
}

static bool contains(blip_slice text, const char *part)
{
    return memmem(text.data, text.size, part, strlen(part)) != NULL;
}

TEST(a_description_names_what_matters)
{
    blip_message *request = make_request("greeting", "0123456789");
    blip_slice text;
    CHECK_OK(blip_message_set_property(request, S("Colour"), S("blue")));
    CHECK_OK(blip_message_set_urgent(request, true));
    CHECK_OK(blip_message_describe(request, false, &text));
    CHECK_AT_LEAST(text.size, 3);
    CHECK(!contains(text, "Colour"));
    CHECK(contains(text, "10"));
    test_note("%.*s", (int)text.size, (const char *)text.data);
    CHECK_OK(blip_message_describe(request, true, &text));
    CHECK(contains(text, "Colour"));
    CHECK(contains(text, "blue"));
    CHECK(contains(text, "greeting"));
    test_note("%.*s", (int)text.size, (const char *)text.data);
    blip_message_release(request);
}

TEST(user_data_belongs_to_the_message)
{
    struct counter first = COUNTER, second = COUNTER;
    blip_message *request = make_request("p", NULL);
    void *data = &first;
    CHECK_OK(blip_message_user_data(request, &data));
    CHECK_POINTER(data, NULL);
    CHECK_OK(blip_message_set_user_data(request, &first, count_release));
    CHECK_OK(blip_message_user_data(request, &data));
    CHECK_POINTER(data, &first);
    CHECK_OK(blip_message_set_user_data(request, &second, count_release));
    CHECK_INT(counter_get(&first), 1);
    CHECK_OK(blip_message_retain(request) == NULL ? BLIP_ERROR_HANDLE : BLIP_OK);
    blip_message_release(request);
    CHECK_INT(counter_get(&second), 0);
    blip_message_release(request);
    CHECK_INT(counter_get(&second), 1);
    CHECK_INT(counter_get(&first), 1);
}

static void expect_frozen(blip_message *message)
{
    struct counter released = COUNTER;
    bool is_mutable = true;
    CHECK_OK(blip_message_is_mutable(message, &is_mutable));
    CHECK(!is_mutable);
    CHECK_STATUS(blip_message_set_property(message, S("a"), S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_remove_property(message, S("Profile")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_properties(message, S("")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_profile(message, S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_content_type(message, S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_body(message, S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_append_body(message, S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(
        blip_message_append_body_borrowed(message, S("b"), count_release, &released), BLIP_ERROR_IMMUTABLE);
    CHECK_INT(counter_get(&released), 1);
    CHECK_STATUS(blip_message_set_text(message, S("b")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_json(message, S("1")), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_flags(message, 0), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_compressed(message, true), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_urgent(message, true), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_no_reply(message, true), BLIP_ERROR_IMMUTABLE);
    CHECK_STATUS(blip_message_set_timeout(message, 1000), BLIP_ERROR_IMMUTABLE);
}

static blip_status handle_frozen(blip_connection *connection, blip_message *request, void *context)
{
    bool mine = true, complete = false;
    uint64_t number = 0;
    blip_connection *of = NULL;
    expect_frozen(request);
    CHECK_OK(blip_message_is_mine(request, &mine));
    CHECK(!mine);
    CHECK_OK(blip_message_is_complete(request, &complete));
    CHECK(complete);
    CHECK_OK(blip_message_number(request, &number));
    CHECK_INT(number, 1);
    CHECK_OK(blip_message_connection(request, &of));
    CHECK_POINTER(of, connection);
    blip_connection_release(of);
    counter_add(context, 1);
    return BLIP_OK;
}

TEST(sending_freezes)
{
    struct pair pair;
    struct counter handled = COUNTER;
    struct outcome outcome;
    bool sent = false;
    uint64_t number = 0;
    pair_open(&pair, NULL);
    CHECK_OK(blip_connection_set_handler(pair.accepted, S("frozen"), 0, handle_frozen, &handled, NULL));
    blip_message *request = make_request("frozen", "x");
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    expect_frozen(request);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK_INT(outcome.type, BLIP_MESSAGE_RESPONSE);
    expect_frozen(request);
    CHECK_INT(counter_get(&handled), 1);
    CHECK_OK(blip_message_number(request, &number));
    CHECK_INT(number, 1);
    CHECK_OK(blip_message_is_sent(request, &sent));
    CHECK(sent);
    /* A message is sent once. */
    struct outcome again;
    outcome_init(&again);
    CHECK_STATUS(
        blip_connection_send(pair.client, request, outcome_response, &again, outcome_release), BLIP_ERROR_IMMUTABLE);
    CHECK_INT(atomic_load(&again.released), 1);
    CHECK_INT(counter_get(&again.done), 0);
    /* But it can be copied. */
    blip_message *copy = NULL;
    REQUIRE_OK(blip_message_copy(request, &copy));
    CHECK_OK(blip_message_set_profile(copy, S("echo")));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, copy, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "x") == 0);
    blip_message_release(copy);
    blip_message_release(request);
    pair_close(&pair);
}

TEST(a_failed_send_leaves_the_message_as_it_was)
{
    struct pair pair;
    struct outcome outcome;
    bool is_mutable = false;
    blip_slice body;
    pair_open(&pair, NULL);
    blip_message *request = make_request("echo", "x");
    CHECK_OK(blip_connection_close(pair.client, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(pair.client, SOON));
    outcome_init(&outcome);
    CHECK_STATUS(
        blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release), BLIP_ERROR_CLOSED);
    CHECK_INT(atomic_load(&outcome.released), 1);
    CHECK_INT(counter_get(&outcome.done), 0);
    CHECK_OK(blip_message_is_mutable(request, &is_mutable));
    CHECK(is_mutable);
    CHECK_OK(blip_message_append_body(request, S("y")));
    /* The same message goes over another connection. */
    blip_connection *second = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &second));
    REQUIRE_OK(blip_connection_wait_open(second, SOON));
    blip_message *response = NULL;
    REQUIRE_OK(blip_connection_request(second, request, SOON, &response));
    CHECK_OK(blip_message_body(response, &body));
    CHECK_TEXT(body, "xy");
    blip_message_release(response);
    blip_message_release(request);
    blip_connection_close(second, 1000, S(""));
    blip_connection_wait_closed(second, SOON);
    blip_connection_release(second);
    pair_close(&pair);
}

TEST(properties_over_the_limit_are_refused_by_the_sender)
{
    struct pair pair;
    struct outcome outcome;
    bool is_mutable = false;
    size_t size = 200 * 1024;
    char *value = malloc(size + 1);
    memset(value, 'v', size);
    value[size] = 0;
    pair_open(&pair, NULL);
    blip_message *request = make_request("echo", "x");
    outcome_init(&outcome);
    blip_status status = blip_message_set_property(request, S("long"), S(value));
    if (status == BLIP_OK)
        status = blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release);
    CHECK_STATUS(status, BLIP_ERROR_LIMIT);
    CHECK_INT(counter_get(&outcome.done), 0);
    CHECK_OK(blip_message_is_mutable(request, &is_mutable));
    CHECK(is_mutable);
    blip_message_release(request);
    /* Just below the limit it goes, and the connection is as well as ever. */
    request = make_request("echo", "x");
    value[100 * 1024 - 100] = 0;
    CHECK_OK(blip_message_set_property(request, S("long"), S(value)));
    outcome_init(&outcome);
    CHECK_OK(blip_connection_send(pair.client, request, outcome_response, &outcome, outcome_release));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    blip_message_release(request);
    free(value);
    pair_close(&pair);
}
