#include "table/py_tuning.h"

#include "driver/py_driver.h"
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "table/py_table.h"
#include "table/tuning_records.h"

#include "driver/query.h"
#include "select/spec.h"

static PyTypeObject *tuning_type;

/* Reads a tuning table: (device, multiprocessors, bytes of memory, blocks). Each of `blocks` is (cases, block). */
static bool read_table(PyObject *object, uint32_t key_count, py_pile **pile, nj_tuning_table *table)
{
    PyObject *device, *blocks;
    unsigned long long multiprocessors, memory_bytes;
    if (!py_is_tuple(object, "a table: (device, multiprocessors, bytes of memory, blocks)") ||
        !PyArg_ParseTuple(object, "UKKO!", &device, &multiprocessors, &memory_bytes, &PyTuple_Type, &blocks) ||
        !py_borrow_text(device, &table->device)) {
        return false;
    }
    table->multiprocessors = multiprocessors;
    table->memory_bytes = memory_bytes;
    table->block_count = (uint32_t)PyTuple_GET_SIZE(blocks);
    nj_tuning_block *made = py_pile_take(pile, table->block_count * sizeof *made);
    table->blocks = made;
    bool read = made != NULL;
    for (uint32_t i = 0; read && i < table->block_count; i++) {
        PyObject *cases, *block, *pair = PyTuple_GET_ITEM(blocks, i);
        made[i] = (nj_tuning_block){0};
        read = py_is_tuple(pair, "blocks: (cases, block)") && PyArg_ParseTuple(pair, "OO", &cases, &block) &&
               (made[i].cases = py_read_numbers(cases, pile, &made[i].case_count)) != NULL &&
               py_read_block(block, key_count, pile, &made[i]);
    }
    return read;
}

static bool read_tuning(PyObject *key, PyObject *bucket, PyObject *tables, py_tuning *self)
{
    nj_tuning *own = &self->own;
    if (!py_is_short_tuple(key, NJ_TUNING_KEYS_MAX) || !py_is_short_tuple(tables, UINT32_MAX) || !py_read_bucket(bucket, &own->bucket)) {
        return false;
    }
    own->key_count = (uint32_t)PyTuple_GET_SIZE(key);
    own->table_count = (uint32_t)PyTuple_GET_SIZE(tables);
    nj_tuning_table *made = py_pile_take(&self->pile, own->table_count * sizeof *made);
    own->tables = made;
    bool read = made != NULL;
    for (uint32_t i = 0; read && i < own->key_count; i++) {
        read = py_borrow_text(PyTuple_GET_ITEM(key, i), &own->key[i]);
    }
    for (uint32_t i = 0; read && i < own->table_count; i++) {
        made[i] = (nj_tuning_table){0};
        read = read_table(PyTuple_GET_ITEM(tables, i), own->key_count, &self->pile, &made[i]);
    }
    return read;
}

