/* `function[grid]` for functions of Triton that kernels replace. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "kernel/served.h"
#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/threads.h"

/* Replaces `JITFunction.__getitem__`. In C, since a Python method would cost a tenth of a launch. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *name; /* name of the attribute that holds the function's `Served`; interned */
    PyObject *find; /* callable that returns the `Served` of a function without that attribute */
} py_subscript;

static PyObject *subscript_call(PyObject *object, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    py_subscript *self = (py_subscript *)object;
    if (PyVectorcall_NARGS(positional) != 2 || (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "expected function[grid]");
        return NULL;
    }
    PyObject *dict = PyObject_GenericGetDict(arguments[0], NULL);
    PyObject *served = dict == NULL ? NULL : py_dict_get(dict, self->name);
    Py_XDECREF(dict);
    if ((served == NULL || !py_is_served(served)) && !PyErr_Occurred()) {
        Py_XSETREF(served, PyObject_CallOneArg(self->find, arguments[0]));
    }
    PyObject *launcher = served == NULL ? NULL : PyObject_GetItem(served, arguments[1]);
    Py_XDECREF(served);
    return launcher;
}

static PyObject *subscript_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *subscript_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "find", NULL};
    PyObject *name, *find;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO:Subscript", names, &name, &find)) {
        return NULL;
    }
    py_subscript *self = (py_subscript *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = subscript_call;
        self->name = Py_NewRef(name);
        self->find = Py_NewRef(find);
        PyUnicode_InternInPlace(&self->name);
    }
    return (PyObject *)self;
}

static int subscript_traverse(py_subscript *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->find);
    return 0;
}

static void subscript_dealloc(py_subscript *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, subscript_dealloc);
    Py_XDECREF(self->name);
    Py_XDECREF(self->find);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMemberDef subscript_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_subscript, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot subscript_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("The method that makes `function[grid]` a launcher of the function's kernel.")},
    {Py_tp_new, subscript_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, subscript_get},
    {Py_tp_traverse, subscript_traverse},
    {Py_tp_dealloc, subscript_dealloc},
    {Py_tp_members, subscript_members},
    {0, NULL},
};

static PyType_Spec subscript_spec = {
    .name = "nojit.runtime._core.Subscript",
    .basicsize = sizeof(py_subscript),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = subscript_slots,
};

int py_add_subscript(PyObject *module)
{
    static PyTypeObject *type;
    return py_add_type(module, &subscript_spec, &type);
}
