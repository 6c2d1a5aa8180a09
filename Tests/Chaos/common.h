/* What all parts of the chaos tests share: seeded randomness, time, reports of what does not hold, resources. */

#ifndef COMMON_H
#define COMMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};
uint64_t chance_next(struct chance *chance);
/* 0 to bound - 1. */
uint32_t chance_below(struct chance *chance, uint32_t bound);
bool chance_one_in(struct chance *chance, uint32_t count);
/* Up to most, small ones as often as large ones. */
uint32_t chance_size(struct chance *chance, uint32_t most);

int64_t now_ms(void);
void sleep_ms(int64_t milliseconds);

/* Which run is at work, for reports. */
extern atomic_ullong current_seed;
extern atomic_int findings;
void finding(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define HOLDS(condition_) \
    do { if (!(condition_)) finding("%s:%d: not true: %s", __FILE__, __LINE__, #condition_); } while (0)

size_t open_descriptors(void);
void list_descriptors(void);
size_t own_threads(void);
size_t resident_bytes(void);

/* Bytes of bodies: they depend on the position and a seed. */
unsigned char pattern_byte(uint64_t position, uint32_t seed);
bool matches_pattern(const void *data, size_t size, uint64_t position, uint32_t seed);
void fill_pattern(void *data, size_t size, uint64_t position, uint32_t seed);

#endif
