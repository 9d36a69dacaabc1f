/* Finds the kind of an argument. The kind is cached for each type whose objects are all of one kind. */
#ifndef NOJIT_OBJECT_KINDS_H
#define NOJIT_OBJECT_KINDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"

typedef enum {
    PY_KIND_OTHER,
    PY_KIND_EXCHANGE, /* a tensor whose type has the DLPack C exchange API */
    PY_KIND_DESCRIPTOR,
} py_kind;

/* Gets the kind of an object, and the exchange API of its type, NULL if it has none. Returns 0, or -1 with an exception raised. */
int py_kind_of(PyObject *object, py_kind *kind, const DLPackExchangeAPI **api);

/* Returns 1 if the object has a descriptor's attributes, 0 if not, or -1 with an exception raised. */
int py_is_descriptor(PyObject *object);

#endif
