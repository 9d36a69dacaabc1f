/* One call: the objects bound to the kernel's params, and the engine's value of each. */
#ifndef NOJIT_BOUND_CALL_H
#define NOJIT_BOUND_CALL_H

#include "call/signature.h"
#include "tensor/read_tensor.h"

#include "expr/arguments.h"

typedef struct {
    const py_seen *seen; /* tensors that the caller has read already; NULL if none */
    PyObject *owner; /* the kernel, borrowed */
    PyObject *objects[NJ_ARGUMENTS_MAX + 1]; /* borrowed; NULL if not given; the last is the stream */
    nj_value values[NJ_ARGUMENTS_MAX];
    uint16_t leaf_count;
    uint16_t descriptor_count;
    nj_value leaves[NJ_LEAVES_MAX]; /* members of tuples; the members of a nested tuple follow its own leaf */
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    int device;             /* ordinal of the tensors' device; PY_DEVICE_ANY if no tensor has one */
    Py_ssize_t device_from; /* index of the param that set `device` */
    const DLPackExchangeAPI *api; /* exchange API of the first tensor that has one; NULL if none */
    void *stream; /* stream of the first array that names one; NULL if none does */
    uint8_t origins; /* bits of py_origin, of all tensors whose type has no exchange API */
} py_call;

/* Bound arguments: the objects that a launcher passes with every call. */
typedef struct {
    Py_ssize_t count;
    PyObject **objects; /* owned */
    uint16_t *places;   /* index of each in `py_call.objects`; owned */
} py_fixed;

#endif
