/* A proxy on 127.0.0.1 that treats what passes as the worst networks do: it delays, splits, joins, truncates, resets,
 * half-closes, stalls. What it does to the n-th connection follows from the seed and n alone. */

#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>
#include <stdint.h>

struct network;

/* Forwards to the port; NULL if it cannot listen. */
struct network *network_start(uint16_t target, uint64_t seed);
uint16_t network_port(struct network *network);
/* How many connections were hit by a fault. */
long network_faults(struct network *network);
/* Ends the connections that are left too. */
void network_stop(struct network *network);

#endif
