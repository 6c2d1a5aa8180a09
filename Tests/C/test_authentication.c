/* Passwords, tokens, cookies and challenges between a listener and clients of this library; and that none of it is ever
 * told to a log, an error or a URL. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <string.h>

#define PASSWORD "s3cr3t:pass word"
#define TOKEN "s3cr3t.t0ken"
/* base64 of "me:s3cr3t:pass word" */
#define ENCODED "bWU6czNjcjN0OnBhc3Mgd29yZA=="

/* All that the library has said. */
static pthread_mutex_t said_mutex = PTHREAD_MUTEX_INITIALIZER;
static char said[1 << 20];
static size_t said_size;

static void say(blip_slice text)
{
    pthread_mutex_lock(&said_mutex);
    if (said_size + text.size + 1 < sizeof said) {
        memcpy(said + said_size, text.data, text.size);
        said_size += text.size;
        said[said_size++] = '\n';
    }
    pthread_mutex_unlock(&said_mutex);
}

static void on_log(int32_t level, blip_slice domain, blip_slice text, void *context)
{
    (void)level, (void)domain, (void)context;
    say(text);
}

static bool was_said(const char *text)
{
    pthread_mutex_lock(&said_mutex);
    bool found = memmem(said, said_size, text, strlen(text)) != NULL;
    pthread_mutex_unlock(&said_mutex);
    return found;
}

static blip_runtime *talkative_runtime(void)
{
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_runtime_set_log(runtime, BLIP_LOG_DEBUG, on_log, NULL, NULL));
    return runtime;
}

static blip_listener *listen_with(blip_runtime *runtime, blip_listener_options *options, char url[static 160])
{
    blip_listener *listener;
    blip_slice text;
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    set_server_handlers(listener);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(listener, &text));
    REQUIRE(text.size < 160);
    memcpy(url, text.data, text.size);
    url[text.size] = 0;
    return listener;
}

static blip_listener *guarded(blip_runtime *runtime, char url[static 160])
{
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_set_realm(options, S("the realm")));
    REQUIRE_OK(blip_listener_options_add_user(options, S("me"), S(PASSWORD)));
    return listen_with(runtime, options, url);
}

/* Connects, notes what was said about it, and gives the status and the HTTP status. */
static blip_status try_with(
    blip_runtime *runtime, const char *url, blip_connection_options *options, blip_challenge_fn ask, int64_t *code)
{
    blip_connection *connection;
    blip_error *error;
    blip_slice text;
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    blip_connection_options_release(options);
    if (ask) REQUIRE_OK(blip_connection_set_challenge_callback(connection, ask, NULL, NULL));
    blip_status status = blip_connection_wait_open(connection, SOON);
    *code = 0;
    if (blip_connection_error(connection, &error) == BLIP_OK) {
        CHECK_OK(blip_error_message(error, &text));
        say(text);
        CHECK_OK(blip_error_code(error, code));
    }
    CHECK_OK(blip_connection_url(connection, &text));
    say(text);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
    return status;
}

static void stop(blip_listener *listener)
{
    CHECK_OK(blip_listener_stop(listener, false, 0));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
}

TEST(passwords_and_tokens_are_checked_and_never_told)
{
    char url[160], with_password[200];
    int64_t code;
    blip_runtime *runtime = talkative_runtime();
    blip_listener *listener = guarded(runtime, url);

    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_credentials(options, S("me"), S(PASSWORD)));
    CHECK_OK(try_with(runtime, url, options, NULL, &code));

    options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_credentials(options, S("me"), S(PASSWORD)));
    CHECK_OK(blip_connection_options_set_preemptive(options, false));
    CHECK_OK(try_with(runtime, url, options, NULL, &code));

    snprintf(with_password, sizeof with_password, "ws://me:s3cr3t%%3Apass%%20word@%s", url + 5);
    CHECK_OK(try_with(runtime, with_password, NULL, NULL, &code));
    CHECK(!was_said("401"));

    options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_credentials(options, S("me"), S("s3cr3t but wrong")));
    CHECK_STATUS(try_with(runtime, url, options, NULL, &code), BLIP_ERROR_HTTP_STATUS);
    CHECK_INT(code, 401);

    options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_bearer_token(options, S(TOKEN)));
    CHECK_STATUS(try_with(runtime, url, options, NULL, &code), BLIP_ERROR_HTTP_STATUS);

    options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_add_header(options, S("Authorization"), S("Own s3cr3t")));
    CHECK_OK(blip_connection_options_add_header(options, S("Cookie"), S("a=s3cr3t")));
    CHECK_STATUS(try_with(runtime, url, options, NULL, &code), BLIP_ERROR_HTTP_STATUS);

    stop(listener);
    drop_runtime(runtime);
    CHECK(was_said("listening on") && was_said("401"));
    CHECK(!was_said("s3cr3t") && !was_said(ENCODED));
}

