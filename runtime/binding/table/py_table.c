#include "table/py_table.h"

#include <stdlib.h>

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/utf8.h"
#include "table/launch_records.h"
#include "table/table_records.h"

#include "json/limits.h"
#include "table/cost.h"
#include "table/expression_programs.h"
#include "table/verify_rows.h"
#include "table/work_limits.h"

typedef struct {
    PyObject_HEAD
    PyObject *raw;   /* bytes of the table; owned */
    PyObject *parts; /* dict of the parts made so far, by name; owned */
    nj_table table;
} py_table;

/* Set once by `py_add_table` under the import lock, and never changed. */
static PyTypeObject *table_type;

/* `read_table(raw, rows, images, where)`: returns a `Table`. Raises BundleFormatError with the broken rule. */
static PyObject *read_table(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *raw, *where;
    Py_ssize_t rows, images;
    nj_error error;
    if (!PyArg_ParseTuple(args, "SnnO:read_table", &raw, &rows, &images, &where)) {
        return NULL;
    }
    if (rows < 0 || images < 0) {
        PyErr_SetString(PyExc_ValueError, "expected numbers of rows and images from 0");
        return NULL;
    }
    py_table *self = (py_table *)table_type->tp_alloc(table_type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->raw = Py_NewRef(raw);
    self->parts = PyDict_New();
    bool read = self->parts != NULL;
    if (read && !nj_table_read(py_span(raw), (size_t)rows, (size_t)images, &self->table, &error)) {
        py_raise(&error, where);
        read = false;
    }
    if (!read) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

const nj_table *py_table_of(PyObject *handle)
{
    if (!PyObject_TypeCheck(handle, table_type)) {
        PyErr_Format(PyExc_TypeError, "expected a Table, got %.100s", Py_TYPE(handle)->tp_name);
        return NULL;
    }
    return &((py_table *)handle)->table;
}

static void table_dealloc(py_table *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nj_table_close(&self->table);
    Py_XDECREF(self->parts);
    Py_XDECREF(self->raw);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t table_length(py_table *self)
{
    return (Py_ssize_t)self->table.rows;
}

/* Makes a part once: every caller, in any thread, gets the same object. */
static PyObject *table_part(py_table *self, PyObject *name)
{
    PyObject *known = PyDict_GetItemWithError(self->parts, name);
    if (known != NULL || PyErr_Occurred()) {
        return Py_XNewRef(known);
    }
    PyObject *made = py_table_part(&self->table, name);
    known = made == NULL ? NULL : PyDict_SetDefault(self->parts, name, made);
    Py_XINCREF(known);
    Py_XDECREF(made);
    return known;
}

/* Requires a number from 0 to `count` - 1. Returns false with IndexError raised. `what` names the numbered objects in the error. */
static bool read_number(Py_ssize_t number, size_t count, const char *what)
{
    bool right = number >= 0 && (size_t)number < count;
    if (!right) {
        PyErr_Format(PyExc_IndexError, "expected the number of a %s below %zu, got %zd", what, count, number);
    }
    return right;
}

static PyObject *table_launch(py_table *self, PyObject *args)
{
    Py_ssize_t number;
    PyObject *layout_of, *where;
    nj_launch_facts launch;
    nj_error error;
    if (!PyArg_ParseTuple(args, "nOO:launch", &number, &layout_of, &where) ||
        !read_number(number, self->table.launch_count, "launch")) {
        return NULL;
    }
    PyObject *layout = NULL, *made = NULL;
    if (!nj_table_launch(&self->table, (size_t)number, &launch, &error)) {
        py_raise(&error, where);
    } else if ((layout = PyObject_CallFunction(layout_of, "I", launch.layout)) != NULL) {
        made = py_launch_record(&launch, layout);
    }
    nj_launch_close(&launch);
    return made;
}

static PyObject *table_layout(py_table *self, PyObject *number)
{
    Py_ssize_t place = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if ((place == -1 && PyErr_Occurred()) || !read_number(place, self->table.layout_count, "layout")) {
        return NULL;
    }
    return py_text(self->table.layouts[place]);
}

static PyObject *table_check(py_table *self, PyObject *where)
{
    nj_error error;
    bool right;
    Py_BEGIN_ALLOW_THREADS
    right = nj_table_check(&self->table, &error);
    Py_END_ALLOW_THREADS
    return right ? Py_NewRef(Py_None) : py_raise(&error, where);
}

static PyObject *table_check_row(py_table *self, PyObject *args)
{
    Py_ssize_t row;
    PyObject *where;
    nj_launch_facts launch;
    nj_error error;
    if (!PyArg_ParseTuple(args, "nO:check_row", &row, &where) || !read_number(row, self->table.rows, "row")) {
        return NULL;
    }
    bool right = nj_table_launch(&self->table, nj_table_at(&self->table, NJ_COLUMN_LAUNCH, (size_t)row), &launch, &error) &&
                 nj_check_packing(&self->table, (size_t)row, &launch, &error);
    nj_launch_close(&launch);
    return right ? Py_NewRef(Py_None) : py_raise(&error, where);
}

typedef struct {
    uint32_t image, launch, row;
} loaded_row;

static int compare_loaded(const void *one, const void *other)
{
    const loaded_row *a = one, *b = other;
    if (a->image != b->image) {
        return a->image < b->image ? -1 : 1;
    }
    if (a->launch != b->launch) {
        return a->launch < b->launch ? -1 : 1;
    }
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Reads the images and launches of the rows in `list`, or of all rows if it is None. Returns false with an exception raised. */
static bool take_rows(const py_table *self, PyObject *list, loaded_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Py_ssize_t row = list == Py_None ? (Py_ssize_t)i : PyNumber_AsSsize_t(PyList_GET_ITEM(list, i), PyExc_IndexError);
        if ((row == -1 && PyErr_Occurred()) || !read_number(row, self->table.rows, "row")) {
            return false;
        }
        rows[i] = (loaded_row){nj_table_at(&self->table, NJ_COLUMN_IMAGE, (size_t)row),
                               nj_table_at(&self->table, NJ_COLUMN_LAUNCH, (size_t)row), (uint32_t)row};
    }
    return true;
}

static PyObject *list_first(const loaded_row *rows, size_t count)
{
    PyObject *found = PyList_New(0);
    for (size_t i = 0; found != NULL && i < count; i++) {
        if (i == 0 || rows[i].image != rows[i - 1].image || rows[i].launch != rows[i - 1].launch) {
            PyObject *row = PyLong_FromUnsignedLong(rows[i].row);
            if (row == NULL || PyList_Append(found, row) < 0) {
                Py_CLEAR(found);
            }
            Py_XDECREF(row);
        }
    }
    return found;
}

static PyObject *table_rows_to_load(py_table *self, PyObject *list)
{
    if (list != Py_None && !PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of rows, or None for all");
        return NULL;
    }
    size_t count = list == Py_None ? self->table.rows : (size_t)PyList_GET_SIZE(list);
    loaded_row *rows = PyMem_New(loaded_row, count + 1);
    if (rows == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *found = NULL;
    if (take_rows(self, list, rows, count)) {
        qsort(rows, count, sizeof *rows, compare_loaded);
        found = list_first(rows, count);
    }
    PyMem_Free(rows);
    return found;
}

static PyObject *table_expression_chars(py_table *self, PyObject *Py_UNUSED(none))
{
    return PyLong_FromSize_t(nj_expression_chars(&self->table));
}

static PyObject *table_launch_count(py_table *self, PyObject *Py_UNUSED(none))
{
    return PyLong_FromUnsignedLong(self->table.launch_count);
}

static PyObject *table_signature(py_table *self, PyObject *Py_UNUSED(none))
{
    return py_table_signature(&self->table);
}

static PyMethodDef methods[] = {
    {"signature", (PyCFunction)table_signature, METH_NOARGS, PyDoc_STR("Params and names of options, as `Dispatcher` takes them.")},
    {"part", (PyCFunction)table_part, METH_O, PyDoc_STR("A pool or another field of the table, by its name.")},
    {"launch", (PyCFunction)table_launch, METH_VARARGS, PyDoc_STR("launch(number, layout_of, where): a launch; layout_of(number) gives its layout.")},
    {"layout", (PyCFunction)table_layout, METH_O, PyDoc_STR("The text of a layout by its number.")},
    {"check", (PyCFunction)table_check, METH_O, PyDoc_STR("Check every launch and row.")},
    {"check_row", (PyCFunction)table_check_row, METH_VARARGS, PyDoc_STR("Check the packed arguments of one row.")},
    {"rows_to_load", (PyCFunction)table_rows_to_load, METH_O,
     PyDoc_STR("Of a list of rows, or of all for None, the first row of each (image, launch), in their order.")},
    {"launch_count", (PyCFunction)table_launch_count, METH_NOARGS, PyDoc_STR("Number of launches.")},
    {"expression_chars", (PyCFunction)table_expression_chars, METH_NOARGS, PyDoc_STR("Count the characters of all expressions.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, PyDoc_STR("A validated variant table. Immutable.")},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, table_length},
    {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "nojit.runtime._core.Table",
    .basicsize = sizeof(py_table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = table_slots,
};

/* `is_cost(words, keys)`: returns whether a postfix expression computes a number from `keys` key values and the multiprocessors. */
static PyObject *is_cost(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *words;
    unsigned int keys;
    if (!PyArg_ParseTuple(args, "UI:is_cost", &words, &keys)) {
        return NULL;
    }
    PyObject *utf8 = py_encode_text(words);
    PyObject *answer = utf8 == NULL ? NULL : PyBool_FromLong(nj_is_cost(py_span(utf8), keys));
    Py_XDECREF(utf8);
    return answer;
}

static PyMethodDef functions[] = {
    {"read_table", read_table, METH_VARARGS, PyDoc_STR("Read and validate a variant table.")},
    {"is_cost", is_cost, METH_VARARGS, PyDoc_STR("Whether an expression in postfix is the cost of a config.")},
    {NULL},
};

int py_add_table(PyObject *module)
{
    static const py_number limits[] = {
        {"EXPRESSION_CHARS_MAX", NJ_EXPRESSION_CHARS_MAX},
        {"EXPRESSION_SHARE", NJ_EXPRESSION_SHARE},
        {"TYPED_WORK_MAX", NJ_TYPED_WORK_MAX},
        {"CHOOSING_WORK_MAX", NJ_CHOOSING_WORK_MAX},
        {"NAMING_WORK_MAX", NJ_NAMING_WORK_MAX},
        {"POOL_MAX", NJ_POOL_MAX},
        {NULL},
    };
    return PyModule_AddFunctions(module, functions) < 0 || py_add_type(module, &table_spec, &table_type) < 0 ? -1
                                                                                                             : py_add_numbers(module, limits);
}
