/* Tensors described to kernels over tensor maps, their blocks left to the kernel. */
#ifndef NOJIT_GEOMETRY_H
#define NOJIT_GEOMETRY_H

#include "call/bound_call.h"

/* A shape with strides; called with a tensor, it describes it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *shape;   /* tuple of ints */
    PyObject *strides; /* likewise */
    PyObject *box;     /* likewise, or None */
    PyObject *steps;   /* likewise */
    nj_descriptor numbers; /* all but the base */
} nj_geometry;

typedef struct {
    PyObject_HEAD
    PyObject *base;
    nj_geometry *geometry;
} nj_described;

extern PyTypeObject *nj_described_type;

/* Makes the types; once, at import. */
int nj_described_init(PyObject *module);

#endif
