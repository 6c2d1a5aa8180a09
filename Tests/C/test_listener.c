/* Listeners: addresses, paths, limits, Unix sockets, starting and stopping. */

#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static blip_listener *make_listener(blip_runtime *runtime, blip_listener_options *options)
{
    blip_listener *listener = NULL;
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    set_server_handlers(listener);
    return listener;
}

static void stop(blip_listener *listener)
{
    CHECK_OK(blip_listener_stop(listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
}

static blip_status try_url(blip_runtime *runtime, const char *url, int64_t *code)
{
    blip_connection *client = NULL;
    blip_error *error = NULL;
    blip_status status = blip_connection_new(runtime, S(url), NULL, &client);
    if (status != BLIP_OK)
        return status;
    status = blip_connection_wait_open(client, SOON);
    if (status == BLIP_OK) {
        struct outcome outcome;
        CHECK_OK(send_request(client, "echo", "x", &outcome));
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
    } else if (code != NULL && CHECK_OK(blip_connection_error(client, &error))) {
        CHECK_OK(blip_error_code(error, code));
    }
    blip_connection_close(client, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    blip_connection_release(client);
    return status;
}

TEST(port_zero_is_any_free_port)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener *first = make_listener(runtime, NULL), *second = make_listener(runtime, NULL);
    uint16_t port = 0, other = 0;
    blip_slice url;
    char expected[64];
    CHECK_STATUS(blip_listener_port(first, &port), BLIP_ERROR_STATE);
    CHECK_STATUS(blip_listener_url(first, &url), BLIP_ERROR_STATE);
    REQUIRE_OK(blip_listener_start(first, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_start(second, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_port(first, &port));
    CHECK_OK(blip_listener_port(second, &other));
    CHECK(port != 0 && other != 0 && port != other);
    snprintf(expected, sizeof expected, "ws://127.0.0.1:%u/", port);
    CHECK_OK(blip_listener_url(first, &url));
    CHECK_TEXT(url, expected);
    CHECK_OK(try_url(runtime, expected, NULL));
    stop(first);
    CHECK_STATUS(try_url(runtime, expected, NULL), BLIP_ERROR_REFUSED);
    stop(second);
    drop_runtime(runtime);
}

/* URL and port of a place. */
static void check_place(blip_runtime *runtime, blip_listener *listener, size_t index, char *url, uint16_t *port)
{
    blip_slice text;
    REQUIRE_OK(blip_listener_url_at(listener, index, &text));
    REQUIRE(text.size < 256);
    memcpy(url, text.data, text.size);
    url[text.size] = 0;
    CHECK_OK(try_url(runtime, url, NULL));
    CHECK_STATUS(blip_listener_port_at(listener, index, port), strncmp(url, "ws:", 3) == 0 ? BLIP_OK : BLIP_ERROR_STATE);
}

TEST(several_starts_of_one_listener)
{
    blip_runtime *runtime = make_runtime(2);
    blip_listener *listener = make_listener(runtime, NULL), *other = make_listener(runtime, NULL);
    char path[128], urls[3][256];
    uint16_t ports[3] = {0, 0, 0}, taken = 0, port = 0;
    blip_slice url;
    blip_error *error = NULL;
    struct stat file;
    snprintf(path, sizeof path, "%s/several", temporary_directory());
    CHECK_STATUS(blip_listener_url_at(listener, 0, &url), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_listener_port_at(listener, 0, &port), BLIP_ERROR_NOT_FOUND);
    REQUIRE_OK(blip_listener_start(other, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_port(other, &taken));

    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_start_unix(listener, S(path)));
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    for (size_t i = 0; i < 3; i++)
        check_place(runtime, listener, i, urls[i], &ports[i]);
    CHECK(ports[0] != 0 && ports[2] != 0 && ports[0] != ports[2]);
    CHECK_OK(blip_listener_port(listener, &port));
    CHECK_INT(port, ports[0]);
    CHECK_OK(blip_listener_url(listener, &url));
    CHECK_TEXT(url, urls[0]);

    /* One that fails is told of, and leaves the others as they are. */
    CHECK_STATUS(blip_listener_start(listener, S("127.0.0.1"), taken), BLIP_ERROR_ADDRESS_IN_USE);
    CHECK_STATUS(blip_listener_start(listener, S("192.0.2.1"), 0), BLIP_ERROR_UNREACHABLE);
    CHECK_STATUS(blip_listener_start_unix(listener, S(path)), BLIP_ERROR_ADDRESS_IN_USE);
    CHECK_STATUS(blip_listener_start_unix(listener, S("/nowhere/at/all")), BLIP_ERROR_FILE);
    CHECK_OK(blip_listener_error(listener, &error));
    for (size_t i = 0; i < 3; i++)
        check_place(runtime, listener, i, urls[i], &ports[i]);
    CHECK_STATUS(blip_listener_url_at(listener, 3, &url), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_listener_port_at(listener, SIZE_MAX, &port), BLIP_ERROR_NOT_FOUND);
    CHECK_STATUS(blip_listener_port_at(listener, 0, NULL), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_url_at(listener, 0, NULL), BLIP_ERROR_ARGUMENT);

    CHECK_OK(blip_listener_stop(listener, false, 0));
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    CHECK_STATUS(try_url(runtime, urls[0], NULL), BLIP_ERROR_REFUSED);
    CHECK_STATUS(try_url(runtime, urls[2], NULL), BLIP_ERROR_REFUSED);
    CHECK_INT(stat(path, &file), -1);
    CHECK_STATUS(blip_listener_start(listener, S("127.0.0.1"), 0), BLIP_ERROR_STATE);
    CHECK_OK(blip_listener_port_at(listener, 2, &port));
    CHECK_INT(port, ports[2]);
    blip_listener_release(listener);
    stop(other);
    drop_runtime(runtime);
}

static blip_listener *started_by_many;

static void *start_there(void *context)
{
    (void)context;
    for (int i = 0; i < 8; i++)
        CHECK_OK(blip_listener_start(started_by_many, S("127.0.0.1"), 0));
    return NULL;
}

TEST(threads_start_one_listener_at_once)
{
    blip_runtime *runtime = make_runtime(2);
    pthread_t threads[4];
    char url[256];
    uint16_t port;
    blip_slice text;
    started_by_many = make_listener(runtime, NULL);
    for (int i = 0; i < 4; i++)
        REQUIRE_INT(pthread_create(&threads[i], NULL, start_there, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 32; i++)
        check_place(runtime, started_by_many, i, url, &port);
    CHECK_STATUS(blip_listener_url_at(started_by_many, 32, &text), BLIP_ERROR_NOT_FOUND);
    stop(started_by_many);
    CHECK_STATUS(try_url(runtime, url, NULL), BLIP_ERROR_REFUSED);
    drop_runtime(runtime);
}

TEST(interfaces)
{
    static const struct {
        const char *interface, *host;
    } places[] = {{"127.0.0.1", "127.0.0.1"}, {"localhost", "localhost"}, {"", "127.0.0.1"}, {"", "localhost"},
        {"::1", "[::1]"}, {"", "[::1]"}};
    blip_runtime *runtime = make_runtime(1);
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 loopback;
    memset(&loopback, 0, sizeof loopback);
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    bool has_ipv6 = probe >= 0 && bind(probe, (struct sockaddr *)&loopback, sizeof loopback) == 0;
    if (probe >= 0)
        close(probe);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!has_ipv6 && strchr(places[i].host, '[') != NULL)
            continue;
        blip_listener *listener = make_listener(runtime, NULL);
        uint16_t port = 0;
        char url[64];
        blip_slice own;
        REQUIRE_OK(blip_listener_start(listener, S(places[i].interface), 0));
        CHECK_OK(blip_listener_port(listener, &port));
        snprintf(url, sizeof url, "ws://%s:%u/", places[i].host, port);
        if (!CHECK_OK(try_url(runtime, url, NULL)))
            test_note("interface \"%s\", %s", places[i].interface, url);
        CHECK_OK(blip_listener_url(listener, &own));
        snprintf(url, sizeof url, "%.*s", (int)own.size, (const char *)own.data);
        if (!CHECK_OK(try_url(runtime, url, NULL)))
            test_note("interface \"%s\", own URL %s", places[i].interface, url);
        stop(listener);
    }
    drop_runtime(runtime);
}

TEST(addresses_that_cannot_be_used)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener *holder = make_listener(runtime, NULL);
    uint16_t port = 0;
    blip_error *error = NULL;
    blip_slice text;
    REQUIRE_OK(blip_listener_start(holder, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_port(holder, &port));
    blip_listener *listener = make_listener(runtime, NULL);
    CHECK_STATUS(blip_listener_start(listener, S("127.0.0.1"), port), BLIP_ERROR_ADDRESS_IN_USE);
    REQUIRE_OK(blip_listener_error(listener, &error));
    CHECK_STATUS(blip_error_status(error), BLIP_ERROR_ADDRESS_IN_USE);
    CHECK_OK(blip_error_message(error, &text));
    test_note("%.*s", (int)text.size, (const char *)text.data);
    CHECK(blip_listener_start(listener, S("203.0.113.7"), 0) < 0);
    CHECK(blip_listener_start(listener, S("no.such.name.invalid"), 0) < 0);
    CHECK(blip_listener_start(listener, S("999.1.1.1"), 0) < 0);
    CHECK_STATUS(blip_listener_start(listener, bytes_slice("\xff", 1), 0), BLIP_ERROR_TEXT);
    CHECK(blip_listener_start_unix(listener, S("/no/such/directory/socket")) < 0);
    /* After failures it can still be started. */
    CHECK_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    stop(listener);
    stop(holder);
    drop_runtime(runtime);
}

TEST(other_paths_are_404)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_add_path(options, S("/db/_blipsync")));
    CHECK_OK(blip_listener_options_add_path(options, S("/other")));
    CHECK(blip_listener_options_add_path(options, S("no-slash")) < 0);
    blip_listener *listener = make_listener(runtime, options);
    uint16_t port = 0;
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_port(listener, &port));
    static const struct {
        const char *path;
        bool found;
    } paths[] = {{"/db/_blipsync", true}, {"/other", true}, {"/other?query=1", true}, {"/", false}, {"", false},
        {"/db", false}, {"/other/", false}, {"/OTHER", false}, {"/db/_blipsync/x", false}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char url[128];
        int64_t code = 0;
        snprintf(url, sizeof url, "ws://127.0.0.1:%u%s", port, paths[i].path);
        blip_status status = try_url(runtime, url, &code);
        if (!CHECK_STATUS(status, paths[i].found ? BLIP_OK : BLIP_ERROR_HTTP_STATUS))
            test_note("%s", url);
        if (!paths[i].found)
            CHECK_INT(code, 404);
    }
    stop(listener);
    drop_runtime(runtime);
}

