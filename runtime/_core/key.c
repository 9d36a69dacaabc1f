/* Keys: what of a call decides which variant runs. */
#include "spec.h"

/* What a constexpr, an option or a program's result leaves in the packed words; the last two add a word. */
enum { MARK_NOTHING = 0, MARK_NONE, MARK_FALSE, MARK_TRUE, MARK_INT, MARK_OPAQUE };

/* Which of the hints that Triton knows hold: bit 0 divisible by 16, bit 1 equal to 1. */
static uint64_t hints_of(const nj_value *value)
{
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT;
    if (!number && value->tag != NJ_TAG_POINTER) {
        return 0;
    }
    return (uint64_t)((value->bits & 15) == 0) | (uint64_t)(number && value->bits == 1) << 1;
}

static uint64_t other_bits(const nj_field *field, const nj_value *value, const nj_call *call)
{
    uint64_t bits = 0;
    for (unsigned int i = 0; i < field->type_count; i++) {
        bits |= (uint64_t)nj_type_accepts(&field->types[i], value, call) << i;
    }
    uint64_t asked = (uint64_t)field->hint_16 | (uint64_t)field->hint_1 << 1;
    return bits | (hints_of(value) & asked) << field->type_count;
}

/* The hints that hold for the members of a tuple, behind the packed words. The types that take the tuple, which are in
 * the packed words, say how many there are. */
static void add_leaves(const nj_value *value, const nj_call *call, nj_key *key)
{
    const nj_value *leaves = &call->leaves[nj_tuple_start(value)];
    for (uint16_t i = 0; i < nj_tuple_entries(value); i++) {
        if (i % 32 == 0) {
            key->words[key->count++] = 0;
        }
        key->words[key->count - 1] |= hints_of(&leaves[i]) << (i % 32 * 2);
    }
}

/* Makes of a number that no type of its param takes what Triton makes of it for a param of a declared type: a float of an int or a
 * bool, an int of a bool, a bool of 0 or 1. As `converted` of runtime/call.py. False if it makes nothing else of it. Not inline: few
 * numbers are of another type than their param. */
static __attribute__((noinline)) bool convert(const nj_field *field, nj_value *value)
{
    uint16_t taken = 0;
    for (unsigned int i = 0; i < field->type_count; i++) {
        taken |= field->types[i].constant ? 0 : field->types[i].tags;
    }
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT || value->tag == NJ_TAG_BOOL;
    if (!number || (taken & NJ_BIT(value->tag)) != 0) {
        return false;
    }
    if (value->tag == NJ_TAG_BOOL && (taken & NJ_BIT(NJ_TAG_INT)) != 0) {
        value->tag = NJ_TAG_INT;
        return true;
    }
    if ((taken & NJ_BIT(NJ_TAG_INT)) != 0) {
        return false;
    }
    if ((taken & NJ_BIT(NJ_TAG_OPAQUE)) != 0) {
        double real = value->tag == NJ_TAG_UINT ? (double)(uint64_t)value->bits : (double)value->bits;
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(real)};
        return true;
    }
    bool truth = (taken & NJ_BIT(NJ_TAG_BOOL)) != 0 && value->tag == NJ_TAG_INT && (value->bits == 0 || value->bits == 1);
    value->tag = truth ? NJ_TAG_BOOL : value->tag;
    return truth;
}

/* The bits that an argument leaves: which types take it, which hints hold. */
static uint64_t any_bits(const nj_field *field, const nj_call *call, nj_value *value, nj_key *key)
{
    if (field->address && (value->tag == NJ_TAG_UINT || (value->tag == NJ_TAG_INT && value->bits >= 0))) {
        *value = (nj_value){.tag = NJ_TAG_POINTER, .dtype = NJ_DTYPE_NONE, .bits = value->bits};
    }
    if (value->tag == NJ_TAG_POINTER) {
        bool hint = field->hint_16 && (value->bits & 15) == 0;
        return field->pointers[value->dtype] | (uint64_t)hint << field->type_count;
    }
    if (field->tuple && value->tag == NJ_TAG_TUPLE) {
        add_leaves(value, call, key);
    }
    uint64_t bits = other_bits(field, value, call);
    bool taken = (bits & ((UINT64_C(1) << field->type_count) - 1)) != 0;
    return !taken && convert(field, value) ? other_bits(field, value, call) : bits;
}

static inline uint64_t argument_bits(const nj_field *field, const nj_call *call, nj_value *value, nj_key *key)
{
    if (field->kind == NJ_FIELD_INT && value->tag == NJ_TAG_INT) {
        const nj_type *type = field->types;
        uint64_t fits = value->bits >= type->low && value->bits <= type->high;
        uint64_t by_16 = field->hint_16 & ((value->bits & 15) == 0);
        uint64_t one = field->hint_1 & (value->bits == 1);
        return fits | by_16 << 1 | one << 2;
    }
    if (field->kind == NJ_FIELD_POINTER && value->tag == NJ_TAG_POINTER) {
        uint64_t by_16 = field->hint_16 & ((value->bits & 15) == 0);
        return field->pointers[value->dtype] | by_16 << field->type_count;
    }
    return any_bits(field, call, value, key);
}

/* Marks a constexpr, an option or a program's result; its number goes behind the packed words. */
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

