/* Plain calls of operators: nothing but the kernel has to see their tensors, so that the framework's dispatcher can be
 * skipped. What says so is the framework's to tell: its functions are given, none is known here. */
#ifndef NOJIT_PLAIN_TENSORS_H
#define NOJIT_PLAIN_TENSORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "tensor/dlpack_exchange.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *tensors; /* tuple of the classes whose tensors are plain; not classes made of them */
    PyObject *requires_grad; /* its descriptor */
    PyObject *is_negated;    /* called with a tensor */
    PyObject *grad_enabled;  /* called with nothing, as the states are */
    PyObject *states;
} py_plain;

/* A tensor as a plain call sees it. */
typedef struct {
    DLTensor view; /* shape and strides, which may be NULL, are the tensor's own */
    bool requires_grad;
} py_plain_tensor;

extern PyTypeObject *py_plain_type;

/* Whether every state is what it has to be: (function, result) or (dict, name, value), by identity: 1, 0, or -1 with an
 * exception raised. */
int py_states_hold(PyObject *states);

/* Requires a tuple of such states: 0, or -1 with TypeError raised. */
int py_states_check(PyObject *states);

/* Whether gradients are recorded: 1, 0, or -1 with an exception raised. */
int py_plain_records(const py_plain *plain);

/* Reads a tensor: 1, 0 if it is none, or not plain whatever the states, or -1 with an exception raised. */
int py_plain_read(const py_plain *plain, PyObject *object, py_plain_tensor *tensor);

#endif
