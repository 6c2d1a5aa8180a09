/* Figures of connections, listeners and runtimes: right, of one moment, added up, and as text. */

#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static uint64_t figure(blip_counters *counters, int32_t which)
{
    uint64_t value = UINT64_MAX;
    CHECK_OK(blip_counters_value(counters, which, &value));
    return value;
}

static void ask(blip_connection *connection, const char *profile, const char *body, bool compressed)
{
    blip_message *request = make_request(profile, body), *response = NULL;
    CHECK_OK(blip_message_set_compressed(request, compressed));
    REQUIRE_OK(blip_connection_request(connection, request, SOON, &response));
    blip_message_release(response);
    blip_message_release(request);
}

/* What the loop publishes at the end of its turn may come a moment after the response. */
static bool connection_reaches(blip_connection *connection, int32_t which, uint64_t value)
{
    for (int64_t end = now_ms() + SOON; now_ms() < end; sleep_ms(5)) {
        blip_counters *counters = NULL;
        REQUIRE_OK(blip_connection_counters(connection, &counters));
        bool reached = figure(counters, which) >= value;
        blip_counters_release(counters);
        if (reached)
            return true;
    }
    return false;
}

static bool runtime_reaches(blip_runtime *runtime, int32_t which, uint64_t value, bool falling)
{
    for (int64_t end = now_ms() + SOON; now_ms() < end; sleep_ms(5)) {
        blip_counters *counters = NULL;
        REQUIRE_OK(blip_runtime_counters(runtime, &counters));
        uint64_t now = figure(counters, which);
        blip_counters_release(counters);
        if (falling ? now <= value : now >= value)
            return true;
    }
    return false;
}

TEST(a_connection_counts_what_it_does)
{
    enum { TIMES = 20 };
    struct pair pair;
    blip_counters *counters = NULL;
    char text[4001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    pair_open(&pair, NULL);
    for (int i = 0; i < TIMES; i++)
        ask(pair.client, "echo", text, true);
    ask(pair.client, "error", "", false);
    CHECK(connection_reaches(pair.client, BLIP_COUNTER_ROUND_TRIPS, TIMES + 1));
    CHECK(connection_reaches(pair.client, BLIP_COUNTER_MESSAGES_RECEIVED, TIMES + 1));
    REQUIRE_OK(blip_connection_counters(pair.client, &counters));
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_SENT), TIMES + 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), TIMES + 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_FRAMES_SENT), TIMES + 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_ERRORS_RECEIVED), 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_ERRORS_SENT), 0);
    CHECK_INT(figure(counters, BLIP_COUNTER_REQUESTS_PENDING), 0);
    CHECK_INT(figure(counters, BLIP_COUNTER_BACKLOG), 0);
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS), 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS_OPENED), 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS_FAILED), 0);
    uint64_t raw = figure(counters, BLIP_COUNTER_COMPRESSION_INPUT);
    uint64_t wire = figure(counters, BLIP_COUNTER_COMPRESSION_OUTPUT);
    CHECK_AT_LEAST((int64_t)raw, TIMES * 4000);
    CHECK_AT_MOST((int64_t)wire, (int64_t)raw / 10);
    blip_counters *peer = NULL;
    REQUIRE_OK(blip_listener_counters(pair.listener, &peer));
    CHECK_INT(figure(peer, BLIP_COUNTER_DECOMPRESSION_OUTPUT), raw);
    CHECK_INT(figure(peer, BLIP_COUNTER_DECOMPRESSION_INPUT), wire);
    blip_counters_release(peer);
    CHECK_AT_MOST((int64_t)figure(counters, BLIP_COUNTER_BYTES_SENT), (int64_t)raw / 5);
    CHECK_AT_LEAST((int64_t)figure(counters, BLIP_COUNTER_BYTES_SENT), (int64_t)wire);

    /* The histogram has every round trip once, and its percentiles rise. */
    uint64_t sum = 0, end = 0, before = 0, count = 0;
    size_t index = 0;
    while (blip_counters_bucket(counters, index, &end, &count) == BLIP_OK) {
        CHECK(end > before);
        before = end;
        sum += count;
        index++;
    }
    CHECK(end == UINT64_MAX);
    CHECK_INT(sum, TIMES + 1);
    int64_t least = -1, median = -1, most = -1;
    CHECK_OK(blip_counters_percentile(counters, 0, &least));
    CHECK_OK(blip_counters_percentile(counters, 50, &median));
    CHECK_OK(blip_counters_percentile(counters, 100, &most));
    CHECK(0 < least && least <= median && median <= most && most < 60000000);
    CHECK_AT_LEAST((int64_t)figure(counters, BLIP_COUNTER_ROUND_TRIP_TIME), median / 2);
    CHECK_STATUS(blip_counters_percentile(counters, 101, &most), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_counters_percentile(counters, -1, &most), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_counters_value(counters, 9999, &sum), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_counters_value(counters, 0, &sum), BLIP_ERROR_ARGUMENT);

    /* Adding: twice as many, the same percentiles. */
    blip_counters *total = blip_counters_new();
    CHECK_STATUS(blip_counters_percentile(total, 50, &most), BLIP_ERROR_NOT_FOUND);
    CHECK_OK(blip_counters_add(total, counters));
    CHECK_OK(blip_counters_add(total, counters));
    CHECK_INT(figure(total, BLIP_COUNTER_ROUND_TRIPS), 2 * (TIMES + 1));
    CHECK_INT(figure(total, BLIP_COUNTER_MESSAGES_SENT), 2 * (TIMES + 1));
    CHECK_OK(blip_counters_percentile(total, 50, &most));
    CHECK_INT(most, median);
    /* With itself. */
    CHECK_OK(blip_counters_add(total, total));
    CHECK_INT(figure(total, BLIP_COUNTER_MESSAGES_SENT), 4 * (TIMES + 1));
    blip_counters_release(total);
    blip_counters_release(counters);
    pair_close(&pair);
}

