/* Loopback sockets for the programs that do without libblip. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static inline struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline void set_no_delay(int socket)
{
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int listen_at_any_port(uint16_t *port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0
        || getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        die("cannot listen: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return listener;
}

static inline int accept_one(int listener)
{
    int connection = accept(listener, NULL, NULL);
    if (connection < 0)
        die("cannot accept: %s", strerror(errno));
    set_no_delay(connection);
    return connection;
}

static inline int connect_to_port(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to port %u: %s", port, strerror(errno));
    set_no_delay(connection);
    return connection;
}

/* The port in a URL such as ws://127.0.0.1:4984/. */
static inline uint16_t port_of(const char *url)
{
    const char *host = strstr(url, "://");
    const char *colon = host == NULL ? NULL : strchr(host + 3, ':');
    if (colon == NULL)
        die("'%s' has no port", url);
    return (uint16_t)strtoul(colon + 1, NULL, 10);
}

/* False when the peer has gone. */
static inline bool send_all(int connection, const void *bytes, size_t size)
{
    const unsigned char *rest = (const unsigned char *)bytes;
    while (size > 0) {
        ssize_t sent = send(connection, rest, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        rest += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Runs the server in a process of its own that ends with this one. True in the server. */
static inline bool fork_server(int core)
{
    pid_t child = fork();
    if (child < 0)
        die("cannot fork: %s", strerror(errno));
    if (child != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(core);
    return true;
}

#endif
