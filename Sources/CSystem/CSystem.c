#include "CSystem.h"

static __thread void *current_loop __attribute__((tls_model("initial-exec")));

void *csystem_current_loop(void) { return current_loop; }
void csystem_set_current_loop(void *loop) { current_loop = loop; }
