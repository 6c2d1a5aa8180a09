/* Pages of a listener: what callbacks hear of browsers, who is let in, and what stopping does to them. */
#define _GNU_SOURCE

#include "support.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct site {
    blip_runtime *runtime;
    blip_listener *listener;
    uint16_t port;
    char folder[64];
    atomic_int accepted, opened, closed, states;
    atomic_bool refuses;
};

static void see_accept(blip_listener *listener, blip_connection *connection, void *context)
{
    (void)listener;
    struct site *site = context;
    atomic_fetch_add(&site->accepted, 1);
    if (atomic_load(&site->refuses))
        blip_connection_close(connection, 1000, S(""));
}

static void see_open(blip_connection *connection, void *context)
{
    (void)connection;
    atomic_fetch_add(&((struct site *)context)->opened, 1);
}

static void see_close(blip_connection *connection, blip_status status, void *context)
{
    (void)connection, (void)status;
    atomic_fetch_add(&((struct site *)context)->closed, 1);
}

static void site_open(struct site *site, blip_listener_options *options)
{
    char path[128];
    memset(site, 0, sizeof *site);
    snprintf(site->folder, sizeof site->folder, "/tmp/blip-pages-XXXXXX");
    REQUIRE(mkdtemp(site->folder) != NULL);
    snprintf(path, sizeof path, "%s/hello.txt", site->folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs("hello", file);
    fclose(file);
    site->runtime = make_runtime(1);
    REQUIRE_OK(blip_listener_new(site->runtime, options, &site->listener));
    REQUIRE_OK(blip_listener_set_open_callback(site->listener, see_open, site, NULL));
    REQUIRE_OK(blip_listener_set_close_callback(site->listener, see_close, site, NULL));
    REQUIRE_OK(blip_listener_serve_files(site->listener, S("/files/"), S(site->folder), NULL));
    REQUIRE_OK(blip_listener_serve_dashboard(site->listener, S("/dashboard")));
    REQUIRE_OK(blip_listener_start(site->listener, S("127.0.0.1"), 0));
    REQUIRE_OK(blip_listener_port(site->listener, &site->port));
}

static void site_close(struct site *site)
{
    char path[128];
    CHECK_OK(blip_listener_stop(site->listener, true, SOON));
    CHECK_OK(blip_listener_wait_stopped(site->listener, SOON));
    blip_listener_release(site->listener);
    CHECK_OK(blip_runtime_stop(site->runtime, SOON));
    blip_runtime_release(site->runtime);
    snprintf(path, sizeof path, "%s/hello.txt", site->folder);
    unlink(path);
    rmdir(site->folder);
}

static int dial(struct site *site)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(site->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {.tv_sec = 20};
    REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

/* Sends a request and reads one answer: its status; the body is put into text. */
static int ask(int fd, const char *path, const char *headers, char *text, size_t capacity)
{
    char request[512], answer[4096];
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers);
    if (send(fd, request, (size_t)size, MSG_NOSIGNAL) != size)
        return -1;
    size_t got = 0;
    char *body = NULL;
    while (got < sizeof answer - 1) {
        ssize_t count = recv(fd, answer + got, sizeof answer - 1 - got, 0);
        if (count <= 0)
            break;
        got += (size_t)count;
        answer[got] = 0;
        if ((body = strstr(answer, "\r\n\r\n")) != NULL) {
            char *length = strstr(answer, "Content-Length: ");
            if (length == NULL || (size_t)atoi(length + 16) <= got - (size_t)(body + 4 - answer))
                break;
        }
    }
    if (body == NULL)
        return -1;
    snprintf(text, capacity, "%s", body + 4);
    return atoi(answer + 9);
}

TEST(callbacks_hear_nothing_of_pages)
{
    struct site site;
    char text[512];
    site_open(&site, NULL);
    int fd = dial(&site);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), 200);
        CHECK(strcmp(text, "hello") == 0);
    }
    size_t count = 0;
    CHECK_OK(blip_listener_connection_count(site.listener, &count));
    CHECK_INT(count, 1);
    close(fd);
    int64_t end = now_ms() + SOON;
    while (blip_listener_connection_count(site.listener, &count) == BLIP_OK && count > 0 && now_ms() < end)
        sleep_ms(2);
    CHECK_INT(count, 0);
    site_close(&site);
    CHECK_INT(atomic_load(&site.opened), 0);
    CHECK_INT(atomic_load(&site.closed), 0);
}

