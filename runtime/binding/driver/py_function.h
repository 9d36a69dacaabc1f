/* Kernels of images that the engine has loaded, for Python. */
#ifndef NOJIT_PY_FUNCTION_H
#define NOJIT_PY_FUNCTION_H

#include "driver/py_driver.h"

#include "launch/loaded_image.h"

/* A kernel of a loaded image. */
typedef struct {
    PyObject_HEAD
    nj_function *it;
} py_function;

extern PyTypeObject *py_function_type;

/* Loads an image, and returns its kernel and whether the driver loaded it now. Raises BundleFormatError, BundleIntegrityError or
 * DriverError at `where`. */
PyObject *py_load_function(const nj_image *image, int device, PyObject *where);

#endif
