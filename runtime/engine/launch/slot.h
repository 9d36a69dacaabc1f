/* Slots: the params of a compiled kernel, in the form that runnables hold. */
#ifndef NOJIT_LAUNCH_SLOT_H
#define NOJIT_LAUNCH_SLOT_H

#include "launch/runnable.h"

/* How the bytes of a param are made. */
typedef enum {
    NJ_PACK_BITS,  /* the argument's bits, unchanged */
    NJ_PACK_FLOAT, /* a double converted to a narrower float */
    NJ_PACK_SCRATCH,
    NJ_PACK_OTHER, /* a leaf of a tuple, or a part of a descriptor */
} nj_packing;

typedef struct nj_slot {
    int16_t source, leaf; /* as in nj_slot_facts */
    uint8_t packing;      /* an nj_packing */
    uint8_t part;
    uint8_t index;
    uint8_t dtype; /* dtype of its bytes; NJ_DTYPE_U64 for pointers */
} nj_slot;

/* Copy the slots and the maps, which `nj_row_facts_read` has validated; false with `error` filled. */
bool nj_runnable_read_slots(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);
bool nj_runnable_read_maps(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);

#endif
