/* wss: certificates made for the test by the openssl command. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files in the test's directory. */
static char ca[128], ca_key[128], other_ca[128], other_ca_key[128], server[128], server_key[128], client[128],
    client_key[128], wrong_name[128], wrong_name_key[128], expired[128], expired_key[128];

static void name(char *to, const char *file)
{
    snprintf(to, 128, "%s/%s", temporary_directory(), file);
}

static void make_ca(const char *certificate, const char *key, const char *subject)
{
    shell("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout '%s' -out '%s' -days 2 "
        "-subj '/CN=%s' -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign",
        key, certificate, subject);
}

static void make_certificate(const char *certificate, const char *key, const char *extensions, const char *dates)
{
    shell("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout '%s' -out request.pem -subj /CN=test"
        " && printf '%s' > extensions && openssl x509 -req -in request.pem -CA '%s' -CAkey '%s' -CAcreateserial"
        " -out '%s' %s -extfile extensions",
        key, extensions, ca, ca_key, certificate, dates);
}

static void make_certificates(void)
{
    name(ca, "ca.pem");
    name(ca_key, "ca.key");
    name(other_ca, "other-ca.pem");
    name(other_ca_key, "other-ca.key");
    name(server, "server.pem");
    name(server_key, "server.key");
    name(client, "client.pem");
    name(client_key, "client.key");
    name(wrong_name, "wrong.pem");
    name(wrong_name_key, "wrong.key");
    name(expired, "expired.pem");
    name(expired_key, "expired.key");
    make_ca(ca, ca_key, "Test CA");
    make_ca(other_ca, other_ca_key, "Other CA");
    make_certificate(server, server_key, "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days 2");
    make_certificate(client, client_key, "extendedKeyUsage=clientAuth", "-days 2");
    make_certificate(wrong_name, wrong_name_key, "subjectAltName=DNS:elsewhere.example", "-days 2");
    make_certificate(expired, expired_key, "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days -1");
}

static blip_listener_options *server_options(const char *certificate, const char *key)
{
    blip_listener_options *options = blip_listener_options_new();
    REQUIRE_OK(blip_listener_options_set_tls_identity(options, S(certificate), S(key)));
    return options;
}

static blip_connection_options *client_options(const char *trusted)
{
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_tls_ca_file(options, S(trusted)));
    return options;
}

TEST(messages_over_tls)
{
    struct pair pair;
    blip_slice text;
    bool secure = false;
    make_certificates();
    pair_open(&pair,
        &(struct pair_options){.listener = server_options(server, server_key), .client = client_options(ca)});
    CHECK(memcmp(pair.url, "wss://", 6) == 0);
    CHECK_OK(blip_connection_is_secure(pair.client, &secure));
    CHECK(secure);
    CHECK_OK(blip_connection_tls_version(pair.client, &text));
    CHECK_TEXT(text, "TLSv1.3");
    CHECK_OK(blip_connection_tls_cipher(pair.client, &text));
    CHECK_AT_LEAST(text.size, 5);
    CHECK_OK(blip_connection_peer_certificate(pair.client, &text));
    CHECK_AT_LEAST(text.size, 100);
    CHECK_STATUS(blip_connection_peer_certificate(pair.accepted, &text), BLIP_ERROR_NOT_FOUND);
    static const size_t sizes[] = {0, 1, 16384, 100000, 10000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *bytes = malloc(sizes[i] + 1);
        blip_slice body;
        fill_pattern(bytes, sizes[i], 0, 6);
        blip_message *request = make_request("echo", NULL), *response = NULL;
        CHECK_OK(blip_message_set_body(request, bytes_slice(bytes, sizes[i])));
        REQUIRE_OK(blip_connection_request(pair.client, request, SOON, &response));
        CHECK_OK(blip_message_body(response, &body));
        CHECK(body.size == sizes[i] && matches_pattern(body.data, body.size, 0, 6));
        blip_message_release(request);
        blip_message_release(response);
        free(bytes);
    }
    struct outcome outcomes[200];
    for (int i = 0; i < 200; i++)
        CHECK_OK(send_request(pair.client, i % 10 ? "echo" : "slow", "x", &outcomes[i]));
    for (int i = 0; i < 200; i++) {
        CHECK(outcome_wait(&outcomes[i]));
        CHECK_STATUS(outcomes[i].status, BLIP_OK);
    }
    pair_close(&pair);
    CHECK_STATUS(pair.client_status, BLIP_OK);
}

