/* Tensors described to kernels over tensor maps, their blocks left to the kernel. */
#ifndef NOJIT_GEOMETRY_H
#define NOJIT_GEOMETRY_H

#include "tensor/read_tensor.h"

#include "expr/arguments.h"

/* A shape with strides; called with a tensor, it describes it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *shape;   /* tuple of ints */
    PyObject *strides; /* likewise */
    PyObject *box;     /* likewise, or None */
    PyObject *steps;   /* likewise */
    nj_descriptor numbers; /* all but the base */
} py_geometry;

typedef struct {
    PyObject_HEAD
    PyObject *base;
    py_geometry *geometry;
} py_described;

extern PyTypeObject *py_described_type;

#endif
