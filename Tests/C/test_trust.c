/* Who is trusted: certificates that must be refused, revocation, suites, and the program's own judgement. */

#define _GNU_SOURCE

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *file(const char *name)
{
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temporary_directory(), name);
    return path;
}

#define EC "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

static void make_ca(const char *name, const char *key)
{
    shell("openssl req -x509 %s -keyout %s.key -out %s.pem -days 2 -subj '/CN=%s' -addext keyUsage=keyCertSign,cRLSign",
        key, name, name, name);
}

/* A certificate `name` signed by `ca`; dates as openssl ca takes them, or NULL. */
static void make_certificate(
    const char *name, const char *ca, const char *extensions, const char *key, const char *more)
{
    shell("openssl req %s -keyout %s.key -out request.pem -subj /CN=%s && printf '%s' > extensions && "
        "openssl x509 -req -in request.pem -CA %s.pem -CAkey %s.key -CAcreateserial -out %s.pem -extfile extensions %s",
        key, name, name, extensions, ca, ca, name, more);
}

/* A certificate with dates in the future, which `openssl x509` of OpenSSL 3.0 cannot make. */
static void make_dated(const char *name, const char *start, const char *end)
{
    shell("rm -rf db && mkdir db && : > db/index && echo 01 > db/serial && "
        "printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=db/index\\nserial=db/serial\\nnew_certs_dir=db\\n"
        "default_md=sha256\\npolicy=p\\nunique_subject=no\\nx509_extensions=e\\n[p]\\ncommonName=supplied\\n"
        "[e]\\nsubjectAltName=DNS:localhost\\n' > db/config && "
        "openssl req %s -keyout %s.key -out request.pem -subj /CN=%s && "
        "openssl ca -batch -config db/config -cert ca.pem -keyfile ca.key -in request.pem -out %s.pem -notext "
        "-startdate %s -enddate %s", EC, name, name, name, start, end);
}

/* The revocation list of `ca`, with the certificate of a name on it, or nobody's. */
static void make_list(const char *ca, const char *revoked, const char *list)
{
    shell("rm -rf db && mkdir db && : > db/index && echo 01 > db/number && "
        "printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=db/index\\ncrlnumber=db/number\\ndefault_md=sha256\\n"
        "default_crl_days=2\\n' > db/config");
    if (revoked != NULL)
        shell("openssl ca -config db/config -cert %s.pem -keyfile %s.key -revoke %s.pem", ca, ca, revoked);
    shell("openssl ca -config db/config -cert %s.pem -keyfile %s.key -gencrl -out %s", ca, ca, list);
}

#define LOCAL "subjectAltName=DNS:localhost,IP:127.0.0.1"

