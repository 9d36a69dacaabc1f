/* `_core.Spec`: the facts of a table that select a variant on one device, and the cached plans by key. One per kernel and device.
 * Changed under the GIL or the spec's lock. */
#ifndef NOJIT_PY_SPEC_H
#define NOJIT_PY_SPEC_H

#include "call/bound_call.h"
#include "plan/py_plan.h"
#include "table/py_tuning.h"

#include "launch/plan_cache.h"
#include "select/spec.h"

typedef struct {
    PyObject_HEAD
    nj_spec it;
    py_ordering ordering; /* its object is owned */
    PyObject *table;      /* table of the facts; owned */
    py_ids *ids;
    nj_plan_cache cache;
} py_spec;

extern PyTypeObject *py_spec_type;

#endif
