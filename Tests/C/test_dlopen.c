/* The library as a plug-in: loaded, used, closed and loaded again by a program that does not link it. */

#define _GNU_SOURCE

#include "test.h"

#include <blip.h>

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOAD(name) name##_type *name = (name##_type *)(uintptr_t)dlsym(library, #name); REQUIRE(name != NULL)
typedef uint32_t blip_version_number_type(void);
typedef blip_status blip_runtime_new_type(blip_runtime_options *, blip_runtime **);
typedef blip_status blip_runtime_stop_type(blip_runtime *, int64_t);
typedef void blip_runtime_release_type(blip_runtime *);
typedef blip_status blip_connection_new_type(blip_runtime *, blip_slice, blip_connection_options *, blip_connection **);
typedef blip_status blip_connection_wait_open_type(blip_connection *, int64_t);
typedef void blip_connection_release_type(blip_connection *);

static size_t threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    size_t count = 0;
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count - 2;
}

static void *load(void)
{
    /* A sanitizer's dlopen does not look where the program's own would. */
    const char *path = getenv("LIBBLIP_PATH");
    void *library = dlopen(path != NULL ? path : "libblip.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        test_note("%s", dlerror());
        REQUIRE(library != NULL);
    }
    return library;
}

static void use(void *library)
{
    LOAD(blip_version_number);
    LOAD(blip_runtime_new);
    LOAD(blip_runtime_stop);
    LOAD(blip_runtime_release);
    LOAD(blip_connection_new);
    LOAD(blip_connection_wait_open);
    LOAD(blip_connection_release);
    static const char url[] = "ws://127.0.0.1:1/";
    blip_slice slice = {url, sizeof url - 1};
    blip_runtime *runtime = NULL;
    blip_connection *connection = NULL;
    CHECK_INT(blip_version_number(), BLIP_VERSION_NUMBER);
    REQUIRE_INT(blip_runtime_new(NULL, &runtime), BLIP_OK);
    REQUIRE_INT(blip_connection_new(runtime, slice, NULL, &connection), BLIP_OK);
    CHECK_INT(blip_connection_wait_open(connection, 5000), BLIP_ERROR_REFUSED);
    blip_connection_release(connection);
    CHECK_INT(blip_runtime_stop(runtime, 5000), BLIP_OK);
    blip_runtime_release(runtime);
}

TEST(loading_starts_no_thread_and_touches_no_signal)
{
    struct sigaction before[NSIG], after;
    sigset_t mask_before, mask_after;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &before[number]);
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    size_t count = threads();
    void *library = load();
    CHECK_INT(threads(), count);
    use(library);
    CHECK_INT(threads(), count);
    sigprocmask(SIG_BLOCK, NULL, &mask_after);
    for (int number = 1; number < NSIG; number++) {
        memset(&after, 0, sizeof after);
        if (sigaction(number, NULL, &after) != 0)
            continue;
        if (!CHECK(after.sa_handler == before[number].sa_handler))
            test_note("signal %d", number);
        CHECK_INT(sigismember(&mask_after, number), sigismember(&mask_before, number));
    }
    CHECK_INT(dlclose(library), 0);
}

TEST(closed_and_opened_again)
{
    for (int i = 0; i < 5; i++) {
        void *library = load();
        use(library);
        CHECK_INT(dlclose(library), 0);
    }
    /* It cannot be unloaded: threads and destructors of its language's runtime may still refer to it. */
    void *there = dlopen("libblip.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(there != NULL);
    dlclose(there);
}

TEST(loaded_quickly)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    void *library = load();
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t microseconds = (end.tv_sec - start.tv_sec) * 1000000 + (end.tv_nsec - start.tv_nsec) / 1000;
    test_note("loading took %d us", (int)microseconds);
    CHECK_AT_MOST(microseconds, 500000);
    CHECK(library != NULL);
}

TEST(exit_with_everything_running)
{
    void *library = load();
    LOAD(blip_runtime_new);
    LOAD(blip_connection_new);
    static const char url[] = "ws://127.0.0.1:1/";
    blip_slice slice = {url, sizeof url - 1};
    blip_runtime *runtime = NULL;
    blip_connection *connection = NULL;
    REQUIRE_INT(blip_runtime_new(NULL, &runtime), BLIP_OK);
    REQUIRE_INT(blip_connection_new(runtime, slice, NULL, &connection), BLIP_OK);
    /* The test's process exits now, with a loop thread under way; the harness would see a crash or a hang. */
}
