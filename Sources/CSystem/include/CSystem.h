#ifndef CSYSTEM_H
#define CSYSTEM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Of this thread: the event loop that runs on it, or NULL. */
extern __thread void *csystem_loop_now __attribute__((tls_model("initial-exec")));
static inline void *csystem_current_loop(void) { return csystem_loop_now; }
static inline void csystem_set_current_loop(void *loop) { csystem_loop_now = loop; }

/*
 * Of this thread: the handle that is lent to the callback that runs now, and its object, which the lender keeps alive.
 * Calls about it need not count references.
 */
typedef struct csystem_lent {
    uintptr_t handle;
    void *object;
} csystem_lent;

extern __thread csystem_lent csystem_lent_now __attribute__((tls_model("initial-exec")));

static inline csystem_lent csystem_lend(uintptr_t handle, void *object)
{
    csystem_lent before = csystem_lent_now;
    csystem_lent_now.handle = handle;
    csystem_lent_now.object = object;
    return before;
}

static inline void csystem_take_back(csystem_lent before) { csystem_lent_now = before; }

static inline void *csystem_lent_object(uintptr_t handle)
{
    return csystem_lent_now.handle == handle ? csystem_lent_now.object : NULL;
}

/* A zeroed table of pointers that lives as long as the process, and how often the process has forked. */
#define CSYSTEM_CHUNKS 4096
extern void *csystem_chunks[CSYSTEM_CHUNKS];
extern uint64_t csystem_forks;

static inline void *csystem_chunk_table(void) { return csystem_chunks; }
static inline uint64_t csystem_fork_count(void) { return __atomic_load_n(&csystem_forks, __ATOMIC_RELAXED); }
static inline void csystem_count_fork(void) { __atomic_add_fetch(&csystem_forks, 1, __ATOMIC_RELAXED); }

/*
 * A loop that is at work may be inside OpenSSL or another library, which the process takes down when it exits: so an
 * exiting process waits (half a second at most) until its loops sleep, and they do not wake up again.
 */
void csystem_begin_work(void);
void csystem_end_work(void);
/* Registers that; once, before other libraries register what they do at exit. */
void csystem_guard_exit(void);
/*
 * Lets loops rest, where they hold no lock of a library, while the process forks: as far as they get there within
 * 100 ms. Once, behind all other handlers of fork: what is registered last is prepared first.
 */
void csystem_guard_fork(void);

/*
 * System calls as Swift wants them: the result, or a negated errno; EINTR is retried.
 */

/* A packed struct epoll_event as two plain numbers. */
typedef struct csystem_event {
    uint32_t events;
    uint64_t data;
} csystem_event;

#define CSYSTEM_MAX_EVENTS 256

int csystem_epoll_create(void);
int csystem_epoll_add(int epoll, int fd, uint32_t events, uint64_t data);
int csystem_epoll_modify(int epoll, int fd, uint32_t events, uint64_t data);
int csystem_epoll_remove(int epoll, int fd);
/* At most CSYSTEM_MAX_EVENTS; timeout in milliseconds, -1 for ever. EINTR gives 0 events. */
int csystem_epoll_wait(int epoll, csystem_event *events, int capacity, int timeout);

static const uint32_t CSYSTEM_IN = 0x001;
static const uint32_t CSYSTEM_OUT = 0x004;
static const uint32_t CSYSTEM_ERR = 0x008;
static const uint32_t CSYSTEM_HUP = 0x010;
static const uint32_t CSYSTEM_EDGE = 0x80000000;

/* Sleeps while the word has the value, until csystem_wake or the deadline: nanoseconds of the monotonic clock, UINT64_MAX
 * for none. May return early. */
void csystem_wait(const void *word, uint32_t value, uint64_t deadline);
/* Wakes one thread that sleeps on the word. */
void csystem_wake(const void *word);

int csystem_eventfd(void);
int csystem_eventfd_signal(int fd);
int csystem_timerfd(void);
/* Nanoseconds of the monotonic clock; 0 disarms. */
int csystem_timerfd_set(int fd, uint64_t deadline);
/* Nanoseconds of the monotonic clock. */
uint64_t csystem_now(void);

