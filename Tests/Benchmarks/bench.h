/* What the programs of the suite share: the clock, a histogram of times, bodies, and ending with a message.
 *
 * Programs print one JSON object on a line of its own, which bench.py reads. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline uint64_t nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline uint64_t number(const char *text)
{
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end != 0)
        die("'%s' is not a number", text);
    return value;
}

static inline void *room(size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

/* Runs the calling thread, and those it starts, on one core; -1 leaves it where it is. */
static inline void pin(int core)
{
    cpu_set_t cores;
    if (core < 0)
        return;
    CPU_ZERO(&cores);
    CPU_SET((unsigned)core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0)
        die("cannot run on core %d", core);
}

static inline void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The greatest resident memory that this process has had, in bytes. */
static inline uint64_t peak_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Processor time of this process so far, in seconds. */
static inline double processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Times in nanoseconds: 64 buckets to each power of two, so that a percentile is right to 1.6 %. */
enum { SUB_BITS = 6, SUB = 1 << SUB_BITS, BUCKETS = 60 * SUB };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total, greatest;
};

static inline unsigned bucket_of(uint64_t value)
{
    if (value < 2 * SUB)
        return (unsigned)value;
    unsigned shift = 63u - SUB_BITS - (unsigned)__builtin_clzll(value);
    return shift * SUB + (unsigned)(value >> shift);
}

static inline double bucket_middle(unsigned bucket)
{
    if (bucket < 2 * SUB)
        return bucket;
    unsigned shift = bucket / SUB - 1;
    return ((double)(bucket - shift * SUB) + 0.5) * (double)(UINT64_C(1) << shift);
}

static inline void record(struct histogram *histogram, uint64_t value, uint64_t times)
{
    histogram->counts[bucket_of(value)] += times;
    histogram->total += times;
    if (value > histogram->greatest)
        histogram->greatest = value;
}

static inline void merge(struct histogram *sum, const struct histogram *part)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        sum->counts[i] += part->counts[i];
    sum->total += part->total;
    if (part->greatest > sum->greatest)
        sum->greatest = part->greatest;
}

static inline double percentile(const struct histogram *histogram, double share)
{
    uint64_t target = (uint64_t)((double)histogram->total * share), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen > target)
            return bucket_middle(i) < (double)histogram->greatest ? bucket_middle(i) : (double)histogram->greatest;
    }
    return (double)histogram->greatest;
}

/* Prints members of a JSON object, without braces. */
static inline void print_latency(const struct histogram *histogram)
{
    printf("\"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f",
        percentile(histogram, 0.50) / 1e3, percentile(histogram, 0.90) / 1e3, percentile(histogram, 0.99) / 1e3,
        percentile(histogram, 0.999) / 1e3, (double)histogram->greatest / 1e3);
}

/* Bytes of a body, as a function of their place, so that both ends can tell them. The pattern is made once. */
enum { PATTERN = 65536 };

static unsigned char pattern[2 * PATTERN];

static inline void make_pattern(void)
{
    for (unsigned i = 0; i < 2 * PATTERN; i++)
        pattern[i] = (unsigned char)((i % PATTERN) * 2654435761u >> 13);
}

/* Whether the first and the last of some bytes are those of their place. */
static inline bool fits_pattern(const void *data, size_t size, uint64_t place)
{
    const unsigned char *bytes = (const unsigned char *)data;
    return size == 0
        || (bytes[0] == pattern[place % PATTERN] && bytes[size - 1] == pattern[(place + size - 1) % PATTERN]);
}

#endif