TEST(options_refuse_what_cannot_be_sent)
{
    blip_connection_options *options = blip_connection_options_new();
    CHECK_STATUS(blip_connection_options_set_credentials(options, S("a:b"), S("c")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_credentials(options, S("a"), S("c\n")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_credentials(options, S("\xff"), S("c")), BLIP_ERROR_TEXT);
    CHECK_STATUS(blip_connection_options_set_bearer_token(options, S("a b")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_redirect_limit(options, 101), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_connection_options_set_credentials(options, S(""), S("")));
    CHECK_OK(blip_connection_options_set_bearer_token(options, S("")));
    blip_connection_options_release(options);

    blip_listener_options *others = blip_listener_options_new();
    CHECK_STATUS(blip_listener_options_add_user(others, S(""), S("c")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_add_user(others, S("a:b"), S("c")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_add_user_hash(others, S("a"), S("c")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_set_realm(others, S("a\nb")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_add_origin(others, S("a")), BLIP_ERROR_ARGUMENT);
    char buffer[BLIP_PASSWORD_HASH_SIZE];
    size_t size;
    CHECK_STATUS(blip_password_hash(S("x"), buffer, 3, &size), BLIP_ERROR_LIMIT);
    CHECK_STATUS(blip_password_hash(S("x"), NULL, 3, &size), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_password_hash(S("x"), buffer, sizeof buffer, &size));
    CHECK_OK(blip_listener_options_add_user_hash(others, S("a"), bytes_slice(buffer, size)));
    blip_listener_options_release(others);
}

/* Challenges */

static struct counter answered = COUNTER;

static void *answer_later(void *argument)
{
    blip_challenge *challenge = argument;
    blip_slice text;
    uint32_t attempts;
    size_t count;
    bool is_proxy;
    sleep_ms(50);
    CHECK_OK(blip_challenge_count(challenge, &count));
    CHECK_INT(count, 1);
    CHECK_OK(blip_challenge_scheme(challenge, 0, &text));
    CHECK_TEXT(text, "basic");
    CHECK_OK(blip_challenge_parameter(challenge, 0, S("Realm"), &text));
    CHECK_TEXT(text, "the realm");
    CHECK_STATUS(blip_challenge_parameter(challenge, 0, S(""), &text), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_challenge_scheme(challenge, 1, &text), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_challenge_scheme(challenge, SIZE_MAX, &text), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_challenge_is_proxy(challenge, &is_proxy));
    CHECK(!is_proxy);
    CHECK_OK(blip_challenge_attempts(challenge, &attempts));
    CHECK_STATUS(blip_challenge_answer_token(challenge, S("a b")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_challenge_answer_header(challenge, S("a\n")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_challenge_answer_password(challenge, S("a:b"), S("")), BLIP_ERROR_UNSUPPORTED);
    CHECK_OK(blip_challenge_answer_password(challenge, S("me"), attempts == 1 ? S("s3cr3t but wrong") : S(PASSWORD)));
    CHECK_STATUS(blip_challenge_cancel(challenge), BLIP_ERROR_STATE);
    blip_challenge_release(challenge);
    counter_add(&answered, 1);
    return NULL;
}

static void ask_a_thread(blip_connection *connection, blip_challenge *challenge, void *context)
{
    (void)context;
    pthread_t thread;
    blip_connection *same;
    CHECK_OK(blip_challenge_connection(challenge, &same));
    CHECK_POINTER(same, connection);
    REQUIRE_INT(pthread_create(&thread, NULL, answer_later, blip_challenge_retain(challenge)), 0);
    pthread_detach(thread);
}

static void ignore(blip_connection *connection, blip_challenge *challenge, void *context)
{
    (void)connection, (void)challenge, (void)context;
}

static void close_instead(blip_connection *connection, blip_challenge *challenge, void *context)
{
    (void)context;
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK_STATUS(blip_challenge_cancel(challenge), BLIP_ERROR_CLOSED);
}

TEST(challenges_are_answered_later_on_any_thread)
{
    char url[160];
    int64_t code;
    blip_runtime *runtime = talkative_runtime();
    blip_listener *listener = guarded(runtime, url);
    CHECK_OK(try_with(runtime, url, NULL, ask_a_thread, &code));
    REQUIRE_REACHES(&answered, 2);
    CHECK_STATUS(try_with(runtime, url, NULL, ignore, &code), BLIP_ERROR_HTTP_STATUS);
    CHECK_INT(code, 401);
    CHECK_STATUS(try_with(runtime, url, NULL, close_instead, &code), BLIP_ERROR_CLOSED);
    stop(listener);
    drop_runtime(runtime);
    CHECK(!was_said("s3cr3t"));
}

TEST(challenges_are_taken_from_a_queue)
{
    char url[160];
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = guarded(runtime, url);
    blip_queue *queue;
    blip_connection *connection;
    blip_event *event;
    size_t count;
    int32_t kind = 0;
    REQUIRE_OK(blip_queue_new(0, &queue));
    for (int answers = 1; answers >= 0; answers--) {
        blip_connection_options *options = blip_connection_options_new();
        CHECK_OK(blip_connection_options_set_queue(options, queue));
        REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
        blip_connection_options_release(options);
        CHECK_OK(blip_connection_set_challenge_callback(connection, NULL, NULL, NULL));
        CHECK_OK(blip_connection_connect(connection));
        REQUIRE_OK(blip_queue_next(queue, &event, 1, SOON, &count));
        REQUIRE_INT(count, 1);
        CHECK_OK(blip_event_kind(event, &kind));
        CHECK_INT(kind, BLIP_EVENT_CHALLENGE);
        blip_challenge *challenge = blip_event_challenge(event);
        CHECK_POINTER(blip_event_connection(event), connection);
        if (answers) CHECK_OK(blip_challenge_answer_password(challenge, S("me"), S(PASSWORD)));
        blip_event_release(event);
        CHECK_STATUS(blip_connection_wait_open(connection, SOON), answers ? BLIP_OK : BLIP_ERROR_HTTP_STATUS);
        CHECK_OK(blip_connection_close(connection, 1000, S("")));
        CHECK_OK(blip_connection_wait_closed(connection, SOON));
        blip_connection_release(connection);
    }
    blip_queue_release(queue);
    stop(listener);
    drop_runtime(runtime);
}

/* The end is not told inside the call that causes it. */

static bool is_cancelling, was_told_inside;
static struct counter closed = COUNTER;

static void cancel_at_once(blip_connection *connection, blip_challenge *challenge, void *context)
{
    (void)connection, (void)context;
    is_cancelling = true;
    CHECK_OK(blip_challenge_cancel(challenge));
    is_cancelling = false;
}

static void look_where_it_is_told(blip_connection *connection, blip_status status, void *context)
{
    (void)connection, (void)context;
    CHECK_STATUS(status, BLIP_ERROR_HTTP_STATUS);
    was_told_inside = is_cancelling;
    counter_add(&closed, 1);
}

TEST(a_challenge_is_cancelled_in_its_callback)
{
    char url[160];
    blip_connection *connection;
    blip_runtime *runtime = talkative_runtime();
    blip_listener *listener = guarded(runtime, url);
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &connection));
    REQUIRE_OK(blip_connection_set_challenge_callback(connection, cancel_at_once, NULL, NULL));
    REQUIRE_OK(blip_connection_set_close_callback(connection, look_where_it_is_told, NULL, NULL));
    CHECK_STATUS(blip_connection_wait_open(connection, SOON), BLIP_ERROR_HTTP_STATUS);
    REQUIRE_REACHES(&closed, 1);
    CHECK(!was_told_inside);
    blip_connection_release(connection);
    stop(listener);
    drop_runtime(runtime);
}

/* Admission by the program */

static struct counter decided = COUNTER;

static void *decide_later(void *argument)
{
    blip_connection *connection = argument;
    blip_slice text;
    bool matches = false;
    sleep_ms(30);
    CHECK_OK(blip_connection_credential_scheme(connection, &text));
    if (blip_connection_credential_secret(connection, &text) == BLIP_OK
        && bytes_slice(TOKEN, strlen(TOKEN)).size == text.size && memcmp(text.data, TOKEN, text.size) == 0) {
        CHECK_STATUS(blip_connection_check_password(connection, S("x"), &matches), BLIP_ERROR_NOT_FOUND);
        CHECK_OK(blip_connection_add_response_header(connection, S("X-Hello"), S("you")));
        CHECK_OK(blip_connection_accept(connection, S("the bearer")));
        CHECK_STATUS(blip_connection_reject(connection, 403, S("")), BLIP_ERROR_STATE);
    } else {
        CHECK_OK(blip_connection_check_password(connection, S(PASSWORD), &matches));
        CHECK(matches);
        CHECK_OK(blip_connection_check_password(connection, S("x"), &matches));
        CHECK(!matches);
        CHECK_STATUS(blip_connection_reject(connection, 200, S("")), BLIP_ERROR_ARGUMENT);
        CHECK_OK(blip_connection_reject(connection, 429, S("too many")));
    }
    blip_connection_release(connection);
    counter_add(&decided, 1);
    return NULL;
}

static void defer(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener, (void)context;
    pthread_t thread;
    CHECK_OK(blip_connection_defer_accept(connection));
    REQUIRE_INT(pthread_create(&thread, NULL, decide_later, blip_connection_retain(connection)), 0);
    pthread_detach(thread);
}

static struct counter opened = COUNTER;

static void look_at_user(blip_connection *connection, void *context)
{
    (void)context;
    blip_slice text;
    CHECK_OK(blip_connection_user(connection, &text));
    CHECK_TEXT(text, "the bearer");
    CHECK_STATUS(blip_connection_accept(connection, S("")), BLIP_ERROR_STATE);
    counter_add(&opened, 1);
}

TEST(the_program_decides_later)
{
    char url[160];
    int64_t code;
    blip_slice text;
    blip_connection *connection;
    blip_runtime *runtime = talkative_runtime();
    blip_listener *listener = listen_with(runtime, blip_listener_options_new(), url);
    CHECK_OK(blip_listener_set_accept_callback(listener, defer, NULL, NULL));
    CHECK_OK(blip_listener_set_open_callback(listener, look_at_user, NULL, NULL));

    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_bearer_token(options, S(TOKEN)));
    REQUIRE_OK(blip_connection_new(runtime, S(url), options, &connection));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_connection_wait_open(connection, SOON));
    CHECK_OK(blip_connection_http_header(connection, S("x-hello"), &text));
    CHECK_TEXT(text, "you");
    CHECK_STATUS(blip_connection_user(connection, &text), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_connection_defer_accept(connection), BLIP_ERROR_STATE);
    REQUIRE_REACHES(&opened, 1);
    CHECK_OK(blip_connection_close(connection, 1000, S("")));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);

    options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_credentials(options, S("me"), S(PASSWORD)));
    CHECK_STATUS(try_with(runtime, url, options, NULL, &code), BLIP_ERROR_HTTP_STATUS);
    CHECK_INT(code, 429);
    REQUIRE_REACHES(&decided, 2);
    stop(listener);
    drop_runtime(runtime);
    CHECK(!was_said("s3cr3t") && !was_said(ENCODED));
}

/* Cookies */

TEST(cookies_of_a_runtime)
{
    char buffer[BLIP_COOKIES_SIZE];
    size_t size = 0;
    blip_runtime *runtime = make_runtime(1);
    CHECK_STATUS(blip_runtime_cookies(runtime, S("ws://h/"), buffer, sizeof buffer, &size), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_runtime_set_cookie(runtime, S("wss://h/db"), S("a=b; Path=/db; Secure")));
    CHECK_OK(blip_runtime_set_cookie(runtime, S("ws://h/db/x"), S("c=d; Max-Age=100")));
    CHECK_OK(blip_runtime_cookies(runtime, S("wss://h/db/y"), buffer, sizeof buffer, &size));
    CHECK_TEXT(bytes_slice(buffer, size), "a=b; c=d");
    CHECK_OK(blip_runtime_cookies(runtime, S("ws://h/db/y"), buffer, sizeof buffer, &size));
    CHECK_TEXT(bytes_slice(buffer, size), "c=d");
    CHECK_STATUS(blip_runtime_cookies(runtime, S("wss://h/db"), buffer, 2, &size), BLIP_ERROR_LIMIT);
    CHECK_STATUS(blip_runtime_cookies(runtime, S("wss://h/db"), NULL, 2, &size), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_runtime_cookies(runtime, S("h"), buffer, 2, &size), BLIP_ERROR_URL);
    CHECK_STATUS(blip_runtime_set_cookie(runtime, S("ws://h/"), S("a=b; Secure")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_runtime_set_cookie(runtime, S("ws://h/"), S("a")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_runtime_set_cookie(runtime, S("ws://h/"), S("a=b\nc")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_runtime_set_cookie(runtime, S("nonsense"), S("a=b")), BLIP_ERROR_URL);
    CHECK_OK(blip_runtime_clear_cookies(runtime));
    CHECK_STATUS(blip_runtime_cookies(runtime, S("wss://h/db"), buffer, sizeof buffer, &size), BLIP_ERROR_NOT_FOUND);
    drop_runtime(runtime);
}
