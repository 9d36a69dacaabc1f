/* `_core.Described`: tensor descriptors without a block shape, which the kernel's config chooses. */
#ifndef NOJIT_GEOMETRY_H
#define NOJIT_GEOMETRY_H

#include "tensor/read_tensor.h"

#include "expr/arguments.h"

/* `_core.Geometry`: shape and strides of a descriptor. A call with a tensor returns the tensor's Described. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *shape;   /* tuple of ints; owned, as are all */
    PyObject *strides; /* tuple of ints, in elements */
    PyObject *box;     /* tuple of ints, or None */
    PyObject *steps;   /* tuple of ints, or None */
    nj_descriptor numbers; /* the same for the engine; `base` is not set */
} py_geometry;

typedef struct {
    PyObject_HEAD
    PyObject *base;
    py_geometry *geometry;
} py_described;

extern PyTypeObject *py_described_type;

#endif