/* Tries to connect; gives the status and the error's text. */
static blip_status attempt(blip_listener_options *listener_options, blip_connection_options *options, const char *host,
    char *text, size_t size)
{
    struct pair pair;
    char url[200];
    uint16_t port = 0;
    blip_connection *connection = NULL;
    pair_open(&pair, &(struct pair_options){.listener = listener_options, .no_client = true});
    CHECK_OK(blip_listener_port(pair.listener, &port));
    snprintf(url, sizeof url, "wss://%s:%u/", host, port);
    blip_status status = blip_connection_new(pair.client_runtime, S(url), options, &connection);
    blip_connection_options_release(options);
    if (status != BLIP_OK) {
        pair_close(&pair);
        return status;
    }
    status = ask_once(connection, text, size);
    pair_close(&pair);
    return status;
}

TEST(certificates_are_verified)
{
    char text[400];
    make_certificates();
    CHECK_OK(attempt(server_options(server, server_key), client_options(ca), "localhost", text, sizeof text));
    CHECK_OK(attempt(server_options(server, server_key), client_options(ca), "127.0.0.1", text, sizeof text));
    CHECK_STATUS(
        attempt(server_options(server, server_key), client_options(other_ca), "localhost", text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK_STATUS(
        attempt(server_options(server, server_key), blip_connection_options_new(), "localhost", text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK(strcasestr(text, "certificate") != NULL);
    CHECK_STATUS(
        attempt(server_options(wrong_name, wrong_name_key), client_options(ca), "localhost", text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK_STATUS(
        attempt(server_options(wrong_name, wrong_name_key), client_options(ca), "127.0.0.1", text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK_STATUS(attempt(server_options(expired, expired_key), client_options(ca), "localhost", text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK(strstr(text, "expired") != NULL);
}

/* OpenSSL calls it a wrong version number, which helps nobody. */
TEST(a_server_without_tls_is_called_that)
{
    char text[400];
    make_certificates();
    CHECK_STATUS(
        attempt(blip_listener_options_new(), client_options(ca), "localhost", text, sizeof text), BLIP_ERROR_TLS);
    CHECK(strstr(text, "does not speak TLS") != NULL);
}

TEST(verification_can_be_changed)
{
    char text[400];
    make_certificates();
    blip_connection_options *options = blip_connection_options_new();
    CHECK_OK(blip_connection_options_set_tls_verify(options, false));
    CHECK_OK(attempt(server_options(wrong_name, wrong_name_key), options, "localhost", text, sizeof text));
    options = client_options(ca);
    CHECK_OK(blip_connection_options_set_tls_server_name(options, S("elsewhere.example")));
    CHECK_OK(attempt(server_options(wrong_name, wrong_name_key), options, "localhost", text, sizeof text));
}

TEST(client_certificates)
{
    char text[400];
    make_certificates();
    for (int required = 0; required < 2; required++) {
        blip_listener_options *listener = server_options(server, server_key);
        CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(ca), required));
        blip_connection_options *options = client_options(ca);
        CHECK_OK(blip_connection_options_set_tls_identity(options, S(client), S(client_key)));
        CHECK_OK(attempt(listener, options, "localhost", text, sizeof text));

        listener = server_options(server, server_key);
        CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(ca), required));
        blip_status status = attempt(listener, client_options(ca), "localhost", text, sizeof text);
        if (required)
            CHECK(status < 0);
        else
            CHECK_OK(status);

        listener = server_options(server, server_key);
        CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(other_ca), required));
        options = client_options(ca);
        CHECK_OK(blip_connection_options_set_tls_identity(options, S(client), S(client_key)));
        status = attempt(listener, options, "localhost", text, sizeof text);
        CHECK(status < 0);
    }
}

TEST(the_server_sees_the_clients_certificate)
{
    struct pair pair;
    blip_slice certificate;
    make_certificates();
    blip_listener_options *listener = server_options(server, server_key);
    CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(ca), true));
    blip_connection_options *options = client_options(ca);
    CHECK_OK(blip_connection_options_set_tls_identity(options, S(client), S(client_key)));
    pair_open(&pair, &(struct pair_options){.listener = listener, .client = options});
    CHECK_OK(blip_connection_peer_certificate(pair.accepted, &certificate));
    char command[300];
    snprintf(command, sizeof command, "openssl x509 -in '%s' -outform DER", client);
    FILE *pipe = popen(command, "r");
    unsigned char expected[4096];
    size_t size = fread(expected, 1, sizeof expected, pipe);
    pclose(pipe);
    CHECK(certificate.size == size && memcmp(certificate.data, expected, size) == 0);
    pair_close(&pair);
}

TEST(versions_can_be_limited)
{
    struct pair pair;
    blip_slice version;
    char text[400];
    make_certificates();
    blip_connection_options *options = client_options(ca);
    CHECK_OK(blip_connection_options_set_tls_versions(options, BLIP_TLS_1_2, BLIP_TLS_1_2));
    pair_open(&pair, &(struct pair_options){.listener = server_options(server, server_key), .client = options});
    CHECK_OK(blip_connection_tls_version(pair.client, &version));
    CHECK_TEXT(version, "TLSv1.2");
    pair_close(&pair);
    blip_listener_options *listener = server_options(server, server_key);
    CHECK_OK(blip_listener_options_set_tls_versions(listener, BLIP_TLS_1_3, 0));
    options = client_options(ca);
    CHECK_OK(blip_connection_options_set_tls_versions(options, 0, BLIP_TLS_1_2));
    CHECK_STATUS(attempt(listener, options, "localhost", text, sizeof text), BLIP_ERROR_TLS);
}

/* The failure may be told when the option is set or when it is used; it names the file. */
TEST(files_that_cannot_be_used)
{
    char path[128], text[400] = "";
    make_certificates();
    name(path, "empty.pem");
    shell(": > empty.pem");
    blip_runtime *runtime = make_runtime(1);
    const char *bad[][2] = {{"/no/such/file", "/no/such/key"}, {path, path}, {server, client_key}, {server, path}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        blip_listener_options *options = blip_listener_options_new();
        blip_listener *listener = NULL;
        blip_status status = blip_listener_options_set_tls_identity(options, S(bad[i][0]), S(bad[i][1]));
        if (status == BLIP_OK)
            status = blip_listener_new(runtime, options, &listener);
        if (status == BLIP_OK)
            status = blip_listener_start(listener, S("127.0.0.1"), 0);
        if (!CHECK_STATUS(status, BLIP_ERROR_TLS_SETUP))
            test_note("identity %s %s", bad[i][0], bad[i][1]);
        blip_listener_release(listener);
        blip_listener_options_release(options);
    }
    blip_connection_options *options = blip_connection_options_new();
    blip_status status = blip_connection_options_set_tls_ca_file(options, S("/no/such/ca"));
    if (status == BLIP_OK)
        status = attempt(server_options(server, server_key), options, "localhost", text, sizeof text);
    CHECK_STATUS(status, BLIP_ERROR_TLS_SETUP);
    drop_runtime(runtime);
}

TEST(plain_and_tls_do_not_mix)
{
    struct pair pair;
    char url[200];
    uint16_t port = 0;
    blip_connection *connection = NULL;
    make_certificates();
    blip_listener_options *listener = server_options(server, server_key);
    CHECK_OK(blip_listener_options_set_handshake_timeout(listener, 500));
    pair_open(&pair, &(struct pair_options){.listener = listener, .no_client = true});
    CHECK_OK(blip_listener_port(pair.listener, &port));
    snprintf(url, sizeof url, "ws://127.0.0.1:%u/", port);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), NULL, &connection));
    blip_status status = blip_connection_wait_open(connection, SOON);
    CHECK(status < 0 && status != BLIP_ERROR_TIMEOUT);
    blip_connection_release(connection);
    pair_close(&pair);

    pair_open(&pair, &(struct pair_options){.no_client = true});
    CHECK_OK(blip_listener_port(pair.listener, &port));
    snprintf(url, sizeof url, "wss://127.0.0.1:%u/", port);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), NULL, &connection));
    status = blip_connection_wait_open(connection, SOON);
    CHECK(status < 0 && status != BLIP_ERROR_TIMEOUT);
    blip_connection_release(connection);
    pair_close(&pair);
}

