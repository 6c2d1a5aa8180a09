#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void sleep_ms(int64_t milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        continue;
}

bool test_check_text(blip_slice slice, const char *text, const char *file, int line, const char *what)
{
    return test_check_bytes(slice.data, slice.size, text, strlen(text), file, line, what);
}

__attribute__((constructor)) static void name_statuses(void)
{
    test_status_name = blip_status_name;
}

/* ---- counters ---- */

void counter_init(struct counter *counter)
{
    pthread_mutex_init(&counter->mutex, NULL);
    pthread_cond_init(&counter->changed, NULL);
    counter->value = 0;
}

void counter_add(struct counter *counter, int64_t amount)
{
    pthread_mutex_lock(&counter->mutex);
    counter->value += amount;
    pthread_cond_broadcast(&counter->changed);
    pthread_mutex_unlock(&counter->mutex);
}

int64_t counter_get(struct counter *counter)
{
    pthread_mutex_lock(&counter->mutex);
    int64_t value = counter->value;
    pthread_mutex_unlock(&counter->mutex);
    return value;
}

bool counter_wait(struct counter *counter, int64_t at_least, int64_t milliseconds)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += milliseconds / 1000;
    end.tv_nsec += milliseconds % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&counter->mutex);
    int result = 0;
    while (counter->value < at_least && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&counter->changed, &counter->mutex, &end);
    bool reached = counter->value >= at_least;
    pthread_mutex_unlock(&counter->mutex);
    return reached;
}

void count_release(void *context)
{
    counter_add(context, 1);
}

/* ---- bodies ---- */

uint32_t checksum(uint32_t so_far, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        so_far = (so_far ^ bytes[i]) * 16777619u + 1;
    return so_far;
}

static unsigned char pattern_byte(uint64_t position, uint32_t seed)
{
    uint64_t word = (position / 8 + seed) * UINT64_C(0x9E3779B97F4A7C15);
    word ^= word >> 29;
    return (unsigned char)(word >> position % 8 * 8);
}

void fill_pattern(void *data, size_t size, uint64_t position, uint32_t seed)
{
    unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        bytes[i] = pattern_byte(position + i, seed);
}

bool matches_pattern(const void *data, size_t size, uint64_t position, uint32_t seed)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != pattern_byte(position + i, seed))
            return false;
    return true;
}

/* ---- outcomes ---- */

void outcome_init(struct outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    counter_init(&outcome->done);
    outcome->status = BLIP_OK;
    outcome->type = -1;
}

void outcome_response(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct outcome *outcome = context;
    bool mine = false;
    CHECK(connection != NULL);
    CHECK_OK(blip_message_is_mine(request, &mine));
    CHECK(mine);
    CHECK_INT(atomic_load(&outcome->released), 0);
    CHECK_INT(counter_get(&outcome->done), 0);
    outcome->status = status;
    if (status != BLIP_OK) {
        CHECK_POINTER(response, NULL);
    } else if (CHECK(response != NULL)) {
        blip_slice body;
        CHECK_OK(blip_message_type(response, &outcome->type));
        if (CHECK_OK(blip_message_body(response, &body))) {
            outcome->size = body.size;
            outcome->checksum = checksum(0, body.data, body.size);
            size_t shown = body.size < sizeof outcome->text - 1 ? body.size : sizeof outcome->text - 1;
            if (shown > 0)
                memcpy(outcome->text, body.data, shown);
        }
        if (outcome->type == BLIP_MESSAGE_ERROR) {
            blip_error *error = NULL;
            blip_slice domain;
            if (CHECK_OK(blip_message_error(response, &error)) && CHECK_OK(blip_error_code(error, &outcome->error_code))
                && CHECK_OK(blip_error_domain(error, &domain)) && CHECK_AT_MOST(domain.size, 63))
                memcpy(outcome->error_domain, domain.data, domain.size);
        }
    }
    counter_add(&outcome->done, 1);
}

