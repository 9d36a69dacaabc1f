/* Plans: a variant bound to a device, with all that a launch needs worked out. Immutable, but for the tensor maps that
 * they keep. */
#ifndef NOJIT_PLAN_H
#define NOJIT_PLAN_H

#include "call.h"
#include "expr/machine.h"
#include "library.h"
#include "sync.h"
#include "tensormap.h"

enum {
    NJ_SOURCE_GLOBAL_SCRATCH = -1,
    NJ_SOURCE_PROFILE_SCRATCH = -2,
};

/* What of its source a parameter is; the numbers are those of runtime/slots.py. */
typedef enum {
    NJ_PART_VALUE = 0,
    NJ_PART_MAP = 1, /* from here on, of a descriptor */
    NJ_PART_BASE = 2,
    NJ_PART_SHAPE = 3,
    NJ_PART_STRIDE = 4,
    NJ_PART_PADS_NAN = 5,
    NJ_PART_ROUNDS_TF32 = 6,
} nj_part;

/* How `pack` makes the bytes of a parameter. */
typedef enum {
    NJ_PACK_BITS, /* the bits of the argument, as they are */
    NJ_PACK_FLOAT, /* a double made narrower */
    NJ_PACK_SCRATCH,
    NJ_PACK_OTHER, /* a leaf of a tuple, or a part of a descriptor */
} nj_packing;

/* One parameter of the compiled kernel. */
typedef struct {
    int16_t source; /* an argument of the call, or one of the above */
    int16_t leaf;   /* which of the argument's entries in `leaves`; -1: the argument itself */
    uint8_t packing;
    uint8_t part;
    uint8_t index; /* which map of the plan, or which dimension */
    uint8_t dtype; /* how its bytes are made; pointers count as NJ_U64 */
} nj_slot;

typedef struct {
    uint64_t bytes; /* of one CTA; 0 if the kernel needs none */
    uint64_t align;
} nj_scratch;

#define NJ_ATTRIBUTES_MAX 4

typedef struct {
    PyObject_HEAD
    PyObject *label; /* errors call it `str(label)` */
    PyObject *meta;  /* dict: constexprs and options, for a callable grid */
    PyObject *payload; /* the slow path's own notes */
    nj_function *function;
    nj_device *device;
    int ordinal;
    Py_ssize_t argument_count; /* of the signature that sources and programs refer to */
    unsigned int block_threads;
    unsigned int num_ctas;
    unsigned int shared_bytes;
    bool limited; /* whether a launch needs limits raised */
    bool outhinted; /* whether a variant of the same meaning and config has more hints, which a call that this one serves misses */
    nj_scratch global_scratch;
    nj_scratch profile_scratch;
    Py_ssize_t slot_count;
    nj_slot *slots;
    Py_ssize_t map_count;
    nj_map *maps; /* guarded by the GIL or the plan's lock */
    int grid_count; /* dimensions that the bundle gives; 0 if every call brings its own grid */
    nj_program grid[3];
    unsigned int attribute_count;
    CUlaunchAttribute attributes[NJ_ATTRIBUTES_MAX];
} nj_plan;

extern PyTypeObject *nj_plan_type;

/* Makes the type; once, at import. */
int nj_plan_init(PyObject *module);

/* Copies a program out of bytes that a Python `compile` made; 0, or -1 with ValueError raised. */
int nj_program_from_bytes(PyObject *bytes, Py_ssize_t slots, nj_program *program);

/* Raises the limits that a launch like this needs, where nobody has yet in the device's present context; `lost` says that
 * they must be raised anew. */
nj_outcome nj_plan_prepare(const nj_plan *plan, bool lost);

/* Enqueues the kernel; 0, or -1 with an exception raised. A zero in `grid` launches nothing. */
int nj_plan_launch(nj_plan *plan, const nj_signature *signature, nj_call *call, const int64_t grid[3]);

#endif
