/* A runnable: a variant on a device with everything that its launches need precomputed. The plans of nojit.h and of the binding hold one.
 * It is immutable, except its cache of tensor maps. */
#ifndef NOJIT_LAUNCH_RUNNABLE_H
#define NOJIT_LAUNCH_RUNNABLE_H

#include "driver/function.h"
#include "expr/machine.h"
#include "launch/tensormap.h"

enum {
    NJ_SOURCE_GLOBAL_SCRATCH = -1,
    NJ_SOURCE_PROFILE_SCRATCH = -2,
};

/* The part of its source that a kernel param takes. */
typedef enum {
    NJ_PART_VALUE = 0,
    NJ_PART_MAP = 1, /* this and the following are parts of a descriptor */
    NJ_PART_BASE = 2,
    NJ_PART_SHAPE = 3,
    NJ_PART_STRIDE = 4,
    NJ_PART_PADS_NAN = 5,
    NJ_PART_ROUNDS_TF32 = 6,
} nj_part;

/* The source of one param of the compiled kernel. */
typedef struct {
    int16_t source; /* number of an argument of the call, or NJ_SOURCE_GLOBAL_SCRATCH or NJ_SOURCE_PROFILE_SCRATCH */
    int16_t leaf;   /* index of an entry of the argument's tuple; -1: the argument itself */
    uint8_t part;   /* an nj_part */
    uint8_t index;  /* index of the tensor map or of the dimension */
    uint8_t dtype;  /* dtype of its bytes; NJ_DTYPE_U64 for pointers and tensor maps */
} nj_slot_facts;

typedef struct {
    uint64_t bytes; /* bytes of one CTA; 0 if the kernel needs none */
    uint64_t align;
} nj_scratch;

/* The facts from which a runnable is made. The runnable copies them and keeps a pointer only to the function. */
typedef struct {
    nj_function *function;
    int device;            /* ordinal of the device */
    size_t argument_count; /* number of arguments to which sources and programs refer */
    size_t slot_count;
    const nj_slot_facts *slots;
    size_t map_count;
    const nj_map_facts *maps;
    int grid_count;      /* dimensions of the bundle's grid; 0 if every call passes a grid */
    nj_program grid[3];  /* validated programs */
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
    bool limited; /* true if a launch needs raised limits */
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

/* Makes a runnable and raises the limits that its launches need. False with `error` filled; NJ_ERROR_INTEGRITY for facts that no build
 * writes. The caller calls `nj_runnable_clear` in either case. */
NJ_FOR_BINDING bool nj_runnable_init(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);
NJ_FOR_BINDING void nj_runnable_clear(nj_runnable *runnable);

static inline bool nj_runnable_needs_scratch(const nj_runnable *runnable)
{
    return runnable->global_scratch.bytes != 0 || runnable->profile_scratch.bytes != 0;
}

#endif
