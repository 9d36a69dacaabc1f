/* A variant on a device, with all that a launch needs worked out: what the plans of nojit.h and of the binding hold. Immutable, but
 * for the tensor maps that it keeps. */
#ifndef NOJIT_LAUNCH_RUNNABLE_H
#define NOJIT_LAUNCH_RUNNABLE_H

#include "driver/function.h"
#include "expr/machine.h"
#include "launch/tensormap.h"

enum {
    NJ_SOURCE_GLOBAL_SCRATCH = -1,
    NJ_SOURCE_PROFILE_SCRATCH = -2,
};

/* The part of its source that a parameter has. */
typedef enum {
    NJ_PART_VALUE = 0,
    NJ_PART_MAP = 1, /* from here on, of a descriptor */
    NJ_PART_BASE = 2,
    NJ_PART_SHAPE = 3,
    NJ_PART_STRIDE = 4,
    NJ_PART_PADS_NAN = 5,
    NJ_PART_ROUNDS_TF32 = 6,
} nj_part;

/* One parameter of the compiled kernel. */
typedef struct {
    int16_t source; /* an argument of the call, or one of the above */
    int16_t leaf;   /* which of the argument's entries in `leaves`; -1: the argument itself */
    uint8_t part;
    uint8_t index;  /* which of the maps, or which dimension */
    uint8_t dtype;  /* how its bytes are made; pointers and maps count as NJ_DTYPE_U64 */
} nj_slot_facts;

typedef struct {
    uint64_t bytes; /* of one CTA; 0 if the kernel needs none */
    uint64_t align;
} nj_scratch;

/* The facts from which a runnable is made; it keeps only the function. */
typedef struct {
    nj_function *function;
    int device;            /* its ordinal */
    size_t argument_count; /* of the signature that sources and programs refer to */
    size_t slot_count;
    const nj_slot_facts *slots;
    size_t map_count;
    const nj_map_facts *maps;
    int grid_count;      /* dimensions that the bundle gives; 0 if every call brings its own grid */
    nj_program grid[3];  /* valid ones */
    unsigned int block_threads;
    unsigned int num_ctas;
    unsigned int shared_bytes;
    bool cooperative;
    bool pdl;
    nj_scratch global_scratch;
    nj_scratch profile_scratch;
} nj_runnable_facts;

struct nj_slot;

enum { NJ_ATTRIBUTES_MAX = 4 };

typedef struct {
    nj_function *function;
    nj_device *device;
    int ordinal;
    size_t argument_count;
    unsigned int block_threads;
    unsigned int num_ctas;
    unsigned int shared_bytes;
    bool limited; /* whether a launch needs limits raised */
    nj_scratch global_scratch;
    nj_scratch profile_scratch;
    size_t slot_count;
    struct nj_slot *slots;
    size_t map_count;
    nj_map *maps;
    int grid_count;
    nj_program grid[3];
    unsigned int attribute_count;
    CUlaunchAttribute attributes[NJ_ATTRIBUTES_MAX];
} nj_runnable;

/* Makes one and raises the limits that its launches need; false with `error` filled: NJ_ERROR_INTEGRITY for facts that no
 * build gives. `nj_runnable_clear` is due in either case. */
NJ_FOR_BINDING bool nj_runnable_init(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);
NJ_FOR_BINDING void nj_runnable_clear(nj_runnable *runnable);

static inline bool nj_runnable_needs_scratch(const nj_runnable *runnable)
{
    return runnable->global_scratch.bytes != 0 || runnable->profile_scratch.bytes != 0;
}

#endif
