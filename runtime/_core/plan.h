/* Plans: a variant bound to a device, with all that a launch needs worked out. Immutable. */
#ifndef NOJIT_PLAN_H
#define NOJIT_PLAN_H

#include "call.h"
#include "expr.h"
#include "library.h"

enum {
    NJ_SOURCE_GLOBAL_SCRATCH = -1,
    NJ_SOURCE_PROFILE_SCRATCH = -2,
};

/* One parameter of the compiled kernel. */
typedef struct {
    int16_t source; /* an argument of the call, or one of the above */
    uint8_t dtype;  /* how its bytes are made; pointers count as NJ_U64 */
} nj_slot;

typedef struct {
    uint64_t bytes; /* of one CTA; 0 if the kernel needs none */
    uint64_t align;
} nj_scratch;

#define NJ_ATTRIBUTES_MAX 4

typedef struct {
    PyObject_HEAD
    PyObject *label; /* what errors call it */
    PyObject *meta;  /* dict: constexprs and options, for a callable grid */
    PyObject *payload; /* the slow path's own notes */
    nj_function *function;
    nj_device *device;
    int ordinal;
    Py_ssize_t argument_count; /* of the signature that sources and programs refer to */
    unsigned int block_threads;
    unsigned int num_ctas;
    unsigned int shared_bytes;
    nj_scratch global_scratch;
    nj_scratch profile_scratch;
    Py_ssize_t slot_count;
    nj_slot *slots;
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

/* Raises the limits that a launch like this needs, where nobody has yet; needs the GIL. */
nj_outcome nj_plan_prepare(const nj_plan *plan);

/* Enqueues the kernel; 0, or -1 with an exception raised. A zero in `grid` launches nothing. */
int nj_plan_launch(nj_plan *plan, const nj_signature *signature, nj_call *call, const int64_t grid[3]);

#endif
