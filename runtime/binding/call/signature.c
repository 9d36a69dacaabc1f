#include "call/signature.h"

#include "python/records.h"
#include "python/tuples.h"

#include "expr/arguments.h"

/* Reads one of `params`: see `py_signature_init`. */
static int read_param(py_signature *signature, Py_ssize_t at, PyObject *param)
{
    PyObject *name, *fallback = NULL;
    int is_constexpr;
    if (!py_is_tuple(param, "params: (name, whether it is a constexpr, default)") || !PyArg_ParseTuple(param, "Up|O", &name, &is_constexpr, &fallback)) {
        return -1;
    }
    signature->constexprs[at] = is_constexpr;
    signature->defaults[at] = Py_XNewRef(fallback);
    if (!is_constexpr && fallback != NULL && PyTuple_CheckExact(fallback) && PyTuple_GET_SIZE(fallback) == 0) {
        signature->rest = at;
    }
    signature->names[at] = Py_NewRef(name);
    PyUnicode_InternInPlace(&signature->names[at]);
    return 0;
}

static int read_names(py_signature *signature, PyObject *params, PyObject *options)
{
    for (Py_ssize_t i = 0; i < signature->param_count; i++) {
        if (read_param(signature, i, PyTuple_GET_ITEM(params, i)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(options); i++) {
        PyObject *name = PyTuple_GET_ITEM(options, i);
        if (!PyUnicode_CheckExact(name)) {
            PyErr_SetString(PyExc_TypeError, "expected the names of options");
            return -1;
        }
        signature->names[signature->param_count + i] = Py_NewRef(name);
        PyUnicode_InternInPlace(&signature->names[signature->param_count + i]);
    }
    signature->names[signature->count] = PyUnicode_InternFromString("stream");
    return signature->names[signature->count] == NULL ? -1 : 0;
}

/* Requires distinct names, since a keyword has to match a single one. A param may be called "stream": then the keyword means that
 * param. */
static int check_names(py_signature *signature)
{
    PyObject *met = PySet_New(NULL);
    int status = met == NULL ? -1 : 0;
    signature->name_count = 0;
    for (Py_ssize_t i = 0; i <= signature->count && status == 0; i++) {
        status = PySet_Add(met, signature->names[i]);
        signature->name_count = status == 0 ? PySet_GET_SIZE(met) : 0;
        if (status == 0 && i < signature->count && signature->name_count == i) {
            PyErr_Format(PyExc_ValueError, "expected params and options of different names, got %R twice",
                         signature->names[i]);
            status = -1;
        }
    }
    Py_XDECREF(met);
    return status;
}

void py_signature_clear(py_signature *signature)
{
    for (Py_ssize_t i = 0; signature->names != NULL && i <= signature->count; i++) {
        Py_XDECREF(signature->names[i]);
    }
    for (Py_ssize_t i = 0; signature->defaults != NULL && i < signature->param_count; i++) {
        Py_XDECREF(signature->defaults[i]);
    }
    PyMem_Free(signature->names);
    PyMem_Free(signature->defaults);
    PyMem_Free(signature->constexprs);
    Py_XDECREF(signature->kernel);
    Py_XDECREF((PyObject *)signature->ids);
    memset(signature, 0, sizeof *signature);
}

int py_signature_init(py_signature *signature, PyObject *kernel, PyObject *params, PyObject *options,
                      py_ids *ids)
{
    py_signature made = {.param_count = PyTuple_GET_SIZE(params), .rest = -1};
    made.count = made.param_count + PyTuple_GET_SIZE(options);
    if (made.count > NJ_ARGUMENTS_MAX) {
        PyErr_Format(PyExc_ValueError, NJ_ARGUMENTS_RULE ", got %zd", NJ_ARGUMENTS_MAX, made.count);
        return -1;
    }
    made.names = PyMem_Calloc((size_t)made.count + 1, sizeof *made.names);
    made.defaults = PyMem_Calloc((size_t)made.param_count + 1, sizeof *made.defaults);
    made.constexprs = PyMem_Calloc((size_t)made.param_count + 1, sizeof *made.constexprs);
    made.kernel = Py_NewRef(kernel);
    made.ids = (py_ids *)Py_NewRef((PyObject *)ids);
    if (made.names == NULL || made.defaults == NULL || made.constexprs == NULL) {
        PyErr_NoMemory();
    } else if (read_names(&made, params, options) == 0 && check_names(&made) == 0) {
        *signature = made;
        return 0;
    }
    py_signature_clear(&made);
    return -1;
}
