/* Calls that no variant serves, for which Python may know another way. */
#ifndef NOJIT_KERNEL_FALLBACK_H
#define NOJIT_KERNEL_FALLBACK_H

#include "kernel/launcher.h"

/* Hands a call that nothing serves over to Python, which may make it in another way: None, new, or NULL with the error as it is.
 * `launcher` is NULL where the bundle gives the grid. */
PyObject *py_handle_miss(py_dispatcher *self, const py_launcher *launcher, const py_call *call);

#endif
