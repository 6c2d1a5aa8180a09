#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

/* OpenSSL's macros, for Swift, which sees functions only. */

static inline long copenssl_set_server_name(SSL *ssl, const char *name)
{
    return SSL_set_tlsext_host_name(ssl, name);
}

static inline void copenssl_configure(SSL_CTX *context, int minimum, int maximum)
{
    SSL_CTX_set_min_proto_version(context, minimum);
    SSL_CTX_set_max_proto_version(context, maximum);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* Keys and hashes of at least 112 bits, whatever the system's configuration says; more if it says more. */
    if (SSL_CTX_get_security_level(context) < 2) SSL_CTX_set_security_level(context, 2);
    SSL_CTX_set_dh_auto(context, 1);
    SSL_CTX_set_mode(
        context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
}

static inline void copenssl_set_session_cache(SSL_CTX *context, int is_server)
{
    SSL_CTX_set_session_cache_mode(
        context, is_server ? SSL_SESS_CACHE_OFF : SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
}

/* 0: not an alert; else the number of the alert that the peer sent. */
static inline int copenssl_alert_of(unsigned long error)
{
    int reason = ERR_GET_REASON(error);
    return ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256
        ? reason - SSL_AD_REASON_OFFSET
        : 0;
}

static inline int copenssl_reason(unsigned long error) { return ERR_GET_REASON(error); }

/* Whether what came cannot be a record of TLS at all: "wrong version number" and the like of peers that do not speak it. */
static inline int copenssl_is_not_tls(unsigned long error)
{
    int reason = ERR_GET_REASON(error);
    return ERR_GET_LIB(error) == ERR_LIB_SSL
        && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST);
}

/* The errno of an error that came from a system call, else 0. */
static inline int copenssl_system_error(unsigned long error)
{
    return ERR_SYSTEM_ERROR(error) ? (int)ERR_GET_REASON(error) : 0;
}

/* The words for an alert's number, where OpenSSL's own are "unknown" too. */
static inline const char *copenssl_alert_text(int alert)
{
    switch (alert) {
    case 86: return "inappropriate fallback";
    case 109: return "missing extension";
    case 116: return "certificate required";
    case 120: return "no application protocol in common";
    default: return SSL_alert_desc_string_long(alert);
    }
}

/* Stops a client's handshake at the server's certificate. */
static inline void copenssl_retry_verify(SSL *ssl) { SSL_set_retry_verify(ssl); }

static inline void copenssl_forbid_tickets(SSL *ssl)
{
    SSL_set_options(ssl, SSL_OP_NO_TICKET);
    SSL_set_num_tickets(ssl, 0);
}

/* The certificates that the peer sent, its own first. */
static inline int copenssl_untrusted_count(X509_STORE_CTX *store)
{
    return sk_X509_num(X509_STORE_CTX_get0_untrusted(store));
}

static inline X509 *copenssl_untrusted(X509_STORE_CTX *store, int index)
{
    return sk_X509_value(X509_STORE_CTX_get0_untrusted(store), index);
}
