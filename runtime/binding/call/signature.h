/* How a kernel is called: the names of its params and options. */
#ifndef NOJIT_SIGNATURE_H
#define NOJIT_SIGNATURE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "values/py_constant_ids.h"

/* How a kernel is called; the names are interned and owned. */
typedef struct {
    PyObject *kernel;       /* its name */
    Py_ssize_t param_count; /* in the function's order, constexprs included */
    Py_ssize_t count;       /* params, then options */
    Py_ssize_t name_count;  /* of the names that keywords mean: without "stream" where a param is called so */
    Py_ssize_t rest;        /* the param that takes the positional arguments that are left, `*args`; -1 for none */
    PyObject **names;       /* `count` of them, each once, then "stream" */
    PyObject **defaults;    /* of the params; NULL where there is none */
    bool *constexprs;       /* which of the params are */
    py_ids *ids;     /* of the strings that some variant or expression knows */
} py_signature;

/* Reads names and defaults: 0, or -1 with an exception raised, ValueError where there are too many names or one is there
 * twice. `params` are (name, whether it is a constexpr), and a third, the default, where a runtime param has one: the empty tuple
 * for `*args`. */
int py_signature_init(py_signature *signature, PyObject *kernel, PyObject *params, PyObject *options,
                      py_ids *ids);
void py_signature_clear(py_signature *signature);

#endif