struct visitor {
    struct counter seen;
    char path[64], header[64], agent[64];
    bool refuse;
    int32_t code;
};

static void visit(blip_listener *listener, blip_connection *connection, void *context)
{
    struct visitor *visitor = context;
    blip_slice slice;
    bool incoming = false;
    CHECK(listener != NULL);
    CHECK_OK(blip_connection_is_incoming(connection, &incoming));
    CHECK(incoming);
    CHECK_OK(blip_connection_request_path(connection, &slice));
    snprintf(visitor->path, sizeof visitor->path, "%.*s", (int)slice.size, (const char *)slice.data);
    if (blip_connection_http_header(connection, S("x-test"), &slice) == BLIP_OK)
        snprintf(visitor->header, sizeof visitor->header, "%.*s", (int)slice.size, (const char *)slice.data);
    if (blip_connection_http_header(connection, S("User-Agent"), &slice) == BLIP_OK)
        snprintf(visitor->agent, sizeof visitor->agent, "%.*s", (int)slice.size, (const char *)slice.data);
    CHECK_STATUS(blip_connection_http_header(connection, S("X-Absent"), &slice), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_connection_set_user_data(connection, visitor, NULL));
    if (visitor->refuse)
        blip_connection_close(connection, 4003, S("not today"));
    counter_add(&visitor->seen, 1);
}

