/* Images in the driver. They stay loaded for the life of the process: an unload would break a graph capture under way,
 * and any launch that another thread has in flight. */
#ifndef NOJIT_LIBRARY_H
#define NOJIT_LIBRARY_H

#include "driver.h"

/* What a kernel was allowed on one device: the most that any of its launches needs, in the context of one epoch. */
typedef struct {
    atomic_uint epoch;
    int shared_bytes;
    bool wide; /* clusters of more than eight */
} nj_limits;

/* A kernel of a loaded image. */
typedef struct {
    PyObject_HEAD
    PyObject *symbol;
    CUkernel handle;
    unsigned int shared_bytes; /* static, of a block */
    nj_limits limits[NJ_DEVICES_MAX]; /* guarded by the GIL or the function's lock */
} nj_function;

extern PyTypeObject *nj_function_type;

/* Makes the types; once, at import. */
int nj_library_init(PyObject *module);

#endif
