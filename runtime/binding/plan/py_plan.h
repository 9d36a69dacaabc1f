/* Plans of the engine for Python. */
#ifndef NOJIT_PY_PLAN_H
#define NOJIT_PY_PLAN_H

#include "driver/py_function.h"

#include "launch/launch.h"

typedef struct {
    PyObject_HEAD
    PyObject *label;   /* errors call it `str(label)` */
    PyObject *meta;    /* dict: constexprs and options, for a callable grid */
    PyObject *payload; /* the slow path's own notes */
    PyObject *result;  /* what launches return: None but for functions of Triton */
    nj_runnable it;
} py_plan;

extern PyTypeObject *py_plan_type;

#endif
