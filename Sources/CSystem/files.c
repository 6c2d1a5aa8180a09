/* Files below a folder that nobody can lead out of: openat2 where the kernel has it, else one step at a time. */
#define _GNU_SOURCE
#include "CSystem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int walk(int folder, const char *path, int flags, mode_t mode)
{
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    if (at < 0)
        return -errno;
    while (true) {
        const char *end = strchrnul(path, '/');
        size_t size = (size_t)(end - path);
        char name[256];
        if (size == 0 || size >= sizeof name || (size == 2 && memcmp(path, "..", 2) == 0)) {
            close(at);
            return -ENOENT;
        }
        memcpy(name, path, size);
        name[size] = 0;
        bool last = *end == 0;
        int next = openat(at, name, last ? flags | O_NOFOLLOW | O_CLOEXEC : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, mode);
        int code = errno;
        close(at);
        if (next < 0)
            return -code;
        if (last)
            return next;
        at = next;
        path = end + 1;
    }
}

int csystem_open_beneath(int folder, const char *path, int flags, uint32_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = (flags & O_CREAT) != 0 ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    for (int tries = 0; tries < 16; tries++) {
        long result = syscall(SYS_openat2, folder, path, &how, sizeof how);
        if (result >= 0)
            return (int)result;
        if (errno == ENOSYS || errno == EPERM)
            return walk(folder, path, flags, (mode_t)mode);
        /* EAGAIN: something was renamed meanwhile. */
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return -EAGAIN;
}

int csystem_rename_new(int folder, const char *from, const char *to)
{
    if (syscall(SYS_renameat2, folder, from, folder, to, 1 /* RENAME_NOREPLACE */) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (linkat(folder, from, folder, to, 0) != 0)
        return -errno;
    unlinkat(folder, from, 0);
    return 0;
}

ssize_t csystem_sendfile(int socket, int file, int64_t offset, size_t count)
{
    off_t position = (off_t)offset;
    while (true) {
        ssize_t result = sendfile(socket, file, &position, count);
        if (result >= 0)
            return result;
        if (errno != EINTR)
            return -errno;
    }
}

ssize_t csystem_pread(int file, void *bytes, size_t count, int64_t offset)
{
    while (true) {
        ssize_t result = pread(file, bytes, count, (off_t)offset);
        if (result >= 0)
            return result;
        if (errno != EINTR)
            return -errno;
    }
}

ssize_t csystem_write_all(int file, const void *bytes, size_t count)
{
    const char *next = bytes;
    size_t left = count;
    while (left > 0) {
        ssize_t result = write(file, next, left);
        if (result < 0 && errno == EINTR)
            continue;
        if (result <= 0)
            return result < 0 ? -errno : -EIO;
        next += result;
        left -= (size_t)result;
    }
    return (ssize_t)count;
}
