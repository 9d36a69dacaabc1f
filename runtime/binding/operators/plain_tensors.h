/* Checks whether a call of an operator is plain: no subclass, autograd or mode of the framework has to see its tensors, so the call
 * can skip the framework's dispatcher. The caller passes the framework's functions in; this code knows no framework. */
#ifndef NOJIT_PLAIN_TENSORS_H
#define NOJIT_PLAIN_TENSORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "tensor/dlpack_exchange.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *tensors; /* Tuple of tensor classes. A tensor of a subclass is not plain. Owned, as are all. */
    PyObject *requires_grad; /* Descriptor of the attribute. */
    PyObject *is_negated;    /* Callable with a tensor. */
    PyObject *grad_enabled;  /* Callable without arguments. */
    PyObject *states;        /* States that must hold: see py_states_hold. */
} py_plain;

/* The facts that a plain call reads of a tensor. */
typedef struct {
    DLTensor view; /* shape and strides are borrowed from the tensor; strides may be NULL */
    bool requires_grad;
} py_plain_tensor;

extern PyTypeObject *py_plain_type;

/* Checks that each state still has its expected value, by identity. A state is (function, result) or (dict, name, value). Returns
 * 1, 0, or -1 with an exception raised. */
int py_states_hold(PyObject *states);

/* Requires a tuple of such states. Returns 0, or -1 with TypeError raised. */
int py_states_check(PyObject *states);

/* Returns 1 if autograd records, 0 if not, or -1 with an exception raised. */
int py_plain_records(const py_plain *plain);

/* Reads a tensor. Returns 1, 0 if the object is no tensor or one that is never plain, or -1 with an exception raised. */
int py_plain_read(const py_plain *plain, PyObject *object, py_plain_tensor *tensor);

#endif
