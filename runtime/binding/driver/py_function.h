/* `_core.Function`: a kernel of an image that the engine has loaded. */
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

/* Loads an image. Returns a new tuple (Function, whether this call loaded the image). Raises BundleFormatError, BundleIntegrityError or
 * DriverError at `where`. */
PyObject *py_load_function(const nj_image *image, int device, PyObject *where);

#endif
