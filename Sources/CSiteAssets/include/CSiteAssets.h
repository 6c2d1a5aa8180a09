#ifndef CSITEASSETS_H
#define CSITEASSETS_H

#include <stddef.h>

/* The content of a file of the library's pages, or NULL. */
const void *csite_asset(const char *name, size_t *size);

#endif