TEST(the_accept_callback_sees_every_request)
{
    struct site site;
    char text[512];
    site_open(&site, NULL);
    CHECK_OK(blip_listener_set_accept_callback(site.listener, see_accept, &site, NULL));
    for (int i = 0; i < 2; i++) {
        int fd = dial(&site);
        CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), 200);
        CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), -1);
        close(fd);
    }
    CHECK_INT(atomic_load(&site.accepted), 2);
    atomic_store(&site.refuses, true);
    int fd = dial(&site);
    CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), 403);
    CHECK(strstr(text, "hello") == NULL);
    close(fd);
    fd = dial(&site);
    CHECK_INT(ask(fd, "/dashboard/socket",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: BLIP_3+Dashboard\r\n", text, sizeof text), 403);
    close(fd);
    CHECK_INT(atomic_load(&site.accepted), 4);
    site_close(&site);
    CHECK_INT(atomic_load(&site.opened), 0);
}

/* Some clients end their direction as soon as they have asked. */
TEST(clients_that_send_no_more_get_all_of_the_answer)
{
    enum { LARGE = 8 << 20 };
    struct site site;
    char path[128];
    static char piece[65536];
    site_open(&site, NULL);
    snprintf(path, sizeof path, "%s/large", site.folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    REQUIRE_INT(ftruncate(fileno(file), LARGE), 0);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        const char *request = i == 0 ? "GET /files/large HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                     : "GET /files/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        size_t got = 0;
        ssize_t count;
        int fd = dial(&site);
        REQUIRE_INT(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
        REQUIRE_INT(shutdown(fd, SHUT_WR), 0);
        sleep_ms(50);
        while ((count = recv(fd, piece, sizeof piece, 0)) > 0)
            got += (size_t)count;
        CHECK_INT(count, 0);
        CHECK_AT_LEAST(got, LARGE);
        close(fd);
    }
    unlink(path);
    site_close(&site);
}

/* Compressed, an answer goes through buffers of the library's. How much is in them at its end depends on its size. */
TEST(clients_that_read_late_get_all_of_the_answer)
{
    enum { SIZES = 6 };
    struct site site;
    char path[128];
    int fds[SIZES];
    site_open(&site, NULL);
    for (int i = 0; i < SIZES; i++) {
        char request[256];
        size_t size = 260000 + (size_t)i * 12000;
        char *content = malloc(size);
        int small = 4096;
        REQUIRE(content != NULL);
        for (size_t j = 0; j < size; j++)
            content[j] = (char)rand();
        snprintf(path, sizeof path, "%s/late-%d.txt", site.folder, i);
        FILE *file = fopen(path, "w");
        REQUIRE(file != NULL);
        REQUIRE_INT(fwrite(content, 1, size, file), size);
        fclose(file);
        free(content);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(site.port)};
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE_INT(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
        int length = snprintf(
            request, sizeof request,
            "GET /files/late-%d.txt HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n", i);
        REQUIRE_INT(send(fds[i], request, (size_t)length, MSG_NOSIGNAL), length);
    }
    /* Longer than what a client may still send is waited for. */
    sleep_ms(2600);
    for (int i = 0; i < SIZES; i++) {
        char piece[65536], end[7] = "";
        ssize_t count;
        while ((count = recv(fds[i], piece, sizeof piece, 0)) > 0) {
            size_t tail = (size_t)count < sizeof end ? (size_t)count : sizeof end;
            memmove(end, end + tail, sizeof end - tail);
            memcpy(end + sizeof end - tail, piece + count - tail, tail);
        }
        CHECK(memcmp(end, "\r\n0\r\n\r\n", sizeof end) == 0);
        close(fds[i]);
        snprintf(path, sizeof path, "%s/late-%d.txt", site.folder, i);
        unlink(path);
    }
    site_close(&site);
}

TEST(users_count_for_pages_on_every_request)
{
    /* ann:secret, and the same with another password. */
    static const char good[] = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    static const char bad[] = "Authorization: Basic YW5uOndyb25n\r\n";
    struct site site;
    char text[512];
    blip_listener_options *options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_add_user(options, S("ann"), S("secret")));
    site_open(&site, options);
    blip_listener_options_release(options);
    const char *paths[] = {"/files/hello.txt", "/files/", "/dashboard/", "/-/blip/style.css", "/files/none"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int fd = dial(&site);
        CHECK_INT(ask(fd, paths[i], "", text, sizeof text), 401);
        close(fd);
    }
    int fd = dial(&site);
    CHECK_INT(ask(fd, "/files/hello.txt", good, text, sizeof text), 200);
    CHECK_INT(ask(fd, "/files/hello.txt", good, text, sizeof text), 200);
    /* What one client has said is not good for the next one on the same connection. */
    CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), 401);
    CHECK_INT(ask(fd, "/files/hello.txt", good, text, sizeof text), -1);
    close(fd);
    fd = dial(&site);
    CHECK_INT(ask(fd, "/files/hello.txt", good, text, sizeof text), 200);
    CHECK_INT(ask(fd, "/files/hello.txt", bad, text, sizeof text), 401);
    close(fd);
    fd = dial(&site);
    CHECK_INT(ask(fd, "/files/hello.txt", bad, text, sizeof text), 401);
    close(fd);
    site_close(&site);
}

