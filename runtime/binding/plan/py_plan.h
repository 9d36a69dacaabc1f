/* `_core.Plan`: the engine's runnable, with the Python objects of a variant. */
#ifndef NOJIT_PY_PLAN_H
#define NOJIT_PY_PLAN_H

#include "driver/py_function.h"

#include "launch/launch.h"

typedef struct {
    PyObject_HEAD
    PyObject *label;   /* Errors name the plan by `str(label)`. Owned, as are all. */
    PyObject *meta;    /* Dict of constexprs and options, for a callable grid. */
    PyObject *payload; /* Data of the slow path. */
    PyObject *result;  /* Return value of launches: None, unless the kernel replaces a function of Triton. */
    nj_runnable it;
} py_plan;

extern PyTypeObject *py_plan_type;

#endif