TEST(an_ended_connection_stays_in_the_sums)
{
    struct pair pair;
    blip_counters *counters = NULL;
    pair_open(&pair, NULL);
    for (int i = 0; i < 3; i++) {
        blip_connection *more = NULL;
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &more));
        REQUIRE_OK(blip_connection_wait_open(more, SOON));
        ask(more, "echo", "hello", false);
        REQUIRE_OK(blip_connection_close(more, 1000, S("")));
        REQUIRE_OK(blip_connection_wait_closed(more, SOON));
        blip_connection_release(more);
    }
    ask(pair.client, "echo", "hello", false);
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_ROUND_TRIPS, 4, false));
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_MESSAGES_RECEIVED, 4, false));
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_CONNECTIONS, 1, true));
    REQUIRE_OK(blip_runtime_counters(pair.client_runtime, &counters));
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS_OPENED), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS), 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_SENT), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_REQUESTS_PENDING), 0);
    blip_counters_release(counters);

    CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_MESSAGES_SENT, 4, false));
    CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_CONNECTIONS, 1, true));
    REQUIRE_OK(blip_listener_counters(pair.listener, &counters));
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS_OPENED), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_CONNECTIONS), 1);
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_SENT), 4);
    CHECK_INT(figure(counters, BLIP_COUNTER_ROUND_TRIPS), 0);
    blip_counters_release(counters);
    pair_close(&pair);
}

/* The first ones are counted without a table of all buckets, which is then made. */
TEST(every_round_trip_is_counted_once)
{
    static const int times[] = {1, 7, 40, 900};
    struct pair pair;
    uint64_t asked = 0, trips_before = 0;
    pair_open(&pair, NULL);
    for (size_t step = 0; step < sizeof times / sizeof *times; step++) {
        for (int i = 0; i < times[step]; i++)
            ask(pair.client, "echo", "hello", false);
        asked += (uint64_t)times[step];
        CHECK(connection_reaches(pair.client, BLIP_COUNTER_ROUND_TRIPS, asked));
        blip_counters *one = NULL, *all = NULL;
        REQUIRE_OK(blip_connection_counters(pair.client, &one));
        REQUIRE_OK(blip_runtime_counters(pair.client_runtime, &all));
        CHECK_INT(figure(one, BLIP_COUNTER_ROUND_TRIPS), asked);
        uint64_t time = figure(one, BLIP_COUNTER_ROUND_TRIP_TIME);
        CHECK_INT(figure(all, BLIP_COUNTER_ROUND_TRIP_TIME), time);
        CHECK(time > trips_before);
        trips_before = time;
        uint64_t end = 0, of_one = 0, of_all = 0;
        for (size_t index = 0; blip_counters_bucket(one, index, &end, &of_one) == BLIP_OK; index++) {
            REQUIRE_OK(blip_counters_bucket(all, index, &end, &of_all));
            CHECK_INT(of_one, of_all);
        }
        blip_counters_release(one);
        blip_counters_release(all);
    }
    pair_close(&pair);
}

