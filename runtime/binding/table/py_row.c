#include "table/py_row.h"

#include <stdbool.h>

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "table/py_table.h"
#include "values/make_value.h"
#include "values/py_constant_ids.h"

#include "table/verify_rows.h"

PyTypeObject *py_row_type;

typedef struct {
    PyObject_HEAD
    PyObject *table, *ids; /* from which the facts borrow; owned */
    uint32_t image;        /* number of the row's image */
    nj_row_facts facts;
} py_row;

const nj_row_facts *py_row_of(PyObject *row)
{
    return &((py_row *)row)->facts;
}

static bool has_row(const nj_table *table, Py_ssize_t row)
{
    if (row < 0 || (size_t)row >= table->rows) {
        PyErr_Format(PyExc_IndexError, "expected a row below %zu, got %zd", table->rows, row);
        return false;
    }
    return true;
}

static PyObject *row_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *handle, *ids, *where;
    Py_ssize_t row, arguments;
    nj_row_home home;
    nj_error error;
    if (!PyArg_ParseTuple(args, "OnO!inO:Row", &handle, &row, py_ids_type, &ids, &home.arch, &arguments, &where)) {
        return NULL;
    }
    home.table = py_table_of(handle);
    if (home.table == NULL || !has_row(home.table, row)) {
        return NULL;
    }
    py_row *self = (py_row *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->table = Py_NewRef(handle);
    self->ids = Py_NewRef(ids);
    self->image = nj_table_at(home.table, NJ_COLUMN_IMAGE, (size_t)row);
    home.ids = ((py_ids *)ids)->ids;
    home.argument_count = arguments < 0 ? 0 : (size_t)arguments;
    if (!nj_row_facts_read(&home, (size_t)row, &self->facts, &error)) {
        py_raise(&error, where);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void row_dealloc(py_row *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nj_row_facts_close(&self->facts);
    Py_XDECREF(self->table);
    Py_XDECREF(self->ids);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Returns the facts that an image is checked against. They identify a check: rows that share an image may still differ in them. */
static PyObject *row_entry(py_row *self, void *Py_UNUSED(closure))
{
    const nj_expected_image *entry = &self->facts.entry;
    return Py_BuildValue("(NNII)", py_text(entry->symbol), py_tuple_of_numbers(entry->sizes, entry->param_count), entry->num_warps,
                         entry->num_ctas);
}

static PyObject *row_image(py_row *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->image);
}

static PyGetSetDef row_getters[] = {
    {"image", (getter)row_image, NULL, PyDoc_STR("Number of the image."), NULL},
    {"entry", (getter)row_entry, NULL, PyDoc_STR("Symbol, bytes of each param, warps of a block, CTAs of a cluster."), NULL},
    {NULL},
};

static PyType_Slot row_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Row(table, row, ids, arch, arguments, where)\n--\n\nThe validated facts of a table's row that a plan needs.")},
    {Py_tp_new, row_new},
    {Py_tp_dealloc, row_dealloc},
    {Py_tp_getset, row_getters},
    {0, NULL},
};

static PyType_Spec row_spec = {
    .name = "nojit.runtime._core.Row",
    .basicsize = sizeof(py_row),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = row_slots,
};

static bool set_constexpr(void *context, nj_span name, const nj_constant *value)
{
    PyObject *key = py_text(name);
    PyObject *made = key == NULL ? NULL : py_make_one_value(value);
    bool set = made != NULL && PyDict_SetItem(context, key, made) == 0;
    Py_XDECREF(key);
    Py_XDECREF(made);
    return set;
}

/* `row_constexprs(table, row)`: returns a dict of the constexprs and options of a row. */
static PyObject *row_constexprs(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *handle;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "On:row_constexprs", &handle, &row)) {
        return NULL;
    }
    const nj_table *table = py_table_of(handle);
    PyObject *values = table == NULL || !has_row(table, row) ? NULL : PyDict_New();
    if (values != NULL && !nj_row_constexprs(table, (size_t)row, set_constexpr, values)) {
        Py_CLEAR(values);
    }
    return values;
}

/* `map_fault(kind, swizzle, element_bytes, element_type, block, fp4_padded)`: returns which requirement of a descriptor a tensor map
 * does not meet; None if it meets all. */
static PyObject *map_fault(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *kind;
    Py_ssize_t size;
    PyObject *block;
    int padded;
    nj_tensor_map map = {.rank = 0};
    if (!PyArg_ParseTuple(args, "s#bbbO!p:map_fault", &kind, &size, &map.swizzle, &map.element_bytes, &map.element_type, &PyTuple_Type,
                          &block, &padded)) {
        return NULL;
    }
    map.fp4_padded = padded;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(block) && i < NJ_DESCRIPTOR_RANK_MAX; i++) {
        map.block[map.rank++] = (uint16_t)PyLong_AsLong(PyTuple_GET_ITEM(block, i));
    }
    nj_packing_fault fault = PyErr_Occurred() ? (nj_packing_fault){""} : nj_map_lacks((nj_span){(const unsigned char *)kind, (size_t)size}, &map);
    return PyErr_Occurred() ? NULL : *fault.text == 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(fault.text);
}

static PyMethodDef functions[] = {
    {"row_constexprs", row_constexprs, METH_VARARGS, PyDoc_STR("The constexprs and options of a row, as a dict.")},
    {"map_fault", map_fault, METH_VARARGS,
     PyDoc_STR("The requirement of a descriptor that a tensor map does not meet; None if it meets all.")},
    {NULL},
};

int py_add_row(PyObject *module)
{
    return py_add_type(module, &row_spec, &py_row_type) < 0 || PyModule_AddFunctions(module, functions) < 0 ? -1 : 0;
}
