#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "CSystem.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/futex.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

__thread void *csystem_loop_now __attribute__((tls_model("initial-exec")));
__thread csystem_lent csystem_lent_now __attribute__((tls_model("initial-exec")));

void *csystem_chunks[CSYSTEM_CHUNKS];
uint64_t csystem_forks;

static int busy_loops;
static int is_exiting;
/* Forks under way, and how many of them are called on loops, which cannot rest then. */
static int forks, forking_loops;

/* Rests where no lock is held: in C, between a loop's turns. */
static void rest_while_forking(void)
{
    for (int now; (now = __atomic_load_n(&forks, __ATOMIC_SEQ_CST)) > 0;) {
        struct timespec longest = {0, 100000000};
        syscall(SYS_futex, &forks, FUTEX_WAIT_PRIVATE, now, &longest, NULL, 0);
    }
}

void csystem_begin_work(void)
{
    for (;;) {
        __atomic_add_fetch(&busy_loops, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&is_exiting, __ATOMIC_SEQ_CST)) {
            __atomic_sub_fetch(&busy_loops, 1, __ATOMIC_SEQ_CST);
            for (;;) pause();
        }
        if (__atomic_load_n(&forks, __ATOMIC_SEQ_CST) == 0) return;
        __atomic_sub_fetch(&busy_loops, 1, __ATOMIC_SEQ_CST);
        rest_while_forking();
    }
}

void csystem_end_work(void) { __atomic_sub_fetch(&busy_loops, 1, __ATOMIC_SEQ_CST); }

static void process_exits(void)
{
    int own = csystem_loop_now != NULL;
    __atomic_store_n(&is_exiting, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 500 && __atomic_load_n(&busy_loops, __ATOMIC_SEQ_CST) > own; i++) {
        struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    }
}

static void child_has_no_loops(void)
{
    busy_loops = csystem_loop_now != NULL;
    forks = forking_loops = 0;
}

void csystem_guard_exit(void)
{
    atexit(process_exits);
    pthread_atfork(NULL, NULL, child_has_no_loops);
}

/*
 * A loop at work may hold a lock of the language's runtime, which nobody could give back in the child. So a fork waits
 * until all loops rest; not for long, because a callback may wait for something that the forking thread holds.
 */
static void process_will_fork(void)
{
    if (csystem_loop_now != NULL) __atomic_add_fetch(&forking_loops, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&forks, 1, __ATOMIC_SEQ_CST);
    uint64_t end = csystem_now() + 100000000u;
    int turns = 0;
    while (__atomic_load_n(&busy_loops, __ATOMIC_SEQ_CST) > __atomic_load_n(&forking_loops, __ATOMIC_SEQ_CST)) {
        struct timespec moment = {0, turns++ < 20 ? 20000 : 500000};
        if (csystem_now() >= end) break;
        nanosleep(&moment, NULL);
    }
}

static void parent_goes_on(void)
{
    if (csystem_loop_now != NULL) __atomic_sub_fetch(&forking_loops, 1, __ATOMIC_SEQ_CST);
    if (__atomic_sub_fetch(&forks, 1, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &forks, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void csystem_guard_fork(void) { pthread_atfork(process_will_fork, parent_goes_on, NULL); }

#define RESULT(call) \
    do { \
        for (;;) { \
            __typeof__(call) result = (call); \
            if (result >= 0) return result; \
            if (errno != EINTR) return -errno; \
        } \
    } while (0)

int csystem_epoll_create(void) { RESULT(epoll_create1(EPOLL_CLOEXEC)); }

static int control(int epoll, int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    RESULT(epoll_ctl(epoll, operation, fd, &event));
}

int csystem_epoll_add(int epoll, int fd, uint32_t events, uint64_t data)
{
    return control(epoll, EPOLL_CTL_ADD, fd, events, data);
}

int csystem_epoll_modify(int epoll, int fd, uint32_t events, uint64_t data)
{
    return control(epoll, EPOLL_CTL_MOD, fd, events, data);
}

int csystem_epoll_remove(int epoll, int fd) { return control(epoll, EPOLL_CTL_DEL, fd, 0, 0); }

int csystem_epoll_wait(int epoll, csystem_event *events, int capacity, int timeout)
{
    struct epoll_event ready[CSYSTEM_MAX_EVENTS];
    if (capacity > CSYSTEM_MAX_EVENTS) capacity = CSYSTEM_MAX_EVENTS;
    csystem_end_work();
    int count = epoll_wait(epoll, ready, capacity, timeout);
    int error = errno;
    csystem_begin_work();
    if (count < 0) return error == EINTR ? 0 : -error;
    for (int i = 0; i < count; i++) {
        events[i].events = ready[i].events;
        events[i].data = ready[i].data.u64;
    }
    return count;
}

void csystem_wait(const void *word, uint32_t value, uint64_t deadline)
{
    struct timespec when = {.tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline == UINT64_MAX ? NULL : &when, NULL,
        FUTEX_BITSET_MATCH_ANY);
}

void csystem_wake(const void *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

int csystem_eventfd(void) { RESULT(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

int csystem_eventfd_signal(int fd)
{
    uint64_t one = 1;
    RESULT((int)write(fd, &one, sizeof one));
}

int csystem_timerfd(void) { RESULT(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)); }

int csystem_timerfd_set(int fd, uint64_t deadline)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u)}};
    RESULT(timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL));
}

