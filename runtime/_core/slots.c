#include "slots.h"

#include "json.h"
#include "meaning.h"
#include "objects.h"
#include "plan.h"

#define POINTER_BYTES 8

typedef struct {
    nj_json rest; /* of the layout */
    PyObject *hints;
    Py_ssize_t hints_met;
    nj_items slots, sizes;
} nj_layout;

/* The hint of a param; 0 if there is none, -1 with an exception raised. */
static long hint_of(nj_layout *layout, PyObject *name)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(layout->hints); i++) {
        PyObject *pair = PyTuple_GET_ITEM(layout->hints, i);
        PyObject *leaf = PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 ? PyTuple_GET_ITEM(pair, 0) : NULL;
        if (leaf != NULL && PyUnicode_Check(leaf) && (leaf == name || PyUnicode_Compare(leaf, name) == 0)) {
            layout->hints_met++;
            return PyLong_AsLong(PyTuple_GET_ITEM(pair, 1));
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Bytes that a type takes; 0 for one that is no scalar and no pointer. */
static int bytes_of(const char *type)
{
    static const int bytes[NJ_DTYPE_COUNT] = {
        [NJ_I1] = 1,  [NJ_U1] = 1,  [NJ_I8] = 1,  [NJ_I16] = 2, [NJ_I32] = 4,  [NJ_I64] = 8,  [NJ_U8] = 1,
        [NJ_U16] = 2, [NJ_U32] = 4, [NJ_U64] = 8, [NJ_FP16] = 2, [NJ_BF16] = 2, [NJ_FP32] = 4, [NJ_FP64] = 8,
    };
    nj_dtype dtype = *type == '*' ? NJ_DTYPE_NONE : nj_dtype_parse(type);
    return *type == '*' ? POINTER_BYTES : dtype == NJ_DTYPE_COUNT ? 0 : bytes[dtype];
}

/* Takes ``source:type`` of the layout, and the space before it. */
static bool take_entry(nj_layout *layout, const char *source, const char *type)
{
    nj_json *rest = &layout->rest;
    bool first = layout->slots.count == 0;
    return (first || nj_json_char(rest, ' ')) && nj_json_is(rest, source) && nj_json_char(rest, ':') &&
           nj_json_is(rest, type) && (rest->at == rest->end || *rest->at == ' ');
}

static bool add_slot(nj_layout *layout, int place, const char *type, int bytes)
{
    return nj_items_add(&layout->slots, Py_BuildValue("(iiiis)", place, -1, NJ_PART_VALUE, 0, type)) == 0 &&
           nj_items_add(&layout->sizes, PyLong_FromLong(bytes)) == 0;
}

/* Takes what a param is passed as, if it is passed. */
static bool take_param(nj_layout *layout, PyObject *name, PyObject *type, PyObject *place)
{
    const char *source = PyUnicode_AsUTF8(name), *spelled = PyUnicode_AsUTF8(type);
    long hint = source == NULL || spelled == NULL ? -1 : hint_of(layout, name);
    long number = hint < 0 ? -1 : PyLong_AsLong(place);
    if (number < 0) {
        return false;
    }
    if (hint == 1 || strcmp(spelled, "none") == 0) {
        return true;
    }
    int bytes = bytes_of(spelled);
    return bytes != 0 && take_entry(layout, source, spelled) && add_slot(layout, (int)number, spelled, bytes);
}

/* Takes the pointers that Triton puts behind every kernel's params. */
static bool take_scratch(nj_layout *layout)
{
    return take_entry(layout, "$global_scratch", "*i8") &&
           add_slot(layout, NJ_SOURCE_GLOBAL_SCRATCH, "*i8", POINTER_BYTES) &&
           take_entry(layout, "$profile_scratch", "*i8") &&
           add_slot(layout, NJ_SOURCE_PROFILE_SCRATCH, "*i8", POINTER_BYTES);
}

static bool take_all(nj_layout *layout, PyObject *params, PyObject *places, PyObject *types)
{
    Py_ssize_t taken = 0;
    for (Py_ssize_t i = 0; i < nj_size(params); i++) {
        PyObject *param = nj_item(params, i);
        if (nj_peek(param, NJ_FIELD_IS_CONSTEXPR) == Py_True) {
            continue;
        }
        PyObject *name = nj_peek(param, NJ_FIELD_NAME), *type = nj_item(types, taken++);
        PyObject *place = name == NULL || type == NULL ? NULL : PyDict_GetItemWithError(places, name);
        if (place == NULL || !take_param(layout, name, type, place)) {
            return false;
        }
    }
    return taken == nj_size(types) && take_scratch(layout) && layout->rest.at == layout->rest.end &&
           layout->hints_met == nj_size(layout->hints);
}

bool nj_plain_slots(PyObject *params, PyObject *places, PyObject *types, PyObject *hints, PyObject *text, PyObject **slots,
                    PyObject **sizes)
{
    Py_ssize_t length = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    nj_layout layout = {.hints = hints};
    layout.rest = (nj_json){(const unsigned char *)bytes, (const unsigned char *)bytes + length};
    nj_items_init(&layout.slots);
    nj_items_init(&layout.sizes);
    bool taken = bytes != NULL && take_all(&layout, params, places, types);
    *slots = nj_items_end(&layout.slots, taken);
    *sizes = nj_items_end(&layout.sizes, taken);
    if (*slots == NULL || *sizes == NULL) {
        Py_CLEAR(*slots);
        Py_CLEAR(*sizes);
    }
    return *slots != NULL;
}
