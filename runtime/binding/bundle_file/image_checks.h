/* Reading images for Python: a border around the engine's image/. */
#ifndef NOJIT_IMAGE_CHECKS_H
#define NOJIT_IMAGE_CHECKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "image/entry.h"

/* Reads what an image is held against: (symbol, sizes, num_warps, num_ctas, sm, arch_specific). What holds the symbol, new; NULL
 * with an exception raised. */
PyObject *py_read_entry(PyObject *facts, nj_entry *entry);

/* `check_image(image, symbol, sizes, num_warps, num_ctas, sm, arch_specific, where)`: checks that an image is the one that a table
 * describes. Returns the list of (offset, size) of the kernel's params, the bytes of its own static shared memory, and the registers
 * of a thread. Raises BundleFormatError or BundleIntegrityError at `where`. */
PyObject *py_check_image(PyObject *module, PyObject *args);

/* `read_cubin(image)`: what a cubin says of itself, as fields of `CubinInfo` and `CubinKernel`. Raises BundleFormatError. */
PyObject *py_read_cubin(PyObject *module, PyObject *image);

/* `read_sections(image)`: the (name, content) of each section of a cubin. Raises BundleFormatError. */
PyObject *py_read_sections(PyObject *module, PyObject *image);

#endif
