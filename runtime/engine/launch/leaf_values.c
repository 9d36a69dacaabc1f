#include "launch/leaf_values.h"

#include "base/texts.h"
#include "launch/descriptor.h"
#include "launch/pack.h"
#include "launch/row_facts.h"
#include "launch/slot.h"
#include "select/hint.h"
#include "select/param_type.h"
#include "table/leaves.h"

#include <stdlib.h>

/* The state of a walk over the leaves of a row's signature. A first walk counts them, a second one writes them. */
typedef struct {
    const nj_hint_set *hints;
    nj_leaf_values *made; /* where the second walk writes; NULL in the first */
    size_t count, chars, hinted;
    char *text;
} leaf_walk;

static nj_leaf_value read_leaf(const leaf_walk *it, const nj_leaf *leaf)
{
    nj_leaf_value value = {.type = leaf->type, .source = (int16_t)leaf->param, .leaf = nj_leaf_entry(leaf), .hint = nj_leaf_hint(it->hints, leaf)};
    value.compiled_in = (nj_value){.tag = NJ_TAG_NONE};
    value.is_descriptor = nj_is_descriptor_name(leaf->type);
    if (!value.is_descriptor && !nj_is_compiled_in(leaf->type)) {
        value.bytes = (uint8_t)nj_param_bytes(leaf->type, &value.dtype);
    }
    return value;
}

static bool take_leaf(void *context, const nj_leaf *leaf)
{
    leaf_walk *it = context;
    nj_leaf_value value = read_leaf(it, leaf);
    bool hinted = value.hint != 0 && value.bytes != 0;
    if (it->made != NULL) {
        it->made->all[it->count] = value;
        it->made->names[it->count] = nj_text_put(&it->text, leaf->path);
        it->made->types[it->count] = nj_text_put(&it->text, leaf->type);
        if (hinted) {
            it->made->hinted[it->hinted] = (uint16_t)it->count;
        }
    }
    it->count++;
    it->hinted += hinted;
    it->chars += leaf->path.size + leaf->type.size + 2;
    return it->count < UINT16_MAX;
}

/* Finds the value that fills a slot. */
static nj_filling filling_of(const nj_leaf_values *it, const nj_slot *slot)
{
    nj_filling filling = {.value = slot->source, .is_part = slot->part != NJ_PART_VALUE};
    for (size_t i = 0; slot->source >= 0 && i < it->count; i++) {
        if (it->all[i].source == slot->source && it->all[i].leaf == slot->leaf) {
            filling.value = (int16_t)i;
        }
    }
    return filling;
}

/* Reads the compiled-in constants, because expressions of the grid may use them. */
static bool read_constants(nj_leaf_values *it, nj_ids *ids, nj_error *error)
{
    for (size_t i = 0; i < it->count; i++) {
        nj_type type;
        if (!nj_is_constant_type(it->all[i].type)) {
            continue;
        }
        bool read = nj_type_read(it->all[i].type, ids, &type, error);
        if (read && type.tags != 0) {
            it->all[i].compiled_in = (nj_value){.tag = (uint8_t)__builtin_ctz(type.tags), .bits = type.low};
        }
        nj_type_clear(&type);
        if (!read) {
            return false;
        }
    }
    return true;
}

bool nj_leaf_values_find(nj_leaf_values *it, const nj_table *table, size_t row, nj_ids *ids, const nj_runnable *runnable, nj_error *error)
{
    const nj_hint_set *hints = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, row)];
    leaf_walk counted = {.hints = hints};
    nj_walk_signature(table, nj_row_signature(table, row), take_leaf, &counted);
    *it = (nj_leaf_values){.count = counted.count, .hinted_count = counted.hinted};
    it->all = malloc((counted.count + 1) * sizeof *it->all);
    it->hinted = malloc((counted.hinted + 1) * sizeof *it->hinted);
    it->names = malloc((counted.count + 1) * sizeof *it->names);
    it->types = malloc((counted.count + 1) * sizeof *it->types);
    it->texts = malloc(counted.chars + 1);
    it->fillings = malloc((runnable->slot_count + 1) * sizeof *it->fillings);
    if (it->all == NULL || it->hinted == NULL || it->names == NULL || it->types == NULL || it->texts == NULL || it->fillings == NULL) {
        return nj_no_memory(error);
    }
    leaf_walk written = {.hints = hints, .made = it, .text = it->texts};
    nj_walk_signature(table, nj_row_signature(table, row), take_leaf, &written);
    for (size_t i = 0; i < runnable->slot_count; i++) {
        it->fillings[i] = filling_of(it, &runnable->slots[i]);
        it->has_descriptors |= it->fillings[i].is_part;
    }
    return read_constants(it, ids, error);
}

void nj_leaf_values_clear(nj_leaf_values *it)
{
    free(it->all);
    free(it->hinted);
    free(it->names);
    free(it->types);
    free(it->texts);
    free(it->fillings);
}

/* Reads a value of up to 8 bytes, zero-extended. */
static uint64_t read_bits(const nj_leaf_value *known, const void *value)
{
    uint64_t bits = 0;
    memcpy(&bits, value, known->bytes);
    return bits;
}

