#include "select/key.h"

#include "select/coerced_call.h"
#include "select/hint.h"
#include "select/spec.h"

/* The mark of a constexpr, an option or a program's result in the packed words; the last two add a word. */
enum { MARK_NOTHING = 0, MARK_NONE, MARK_FALSE, MARK_TRUE, MARK_INT, MARK_OPAQUE };

/* Appends the hints that hold for the members of a tuple after the packed words. The packed words hold the types that accept the tuple,
 * so they determine its number of members. */
static void add_leaves(const nj_value *value, const nj_arguments *arguments, nj_key *key)
{
    const nj_value *leaves = &arguments->leaves[nj_tuple_start(value)];
    for (uint16_t i = 0; i < nj_tuple_entries(value); i++) {
        if (i % 32 == 0) {
            key->words[key->count++] = 0;
        }
        key->words[key->count - 1] |= nj_hints_of(&leaves[i]) << (i % 32 * 2);
    }
}

/* Returns the bits of an argument in the key: the types that accept it, then the hints that hold. */
static __attribute__((noinline)) uint64_t any_bits(const nj_key_field *field, const nj_arguments *arguments, nj_value *value,
                                                   nj_key *key)
{
    nj_coerce(field->param, value, arguments);
    if (value->tag == NJ_TAG_POINTER) {
        bool hint = field->hint_16 && nj_hint_breaks(16, (uint64_t)value->bits) == 0;
        return field->param->pointers[value->dtype] | (uint64_t)hint << field->type_count;
    }
    uint64_t takers = nj_takers(field->param, value, arguments);
    if (value->tag == NJ_TAG_TUPLE && takers != 0) {
        add_leaves(value, arguments, key);
    }
    uint64_t asked = (uint64_t)field->hint_16 | (uint64_t)field->hint_1 << 1;
    return takers | (nj_hints_of(value) & asked) << field->type_count;
}

static inline uint64_t argument_bits(const nj_key_field *field, const nj_arguments *arguments, nj_value *value, nj_key *key)
{
    if (field->kind == NJ_FIELD_INT && value->tag == NJ_TAG_INT) {
        const nj_type *type = field->types;
        uint64_t fits = value->bits >= type->low && value->bits <= type->high;
        uint64_t by_16 = field->hint_16 & (nj_hint_breaks(16, (uint64_t)value->bits) == 0);
        uint64_t one = field->hint_1 & (nj_hint_breaks(1, (uint64_t)value->bits) == 0);
        return fits | by_16 << 1 | one << 2;
    }
    if (field->kind == NJ_FIELD_POINTER && value->tag == NJ_TAG_POINTER) {
        uint64_t by_16 = field->hint_16 & (nj_hint_breaks(16, (uint64_t)value->bits) == 0);
        return field->param->pointers[value->dtype] | by_16 << field->type_count;
    }
    return any_bits(field, arguments, value, key);
}

/* Returns the mark of a constexpr, an option or a program's result, and appends its number, if any, after the packed words. */
static uint64_t mark(const nj_value *value, nj_key *key)
{
    switch (value->tag) {
    case NJ_TAG_NONE: return MARK_NONE;
    case NJ_TAG_BOOL: return value->bits ? MARK_TRUE : MARK_FALSE;
    case NJ_TAG_INT: key->words[key->count++] = (uint64_t)value->bits; return MARK_INT;
    case NJ_TAG_OPAQUE: key->words[key->count++] = (uint64_t)value->bits; return MARK_OPAQUE;
    default: return MARK_NOTHING;
    }
}

/* Returns the id of the dtype that a string names, or else the string's own. Not inline: most constexprs are no strings. */
static __attribute__((noinline)) int64_t alias_of(const nj_key_field *field, int64_t string)
{
    for (uint16_t i = 0; i < field->alias_count; i++) {
        if (field->aliases[i].string == string) {
            return field->aliases[i].dtype;
        }
    }
    return string;
}

/* Replaces a string that names a dtype by that dtype. */
static inline void resolve_alias(const nj_key_field *field, nj_value *value)
{
    if (field->alias_count != 0 && value->tag == NJ_TAG_OPAQUE) {
        value->bits = alias_of(field, value->bits);
    }
}

/* Returns the mark of a constexpr or an option, and replaces its value by the one that programs see. */
static uint64_t constexpr_bits(const nj_key_field *field, nj_value *value, nj_key *key)
{
    if (value->tag == NJ_TAG_MISSING) {
        *value = field->fallback;
        return MARK_NOTHING;
    }
    resolve_alias(field, value);
    uint64_t bits = mark(value, key);
    *value = nj_value_seen(*value);
    return bits;
}

static bool add_arguments(const nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key)
{
    bool known = true;
    for (uint32_t i = 0; i < spec->argument_count; i++) {
        const nj_key_field *field = &spec->fields[i];
        nj_value *value = &values[i];
        uint64_t bits;
        if (field->kind == NJ_FIELD_CONSTEXPR) {
            bits = constexpr_bits(field, value, key);
            known &= value->tag != NJ_TAG_UNKNOWN;
        } else {
            bits = argument_bits(field, arguments, value, key);
            known &= (bits & ((UINT64_C(1) << field->type_count) - 1)) != 0;
        }
        key->words[field->word] |= bits << field->shift;
    }
    return known;
}

/* Adds the results of programs. A program that fails leaves MARK_NOTHING, which is the mark of no result. */
static void add_programs(const nj_spec *spec, const nj_value *values, nj_key *key)
{
    for (uint32_t i = 0; i < spec->program_count; i++) {
        const nj_key_field *field = &spec->fields[spec->argument_count + i];
        nj_value result;
        if (nj_run(&spec->programs[i], values, &result, NULL)) {
            key->words[field->word] |= mark(&result, key) << field->shift;
        }
    }
}

/* Adds the tuning key. Not inline: most kernels are not tuned. */
static __attribute__((noinline)) void add_tuning(const nj_spec *spec, const nj_value *values, nj_key *key)
{
    nj_tuning_round(spec->tuning, spec->tuning_count, spec->bucket, values, (int64_t *)&key->words[key->count]);
    key->count += spec->tuning_count;
}

void nj_spec_coerce(const nj_spec *spec, nj_value *values, const nj_arguments *arguments)
{
    for (uint32_t i = 0; i < spec->argument_count; i++) {
        const nj_key_field *field = &spec->fields[i];
        if (field->kind != NJ_FIELD_CONSTEXPR) {
            nj_coerce(field->param, &values[i], arguments);
        } else if (values[i].tag == NJ_TAG_MISSING) {
            values[i] = field->fallback;
        } else {
            resolve_alias(field, &values[i]);
            values[i] = nj_value_seen(values[i]);
        }
    }
}

bool nj_spec_key(const nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key)
{
    memset(key->words, 0, spec->packed_words * sizeof *key->words);
    key->count = spec->packed_words;
    if (!add_arguments(spec, values, arguments, key)) {
        return false;
    }
    add_programs(spec, values, key);
    if (spec->tuning_count != 0) {
        add_tuning(spec, values, key);
    }
    uint64_t hash = key->count;
    for (uint32_t i = 0; i < key->count; i++) {
        hash = (hash ^ key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    key->hash = hash;
    return true;
}
