#include "mapping.h"

#include <stdbool.h>
#include <stdint.h>

#include "meaning.h"
#include "objects.h"
#include "select/type.h"

#include "cold.h"

enum {
    /* CUtensorMapDataType of cuda.h, of two values of 4 bits in a byte with padding */
    PADDED_FP4 = 14,
    /* CUtensorMapSwizzle of cuda.h: 16 bytes times two to this power is the width; what comes behind is wider than that */
    SWIZZLE_128 = 3,
};

/* Bytes and CUtensorMapDataType of each element; cuda.h has no fp8, which is mapped as bytes. */
static const struct {
    uint8_t bytes, type;
} elements[NJ_DTYPE_COUNT] = {
    [NJ_I1] = {1, 0},      [NJ_U1] = {1, 0},      [NJ_I8] = {1, 0},       [NJ_U8] = {1, 0},       [NJ_FP8E4NV] = {1, 0},
    [NJ_FP8E5] = {1, 0},   [NJ_FP8E4B15] = {1, 0}, [NJ_FP8E4B8] = {1, 0}, [NJ_FP8E5B16] = {1, 0}, [NJ_U16] = {2, 1},
    [NJ_I16] = {2, 1},     [NJ_U32] = {4, 2},     [NJ_I32] = {4, 3},      [NJ_U64] = {8, 4},      [NJ_I64] = {8, 5},
    [NJ_FP16] = {2, 6},    [NJ_FP32] = {4, 7},    [NJ_FP64] = {8, 8},     [NJ_BF16] = {2, 9},
};

/* A number of a map; -1 for what is none, or has too many bits. */
static long as_long(PyObject *number)
{
    long value = number == NULL || !PyLong_Check(number) ? -1 : PyLong_AsLong(number);
    PyErr_Clear();
    return value;
}

/* Whether copies of the map's block make up the type's: Triton copies a wide block in parts, and splits it among CTAs. */
static bool covers(const nj_type *described, PyObject *block, bool padded, long *inner)
{
    for (int i = 0; i < described->rank; i++) {
        long part = as_long(nj_item(block, i)), whole = (long)described->block[i] << (padded && i == described->rank - 1);
        if (part < 1 || whole % part != 0) {
            return false;
        }
        *inner = part;
    }
    return true;
}

PyObject *nj_map_fault(PyObject *type, PyObject *map)
{
    const char *text = PyUnicode_AsUTF8(type);
    if (text == NULL) {
        return NULL;
    }
    nj_type described = nj_descriptor_type((nj_span){(const unsigned char *)text, strlen(text)});
    PyObject *block = nj_peek(map, NJ_FIELD_BLOCK);
    long inner = 0, swizzle = as_long(nj_peek(map, NJ_FIELD_SWIZZLE)), bytes = elements[described.pointee].bytes;
    bool padded = nj_peek(map, NJ_FIELD_FP4_PADDED) == Py_True;
    if (described.tags == 0) {
        return PyUnicode_FromString("a descriptor");
    }
    if (nj_size(block) != described.rank) {
        return PyUnicode_FromFormat("a block of %d dimensions", described.rank);
    }
    long element = padded ? PADDED_FP4 : elements[described.pointee].type;
    if (padded && (bytes != 1 || swizzle != SWIZZLE_128)) {
        return PyUnicode_FromString("padding of 4-bit values in elements of one byte, swizzled 128 bytes wide");
    }
    if (as_long(nj_peek(map, NJ_FIELD_ELEMENT_BYTES)) != bytes || as_long(nj_peek(map, NJ_FIELD_ELEMENT_TYPE)) != element) {
        return PyUnicode_FromFormat("elements of %ld bytes and type %ld", bytes, element);
    }
    if (!covers(&described, block, padded, &inner)) {
        return PyUnicode_FromString("a block that the descriptor's is made up of");
    }
    if (!padded && inner * bytes % 16 != 0) {
        return PyUnicode_FromString("a block of a multiple of 16 bytes in its last dimension");
    }
    /* those above differ in what moves, not in how wide they are */
    int width = 16 << (swizzle < SWIZZLE_128 ? swizzle : SWIZZLE_128);
    if (swizzle >= 1 && inner * bytes > width) {
        return PyUnicode_FromFormat("a block at most as wide as its swizzle, %d bytes", width);
    }
    return Py_NewRef(Py_None);
}

PyObject *nj_map_fault_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *map;
    return PyArg_ParseTuple(args, "UO:map_fault", &type, &map) ? nj_map_fault(type, map) : NULL;
}
