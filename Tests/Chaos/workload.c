#define _GNU_SOURCE

#include "workload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S(text_) blip_text(text_)

/* How long anything may take that has to happen. */
enum { HANG = 120000 };

static blip_slice slice_of(const void *data, size_t size)
{
    return (blip_slice) {data, size};
}

/* ---- the server ---- */

enum { POCKETS = 64 };

struct server {
    blip_runtime *runtime;
    blip_listener *listener;
    char url[200];
    atomic_long opened, closed, asked, answered, asked_released;
    pthread_t worker;
    atomic_bool is_over;
    pthread_mutex_t mutex;
    blip_message *pocket[POCKETS];
    struct chance chance; /* of the worker */
};

static uint32_t number_property(blip_message *message, const char *key)
{
    blip_slice value;
    char text[16] = "";
    if (blip_message_property(message, S(key), &value) != BLIP_OK || value.size >= sizeof text)
        return 0;
    memcpy(text, value.data, value.size);
    return (uint32_t)strtoul(text, NULL, 10);
}

static void set_number(blip_message *message, const char *key, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    HOLDS(blip_message_set_property(message, S(key), S(text)) == BLIP_OK);
}

static void echo(blip_message *request)
{
    blip_slice body;
    blip_message *response = NULL;
    uint32_t flags = 0;
    if (blip_message_body(request, &body) != BLIP_OK || blip_response_new(request, &response) != BLIP_OK)
        return;
    blip_message_flags(request, &flags);
    blip_message_set_compressed(response, (flags & BLIP_FLAG_COMPRESSED) != 0);
    /* There may be no memory for it. */
    if (blip_message_set_body(response, body) == BLIP_OK)
        blip_message_respond(request, response);
    else
        blip_message_respond_error(request, S("BLIP"), 500, S("no memory"));
    blip_message_release(response);
}

static blip_status serve_echo(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)context;
    echo(request);
    return BLIP_OK;
}

static blip_status serve_later(blip_connection *connection, blip_message *request, void *context)
{
    struct server *server = context;
    (void)connection;
    if (blip_message_defer(request) != BLIP_OK)
        return BLIP_OK;
    blip_message *kept = blip_message_retain(request);
    pthread_mutex_lock(&server->mutex);
    for (int i = 0; i < POCKETS && kept != NULL; i++)
        if (server->pocket[i] == NULL) {
            server->pocket[i] = kept;
            kept = NULL;
        }
    pthread_mutex_unlock(&server->mutex);
    /* Nobody answers it then: the library does. */
    blip_message_release(kept);
    return BLIP_OK;
}

static void *answer_later(void *context)
{
    struct server *server = context;
    while (!atomic_load(&server->is_over)) {
        pthread_mutex_lock(&server->mutex);
        uint32_t place = chance_below(&server->chance, POCKETS);
        blip_message *request = server->pocket[place];
        server->pocket[place] = NULL;
        pthread_mutex_unlock(&server->mutex);
        if (request != NULL) {
            echo(request);
            blip_message_release(request);
        } else if (chance_one_in(&server->chance, 8)) {
            sleep_ms(1);
        }
    }
    return NULL;
}

static blip_status serve_source(blip_connection *connection, blip_message *request, void *context)
{
    uint32_t size = number_property(request, "Size"), seed = number_property(request, "Seed");
    unsigned char *bytes = malloc(size + 1);
    (void)connection;
    (void)context;
    if (bytes == NULL)
        return BLIP_ERROR_RESOURCES;
    fill_pattern(bytes, size, 0, seed);
    blip_status status = blip_message_respond_data(request, slice_of(bytes, size), S("application/octet-stream"));
    free(bytes);
    return status;
}

/* A streamed upload: counted and compared as it comes, answered at its end. */
struct upload {
    uint64_t size;
    uint32_t seed;
    bool is_wrong, is_over;
    blip_message *request;
};

static size_t upload_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct upload *upload = context;
    HOLDS(!upload->is_over);
    size_t taken = status == BLIP_OK && data.size > 3 ? data.size - data.size / 3 : data.size;
    if (!matches_pattern(data.data, taken, upload->size, upload->seed))
        upload->is_wrong = true;
    upload->size += taken;
    if (status == BLIP_DATA_END) {
        char text[40];
        snprintf(text, sizeof text, "%llu%s", (unsigned long long)upload->size, upload->is_wrong ? " wrong" : "");
        blip_message_respond_text(message, S(text));
    }
    upload->is_over = status != BLIP_OK;
    return taken;
}

