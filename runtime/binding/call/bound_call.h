/* One call: its arguments bound to the kernel's params, and what each of them is. */
#ifndef NOJIT_BOUND_CALL_H
#define NOJIT_BOUND_CALL_H

#include "call/signature.h"
#include "tensor/read_tensor.h"

#include "expr/arguments.h"

typedef struct {
    const py_seen *seen; /* NULL but where tensors were just read */
    PyObject *owner; /* the kernel, borrowed */
    PyObject *objects[NJ_ARGUMENTS_MAX + 1]; /* borrowed, NULL if not given; the last is the stream */
    nj_value values[NJ_ARGUMENTS_MAX];
    uint16_t leaf_count;
    uint16_t descriptor_count;
    nj_value leaves[NJ_LEAVES_MAX]; /* members of tuples; those of a tuple in a tuple follow it */
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    int device;             /* of the tensors; PY_DEVICE_ANY if none says */
    Py_ssize_t device_from; /* the param that said so */
    const DLPackExchangeAPI *api; /* of the first tensor that has one */
    void *stream; /* of the first array that says one; NULL if none does */
    uint8_t origins; /* of all tensors that have no exchange API of their own: bits of py_origin */
} py_call;

/* Objects that a bound kernel passes with every call, by their place in `objects`. */
typedef struct {
    Py_ssize_t count;
    PyObject **objects; /* owned */
    uint16_t *places;
} py_fixed;

#endif