/* Marks a constexpr or an option, and makes of it what programs see. */
static uint64_t constexpr_bits(const nj_field *field, nj_value *value, nj_key *key)
{
    if (value->tag == NJ_TAG_MISSING) {
        *value = field->fallback;
        return MARK_NOTHING;
    }
    uint64_t bits = mark(value, key);
    if (value->tag == NJ_TAG_OPAQUE && value->bits >= NJ_OPAQUE_BASE && value->bits < 0) {
        value->bits &= ~NJ_OPAQUE_KIND_MASK;
    }
    return bits;
}

/* False if an argument is of no type that C knows, or a constexpr of no value: Python judges such calls, each anew. */
static bool add_arguments(const nj_spec *spec, nj_call *call, nj_key *key)
{
    bool known = true;
    for (Py_ssize_t i = 0; i < spec->argument_count; i++) {
        const nj_field *field = &spec->fields[i];
        nj_value *value = &call->values[i];
        uint64_t bits;
        if (field->kind == NJ_FIELD_CONSTEXPR) {
            bits = constexpr_bits(field, value, key);
            known &= value->tag != NJ_TAG_UNKNOWN;
        } else {
            bits = argument_bits(field, call, value, key);
            known &= (bits & ((UINT64_C(1) << field->type_count) - 1)) != 0;
        }
        key->words[field->word] |= bits << field->shift;
    }
    return known;
}

/* A program that fails leaves nothing, which tells it from every result. */
static void add_programs(const nj_spec *spec, const nj_call *call, nj_key *key)
{
    for (Py_ssize_t i = 0; i < spec->program_count; i++) {
        const nj_field *field = &spec->fields[spec->argument_count + i];
        nj_value result;
        if (nj_run(&spec->programs[i], call->values, &result, NULL)) {
            key->words[field->word] |= mark(&result, key) << field->shift;
        }
    }
}

void nj_tuning_key_shorten(nj_tuning_key *key)
{
    const nj_instruction *code = key->program.code;
    /* LOAD, and then LOAD and MUL for each further one */
    uint32_t count = (key->program.length + 1) / 2;
    key->factor_count = 0;
    if (count > NJ_FACTORS_MAX || key->program.length % 2 == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const nj_instruction *load = i == 0 ? code : &code[2 * i - 1];
        if (load->op != NJ_OP_LOAD || (i > 0 && load[1].op != NJ_OP_MUL)) {
            return;
        }
        key->factors[i] = (uint16_t)load->operand;
    }
    key->factor_count = (uint16_t)count;
}

/* As `bucket_of` in runtime/tuning.py. */
static inline int64_t bucket_of(nj_bucket kind, int64_t value)
{
    if (value <= 0 || kind == NJ_BUCKET_EXACT) {
        return value < 0 ? 0 : value;
    }
    if (value > (int64_t)1 << 62) {
        return (int64_t)1 << 62;
    }
    int behind = 63 - __builtin_clzll((uint64_t)value); /* bits behind the leading one */
    if (kind == NJ_BUCKET_POW2) {
        return value == (int64_t)1 << behind ? value : (int64_t)2 << behind;
    }
    int kept = kind == NJ_BUCKET_QUARTER_POW2 ? 2 : 4; /* bits that stay, behind the leading one */
    if (behind <= kept) {
        return value;
    }
    int64_t step = (int64_t)1 << (behind - kept);
    return (value + (kind == NJ_BUCKET_QUARTER_POW2 ? step / 2 : step - 1)) & -step;
}

int64_t nj_tuning_key_value(const nj_tuning_key *key, nj_bucket bucket, const nj_value *slots)
{
    nj_value result;
    if (key->factor_count == 0) {
        bool done = nj_run(&key->program, slots, &result, NULL);
        return done && result.tag == NJ_TAG_INT ? bucket_of(bucket, result.bits) : 0;
    }
    result = slots[key->factors[0]];
    for (unsigned int i = 1; i < key->factor_count; i++) {
        const nj_value *factor = &slots[key->factors[i]];
        if (factor->tag != NJ_TAG_INT || __builtin_mul_overflow(result.bits, factor->bits, &result.bits)) {
            return 0;
        }
    }
    return result.tag == NJ_TAG_INT ? bucket_of(bucket, result.bits) : 0;
}

/* Not inline: most kernels are not tuned. */
static __attribute__((noinline)) void add_tuning(const nj_spec *spec, const nj_call *call, nj_key *key)
{
    for (Py_ssize_t i = 0; i < spec->tuning_count; i++) {
        key->words[key->count++] = (uint64_t)nj_tuning_key_value(&spec->tuning[i], spec->bucket, call->values);
    }
}

bool nj_spec_key(const nj_spec *spec, nj_call *call, nj_key *key)
{
    memset(key->words, 0, spec->packed_words * sizeof *key->words);
    key->count = spec->packed_words;
    if (!add_arguments(spec, call, key)) {
        return false;
    }
    add_programs(spec, call, key);
    if (spec->tuning_count != 0) {
        add_tuning(spec, call, key);
    }
    uint64_t hash = key->count;
    for (uint32_t i = 0; i < key->count; i++) {
        hash = (hash ^ key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    key->hash = hash;
    return true;
}
