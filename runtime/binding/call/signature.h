/* The signature of a kernel: names of its params and options, and defaults. */
#ifndef NOJIT_SIGNATURE_H
#define NOJIT_SIGNATURE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "values/py_constant_ids.h"

/* A kernel's signature. It owns its objects; the names are interned. */
typedef struct {
    PyObject *kernel;       /* name of the kernel */
    Py_ssize_t param_count; /* params, including constexprs */
    Py_ssize_t count;       /* params and options */
    Py_ssize_t name_count;  /* names that keywords can match: without the last, "stream", if a param has that name */
    Py_ssize_t rest;        /* index of the param `*args`, which takes extra positional arguments; -1 if there is none */
    PyObject **names;       /* distinct names of the params in the function's order, then of the options, then "stream" */
    PyObject **defaults;    /* default of each param; NULL if it has none */
    bool *constexprs;       /* true for each param that is a constexpr */
    py_ids *ids;     /* ids of the constants in the kernel's variants and expressions */
} py_signature;

/* Reads names and defaults. Returns 0, or -1 with an exception raised: ValueError if there are too many names or one occurs twice. Each
 * of `params` is (name, is_constexpr), or (name, is_constexpr, default) for a runtime param with a default. `*args` has the default (). */
int py_signature_init(py_signature *signature, PyObject *kernel, PyObject *params, PyObject *options,
                      py_ids *ids);
void py_signature_clear(py_signature *signature);

#endif
