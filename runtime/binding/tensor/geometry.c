#include "tensor/geometry.h"

#include <structmember.h>

#include "module.h"
#include "python/at_import.h"
#include "python/threads.h"
#include "tensor/read_descriptor.h"

PyTypeObject *py_described_type;
static PyTypeObject *geometry_type;

static PyObject *describe(py_geometry *geometry, PyObject *base)
{
    py_described *self = PyObject_GC_New(py_described, py_described_type);
    if (self != NULL) {
        self->base = Py_NewRef(base);
        self->geometry = (py_geometry *)Py_NewRef((PyObject *)geometry);
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *geometry_call(PyObject *self, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    if (PyVectorcall_NARGS(positional) != 1 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor to describe");
        return NULL;
    }
    return describe((py_geometry *)self, arguments[0]);
}

static PyObject *tuple_or_none(PyObject *sequence)
{
    return sequence == Py_None ? Py_NewRef(sequence) : PySequence_Tuple(sequence);
}

/* Returns a new geometry; NULL with an exception raised. */
static py_geometry *make_geometry(PyTypeObject *type, PyObject *shape, PyObject *strides, PyObject *box,
                                  PyObject *steps)
{
    py_geometry *self = (py_geometry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = geometry_call;
    self->shape = PySequence_Tuple(shape);
    self->strides = self->shape == NULL ? NULL : PySequence_Tuple(strides);
    self->box = self->strides == NULL ? NULL : tuple_or_none(box);
    self->steps = self->box == NULL ? NULL : tuple_or_none(steps);
    if (self->steps == NULL || py_descriptor_set(self->shape, self->strides, &self->numbers) < 0 ||
        py_descriptor_set_box(self->box, self->steps, &self->numbers) < 0) {
        Py_CLEAR(self);
    }
    return self;
}

static PyObject *geometry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"strides", "shape", "box", "steps", NULL};
    PyObject *shape, *strides, *box = Py_None, *steps = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:Geometry", names, &strides, &shape, &box, &steps)) {
        return NULL;
    }
    return (PyObject *)make_geometry(type, shape, strides, box, steps);
}

static void geometry_dealloc(py_geometry *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->shape);
    Py_XDECREF(self->strides);
    Py_XDECREF(self->box);
    Py_XDECREF(self->steps);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *described_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"base", "strides", "shape", "box", "steps", NULL};
    PyObject *base, *strides, *shape = Py_None, *box = Py_None, *steps = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOO:Described", names, &base, &strides, &shape, &box, &steps)) {
        return NULL;
    }
    shape = shape == Py_None ? PyObject_GetAttrString(base, "shape") : Py_NewRef(shape);
    py_geometry *geometry = shape == NULL ? NULL : make_geometry(geometry_type, shape, strides, box, steps);
    PyObject *self = geometry == NULL ? NULL : describe(geometry, base);
    Py_XDECREF((PyObject *)geometry);
    Py_XDECREF(shape);
    return self;
}

static PyObject *described_shape(py_described *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->geometry->shape);
}

static PyObject *described_strides(py_described *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->geometry->strides);
}

static PyObject *described_block(py_described *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    Py_RETURN_NONE;
}

static int described_traverse(py_described *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->base);
    return 0;
}

static void described_dealloc(py_described *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, described_dealloc);
    Py_DECREF(self->base);
    Py_DECREF(self->geometry);
    PyObject_GC_Del(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMemberDef geometry_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_geometry, vectorcall), READONLY, NULL},
    {"shape", T_OBJECT, offsetof(py_geometry, shape), READONLY, NULL},
    {"strides", T_OBJECT, offsetof(py_geometry, strides), READONLY, NULL},
    {"box", T_OBJECT, offsetof(py_geometry, box), READONLY, NULL},
    {"steps", T_OBJECT, offsetof(py_geometry, steps), READONLY, NULL},
    {NULL},
};

static PyType_Slot geometry_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Geometry(strides, shape, box=None, steps=None)\n--\n\n"
                                  "Describe a tensor: geometry(tensor) returns a Described.")},
    {Py_tp_new, geometry_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, geometry_dealloc},
    {Py_tp_members, geometry_members},
    {0, NULL},
};

static PyType_Spec geometry_spec = {
    .name = "nojit.runtime._core.Geometry",
    .basicsize = sizeof(py_geometry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = geometry_slots,
};

static PyMemberDef described_members[] = {
    {"base", T_OBJECT, offsetof(py_described, base), READONLY, NULL},
    {"geometry", T_OBJECT, offsetof(py_described, geometry), READONLY, NULL},
    {NULL},
};

static PyGetSetDef described_attributes[] = {
    {"shape", (getter)described_shape, NULL, NULL, NULL},
    {"strides", (getter)described_strides, NULL, PyDoc_STR("In elements."), NULL},
    {"block_shape", (getter)described_block, NULL, PyDoc_STR("None: the kernel's config chooses."), NULL},
    {NULL},
};

static PyType_Slot described_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Described(base, strides, shape=None, box=None, steps=None)\n--\n\n"
                                  "A tensor descriptor whose block shape the kernel's config chooses.\n\n"
                                  "A box is the shape that a copy reads instead of the block: its size and its last\n"
                                  "dimension equal the block's. Steps are the distances between its elements.")},
    {Py_tp_new, described_new},
    {Py_tp_traverse, described_traverse},
    {Py_tp_dealloc, described_dealloc},
    {Py_tp_members, described_members},
    {Py_tp_getset, described_attributes},
    {0, NULL},
};

static PyType_Spec described_spec = {
    .name = "nojit.runtime._core.Described",
    .basicsize = sizeof(py_described),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = described_slots,
};

int py_add_geometry(PyObject *module)
{
    return py_add_type(module, &geometry_spec, &geometry_type) < 0 ? -1 : py_add_type(module, &described_spec, &py_described_type);
}