static blip_listener_options *server_options(const char *name)
{
    char certificate[40], key[40];
    blip_listener_options *options = blip_listener_options_new();
    snprintf(certificate, sizeof certificate, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    REQUIRE_OK(blip_listener_options_set_tls_identity(options, S(file(certificate)), S(file(key))));
    return options;
}

static blip_connection_options *client_options(const char *name)
{
    char certificate[40], key[40];
    blip_connection_options *options = blip_connection_options_new();
    REQUIRE_OK(blip_connection_options_set_tls_ca_file(options, S(file("ca.pem"))));
    if (name != NULL) {
        snprintf(certificate, sizeof certificate, "%s.pem", name);
        snprintf(key, sizeof key, "%s.key", name);
        REQUIRE_OK(blip_connection_options_set_tls_identity(options, S(file(certificate)), S(file(key))));
    }
    return options;
}

/* Who answers a question of trust, and what was seen of it. */
struct judge {
    bool accept, later, ignore;
    struct counter asked;
    int32_t code;
    size_t certificates;
    char host[80], text[160];
    blip_trust *kept;
    blip_status again;
};

static void judge(blip_connection *connection, blip_trust *trust, void *context)
{
    struct judge *judge = context;
    blip_slice slice = {NULL, 0};
    int32_t state = -1;
    CHECK_OK(blip_connection_state(connection, &state));
    CHECK_INT(state, BLIP_STATE_CONNECTING);
    CHECK_OK(blip_trust_verdict(trust, &judge->code, &slice));
    snprintf(judge->text, sizeof judge->text, "%.*s", (int)slice.size, (const char *)slice.data);
    judge->host[0] = '\0';
    if (blip_trust_host(trust, &slice) == BLIP_OK)
        snprintf(judge->host, sizeof judge->host, "%.*s", (int)slice.size, (const char *)slice.data);
    judge->certificates = 0;
    while (blip_trust_certificate(trust, judge->certificates, &slice) == BLIP_OK && slice.size > 100)
        judge->certificates++;
    if (judge->later) {
        judge->kept = blip_trust_retain(trust);
    } else if (!judge->ignore) {
        CHECK_OK(judge->accept ? blip_trust_accept(trust) : blip_trust_reject(trust));
        judge->again = blip_trust_accept(trust);
    }
    counter_add(&judge->asked, 1);
}

static void judge_init(struct judge *judge)
{
    memset(judge, 0, sizeof *judge);
    counter_init(&judge->asked);
}

/* Connects, asks once, closes; the status and the error's text. The judges may be NULL. */
static blip_status attempt(blip_listener_options *listener_options, blip_connection_options *options, const char *host,
    struct judge *of_server, struct judge *of_client, char *text, size_t size)
{
    struct pair pair;
    char url[200];
    uint16_t port = 0;
    blip_connection *connection = NULL;
    pair_open(&pair, &(struct pair_options){.listener = listener_options, .no_client = true});
    if (of_client != NULL)
        CHECK_OK(blip_listener_set_trust_callback(pair.listener, judge, of_client, NULL));
    CHECK_OK(blip_listener_port(pair.listener, &port));
    snprintf(url, sizeof url, "wss://%s:%u/", host, port);
    REQUIRE_OK(blip_connection_new(pair.client_runtime, S(url), options, &connection));
    blip_connection_options_release(options);
    if (of_server != NULL)
        CHECK_OK(blip_connection_set_trust_callback(connection, judge, of_server, NULL));
    blip_status status = ask_once(connection, text, size);
    pair_close(&pair);
    return status;
}

static void check_server(const char *name, const char *host, blip_status expected, const char *words)
{
    char text[400];
    CHECK_STATUS(
        attempt(server_options(name), client_options(NULL), host, NULL, NULL, text, sizeof text), expected);
    if (!CHECK(strcasestr(text, words) != NULL))
        test_note("%s at %s: %s", name, host, text);
}

TEST_SECONDS(servers_that_must_be_refused, 90)
{
    make_ca("ca", EC);
    make_ca("other", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    check_server("good", "localhost", BLIP_OK, "no error");
    check_server("good", "127.0.0.1", BLIP_OK, "no error");

    make_certificate("named", "ca", "subjectAltName=DNS:localhost", EC, "-days 2");
    check_server("named", "127.0.0.1", BLIP_ERROR_CERTIFICATE, "IP address mismatch");
    make_certificate("addressed", "ca", "subjectAltName=IP:127.0.0.1", EC, "-days 2");
    check_server("addressed", "localhost", BLIP_ERROR_CERTIFICATE, "hostname mismatch");
    /* An address written as a name is no address. */
    make_certificate("disguised", "ca", "subjectAltName=DNS:127.0.0.1", EC, "-days 2");
    check_server("disguised", "127.0.0.1", BLIP_ERROR_CERTIFICATE, "IP address mismatch");
    make_certificate("elsewhere", "ca", "subjectAltName=DNS:elsewhere.example", EC, "-days 2");
    check_server("elsewhere", "localhost", BLIP_ERROR_CERTIFICATE, "hostname mismatch");
    /* The common name does not count (RFC 6125 §6.4.4 has it as the last resort; browsers ignore it). */
    shell("openssl req %s -keyout common.key -out request.pem -subj /CN=localhost && openssl x509 -req -in request.pem "
        "-CA ca.pem -CAkey ca.key -CAcreateserial -out common.pem -days 2", EC);
    check_server("common", "localhost", BLIP_ERROR_CERTIFICATE, "hostname mismatch");

    make_dated("expired", "20200101000000Z", "20210101000000Z");
    check_server("expired", "localhost", BLIP_ERROR_CERTIFICATE, "expired");
    make_dated("early", "20480101000000Z", "20490101000000Z");
    check_server("early", "localhost", BLIP_ERROR_CERTIFICATE, "not yet valid");

    shell("openssl req -x509 %s -keyout self.key -out self.pem -days 2 -subj /CN=self -addext " LOCAL, EC);
    check_server("self", "localhost", BLIP_ERROR_CERTIFICATE, "self-signed");
    make_certificate("foreign", "other", LOCAL, EC, "-days 2");
    check_server("foreign", "localhost", BLIP_ERROR_CERTIFICATE, "unable to get local issuer");

    make_certificate("middle", "ca", "basicConstraints=critical,CA:TRUE\\nkeyUsage=keyCertSign", EC, "-days 2");
    make_certificate("leaf", "middle", LOCAL, EC, "-days 2");
    check_server("leaf", "localhost", BLIP_ERROR_CERTIFICATE, "unable to get local issuer");
    shell("cat leaf.pem middle.pem > whole.pem && cp leaf.key whole.key");
    check_server("whole", "localhost", BLIP_OK, "no error");
    /* One that may not sign has signed. */
    make_certificate("child", "good", LOCAL, EC, "-days 2");
    shell("cat child.pem good.pem > usurper.pem && cp child.key usurper.key");
    check_server("usurper", "localhost", BLIP_ERROR_CERTIFICATE, "invalid CA certificate");

    make_certificate("weak", "ca", LOCAL, "-newkey rsa:1024 -nodes", "-days 2");
    char text[400];
    blip_listener_options *options = server_options("weak");
    /* A server of ours does not even offer such a key, unless it is forced to. */
    CHECK_OK(blip_listener_options_set_tls_ciphers(options, S("DEFAULT@SECLEVEL=0"), S("")));
    struct pair pair;
    blip_listener *listener = NULL;
    blip_runtime *runtime = make_runtime(1);
    REQUIRE_OK(blip_listener_new(runtime, options, &listener));
    blip_status status = blip_listener_start(listener, S("127.0.0.1"), 0);
    blip_listener_release(listener);
    drop_runtime(runtime);
    (void)pair;
    if (status == BLIP_OK)
        CHECK_STATUS(
            attempt(options, client_options(NULL), "localhost", NULL, NULL, text, sizeof text), BLIP_ERROR_CERTIFICATE);
    else
        blip_listener_options_release(options);
    CHECK_STATUS(status == BLIP_OK ? BLIP_ERROR_TLS_SETUP : status, BLIP_ERROR_TLS_SETUP);
}

TEST_SECONDS(wildcards, 60)
{
    char text[400];
    static const struct {
        const char *name, *host;
        blip_status status;
    } cases[] = {
        {"*.example.test", "a.example.test", BLIP_OK},
        {"*.example.test", "A.EXAMPLE.test.", BLIP_OK},
        {"*.example.test", "example.test", BLIP_ERROR_CERTIFICATE},
        {"*.example.test", "a.b.example.test", BLIP_ERROR_CERTIFICATE},
        {"a*.example.test", "ab.example.test", BLIP_ERROR_CERTIFICATE},
        {"*", "localhost", BLIP_ERROR_CERTIFICATE},
        {"*.*.test", "a.b.test", BLIP_ERROR_CERTIFICATE},
        {"a.*.test", "a.b.test", BLIP_ERROR_CERTIFICATE},
    };
    make_ca("ca", EC);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char extension[80];
        snprintf(extension, sizeof extension, "subjectAltName=DNS:%s", cases[i].name);
        make_certificate("wild", "ca", extension, EC, "-days 2");
        blip_connection_options *options = client_options(NULL);
        CHECK_OK(blip_connection_options_set_tls_server_name(options, S(cases[i].host)));
        if (!CHECK_STATUS(attempt(server_options("wild"), options, "localhost", NULL, NULL, text, sizeof text),
                cases[i].status))
            test_note("%s for %s", cases[i].name, cases[i].host);
    }
}

TEST_SECONDS(revoked_certificates, 60)
{
    char text[400];
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    make_certificate("bad", "ca", LOCAL, EC, "-days 2");
    make_list("ca", "bad", "ca.crl");
    for (int bad = 0; bad < 2; bad++) {
        const char *name = bad ? "bad" : "good";
        blip_connection_options *options = client_options(NULL);
        CHECK_OK(blip_connection_options_set_tls_crl_file(options, S(file("ca.crl"))));
        CHECK_STATUS(attempt(server_options(name), options, "localhost", NULL, NULL, text, sizeof text),
            bad ? BLIP_ERROR_CERTIFICATE : BLIP_OK);
        CHECK(strstr(text, bad ? "certificate revoked" : "no error") != NULL);
        blip_listener_options *listener = server_options("good");
        CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(file("ca.pem")), true));
        CHECK_OK(blip_listener_options_set_tls_crl_file(listener, S(file("ca.crl"))));
        blip_status status =
            attempt(listener, client_options(name), "localhost", NULL, NULL, text, sizeof text);
        CHECK(bad ? status < 0 : status == BLIP_OK);
        if (bad)
            CHECK(strstr(text, "revoked") != NULL);
    }
    /* The list of the issuer must be there. */
    make_ca("other", EC);
    make_list("other", NULL, "other.crl");
    blip_connection_options *options = client_options(NULL);
    CHECK_OK(blip_connection_options_set_tls_crl_file(options, S(file("other.crl"))));
    CHECK_STATUS(attempt(server_options("good"), options, "localhost", NULL, NULL, text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
    CHECK(strstr(text, "CRL") != NULL);
    options = client_options(NULL);
    CHECK_OK(blip_connection_options_set_tls_crl_file(options, S("/no/such/list")));
    CHECK_STATUS(attempt(server_options("good"), options, "localhost", NULL, NULL, text, sizeof text),
        BLIP_ERROR_TLS_SETUP);
}

TEST_SECONDS(clients_that_must_be_refused, 60)
{
    char text[400];
    make_ca("ca", EC);
    make_ca("other", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    make_certificate("foreign", "other", LOCAL, EC, "-days 2");
    make_dated("expired", "20200101000000Z", "20210101000000Z");
    static const struct {
        const char *name, *words;
    } cases[] = {
        {NULL, "certificate required"}, {"foreign", "unknown CA"}, {"expired", "certificate expired"}, {"good", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blip_listener_options *listener = server_options("good");
        CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(file("ca.pem")), true));
        blip_status status =
            attempt(listener, client_options(cases[i].name), "localhost", NULL, NULL, text, sizeof text);
        if (cases[i].words == NULL) {
            CHECK_OK(status);
        } else {
            CHECK(status < 0);
            CHECK(strstr(text, cases[i].words) != NULL);
        }
    }
}

TEST_SECONDS(the_program_judges_the_server, 60)
{
    char text[400];
    struct judge one;
    make_ca("ca", EC);
    make_ca("other", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    make_certificate("foreign", "other", LOCAL, EC, "-days 2");
    for (int accept = 0; accept < 2; accept++)
        for (int foreign = 0; foreign < 2; foreign++) {
            judge_init(&one);
            one.accept = accept;
            CHECK_STATUS(attempt(server_options(foreign ? "foreign" : "good"), client_options(NULL), "localhost", &one,
                             NULL, text, sizeof text),
                accept ? BLIP_OK : BLIP_ERROR_CERTIFICATE);
            CHECK_INT(counter_get(&one.asked), 1);
            CHECK(foreign == (one.code != 0));
            CHECK(strcmp(one.host, "localhost") == 0);
            CHECK_INT(one.certificates, 1);
            CHECK_STATUS(one.again, BLIP_ERROR_STATE);
            if (!accept)
                CHECK(strstr(text, "the program does not trust it") != NULL);
        }
    /* Neither answered nor kept. */
    judge_init(&one);
    one.ignore = true;
    CHECK_STATUS(attempt(server_options("good"), client_options(NULL), "localhost", &one, NULL, text, sizeof text),
        BLIP_ERROR_CERTIFICATE);
}

TEST_SECONDS(the_answer_may_come_later, 60)
{
    struct pair pair;
    struct judge one;
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    pair_open(&pair, &(struct pair_options){.listener = server_options("good"), .no_client = true});
    /* Accepted, refused, let go of, never answered, and answered when all is over. */
    for (int way = 0; way < 5; way++) {
        blip_connection *connection = NULL;
        blip_connection_options *options = blip_connection_options_new();
        if (way == 3)
            CHECK_OK(blip_connection_options_set_connect_timeout(options, 300));
        judge_init(&one);
        one.later = true;
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &connection));
        blip_connection_options_release(options);
        REQUIRE_OK(blip_connection_set_trust_callback(connection, judge, &one, NULL));
        REQUIRE_OK(blip_connection_connect(connection));
        REQUIRE_REACHES(&one.asked, 1);
        CHECK(one.code != 0);
        if (way != 3)
            CHECK_STATUS(blip_connection_wait_open(connection, 30), BLIP_ERROR_TIMEOUT);
        if (way == 0)
            CHECK_OK(blip_trust_accept(one.kept));
        if (way == 1)
            CHECK_OK(blip_trust_reject(one.kept));
        if (way == 2) {
            blip_trust_release(one.kept);
            one.kept = NULL;
        }
        if (way == 4)
            CHECK_OK(blip_connection_close(connection, 1000, S("")));
        blip_status status = blip_connection_wait_open(connection, SOON);
        static const blip_status expected[] = {BLIP_OK, BLIP_ERROR_CERTIFICATE, BLIP_ERROR_CERTIFICATE,
            BLIP_ERROR_TIMEOUT, BLIP_ERROR_CLOSED};
        CHECK_STATUS(status, expected[way]);
        blip_connection_close(connection, 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(connection, SOON));
        if (way == 4)
            CHECK_OK(blip_trust_accept(one.kept));
        blip_trust_release(one.kept);
        blip_connection_release(connection);
    }
    pair_close(&pair);
}

