/* Kernels that replace functions of Triton: `fn[grid](...)` launches from a bundle, and Python handles calls that the bundle cannot. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "kernel/launcher.h"
#include "kernel/served.h"
#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/callbacks.h"
#include "python/exceptions.h"
#include "python/threads.h"

typedef struct {
    PyObject_HEAD
    py_dispatcher *kernel;
    PyObject *owner;   /* handles other calls: `_detour` while `watched` has items, `_recover` if the kernel refuses */
    PyObject *watched; /* tuple of lists, such as Triton's hooks */
    py_atomic_count launches;
} py_served;

static PyTypeObject *served_type;

/* Calls method(error, grid, args, kwargs) of the owner, without `error` if that is NULL. */
static __attribute__((noinline, cold)) PyObject *hand_over(const py_served *self, PyObject *method, PyObject *error,
                                                           PyObject *grid, PyObject *const *arguments, Py_ssize_t count,
                                                           PyObject *keywords)
{
    PyObject *args = PyTuple_New(count), *kwargs = PyDict_New(), *made = NULL;
    int status = args == NULL || kwargs == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < count && status == 0; i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(arguments[i]));
    }
    for (Py_ssize_t i = 0; status == 0 && keywords != NULL && i < PyTuple_GET_SIZE(keywords); i++) {
        status = PyDict_SetItem(kwargs, PyTuple_GET_ITEM(keywords, i), arguments[count + i]);
    }
    if (status == 0) {
        made = error == NULL ? PyObject_CallMethodObjArgs(self->owner, method, grid, args, kwargs, NULL)
                             : PyObject_CallMethodObjArgs(self->owner, method, error, grid, args, kwargs, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return made;
}

static bool is_watched(const py_served *self)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->watched); i++) {
        if (PyList_GET_SIZE(PyTuple_GET_ITEM(self->watched, i)) > 0) {
            return true;
        }
    }
    return false;
}

static PyObject *served_call(PyObject *object, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    py_launcher *launcher = (py_launcher *)object;
    py_served *self = (py_served *)launcher->served;
    Py_ssize_t count = PyVectorcall_NARGS(positional);
    if (is_watched(self)) {
        return hand_over(self, py_asked._detour, NULL, launcher->asked, arguments, count, keywords);
    }
    PyObject *result = py_dispatcher_launch(launcher->kernel, launcher, NULL, arguments, positional, keywords);
    if (result != NULL) {
        PY_COUNT(self->launches);
        return result;
    }
    PyObject *error = py_take_refusal();
    if (error != NULL) {
        result = hand_over(self, py_asked._recover, error, launcher->asked, arguments, count, keywords);
        Py_DECREF(error);
    }
    return result;
}

static PyObject *served_subscript(py_served *self, PyObject *grid)
{
    py_launcher *launcher = py_launcher_make(self->kernel, grid);
    if (launcher != NULL) {
        launcher->vectorcall = served_call;
        launcher->served = Py_NewRef((PyObject *)self);
        launcher->asked = Py_NewRef(grid);
        PyObject_GC_Track(launcher);
    }
    return (PyObject *)launcher;
}

bool py_is_served(PyObject *object)
{
    return Py_IS_TYPE(object, served_type);
}

static PyObject *served_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kernel", "owner", "watched", NULL};
    PyObject *kernel, *owner, *watched;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!:Served", names, &kernel, &owner, &PyTuple_Type, &watched)) {
        return NULL;
    }
    if (!py_dispatcher_is(kernel)) {
        PyErr_SetString(PyExc_TypeError, "expected a kernel");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watched); i++) {
        if (!PyList_Check(PyTuple_GET_ITEM(watched, i))) {
            PyErr_SetString(PyExc_TypeError, "expected lists to watch");
            return NULL;
        }
    }
    py_served *self = (py_served *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->kernel = (py_dispatcher *)Py_NewRef(kernel);
        self->owner = Py_NewRef(owner);
        self->watched = Py_NewRef(watched);
    }
    return (PyObject *)self;
}

static int served_traverse(py_served *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->kernel);
    Py_VISIT(self->owner);
    Py_VISIT(self->watched);
    return 0;
}

static int served_clear(py_served *self)
{
    /* the kernel and the lists stay, since a launcher may still use them */
    Py_CLEAR(self->owner);
    return 0;
}

static void served_dealloc(py_served *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, served_dealloc);
    served_clear(self);
    Py_XDECREF((PyObject *)self->kernel);
    Py_XDECREF(self->watched);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyObject *served_launches(py_served *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(PY_COUNTED(self->launches));
}

static PyGetSetDef served_attributes[] = {
    {"launches", (getter)served_launches, NULL, PyDoc_STR("Number of calls launched from the bundle."), NULL},
    {NULL},
};

static PyMemberDef served_members[] = {
    {"kernel", T_OBJECT, offsetof(py_served, kernel), READONLY, PyDoc_STR("The kernel of the bundle.")},
    {"owner", T_OBJECT, offsetof(py_served, owner), READONLY, PyDoc_STR("Object that handles all other calls.")},
    {NULL},
};

static PyType_Slot served_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A kernel that replaces a function of Triton: `served[grid](...)` launches it.")},
    {Py_tp_new, served_new},
    {Py_tp_traverse, served_traverse},
    {Py_tp_clear, served_clear},
    {Py_tp_dealloc, served_dealloc},
    {Py_tp_members, served_members},
    {Py_tp_getset, served_attributes},
    {Py_mp_subscript, served_subscript},
    {0, NULL},
};

static PyType_Spec served_spec = {
    .name = "nojit.runtime._core.Served",
    .basicsize = sizeof(py_served),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = served_slots,
};

int py_add_served(PyObject *module)
{
    return py_add_type(module, &served_spec, &served_type);
}
