#include "hooks.h"

atomic_bool nj_hooked;

static PyObject *enter_hook, *leave_hook; /* owned; NULL if there are none */
static nj_mutex lock;

PyObject *nj_set_hooks(PyObject *Py_UNUSED(module), PyObject *args)
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
    NJ_LOCK(&lock);
    PyObject *old_enter = enter_hook, *old_leave = leave_hook;
    enter_hook = any ? Py_NewRef(enter) : NULL;
    leave_hook = any ? Py_NewRef(leave) : NULL;
    atomic_store(&nj_hooked, any);
    NJ_UNLOCK(&lock);
    Py_XDECREF(old_enter);
    Py_XDECREF(old_leave);
    Py_RETURN_NONE;
}

static PyObject *current(PyObject *const *hook)
{
    NJ_LOCK(&lock);
    PyObject *found = Py_XNewRef(*hook);
    NJ_UNLOCK(&lock);
    return found;
}

PyObject *nj_hooks_enter(const nj_plan *plan, const nj_signature *signature, const nj_launch *launch)
{
    PyObject *hook = current(&enter_hook);
    if (hook == NULL) { /* taken away a moment ago */
        return Py_NewRef(Py_None);
    }
    PyObject *entered = PyObject_CallFunction(hook, "OO(III)K", signature->kernel, (PyObject *)plan,
                                              launch->grid[0] / plan->num_ctas, launch->grid[1], launch->grid[2],
                                              (unsigned long long)(uintptr_t)launch->stream);
    Py_DECREF(hook);
    return entered;
}

int nj_hooks_leave(PyObject *entered)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *hook = current(&leave_hook);
    PyObject *done = hook == NULL ? Py_NewRef(Py_None) : PyObject_CallOneArg(hook, entered);
    Py_XDECREF(hook);
    Py_DECREF(entered);
    int status = done == NULL ? -1 : 0;
    Py_XDECREF(done);
    if (type != NULL) {
        PyErr_Restore(type, value, traceback);
    }
    return status;
}
