/* Plans of the engine for Python. */
#ifndef NOJIT_PY_PLAN_H
#define NOJIT_PY_PLAN_H

#include "call/bound_call.h"
#include "launch/launch.h"
#include "gpu/py_function.h"

typedef struct {
    PyObject_HEAD
    PyObject *label;   /* errors call it `str(label)` */
    PyObject *meta;    /* dict: constexprs and options, for a callable grid */
    PyObject *payload; /* the slow path's own notes */
    PyObject *result;  /* what launches return: None but for functions of Triton */
    nj_runnable it;
} py_plan;

extern PyTypeObject *py_plan_type;

/* Makes the type; once, at import. */
int py_plan_init(PyObject *module);

/* Copies a program out of bytes that a Python `compile` made; 0, or -1 with ValueError raised. */
int py_program_from_bytes(PyObject *bytes, Py_ssize_t slots, nj_program *program);

/* Works out what a launch passes, and enqueues nothing: 0, or -1 with an exception raised. */
int py_plan_pack(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch);

/* Enqueues the kernel; 0, or -1 with an exception raised. A zero in `grid` launches nothing. */
int py_run_plan(const py_plan *plan, const py_signature *signature, const py_call *call, const int64_t grid[3]);

#endif
