/* Whether an image is what its index entry says, asked before the driver sees it. */
#ifndef NOJIT_IMAGE_H
#define NOJIT_IMAGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `check_image(image, symbol, sizes, num_warps, num_ctas, image_arch)`: the list of (offset, size) of the kernel's params if
 * the image keeps every rule and agrees with the rest, as cubin.py's `check_image` has it, the bytes of its own static shared
 * memory, and the registers of a thread. None if anything is off: Python says what. */
PyObject *nj_check_image(PyObject *module, PyObject *args);

#endif