TEST(tls_over_a_unix_socket)
{
    struct pair pair;
    struct outcome outcome;
    char path[128];
    make_certificates();
    name(path, "secure");
    blip_connection_options *options = client_options(ca);
    CHECK_OK(blip_connection_options_set_tls_server_name(options, S("localhost")));
    pair_open(&pair, &(struct pair_options){
        .listener = server_options(server, server_key), .client = options, .unix_path = path});
    CHECK(memcmp(pair.url, "wss+unix:", 9) == 0);
    CHECK_OK(send_request(pair.client, "echo", "x", &outcome));
    CHECK(outcome_wait(&outcome));
    CHECK_STATUS(outcome.status, BLIP_OK);
    pair_close(&pair);
}

/* What observers of both sides are told of TLS; the client's changes the name to verify. */
struct tls_story {
    const char *name;
    uint32_t told[8];
    int count;
    struct counter closed;
};

static void tell_tls(
    blip_connection *connection, uint32_t what, blip_message *message, blip_status status, void *context)
{
    struct tls_story *story = context;
    (void)message, (void)status;
    if (story->count < 8)
        story->told[story->count++] = what;
    if (what == BLIP_OBSERVE_WILL_SECURE && story->name != NULL)
        CHECK_OK(blip_connection_set_tls_server_name(connection, S(story->name)));
    if (what == BLIP_OBSERVE_CLOSED)
        counter_add(&story->closed, 1);
}

