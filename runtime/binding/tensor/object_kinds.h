/* What kind of thing an argument is, by its type: worked out once for each type that is met, where its objects are alike. */
#ifndef NOJIT_OBJECT_KINDS_H
#define NOJIT_OBJECT_KINDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"

typedef enum {
    PY_KIND_OTHER,
    PY_KIND_EXCHANGE, /* a tensor with the exchange API */
    PY_KIND_DESCRIPTOR,
} py_kind;

/* What kind of thing an object is, by its type unless objects of that differ: 0, or -1 with an exception raised. */
int py_kind_of(PyObject *object, py_kind *kind, const DLPackExchangeAPI **api);

/* Whether this very object has what a descriptor has: 1, 0, or -1 with an exception raised. */
int py_is_descriptor(PyObject *object);

#endif
