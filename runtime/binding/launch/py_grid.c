/* Reads a caller's grid: ints or a callable. The engine computes a bundle's grid: `nj_runnable_grid`. */
#include "launch/py_grid.h"

#include "call/signature.h"
#include "python/exceptions.h"

static int parse_dimension(const py_signature *signature, Py_ssize_t at, PyObject *item, int64_t *out)
{
    if (PyLong_CheckExact(item)) { /* the common case */
        int beyond;
        *out = PyLong_AsLongLongAndOverflow(item, &beyond);
        if (beyond == 0) {
            return 0;
        }
    }
    PyObject *number = PyBool_Check(item) || !PyIndex_Check(item) ? NULL : PyNumber_Index(item);
    int overflow = 0;
    if (number != NULL) {
        *out = PyLong_AsLongLongAndOverflow(number, &overflow);
        Py_DECREF(number);
        if (overflow == 0) {
            return 0;
        }
    }
    PyObject *argument = PyErr_Occurred() ? NULL : PyUnicode_FromFormat("grid[%zd]", at);
    py_refuse(signature->kernel, argument, argument == NULL ? NULL : py_describe(item), "expected an int");
    Py_XDECREF(argument);
    return -1;
}

int py_parse_grid(const py_signature *signature, PyObject *object, int64_t grid[3])
{
    /* a list can change while its items' __index__ run, a tuple cannot */
    PyObject *tuple = PyList_Check(object) ? PySequence_Tuple(object) : Py_NewRef(object);
    if (tuple == NULL) {
        return -1;
    }
    Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
    int status = 0;
    if (count < 1 || count > 3) {
        PyObject *got = PyTuple_Check(tuple) ? PyUnicode_FromFormat("%zd dimensions", count) : py_describe(object);
        py_refuse(signature->kernel, NULL, got, PY_GRID_RULE);
        status = -1;
    }
    grid[1] = grid[2] = 1;
    for (Py_ssize_t i = 0; i < count && status == 0; i++) {
        status = parse_dimension(signature, i, PyTuple_GET_ITEM(tuple, i), &grid[i]);
    }
    Py_DECREF(tuple);
    return status;
}

int py_call_grid(const py_signature *signature, const py_plan *plan, const py_call *call, PyObject *callable,
                 int64_t grid[3])
{
    PyObject *meta = PyDict_Copy(plan->meta);
    int status = meta == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < signature->param_count && status == 0; i++) {
        if (!signature->constexprs[i]) {
            status = PyDict_SetItem(meta, signature->names[i], call->objects[i]);
        }
    }
    PyObject *result = status < 0 ? NULL : PyObject_CallOneArg(callable, meta);
    Py_XDECREF(meta);
    status = result == NULL ? -1 : py_parse_grid(signature, result, grid);
    Py_XDECREF(result);
    return status;
}
