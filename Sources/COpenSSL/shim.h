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

/* The errno of an error that came from a system call, else 0. */
static inline int copenssl_system_error(unsigned long error)
{
    return ERR_SYSTEM_ERROR(error) ? (int)ERR_GET_REASON(error) : 0;
}

/* Alert numbers whose words are OpenSSL's own. */
static inline const char *copenssl_alert_text(int alert) { return SSL_alert_desc_string_long(alert); }
