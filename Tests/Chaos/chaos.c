/* Runs clients and a server of libblip through a network and a system that fail, and checks what must hold:
 *
 *     chaos calm     nothing fails; everything has to be answered
 *     chaos churn    nothing fails, but requests are cancelled and connections closed at any time
 *     chaos network  through a proxy that delays, splits, joins, truncates, resets, half-closes and stalls
 *     chaos faults   system calls fail, clocks jump, lookups are slow
 *     chaos proxy PORT   only the proxy, for other programs: writes its port, ends with its standard input
 *
 *     --runs N     connections to make (default 200)
 *     --seconds N  or so long
 *     --seed N     of the first run (default: the clock)
 *     --tls CERTIFICATE KEY   over TLS, with these files
 *     --clients N  at a time (default 8)
 *     --quiet      one line at the end */

#define _GNU_SOURCE

#include "faults.h"
#include "network.h"
#include "workload.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct settings {
    const char *mode;
    long runs, seconds;
    uint64_t seed;
    uint32_t clients;
    const char *certificate, *key;
    bool is_quiet;
    int port;
};

static int make_file(void)
{
    FILE *file = tmpfile();
    static unsigned char bytes[100000];
    if (file == NULL)
        return -1;
    fill_pattern(bytes, sizeof bytes, 0, 5);
    if (fwrite(bytes, 1, sizeof bytes, file) != sizeof bytes || fflush(file) != 0)
        return -1;
    return fileno(file);
}

static blip_runtime *make_runtime(uint32_t threads, blip_status *status)
{
    blip_runtime_options *options = blip_runtime_options_new();
    blip_runtime *runtime = NULL;
    blip_runtime_options_set_threads(options, threads);
    *status = blip_runtime_new(options, &runtime);
    blip_runtime_options_release(options);
    return runtime;
}

static void end_runtime(blip_runtime *runtime)
{
    HOLDS(blip_runtime_stop(runtime, 60000) == BLIP_OK);
    blip_runtime_release(runtime);
}

