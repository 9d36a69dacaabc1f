#include "table/launch_records.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "table/table_records.h"

#include "table/launch_facts.h"

/* Set once by `py_take_launch_classes`, and never changed. */
static struct {
    py_record launch, map, slot;
} classes;

static PyObject *make_size(void *Py_UNUSED(context), const void *block, size_t number)
{
    return PyLong_FromLong(((const uint16_t *)block)[number]);
}

static PyObject *make_map(void *Py_UNUSED(context), const void *maps, size_t number)
{
    const nj_tensor_map *map = (const nj_tensor_map *)maps + number;
    return py_record_make(&classes.map, (PyObject *[]){py_text(map->source), PyLong_FromLong(map->swizzle),
                                                       PyLong_FromLong(map->element_bytes), PyLong_FromLong(map->element_type),
                                                       py_tuple(map->rank, make_size, NULL, map->block), PyBool_FromLong(map->fp4_padded)});
}

static PyObject *number_of(uint32_t number)
{
    return PyLong_FromUnsignedLong(number);
}

PyObject *py_launch_record(const nj_launch_facts *it, PyObject *layout)
{
    if (py_need_classes() < 0) {
        Py_XDECREF(layout);
        return NULL;
    }
    return py_record_make(&classes.launch,
                          (PyObject *[]){py_text(it->symbol), layout, number_of(it->num_warps), number_of(it->num_ctas),
                                         number_of(it->shared_bytes), number_of(it->global_scratch_bytes),
                                         number_of(it->global_scratch_align), number_of(it->profile_scratch_bytes),
                                         number_of(it->profile_scratch_align), PyBool_FromLong(it->cooperative),
                                         PyBool_FromLong(it->pdl), py_tuple(it->map_count, make_map, NULL, it->maps)});
}

static PyObject *make_slot(void *Py_UNUSED(context), const void *slots, size_t number)
{
    const nj_layout_slot *slot = (const nj_layout_slot *)slots + number;
    return py_record_make(&classes.slot, (PyObject *[]){py_text(slot->source), py_text(slot->type)});
}

static PyObject *slots_of(const nj_layout_slot *slots, uint32_t count)
{
    return py_need_classes() < 0 ? NULL : py_tuple(count, make_slot, NULL, slots);
}

/* `read_layout(text, where)`: returns the tuple of the layout's `Slot`s. */
static PyObject *read_layout(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text, *where;
    if (!PyArg_ParseTuple(args, "UO:read_layout", &text, &where)) {
        return NULL;
    }
    nj_layout_slot *slots = PyMem_Malloc(sizeof *slots * NJ_LAYOUT_SLOTS_MAX);
    PyObject *utf8 = slots == NULL ? PyErr_NoMemory() : py_encode_text(text), *made = NULL;
    uint32_t count;
    nj_error error;
    if (utf8 != NULL) {
        made = nj_read_layout(py_span(utf8), slots, &count, &error) ? slots_of(slots, count) : py_raise(&error, where);
    }
    Py_XDECREF(utf8);
    PyMem_Free(slots);
    return made;
}

/* `read_launch(raw, layout, where)`: returns the `Launch` of a JSON text and the text of its layout. */
static PyObject *read_launch(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *raw, *text, *where;
    if (!PyArg_ParseTuple(args, "SUO:read_launch", &raw, &text, &where)) {
        return NULL;
    }
    PyObject *utf8 = py_encode_text(text), *made = NULL;
    if (utf8 == NULL) {
        return NULL;
    }
    nj_launch_facts launch;
    nj_error error;
    nj_span layout = py_span(utf8);
    made = nj_launch_read(py_span(raw), &layout, 1, &launch, &error) ? py_launch_record(&launch, slots_of(launch.slots, launch.slot_count))
                                                                      : py_raise(&error, where);
    nj_launch_close(&launch);
    Py_DECREF(utf8);
    return made;
}

int py_take_launch_classes(PyObject *launch, PyObject *map, PyObject *slot)
{
    bool taken = py_record_of(launch, 12, &classes.launch) == 0 && py_record_of(map, 6, &classes.map) == 0 &&
                 py_record_of(slot, 2, &classes.slot) == 0;
    return taken ? 0 : -1;
}

static PyMethodDef functions[] = {
    {"read_launch", read_launch, METH_VARARGS, PyDoc_STR("The launch of a JSON text and a layout.")},
    {"read_layout", read_layout, METH_VARARGS, PyDoc_STR("The slots of a layout.")},
    {NULL},
};

/* Adds a tuple of the field names that the engine's function `field` returns by number. */
static int add_fields(PyObject *module, const char *name, const char *(*field)(size_t number))
{
    const char *names[16];
    size_t count = 0;
    while (count < sizeof names / sizeof *names && (names[count] = field(count)) != NULL) {
        count++;
    }
    return py_add_list(module, name, names, count);
}

int py_add_launch_records(PyObject *module)
{
    bool added = PyModule_AddFunctions(module, functions) == 0 && add_fields(module, "LAUNCH_FIELDS", nj_launch_field) == 0 &&
                 add_fields(module, "TENSOR_MAP_FIELDS", nj_tensor_map_field) == 0;
    return added ? 0 : -1;
}