struct watched {
    struct counter began, ended;
};

static void watch(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    (void)connection, (void)message, (void)status;
    counter_add(what == BLIP_OBSERVE_CLOSED ? &((struct watched *)context)->ended
                                            : &((struct watched *)context)->began, 1);
}

/* Who counts connections by an observer counts each one down. */
TEST(observers_are_told_that_pages_end)
{
    struct site site;
    char text[512];
    struct watched watched = {COUNTER, COUNTER};
    blip_module *module = NULL;
    site_open(&site, NULL);
    REQUIRE_OK(blip_module_new(S("watch"), &module));
    REQUIRE_OK(blip_module_set_observer(
        module, BLIP_OBSERVE_CONNECTED | BLIP_OBSERVE_CLOSED, NULL, watch, &watched, NULL));
    REQUIRE_OK(blip_listener_add_module(site.listener, module));
    blip_module_release(module);
    int fd = dial(&site);
    CHECK_INT(ask(fd, "/files/hello.txt", "", text, sizeof text), 200);
    close(fd);
    fd = dial(&site);
    CHECK_INT(ask(fd, "/dashboard/socket",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: BLIP_3+Dashboard\r\n", text, sizeof text), 101);
    close(fd);
    REQUIRE_REACHES(&watched.ended, 2);
    site_close(&site);
    CHECK_INT(counter_get(&watched.began), 2);
    CHECK_INT(counter_get(&watched.ended), 2);
}

TEST(stopping_ends_pages)
{
    struct site site;
    char text[512];
    site_open(&site, NULL);
    int idle = dial(&site), half = dial(&site);
    CHECK_INT(ask(idle, "/files/hello.txt", "", text, sizeof text), 200);
    CHECK_INT(ask(half, "/files/hello.txt", "", text, sizeof text), 200);
    CHECK_INT(send(half, "GET /fil", 8, MSG_NOSIGNAL), 8);
    site_close(&site);
    CHECK_INT(recv(idle, text, sizeof text, 0), 0);
    CHECK(recv(half, text, sizeof text, 0) <= 0);
    close(idle);
    close(half);
}

static size_t files_in(const char *folder)
{
    size_t count = 0;
    DIR *directory = opendir(folder);
    REQUIRE(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

/* Neither files nor descriptors are left of uploads that are cut by their clients, or by the listener's end. */
TEST(uploads_that_are_cut_leave_nothing)
{
    static const char put[] = "PUT /w/new.bin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nsome bytes";
    static const char chunked[] =
        "PUT /w/other.bin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n5\r\n012";
    size_t before = open_descriptors();
    struct site site;
    site_open(&site, NULL);
    blip_files_options *options = blip_files_options_new();
    REQUIRE_OK(blip_files_options_set_writable(options, true));
    REQUIRE_OK(blip_listener_serve_files(site.listener, S("/w/"), S(site.folder), options));
    blip_files_options_release(options);
    int clients[6];
    for (int i = 0; i < 6; i++) {
        clients[i] = dial(&site);
        const char *text = i % 2 == 0 ? put : chunked;
        CHECK_INT(send(clients[i], text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    }
    int64_t end = now_ms() + SOON;
    while (files_in(site.folder) < 7 && now_ms() < end)
        sleep_ms(2);
    CHECK_INT(files_in(site.folder), 7);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
    while (files_in(site.folder) > 4 && now_ms() < end)
        sleep_ms(2);
    CHECK_INT(files_in(site.folder), 4);
    CHECK_OK(blip_listener_stop(site.listener, true, SOON));
    CHECK_OK(blip_listener_wait_stopped(site.listener, SOON));
    CHECK_INT(files_in(site.folder), 1);
    for (int i = 3; i < 6; i++)
        close(clients[i]);
    site_close(&site);
    CHECK_INT(open_descriptors(), before);
}

/* What a request gets that names the server so. */
static int ask_as(struct site *site, const char *method, const char *path, const char *host, const char *headers)
{
    char request[1024], answer[512] = "";
    int fd = dial(site);
    int size = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, host, headers);
    CHECK_INT(send(fd, request, (size_t)size, MSG_NOSIGNAL), size);
    size_t got = 0;
    for (ssize_t count; got < 12 && (count = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0;)
        got += (size_t)count;
    close(fd);
    return got < 12 ? -1 : atoi(answer + 9);
}

/* Upgrades: to the dashboard's connections, or to BLIP. */
static int ask_socket(struct site *site, const char *path, const char *host, const char *origin)
{
    char headers[512];
    snprintf(headers, sizeof headers,
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: BLIP_3+Dashboard, BLIP_3\r\n%s%s%s",
        *origin ? "Origin: " : "", origin, *origin ? "\r\n" : "");
    return ask_as(site, "GET", path, host, headers);
}

/* A page of somebody who lets his name mean our address passes for one of ours: it is known by that name alone. */
TEST(names_of_others_get_no_pages)
{
    static const char *const ours[] = {"127.0.0.1", "127.0.0.1:8080", "localhost:1", "[::1]:8080", "app.localhost"};
    static const char *const others[] = {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io"};
    static const char empty_put[] = "Content-Length: 0\r\n";
    struct site site;
    char host[300] = "", origin[300];
    site_open(&site, NULL);
    blip_files_options *writable = blip_files_options_new();
    REQUIRE_OK(blip_files_options_set_writable(writable, true));
    REQUIRE_OK(blip_files_options_set_replace(writable, true));
    REQUIRE_OK(blip_listener_serve_files(site.listener, S("/w/"), S(site.folder), writable));
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        CHECK_INT(ask_as(&site, "GET", "/dashboard/", ours[i], ""), 200);
        CHECK_INT(ask_as(&site, "GET", "/w/hello.txt", ours[i], ""), 200);
        snprintf(origin, sizeof origin, "http://%s", ours[i]);
        CHECK_INT(ask_socket(&site, "/dashboard/socket", ours[i], origin), 101);
        CHECK_INT(ask_socket(&site, "/db", ours[i], origin), 101);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_INT(ask_as(&site, "GET", "/dashboard/", others[i], ""), 421);
        /* Not even the page whose form has the token. */
        CHECK_INT(ask_as(&site, "GET", "/w/", others[i], ""), 421);
        CHECK_INT(ask_as(&site, "PUT", "/w/hello.txt", others[i], empty_put), 421);
        CHECK_INT(ask_as(&site, "DELETE", "/w/hello.txt", others[i], ""), 421);
        snprintf(origin, sizeof origin, "http://%s", others[i]);
        CHECK_INT(ask_socket(&site, "/dashboard/socket", others[i], origin), 403);
        CHECK_INT(ask_socket(&site, "/db", others[i], origin), 403);
        /* A program, which no page can pass for: browsers name their origin. */
        CHECK_INT(ask_socket(&site, "/dashboard/socket", others[i], ""), 101);
        CHECK_INT(ask_socket(&site, "/db", others[i], ""), 101);
        /* What is only read goes out by any name. */
        CHECK_INT(ask_as(&site, "GET", "/files/hello.txt", others[i], ""), 200);
    }
    REQUIRE(gethostname(host, sizeof host - 1) == 0);
    CHECK_INT(ask_as(&site, "GET", "/dashboard/", host, ""), 200);
    blip_files_options_release(writable);
    site_close(&site);
}

TEST(names_that_were_added_count_for_all_pages)
{
    struct site site;
    blip_listener_options *options = blip_listener_options_new();
    CHECK_INT(blip_listener_options_add_host(options, S("a:80")), BLIP_ERROR_ARGUMENT);
    CHECK_INT(blip_listener_options_add_host(options, S("")), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_listener_options_add_host(options, S("Files.example")));
    site_open(&site, options);
    CHECK_INT(ask_as(&site, "GET", "/dashboard/", "files.example:8080", ""), 200);
    CHECK_INT(ask_as(&site, "GET", "/files/hello.txt", "files.example", ""), 200);
    CHECK_INT(ask_as(&site, "GET", "/files/hello.txt", "localhost", ""), 200);
    CHECK_INT(ask_as(&site, "GET", "/files/hello.txt", "evil.example", ""), 421);
    CHECK_INT(ask_socket(&site, "/db", "files.example", "http://files.example"), 101);
    site_close(&site);
    CHECK_OK(blip_listener_options_add_host(options, S("*")));
    site_open(&site, options);
    CHECK_INT(ask_as(&site, "GET", "/dashboard/", "evil.example", ""), 200);
    site_close(&site);
    blip_listener_options_release(options);
    /* With users, whom no other name's page has a password of, any name will do. */
    options = blip_listener_options_new();
    CHECK_OK(blip_listener_options_add_user(options, S("ann"), S("secret")));
    site_open(&site, options);
    CHECK_INT(ask_as(&site, "GET", "/dashboard/", "any.example", ""), 401);
    CHECK_INT(ask_as(&site, "GET", "/dashboard/", "any.example", "Authorization: Basic YW5uOnNlY3JldA==\r\n"), 200);
    site_close(&site);
    blip_listener_options_release(options);
}

TEST(what_cannot_be_served_is_told)
{
    struct site site;
    blip_error *error = NULL;
    blip_slice message;
    site_open(&site, NULL);
    CHECK_INT(blip_listener_serve_files(site.listener, S("files"), S(site.folder), NULL), BLIP_ERROR_ARGUMENT);
    CHECK_INT(blip_listener_serve_files(site.listener, S("/a?b"), S(site.folder), NULL), BLIP_ERROR_ARGUMENT);
    CHECK_INT(blip_listener_serve_files(site.listener, S("/a"), S("/nothing/here"), NULL), BLIP_ERROR_FILE);
    REQUIRE_OK(blip_listener_error(site.listener, &error));
    CHECK_OK(blip_error_message(error, &message));
    CHECK(memmem(message.data, message.size, "/nothing/here", 13) != NULL);
    CHECK_INT(blip_listener_serve_dashboard(site.listener, S("/again")), BLIP_ERROR_STATE);
    site_close(&site);
}
