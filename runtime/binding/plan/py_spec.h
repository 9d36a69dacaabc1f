/* The facts of a call that decide which variant runs on one device, and the plans found so far, by key.
 * One per kernel and device. Guarded by the GIL. */
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
    PyObject *table;      /* that the facts are of */
    py_ids *ids;
    nj_plan_cache cache;
} py_spec;

extern PyTypeObject *py_spec_type;

#endif