TEST(the_accept_callback_sees_the_request_and_may_refuse)
{
    struct pair pair;
    struct visitor visitor;
    blip_connection *client = NULL;
    char url[200];
    void *data = NULL;
    memset(&visitor, 0, sizeof visitor);
    counter_init(&visitor.seen);
    pair_open(&pair, &(struct pair_options){.no_client = true});
    CHECK_OK(blip_listener_set_accept_callback(pair.listener, visit, &visitor, NULL));
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_add_header(options, S("X-Test"), S("a value")));
    CHECK_OK(blip_connection_options_set_user_agent(options, S("tester/7")));
    CHECK(blip_connection_options_add_header(options, S("X Bad"), S("x")) < 0);
    CHECK(blip_connection_options_add_header(options, S("X-Bad"), S("x\r\nInjected: y")) < 0);
    CHECK(blip_connection_options_add_header(options, S(""), S("x")) < 0);
    CHECK(blip_connection_options_set_user_agent(options, S("x\r\ny")) < 0);
    snprintf(url, sizeof url, "%sa/path?with=query", pair.url);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), options, &client));
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    CHECK(counter_wait(&visitor.seen, 1, SOON));
    CHECK_TEXT(S(visitor.path), "/a/path?with=query");
    CHECK_TEXT(S(visitor.header), "a value");
    CHECK_TEXT(S(visitor.agent), "tester/7");
    CHECK(counter_wait(&pair.server_opened, 1, SOON));
    CHECK_OK(blip_connection_user_data(pair.accepted, &data));
    CHECK_POINTER(data, &visitor);
    blip_connection_close(client, 1000, S(""));
    blip_connection_wait_closed(client, SOON);
    blip_connection_release(client);

    visitor.refuse = true;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), options, &client));
    blip_connection_options_release(options);
    CHECK_STATUS(blip_connection_wait_open(client, SOON), BLIP_ERROR_HTTP_STATUS);
    blip_error *error = NULL;
    int64_t code = 0;
    CHECK_OK(blip_connection_error(client, &error));
    CHECK_OK(blip_error_code(error, &code));
    CHECK_INT(code, 403);
    CHECK_OK(blip_connection_wait_closed(client, SOON));
    struct outcome outcome;
    CHECK(send_request(client, "echo", "", &outcome) < 0);
    CHECK_INT(counter_get(&visitor.seen), 2);
    blip_connection_release(client);
    pair_close(&pair);
}