static size_t heap_in_use(void)
{
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* Waits until as many descriptors are open as before; the proxy's threads end a little later. */
static bool descriptors_return(size_t before)
{
    for (int turn = 0; turn < 2000; turn++) {
        if (open_descriptors() <= before)
            return true;
        sleep_ms(5);
    }
    finding("%zu descriptors are open, %zu were at the start", open_descriptors(), before);
    list_descriptors();
    return false;
}

/* One server and one client runtime for all runs; through the proxy, or straight. */
static bool run_network(const struct settings *settings, struct tally *tally)
{
    bool is_calm = strcmp(settings->mode, "calm") == 0, has_proxy = strcmp(settings->mode, "network") == 0;
    blip_status status;
    bool is_good = true;
    size_t descriptors = open_descriptors();
    struct server_options options = {.threads = 1, .certificate = settings->certificate, .key = settings->key,
        .has_patience = !has_proxy};
    struct server *server = server_start(&options, &status);
    if (server == NULL) {
        finding("the server does not start: %s", blip_status_name(status));
        return false;
    }
    struct network *network = !has_proxy ? NULL : network_start(server_port(server), settings->seed);
    blip_runtime *runtime = make_runtime(1, &status);
    char url[200];
    snprintf(url, sizeof url, "%s://127.0.0.1:%u/chaos", settings->certificate != NULL ? "wss" : "ws",
        network != NULL ? network_port(network) : server_port(server));
    struct workload workload = {.server = server, .runtime = runtime, .url = url, .ca = settings->certificate,
        .file = make_file(), .clients = settings->clients, .requests = 12, .largest = 200000, .has_patience = !has_proxy,
        .must_succeed = is_calm};
    size_t heap = 0, resident = 0, working = 0;
    int64_t end = settings->seconds > 0 ? now_ms() + settings->seconds * 1000 : INT64_MAX;
    int64_t warm = settings->seconds > 0 ? now_ms() + settings->seconds * 200 : INT64_MAX;
    long turns = 0;
    for (uint64_t seed = settings->seed; is_good && tally->connections < settings->runs && now_ms() < end; seed++) {
        is_good = workload_run(&workload, seed, tally) && atomic_load(&findings) == 0;
        turns++;
        if (is_good && (heap == 0 ? now_ms() >= warm || tally->connections >= settings->runs / 5 : turns % 100 == 0)) {
            is_good = server_settle(server);
            if (heap == 0) {
                heap = heap_in_use();
                resident = resident_bytes();
                working = open_descriptors();
            } else if (network == NULL) {
                is_good = is_good && descriptors_return(working);
            }
        }
    }
    if (is_good)
        is_good = server_settle(server);
    if (is_good && heap != 0) {
        long growth = (long)heap_in_use() - (long)heap;
        if (!settings->is_quiet)
            printf("%s: heap in use %+ld KiB, resident memory %+ld KiB since a fifth of the runs\n", settings->mode,
                growth / 1024, ((long)resident_bytes() - (long)resident) / 1024);
        /* Messages are kept to be used again, as many as there were at a time. */
        HOLDS(growth < 1 << 20);
    }
    if (!is_good)
        return false;
    if (network != NULL) {
        if (!settings->is_quiet)
            printf("%s: %ld connections were hit by a fault\n", settings->mode, network_faults(network));
        network_stop(network);
    }
    end_runtime(runtime);
    server_stop(server);
    if (workload.file >= 0)
        close(workload.file);
    return descriptors_return(descriptors);
}

/* Runtimes, server and clients are made anew for each run, so that making them can fail too. */
static bool run_faults(const struct settings *settings, struct tally *tally)
{
    size_t heap = 0, descriptors;
    int64_t end = settings->seconds > 0 ? now_ms() + settings->seconds * 1000 : INT64_MAX;
    int file = make_file();
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
    char path[100], host[300];
    descriptors = open_descriptors();
    snprintf(path, sizeof path, "%s/blip-chaos-%d.sock", folder, (int)getpid());
    /* The path is the URL's host. */
    host[0] = 0;
    for (const char *at = path; *at != 0; at++)
        snprintf(host + strlen(host), 4, *at == '/' ? "%%2F" : "%c", *at);
    long turns = 0;
    for (uint64_t seed = settings->seed; tally->connections < settings->runs && now_ms() < end; seed++, turns++) {
        struct chance chance = {seed};
        blip_status status;
        atomic_store(&current_seed, seed);
        faults_reset(seed);
        bool is_unix = settings->certificate == NULL && chance_one_in(&chance, 4);
        struct server_options options = {.threads = 1 + chance_below(&chance, 2), .certificate = settings->certificate,
            .key = settings->key, .unix_path = is_unix ? path : NULL};
        /* The beginning fails in some runs; in others what comes later. */
        if (chance_one_in(&chance, 6)) {
            faults_set(CALL_DESCRIPTOR, chance_below(&chance, 4000));
            faults_set(CALL_SOCKET, chance_below(&chance, 4000));
            faults_set(CALL_EPOLL_ADD, chance_below(&chance, 4000));
        }
        struct server *server = server_start(&options, &status);
        if (server == NULL) {
            HOLDS(status < 0 && status != BLIP_ERROR_INTERNAL);
            tally->connections++;
            continue;
        }
        blip_runtime *runtime = make_runtime(1, &status);
        if (runtime == NULL) {
            HOLDS(status < 0 && status != BLIP_ERROR_INTERNAL);
            server_stop(server);
            continue;
        }
        faults_reset(seed);
        for (int call = 0; call < CALLS; call++) {
            if (call == CALL_MEMORY && settings->certificate != NULL)
                continue;
            if (chance_one_in(&chance, 3))
                faults_set((enum call)call, chance_size(&chance, call == CALL_SEND || call == CALL_RECV ? 4000 : 9000));
        }
        if (chance_one_in(&chance, 4))
            faults_step_clock((int64_t)chance_below(&chance, 80000) - 40000);
        char url[400];
        if (is_unix)
            snprintf(url, sizeof url, "ws+unix://%s/x", host);
        else
            snprintf(url, sizeof url, "%s://%s:%u/chaos", settings->certificate != NULL ? "wss" : "ws",
                chance_one_in(&chance, 2) ? "localhost" : "127.0.0.1", server_port(server));
        struct workload workload = {.server = server, .runtime = runtime, .url = url, .ca = settings->certificate,
            .file = file, .clients = 1 + chance_below(&chance, settings->clients), .requests = 10, .largest = 100000};
        bool is_over = workload_run(&workload, seed, tally);
        faults_reset(seed);
        faults_step_clock(0);
        if (!is_over || !server_settle(server) || atomic_load(&findings) > 0)
            return false;
        end_runtime(runtime);
        server_stop(server);
        /* Nothing keeps what has been ended: a loop that is left shows by its descriptors. */
        if (!descriptors_return(descriptors))
            return false;
        if (turns == 20)
            heap = heap_in_use();
    }
    if (heap > 0) {
        long growth = (long)heap_in_use() - (long)heap;
        if (!settings->is_quiet)
            printf("faults: heap in use %+ld KiB since the first runs\n", growth / 1024);
        HOLDS(growth < 2 << 20);
    }
    if (!settings->is_quiet)
        for (int call = 0; call < CALLS; call++)
            printf("faults: %ld of %s\n", faults_count((enum call)call), faults_name((enum call)call));
    close(file);
    return true;
}

static int run_proxy(const struct settings *settings)
{
    struct network *network = network_start((uint16_t)settings->port, settings->seed);
    if (network == NULL)
        return 1;
    printf("%u\n", network_port(network));
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    network_stop(network);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: chaos calm|churn|network|faults|proxy PORT [--runs N] [--seconds N] [--seed N] [--clients N] "
        "[--tls CERTIFICATE KEY] [--quiet]\n");
    return 64;
}

