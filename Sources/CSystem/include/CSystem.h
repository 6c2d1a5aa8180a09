#ifndef CSYSTEM_H
#define CSYSTEM_H

/* What Swift cannot say itself: thread-local variables. */

/* The event loop that the calling thread runs, or NULL. */
void *csystem_current_loop(void);
void csystem_set_current_loop(void *loop);

#endif
