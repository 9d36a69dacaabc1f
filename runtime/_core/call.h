/* One call: its arguments bound to the kernel's params, and what each of them is. */
#ifndef NOJIT_CALL_H
#define NOJIT_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack.h"
#include "value.h"

/* Params and options of a kernel together. */
#define NJ_ARGUMENTS_MAX 512

/* How a kernel is called; the names are interned and owned. */
typedef struct {
    PyObject *kernel;       /* its name */
    Py_ssize_t param_count; /* in the function's order, constexprs included */
    Py_ssize_t count;       /* params, then options */
    PyObject **names;       /* `count` of them, then "stream" */
    PyObject **defaults;    /* of the params; NULL where there is none */
    bool *constexprs;       /* which of the params are */
    PyObject *interned;     /* dict from str to id: the strings that some variant or expression knows */
} nj_signature;

/* Reads names and defaults: 0, or -1 with an exception raised. `params` are (name, whether it is a constexpr), and a
 * third, the default, where a runtime param has one. */
int nj_signature_init(nj_signature *signature, PyObject *kernel, PyObject *params, PyObject *options,
                      PyObject *strings);
void nj_signature_clear(nj_signature *signature);

typedef struct {
    PyObject *objects[NJ_ARGUMENTS_MAX + 1]; /* borrowed, NULL if not given; the last is the stream */
    nj_value values[NJ_ARGUMENTS_MAX];
    int device;             /* of the tensors; NJ_DEVICE_ANY if none says */
    Py_ssize_t device_from; /* the param that said so */
    const DLPackExchangeAPI *api; /* of the first tensor that has one */
} nj_call;

/* Fills `objects`: 0, or -1 with ArgumentError raised. `owner` is asked to word what takes look-ups. */
int nj_bind(const nj_signature *signature, PyObject *owner, PyObject *const *arguments, Py_ssize_t positional,
            PyObject *keywords, nj_call *call);

/* Fills the rest: 0, or -1 with an exception raised. Tensors in host memory are refused unless `host_too`. */
int nj_classify(const nj_signature *signature, PyObject *owner, bool host_too, nj_call *call);

/* The stream to launch on: the one given, the framework's current one, or the legacy default stream. */
int nj_find_stream(const nj_signature *signature, const nj_call *call, void **stream);

/* (arguments, constexprs, options): what the call says, as the slow path takes it. NULL with an exception raised. */
PyObject *nj_call_facts(const nj_signature *signature, const nj_call *call);

#endif
