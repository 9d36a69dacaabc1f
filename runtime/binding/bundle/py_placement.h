/* `_core.Placement`: where a kernel's images lie in its bundle. */
#ifndef NOJIT_PY_PLACEMENT_H
#define NOJIT_PY_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_placement;

extern PyTypeObject *py_placement_type;

/* Returns the placement of an object of `py_placement_type`, borrowed. */
const struct nj_placement *py_placement_of(PyObject *placed);

/* Reads the number of an image. Returns -1 with an exception raised: IndexError if there is no such image. */
Py_ssize_t py_image_number(const struct nj_placement *placement, PyObject *number);

#endif
