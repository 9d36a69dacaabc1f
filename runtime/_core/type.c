#include "type.h"

#include "objects.h"

#include <stddef.h>
#include <stdlib.h>

#define DESCRIPTOR "tensordesc<"

bool nj_is_descriptor_type(const char *text)
{
    return strncmp(text, DESCRIPTOR, strlen(DESCRIPTOR)) == 0;
}

nj_dtype nj_pointee(const char *text)
{
    nj_dtype dtype = *text == '*' ? nj_dtype_parse(text + 1 + (text[1] == 'k')) : NJ_DTYPE_COUNT;
    return dtype == NJ_U1 ? NJ_I1 : dtype; /* Triton's two spellings of a bool */
}

static nj_type int_type(nj_dtype dtype)
{
    switch (dtype) {
    case NJ_I8: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .low = INT8_MIN, .high = INT8_MAX};
    case NJ_I16: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .low = INT16_MIN, .high = INT16_MAX};
    case NJ_I32: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .low = INT32_MIN, .high = INT32_MAX};
    case NJ_I64: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .low = INT64_MIN, .high = INT64_MAX};
    case NJ_U8: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .high = UINT8_MAX};
    case NJ_U16: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .high = UINT16_MAX};
    case NJ_U32: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT), .high = UINT32_MAX};
    default: return (nj_type){.tags = NJ_BIT(NJ_TAG_INT) | NJ_BIT(NJ_TAG_UINT), .high = INT64_MAX}; /* NJ_U64 */
    }
}

/* `=3`, and whatever else is compiled in as one value. */
static int constant_type(const char *text, PyObject *interner, nj_type *type)
{
    int tag;
    long long bits;
    PyObject *key = PyObject_CallMethod(interner, "constant", "s", text);
    bool read = nj_is_tuple(key, "a key: (tag, bits)") && PyArg_ParseTuple(key, "iL", &tag, &bits);
    Py_XDECREF(key);
    if (!read) {
        return -1;
    }
    bool interned = tag == NJ_TAG_OPAQUE && bits < 0 && bits >= NJ_OPAQUE_BASE;
    tag = interned ? NJ_TAG_CONSTANT : tag;
    /* what no key holds, an int beyond 64 bits say, takes nothing */
    *type = (nj_type){.tags = tag == NJ_TAG_UNKNOWN ? 0 : NJ_BIT(tag), .constant = true, .low = bits, .high = bits};
    return 0;
}

static nj_type plain_type(const char *text)
{
    nj_dtype pointee = nj_pointee(text);
    if (pointee != NJ_DTYPE_COUNT) {
        return (nj_type){.tags = NJ_BIT(NJ_TAG_POINTER), .pointee = (uint8_t)pointee};
    }
    if (strcmp(text, "none") == 0) {
        return (nj_type){.tags = NJ_BIT(NJ_TAG_NONE)};
    }
    nj_dtype dtype = nj_dtype_parse(text);
    if (dtype == NJ_I1 || dtype == NJ_U1) {
        return (nj_type){.tags = NJ_BIT(NJ_TAG_BOOL)};
    }
    if (dtype >= NJ_FP16) { /* fp8 is no type of a scalar, and NJ_DTYPE_COUNT none at all */
        return (nj_type){.tags = dtype <= NJ_FP64 ? NJ_BIT(NJ_TAG_OPAQUE) : 0};
    }
    return int_type(dtype);
}

nj_type nj_descriptor_type(const char *text)
{
    nj_type type = {0};
    const char *start = text + strlen(DESCRIPTOR);
    const char *bracket = nj_is_descriptor_type(text) ? strchr(start, '[') : NULL;
    char name[16] = "";
    if (bracket == NULL || bracket - start >= (ptrdiff_t)sizeof name) {
        return type;
    }
    memcpy(name, start, (size_t)(bracket - start));
    nj_dtype pointee = nj_dtype_parse(name);
    const char *at = bracket;
    while ((*at == '[' || *at == ',') && type.rank < NJ_RANK_MAX) {
        char *end;
        type.block[type.rank++] = (uint32_t)strtoul(at + 1, &end, 10);
        at = end;
    }
    if (pointee != NJ_DTYPE_COUNT && strcmp(at, "]>") == 0) {
        type.pointee = (uint8_t)pointee;
        type.tags = NJ_BIT(NJ_TAG_DESCRIPTOR);
    }
    return type;
}