static blip_status serve_upload(blip_connection *connection, blip_message *request, void *context)
{
    struct upload *upload = calloc(1, sizeof *upload);
    (void)connection;
    (void)context;
    upload->seed = number_property(request, "Seed");
    blip_message_set_data_callback(request, upload_data, upload, free);
    return BLIP_OK;
}

static blip_status serve_failure(blip_connection *connection, blip_message *request, void *context)
{
    (void)connection;
    (void)request;
    (void)context;
    return BLIP_ERROR_STATE;
}

static void back_answered(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct server *server = context;
    (void)connection;
    (void)request;
    HOLDS((status == BLIP_OK) == (response != NULL));
    atomic_fetch_add(&server->answered, 1);
}

static void back_released(void *context)
{
    struct server *server = context;
    atomic_fetch_add(&server->asked_released, 1);
}

/* Asks the client something in turn. */
static blip_status serve_back(blip_connection *connection, blip_message *request, void *context)
{
    struct server *server = context;
    blip_message *back = NULL;
    blip_slice body;
    if (blip_request_new(S("front"), &back) != BLIP_OK)
        return BLIP_OK;
    if (blip_message_body(request, &body) == BLIP_OK)
        blip_message_set_body(back, body);
    atomic_fetch_add(&server->asked, 1);
    if (blip_connection_send(connection, back, back_answered, server, back_released) != BLIP_OK)
        atomic_fetch_add(&server->answered, 1);
    blip_message_release(back);
    return BLIP_OK;
}

static blip_status serve_close(blip_connection *connection, blip_message *request, void *context)
{
    (void)request;
    (void)context;
    blip_connection_close(connection, 1000, S("as you wish"));
    return BLIP_OK;
}

static void server_opened(blip_connection *connection, void *context)
{
    struct server *server = context;
    (void)connection;
    atomic_fetch_add(&server->opened, 1);
}

static void server_closed(blip_connection *connection, blip_status status, void *context)
{
    struct server *server = context;
    (void)connection;
    (void)status;
    atomic_fetch_add(&server->closed, 1);
}

struct server *server_start(const struct server_options *options, blip_status *status)
{
    struct server *server = calloc(1, sizeof *server);
    blip_runtime_options *runtime = blip_runtime_options_new();
    blip_listener_options *listener = blip_listener_options_new();
    pthread_mutex_init(&server->mutex, NULL);
    server->chance.state = 1;
    blip_runtime_options_set_threads(runtime, options->threads);
    *status = blip_runtime_new(runtime, &server->runtime);
    blip_runtime_options_release(runtime);
    if (options->has_patience) {
        blip_listener_options_set_handshake_timeout(listener, HANG);
    } else {
        blip_listener_options_set_handshake_timeout(listener, 700);
        blip_listener_options_set_close_timeout(listener, 200);
        blip_listener_options_set_ping(listener, 100, 2);
    }
    if (options->certificate != NULL)
        blip_listener_options_set_tls_identity(listener, S(options->certificate), S(options->key));
    if (*status == BLIP_OK)
        *status = blip_listener_new(server->runtime, listener, &server->listener);
    blip_listener_options_release(listener);
    static const struct {
        const char *profile;
        blip_request_fn fn;
        uint32_t flags;
    } handlers[] = {{"echo", serve_echo, 0}, {"later", serve_later, 0}, {"source", serve_source, 0},
        {"upload", serve_upload, BLIP_HANDLER_STREAM}, {"fail", serve_failure, 0}, {"back", serve_back, 0},
        {"close", serve_close, 0}};
    if (*status == BLIP_OK) {
        for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
            HOLDS(blip_listener_set_handler(server->listener, S(handlers[i].profile), handlers[i].flags,
                handlers[i].fn, server, NULL) == BLIP_OK);
        HOLDS(blip_listener_set_open_callback(server->listener, server_opened, server, NULL) == BLIP_OK);
        HOLDS(blip_listener_set_close_callback(server->listener, server_closed, server, NULL) == BLIP_OK);
        *status = options->unix_path != NULL ? blip_listener_start_unix(server->listener, S(options->unix_path))
            : blip_listener_start(server->listener, S("127.0.0.1"), 0);
    }
    blip_slice url;
    if (*status == BLIP_OK)
        *status = blip_listener_url(server->listener, &url);
    if (*status != BLIP_OK) {
        blip_listener_release(server->listener);
        blip_runtime_stop(server->runtime, HANG);
        blip_runtime_release(server->runtime);
        free(server);
        return NULL;
    }
    snprintf(server->url, sizeof server->url, "%.*s", (int)url.size, (const char *)url.data);
    if (pthread_create(&server->worker, NULL, answer_later, server) != 0)
        abort();
    return server;
}

