#define _GNU_SOURCE

#include "faults.h"

#include "common.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static _Atomic(uint32_t) rates[CALLS];
static atomic_long counts[CALLS];
static _Atomic(uint64_t) seeds = 1;
static atomic_int generation;
static _Atomic(int64_t) clock_step;
static atomic_long wrong_closes;

static const char *const names[CALLS] = {"socket", "connect", "accept", "send", "recv", "epoll_ctl", "epoll_wait",
    "new descriptor", "new thread", "lookup", "read", "memory"};

void faults_reset(uint64_t seed)
{
    for (int call = 0; call < CALLS; call++)
        atomic_store(&rates[call], 0);
    atomic_store(&seeds, seed);
    atomic_fetch_add(&generation, 1);
}

void faults_set(enum call call, uint32_t rate) { atomic_store(&rates[call], rate); }

long faults_count(enum call call) { return atomic_load(&counts[call]); }

const char *faults_name(enum call call) { return names[call]; }

void faults_step_clock(int64_t seconds) { atomic_store(&clock_step, seconds); }

long faults_wrong_closes(void) { return atomic_load(&wrong_closes); }

/* Each thread has a chance of its own, made anew for each run. */
static struct chance *own_chance(void)
{
    static _Thread_local struct chance chance;
    static _Thread_local int made;
    int now = atomic_load(&generation);
    if (made != now) {
        made = now;
        chance.state = atomic_fetch_add(&seeds, UINT64_C(0x9E3779B97F4A7C15));
    }
    return &chance;
}

/* The error with which this call is to fail, or 0. */
static int fault(enum call call, const int *errors, uint32_t count)
{
    uint32_t rate = atomic_load_explicit(&rates[call], memory_order_relaxed);
    if (rate == 0 || chance_below(own_chance(), 10000) >= rate)
        return 0;
    atomic_fetch_add(&counts[call], 1);
    return errors[chance_below(own_chance(), count)];
}

#define FAULT(call_, ...) \
    fault((call_), (const int[]){__VA_ARGS__}, sizeof (const int[]){__VA_ARGS__} / sizeof (int))

#define FAIL_IF(call_, ...) \
    do { \
        int error_ = FAULT(call_, __VA_ARGS__); \
        if (error_ != 0) { \
            errno = error_; \
            return -1; \
        } \
    } while (0)

/* The definition that would have been used. */
#define REAL(name_) \
    static __typeof__(name_) *real; \
    if (real == NULL) \
    real = (__typeof__(name_) *)dlsym(RTLD_NEXT, #name_)

int socket(int family, int type, int protocol)
{
    REAL(socket);
    FAIL_IF(CALL_SOCKET, EMFILE, ENFILE, ENOBUFS, ENOMEM);
    return real(family, type, protocol);
}

int connect(int descriptor, const struct sockaddr *address, socklen_t size)
{
    REAL(connect);
    FAIL_IF(CALL_CONNECT, ECONNREFUSED, ENETUNREACH, EADDRNOTAVAIL, ETIMEDOUT, EACCES);
    int result = real(descriptor, address, size);
    int saved = errno;
    /* An interrupted call goes on by itself. */
    if (result != 0 && saved == EINPROGRESS && FAULT(CALL_CONNECT, EINTR) != 0)
        saved = EINTR;
    errno = saved;
    return result;
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *size, int flags)
{
    REAL(accept4);
    FAIL_IF(CALL_ACCEPT, EMFILE, ENFILE, ENOBUFS, ENOMEM, EINTR, EAGAIN, EPERM);
    int result = real(descriptor, address, size, flags);
    if (result >= 0) {
        /* The connection is lost before it was accepted. */
        int error = FAULT(CALL_ACCEPT, ECONNABORTED, EPROTO, ENETDOWN);
        if (error != 0) {
            close(result);
            errno = error;
            return -1;
        }
    }
    return result;
}

ssize_t send(int descriptor, const void *bytes, size_t size, int flags)
{
    REAL(send);
    int error = FAULT(CALL_SEND, EAGAIN, EAGAIN, EINTR, ECONNRESET, EPIPE, ENOBUFS, ENOMEM, -1, -1, -1, -1, -1, -1);
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error < 0 && size > 1)
        size = 1 + chance_below(own_chance(), (uint32_t)(size > 100000 ? 100000 : size - 1));
    return real(descriptor, bytes, size, flags);
}