uint64_t csystem_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int csystem_socket(int family) { RESULT(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

int csystem_close(int fd) { return close(fd) < 0 ? -errno : 0; /* never retried: the descriptor is gone either way */ }

ssize_t csystem_send(int fd, const void *bytes, size_t count) { RESULT(send(fd, bytes, count, MSG_NOSIGNAL)); }

ssize_t csystem_receive(int fd, void *bytes, size_t count) { RESULT(recv(fd, bytes, count, 0)); }

int csystem_connect(int fd, const struct sockaddr_storage *address, socklen_t length)
{
    if (connect(fd, (const struct sockaddr *)address, length) == 0) return 0;
    return errno == EINTR ? -EINPROGRESS : -errno; /* an interrupted connect goes on by itself */
}

int csystem_bind(int fd, const struct sockaddr_storage *address, socklen_t length)
{
    RESULT(bind(fd, (const struct sockaddr *)address, length));
}

int csystem_listen(int fd, int backlog) { RESULT(listen(fd, backlog)); }

int csystem_accept(int fd, struct sockaddr_storage *address, socklen_t *length)
{
    *length = sizeof *address;
    memset(address, 0, sizeof *address);
    RESULT(accept4(fd, (struct sockaddr *)address, length, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int csystem_local_address(int fd, struct sockaddr_storage *address, socklen_t *length)
{
    *length = sizeof *address;
    memset(address, 0, sizeof *address);
    RESULT(getsockname(fd, (struct sockaddr *)address, length));
}

int csystem_remote_address(int fd, struct sockaddr_storage *address, socklen_t *length)
{
    *length = sizeof *address;
    memset(address, 0, sizeof *address);
    RESULT(getpeername(fd, (struct sockaddr *)address, length));
}

int csystem_shutdown_output(int fd) { RESULT(shutdown(fd, SHUT_WR)); }

int csystem_socket_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) return errno;
    return error;
}

int csystem_set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -errno;
    flags = fcntl(fd, F_GETFD);
    if (flags < 0) return -errno;
    if (!(flags & FD_CLOEXEC) && fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0) return -errno;
    return 0;
}

int csystem_is_listening(int fd)
{
    int value = 0;
    socklen_t length = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) < 0) return -errno;
    return value != 0;
}

static int set_option(int fd, int level, int option, int value)
{
    RESULT(setsockopt(fd, level, option, &value, sizeof value));
}

int csystem_set_reuse_address(int fd) { return set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1); }

int csystem_set_v6_only(int fd, bool only) { return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, only); }

int csystem_set_stream_options(int fd, unsigned unsent)
{
    int first = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    int second = set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (int)unsent);
    return first < 0 ? first : second;
}

int csystem_unix_address(struct sockaddr_storage *address, socklen_t *length, const char *path, size_t count)
{
    struct sockaddr_un *local = (struct sockaddr_un *)address;
    if (count == 0 || memchr(path, 0, count)) return -EINVAL;
    if (count >= sizeof local->sun_path) return -ENAMETOOLONG;
    memset(address, 0, sizeof *address);
    local->sun_family = AF_UNIX;
    memcpy(local->sun_path, path, count);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + count + 1);
    return 0;
}

int csystem_path_kind(const char *path, uint64_t *device, uint64_t *inode)
{
    struct stat status;
    if (lstat(path, &status) < 0) return errno == ENOENT ? 0 : -errno;
    *device = status.st_dev;
    *inode = status.st_ino;
    return S_ISSOCK(status.st_mode) ? 1 : 2;
}

int csystem_unlink(const char *path) { RESULT(unlink(path)); }

