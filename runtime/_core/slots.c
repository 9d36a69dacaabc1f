#include "slots.h"

#include "bundle/json.h"
#include "mapping.h"
#include "meaning.h"
#include "objects.h"
#include "plan.h"
#include "select/type.h"
#include "table/type_name.h"

#include "cold.h"

#define POINTER_BYTES 8
#define TENSOR_MAP_BYTES 128

typedef struct {
    const nj_passed *passed;
    nj_json rest; /* of the layout */
    Py_ssize_t hints_met;
    nj_items slots, maps, sizes;
} nj_layout;

/* The hint of a param; 0 if there is none, -1 with an exception raised. */
static long hint_of(nj_layout *layout, PyObject *name)
{
    for (Py_ssize_t i = 0; i < nj_size(layout->passed->hints); i++) {
        PyObject *pair = PyTuple_GET_ITEM(layout->passed->hints, i);
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

/* Takes the space before an entry, unless it is the first. */
static bool take_space(nj_layout *layout)
{
    return layout->slots.count == 0 || nj_json_char(&layout->rest, ' ');
}

/* Takes the end of an entry: ``:type``. */
static bool take_type(nj_layout *layout, const char *type)
{
    nj_json *rest = &layout->rest;
    return nj_json_char(rest, ':') && nj_json_is(rest, type) && (rest->at == rest->end || *rest->at == ' ');
}

/* Takes ``source:type`` of the layout, and the space before it. */
static bool take_entry(nj_layout *layout, const char *source, const char *type)
{
    return take_space(layout) && nj_json_is(&layout->rest, source) && take_type(layout, type);
}

static bool add_slot(nj_layout *layout, int place, nj_part part, int number, const char *type, int bytes)
{
    return nj_items_add(&layout->slots, Py_BuildValue("(iiiis)", place, -1, part, number, type)) == 0 &&
           nj_items_add(&layout->sizes, PyLong_FromLong(bytes)) == 0;
}

/* What a descriptor's type says. */
typedef struct {
    const char *path;
    PyObject *type;
    int place;
    char pointer[16]; /* to the element */
    int rank;
    bool mapped; /* whether its map was met */
} nj_described_type;

static bool read_described(const char *spelled, nj_described_type *described)
{
    nj_type type = nj_descriptor_type((nj_span){(const unsigned char *)spelled, strlen(spelled)});
    described->rank = type.rank;
    PyOS_snprintf(described->pointer, sizeof described->pointer, "*%s", nj_dtype_name((nj_dtype)type.pointee));
    return type.tags != 0;
}

/* Adds the tensor map of a descriptor, which must be the next one. */
static bool add_map(nj_layout *layout, nj_described_type *described)
{
    Py_ssize_t number = layout->maps.count;
    PyObject *map = nj_item(layout->passed->maps, number), *block = nj_peek(map, NJ_FIELD_BLOCK);
    PyObject *source = nj_peek(map, NJ_FIELD_SOURCE);
    if (described->mapped || nj_size(block) != described->rank || source == NULL || !PyUnicode_Check(source) ||
        PyUnicode_CompareWithASCIIString(source, described->path) != 0) {
        return false;
    }
    PyObject *fault = nj_map_fault(described->type, map);
    Py_XDECREF(fault);
    if (fault != Py_None) {
        return false;
    }
    described->mapped = true;
    PyObject *swizzle = nj_peek(map, NJ_FIELD_SWIZZLE), *bytes = nj_peek(map, NJ_FIELD_ELEMENT_BYTES);
    PyObject *type = nj_peek(map, NJ_FIELD_ELEMENT_TYPE), *padded = nj_peek(map, NJ_FIELD_FP4_PADDED);
    return swizzle != NULL && bytes != NULL && type != NULL && padded != NULL &&
           nj_items_add(&layout->maps, Py_BuildValue("(iiOOOOO)", described->place, -1, swizzle, bytes, type, block, padded)) == 0 &&
           add_slot(layout, described->place, NJ_PART_MAP, (int)number, "tensormap", TENSOR_MAP_BYTES);
}

/* Takes the number of a dimension and the dot before it. */
static bool take_dimension(nj_layout *layout, const nj_described_type *described, int *dimension)
{
    nj_json *rest = &layout->rest;
    if (!nj_json_char(rest, '.') || rest->at == rest->end || *rest->at < '0' || *rest->at - '0' >= described->rank) {
        return false;
    }
    *dimension = *rest->at++ - '0';
    return true;
}

/* Takes a part of a descriptor, of which the path and a dot are taken. */
static bool take_part(nj_layout *layout, nj_described_type *described)
{
    nj_json *rest = &layout->rest;
    int place = described->place, dimension;
    if (nj_json_is(rest, "map")) {
        return take_type(layout, "tensormap") && add_map(layout, described);
    }
    if (nj_json_is(rest, "base")) {
        return take_type(layout, described->pointer) && add_slot(layout, place, NJ_PART_BASE, 0, described->pointer, POINTER_BYTES);
    }
    if (nj_json_is(rest, "pads_nan")) {
        return take_type(layout, "i1") && add_slot(layout, place, NJ_PART_PADS_NAN, 0, "i1", 1);
    }
    if (nj_json_is(rest, "rounds_tf32")) {
        return take_type(layout, "i1") && add_slot(layout, place, NJ_PART_ROUNDS_TF32, 0, "i1", 1);
    }
    bool shape = nj_json_is(rest, "shape");
    if (!(shape || nj_json_is(rest, "stride")) || !take_dimension(layout, described, &dimension)) {
        return false;
    }
    nj_json after = *rest;
    if (shape && take_type(layout, "i32")) {
        return add_slot(layout, place, NJ_PART_SHAPE, dimension, "i32", 4);
    }
    *rest = after;
    return take_type(layout, "i64") && add_slot(layout, place, shape ? NJ_PART_SHAPE : NJ_PART_STRIDE, dimension, "i64", 8);
}

/* Takes the parts of a descriptor: one at least. */
static bool take_descriptor(nj_layout *layout, const char *path, PyObject *named, const char *type, int place)
{
    nj_described_type described = {.path = path, .type = named, .place = place};
    Py_ssize_t before = layout->slots.count;
    bool taken = read_described(type, &described);
    while (taken) {
        nj_json here = layout->rest;
        if (!(take_space(layout) && nj_json_is(&layout->rest, path) && nj_json_char(&layout->rest, '.'))) {
            layout->rest = here;
            return layout->slots.count > before;
        }
        taken = take_part(layout, &described);
    }
    return false;
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
    if (hint == 1 || strcmp(spelled, "none") == 0 || *spelled == '=') {
        return true;
    }
    if (nj_is_descriptor_name((nj_span){(const unsigned char *)spelled, strlen(spelled)})) {
        return take_descriptor(layout, source, type, spelled, (int)number);
    }
    int bytes = bytes_of(spelled);
    return bytes != 0 && take_entry(layout, source, spelled) &&
           add_slot(layout, (int)number, NJ_PART_VALUE, 0, spelled, bytes);
}

/* Takes a pointer that Triton puts behind every kernel's params. */
static bool take_scratch(nj_layout *layout, const char *source, int place)
{
    return take_entry(layout, source, "*i8") && add_slot(layout, place, NJ_PART_VALUE, 0, "*i8", POINTER_BYTES);
}

static bool take_all(nj_layout *layout)
{
    const nj_passed *passed = layout->passed;
    Py_ssize_t taken = 0;
    for (Py_ssize_t i = 0; i < nj_size(passed->params); i++) {
        PyObject *param = nj_item(passed->params, i);
        if (nj_peek(param, NJ_FIELD_IS_CONSTEXPR) == Py_True) {
            continue;
        }
        PyObject *name = nj_peek(param, NJ_FIELD_NAME), *type = nj_item(passed->types, taken++);
        PyObject *place = name == NULL || type == NULL ? NULL : PyDict_GetItemWithError(passed->places, name);
        if (place == NULL || !take_param(layout, name, type, place)) {
            return false;
        }
    }
    return taken == nj_size(passed->types) && take_scratch(layout, "$global_scratch", NJ_SOURCE_GLOBAL_SCRATCH) &&
           take_scratch(layout, "$profile_scratch", NJ_SOURCE_PROFILE_SCRATCH) && layout->rest.at == layout->rest.end &&
           layout->hints_met == nj_size(passed->hints) && layout->maps.count == nj_size(passed->maps);
}

void nj_packed_clear(nj_packed *packed)
{
    Py_CLEAR(packed->slots);
    Py_CLEAR(packed->maps);
    Py_CLEAR(packed->sizes);
}

bool nj_pack_slots(const nj_passed *passed, nj_packed *packed)
{
    Py_ssize_t length = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(passed->layout, &length);
    nj_layout layout = {.passed = passed};
    layout.rest = (nj_json){(const unsigned char *)bytes, (const unsigned char *)bytes + length};
    nj_items_init(&layout.slots);
    nj_items_init(&layout.maps);
    nj_items_init(&layout.sizes);
    bool taken = bytes != NULL && take_all(&layout);
    packed->slots = nj_items_end(&layout.slots, taken);
    packed->maps = nj_items_end(&layout.maps, taken);
    packed->sizes = nj_items_end(&layout.sizes, taken);
    if (packed->slots == NULL || packed->maps == NULL || packed->sizes == NULL) {
        nj_packed_clear(packed);
    }
    return packed->slots != NULL;
}