TEST(unix_sockets)
{
    struct pair pair;
    struct outcome outcome;
    struct stat info;
    char path[128];
    blip_slice address;
    uint16_t port = 0;
    snprintf(path, sizeof path, "%s/socket", temporary_directory());
    pair_open(&pair, &(struct pair_options){.unix_path = path});
    CHECK(memcmp(pair.url, "ws+unix:", 8) == 0);
    CHECK_OK(send_request(pair.client, "echo", "over a file name", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK(strcmp(outcome.text, "over a file name") == 0);
    CHECK_OK(blip_connection_remote_address(pair.client, &address));
    CHECK(address.size > 5 && memcmp(address.data, "unix:", 5) == 0);
    CHECK(blip_listener_port(pair.listener, &port) < 0);
    CHECK_INT(stat(path, &info), 0);
    CHECK(S_ISSOCK(info.st_mode));
    pair_close(&pair);
    CHECK(stat(path, &info) != 0);
}

TEST(a_stale_unix_socket_is_replaced_and_a_live_one_is_not)
{
    char path[100];
    struct sockaddr_un address;
    blip_runtime *runtime = make_runtime(1);
    snprintf(path, sizeof path, "%s/stale", temporary_directory());
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE_INT(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    close(descriptor); /* leaves the file */
    blip_listener *first = make_listener(runtime, NULL), *second = make_listener(runtime, NULL);
    CHECK_OK(blip_listener_start_unix(first, S(path)));
    CHECK_STATUS(blip_listener_start_unix(second, S(path)), BLIP_ERROR_ADDRESS_IN_USE);
    char url[128];
    blip_slice own;
    CHECK_OK(blip_listener_url(first, &own));
    snprintf(url, sizeof url, "%.*s", (int)own.size, (const char *)own.data);
    CHECK_OK(try_url(runtime, url, NULL));
    char longer[300];
    memset(longer, 'x', sizeof longer);
    longer[0] = '/';
    longer[sizeof longer - 1] = 0;
    CHECK(blip_listener_start_unix(second, S(longer)) < 0);
    /* A file that is no socket stays. */
    char file[128];
    snprintf(file, sizeof file, "%s/file", temporary_directory());
    FILE *stream = fopen(file, "w");
    fputs("precious", stream);
    fclose(stream);
    CHECK(blip_listener_start_unix(second, S(file)) < 0);
    struct stat info;
    CHECK_INT(stat(file, &info), 0);
    CHECK_INT(info.st_size, 8);
    blip_listener_release(second);
    stop(first);
    drop_runtime(runtime);
}

TEST(connections_over_the_maximum_are_refused)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_set_max_connections(options, 3));
    blip_listener *listener = make_listener(runtime, options);
    blip_connection *clients[4];
    blip_slice own;
    size_t count = 0;
    char url[64];
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_url(listener, &own));
    snprintf(url, sizeof url, "%.*s", (int)own.size, (const char *)own.data);
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &clients[i]));
        CHECK_OK(blip_connection_wait_open(clients[i], SOON));
    }
    CHECK_OK(blip_listener_connection_count(listener, &count));
    CHECK_INT(count, 3);
    blip_connection_options *patience = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_connect_timeout(patience, 1000));
    REQUIRE_OK(blip_connection_new(runtime, S(url), patience, &clients[3]));
    blip_connection_options_release(patience);
    blip_status status = blip_connection_wait_open(clients[3], SOON);
    CHECK(status < 0);
    test_note("one too many is told %s", blip_status_name(status));
    blip_connection_release(clients[3]);
    blip_connection_close(clients[0], 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(clients[0], SOON));
    int64_t end = now_ms() + 3000;
    while (blip_listener_connection_count(listener, &count) == BLIP_OK && count > 2 && now_ms() < end)
        sleep_ms(5);
    CHECK_INT(count, 2);
    CHECK_OK(try_url(runtime, url, NULL));
    for (int i = 0; i < 3; i++)
        blip_connection_release(clients[i]);
    stop(listener);
    drop_runtime(runtime);
}

