#include "select/param_type.h"

#include "table/type_name.h"

#include <stdlib.h>

nj_dtype nj_pointee_of(nj_span text)
{
    if (text.size == 0 || *text.at != '*') {
        return NJ_DTYPE_COUNT;
    }
    size_t start = 1 + (text.size > 1 && text.at[1] == 'k');
    return nj_dtype_of_memory(nj_dtype_of((nj_span){text.at + start, text.size - start}));
}

static nj_type int_type(const nj_dtype_facts *dtype)
{
    bool is_signed = dtype->kind == NJ_OF_INTS;
    uint8_t bits = 8 * dtype->bytes;
    nj_type type = {.tags = NJ_BIT(NJ_TAG_INT), .width = bits, .high = INT64_MAX};
    if (is_signed || bits < 64) {
        type.high = INT64_MAX >> (64 - bits - !is_signed);
    } else {
        type.tags |= NJ_BIT(NJ_TAG_UINT);
    }
    type.low = is_signed ? -type.high - 1 : 0;
    return type;
}

/* Reads the type of a compiled-in value, such as `=3`. */
static bool read_constant(nj_span text, nj_ids *ids, nj_type *type, nj_error *error)
{
    unsigned char *room = malloc(text.size + 1);
    nj_constant constant;
    nj_value value;
    if (room == NULL) {
        return nj_no_memory(error);
    }
    if (!nj_type_constant(text, room, &constant)) {
        free(room);
        return true; /* the type accepts no value */
    }
    bool added = nj_ids_add(ids, &constant, &value);
    free(room);
    if (!added) {
        return nj_no_memory(error);
    }
    if (nj_is_id(&value)) {
        value.tag = NJ_TAG_CONSTANT;
    } else if (value.tag == NJ_TAG_UNKNOWN && !constant.negative) {
        value = (nj_value){.tag = NJ_TAG_UINT, .bits = (int64_t)constant.magnitude};
    }
    /* no argument equals an int below -2^63 */
    *type = (nj_type){.tags = value.tag == NJ_TAG_UNKNOWN ? 0 : NJ_BIT(value.tag), .constant = true, .low = value.bits, .high = value.bits};
    return true;
}

static nj_type plain_type(nj_span text)
{
    nj_dtype pointee = nj_pointee_of(text);
    if (pointee != NJ_DTYPE_COUNT) {
        return (nj_type){.tags = NJ_BIT(NJ_TAG_POINTER), .pointee = (uint8_t)pointee};
    }
    if (nj_span_is(text, "none")) {
        return (nj_type){.tags = NJ_BIT(NJ_TAG_NONE)};
    }
    const nj_dtype_facts *dtype = &nj_dtypes[nj_dtype_of(text)];
    if (!dtype->is_scalar) {
        return (nj_type){0};
    }
    switch (dtype->kind) {
    case NJ_OF_BOOLS: return (nj_type){.tags = NJ_BIT(NJ_TAG_BOOL)};
    case NJ_OF_FLOATS: return (nj_type){.tags = NJ_BIT(NJ_TAG_OPAQUE)};
    default: return int_type(dtype);
    }
}

nj_type nj_descriptor_type(nj_span text)
{
    nj_type type = {0};
    if (!nj_is_descriptor_name(text) || !nj_is_type(text)) {
        return type;
    }
    nj_descriptor_name parts = nj_descriptor_parts(text);
    if (parts.dtype != NJ_DTYPE_COUNT) {
        type = (nj_type){.tags = NJ_BIT(NJ_TAG_DESCRIPTOR), .pointee = (uint8_t)parts.dtype, .rank = (uint8_t)parts.rank};
        memcpy(type.block, parts.block, sizeof type.block);
    }
    return type;
}

/* The state of reading the entries of a tuple. */
typedef struct {
    nj_ids *ids;
    nj_type *entries;
    uint16_t used;
    nj_error *error;
} nj_tuple_reader;

/* Appends the entries of a tuple, and counts its members. nj_is_type has checked that the entries fit. */
static bool read_members(nj_tuple_reader *it, nj_span text, uint16_t *members)
{
    nj_span rest = {text.at + 1, text.size - 2}, member;
    *members = 0;
    while (nj_next_member(&rest, &member)) {
        nj_type *entry = &it->entries[it->used++];
        *entry = (nj_type){0};
        (*members)++;
        if (nj_is_tuple_type(member)) {
            entry->tags = NJ_BIT(NJ_TAG_TUPLE);
            if (!read_members(it, member, &entry->count)) {
                return false;
            }
        } else if (!nj_type_read(member, it->ids, entry, it->error)) {
            return false;
        }
    }
    return true;
}

bool nj_type_read(nj_span text, nj_ids *ids, nj_type *type, nj_error *error)
{
    *type = (nj_type){0};
    if (nj_is_constant_type(text)) {
        return read_constant(text, ids, type, error);
    }
    if (!nj_is_tuple_type(text)) {
        *type = nj_is_descriptor_name(text) ? nj_descriptor_type(text) : plain_type(text);
        return true;
    }
    nj_tuple_reader it = {.ids = ids, .entries = calloc(NJ_LEAVES_MAX, sizeof *it.entries), .error = error};
    *type = (nj_type){.tags = NJ_BIT(NJ_TAG_TUPLE), .entries = it.entries};
    if (it.entries == NULL) {
        return nj_no_memory(error);
    }
    bool read = read_members(&it, text, &type->count);
    type->entry_count = it.used;
    return read;
}

void nj_type_clear(nj_type *type)
{
    free(type->entries);
    type->entries = NULL;
}

uint32_t nj_type_bits(const nj_type *type)
{
    uint32_t bits = type->width;
    for (uint16_t i = 0; i < type->entry_count; i++) {
        bits += type->entries[i].width;
    }
    return bits;
}

static bool accepts_descriptor(const nj_type *type, const nj_descriptor *descriptor)
{
    if (descriptor->base.dtype != type->pointee || descriptor->rank != type->rank) {
        return false;
    }
    /* a block of zeros means that the config decides it */
    return descriptor->block[0] == 0 ||
           memcmp(descriptor->block, type->block, type->rank * sizeof *type->block) == 0;
}

/* Returns whether a type accepts a value; of a tuple, compares only the number of members. */
static bool accepts_entry(const nj_type *type, const nj_value *value, const nj_arguments *arguments)
{
    if ((type->tags & NJ_BIT(value->tag)) == 0) {
        return false;
    }
    if (type->constant) {
        return value->bits == type->low;
    }
    switch (value->tag) {
    case NJ_TAG_INT: return value->bits >= type->low && value->bits <= type->high;
    case NJ_TAG_POINTER: return value->dtype == NJ_DTYPE_NONE || value->dtype == type->pointee;
    case NJ_TAG_DESCRIPTOR: return accepts_descriptor(type, &arguments->descriptors[value->bits]);
    case NJ_TAG_TUPLE: return nj_tuple_members(value) == type->count;
    default: return true;
    }
}

bool nj_type_accepts_other(const nj_type *type, const nj_value *value, const nj_arguments *arguments)
{
    if (value->tag != NJ_TAG_TUPLE) {
        return accepts_entry(type, value, arguments);
    }
    if (nj_tuple_members(value) != type->count || nj_tuple_entries(value) != type->entry_count) {
        return false;
    }
    const nj_value *entries = &arguments->leaves[nj_tuple_start(value)];
    for (uint16_t i = 0; i < type->entry_count; i++) {
        if (!accepts_entry(&type->entries[i], &entries[i], arguments)) {
            return false;
        }
    }
    return true;
}
