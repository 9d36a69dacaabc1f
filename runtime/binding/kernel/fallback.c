#include "kernel/fallback.h"

#include "call/call_facts.h"
#include "python/callbacks.h"
#include "python/exceptions.h"

/* Returns a new dict of the objects that the call passes, by name. */
static PyObject *given_of(const py_signature *signature, const py_call *call)
{
    PyObject *given = PyDict_New();
    int status = given == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i <= signature->count && status == 0; i++) {
        PyObject *object = call->objects[i == signature->count ? NJ_ARGUMENTS_MAX : i];
        status = object == NULL ? 0 : PyDict_SetItem(given, signature->names[i], object);
    }
    if (status < 0) {
        Py_CLEAR(given);
    }
    return given;
}

/* Returns a launcher's grid as a new reference: a tuple, a callable, or None for the bundle's grid. */
static PyObject *grid_of(const py_launcher *launcher)
{
    if (launcher == NULL || launcher->kind == PY_GRID_OF_BUNDLE) {
        return Py_NewRef(Py_None);
    }
    const int64_t *grid = launcher->grid;
    return launcher->kind == PY_GRID_CALLABLE
               ? Py_NewRef(launcher->callable)
               : Py_BuildValue("(LLL)", (long long)grid[0], (long long)grid[1], (long long)grid[2]);
}

__attribute__((cold)) PyObject *py_handle_miss(py_dispatcher *self, const py_launcher *launcher, const py_call *call)
{
    PyObject *error = py_take_miss();
    if (error == NULL) {
        return NULL;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    PyObject *given = facts == NULL ? NULL : given_of(&self->signature, call);
    PyObject *grid = given == NULL ? NULL : grid_of(launcher);
    PyObject *made = grid == NULL ? NULL
                                  : py_call_back((PyObject *)self, py_asked._missed, "(OiOOO)", error, call->device, facts,
                                                 given, grid);
    Py_XDECREF(grid);
    Py_XDECREF(given);
    Py_XDECREF(facts);
    if (made == Py_False) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    }
    Py_DECREF(error);
    Py_XDECREF(made);
    return made == NULL || made == Py_False ? NULL : Py_NewRef(Py_None);
}
