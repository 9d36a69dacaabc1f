#include "variant_table/launch_records.h"

#include "python/exceptions.h"
#include "python/records.h"

#include "table/launch_facts.h"

/* Set once by `py_launch_records_init` under the import lock, and never changed. */
static struct {
    nj_record launch, map, slot;
} classes;

int py_launch_records_init(void)
{
    static const char *const home = "nojit.runtime.table.table";
    bool found = py_record_find(home, "Launch", 12, &classes.launch) == 0 && py_record_find(home, "TensorMap", 6, &classes.map) == 0 &&
                 py_record_find(home, "Slot", 2, &classes.slot) == 0;
    return found ? 0 : -1;
}

static PyObject *text_of(nj_span utf8)
{
    return PyUnicode_DecodeUTF8((const char *)utf8.at, (Py_ssize_t)utf8.size, NULL);
}

static PyObject *block_of(const nj_tensor_map *map)
{
    PyObject *block = PyTuple_New(map->rank);
    for (uint8_t i = 0; block != NULL && i < map->rank; i++) {
        PyObject *number = PyLong_FromLong(map->block[i]);
        if (number == NULL) {
            Py_CLEAR(block);
            break;
        }
        PyTuple_SET_ITEM(block, i, number);
    }
    return block;
}

static PyObject *map_of(const nj_tensor_map *map)
{
    return py_record_make(&classes.map, (PyObject *[]){text_of(map->source), PyLong_FromLong(map->swizzle),
                                                       PyLong_FromLong(map->element_bytes), PyLong_FromLong(map->element_type),
                                                       block_of(map), PyBool_FromLong(map->fp4_padded)});
}

static PyObject *maps_of(const nj_launch_facts *launch)
{
    PyObject *maps = PyTuple_New((Py_ssize_t)launch->map_count);
    for (uint32_t i = 0; maps != NULL && i < launch->map_count; i++) {
        PyObject *map = map_of(&launch->maps[i]);
        if (map == NULL) {
            Py_CLEAR(maps);
            break;
        }
        PyTuple_SET_ITEM(maps, (Py_ssize_t)i, map);
    }
    return maps;
}

static PyObject *number_of(uint32_t number)
{
    return PyLong_FromUnsignedLong(number);
}

PyObject *py_launch_record(const nj_launch_facts *it, PyObject *layout)
{
    return py_record_make(&classes.launch,
                          (PyObject *[]){text_of(it->symbol), layout, number_of(it->num_warps), number_of(it->num_ctas),
                                         number_of(it->shared_bytes), number_of(it->global_scratch_bytes),
                                         number_of(it->global_scratch_align), number_of(it->profile_scratch_bytes),
                                         number_of(it->profile_scratch_align), PyBool_FromLong(it->cooperative),
                                         PyBool_FromLong(it->pdl), maps_of(it)});
}

static PyObject *slots_of(const nj_layout_slot *slots, uint32_t count)
{
    PyObject *made = PyTuple_New((Py_ssize_t)count);
    for (uint32_t i = 0; made != NULL && i < count; i++) {
        PyObject *slot = py_record_make(&classes.slot, (PyObject *[]){text_of(slots[i].source), text_of(slots[i].type)});
        if (slot == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyTuple_SET_ITEM(made, (Py_ssize_t)i, slot);
    }
    return made;
}

/* The UTF-8 of a text, which may hold surrogates; new, or NULL with an exception raised. */
static PyObject *utf8_of(PyObject *text)
{
    return PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
}

static nj_span span_of(PyObject *bytes)
{
    return (nj_span){(const unsigned char *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

PyObject *py_read_layout_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text, *where;
    if (!PyArg_ParseTuple(args, "UO:read_layout", &text, &where)) {
        return NULL;
    }
    nj_layout_slot *slots = PyMem_Malloc(sizeof *slots * NJ_LAYOUT_SLOTS_MAX);
    PyObject *utf8 = slots == NULL ? PyErr_NoMemory() : utf8_of(text), *made = NULL;
    uint32_t count;
    nj_error error;
    if (utf8 != NULL) {
        made = nj_read_layout(span_of(utf8), slots, &count, &error) ? slots_of(slots, count) : py_raise(&error, where);
    }
    Py_XDECREF(utf8);
    PyMem_Free(slots);
    return made;
}

PyObject *py_read_launch(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *raw, *text, *where;
    if (!PyArg_ParseTuple(args, "SUO:read_launch", &raw, &text, &where)) {
        return NULL;
    }
    PyObject *utf8 = utf8_of(text), *made = NULL;
    if (utf8 == NULL) {
        return NULL;
    }
    nj_launch_facts launch;
    nj_error error;
    nj_span layout = span_of(utf8);
    made = nj_launch_read(span_of(raw), &layout, 1, &launch, &error) ? py_launch_record(&launch, slots_of(launch.slots, launch.slot_count))
                                                                      : py_raise(&error, where);
    nj_launch_close(&launch);
    Py_DECREF(utf8);
    return made;
}
