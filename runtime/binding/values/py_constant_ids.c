#include "values/py_constant_ids.h"

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/threads.h"
#include "values/py_constant.h"

PyTypeObject *py_ids_type;

int py_ids_string(py_ids *self, PyObject *string, nj_value *value)
{
    PyObject *bits = py_dict_get(self->strings, string);
    if (bits != NULL) {
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = PyLong_AsLongLong(bits)};
        Py_DECREF(bits);
        return 0;
    }
    nj_constant text;
    py_pile *none = NULL;
    if (PyErr_Occurred() || py_constant_from(string, &none, &text) < 0) {
        return -1;
    }
    *value = text.kind == NJ_CONSTANT_TEXT ? nj_ids_find_text(self->ids, text.text) : (nj_value){.tag = NJ_TAG_UNKNOWN};
    if (value->tag == NJ_TAG_UNKNOWN) {
        value->bits = 0;
        return 0;
    }
    bits = PyLong_FromLongLong(value->bits);
    int status = bits == NULL ? -1 : PyDict_SetItem(self->strings, string, bits);
    Py_XDECREF(bits);
    return status;
}

/* Returns (tag, bits) of a constant. Gives it an id if it has none. */
static PyObject *ids_add(py_ids *self, PyObject *object)
{
    py_pile *pile = NULL;
    nj_constant constant;
    nj_value value;
    PyObject *pair = NULL;
    if (py_constant_from(object, &pile, &constant) == 0) {
        if (constant.kind == PY_CONSTANT_FOREIGN) {
            PyErr_Format(PyExc_TypeError, "expected a constexpr value, got %.200s", Py_TYPE(object)->tp_name);
        } else if (!nj_ids_add(self->ids, &constant, &value)) {
            PyErr_NoMemory();
        } else {
            pair = Py_BuildValue("(iL)", value.tag, (long long)value.bits);
        }
    }
    py_pile_free(pile);
    return pair;
}

/* Returns (tag, bits) of a constant; the tag is NJ_TAG_UNKNOWN if the constant has no id. */
static PyObject *ids_find(py_ids *self, PyObject *object)
{
    py_pile *pile = NULL;
    nj_constant constant;
    PyObject *pair = NULL;
    if (py_constant_from(object, &pile, &constant) == 0) {
        nj_value value = {.tag = NJ_TAG_UNKNOWN};
        if (constant.kind != PY_CONSTANT_FOREIGN) {
            value = nj_ids_find(self->ids, &constant);
        }
        pair = Py_BuildValue("(iL)", value.tag, (long long)value.bits);
    }
    py_pile_free(pile);
    return pair;
}

static PyObject *ids_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    py_ids *self = PyArg_ParseTupleAndKeywords(args, kwargs, ":Ids", names) ? (py_ids *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->ids = nj_ids_new();
    self->strings = PyDict_New();
    if (self->ids == NULL || self->strings == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void ids_dealloc(py_ids *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nj_ids_free(self->ids);
    Py_XDECREF(self->strings);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef ids_methods[] = {
    {"add", (PyCFunction)ids_add, METH_O, PyDoc_STR("(tag, bits) of a constexpr. Give it an id if it has none.")},
    {"find", (PyCFunction)ids_find, METH_O, PyDoc_STR("(tag, bits) of a constexpr; tag 7 if it has no id.")},
    {NULL},
};

static PyType_Slot ids_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Ids of the strings, dtypes, functions and tuples in a kernel's variants and expressions.")},
    {Py_tp_new, ids_new},
    {Py_tp_dealloc, ids_dealloc},
    {Py_tp_methods, ids_methods},
    {0, NULL},
};

static PyType_Spec ids_spec = {
    .name = "nojit.runtime._core.Ids",
    .basicsize = sizeof(py_ids),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = ids_slots,
};

int py_add_ids(PyObject *module)
{
    return py_add_type(module, &ids_spec, &py_ids_type);
}