/* More than a loop keeps apart until somebody asks. */
TEST(many_connections_are_added_up)
{
    enum { COUNT = 700 };
    static blip_connection *many[COUNT];
    struct pair pair;
    blip_counters *counters = NULL;
    pair_open(&pair, NULL);
    for (int i = 0; i < COUNT; i++) {
        REQUIRE_OK(blip_listener_connect(pair.listener, pair.client_runtime, NULL, &many[i]));
        REQUIRE_OK(blip_connection_wait_open(many[i], SOON));
    }
    for (uint64_t round = 1; round <= 2; round++) {
        for (int i = 0; i < COUNT; i++)
            ask(many[i], "echo", "hello", false);
        CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_MESSAGES_RECEIVED, round * COUNT, false));
        CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_MESSAGES_SENT, round * COUNT, false));
        REQUIRE_OK(blip_runtime_counters(pair.client_runtime, &counters));
        CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), round * COUNT);
        CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_SENT), round * COUNT);
        CHECK_INT(figure(counters, BLIP_COUNTER_ROUND_TRIPS), round * COUNT);
        CHECK_INT(figure(counters, BLIP_COUNTER_REQUESTS_PENDING), 0);
        blip_counters_release(counters);
        REQUIRE_OK(blip_listener_counters(pair.listener, &counters));
        CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), round * COUNT);
        blip_counters_release(counters);
    }
    for (int i = 0; i < COUNT; i++) {
        REQUIRE_OK(blip_connection_close(many[i], 1000, S("")));
        REQUIRE_OK(blip_connection_wait_closed(many[i], SOON));
        blip_connection_release(many[i]);
    }
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_CONNECTIONS, 1, true));
    REQUIRE_OK(blip_runtime_counters(pair.client_runtime, &counters));
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_RECEIVED), 2 * COUNT);
    blip_counters_release(counters);
    pair_close(&pair);
}

TEST(who_is_refused_is_counted)
{
    struct pair pair;
    blip_connection *other = NULL;
    blip_listener_options *options = blip_listener_options_new();
    char url[200];
    CHECK_OK(blip_listener_options_add_path(options, S("/here")));
    struct pair_options with = {.listener = options, .no_client = true};
    pair_open(&pair, &with);
    snprintf(url, sizeof url, "%.*s/there", (int)(strrchr(pair.url, '/') - pair.url), pair.url);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), NULL, &other));
    CHECK_STATUS(blip_connection_wait_open(other, SOON), BLIP_ERROR_HTTP_STATUS);
    blip_connection_release(other);
    CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_CONNECTIONS_FAILED, 1, false));
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_CONNECTIONS_FAILED, 1, false));
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_CONNECTIONS_OPENED, 0, true));
    pair_close(&pair);
}

/* Inside callbacks the figures are those of now. */
static uint64_t seen_sent, seen_received, seen_bytes;

static void look(blip_connection *connection)
{
    const int32_t which[] = {
        BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_MESSAGES_RECEIVED, BLIP_COUNTER_BYTES_RECEIVED};
    uint64_t values[3] = {0};
    CHECK_OK(blip_connection_counter_values(connection, which, values, 3));
    seen_sent = values[0], seen_received = values[1], seen_bytes = values[2];
}

static void look_at_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    (void)request, (void)response, (void)status;
    look(connection);
    counter_add(context, 1);
}

static void look_at_opening(blip_connection *connection, void *context)
{
    look(connection);
    counter_add(context, 1);
}

TEST(callbacks_see_the_figures_of_now)
{
    struct pair pair;
    struct counter done = COUNTER;
    blip_connection *other = NULL;
    pair_open(&pair, NULL);
    for (int i = 1; i <= 10; i++) {
        blip_message *request = make_request("echo", "hello");
        REQUIRE_OK(blip_connection_send(pair.client, request, look_at_response, &done, NULL));
        blip_message_release(request);
        REQUIRE_REACHES(&done, i);
        CHECK_INT(seen_sent, i);
        CHECK_INT(seen_received, i);
        CHECK_AT_LEAST((int64_t)seen_bytes, 100 + 10 * i);
    }
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), NULL, &other));
    REQUIRE_OK(blip_connection_set_open_callback(other, look_at_opening, &done, NULL));
    REQUIRE_OK(blip_connection_connect(other));
    REQUIRE_REACHES(&done, 11);
    CHECK_AT_LEAST((int64_t)seen_bytes, 100);
    blip_connection_close(other, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(other, SOON));
    blip_connection_release(other);
    pair_close(&pair);
}