void csystem_error_text(int code, char *text, size_t capacity)
{
    char buffer[128];
    const char *found = strerror_r(code, buffer, sizeof buffer); /* the GNU variant */
    snprintf(text, capacity, "%s", found);
}

struct start {
    void (*entry)(void *);
    void *context;
    char name[16];
};

static void *thread_main(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    if (start.name[0]) pthread_setname_np(pthread_self(), start.name);
    start.entry(start.context);
    return NULL;
}

int csystem_thread_start(const char *name, bool detached, void (*entry)(void *), void *context, uint64_t *thread)
{
    struct start *start = malloc(sizeof *start);
    if (!start) return -ENOMEM;
    start->entry = entry;
    start->context = context;
    snprintf(start->name, sizeof start->name, "%s", name);

    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t id;
    pthread_attr_init(&attributes);
    if (detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&id, &attributes, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) {
        free(start);
        return -error;
    }
    *thread = (uint64_t)id;
    return 0;
}

int csystem_thread_join(uint64_t thread) { return -pthread_join((pthread_t)thread, NULL); }

void csystem_thread_detach(uint64_t thread) { pthread_detach((pthread_t)thread); }

struct csystem_monitor {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
};

csystem_monitor *csystem_monitor_new(void)
{
    csystem_monitor *monitor = malloc(sizeof *monitor);
    if (!monitor) return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&monitor->mutex, NULL);
    pthread_cond_init(&monitor->condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return monitor;
}

void csystem_monitor_lock(csystem_monitor *monitor) { pthread_mutex_lock(&monitor->mutex); }
void csystem_monitor_unlock(csystem_monitor *monitor) { pthread_mutex_unlock(&monitor->mutex); }
void csystem_monitor_signal(csystem_monitor *monitor) { pthread_cond_signal(&monitor->condition); }

bool csystem_monitor_wait(csystem_monitor *monitor, uint64_t deadline)
{
    struct timespec when = {
        .tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u)};
    return pthread_cond_timedwait(&monitor->condition, &monitor->mutex, &when) == 0;
}

int csystem_process(void) { return getpid(); }

bool csystem_is_connected(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    struct sockaddr_storage address;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
    size = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &size) == 0;
}

void csystem_file_stamp(const char *path, uint64_t *device, uint64_t *inode, uint64_t *size, uint64_t *changed)
{
    struct stat status;
    if (stat(path, &status) != 0) return;
    *device = status.st_dev;
    *inode = status.st_ino;
    *size = (uint64_t)status.st_size;
    *changed = (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec;
}

int csystem_open_private(const char *path) { RESULT(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)); }

int csystem_append(int fd, const char *line)
{
    struct iovec parts[] = {{(void *)line, strlen(line)}, {"\n", 1}};
    RESULT((int)writev(fd, parts, 2));
}

int csystem_lookup(
    const char *host, struct sockaddr_storage *addresses, socklen_t *lengths, int capacity, int *system_error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, NULL, &hints, &list);
    *system_error = errno;
    if (code == EAI_NONAME || code == EAI_ADDRFAMILY || code == EAI_NODATA) {
        /* AI_ADDRCONFIG hides loopback addresses on machines without a network. */
        hints.ai_flags = 0;
        code = getaddrinfo(host, NULL, &hints, &list);
        *system_error = errno;
    }
    if (code != 0) return -1000 + code;
    int count = 0;
    for (struct addrinfo *item = list; item && count < capacity; item = item->ai_next) {
        if (item->ai_family != AF_INET && item->ai_family != AF_INET6) continue;
        if (item->ai_addrlen > sizeof *addresses) continue;
        memset(&addresses[count], 0, sizeof *addresses);
        memcpy(&addresses[count], item->ai_addr, item->ai_addrlen);
        lengths[count++] = item->ai_addrlen;
    }
    freeaddrinfo(list);
    return count;
}

const char *csystem_lookup_error_text(int eai_code) { return gai_strerror(eai_code); }

int csystem_interface_address(const char *name, int family, struct sockaddr_storage *address, socklen_t *length)
{
    struct ifaddrs *list = NULL;
    int found = 0;
    if (getifaddrs(&list) < 0) return 0;
    for (struct ifaddrs *item = list; item && !found; item = item->ifa_next) {
        if (!item->ifa_addr || item->ifa_addr->sa_family != family || strcmp(item->ifa_name, name) != 0) continue;
        *length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memset(address, 0, sizeof *address);
        memcpy(address, item->ifa_addr, *length);
        found = 1;
    }
    freeifaddrs(list);
    return found;
}