void outcome_release(void *context)
{
    struct outcome *outcome = context;
    CHECK_INT(atomic_fetch_add(&outcome->released, 1), 0);
}

bool outcome_wait(struct outcome *outcome)
{
    if (!counter_wait(&outcome->done, 1, SOON))
        return false;
    int64_t end = now_ms() + SOON;
    while (!outcome->no_release && atomic_load(&outcome->released) == 0 && now_ms() < end)
        sleep_ms(1);
    return true;
}

/* ---- requests ---- */

blip_message *make_request(const char *profile, const char *body)
{
    blip_message *request = NULL;
    REQUIRE_OK(blip_request_new(S(profile), &request));
    if (body != NULL)
        REQUIRE_OK(blip_message_set_body(request, S(body)));
    return request;
}

blip_status send_request(blip_connection *connection, const char *profile, const char *body, struct outcome *outcome)
{
    blip_message *request = make_request(profile, body);
    outcome_init(outcome);
    blip_status status = blip_connection_send(connection, request, outcome_response, outcome, outcome_release);
    blip_message_release(request);
    return status;
}

blip_runtime *make_runtime(uint32_t threads)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    REQUIRE(options != NULL);
    REQUIRE_OK(blip_runtime_options_set_threads(options, threads));
    REQUIRE_OK(blip_runtime_new(options, &runtime));
    blip_runtime_options_release(options);
    REQUIRE(runtime != NULL);
    return runtime;
}

void drop_runtime(blip_runtime *runtime)
{
    CHECK_OK(blip_runtime_stop(runtime, SOON));
    blip_runtime_release(runtime);
}

/* ---- the server's handlers ---- */

static blip_status handle_echo(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    blip_slice body, type;
    blip_message *response = NULL;
    blip_slice key = S("Compressed"), value;
    CHECK_OK(blip_message_body(request, &body));
    CHECK_OK(blip_message_content_type(request, &type));
    if (blip_message_property(request, key, &value) != BLIP_OK)
        return blip_message_respond_data(request, body, type);
    CHECK_OK(blip_response_new(request, &response));
    CHECK_OK(blip_message_set_body(response, body));
    CHECK_OK(blip_message_set_compressed(response, true));
    blip_status status = blip_message_respond(request, response);
    blip_message_release(response);
    return status;
}

static blip_status handle_empty(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_OK;
}

static blip_status handle_fail(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_ERROR_STATE;
}

/* Handles kept for ever, so that they are not answered with 501. */
static blip_status handle_never(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_defer(request));
    blip_message_retain(request);
    return BLIP_OK;
}

static void *answer_later(void *context)
{
    blip_message *request = context;
    blip_slice body;
    sleep_ms(50);
    /* The connection may have ended meanwhile. */
    if (blip_message_body(request, &body) == BLIP_OK)
        blip_message_respond_data(request, body, S(""));
    blip_message_release(request);
    return NULL;
}

static blip_status handle_slow(blip_connection *connection, blip_message *request, void *context)
{
    pthread_t thread;
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_defer(request));
    CHECK_INT(pthread_create(&thread, NULL, answer_later, blip_message_retain(request)), 0);
    pthread_detach(thread);
    return BLIP_OK;
}

static blip_status handle_error(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    return blip_message_respond_error(request, S("TestDomain"), -7, S("went wrong"));
}

static blip_status handle_sink(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice body;
    char text[32];
    (void)connection;
    (void)context;
    CHECK_OK(blip_message_body(request, &body));
    snprintf(text, sizeof text, "%zu", body.size);
    return blip_message_respond_text(request, S(text));
}

