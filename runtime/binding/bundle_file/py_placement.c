#include "bundle_file/py_placement.h"

#include "python/exceptions.h"

#include "bundle/frame.h"
#include "bundle/header.h"
#include "bundle/placement.h"

PyTypeObject *py_placement_type;

typedef struct {
    PyObject_HEAD
    PyObject *raw; /* bytes, in which the placement lies */
    nj_placement placement;
} py_placement;

static nj_span span_of(const Py_buffer *buffer)
{
    return (nj_span){buffer->buf, (size_t)buffer->len};
}

static PyObject *bytes_of(nj_span span)
{
    return PyBytes_FromStringAndSize((const char *)span.at, (Py_ssize_t)span.size);
}

PyObject *py_check_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer frame;
    unsigned long long raw_bytes;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*KO:check_frame", &frame, &raw_bytes, &where)) {
        return NULL;
    }
    PyObject *checked = nj_frame_check(span_of(&frame), raw_bytes, &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
    PyBuffer_Release(&frame);
    return checked;
}

PyObject *py_check_section(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long stored_bytes, raw_bytes;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "KKO:check_section", &stored_bytes, &raw_bytes, &where)) {
        return NULL;
    }
    return nj_section_check(stored_bytes, raw_bytes, &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
}

PyObject *py_split_section(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    unsigned long long images, groups;
    PyObject *where, *parts;
    nj_span table, placement;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*KKO:split_section", &raw, &images, &groups, &where)) {
        return NULL;
    }
    parts = nj_section_split(span_of(&raw), images, groups, &table, &placement, &error)
                ? Py_BuildValue("(NN)", bytes_of(table), bytes_of(placement))
                : py_raise(&error, where);
    PyBuffer_Release(&raw);
    return parts;
}

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
    nj_span span = {(const unsigned char *)PyBytes_AS_STRING(raw), (size_t)PyBytes_GET_SIZE(raw)};
    if (!nj_placement_read(span, images, payload_bytes, &self->placement, &error)) {
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

static PyObject *placement_groups(py_placement *self, PyObject *Py_UNUSED(none))
{
    PyObject *groups = PyTuple_New((Py_ssize_t)self->placement.groups);
    for (size_t i = 0; groups != NULL && i < self->placement.groups; i++) {
        nj_group group = nj_placement_group(&self->placement, i);
        PyObject *fields = Py_BuildValue("(IIIy#)", group.images, group.stored_bytes, group.raw_bytes, (const char *)group.sha256,
                                         (Py_ssize_t)NJ_SHA256_BYTES);
        if (fields == NULL) {
            Py_CLEAR(groups);
            break;
        }
        PyTuple_SET_ITEM(groups, (Py_ssize_t)i, fields);
    }
    return groups;
}

static PyMethodDef placement_methods[] = {
    {"find", (PyCFunction)placement_find, METH_O, PyDoc_STR("The fields of an image's `Place`. IndexError if there is no such image.")},
    {"groups", (PyCFunction)placement_groups, METH_NOARGS, PyDoc_STR("The fields of each `Group`, in file order.")},
    {NULL},
};

static PyType_Slot placement_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Placement(raw, images, payload_bytes, where)\n--\n\nThe images and groups of one kernel, checked.")},
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

int py_placement_init(PyObject *module)
{
    py_placement_type = (PyTypeObject *)PyType_FromSpec(&placement_spec);
    return py_placement_type == NULL ? -1 : PyModule_AddType(module, py_placement_type);
}
