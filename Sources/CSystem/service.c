#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "CSystem.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>
#include <string.h>

static unsigned number(const unsigned char *bytes) { return (unsigned)bytes[0] << 8 | bytes[1]; }

/* Reads the SRV records of an answer (RFC 1035 §4.1, RFC 2782); whatever does not fit into it ends the list. */
static int read_answer(const unsigned char *answer, int size, csystem_service *services, int capacity)
{
    if (size < NS_HFIXEDSZ) return -2;
    const unsigned char *end = answer + size, *at = answer + NS_HFIXEDSZ;
    unsigned questions = number(answer + 4), records = number(answer + 6);
    int count = 0;
    char name[NS_MAXDNAME];
    while (questions-- > 0) {
        int length = dn_skipname(at, end);
        if (length < 0 || end - at < length + NS_QFIXEDSZ) return -2;
        at += length + NS_QFIXEDSZ;
    }
    while (records-- > 0 && count < capacity) {
        int length = dn_skipname(at, end);
        if (length < 0 || end - at < length + NS_RRFIXEDSZ) break;
        at += length;
        unsigned type = number(at), class = number(at + 2), data = number(at + 8);
        at += NS_RRFIXEDSZ;
        if ((size_t)(end - at) < data) break;
        if (type == ns_t_srv && class == ns_c_in && data > 6
            && dn_expand(answer, end, at + 6, name, sizeof name) >= 0 && strlen(name) < sizeof services->host) {
            csystem_service *service = &services[count++];
            memset(service, 0, sizeof *service);
            memcpy(service->host, name, strlen(name));
            service->priority = (uint16_t)number(at);
            service->weight = (uint16_t)number(at + 2);
            service->port = (uint16_t)number(at + 4);
        }
        at += data;
    }
    return count;
}

int csystem_lookup_service(const char *name, csystem_service *services, int capacity, uint16_t port)
{
    struct __res_state state;
    unsigned char answer[8192];
    memset(&state, 0, sizeof state);
    if (res_ninit(&state) != 0) return -1;
    /* What has no record is the common case, and the connect timeout goes on. */
    state.retrans = 2;
    state.retry = 2;
    if (port != 0) {
        state.nscount = 1;
        state.nsaddr_list[0].sin_family = AF_INET;
        state.nsaddr_list[0].sin_port = htons(port);
        state.nsaddr_list[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    int size = res_nquery(&state, name, ns_c_in, ns_t_srv, answer, sizeof answer);
    int failure = state.res_h_errno;
    res_nclose(&state);
    if (size < 0) {
        if (failure == HOST_NOT_FOUND || failure == NO_DATA) return 0;
        return failure == TRY_AGAIN ? -1 : -2;
    }
    return read_answer(answer, size < (int)sizeof answer ? size : (int)sizeof answer, services, capacity);
}
