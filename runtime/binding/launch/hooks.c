#include "launch/hooks.h"

#include "call/signature.h"
#include "module.h"
#include "python/threads.h"

atomic_bool py_hooked;

static PyObject *hooks; /* tuple (enter, leave); owned; NULL without hooks */
static py_mutex lock;

/* `set_hooks(enter, leave)`: two callables, or None twice. */
static PyObject *set_hooks(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *enter, *leave;
    if (!PyArg_ParseTuple(args, "OO:set_hooks", &enter, &leave)) {
        return NULL;
    }
    bool any = enter != Py_None;
    if (any != (leave != Py_None) || (any && (!PyCallable_Check(enter) || !PyCallable_Check(leave)))) {
        PyErr_SetString(PyExc_TypeError, "expected two callables, or None twice");
        return NULL;
    }
    PyObject *pair = any ? PyTuple_Pack(2, enter, leave) : NULL;
    if (any && pair == NULL) {
        return NULL;
    }
    PY_LOCK(&lock);
    PyObject *old = hooks;
    hooks = pair;
    atomic_store(&py_hooked, any);
    PY_UNLOCK(&lock);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *current(void)
{
    PY_LOCK(&lock);
    PyObject *found = Py_XNewRef(hooks);
    PY_UNLOCK(&lock);
    return found;
}

PyObject *py_hooks_enter(const py_plan *plan, const py_signature *signature, const nj_launch_state *launch)
{
    PyObject *pair = current();
    if (pair == NULL) { /* another thread has just removed the hooks */
        return Py_NewRef(Py_None);
    }
    PyObject *entered =
        PyObject_CallFunction(PyTuple_GET_ITEM(pair, 0), "OO(III)K", signature->kernel, (PyObject *)plan,
                              launch->grid[0] / plan->it.num_ctas, launch->grid[1], launch->grid[2],
                              (unsigned long long)(uintptr_t)launch->stream);
    PyObject *token = entered == NULL ? NULL : PyTuple_Pack(2, PyTuple_GET_ITEM(pair, 1), entered);
    Py_XDECREF(entered);
    Py_DECREF(pair);
    return token;
}

int py_hooks_leave(PyObject *entered)
{
    if (entered == Py_None) {
        Py_DECREF(entered);
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    /* the `leave` set together with the `enter` that ran, even if other hooks have been set since */
    PyObject *done = PyObject_CallOneArg(PyTuple_GET_ITEM(entered, 0), PyTuple_GET_ITEM(entered, 1));
    Py_DECREF(entered);
    int status = done == NULL ? -1 : 0;
    Py_XDECREF(done);
    if (type != NULL) {
        PyErr_Restore(type, value, traceback);
    }
    return status;
}

static PyMethodDef functions[] = {
    {"set_hooks", set_hooks, METH_VARARGS,
     PyDoc_STR("Call `enter(kernel, plan, grid, stream)` before and `leave(entered)` after every launch.")},
    {NULL},
};

int py_add_hooks(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
