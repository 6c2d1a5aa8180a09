/* Counts what a process allocates. Loaded with LD_PRELOAD; the counts stand in the file that ALLOCATION_COUNTS names,
 * as two 64-bit numbers, calls and bytes, which another process reads while this one runs. */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The C library's own, under names that nothing interposes. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

struct counts {
    atomic_uint_least64_t calls, bytes;
};

static struct counts unseen;
static struct counts *counts = &unseen;

__attribute__((constructor)) static void share_counts(void)
{
    const char *path = getenv("ALLOCATION_COUNTS");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (ftruncate(file, sizeof *counts) == 0) {
        void *shared = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED)
            counts = shared;
    }
    close(file);
}

static void count(size_t bytes)
{
    atomic_fetch_add_explicit(&counts->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->bytes, bytes, memory_order_relaxed);
}

void *malloc(size_t size)
{
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    count(size);
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size)
{
    count(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    count(size);
    void *made = __libc_memalign(alignment, size);
    if (made == NULL)
        return ENOMEM;
    *memory = made;
    return 0;
}