TEST(a_client_that_says_nothing_is_dropped)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_set_handshake_timeout(options, 200));
    blip_listener *listener = make_listener(runtime, options);
    uint16_t port = 0;
    struct sockaddr_in address;
    char byte;
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    CHECK_OK(blip_listener_port(listener, &port));
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE_INT(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    int64_t start = now_ms();
    ssize_t got;
    while ((got = read(descriptor, &byte, 1)) > 0) /* perhaps an HTTP 408 */
        continue;
    CHECK_AT_LEAST(now_ms() - start, 150);
    CHECK_AT_MOST(now_ms() - start, 3000);
    close(descriptor);
    stop(listener);
    drop_runtime(runtime);
}

static void listener_stopped(blip_listener *listener, blip_status status, void *context)
{
    (void)listener;
    CHECK_OK(status);
    counter_add(context, 1);
}

TEST(stopping_closes_its_connections)
{
    struct pair pair;
    struct counter stopped = COUNTER;
    struct outcome outcome;
    int32_t code = 0;
    pair_open(&pair, NULL);
    CHECK_OK(blip_listener_set_stopped_callback(pair.listener, listener_stopped, &stopped, NULL));
    CHECK_OK(blip_listener_set_stopped_callback(pair.listener, listener_stopped, &stopped, NULL));
    CHECK_OK(send_request(pair.client, "never", "", &outcome));
    sleep_ms(20);
    CHECK_OK(blip_listener_stop(pair.listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(pair.listener, SOON));
    CHECK(counter_wait(&stopped, 1, SOON));
    CHECK_INT(counter_get(&pair.server_closed), 1);
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(pair.client_status, BLIP_OK);
    CHECK_OK(blip_connection_close_code(pair.client, &code));
    CHECK_INT(code, 1001);
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_ERROR_PEER_CLOSED);
    /* Again changes nothing. */
    blip_listener_stop(pair.listener, false, 1000);
    CHECK_OK(blip_listener_wait_stopped(pair.listener, 0));
    pair_close(&pair);
    CHECK_INT(counter_get(&stopped), 1);
}

