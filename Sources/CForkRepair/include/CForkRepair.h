#ifndef CFORKREPAIR_H
#define CFORKREPAIR_H

/* Registers what a forked child needs to go on using Swift; called once when the library is loaded. */
void cforkrepair_register(void);

#endif