ssize_t recv(int descriptor, void *bytes, size_t size, int flags)
{
    REAL(recv);
    int error = FAULT(CALL_RECV, EAGAIN, EAGAIN, EINTR, ECONNRESET, ETIMEDOUT, ENOMEM, EHOSTUNREACH, -1, -1, -1, -1, -1, -1,
        -1, -1);
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error < 0 && size > 1)
        size = 1 + chance_below(own_chance(), (uint32_t)(size > 3000 ? 3000 : size - 1));
    return real(descriptor, bytes, size, flags);
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event)
{
    REAL(epoll_ctl);
    if (operation == EPOLL_CTL_ADD)
        FAIL_IF(CALL_EPOLL_ADD, ENOMEM, ENOSPC);
    return real(epoll, operation, descriptor, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    REAL(epoll_wait);
    FAIL_IF(CALL_EPOLL_WAIT, EINTR);
    if (atomic_load_explicit(&rates[CALL_EPOLL_WAIT], memory_order_relaxed) != 0 && most > 1)
        most = 1 + (int)chance_below(own_chance(), (uint32_t)most);
    return real(epoll, events, most, timeout);
}

int epoll_create1(int flags)
{
    REAL(epoll_create1);
    FAIL_IF(CALL_DESCRIPTOR, EMFILE, ENFILE, ENOMEM);
    return real(flags);
}

int eventfd(unsigned value, int flags)
{
    REAL(eventfd);
    FAIL_IF(CALL_DESCRIPTOR, EMFILE, ENFILE, ENOMEM);
    return real(value, flags);
}


int timerfd_create(int clock, int flags)
{
    REAL(timerfd_create);
    FAIL_IF(CALL_DESCRIPTOR, EMFILE, ENFILE, ENOMEM);
    return real(clock, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *context)
{
    REAL(pthread_create);
    int error = FAULT(CALL_THREAD, EAGAIN);
    return error != 0 ? error : real(thread, attributes, entry, context);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    REAL(getaddrinfo);
    int error = FAULT(CALL_LOOKUP, EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_NONAME, 1000, 1000, 1000);
    if (error == 1000)
        usleep(chance_below(own_chance(), 900000)); /* a server of names that is slow */
    else if (error != 0)
        return error;
    return real(host, service, hints, found);
}

ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset)
{
    REAL(pread);
    int error = FAULT(CALL_READ, EIO, EINTR, ESTALE, -1, -1, -1, -2);
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error == -2)
        return 0; /* the file was made shorter meanwhile */
    if (error == -1 && size > 1)
        size = 1 + chance_below(own_chance(), (uint32_t)size - 1);
    return real(descriptor, bytes, size, offset);
}

int close(int descriptor)
{
    REAL(close);
    int result = real(descriptor);
    if (result != 0 && errno == EBADF) {
        atomic_fetch_add(&wrong_closes, 1);
        finding("descriptor %d is closed, but was not open", descriptor);
        errno = EBADF;
    }
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    REAL(clock_gettime);
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += atomic_load(&clock_step);
    return result;
}

time_t time(time_t *where)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where != NULL)
        *where = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict where, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    where->tv_sec = now.tv_sec;
    where->tv_usec = now.tv_nsec / 1000;
    return 0;
}

/* Only large pieces, on the library's loop threads: what is small is the language runtime's, which ends the program
 * without memory, as most do. */
extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *memory, size_t size);

static bool is_refused(size_t size)
{
    if (size < 16384 || size > 250000 || atomic_load_explicit(&rates[CALL_MEMORY], memory_order_relaxed) == 0)
        return false;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return strncmp(name, "blip-", 5) == 0 && FAULT(CALL_MEMORY, ENOMEM) != 0;
}

void *malloc(size_t size)
{
    if (is_refused(size)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

void *realloc(void *memory, size_t size)
{
    if (is_refused(size)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(memory, size);
}
