#include "mapping.h"

#include <stdbool.h>
#include <string.h>

#include "meaning.h"
#include "objects.h"
#include "value.h"

#include "cold.h"

#define DESCRIPTOR "tensordesc<"
#define RANK_MAX 5

enum {
    /* CUtensorMapDataType of cuda.h, of two values of 4 bits in a byte with padding */
    PADDED_FP4 = 14,
    /* CUtensorMapSwizzle of cuda.h: 16 bytes times two to this power is the width; what comes behind is wider than that */
    SWIZZLE_128 = 3,
};

/* Elements, what they take, and what cuda.h calls them: fp8 is none of its types. */
static const struct {
    const char *name;
    long bytes, type;
} elements[] = {
    {"i1", 1, 0},      {"u1", 1, 0},      {"i8", 1, 0},       {"u8", 1, 0},      {"fp8e4nv", 1, 0}, {"fp8e5", 1, 0},
    {"fp8e4b15", 1, 0}, {"fp8e4b8", 1, 0}, {"fp8e5b16", 1, 0}, {"u16", 2, 1},     {"i16", 2, 1},     {"u32", 4, 2},
    {"i32", 4, 3},     {"u64", 8, 4},     {"i64", 8, 5},      {"fp16", 2, 6},    {"fp32", 4, 7},    {"fp64", 8, 8},
    {"bf16", 2, 9},
};

typedef struct {
    long bytes, type; /* of an element */
    int rank;
    long block[RANK_MAX];
} described;

/* Reads ``tensordesc<fp16[128,64]>``. */
static bool read_type(const char *text, described *made)
{
    const char *element = text + strlen(DESCRIPTOR), *at = strchr(element, '[');
    size_t i = 0, count = sizeof elements / sizeof *elements;
    if (strncmp(text, DESCRIPTOR, strlen(DESCRIPTOR)) != 0 || at == NULL) {
        return false;
    }
    size_t size = (size_t)(at - element);
    while (i < count && (strlen(elements[i].name) != size || memcmp(elements[i].name, element, size) != 0)) {
        i++;
    }
    if (i == count) {
        return false;
    }
    made->bytes = elements[i].bytes;
    made->type = elements[i].type;
    for (made->rank = 0; *at == (made->rank == 0 ? '[' : ','); made->rank++) {
        char *end;
        if (made->rank == RANK_MAX) {
            return false;
        }
        made->block[made->rank] = strtol(at + 1, &end, 10);
        at = end;
    }
    return strcmp(at, "]>") == 0;
}

/* A number of the map; -1 with an exception raised if it is none. */
static long number_of(PyObject *map, nj_field_name field)
{
    PyObject *number = nj_peek(map, field);
    return number == NULL || !PyLong_Check(number) ? -1 : PyLong_AsLong(number);
}

/* Whether copies of the map's block make up the type's: Triton copies a wide block in parts, and splits it among CTAs. */
static bool covers(const described *made, PyObject *block, bool padded, long *inner)
{
    for (int i = 0; i < made->rank; i++) {
        PyObject *size = nj_item(block, i);
        long part = size == NULL || !PyLong_Check(size) ? -1 : PyLong_AsLong(size);
        long whole = made->block[i] << (padded && i == made->rank - 1);
        if (part < 1 || whole % part != 0) {
            return false;
        }
        *inner = part;
    }
    return true;
}

PyObject *nj_map_fault(PyObject *type, PyObject *map)
{
    described made;
    const char *text = PyUnicode_AsUTF8(type);
    PyObject *block = nj_peek(map, NJ_FIELD_BLOCK);
    long inner = 0, swizzle = number_of(map, NJ_FIELD_SWIZZLE);
    bool padded = nj_peek(map, NJ_FIELD_FP4_PADDED) == Py_True;
    if (text == NULL) {
        return NULL;
    }
    if (!read_type(text, &made)) {
        return PyUnicode_FromString("a descriptor");
    }
    if (nj_size(block) != made.rank) {
        return PyUnicode_FromFormat("a block of %d dimensions", made.rank);
    }
    long element = padded ? PADDED_FP4 : made.type;
    if (padded && (made.bytes != 1 || swizzle != SWIZZLE_128)) {
        return PyUnicode_FromString("padding of 4-bit values in elements of one byte, swizzled 128 bytes wide");
    }
    if (number_of(map, NJ_FIELD_ELEMENT_BYTES) != made.bytes || number_of(map, NJ_FIELD_ELEMENT_TYPE) != element) {
        return PyUnicode_FromFormat("elements of %ld bytes and type %ld", made.bytes, element);
    }
    if (!covers(&made, block, padded, &inner)) {
        return PyUnicode_FromString("a block that the descriptor's is made up of");
    }
    if (swizzle >= 1 && swizzle <= SWIZZLE_128 && inner * made.bytes > 16 << swizzle) {
        return PyUnicode_FromFormat("a block at most as wide as its swizzle, %d bytes", 16 << swizzle);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *nj_map_fault_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *map;
    return PyArg_ParseTuple(args, "UO:map_fault", &type, &map) ? nj_map_fault(type, map) : NULL;
}
