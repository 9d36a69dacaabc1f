#include "plan/select_row.h"

#include "call/signature.h"
#include "python/callbacks.h"
#include "python/utf8.h"
#include "values/py_constant.h"

#include "select/select.h"

/* A call's constexprs and options in the engine's form. */
typedef struct {
    nj_constant constants[NJ_ARGUMENTS_MAX];
    const nj_constant *given[NJ_ARGUMENTS_MAX];
    nj_span options[NJ_ARGUMENTS_MAX];
    PyObject *held; /* list that owns the objects from which values borrow */
    py_pile *pile;
} given_values;

bool py_is_interrupted(void *Py_UNUSED(context))
{
    return PyErr_CheckSignals() < 0;
}

/* Returns the value that bundles store for a caller's object. Borrowed, from the caller or from `held`; NULL with an exception raised. */
static PyObject *value_of(PyObject *owner, PyObject *name, PyObject *object, PyObject *held)
{
    if (py_is_simple(object)) {
        return object;
    }
    PyObject *value = PyObject_CallMethodObjArgs(owner, py_asked._constexpr_value, object, name, NULL);
    int status = value == NULL ? -1 : PyList_Append(held, value);
    Py_XDECREF(value);
    return status < 0 ? NULL : value;
}

/* Reads the constexprs and options of a call. Returns 0, or -1 with an exception raised. */
static int read_given(PyObject *owner, const py_signature *signature, const py_call *call, given_values *made)
{
    made->pile = NULL;
    made->held = PyList_New(0);
    int status = made->held == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < signature->count && status == 0; i++) {
        bool passed = i < signature->param_count && !signature->constexprs[i];
        PyObject *object = passed ? NULL : call->objects[i];
        made->given[i] = object == NULL ? NULL : &made->constants[i];
        if (object != NULL) {
            PyObject *value = value_of(owner, signature->names[i], object, made->held);
            status = value == NULL ? -1 : py_constant_from(value, &made->pile, &made->constants[i]);
        }
        if (status == 0 && i >= signature->param_count) {
            status = py_borrow_text(signature->names[i], &made->options[i - signature->param_count]) ? 0 : -1;
        }
    }
    return status;
}

static Py_ssize_t select_row(const py_spec *spec, const nj_coerced_call *coerced)
{
    nj_fault fault;
    size_t row = 0;
    nj_verdict verdict = nj_select(&spec->it, coerced, &row, &fault);
    if (verdict == NJ_NO_MEMORY) {
        PyErr_NoMemory();
    }
    return verdict == NJ_SERVED ? (Py_ssize_t)row : verdict == NJ_NO_MEMORY || verdict == NJ_STOPPED ? PY_FAILED_ROW : PY_UNSERVED_ROW;
}

Py_ssize_t py_select_row(PyObject *owner, const py_signature *signature, const py_spec *spec, const py_call *call)
{
    given_values *made = PyMem_Malloc(sizeof *made);
    Py_ssize_t row = PY_FAILED_ROW;
    if (made == NULL) {
        PyErr_NoMemory();
        return row;
    }
    if (read_given(owner, signature, call, made) == 0) {
        const nj_coerced_call coerced = {
            .arguments = {call->values, call->leaves, call->descriptors},
            .given = made->given,
            .option_count = (size_t)(signature->count - signature->param_count),
            .options = made->options,
            .arch = spec->it.arch,
            .interrupted = py_is_interrupted,
        };
        row = select_row(spec, &coerced);
    }
    py_pile_free(made->pile);
    Py_XDECREF(made->held);
    PyMem_Free(made);
    return row;
}
