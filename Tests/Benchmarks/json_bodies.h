/* Bodies for measuring compression: JSON documents as programs send them, the same ones in every program.
 *
 * They differ from each other, so that a frame finds no copy of itself in the history of the deflate stream, which a
 * single body sent again and again would. */
#ifndef JSON_BODIES_H
#define JSON_BODIES_H

#include "bench.h"

struct bodies {
    unsigned count;
    size_t size; /* of each */
    char *bytes;
};

static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* An array of records, filled up with spaces to exactly the size asked for, which is 64 at least. */
static inline void make_json(char *body, size_t size, uint64_t *random)
{
    static const char *const cities[] = {
        "Lisbon", "Reykjavik", "Osaka", "Nairobi", "Quito", "Tallinn", "Perth", "Oslo"};
    static const char *const states[] = {"active", "suspended", "invited", "closed"};
    size_t used = 0;
    char record[256];
    body[used++] = '[';
    for (;;) {
        int length = snprintf(record, sizeof record,
            "%s{\"id\":\"%08x%08x\",\"state\":\"%s\",\"city\":\"%s\",\"balance\":%u.%02u,\"visits\":%u,"
            "\"tags\":[\"t%u\",\"t%u\"]}",
            used > 1 ? "," : "", next_random(random), next_random(random), states[next_random(random) % 4],
            cities[next_random(random) % 8], next_random(random) % 100000, next_random(random) % 100,
            next_random(random) % 1000, next_random(random) % 50, next_random(random) % 50);
        if (used + (size_t)length + 1 > size)
            break;
        memcpy(body + used, record, (size_t)length);
        used += (size_t)length;
    }
    memset(body + used, ' ', size - used);
    body[size - 1] = ']';
}

static inline struct bodies make_json_bodies(size_t size)
{
    struct bodies bodies = {size < 16384 ? 509 : 17, size < 64 ? 64 : size, NULL};
    uint64_t random = 42;
    bodies.bytes = room(bodies.count, bodies.size);
    for (unsigned i = 0; i < bodies.count; i++)
        make_json(bodies.bytes + i * bodies.size, bodies.size, &random);
    return bodies;
}

#endif
