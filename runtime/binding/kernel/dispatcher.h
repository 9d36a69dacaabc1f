/* `_core.Dispatcher`: the callable base class of `Kernel`. */
#ifndef NOJIT_DISPATCHER_H
#define NOJIT_DISPATCHER_H

#include "plan/py_spec.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    py_signature signature; /* `names` is NULL until __init__ has run */
    _Atomic(py_spec *) specs[NJ_DEVICES_MAX]; /* owned; each is set once, by the first call on its device */
    _Atomic(py_plan *) last; /* plan of the last launch, owned; NULL before the first. Guarded by the GIL or the kernel's lock */
} py_dispatcher;

struct py_launcher;

/* Returns 0, or -1 with RuntimeError raised if __init__ has not run. */
int py_dispatcher_check(const py_dispatcher *self);

/* True if `object` is a kernel whose class does not override __call__, so that `py_dispatcher_launch` may replace the call. */
bool py_dispatcher_is(PyObject *object);

/* Binds the arguments, finds the plan and enqueues the kernel. `launcher` is NULL if the bundle gives the grid. `seen` is NULL if the
 * caller has read none of the tensors. */
PyObject *py_dispatcher_launch(py_dispatcher *self, const struct py_launcher *launcher, const py_seen *seen,
                               PyObject *const *arguments, size_t positional, PyObject *keywords);

#endif