TEST(stopping_gracefully_lets_requests_finish)
{
    struct pair pair;
    struct outcome outcomes[5];
    pair_open(&pair, NULL);
    for (int i = 0; i < 5; i++)
        CHECK_OK(send_request(pair.client, "slow", "finish", &outcomes[i]));
    sleep_ms(20);
    CHECK_OK(blip_listener_stop(pair.listener, true, 3000));
    CHECK(try_url(pair.client_runtime, pair.url, NULL) < 0);
    for (int i = 0; i < 5; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    CHECK_OK(blip_listener_wait_stopped(pair.listener, SOON));
    pair_close(&pair);
}

TEST(a_listener_that_drains_accepts_nobody)
{
    struct pair pair;
    struct outcome never, late;
    int32_t code = 0;
    pair_open(&pair, NULL);
    outcome_init(&never);
    CHECK_OK(send_request(pair.client, "slow", "under way", &never));
    blip_connection *idle = NULL;
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &idle));
    REQUIRE_OK(blip_connection_wait_open(idle, SOON));
    CHECK_OK(blip_listener_stop(pair.listener, true, SOON));
    /* Who has nothing under way is closed at once, with "going away". */
    REQUIRE_OK(blip_connection_wait_closed(idle, SOON));
    CHECK_OK(blip_connection_close_code(idle, &code));
    CHECK_INT(code, 1001);
    blip_connection_release(idle);
    CHECK(try_url(pair.client_runtime, pair.url, NULL) < 0);
    CHECK(outcome_wait(&never));
    CHECK_STATUS(never.status, BLIP_OK);
    REQUIRE_OK(blip_connection_wait_closed(pair.client, SOON));
    CHECK_OK(blip_connection_close_code(pair.client, &code));
    CHECK_INT(code, 1001);
    CHECK_STATUS(send_request(pair.client, "echo", "late", &late), BLIP_ERROR_CLOSED);
    CHECK_OK(blip_listener_wait_stopped(pair.listener, SOON));
    pair_close(&pair);
}

TEST(stopping_gracefully_ends_at_its_timeout)
{
    struct pair pair;
    struct outcome outcome;
    pair_open(&pair, NULL);
    CHECK_OK(send_request(pair.client, "never", "", &outcome));
    sleep_ms(20);
    int64_t start = now_ms();
    CHECK_OK(blip_listener_stop(pair.listener, true, 300));
    CHECK_STATUS(blip_listener_wait_stopped(pair.listener, 100), BLIP_ERROR_TIMEOUT);
    CHECK_OK(blip_listener_wait_stopped(pair.listener, SOON));
    CHECK_AT_LEAST(now_ms() - start, 250);
    CHECK_AT_MOST(now_ms() - start, 4000);
    CHECK(outcome_wait(&outcome));
    CHECK(outcome.status < 0);
    pair_close(&pair);
}

static blip_status answer_with_much(blip_connection *connection, blip_message *request, void *context)
{
    static char much[100000];
    (void)connection;
    (void)context;
    return blip_message_respond_data(request, bytes_slice(much, sizeof much), S(""));
}

