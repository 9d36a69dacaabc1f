/* Kernels of images that the engine has loaded, for Python. */
#ifndef NOJIT_LIBRARY_H
#define NOJIT_LIBRARY_H

#include "driver.h"

#include "cuda/library.h"

/* A kernel of a loaded image. */
typedef struct {
    PyObject_HEAD
    nj_function *it;
} nj_function_object;

extern PyTypeObject *nj_function_type;

/* Makes the type; once, at import. */
int nj_library_init(PyObject *module);

/* `load_image(image, row, sm, exact, min_driver, device, where)`: the kernel of an image, which is held against a row, and whether the driver loaded it now. Raises BundleFormatError, BundleIntegrityError or DriverError at `where`. */
PyObject *nj_load_image(PyObject *module, PyObject *args);

#endif