static blip_module *watch_tls(struct tls_story *story)
{
    blip_module *module = NULL;
    story->count = 0;
    counter_init(&story->closed);
    REQUIRE_OK(blip_module_new(S("tls"), &module));
    REQUIRE_OK(blip_module_set_observer(module,
        BLIP_OBSERVE_CONNECTED | BLIP_OBSERVE_WILL_SECURE | BLIP_OBSERVE_SECURED | BLIP_OBSERVE_OPEN
            | BLIP_OBSERVE_CLOSED,
        NULL, tell_tls, story, NULL));
    return module;
}

static blip_status connect_watched(struct tls_story *ours, struct tls_story *theirs, const char *certificate,
    const char *key)
{
    struct pair pair;
    blip_connection_options *options = client_options(ca);
    pair_open(&pair, &(struct pair_options){.listener = server_options(certificate, key), .no_client = true});
    blip_module *module = watch_tls(theirs);
    REQUIRE_OK(blip_listener_add_module(pair.listener, module));
    blip_module_release(module);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &pair.client));
    blip_connection_options_release(options);
    module = watch_tls(ours);
    REQUIRE_OK(blip_connection_add_module(pair.client, module));
    blip_module_release(module);
    blip_status status = blip_connection_wait_open(pair.client, SOON);
    blip_connection_close(pair.client, 1000, S(""));
    REQUIRE_REACHES(&ours->closed, 1);
    REQUIRE_REACHES(&theirs->closed, 1);
    CHECK_STATUS(blip_connection_set_tls_server_name(pair.client, S("x")), BLIP_ERROR_CLOSED);
    blip_connection_release(pair.client);
    pair.client = NULL;
    pair_close(&pair);
    return status;
}

TEST(observers_are_told_of_tls)
{
    static const uint32_t expected[] = {BLIP_OBSERVE_CONNECTED, BLIP_OBSERVE_WILL_SECURE, BLIP_OBSERVE_SECURED,
        BLIP_OBSERVE_OPEN, BLIP_OBSERVE_CLOSED};
    struct tls_story ours = {.name = NULL}, theirs = {.name = NULL};
    make_certificates();
    CHECK_STATUS(connect_watched(&ours, &theirs, server, server_key), BLIP_OK);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(ours.told[i], expected[i]);
        CHECK_INT(theirs.told[i], expected[i]);
    }
    CHECK_INT(ours.count, 5);
    CHECK_INT(theirs.count, 5);
}

TEST(the_name_to_verify_is_changed_before_tls)
{
    struct tls_story ours = {.name = NULL}, theirs = {.name = NULL};
    make_certificates();
    CHECK_STATUS(connect_watched(&ours, &theirs, wrong_name, wrong_name_key), BLIP_ERROR_CERTIFICATE);
    ours.name = "elsewhere.example";
    CHECK_STATUS(connect_watched(&ours, &theirs, wrong_name, wrong_name_key), BLIP_OK);
    CHECK_STATUS(connect_watched(&ours, &theirs, server, server_key), BLIP_ERROR_CERTIFICATE);
}
