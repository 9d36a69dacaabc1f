/* The parts of a bundle other than its index, for Python: a border around the engine's bundle/. */
#ifndef NOJIT_PY_PLACEMENT_H
#define NOJIT_PY_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_placement;

extern PyTypeObject *py_placement_type;

/* What an object of that class holds. */
const struct nj_placement *py_placement_of(PyObject *placed);

/* Reads the number of an image; -1 with IndexError raised. */
Py_ssize_t py_image_number(const struct nj_placement *placement, PyObject *number);

#endif