TEST_SECONDS(the_program_judges_clients, 60)
{
    char text[400];
    struct judge one;
    make_ca("ca", EC);
    make_ca("other", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    make_certificate("foreign", "other", LOCAL, EC, "-days 2");
    for (int version = BLIP_TLS_1_2; version <= BLIP_TLS_1_3; version++)
        for (int accept = 0; accept < 2; accept++)
            for (int known = 0; known < 2; known++) {
                blip_listener_options *listener = server_options("good");
                CHECK_OK(blip_listener_options_set_tls_versions(listener, 0, version));
                if (known)
                    CHECK_OK(blip_listener_options_set_tls_client_ca_file(listener, S(file("other.pem")), true));
                judge_init(&one);
                one.accept = accept;
                blip_status status =
                    attempt(listener, client_options("foreign"), "localhost", NULL, &one, text, sizeof text);
                CHECK(accept ? status == BLIP_OK : status < 0);
                CHECK_INT(counter_get(&one.asked), 1);
                CHECK(known == (one.code == 0));
                CHECK_INT(one.certificates, 1);
                CHECK(one.host[0] == '\0');
            }
    /* A client without a certificate is nobody's question. */
    judge_init(&one);
    CHECK_OK(attempt(server_options("good"), client_options(NULL), "localhost", NULL, &one, text, sizeof text));
    CHECK_INT(counter_get(&one.asked), 0);
}

TEST_SECONDS(trust_as_an_event, 60)
{
    struct pair pair;
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    pair_open(&pair, &(struct pair_options){.listener = server_options("good"), .no_client = true});
    for (int answer = 0; answer < 2; answer++) {
        blip_queue *queue = NULL;
        blip_connection *connection = NULL;
        blip_connection_options *options = client_options(NULL);
        REQUIRE_OK(blip_queue_new(0, &queue));
        CHECK_OK(blip_connection_options_set_queue(options, queue));
        REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &connection));
        blip_connection_options_release(options);
        REQUIRE_OK(blip_connection_set_trust_callback(connection, NULL, NULL, NULL));
        REQUIRE_OK(blip_connection_connect(connection));
        blip_event *event = NULL;
        size_t count = 0;
        int32_t kind = 0, code = -1;
        blip_slice text;
        REQUIRE_OK(blip_queue_next(queue, &event, 1, SOON, &count));
        CHECK_INT(count, 1);
        CHECK_OK(blip_event_kind(event, &kind));
        CHECK_INT(kind, BLIP_EVENT_TRUST);
        CHECK_OK(blip_trust_verdict(blip_event_trust(event), &code, &text));
        CHECK_INT(code, 0);
        CHECK(blip_event_trust(event) == blip_event_trust(event));
        if (answer)
            CHECK_OK(blip_trust_accept(blip_event_trust(event)));
        blip_event_release(event);
        CHECK_STATUS(
            blip_connection_wait_open(connection, SOON), answer ? BLIP_OK : BLIP_ERROR_CERTIFICATE);
        blip_connection_close(connection, 1000, S(""));
        CHECK_OK(blip_connection_wait_closed(connection, SOON));
        blip_connection_release(connection);
        blip_queue_release(queue);
    }
    pair_close(&pair);
}

