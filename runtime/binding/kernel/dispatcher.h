/* Kernels as Python calls them. */
#ifndef NOJIT_DISPATCHER_H
#define NOJIT_DISPATCHER_H

#include "plan/py_spec.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    nj_signature signature; /* `names` is NULL until __init__ has run */
    _Atomic(nj_spec_object *) specs[NJ_DEVICES_MAX]; /* set once each */
    _Atomic(nj_plan_object *) last; /* what the last launch ran, owned; NULL before the first. Changed under the GIL or the kernel's lock */
} nj_dispatcher;

struct nj_launcher;

/* Makes the type; once, at import. */
int nj_dispatcher_init(PyObject *module);

/* 0, or -1 with RuntimeError raised if __init__ has not run. */
int nj_dispatcher_check(const nj_dispatcher *self);

/* Whether calling an object is `nj_dispatcher_launch` of it, without a launcher. */
bool nj_dispatcher_is(PyObject *object);

/* One call, from arguments to a kernel in the queue; `launcher` is NULL where the bundle gives the grid, and `seen` where no
 * tensor was just read. */
PyObject *nj_dispatcher_launch(nj_dispatcher *self, const struct nj_launcher *launcher, const nj_seen *seen,
                               PyObject *const *arguments, size_t positional, PyObject *keywords);

#endif
