/* The parts of a bundle other than its index, for Python: a border around the engine's bundle/. */
#ifndef NOJIT_PY_PLACEMENT_H
#define NOJIT_PY_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_placement;

/* `check_frame(frame, raw_bytes, where)`: checks the header of a zstd frame. Raises BundleFormatError, as all of these do. */
PyObject *py_check_frame(PyObject *module, PyObject *args);

/* `check_section(stored_bytes, raw_bytes, where)`: checks that a kernel's section decompresses to no more than it may. */
PyObject *py_check_section(PyObject *module, PyObject *args);

/* `split_section(raw, images, groups, where)`: a kernel's variant table, and the bytes of its placement. */
PyObject *py_split_section(PyObject *module, PyObject *args);

extern PyTypeObject *py_placement_type;

/* What an object of that class holds. */
const struct nj_placement *py_placement_of(PyObject *placed);

/* Reads the number of an image; -1 with IndexError raised. */
Py_ssize_t py_image_number(const struct nj_placement *placement, PyObject *number);

/* Adds the class `Placement(raw, images, payload_bytes, where)`. */
int py_placement_init(PyObject *module);

#endif
