/* System calls that fail now and then. The program's definitions of socket, send and so on stand in for libc's, for the
 * library too; the error is one that the real call can give. */

#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum call { CALL_SOCKET, CALL_CONNECT, CALL_ACCEPT, CALL_SEND, CALL_RECV, CALL_EPOLL_ADD, CALL_EPOLL_WAIT, CALL_DESCRIPTOR,
    CALL_THREAD, CALL_LOOKUP, CALL_READ, CALL_MEMORY, CALLS };

/* No call fails until faults_set. */
void faults_reset(uint64_t seed);
/* Of 10,000 calls of this kind so many fail. */
void faults_set(enum call call, uint32_t rate);
/* How many have failed. */
long faults_count(enum call call);
const char *faults_name(enum call call);
/* Moves the clock that people set; the monotonic one goes on. */
void faults_step_clock(int64_t seconds);
/* Descriptors that were closed although they were not open. */
long faults_wrong_closes(void);

#endif