TEST_SECONDS(suites_protocols_and_keys, 60)
{
    struct pair pair;
    blip_slice text;
    bool resumed = true;
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    blip_listener_options *listener = server_options("good");
    blip_connection_options *options = client_options(NULL);
    CHECK_OK(blip_listener_options_add_tls_alpn(listener, S("other")));
    CHECK_OK(blip_listener_options_add_tls_alpn(listener, S("http/1.1")));
    CHECK_OK(blip_connection_options_add_tls_alpn(options, S("http/1.1")));
    CHECK_OK(blip_connection_options_add_tls_alpn(options, S("h2")));
    CHECK_STATUS(blip_connection_options_add_tls_alpn(options, S("")), BLIP_ERROR_ARGUMENT);
    CHECK_OK(blip_connection_options_set_tls_ciphers(options, S("ECDHE+AES256"), S("TLS_CHACHA20_POLY1305_SHA256")));
    CHECK_OK(blip_connection_options_set_tls_key_log_file(options, S(file("keys"))));
    CHECK_OK(blip_listener_options_set_tls_key_log_file(listener, S(file("server-keys"))));
    pair_open(&pair, &(struct pair_options){.listener = listener, .client = options});
    CHECK_OK(blip_connection_tls_cipher(pair.client, &text));
    CHECK_TEXT(text, "TLS_CHACHA20_POLY1305_SHA256");
    CHECK_OK(blip_connection_tls_alpn(pair.client, &text));
    CHECK_TEXT(text, "http/1.1");
    CHECK_OK(blip_connection_tls_alpn(pair.accepted, &text));
    CHECK_TEXT(text, "http/1.1");
    CHECK_OK(blip_connection_tls_is_resumed(pair.client, &resumed));
    CHECK(!resumed);
    pair_close(&pair);
    shell("grep -q '^CLIENT_TRAFFIC_SECRET_0 ' keys && grep -q '^SERVER_TRAFFIC_SECRET_0 ' server-keys && "
        "test $(stat -c %%a keys) = 600");

    char why[400];
    listener = server_options("good");
    options = client_options(NULL);
    CHECK_OK(blip_listener_options_add_tls_alpn(listener, S("other")));
    CHECK_OK(blip_connection_options_add_tls_alpn(options, S("http/1.1")));
    CHECK_STATUS(attempt(listener, options, "localhost", NULL, NULL, why, sizeof why), BLIP_ERROR_TLS);
    CHECK(strstr(why, "no application protocol") != NULL);
    options = client_options(NULL);
    CHECK_OK(blip_connection_options_set_tls_ciphers(options, S("NONSENSE"), S("")));
    CHECK_STATUS(attempt(server_options("good"), options, "localhost", NULL, NULL, why, sizeof why),
        BLIP_ERROR_TLS_SETUP);
}