static PyObject *tuning_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *first, *bucket = NULL, *tables = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:Tuning", &first, &bucket, &tables)) {
        return NULL;
    }
    py_tuning *self = (py_tuning *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    if (tables == NULL) {
        const nj_table *table = py_table_of(first);
        self->source = Py_NewRef(first);
        self->tuning = table == NULL ? NULL : &table->tuning;
    } else {
        self->source = PyTuple_Pack(2, first, tables);
        self->tuning = self->source != NULL && read_tuning(first, bucket, tables, self) ? &self->own : NULL;
    }
    if (self->tuning == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void tuning_dealloc(py_tuning *self)
{
    PyTypeObject *type = Py_TYPE(self);
    py_pile_free(self->pile);
    Py_XDECREF(self->source);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Returns the index of the tuning table of the most similar device. */
static PyObject *tuning_closest(py_tuning *self, PyObject *args)
{
    PyObject *name;
    unsigned long long multiprocessors, memory_bytes;
    nj_span device;
    if (!PyArg_ParseTuple(args, "UKK:closest", &name, &multiprocessors, &memory_bytes) || !py_borrow_text(name, &device)) {
        return NULL;
    }
    if (self->tuning->table_count == 0) {
        PyErr_SetString(PyExc_ValueError, "expected tables");
        return NULL;
    }
    return PyLong_FromSize_t(nj_closest_table(self->tuning, device, multiprocessors, memory_bytes));
}

/* Finds the tuning table and multiprocessors for a device. Returns false with an exception raised. */
static bool find_tuned(const nj_tuning *tuning, PyObject *device, nj_tuned *tuned)
{
    nj_error error;
    nj_device_facts facts;
    bool asks = nj_tuned_asks_device(tuning);
    long ordinal = PyLong_AsLong(device);
    if (ordinal == -1 && PyErr_Occurred()) {
        return false;
    }
    if (asks && !nj_device_describe(ordinal < 0 || ordinal >= NJ_DEVICES_MAX ? -1 : (int)ordinal, &facts, &error)) {
        py_raise_driver(&error, NULL, NULL);
        return false;
    }
    *tuned = nj_tuned_on(tuning, asks ? &facts : NULL);
    return true;
}

static PyObject *tuning_on(py_tuning *self, PyObject *device)
{
    nj_tuned tuned = nj_tuned_on(self->tuning, NULL);
    if (device != Py_None && !find_tuned(self->tuning, device, &tuned)) {
        return NULL;
    }
    Py_ssize_t place = tuned.table == NULL ? -1 : tuned.table - self->tuning->tables;
    return Py_BuildValue("(nL)", place, (long long)tuned.multiprocessors);
}

int py_ordering_read(PyObject *object, py_ordering *ordering)
{
    Py_ssize_t place;
    long long multiprocessors;
    *ordering = (py_ordering){0};
    if (object == Py_None) {
        return 0;
    }
    if (!py_is_tuple(object, "an ordering: (Tuning, place, multiprocessors)") ||
        !PyArg_ParseTuple(object, "O!nL", tuning_type, &ordering->object, &place, &multiprocessors)) {
        return -1;
    }
    ordering->tuning = ordering->object->tuning;
    if (place >= (Py_ssize_t)ordering->tuning->table_count) {
        PyErr_SetString(PyExc_ValueError, "expected the place of a tuning table");
        return -1;
    }
    ordering->tuned = (nj_tuned){place < 0 ? NULL : &ordering->tuning->tables[place], multiprocessors};
    return 0;
}

int py_ordering_own(const nj_table *table, PyObject *device, py_ordering *ordering)
{
    *ordering = (py_ordering){.tuning = table->tuning.key_count == 0 ? NULL : &table->tuning};
    return ordering->tuning == NULL || find_tuned(ordering->tuning, device, &ordering->tuned) ? 0 : -1;
}

static PyMethodDef tuning_methods[] = {
    {"on", (PyCFunction)tuning_on, METH_O,
     PyDoc_STR("(index of the tuning table to use on a device, or -1; the device's multiprocessors). Without a device, the first table "
               "is used.")},
    {"closest", (PyCFunction)tuning_closest, METH_VARARGS,
     PyDoc_STR("The index of the table of the most similar device, by name, multiprocessors and bytes of memory.")},
    {NULL},
};

static PyType_Slot tuning_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Tuning(table) or Tuning(key, bucket, tables)\n--\n\nMeasurements and estimates that rank the configs of a kernel.")},
    {Py_tp_new, tuning_new},
    {Py_tp_dealloc, tuning_dealloc},
    {Py_tp_methods, tuning_methods},
    {0, NULL},
};

static PyType_Spec tuning_spec = {
    .name = "nojit.runtime._core.Tuning",
    .basicsize = sizeof(py_tuning),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tuning_slots,
};

int py_add_tuning(PyObject *module)
{
    return py_add_type(module, &tuning_spec, &tuning_type);
}
