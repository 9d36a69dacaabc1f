#include "plan/py_plan.h"

#include <structmember.h>

#include "module.h"
#include "python/at_import.h"
#include "python/threads.h"
#include "table/py_row.h"

PyTypeObject *py_plan_type;

/* Raises the engine's error. Returns -1. */
static int refuse(const py_plan *self, const nj_error *error)
{
    if (error->code == NJ_ERROR_DRIVER) {
        py_raise_driver(error, self->it.device, self->it.device == NULL ? NULL : self->label);
    } else if (error->code == NJ_ERROR_MEMORY) {
        PyErr_NoMemory();
    } else {
        PyErr_Format(PyExc_ValueError, *error->got == 0 ? "%s" : "%s, got %s", error->what, error->got);
    }
    return -1;
}

static int make(py_plan *self, const nj_runnable_facts *facts)
{
    nj_error error;
    bool made;
    Py_BEGIN_ALLOW_THREADS
    made = nj_runnable_init(&self->it, facts, &error);
    Py_END_ALLOW_THREADS
    return made ? 0 : refuse(self, &error);
}

static int plan_init(py_plan *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"label", "function", "device", "row", "meta", "payload", NULL};
    PyObject *label, *function, *row, *meta, *payload;
    int device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OO!iO!O!O:Plan", names, &label, py_function_type, &function, &device, py_row_type,
                                     &row, &PyDict_Type, &meta, &payload)) {
        return -1;
    }
    self->label = Py_NewRef(label);
    self->meta = Py_NewRef(meta);
    self->payload = Py_NewRef(payload);
    self->result = Py_NewRef(Py_None);
    nj_runnable_facts facts = py_row_of(row)->facts;
    facts.function = ((py_function *)function)->it;
    facts.device = device;
    return make(self, &facts);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    py_plan *self = (py_plan *)type->tp_alloc(type, 0);
    if (self != NULL && plan_init(self, args, kwargs) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int plan_traverse(py_plan *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->label);
    Py_VISIT(self->meta);
    Py_VISIT(self->payload);
    Py_VISIT(self->result);
    return 0;
}

static int plan_clear(py_plan *self)
{
    Py_CLEAR(self->meta);
    Py_CLEAR(self->payload);
    Py_CLEAR(self->result);
    return 0;
}

static void plan_dealloc(py_plan *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, plan_dealloc);
    plan_clear(self);
    Py_XDECREF(self->label);
    nj_runnable_clear(&self->it);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMemberDef plan_members[] = {
    {"label", T_OBJECT, offsetof(py_plan, label), READONLY, PyDoc_STR("Its str names the plan in errors.")},
    {"payload", T_OBJECT, offsetof(py_plan, payload), READONLY, PyDoc_STR("Data of the slow path.")},
    {"result", T_OBJECT, offsetof(py_plan, result), READONLY, PyDoc_STR("Return value of launches.")},
    {"device", T_INT, offsetof(py_plan, it.ordinal), READONLY, PyDoc_STR("Ordinal of its device.")},
    {NULL},
};

static PyObject *plan_load(py_plan *self, PyObject *Py_UNUSED(none))
{
    nj_error error;
    bool placed;
    Py_BEGIN_ALLOW_THREADS
    placed = nj_function_place(self->it.function, self->it.ordinal, &error);
    Py_END_ALLOW_THREADS
    if (placed) {
        Py_RETURN_NONE;
    }
    py_raise_driver(&error, NULL, self->label);
    return NULL;
}

static PyObject *plan_set_result(py_plan *self, PyObject *result)
{
    PyObject *before;
    PY_BEGIN_LOCKED(self);
    before = self->result;
    self->result = Py_NewRef(result);
    PY_END_LOCKED();
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyMethodDef plan_methods[] = {
    {"set_result", (PyCFunction)plan_set_result, METH_O,
     PyDoc_STR("Have launches return an object. Once, before the first launch.")},
    {"load", (PyCFunction)plan_load, METH_NOARGS, PyDoc_STR("Put the image on the device now.")},
    {NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A variant bound to a device, ready to launch.")},
    {Py_tp_new, plan_new},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_clear, plan_clear},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_members, plan_members},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "nojit.runtime._core.Plan",
    .basicsize = sizeof(py_plan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

int py_add_plan(PyObject *module)
{
    return py_add_type(module, &plan_spec, &py_plan_type);
}
