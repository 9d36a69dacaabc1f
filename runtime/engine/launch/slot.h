/* Parameters of a compiled kernel, as runnables hold them. */
#ifndef NOJIT_LAUNCH_SLOT_H
#define NOJIT_LAUNCH_SLOT_H

#include "launch/runnable.h"

/* How the bytes of a parameter are made. */
typedef enum {
    NJ_PACK_BITS,  /* the bits of the argument, as they are */
    NJ_PACK_FLOAT, /* a double made narrower */
    NJ_PACK_SCRATCH,
    NJ_PACK_OTHER, /* a leaf of a tuple, or a part of a descriptor */
} nj_packing;

typedef struct nj_slot {
    int16_t source, leaf; /* as facts have them */
    uint8_t packing;
    uint8_t part;
    uint8_t index;
    uint8_t dtype; /* how its bytes are made; pointers count as NJ_DTYPE_U64 */
} nj_slot;

/* Copies slots and maps, which `nj_row_facts_read` has checked; false with `error` filled. */
bool nj_runnable_read_slots(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);
bool nj_runnable_read_maps(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);

#endif