static blip_status handle_source(blip_connection *connection, blip_message *request, void *context)
{
    blip_slice value;
    char text[32] = "";
    (void)connection;
    (void)context;
    if (!CHECK_OK(blip_message_property(request, S("Size"), &value)) || !CHECK_AT_MOST(value.size, 20))
        return BLIP_ERROR_ARGUMENT;
    memcpy(text, value.data, value.size);
    size_t size = strtoull(text, NULL, 10);
    unsigned char *body = malloc(size + 1);
    if (!CHECK(body != NULL))
        return BLIP_ERROR_RESOURCES;
    fill_pattern(body, size, 0, 7);
    blip_status status = blip_message_respond_data(request, bytes_slice(body, size), S("application/octet-stream"));
    free(body);
    return status;
}

void set_server_handlers(blip_listener *listener)
{
    static const struct {
        const char *profile;
        blip_request_fn fn;
    } handlers[] = {{"echo", handle_echo}, {"empty", handle_empty}, {"fail", handle_fail}, {"never", handle_never},
        {"slow", handle_slow}, {"error", handle_error}, {"sink", handle_sink}, {"source", handle_source}};
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        REQUIRE_OK(blip_listener_set_handler(listener, S(handlers[i].profile), 0, handlers[i].fn, NULL, NULL));
}

/* ---- pairs ---- */

static void pair_server_opened(blip_connection *connection, void *context)
{
    struct pair *pair = context;
    blip_connection_release(pair->accepted);
    pair->accepted = blip_connection_retain(connection);
    counter_add(&pair->server_opened, 1);
}

static void pair_server_closed(blip_connection *connection, blip_status status, void *context)
{
    struct pair *pair = context;
    (void)connection;
    (void)status;
    counter_add(&pair->server_closed, 1);
}

static void pair_client_closed(blip_connection *connection, blip_status status, void *context)
{
    struct pair *pair = context;
    (void)connection;
    CHECK_INT(counter_get(&pair->client_closed), 0);
    pair->client_status = status;
    counter_add(&pair->client_closed, 1);
}

static blip_runtime *make_runtime_with_queue(blip_queue *queue)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    REQUIRE(options != NULL);
    if (queue != NULL)
        REQUIRE_OK(blip_runtime_options_set_queue(options, queue));
    REQUIRE_OK(blip_runtime_new(options, &runtime));
    blip_runtime_options_release(options);
    return runtime;
}

void pair_open(struct pair *pair, const struct pair_options *given)
{
    static const struct pair_options none;
    const struct pair_options *options = given != NULL ? given : &none;
    memset(pair, 0, sizeof *pair);
    counter_init(&pair->server_opened);
    counter_init(&pair->server_closed);
    counter_init(&pair->client_closed);
    pair->client_status = 12345;
    pair->server_runtime = make_runtime_with_queue(options->server_queue);
    pair->client_runtime = make_runtime_with_queue(options->client_queue);

    REQUIRE_OK(blip_listener_new(pair->server_runtime, options->listener, &pair->listener));
    blip_listener_options_release(options->listener);
    set_server_handlers(pair->listener);
    REQUIRE_OK(blip_listener_set_open_callback(pair->listener, pair_server_opened, pair, NULL));
    REQUIRE_OK(blip_listener_set_close_callback(pair->listener, pair_server_closed, pair, NULL));
    if (options->unix_path != NULL)
        REQUIRE_OK(blip_listener_start_unix(pair->listener, S(options->unix_path)));
    else
        REQUIRE_OK(blip_listener_start(pair->listener, S("127.0.0.1"), 0));
    blip_slice url;
    REQUIRE_OK(blip_listener_url(pair->listener, &url));
    REQUIRE(url.size < sizeof pair->url);
    memcpy(pair->url, url.data, url.size);
    if (options->no_client) {
        blip_connection_options_release(options->client);
        return;
    }
    const char *target = options->url != NULL ? options->url : pair->url;
    REQUIRE_OK(blip_connection_new(pair->client_runtime, S(target), options->client, &pair->client));
    blip_connection_options_release(options->client);
    REQUIRE_OK(blip_connection_set_close_callback(pair->client, pair_client_closed, pair, NULL));
    REQUIRE_OK(blip_connection_wait_open(pair->client, SOON));
    REQUIRE_REACHES(&pair->server_opened, 1);
}

