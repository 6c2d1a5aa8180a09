#define _GNU_SOURCE

#include "common.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

uint64_t chance_next(struct chance *chance)
{
    uint64_t z = chance->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint32_t chance_below(struct chance *chance, uint32_t bound)
{
    return bound == 0 ? 0 : (uint32_t)(chance_next(chance) % bound);
}

bool chance_one_in(struct chance *chance, uint32_t count)
{
    return chance_below(chance, count) == 0;
}

uint32_t chance_size(struct chance *chance, uint32_t most)
{
    uint32_t bits = chance_below(chance, 32u - (uint32_t)__builtin_clz(most | 1) + 1);
    uint32_t size = chance_below(chance, bits >= 32 ? UINT32_MAX : UINT32_C(1) << bits);
    return size > most ? most : size;
}

int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void sleep_ms(int64_t milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        continue;
}

atomic_ullong current_seed;
atomic_int findings;

void finding(const char *format, ...)
{
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (atomic_fetch_add(&findings, 1) < 50)
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)atomic_load(&current_seed), text);
}

static size_t count_entries(const char *path)
{
    DIR *stream = opendir(path);
    size_t count = 0;
    if (stream == NULL)
        return 0;
    while (readdir(stream) != NULL)
        count++;
    closedir(stream);
    return count - 2;
}

size_t open_descriptors(void)
{
    return count_entries("/proc/self/fd") - 1;
}

void list_descriptors(void)
{
    for (int descriptor = 0; descriptor < 4096; descriptor++) {
        char path[40], target[200];
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        ssize_t size = readlink(path, target, sizeof target - 1);
        if (size >= 0)
            fprintf(stderr, "descriptor %d: %.*s\n", descriptor, (int)size, target);
    }
}

size_t own_threads(void)
{
    return count_entries("/proc/self/task");
}

size_t resident_bytes(void)
{
    size_t size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%zu %zu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

unsigned char pattern_byte(uint64_t position, uint32_t seed)
{
    uint64_t word = (position / 8 + seed) * UINT64_C(0x9E3779B97F4A7C15);
    word ^= word >> 29;
    return (unsigned char)(word >> position % 8 * 8);
}

bool matches_pattern(const void *data, size_t size, uint64_t position, uint32_t seed)
{
    const unsigned char *bytes = data;
    for (size_t index = 0; index < size; index++)
        if (bytes[index] != pattern_byte(position + index, seed))
            return false;
    return true;
}

void fill_pattern(void *data, size_t size, uint64_t position, uint32_t seed)
{
    unsigned char *bytes = data;
    for (size_t index = 0; index < size; index++)
        bytes[index] = pattern_byte(position + index, seed);
}
