/* Kernels as Python calls them: `_core.Dispatcher`, the base of `Kernel`. */
#ifndef NOJIT_DISPATCHER_H
#define NOJIT_DISPATCHER_H

#include "plan/py_spec.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    py_signature signature; /* `names` is NULL until __init__ has run */
    _Atomic(py_spec *) specs[NJ_DEVICES_MAX]; /* set once each */
    _Atomic(py_plan *) last; /* what the last launch ran, owned; NULL before the first. Changed under the GIL or the kernel's lock */
} py_dispatcher;

struct py_launcher;

/* 0, or -1 with RuntimeError raised if __init__ has not run. */
int py_dispatcher_check(const py_dispatcher *self);

/* Whether calling an object is `py_dispatcher_launch` of it, without a launcher. */
bool py_dispatcher_is(PyObject *object);

/* One call, from arguments to a kernel in the queue; `launcher` is NULL where the bundle gives the grid, and `seen` where no
 * tensor was just read. */
PyObject *py_dispatcher_launch(py_dispatcher *self, const struct py_launcher *launcher, const py_seen *seen,
                               PyObject *const *arguments, size_t positional, PyObject *keywords);

#endif