void pair_close(struct pair *pair)
{
    if (pair->client != NULL) {
        blip_connection_close(pair->client, 1000, S(""));
        CHECK(counter_wait(&pair->client_closed, 1, SOON));
        CHECK_OK(blip_connection_wait_closed(pair->client, SOON));
    }
    CHECK_OK(blip_listener_stop(pair->listener, false, 1000));
    CHECK_OK(blip_listener_wait_stopped(pair->listener, SOON));
    CHECK(counter_wait(&pair->server_closed, counter_get(&pair->server_opened), SOON));
    blip_connection_release(pair->client);
    blip_connection_release(pair->accepted);
    blip_listener_release(pair->listener);
    CHECK_OK(blip_runtime_stop(pair->client_runtime, SOON));
    CHECK_OK(blip_runtime_stop(pair->server_runtime, SOON));
    blip_runtime_release(pair->client_runtime);
    blip_runtime_release(pair->server_runtime);
    if (pair->client != NULL)
        CHECK_INT(counter_get(&pair->client_closed), 1);
}

void expect_echo(blip_connection *connection, const char *text)
{
    struct outcome outcome;
    REQUIRE_OK(send_request(connection, "echo", text, &outcome));
    REQUIRE(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    CHECK(strcmp(outcome.text, text) == 0);
}

blip_status ask_once(blip_connection *connection, char *text, size_t size)
{
    blip_error *error = NULL;
    blip_slice message;
    blip_status status = blip_connection_wait_open(connection, SOON);
    if (status == BLIP_OK) {
        struct outcome outcome;
        CHECK_OK(send_request(connection, "echo", "x", &outcome));
        CHECK(outcome_wait(&outcome));
        status = outcome.status; /* a server may refuse a certificate only after the client believes it is connected */
    }
    snprintf(text, size, "no error");
    if (blip_connection_error(connection, &error) == BLIP_OK && blip_error_message(error, &message) == BLIP_OK)
        snprintf(text, size, "%.*s", (int)message.size, (const char *)message.data);
    test_note("%s: %s", blip_status_name(status), text);
    blip_connection_close(connection, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
    return status;
}

/* ---- the system ---- */

static int bind_loopback(uint16_t *port)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(descriptor >= 0);
    REQUIRE_INT(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    REQUIRE_INT(getsockname(descriptor, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return descriptor;
}

uint16_t open_silent_server(int *descriptor)
{
    uint16_t port;
    *descriptor = bind_loopback(&port);
    REQUIRE_INT(listen(*descriptor, 16), 0);
    return port;
}

uint16_t unused_port(void)
{
    uint16_t port;
    close(bind_loopback(&port));
    return port;
}

static char directory[64];
static pid_t directory_owner;

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directory(void)
{
    if (getpid() == directory_owner)
        nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *temporary_directory(void)
{
    if (directory_owner == getpid())
        return directory;
    const char *parent = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
    REQUIRE(snprintf(directory, sizeof directory, "%s/blip-XXXXXX", parent) < (int)sizeof directory);
    REQUIRE(mkdtemp(directory) != NULL);
    directory_owner = getpid();
    atexit(remove_directory);
    return directory;
}

void shell(const char *format, ...)
{
    char command[2000], whole[2300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    snprintf(whole, sizeof whole, "cd '%s' && (%s) >log 2>&1 || { cat log >&2; exit 1; }", temporary_directory(),
        command);
    REQUIRE_INT(system(whole), 0);
}

static size_t count_entries(const char *path)
{
    DIR *stream = opendir(path);
    size_t count = 0;
    REQUIRE(stream != NULL);
    while (readdir(stream) != NULL)
        count++;
    closedir(stream);
    return count - 2;
}

size_t open_descriptors(void)
{
    return count_entries("/proc/self/fd") - 1;
}

size_t own_threads(void)
{
    return count_entries("/proc/self/task");
}

size_t resident_bytes(void)
{
    size_t whole = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL);
    REQUIRE_INT(fscanf(file, "%zu %zu", &whole, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

int64_t processor_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return ((int64_t)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

struct kept_trust {
    struct counter asked;
    blip_trust *trust;
};

static void keep_trust(blip_connection *connection, blip_trust *trust, void *context)
{
    struct kept_trust *kept = context;
    (void)connection;
    kept->trust = blip_trust_retain(trust);
    counter_add(&kept->asked, 1);
}

blip_trust *make_trust(blip_runtime *runtime)
{
    char command[1200], file[160];
    struct kept_trust kept = {.trust = NULL};
    blip_listener *listener = NULL;
    blip_connection *connection = NULL;
    blip_slice url;
    counter_init(&kept.asked);
    snprintf(file, sizeof file, "%s/judged.pem", temporary_directory());
    snprintf(command, sizeof command,
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout '%s.key' -out '%s.crt' -days 2 "
        "-subj /CN=judged 2>/dev/null && cat '%s.key' '%s.crt' > '%s'",
        file, file, file, file, file);
    REQUIRE_INT(system(command), 0);
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_set_tls_identity(options, S(file), S("")));
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_listener_options_release(options);
    REQUIRE_OK(blip_listener_start(listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_url(listener, &url));
    REQUIRE_OK(blip_connection_new(runtime, url, NULL, &connection));
    REQUIRE_OK(blip_connection_set_trust_callback(connection, keep_trust, &kept, NULL));
    REQUIRE_OK(blip_connection_connect(connection));
    REQUIRE_REACHES(&kept.asked, 1);
    blip_connection_close(connection, 1000, S(""));
    CHECK_OK(blip_connection_wait_closed(connection, SOON));
    blip_connection_release(connection);
    blip_listener_stop(listener, false, 0);
    CHECK_OK(blip_listener_wait_stopped(listener, SOON));
    blip_listener_release(listener);
    return kept.trust;
}

struct challenged {
    struct counter told;
    blip_challenge *challenge;
};

static void keep_challenge(blip_connection *connection, blip_challenge *challenge, void *context)
{
    struct challenged *challenged = context;
    (void)connection;
    challenged->challenge = blip_challenge_retain(challenge);
    counter_add(&challenged->told, 1);
}

static void *ask_who_it_is(void *argument)
{
    static const char answer[] =
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"\r\nContent-Length: 0\r\n\r\n";
    int descriptor = accept(*(int *)argument, NULL, NULL);
    char head[4096];
    size_t size = 0;
    ssize_t count;
    while (size < sizeof head && (count = read(descriptor, head + size, sizeof head - size)) > 0) {
        size += (size_t)count;
        if (size >= 4 && memcmp(head + size - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    if (write(descriptor, answer, sizeof answer - 1) < 0)
        test_note("the answer could not be written");
    close(descriptor);
    return NULL;
}

blip_challenge *make_challenge(blip_runtime *runtime)
{
    struct challenged challenged = {COUNTER, NULL};
    blip_connection *connection = NULL;
    pthread_t thread;
    char url[64];
    int descriptor = -1;
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", open_silent_server(&descriptor));
    REQUIRE_INT(pthread_create(&thread, NULL, ask_who_it_is, &descriptor), 0);
    REQUIRE_OK(blip_connection_new(runtime, S(url), NULL, &connection));
    REQUIRE_OK(blip_connection_set_challenge_callback(connection, keep_challenge, &challenged, NULL));
    REQUIRE_OK(blip_connection_connect(connection));
    REQUIRE_REACHES(&challenged.told, 1);
    pthread_join(thread, NULL);
    close(descriptor);
    blip_connection_release(connection);
    return challenged.challenge;
}
