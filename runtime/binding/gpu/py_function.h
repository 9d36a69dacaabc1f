/* Kernels of images that the engine has loaded, for Python. */
#ifndef NOJIT_PY_FUNCTION_H
#define NOJIT_PY_FUNCTION_H

#include "gpu/py_driver.h"

#include "driver/library.h"

/* A kernel of a loaded image. */
typedef struct {
    PyObject_HEAD
    nj_function *it;
} nj_function_object;

extern PyTypeObject *nj_function_type;

/* Makes the type; once, at import. */
int nj_library_init(PyObject *module);

/* Loads an image, and returns its kernel and whether the driver loaded it now. Raises BundleFormatError, BundleIntegrityError or
 * DriverError at `where`. */
PyObject *nj_load_function(const nj_image *image, int device, PyObject *where);

#endif