int csystem_socket(int family);
int csystem_close(int fd);
ssize_t csystem_send(int fd, const void *bytes, size_t count);
ssize_t csystem_receive(int fd, void *bytes, size_t count);
int csystem_connect(int fd, const struct sockaddr_storage *address, socklen_t length);
int csystem_bind(int fd, const struct sockaddr_storage *address, socklen_t length);
int csystem_listen(int fd, int backlog);
int csystem_accept(int fd, struct sockaddr_storage *address, socklen_t *length);
int csystem_local_address(int fd, struct sockaddr_storage *address, socklen_t *length);
int csystem_remote_address(int fd, struct sockaddr_storage *address, socklen_t *length);
int csystem_shutdown_output(int fd);
/* The socket's pending error as a positive errno, 0 if there is none. */
int csystem_socket_error(int fd);
/* Makes a descriptor non-blocking and close-on-exec. */
int csystem_set_nonblocking(int fd);
/* Whether it is a stream socket with a peer. */
bool csystem_is_connected(int fd);
/* 1 if the socket listens, 0 if not. */
int csystem_is_listening(int fd);
int csystem_set_reuse_address(int fd);
int csystem_set_v6_only(int fd, bool only);
/* TCP: no delay, and at most `unsent` bytes that the kernel holds without having sent them. */
int csystem_set_stream_options(int fd, unsigned unsent);

/* Fills the address of a Unix-domain socket; -ENAMETOOLONG, -EINVAL (empty or with a NUL). */
int csystem_unix_address(
    struct sockaddr_storage *address, socklen_t *length, const char *path, size_t count);

/* What lies at a path: 0 nothing, 1 a socket, 2 something else; device and inode of it. */
int csystem_path_kind(const char *path, uint64_t *device, uint64_t *inode);
int csystem_unlink(const char *path);
/* Device, inode, size and time of change of a file; left alone if there is none. */
void csystem_file_stamp(const char *path, uint64_t *device, uint64_t *inode, uint64_t *size, uint64_t *changed);
/* Opens a file for appending, made for its owner alone if need be. */
int csystem_open_private(const char *path);
/* Writes a line and its end in one call. */
int csystem_append(int fd, const char *line);

/* strerror without a race: writes a NUL-terminated text. */
void csystem_error_text(int code, char *text, size_t capacity);

/* Starts a thread with all signals blocked. `entry` gets `context`. Joinable unless detached. */
int csystem_thread_start(
    const char *name, bool detached, void (*entry)(void *), void *context, uint64_t *thread);
int csystem_thread_join(uint64_t thread);
/* Of a joinable thread that nobody will join. */
void csystem_thread_detach(uint64_t thread);

/* A mutex with one condition on the monotonic clock. */
typedef struct csystem_monitor csystem_monitor;
csystem_monitor *csystem_monitor_new(void);
void csystem_monitor_lock(csystem_monitor *monitor);
void csystem_monitor_unlock(csystem_monitor *monitor);
void csystem_monitor_signal(csystem_monitor *monitor);
/* false: the deadline (nanoseconds, monotonic) has passed. */
bool csystem_monitor_wait(csystem_monitor *monitor, uint64_t deadline);
int csystem_process(void);

/* Name lookup: up to `capacity` addresses of stream sockets in the resolver's order. Returns the count, or the
   (negative) EAI code minus 1000; `system_error` is errno, of use with EAI_SYSTEM. */
int csystem_lookup(
    const char *host, struct sockaddr_storage *addresses, socklen_t *lengths, int capacity, int *system_error);
const char *csystem_lookup_error_text(int eai_code);

/* A SRV record; host is NUL-terminated. */
typedef struct csystem_service {
    char host[256];
    uint16_t port, priority, weight;
} csystem_service;

/* The SRV records of a name: their count, 0 if there are none; -1: no name server answered, -2: they failed. With a
   port, the name server at 127.0.0.1:port is asked instead of the system's. Blocks. */
int csystem_lookup_service(const char *name, csystem_service *services, int capacity, uint16_t port);

/* The first address of an interface of this family (AF_INET, AF_INET6); 1 found, 0 not. */
int csystem_interface_address(const char *name, int family, struct sockaddr_storage *address, socklen_t *length);

/*
 * Opens what lies below a folder, following no symbolic link and never leaving it; O_CLOEXEC is added. `path` is relative,
 * without empty parts. mode counts with O_CREAT only.
 */
static const int32_t CSYSTEM_PATH = 010000000; /* O_PATH */
int csystem_open_beneath(int folder, const char *path, int flags, uint32_t mode);
/* Renames inside one folder, never over something that is there: -EEXIST. */
int csystem_rename_new(int folder, const char *from, const char *to);
ssize_t csystem_sendfile(int socket, int file, int64_t offset, size_t count);
ssize_t csystem_pread(int file, void *bytes, size_t count, int64_t offset);
/* Writes everything, or fails. */
ssize_t csystem_write_all(int file, const void *bytes, size_t count);

#endif