TEST(a_peer_that_reads_no_replies_is_closed)
{
    struct pair pair;
    blip_queue *queue = NULL;
    blip_connection *client = NULL;
    blip_listener_options *listener = blip_listener_options_new();
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_listener_options_set_limit(listener, BLIP_LIMIT_RESPONSES, 20 << 20));
    pair_open(&pair, &(struct pair_options){.listener = listener, .no_client = true});
    CHECK_OK(blip_listener_set_handler(pair.listener, S("much"), 0, answer_with_much, NULL, NULL));
    /* A full queue that nobody empties: the client stops reading. */
    REQUIRE_OK(blip_queue_new(1, &queue));
    CHECK_OK(blip_connection_options_set_queue(options, queue));
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &client));
    blip_connection_options_release(options);
    REQUIRE_OK(blip_connection_wait_open(client, SOON));
    for (int i = 0; i < 3000; i++) {
        blip_message *request = make_request("much", "x");
        blip_connection_send(client, request, NULL, &pair, NULL);
        blip_message_release(request);
    }
    CHECK(counter_wait(&pair.server_closed, 1, SOON));
    blip_connection_release(client);
    blip_queue_release(queue);
    pair_close(&pair);
}

TEST(the_last_reference_stops)
{
    struct pair pair;
    pair_open(&pair, NULL);
    blip_listener_release(pair.listener);
    CHECK(counter_wait(&pair.server_closed, 1, SOON));
    CHECK(counter_wait(&pair.client_closed, 1, SOON));
    CHECK_STATUS(try_url(pair.client_runtime, pair.url, NULL), BLIP_ERROR_REFUSED);
    blip_connection_release(pair.client);
    blip_connection_release(pair.accepted);
    drop_runtime(pair.client_runtime);
    drop_runtime(pair.server_runtime);
}

TEST(stopping_what_was_never_started)
{
    blip_runtime *runtime = make_runtime(1);
    blip_listener *listener = make_listener(runtime, NULL);
    struct counter stopped = COUNTER;
    CHECK_OK(blip_listener_set_stopped_callback(listener, listener_stopped, &stopped, NULL));
    CHECK_OK(blip_listener_stop(listener, false, 1000));
    CHECK_STATUS(blip_listener_wait_stopped(listener, 1000), BLIP_ERROR_STATE);
    CHECK_AT_MOST(counter_get(&stopped), 1);
    blip_listener_release(listener);
    drop_runtime(runtime);
}

TEST(limits_are_checked)
{
    blip_listener_options *listener = blip_listener_options_new();
    blip_connection_options *client = blip_connection_options_new();
    for (int32_t limit = BLIP_LIMIT_INCOMING_FRAME; limit <= BLIP_LIMIT_RESPONSES; limit++) {
        CHECK_OK(blip_listener_options_set_limit(listener, limit, 1 << 20));
        CHECK_OK(blip_connection_options_set_limit(client, limit, 1 << 20));
    }
    CHECK_STATUS(blip_listener_options_set_limit(listener, 0, 1), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_set_limit(listener, 999, 1), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_limit(client, -1, 1), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_connect_timeout(client, -2), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_close_timeout(client, INT64_MIN), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_ping(client, -5, 2), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_set_handshake_timeout(listener, -2), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_connection_options_set_tls_versions(client, 0x0301, 0), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(
        blip_connection_options_set_tls_versions(client, BLIP_TLS_1_3, BLIP_TLS_1_2), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_connection_options_set_connect_timeout(client, INT64_MAX));
    CHECK_OK(blip_connection_options_set_close_timeout(client, -1));
    blip_listener_options_release(listener);
    blip_connection_options_release(client);
}

TEST(silent_peers_are_noticed_by_pings)
{
    struct pair pair;
    blip_connection_options *client = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_ping(client, 100, 2));
    pair_open(&pair, &(struct pair_options){.client = client});
    /* A peer that answers lives on. */
    sleep_ms(700);
    CHECK_INT(counter_get(&pair.client_closed), 0);
    pair_close(&pair);
}

