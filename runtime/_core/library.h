/* Images in the driver. They stay loaded for the life of the process: an unload would break a graph capture under way,
 * and any launch that another thread has in flight. */
#ifndef NOJIT_LIBRARY_H
#define NOJIT_LIBRARY_H

#include "driver.h"

#include "cuda/function.h"

/* A kernel of a loaded image. */
typedef struct {
    PyObject_HEAD
    PyObject *symbol;
    nj_function it;
} nj_function_object;

extern PyTypeObject *nj_function_type;

/* Makes the types; once, at import. */
int nj_library_init(PyObject *module);

#endif
