/* Measures how long a program takes from nothing to its first connection: dlopen, connecting, upgrading.
 *
 *     load_time libblip.so.1 url
 *
 * Prints one JSON object. */

#include "bench.h"

#include <blip.h>
#include <dlfcn.h>

typedef blip_slice text_function(const char *);
typedef blip_status new_function(blip_runtime *, blip_slice, blip_connection_options *, blip_connection **);
typedef blip_status wait_function(blip_connection *, int64_t);

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        die("%s", dlerror());
    return address;
}

int main(int argc, char **argv)
{
    blip_connection *connection = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: load_time libblip.so.1 url\n");
        return 2;
    }
    uint64_t begun = nanoseconds();
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL)
        die("%s", dlerror());
    uint64_t loaded = nanoseconds();
    text_function *text;
    new_function *make;
    wait_function *wait;
    *(void **)&text = symbol(library, "blip_text");
    *(void **)&make = symbol(library, "blip_connection_new");
    *(void **)&wait = symbol(library, "blip_connection_wait_open");
    if (make(NULL, text(argv[2]), NULL, &connection) != BLIP_OK || wait(connection, 10000) != BLIP_OK)
        die("cannot connect to %s", argv[2]);
    uint64_t opened = nanoseconds();
    printf("{\"load_ms\": %.3f, \"connect_ms\": %.3f, \"total_ms\": %.3f}\n", (double)(loaded - begun) / 1e6,
        (double)(opened - loaded) / 1e6, (double)(opened - begun) / 1e6);
    return 0;
}