static void count_warnings(int32_t level, blip_slice domain, blip_slice text, void *context)
{
    (void)text;
    if (level == BLIP_LOG_WARNING && domain.size == 8)
        counter_add(context, 1);
}

/* Without descriptors nobody is accepted and nobody who is connected suffers; the log is not flooded. When there are some
 * again, who has waited is let in. */
TEST(descriptors_run_out)
{
    struct pair pair;
    struct outcome outcome;
    struct counter warnings;
    struct rlimit limit;
    uint16_t port = 0;
    int taken[600], count = 0;
    counter_init(&warnings);
    REQUIRE_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 500;
    REQUIRE_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    pair_open(&pair, NULL);
    CHECK_OK(blip_runtime_set_log(pair.server_runtime, BLIP_LOG_WARNING, count_warnings, &warnings, NULL));
    CHECK_OK(blip_listener_port(pair.listener, &port));
    int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(waiting >= 0);
    while (count < 600 && (taken[count] = dup(waiting)) >= 0)
        count++;
    REQUIRE(count > 0 && count < 600);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE_INT(connect(waiting, (struct sockaddr *)&address, sizeof address), 0);
    int64_t before = processor_ms();
    for (int i = 0; i < 8; i++) {
        CHECK_OK(send_request(pair.client, "echo", "still here", &outcome));
        CHECK(outcome_wait(&outcome));
        CHECK_STATUS(outcome.status, BLIP_OK);
        sleep_ms(100);
    }
    CHECK_INT(counter_get(&warnings), 1);
    CHECK_AT_MOST(processor_ms() - before, 400);
    size_t connections = 0;
    CHECK_OK(blip_listener_connection_count(pair.listener, &connections));
    CHECK_INT(connections, 1);
    while (count > 0)
        close(taken[--count]);
    int64_t end = now_ms() + SOON;
    while (connections < 2 && now_ms() < end) {
        sleep_ms(5);
        CHECK_OK(blip_listener_connection_count(pair.listener, &connections));
    }
    CHECK_INT(connections, 2);
    close(waiting);
    pair_close(&pair);
}

/* A peer whose bytes are much work is read no faster than they are worked on, so that they do not pile up. */
TEST_SECONDS(a_flood_of_small_frames_does_not_pile_up, 60)
{
    static const char head[] = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: BLIP_3\r\n\r\n";
    static unsigned char fragments[1 << 20];
    struct pair pair;
    uint16_t port = 0;
    pair_open(&pair, &(struct pair_options){.no_client = true});
    CHECK_OK(blip_listener_port(pair.listener, &port));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE_INT(connect(peer, (struct sockaddr *)&address, sizeof address), 0);
    REQUIRE_INT(send(peer, head, sizeof head - 1, 0), sizeof head - 1);
    /* The first one begins a message, all others are empty continuations of it. */
    size_t size = sizeof fragments / 6 * 6;
    for (size_t i = 0; i < size; i += 6)
        memcpy(fragments + i, "\0\x80\0\0\0\0", 6);
    fragments[0] = 2;
    size_t before = 0, most = 0;
    for (int round = 0; round < 12; round++) {
        size_t sent = 0;
        while (sent < size) {
            size_t piece = size - sent < 65536 ? size - sent : 65536;
            ssize_t count = send(peer, fragments + sent, piece, MSG_NOSIGNAL);
            REQUIRE(count > 0);
            sent += (size_t)count;
            size_t now = resident_bytes();
            if (now > most)
                most = now;
        }
        fragments[0] = 0;
        if (round == 1)
            before = most;
    }
    if (!TEST_HAS_SANITIZER)
        CHECK_AT_MOST(most - before, 2 << 20);
    size_t connections = 0;
    CHECK_OK(blip_listener_connection_count(pair.listener, &connections));
    CHECK_INT(connections, 1);
    close(peer);
    pair_close(&pair);
}
