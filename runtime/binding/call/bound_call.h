/* One call: its arguments bound to the kernel's params, and what each of them is. */
#ifndef NOJIT_BOUND_CALL_H
#define NOJIT_BOUND_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"
#include "values/py_ids.h"
#include "tensor/tensor.h"
#include "expr/arguments.h"

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

typedef struct {
    const py_seen *seen; /* NULL but where tensors were just read */
    PyObject *owner; /* the kernel, borrowed */
    PyObject *objects[NJ_ARGUMENTS_MAX + 1]; /* borrowed, NULL if not given; the last is the stream */
    nj_value values[NJ_ARGUMENTS_MAX];
    uint16_t leaf_count;
    uint16_t descriptor_count;
    nj_value leaves[NJ_LEAVES_MAX]; /* members of tuples; those of a tuple in a tuple follow it */
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    int device;             /* of the tensors; PY_DEVICE_ANY if none says */
    Py_ssize_t device_from; /* the param that said so */
    const DLPackExchangeAPI *api; /* of the first tensor that has one */
    void *stream; /* of the first array that says one; NULL if none does */
    uint8_t origins; /* of all tensors that have no exchange API of their own: bits of py_origin */
} py_call;

/* Objects that a bound kernel passes with every call, by their place in `objects`. */
typedef struct {
    Py_ssize_t count;
    PyObject **objects; /* owned */
    uint16_t *places;
} py_fixed;

/* Fills `objects`: 0, or -1 with ArgumentError raised. `fixed` may be NULL; `owner` is asked to word what takes
 * look-ups. */
int py_bind(const py_signature *signature, PyObject *owner, const py_fixed *fixed, PyObject *const *arguments,
            Py_ssize_t positional, PyObject *keywords, py_call *call);

/* The place of a name in `objects`; -1 if it is none of the kernel's. */
Py_ssize_t py_place_of(const py_signature *signature, PyObject *name, Py_ssize_t expected);

/* Has the kernel judge an option that it does not know: 0 if its value is what was built, else -1 with an exception raised. */
int py_check_option(PyObject *owner, PyObject *name, PyObject *value);

/* Fills the rest: 0, or -1 with an exception raised. Tensors in host memory are refused unless `host_too`. */
int py_classify(const py_signature *signature, PyObject *owner, bool host_too, py_call *call);

/* Reads constexprs, options and constants among the arguments anew: their values may have been interned since. */
int py_classify_again(const py_signature *signature, PyObject *owner, py_call *call);
int py_classify_init(void);

/* (arguments, constexprs, options): what the call says, as the slow path takes it. NULL with an exception raised. */
PyObject *py_call_facts(const py_signature *signature, const py_call *call);

#endif