/* Connects, says so much, and reads to the end. */
static size_t http(const struct pair *pair, const char *request, char *answer, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    uint16_t port = 0;
    size_t used = 0;
    REQUIRE_OK(blip_listener_port(pair->listener, &port));
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval time = {.tv_sec = SOON / 1000};
    REQUIRE_INT(setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
    REQUIRE_INT(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    REQUIRE_INT(write(descriptor, request, strlen(request)), (ssize_t)strlen(request));
    for (ssize_t got; used < size - 1 && (got = read(descriptor, answer + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    answer[used] = 0;
    close(descriptor);
    return used;
}

TEST(plain_http_gets_the_metrics)
{
    static char answer[100000];
    struct pair pair;
    blip_listener_options *options = blip_listener_options_new();
    CHECK_STATUS(blip_listener_options_set_metrics_path(options, S("metrics")), BLIP_ERROR_ARGUMENT);
    CHECK_STATUS(blip_listener_options_set_metrics_path(options, S("/a b")), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_listener_options_set_metrics_path(options, S("/metrics")));
    struct pair_options with = {.listener = options};
    pair_open(&pair, &with);
    ask(pair.client, "echo", "hello", false);
    ask(pair.client, "error", "", false);
    CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_MESSAGES_SENT, 2, false));

    http(&pair, "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17) == 0);
    CHECK(strstr(answer, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != NULL);
    CHECK(strstr(answer, "\nblip_connections 1\n") != NULL);
    CHECK(strstr(answer, "\nblip_messages_total{direction=\"sent\"} 2\n") != NULL);
    CHECK(strstr(answer, "\nblip_error_responses_total{direction=\"sent\"} 1\n") != NULL);
    CHECK(strstr(answer, "\nblip_listener_connections{listener=\"ws://127.0.0.1:") != NULL);
    const char *length = strstr(answer, "Content-Length: ");
    const char *body = strstr(answer, "\r\n\r\n");
    REQUIRE(length != NULL && body != NULL);
    CHECK_INT(strlen(body + 4), atol(length + 16));

    http(&pair, "HEAD /metrics HTTP/1.0\r\n\r\n", answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17) == 0);
    CHECK(strcmp(strstr(answer, "\r\n\r\n"), "\r\n\r\n") == 0);
    http(&pair, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 405 ", 13) == 0);
    http(&pair, "GET /metrics/x HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 426 ", 13) == 0);
    /* BLIP goes on beside it, but not at that path. */
    ask(pair.client, "echo", "hello", false);
    blip_connection *other = NULL;
    char url[200];
    snprintf(url, sizeof url, "%.*s/metrics", (int)(strrchr(pair.url, '/') - pair.url), pair.url);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), NULL, &other));
    CHECK_STATUS(blip_connection_wait_open(other, SOON), BLIP_ERROR_HTTP_STATUS);
    blip_connection_release(other);
    pair_close(&pair);
}

TEST(the_text_lies_in_the_figures)
{
    struct pair pair;
    blip_counters *counters = NULL;
    blip_slice text = {0};
    pair_open(&pair, NULL);
    ask(pair.client, "echo", "hello", false);
    CHECK(runtime_reaches(pair.client_runtime, BLIP_COUNTER_MESSAGES_RECEIVED, 1, false));
    REQUIRE_OK(blip_runtime_metrics_text(pair.client_runtime, &counters, &text));
    REQUIRE(text.size > 1000);
    char *copy = malloc(text.size + 1);
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    CHECK(strstr(copy, "\n# TYPE blip_round_trip_seconds histogram\n") != NULL);
    CHECK(strstr(copy, "\nblip_round_trip_seconds_count 1\n") != NULL);
    CHECK(strstr(copy, "\nblip_round_trip_seconds_bucket{le=\"+Inf\"} 1\n") != NULL);
    CHECK(strstr(copy, "blip_listener_") == NULL);
    CHECK_INT(copy[text.size - 1], '\n');
    CHECK_INT(figure(counters, BLIP_COUNTER_MESSAGES_SENT), 1);
    free(copy);
    blip_counters_release(counters);
    /* The shared runtime has figures too. */
    counters = NULL;
    CHECK_OK(blip_runtime_metrics_text(NULL, &counters, &text));
    blip_counters_release(counters);
    pair_close(&pair);
}

TEST(figures_are_read_from_any_thread_while_traffic_flows)
{
    enum { TIMES = 300 };
    struct pair pair;
    struct counter done = COUNTER;
    pair_open(&pair, NULL);
    uint64_t before = 0;
    for (int i = 0; i < TIMES; i++) {
        blip_message *request = make_request("echo", "hello");
        REQUIRE_OK(blip_connection_send(pair.client, request, look_at_response, &done, NULL));
        blip_message_release(request);
        blip_counters *all = NULL, *one = NULL;
        REQUIRE_OK(blip_runtime_counters(pair.server_runtime, &all));
        REQUIRE_OK(blip_connection_counters(pair.client, &one));
        uint64_t now = figure(all, BLIP_COUNTER_MESSAGES_RECEIVED);
        CHECK(now >= before && now <= TIMES);
        before = now;
        CHECK(figure(one, BLIP_COUNTER_MESSAGES_SENT) <= (uint64_t)i + 1);
        blip_counters_release(all);
        blip_counters_release(one);
    }
    REQUIRE_REACHES(&done, TIMES);
    CHECK(runtime_reaches(pair.server_runtime, BLIP_COUNTER_MESSAGES_RECEIVED, TIMES, false));
    pair_close(&pair);
}