uint16_t server_port(struct server *server)
{
    uint16_t port = 0;
    HOLDS(blip_listener_port(server->listener, &port) == BLIP_OK);
    return port;
}

const char *server_url(struct server *server)
{
    return server->url;
}

size_t server_connections(struct server *server)
{
    size_t count = 0;
    HOLDS(blip_listener_connection_count(server->listener, &count) == BLIP_OK);
    return count;
}

bool server_settle(struct server *server)
{
    int64_t end = now_ms() + HANG;
    while (now_ms() < end) {
        long asked = atomic_load(&server->asked);
        if (server_connections(server) == 0 && atomic_load(&server->closed) >= atomic_load(&server->opened)
            && atomic_load(&server->answered) == asked && atomic_load(&server->asked_released) == asked)
            return true;
        sleep_ms(2);
    }
    finding("the server has %zu connections left, %ld of %ld opened are closed, %ld of %ld requests completed",
        server_connections(server), atomic_load(&server->closed), atomic_load(&server->opened),
        atomic_load(&server->answered), atomic_load(&server->asked));
    return false;
}

void server_stop(struct server *server)
{
    server_settle(server);
    HOLDS(blip_listener_stop(server->listener, false, 1000) == BLIP_OK);
    HOLDS(blip_listener_wait_stopped(server->listener, HANG) == BLIP_OK);
    atomic_store(&server->is_over, true);
    pthread_join(server->worker, NULL);
    for (int i = 0; i < POCKETS; i++)
        blip_message_release(server->pocket[i]);
    blip_listener_release(server->listener);
    HOLDS(blip_runtime_stop(server->runtime, HANG) == BLIP_OK);
    blip_runtime_release(server->runtime);
    long asked = atomic_load(&server->asked);
    HOLDS(atomic_load(&server->answered) == asked && atomic_load(&server->asked_released) == asked);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

/* ---- clients ---- */

enum kind { ECHO, LATER, SOURCE, STREAM, PULLED, PUSHED, FROM_FILE, NO_REPLY, FAIL, BACK, KINDS };

struct client;

struct item {
    struct client *client;
    enum kind kind;
    uint32_t size, seed;
    bool is_accepted, is_cancelled, has_timeout, is_answered;
    blip_message *message; /* to cancel, to push */
    atomic_int completions, releases;
    /* Of the data callback and of the body function. */
    atomic_int lent, given_back;
    uint64_t received, pulled, pushed;
    bool has_ended;
    uint32_t patience;
    unsigned char *body;
};

/* When the client closes. */
enum ending { WHEN_DONE, GRACEFULLY, SOMETIME, AT_ONCE, UNCONNECTED, IN_OPEN, IN_STATE, IN_RESPONSE, IN_DATA, IN_REQUEST,
    RELEASED, BY_SERVER, ENDINGS };

struct client {
    const struct workload *workload;
    struct chance chance; /* of the thread that runs the workload */
    enum ending ending;
    blip_connection *connection;
    bool has_queue;
    atomic_int opened, closed, responses;
    struct item *items;
    uint32_t count;
    int64_t closes_at;
    bool is_closing;
    blip_status status;
    _Atomic(uint64_t) body_bytes;
};

static void close_in(struct client *client, blip_connection *connection, enum ending ending)
{
    if (client->ending == ending)
        blip_connection_close(connection, 1000, S("inside"));
}

static void client_opened(blip_connection *connection, void *context)
{
    struct client *client = context;
    HOLDS(atomic_load(&client->closed) == 0);
    HOLDS(atomic_fetch_add(&client->opened, 1) == 0);
    close_in(client, connection, IN_OPEN);
}

static void client_state(blip_connection *connection, int32_t state, void *context)
{
    struct client *client = context;
    HOLDS(atomic_load(&client->closed) == 0);
    if (state == BLIP_STATE_CONNECTING)
        close_in(client, connection, IN_STATE);
}

static void client_closed(blip_connection *connection, blip_status status, void *context)
{
    struct client *client = context;
    (void)connection;
    client->status = status;
    for (uint32_t i = 0; i < client->count; i++)
        if (client->items[i].is_accepted && client->items[i].kind != NO_REPLY)
            HOLDS(atomic_load(&client->items[i].completions) == 1);
    HOLDS(atomic_fetch_add(&client->closed, 1) == 0);
}

static blip_status client_request(blip_connection *connection, blip_message *request, void *context)
{
    struct client *client = context;
    HOLDS(atomic_load(&client->closed) == 0);
    close_in(client, connection, IN_REQUEST);
    echo(request);
    return BLIP_OK;
}

static void item_released(void *context)
{
    struct item *item = context;
    HOLDS(atomic_fetch_add(&item->releases, 1) == 0);
}

static void item_given_back(void *context)
{
    struct item *item = context;
    atomic_fetch_add(&item->given_back, 1);
}

static size_t item_data(blip_message *message, blip_slice data, blip_status status, void *context)
{
    struct item *item = context;
    struct client *client = item->client;
    /* Through a queue it may have been set when the connection had ended already. */
    HOLDS(client->has_queue || atomic_load(&client->closed) == 0);
    HOLDS(!item->has_ended);
    size_t taken = status == BLIP_OK && item->seed % 3 == 0 ? data.size / 2 : data.size;
    HOLDS(matches_pattern(data.data, taken, item->received, item->seed));
    item->received += taken;
    atomic_fetch_add(&client->body_bytes, taken);
    item->has_ended = status != BLIP_OK;
    if (status == BLIP_DATA_END) {
        HOLDS(item->received == item->size);
        item->is_answered = true;
    }
    if (client->ending == IN_DATA) {
        blip_connection *connection = NULL;
        if (blip_message_connection(message, &connection) == BLIP_OK) {
            close_in(client, connection, IN_DATA);
            blip_connection_release(connection);
        }
    }
    return taken;
}

static void check_body(struct item *item, blip_message *response)
{
    blip_slice body;
    char text[40] = "", expected[40];
    if (blip_message_body(response, &body) != BLIP_OK) {
        finding("a response without its body");
        return;
    }
    item->is_answered = true;
    atomic_fetch_add(&item->client->body_bytes, body.size);
    switch (item->kind) {
    case ECHO: case LATER: case SOURCE:
        HOLDS(body.size == item->size && matches_pattern(body.data, body.size, 0, item->seed));
        break;
    case PULLED: case PUSHED: case FROM_FILE:
        snprintf(expected, sizeof expected, "%u", item->size);
        if (body.size < sizeof text)
            memcpy(text, body.data, body.size);
        if (strcmp(text, expected) != 0)
            finding("an upload of %u bytes is answered with \"%s\"", item->size, text);
        break;
    default: break;
    }
}

static void item_completed(
    blip_connection *connection, blip_message *request, blip_message *response, blip_status status, void *context)
{
    struct item *item = context;
    struct client *client = item->client;
    int32_t type = -1;
    (void)request;
    HOLDS(atomic_load(&client->closed) == 0);
    HOLDS(atomic_load(&item->releases) == 0);
    HOLDS(atomic_fetch_add(&item->completions, 1) == 0);
    HOLDS(status <= 0);
    if (item->kind == NO_REPLY) {
        HOLDS(response == NULL);
        item->is_answered = status == BLIP_OK;
    } else {
        HOLDS((status == BLIP_OK) == (response != NULL));
    }
    if (response != NULL && blip_message_type(response, &type) == BLIP_OK) {
        if (type == BLIP_MESSAGE_RESPONSE) {
            HOLDS(item->kind != FAIL);
            if (item->kind == STREAM) {
                atomic_fetch_add(&item->lent, 1);
                blip_message_set_data_callback(response, item_data, item, item_given_back);
            } else {
                check_body(item, response);
            }
        } else {
            item->is_answered = item->kind == FAIL || item->kind == LATER;
        }
    }
    if (atomic_fetch_add(&client->responses, 1) == 1)
        close_in(client, connection, IN_RESPONSE);
}

static blip_status pull(void *buffer, size_t capacity, size_t *written, void *context)
{
    struct item *item = context;
    uint64_t left = item->size - item->pulled;
    if (item->patience > 0 && --item->patience % 3 == 0)
        return BLIP_AGAIN;
    size_t size = left < capacity ? (size_t)left : capacity;
    if (size > 5000)
        size = 5000;
    fill_pattern(buffer, size, item->pulled, item->seed);
    item->pulled += size;
    *written = size;
    return item->pulled == item->size ? BLIP_DATA_END : BLIP_OK;
}

/* Hands over more of a pushed body; true: all of it. */
static void push(struct item *item)
{
    unsigned char piece[3000];
    for (int turn = 0; turn < 10 && item->message != NULL; turn++) {
        uint64_t left = item->size - item->pushed;
        size_t size = left < sizeof piece ? (size_t)left : sizeof piece;
        fill_pattern(piece, size, item->pushed, item->seed);
        blip_status status = blip_message_push_body(item->message, slice_of(piece, size), size == left);
        if (status == BLIP_AGAIN)
            return;
        item->pushed += size;
        if (status != BLIP_OK || size == left) {
            HOLDS(status == BLIP_OK || status == BLIP_ERROR_CLOSED || status == BLIP_ERROR_RESOURCES);
            blip_message_release(item->message);
            item->message = NULL;
        }
    }
}

static void send_item(struct client *client, struct item *item)
{
    static const char *const profiles[KINDS] = {
        "echo", "later", "source", "source", "upload", "upload", "upload", "echo", "fail", "back"};
    const struct workload *workload = client->workload;
    struct chance *chance = &client->chance;
    blip_message *request = NULL;
    item->client = client;
    item->kind = (enum kind)chance_below(chance, KINDS);
    if (item->kind == FROM_FILE && workload->file < 0)
        item->kind = ECHO;
    item->size = chance_size(chance, workload->largest);
    item->seed = chance_below(chance, 1000);
    if (blip_request_new(S(profiles[item->kind]), &request) != BLIP_OK)
        return;
    set_number(request, "Seed", item->seed);
    switch (item->kind) {
    case SOURCE: case STREAM:
        set_number(request, "Size", item->size);
        blip_message_set_streamed(request, item->kind == STREAM);
        break;
    case PULLED:
        item->patience = chance_below(chance, 12);
        atomic_fetch_add(&item->lent, 1);
        HOLDS(blip_message_append_body_pulled(request, pull, item, item_given_back) == BLIP_OK);
        break;
    case PUSHED: HOLDS(blip_message_append_body_pushed(request) == BLIP_OK); break;
    case FROM_FILE:
        item->size %= 50000;
        item->seed = 5;
        set_number(request, "Seed", 5);
        /* The file's pattern begins where the range does only at multiples of eight of the seed's steps: from 0. */
        HOLDS(blip_message_append_body_file(request, workload->file, 0, item->size, false) == BLIP_OK);
        break;
    default:
        item->body = malloc(item->size + 1);
        fill_pattern(item->body, item->size, 0, item->seed);
        if (chance_one_in(chance, 2)) {
            atomic_fetch_add(&item->lent, 1);
            HOLDS(blip_message_append_body_borrowed(
                request, slice_of(item->body, item->size), item_given_back, item) == BLIP_OK);
        } else {
            HOLDS(blip_message_set_body(request, slice_of(item->body, item->size)) == BLIP_OK);
        }
        blip_message_set_no_reply(request, item->kind == NO_REPLY);
    }
    blip_message_set_compressed(request, chance_one_in(chance, 3));
    blip_message_set_urgent(request, chance_one_in(chance, 4));
    if (!workload->must_succeed && chance_one_in(chance, 5)) {
        item->has_timeout = true;
        blip_message_set_timeout(request, 1 + chance_size(chance, 400));
    }
    blip_status status = blip_connection_send(client->connection, request, item_completed, item, item_released);
    item->is_accepted = status == BLIP_OK;
    if (!item->is_accepted)
        HOLDS(status == BLIP_ERROR_CLOSED || status == BLIP_ERROR_STOPPED);
    item->message = blip_message_retain(request);
    blip_message_release(request);
}

static void client_start(struct client *client, const struct workload *workload, blip_queue *queue, uint64_t seed)
{
    memset(client, 0, sizeof *client);
    client->workload = workload;
    client->chance.state = seed;
    struct chance *chance = &client->chance;
    client->ending = workload->must_succeed || chance_one_in(chance, 2) ? WHEN_DONE
        : (enum ending)chance_below(chance, ENDINGS);
    client->has_queue = queue != NULL;
    blip_connection_options *options = blip_connection_options_new();
    if (queue != NULL)
        blip_connection_options_set_queue(options, queue);
    if (workload->has_patience) {
        blip_connection_options_set_connect_timeout(options, HANG);
    } else {
        blip_connection_options_set_connect_timeout(options, 600);
        blip_connection_options_set_close_timeout(options, 200);
        blip_connection_options_set_ping(options, 100, 2);
    }
    if (workload->ca != NULL)
        blip_connection_options_set_tls_ca_file(options, S(workload->ca));
    if (chance_one_in(chance, 4))
        blip_connection_options_add_subprotocol(options, S("BLIP"));
    blip_status status = blip_connection_new(workload->runtime, S(workload->url), options, &client->connection);
    blip_connection_options_release(options);
    if (status != BLIP_OK) {
        /* Nothing was made: nothing will be told. */
        atomic_store(&client->closed, 1);
        client->connection = NULL;
        return;
    }
    HOLDS(blip_connection_set_open_callback(client->connection, client_opened, client, NULL) == BLIP_OK);
    HOLDS(blip_connection_set_close_callback(client->connection, client_closed, client, NULL) == BLIP_OK);
    HOLDS(blip_connection_set_state_callback(client->connection, client_state, client, NULL) == BLIP_OK);
    HOLDS(blip_connection_set_handler(client->connection, S("front"), 0, client_request, client, NULL) == BLIP_OK);
    client->count = 1 + chance_below(chance, workload->requests);
    client->items = calloc(client->count, sizeof *client->items);
    if (client->ending != UNCONNECTED)
        HOLDS(blip_connection_connect(client->connection) == BLIP_OK);
    if (client->ending == AT_ONCE)
        blip_connection_close(client->connection, 1000, S(""));
    for (uint32_t i = 0; i < client->count; i++)
        send_item(client, &client->items[i]);
    client->closes_at = now_ms() + chance_below(chance, 120);
    if (client->ending == GRACEFULLY)
        blip_connection_close_gracefully(client->connection, 300);
    if (client->ending == UNCONNECTED)
        blip_connection_close(client->connection, 1000, S(""));
    if (client->ending == RELEASED) {
        blip_connection_release(client->connection);
        client->connection = NULL;
    }
    if (client->ending == BY_SERVER) {
        blip_message *request = NULL;
        if (blip_request_new(S("close"), &request) == BLIP_OK) {
            blip_connection_send(client->connection, request, NULL, NULL, NULL);
            blip_message_release(request);
        }
    }
}

static bool items_are_done(struct client *client)
{
    for (uint32_t i = 0; i < client->count; i++) {
        struct item *item = &client->items[i];
        if (item->is_accepted && atomic_load(&item->completions) == 0)
            return false;
        if (item->kind == STREAM && atomic_load(&item->lent) != atomic_load(&item->given_back))
            return false;
    }
    return true;
}

/* What the program does while its requests are under way. */
static void client_step(struct client *client)
{
    struct chance *chance = &client->chance;
    if (client->connection == NULL && client->ending != RELEASED)
        return;
    for (uint32_t i = 0; i < client->count; i++) {
        struct item *item = &client->items[i];
        if (item->kind == PUSHED)
            push(item);
        else if (item->kind == PULLED)
            blip_message_resume_body(item->message);
        if (!client->workload->must_succeed && item->message != NULL && chance_one_in(chance, 300)) {
            item->is_cancelled = true;
            blip_message_cancel(item->message);
        }
    }
    if (client->is_closing || atomic_load(&client->closed) > 0)
        return;
    if (client->ending == SOMETIME ? now_ms() >= client->closes_at : items_are_done(client)) {
        client->is_closing = true;
        blip_connection_close(client->connection, 1000, S("done"));
    }
}

/* Nothing of it is left to be told. */
static bool client_has_ended(struct client *client)
{
    if (atomic_load(&client->closed) == 0)
        return false;
    for (uint32_t i = 0; i < client->count; i++) {
        struct item *item = &client->items[i];
        if (item->message != NULL) {
            blip_message_release(item->message);
            item->message = NULL;
        }
        if (atomic_load(&item->releases) == 0 || atomic_load(&item->lent) != atomic_load(&item->given_back))
            return false;
    }
    return true;
}

static void client_end(struct client *client, struct tally *tally)
{
    tally->connections++;
    tally->opened += atomic_load(&client->opened);
    tally->body_bytes += atomic_load(&client->body_bytes);
    HOLDS(atomic_load(&client->closed) == 1);
    for (uint32_t i = 0; i < client->count; i++) {
        struct item *item = &client->items[i];
        tally->requests++;
        if (!item->is_accepted)
            tally->refused++;
        else if (item->is_answered)
            tally->answered++;
        else
            tally->failed++;
        HOLDS(atomic_load(&item->completions) == (item->is_accepted ? 1 : 0));
        HOLDS(atomic_load(&item->releases) == 1);
        if (client->workload->must_succeed && !item->is_answered)
            finding("request %u of kind %d is not answered", i, item->kind);
        free(item->body);
    }
    if (client->workload->must_succeed && client->status != BLIP_OK)
        finding("a connection ends with %s", blip_status_name(client->status));
    free(client->items);
    blip_connection_release(client->connection);
}

/* What the connection says of itself, for reports. */
static void describe(blip_connection *connection)
{
    static const int32_t which[] = {BLIP_COUNTER_MESSAGES_SENT, BLIP_COUNTER_MESSAGES_RECEIVED,
        BLIP_COUNTER_REQUESTS_PENDING, BLIP_COUNTER_REQUESTS_UNANSWERED, BLIP_COUNTER_MESSAGES_QUEUED};
    uint64_t values[5] = {0}, backlog = 0;
    blip_connection_counter_values(connection, which, values, 5);
    blip_connection_backlog(connection, &backlog);
    finding("  %llu messages sent, %llu received, %llu pending, %llu unanswered, %llu queued, backlog %llu",
        (unsigned long long)values[0], (unsigned long long)values[1], (unsigned long long)values[2],
        (unsigned long long)values[3], (unsigned long long)values[4], (unsigned long long)backlog);
}

bool workload_run(const struct workload *workload, uint64_t seed, struct tally *tally)
{
    struct chance chance = {seed};
    struct client *clients = calloc(workload->clients, sizeof *clients);
    blip_queue *queue = NULL;
    atomic_store(&current_seed, seed);
    if (chance_one_in(&chance, 3) && blip_queue_new(chance_one_in(&chance, 2) ? 3 : 0, &queue) != BLIP_OK)
        queue = NULL;
    for (uint32_t i = 0; i < workload->clients; i++)
        client_start(&clients[i], workload, chance_one_in(&chance, 2) ? queue : NULL, chance_next(&chance));
    int64_t end = now_ms() + HANG;
    bool is_over = false;
    while (!is_over && now_ms() < end) {
        is_over = true;
        for (uint32_t i = 0; i < workload->clients; i++) {
            client_step(&clients[i]);
            if (!client_has_ended(&clients[i]))
                is_over = false;
        }
        if (queue != NULL)
            blip_queue_dispatch(queue, 10000, is_over ? 0 : 1, NULL);
        else if (!is_over)
            sleep_ms(1);
    }
    blip_queue_release(queue);
    if (!is_over) {
        for (uint32_t i = 0; i < workload->clients; i++) {
            struct client *client = &clients[i];
            if (client_has_ended(client))
                continue;
            finding("client %u never ends: ending %d, closed %d, opened %d, queue %d", i, client->ending,
                atomic_load(&client->closed), atomic_load(&client->opened), client->has_queue);
            describe(client->connection);
            for (uint32_t k = 0; k < client->count; k++) {
                struct item *item = &client->items[k];
                if (item->kind == PUSHED)
                    finding("  pushed %llu of %u, %s", (unsigned long long)item->pushed, item->size,
                        item->message != NULL ? "not at its end" : "at its end");
                finding("  request %u of kind %d: accepted %d, completed %d, released %d, lent %d, given back %d", k,
                    item->kind, item->is_accepted, atomic_load(&item->completions), atomic_load(&item->releases),
                    atomic_load(&item->lent), atomic_load(&item->given_back));
            }
        }
        return false;
    }
    for (uint32_t i = 0; i < workload->clients; i++)
        client_end(&clients[i], tally);
    free(clients);
    return true;
}
