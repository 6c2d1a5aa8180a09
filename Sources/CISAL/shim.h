#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

/* Macros that Swift does not see: how much memory the compressor wants beside its state at a level from 1 to 3. */
static inline uint32_t igzip_level_memory(uint32_t level)
{
    return level <= 1 ? ISAL_DEF_LVL1_SMALL : level == 2 ? ISAL_DEF_LVL2_SMALL : ISAL_DEF_LVL3_SMALL;
}