static int too_large(void)
{
    PyErr_Format(PyExc_ValueError, "expected a type of at most %d leaves", NJ_LEAVES_MAX);
    return -1;
}

/* Where the member that starts at `text` ends: at a comma or parenthesis of its own tuple. */
static const char *member_end(const char *text)
{
    int depth = 0;
    for (; *text != '\0'; text++) {
        if (depth == 0 && (*text == ',' || *text == ')')) {
            break;
        }
        depth += (*text == '(' || *text == '[' || *text == '<') - (*text == ')' || *text == ']' || *text == '>');
    }
    return text;
}

/* Reads a member that is no tuple. */
static int read_member(const char *text, size_t size, PyObject *interner, nj_type *entry)
{
    char *name = PyMem_Malloc(size + 1);
    if (name == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(name, text, size);
    name[size] = '\0';
    int status = nj_type_read(name, interner, entry);
    PyMem_Free(name);
    return status;
}

/* Appends the entries of the tuple that starts at `text`, and counts its members. */
static int read_members(const char *text, PyObject *interner, nj_type *entries, uint16_t *used, uint16_t *members)
{
    *members = 0;
    const char *at = text + 1;
    while (*at != ')' && *at != '\0') {
        const char *end = member_end(at);
        if (*used == NJ_LEAVES_MAX) {
            return too_large();
        }
        nj_type *entry = &entries[(*used)++];
        *entry = (nj_type){0};
        (*members)++;
        if (*at == '(') {
            entry->tags = NJ_BIT(NJ_TAG_TUPLE);
            if (read_members(at, interner, entries, used, &entry->count) < 0) {
                return -1;
            }
        } else if (read_member(at, (size_t)(end - at), interner, entry) < 0) {
            return -1;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return 0;
}

int nj_type_read(const char *text, PyObject *interner, nj_type *type)
{
    if (*text == '=') {
        return constant_type(text, interner, type);
    }
    if (*text != '(') {
        *type = nj_is_descriptor_type(text) ? nj_descriptor_type(text) : plain_type(text);
        return 0;
    }
    nj_type *entries = PyMem_Calloc(NJ_LEAVES_MAX, sizeof *entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *type = (nj_type){.tags = NJ_BIT(NJ_TAG_TUPLE), .entries = entries};
    return read_members(text, interner, entries, &type->entry_count, &type->count);
}

void nj_type_clear(nj_type *type)
{
    PyMem_Free(type->entries);
    type->entries = NULL;
}

static bool accepts_descriptor(const nj_type *type, const nj_descriptor *descriptor)
{
    if (descriptor->base.dtype != type->pointee || descriptor->rank != type->rank) {
        return false;
    }
    /* zeros leave the block to the config */
    return descriptor->block[0] == 0 ||
           memcmp(descriptor->block, type->block, type->rank * sizeof *type->block) == 0;
}

/* Members of tuples are judged one by one: their pointers say what they point to. */
static bool accepts_entry(const nj_type *type, const nj_value *value, const nj_call *call)
{
    if ((type->tags & NJ_BIT(value->tag)) == 0) {
        return false;
    }
    if (type->constant) {
        return value->bits == type->low;
    }
    switch (value->tag) {
    case NJ_TAG_INT: return value->bits >= type->low && value->bits <= type->high;
    case NJ_TAG_POINTER: return value->dtype == type->pointee;
    case NJ_TAG_DESCRIPTOR: return accepts_descriptor(type, &call->descriptors[value->bits]);
    case NJ_TAG_TUPLE: return nj_tuple_members(value) == type->count;
    default: return true;
    }
}

bool nj_type_accepts_other(const nj_type *type, const nj_value *value, const nj_call *call)
{
    if (value->tag != NJ_TAG_TUPLE) {
        return accepts_entry(type, value, call);
    }
    if (nj_tuple_members(value) != type->count || nj_tuple_entries(value) != type->entry_count) {
        return false;
    }
    const nj_value *entries = &call->leaves[nj_tuple_start(value)];
    for (uint16_t i = 0; i < type->entry_count; i++) {
        if (!accepts_entry(&type->entries[i], &entries[i], call)) {
            return false;
        }
    }
    return true;
}
