#include "CForkRepair.h"

#include <pthread.h>
#include <stdint.h>

/*
 * Swift's runtime keeps each thread's id in a thread-local variable and uses it to own its locks. In a forked child the
 * variable of the only thread still has the parent's id, and a lock that two threads of the child want is then owned by
 * nobody who could give it back. Set to zero, it is asked for anew. The name is that of the runtime's function
 * swift::threading_impl::linux::ulock_get_tid; this file is part of the dynamic library alone, which has the runtime
 * inside, so that a toolchain with another name fails to link instead of going wrong.
 */
extern __thread uint32_t swift_thread_id __asm__("_ZZN5swift14threading_impl5linux13ulock_get_tidEvE3tid");

static void child_began(void) { swift_thread_id = 0; }

__attribute__((constructor)) void cforkrepair_register(void)
{
    static int registered;
    if (!registered) {
        registered = 1;
        pthread_atfork(NULL, NULL, child_began);
    }
}
