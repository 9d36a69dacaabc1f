/* The fallback for calls that no variant serves. */
#ifndef NOJIT_KERNEL_FALLBACK_H
#define NOJIT_KERNEL_FALLBACK_H

#include "kernel/launcher.h"

/* Offers a call that no variant serves to Python's fallback. Returns a new reference to None if the fallback ran, or NULL with an
 * exception raised: the pending one if it is no miss or the fallback declines. `launcher` is NULL if the bundle gives the grid. */
PyObject *py_handle_miss(py_dispatcher *self, const py_launcher *launcher, const py_call *call);

#endif