int main(int count, char **arguments)
{
    struct settings settings = {.runs = 200, .clients = 8, .seed = (uint64_t)time(NULL)};
    for (int i = 1; i < count; i++) {
        const char *argument = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(argument, "--quiet") == 0) {
            settings.is_quiet = true;
        } else if (strcmp(argument, "--runs") == 0) {
            settings.runs = strtol(value, NULL, 10);
            i++;
        } else if (strcmp(argument, "--seconds") == 0) {
            settings.seconds = strtol(value, NULL, 10);
            settings.runs = 1 << 30;
            i++;
        } else if (strcmp(argument, "--seed") == 0) {
            settings.seed = strtoull(value, NULL, 10);
            i++;
        } else if (strcmp(argument, "--clients") == 0) {
            settings.clients = (uint32_t)strtoul(value, NULL, 10);
            i++;
        } else if (strcmp(argument, "--tls") == 0 && i + 2 < count) {
            settings.certificate = arguments[i + 1];
            settings.key = arguments[i + 2];
            i += 2;
        } else if (settings.mode == NULL) {
            settings.mode = argument;
        } else {
            settings.port = atoi(argument);
        }
    }
    if (settings.mode == NULL || settings.clients == 0)
        return usage();
    if (strcmp(settings.mode, "proxy") == 0)
        return run_proxy(&settings);
    struct tally tally = {0};
    struct rusage usage_now;
    int64_t start = now_ms();
    bool is_good;
    if (strcmp(settings.mode, "faults") == 0)
        is_good = run_faults(&settings, &tally);
    else if (strcmp(settings.mode, "network") == 0 || strcmp(settings.mode, "calm") == 0
        || strcmp(settings.mode, "churn") == 0)
        is_good = run_network(&settings, &tally);
    else
        return usage();
    is_good = is_good && atomic_load(&findings) == 0;
    getrusage(RUSAGE_SELF, &usage_now);
    printf("%s%s: %ld connections, %ld opened; %ld requests: %ld answered, %ld failed, %ld refused; %llu MiB; seed %llu, "
        "%lld s: %s\n",
        settings.mode, settings.certificate != NULL ? ", TLS" : "", tally.connections, tally.opened, tally.requests,
        tally.answered, tally.failed, tally.refused, (unsigned long long)(tally.body_bytes >> 20),
        (unsigned long long)settings.seed, (long long)(now_ms() - start) / 1000, is_good ? "passed" : "FAILED");
    fflush(stdout);
    /* What hangs would hang the exit too. */
    if (!is_good)
        _exit(1);
    return 0;
}
