#include "bundle/py_placement.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "base/sha256.h"
#include "bundle/placement.h"

PyTypeObject *py_placement_type;

typedef struct {
    PyObject_HEAD
    PyObject *raw; /* bytes of the placement; owned */
    nj_placement placement;
} py_placement;

static PyObject *placement_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *raw, *where;
    unsigned long long images, payload_bytes;
    nj_error error;
    if (!PyArg_ParseTuple(args, "SKKO:Placement", &raw, &images, &payload_bytes, &where)) {
        return NULL;
    }
    py_placement *self = (py_placement *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->raw = Py_NewRef(raw);
    if (!nj_placement_read(py_span(raw), images, payload_bytes, &self->placement, &error)) {
        py_raise(&error, where);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void placement_dealloc(py_placement *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nj_placement_close(&self->placement);
    Py_XDECREF(self->raw);
    type->tp_free(self);
    Py_DECREF(type);
}

const nj_placement *py_placement_of(PyObject *placed)
{
    return &((py_placement *)placed)->placement;
}

Py_ssize_t py_image_number(const nj_placement *placement, PyObject *number)
{
    Py_ssize_t image = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (image == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (image < 0 || (size_t)image >= placement->images) {
        PyErr_Format(PyExc_IndexError, "expected an image below %zu, got %zd", placement->images, image);
        return -1;
    }
    return image;
}

static PyObject *placement_find(py_placement *self, PyObject *number)
{
    Py_ssize_t image = py_image_number(&self->placement, number);
    if (image < 0) {
        return NULL;
    }
    nj_image_place place = nj_placement_find(&self->placement, (size_t)image);
    return Py_BuildValue("(nKIIy#KK)", (Py_ssize_t)place.number, (unsigned long long)place.stored_start, place.group.stored_bytes,
                         place.group.raw_bytes, (const char *)place.group.sha256, (Py_ssize_t)NJ_SHA256_BYTES,
                         (unsigned long long)place.start, (unsigned long long)place.end);
}

static PyObject *make_group(void *Py_UNUSED(context), const void *placement, size_t number)
{
    nj_group group = nj_placement_group(placement, number);
    return Py_BuildValue("(IIIy#)", group.images, group.stored_bytes, group.raw_bytes, (const char *)group.sha256,
                         (Py_ssize_t)NJ_SHA256_BYTES);
}

static PyObject *placement_groups(py_placement *self, PyObject *Py_UNUSED(none))
{
    return py_tuple(self->placement.groups, make_group, NULL, &self->placement);
}

static PyMethodDef placement_methods[] = {
    {"find", (PyCFunction)placement_find, METH_O, PyDoc_STR("The fields of an image's `Place`. IndexError if there is no such image.")},
    {"groups", (PyCFunction)placement_groups, METH_NOARGS, PyDoc_STR("The fields of each `Group`, in file order.")},
    {NULL},
};

static PyType_Slot placement_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Placement(raw, images, payload_bytes, where)\n--\n\nThe validated images and groups of one kernel.")},
    {Py_tp_new, placement_new},
    {Py_tp_dealloc, placement_dealloc},
    {Py_tp_methods, placement_methods},
    {0, NULL},
};

static PyType_Spec placement_spec = {
    .name = "nojit.runtime._core.Placement",
    .basicsize = sizeof(py_placement),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = placement_slots,
};

int py_add_placement(PyObject *module)
{
    return py_add_type(module, &placement_spec, &py_placement_type);
}