/* The second connection with the same options resumes the first one's session, unless the program judges. */
TEST_SECONDS(sessions_are_resumed, 60)
{
    struct pair pair;
    struct judge one;
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    for (int version = BLIP_TLS_1_2; version <= BLIP_TLS_1_3; version++) {
        blip_listener_options *listener = server_options("good");
        CHECK_OK(blip_listener_options_set_tls_versions(listener, 0, version));
        pair_open(&pair, &(struct pair_options){.listener = listener, .no_client = true});
        for (int i = 0; i < 4; i++) {
            bool resumed = false;
            blip_slice certificate;
            blip_connection *connection = NULL;
            blip_connection_options *options = client_options(NULL);
            REQUIRE_OK(blip_connection_new(pair.client_runtime, S(pair.url), options, &connection));
            blip_connection_options_release(options);
            judge_init(&one);
            one.accept = true;
            if (i == 2)
                CHECK_OK(blip_connection_set_trust_callback(connection, judge, &one, NULL));
            REQUIRE_OK(blip_connection_wait_open(connection, SOON));
            struct outcome outcome; /* what resumption needs comes after the handshake */
            CHECK_OK(send_request(connection, "echo", "x", &outcome));
            CHECK(outcome_wait(&outcome));
            CHECK_OK(blip_connection_tls_is_resumed(connection, &resumed));
            CHECK(resumed == (i == 1 || i == 3));
            CHECK_OK(blip_connection_peer_certificate(connection, &certificate));
            CHECK_INT(counter_get(&one.asked), i == 2);
            blip_connection_close(connection, 1000, S(""));
            CHECK_OK(blip_connection_wait_closed(connection, SOON));
            blip_connection_release(connection);
        }
        pair_close(&pair);
    }
}

/* openssl s_client and s_server as peers that would speak old versions, or negotiate anew. */
TEST_SECONDS(old_versions_and_renegotiation_are_refused, 60)
{
    struct pair pair;
    uint16_t port = 0;
    make_ca("ca", EC);
    make_certificate("good", "ca", LOCAL, EC, "-days 2");
    pair_open(&pair, &(struct pair_options){.listener = server_options("good"), .no_client = true});
    CHECK_OK(blip_listener_port(pair.listener, &port));
    static const char *const old[] = {"-tls1", "-tls1_1"};
    for (size_t i = 0; i < 2; i++) {
        char command[400];
        snprintf(command, sizeof command,
            "timeout 10 openssl s_client -connect 127.0.0.1:%u %s -cipher DEFAULT@SECLEVEL=0 </dev/null >'%s' 2>&1", port,
            old[i], file("client"));
        CHECK(system(command) != 0);
        shell("cat client; grep -q -i 'protocol version' client");
    }
    shell("(sleep 1; echo R; sleep 2) | timeout 20 openssl s_client -connect 127.0.0.1:%u -tls1_2 > again 2>&1; "
        "grep -q -i 'no renegotiation' again", port);
    pair_close(&pair);
}
