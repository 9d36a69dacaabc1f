#include "kernel/launcher.h"

#include <structmember.h>

#include "call/bind.h"
#include "call/bound_call.h"
#include "launch/py_grid.h"
#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/threads.h"

static PyTypeObject *launcher_type;

/* A freed launcher, kept for reuse: each `kernel[grid](...)` makes a launcher and drops it. */
#ifndef Py_GIL_DISABLED
static py_launcher *spare;
#endif

static py_launcher *allocate(void)
{
#ifndef Py_GIL_DISABLED
    if (spare != NULL) {
        py_launcher *self = spare;
        spare = NULL;
        return (py_launcher *)PyObject_Init((PyObject *)self, launcher_type);
    }
#endif
    return PyObject_GC_New(py_launcher, launcher_type);
}

static void release(py_launcher *self)
{
#ifndef Py_GIL_DISABLED
    if (spare == NULL) {
        spare = self;
        return;
    }
#endif
    PyObject_GC_Del(self);
}

static PyObject *launcher_call(PyObject *self, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    py_launcher *launcher = (py_launcher *)self;
    return py_dispatcher_launch(launcher->kernel, launcher, NULL, arguments, positional, keywords);
}

py_launcher *py_launcher_make(py_dispatcher *kernel, PyObject *grid)
{
    int64_t parsed[3] = {0};
    py_grid_kind kind = PY_GRID_FIXED;
    if (grid == NULL) {
        kind = PY_GRID_OF_BUNDLE;
    } else if (!PyTuple_CheckExact(grid) && PyCallable_Check(grid)) {
        kind = PY_GRID_CALLABLE;
    } else if (py_parse_grid(&kernel->signature, grid, parsed) < 0) {
        return NULL;
    }
    py_launcher *self = allocate();
    if (self != NULL) {
        self->vectorcall = launcher_call;
        self->kernel = (py_dispatcher *)Py_NewRef((PyObject *)kernel);
        self->kind = kind;
        self->callable = kind == PY_GRID_CALLABLE ? Py_NewRef(grid) : NULL;
        memcpy(self->grid, parsed, sizeof parsed);
        self->fixed = (py_fixed){0, NULL, NULL};
        self->served = self->asked = NULL;
    }
    return self;
}

PyObject *py_launcher_subscript(py_dispatcher *kernel, PyObject *grid)
{
    py_launcher *self = py_dispatcher_check(kernel) < 0 ? NULL : py_launcher_make(kernel, grid);
    if (self != NULL) {
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

/* Stores the bound arguments, each with its index in `py_call.objects`. */
static int keep(py_dispatcher *kernel, PyObject *const *values, PyObject *keywords, py_fixed *fixed)
{
    Py_ssize_t count = PyTuple_GET_SIZE(keywords);
    fixed->objects = PyMem_Calloc((size_t)count, sizeof *fixed->objects);
    fixed->places = PyMem_Calloc((size_t)count, sizeof *fixed->places);
    if (fixed->objects == NULL || fixed->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t place = py_place_of(&kernel->signature, PyTuple_GET_ITEM(keywords, i), 0);
        if (place < 0) {
            if (py_check_option((PyObject *)kernel, PyTuple_GET_ITEM(keywords, i), values[i]) < 0) {
                return -1;
            }
            continue;
        }
        fixed->places[fixed->count] = (uint16_t)place;
        fixed->objects[fixed->count++] = Py_NewRef(values[i]);
    }
    return 0;
}

PyObject *py_launcher_bind(py_dispatcher *kernel, PyObject *const *arguments, Py_ssize_t positional,
                           PyObject *keywords)
{
    if (py_dispatcher_check(kernel) < 0) {
        return NULL;
    }
    if (positional > 1) {
        py_refuse(kernel->signature.kernel, NULL, PyUnicode_FromFormat("%zd positional arguments", positional),
                  "expected bind(grid, **fixed): arguments are bound by name");
        return NULL;
    }
    py_launcher *self = py_launcher_make(kernel, positional == 0 || arguments[0] == Py_None ? NULL : arguments[0]);
    if (self == NULL) {
        return NULL;
    }
    PyObject_GC_Track(self);
    if (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0 &&
        keep(kernel, arguments + positional, keywords, &self->fixed) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int launcher_traverse(py_launcher *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->kernel);
    Py_VISIT(self->callable);
    Py_VISIT(self->served);
    Py_VISIT(self->asked);
    for (Py_ssize_t i = 0; i < self->fixed.count; i++) {
        Py_VISIT(self->fixed.objects[i]);
    }
    return 0;
}

/* Inline in both places: `kernel[grid](...)` frees a launcher for each launch. */
static inline __attribute__((always_inline)) void drop(py_launcher *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < self->fixed.count; i++) {
        Py_DECREF(self->fixed.objects[i]);
    }
    PyMem_Free(self->fixed.objects);
    PyMem_Free(self->fixed.places);
    Py_XDECREF(self->callable);
    Py_XDECREF(self->served);
    Py_XDECREF(self->asked);
    Py_DECREF(self->kernel);
    release(self);
    Py_DECREF(type);
}

static void launcher_dealloc(py_launcher *self)
{
    if (self->fixed.count == 0 && self->callable == NULL) { /* the launcher of a `kernel[grid](...)` */
        PyObject_GC_UnTrack(self);
        drop(self);
        return;
    }
    PY_BEGIN_FREE(self, launcher_dealloc);
    drop(self);
    PY_END_FREE();
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_launcher, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A kernel with its grid and its bound arguments.")},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_members, launcher_members},
    {0, NULL},
};

static PyType_Spec launcher_spec = {
    .name = "nojit.runtime._core.Launcher",
    .basicsize = sizeof(py_launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = launcher_slots,
};

int py_add_launcher(PyObject *module)
{
    return py_add_type(module, &launcher_spec, &launcher_type);
}