/* Converts a value in memory to a value for expressions. */
static nj_value value_of(const nj_leaf_value *known, const void *from)
{
    uint64_t bits = known->bytes == 0 ? 0 : read_bits(known, from);
    int unused = 64 - 8 * known->bytes;
    if (known->is_descriptor) {
        return (nj_value){.tag = NJ_TAG_DESCRIPTOR};
    }
    if (known->bytes == 0) {
        return known->compiled_in;
    }
    if (*known->type.at == '*') {
        return (nj_value){.tag = NJ_TAG_POINTER, .bits = (int64_t)bits};
    }
    uint8_t kind = nj_dtypes[known->dtype].kind;
    if (kind == NJ_OF_BOOLS) {
        return (nj_value){.tag = NJ_TAG_BOOL, .bits = (bits & 1) != 0};
    }
    if (kind == NJ_OF_FLOATS) {
        return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = (int64_t)bits};
    }
    bool is_signed = kind == NJ_OF_INTS, is_wide = !is_signed && known->bytes == 8 && bits > INT64_MAX;
    return (nj_value){.tag = is_wide ? NJ_TAG_UINT : NJ_TAG_INT, .bits = is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits};
}

void nj_leaf_values_see(const nj_leaf_values *it, const void *const *values, nj_value *seen)
{
    for (size_t i = 0; i < it->count; i++) {
        const nj_leaf_value *known = &it->all[i];
        seen[known->source] = known->leaf >= 0 ? (nj_value){.tag = NJ_TAG_TUPLE} : value_of(known, values[i]);
    }
}

nj_arg_kind nj_leaf_value_kind(const nj_leaf_value *value, nj_dtype *dtype)
{
    static const nj_arg_kind kinds[] = {
        [NJ_OF_BOOLS] = NJ_ARG_BOOL, [NJ_OF_INTS] = NJ_ARG_INT, [NJ_OF_UINTS] = NJ_ARG_UINT, [NJ_OF_FLOATS] = NJ_ARG_FLOAT};
    if (value->is_descriptor) {
        *dtype = nj_descriptor_type(value->type).pointee;
        return NJ_ARG_DESCRIPTOR;
    }
    if (value->bytes == 0) {
        *dtype = NJ_DTYPE_NONE;
        return NJ_ARG_NONE;
    }
    if (*value->type.at == '*') {
        *dtype = nj_pointee_of(value->type);
        return NJ_ARG_POINTER;
    }
    *dtype = value->dtype;
    return kinds[nj_dtypes[value->dtype].kind];
}

static bool refuse_hint(const nj_leaf_values *it, size_t number, const void *value, nj_error *error)
{
    const nj_leaf_value *known = &it->all[number];
    nj_value got = value_of(known, value);
    const char *format = got.tag == NJ_TAG_POINTER ? "%#llx" : got.tag == NJ_TAG_UINT ? "%llu" : "%lld";
    nj_note_argument(error, known->source, nj_format(format, (unsigned long long)got.bits).text, "expected %s, as the plan was compiled for",
                     known->hint == 1 ? "1" : "a multiple of 16");
    return nj_at(error, nj_format("argument %s", it->names[number]).text);
}

/* Returns the bits of a value that violate its hint; 0 if the hint holds. */
static inline uint64_t wrong_bits(const nj_leaf_values *it, size_t number, const void *const *values)
{
    const nj_leaf_value *known = &it->all[number];
    return nj_hint_breaks(known->hint, read_bits(known, values[number]));
}

bool nj_leaf_values_check(const nj_leaf_values *it, const void *const *values, nj_error *error)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < it->hinted_count; i++) {
        wrong |= wrong_bits(it, it->hinted[i], values);
    }
    for (size_t i = 0; wrong != 0 && i < it->hinted_count; i++) {
        if (wrong_bits(it, it->hinted[i], values) != 0) {
            return refuse_hint(it, it->hinted[i], values[it->hinted[i]], error);
        }
    }
    return true;
}

/* The descriptors read so far in one launch, and the indices of their values. */
typedef struct {
    nj_descriptor made[NJ_DESCRIPTORS_MAX];
    int16_t values[NJ_DESCRIPTORS_MAX];
    size_t count;
} read_descriptors;

static const nj_descriptor *descriptor_of(const nj_leaf_values *it, int16_t number, const void *const *values, read_descriptors *read,
                                          nj_error *error)
{
    int argument = it->all[number].source;
    for (size_t i = 0; i < read->count; i++) {
        if (read->values[i] == number) {
            return &read->made[i];
        }
    }
    if (read->count == NJ_DESCRIPTORS_MAX) {
        nj_note_argument(error, argument, "more", NJ_DESCRIPTORS_RULE, NJ_DESCRIPTORS_MAX);
        return NULL;
    }
    nj_descriptor *made = &read->made[read->count];
    if (!nj_descriptor_take(values[number], argument, made, error)) {
        return NULL;
    }
    read->values[read->count++] = number;
    return made;
}

static __attribute__((noinline)) bool pack_parts(const nj_leaf_values *it, const nj_runnable *runnable, const void *const *values,
                                                 nj_launch_state *launch, nj_error *error)
{
    read_descriptors read = {.count = 0};
    bool packed = true;
    for (size_t i = 0; packed && i < runnable->slot_count; i++) {
        if (it->fillings[i].is_part) {
            const nj_descriptor *descriptor = descriptor_of(it, it->fillings[i].value, values, &read, error);
            packed = descriptor != NULL && nj_launch_pack_part(runnable, i, descriptor, launch, error);
        }
    }
    return packed;
}

bool nj_leaf_values_pack(const nj_leaf_values *it, const nj_runnable *runnable, const void *const *values, nj_launch_state *launch, nj_error *error)
{
    for (size_t i = 0; i < runnable->slot_count; i++) {
        int16_t value = it->fillings[i].value;
        launch->params[i] = value >= 0 ? (void *)values[value] : nj_launch_scratch_param(launch, value);
    }
    return !it->has_descriptors || pack_parts(it, runnable, values, launch, error);
}
