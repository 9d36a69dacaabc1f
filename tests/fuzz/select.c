/* Fuzz selection: a call out of the first 128 bytes is set against the table whose JSON and columns the rest holds, if it is one, and
 * the last four bytes the numbers of its rows and images. The rows that are handed out are those that break no rule, the best first. */
#include "parts.h"
#include "select/hint.h"
#include "select/select.h"
#include "select/serving_rules.h"
#include "select/spec.h"
#include "starve.h"
#include "table/type_name.h"

#include <stdio.h>
#include <stdlib.h>

enum { CALL_BYTES = 128, OPTIONS = 2 };

/* Bytes that decide what a call passes, over and over. */
typedef struct {
    const unsigned char *bytes;
    size_t at;
} source;

static uint32_t draw(source *from, uint32_t below)
{
    uint32_t drawn = from->bytes[from->at % CALL_BYTES] + (uint32_t)(from->at / CALL_BYTES);
    from->at++;
    return drawn % below;
}

typedef struct {
    nj_value values[NJ_ARGUMENTS_MAX], leaves[NJ_LEAVES_MAX];
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    uint16_t leaf_count, descriptor_count;
    nj_constant constants[NJ_ARGUMENTS_MAX];
    const nj_constant *given[NJ_ARGUMENTS_MAX];
    nj_span options[OPTIONS];
    nj_ids *ids; /* of the kernel */
} call;

static int64_t draw_int(source *from)
{
    static const int64_t ints[] = {0, 1, 16, 64, 100, 128, -1, -16, INT32_MAX, INT32_MAX + INT64_C(1), INT64_MIN, INT64_MAX};
    return ints[draw(from, sizeof ints / sizeof *ints)];
}

static nj_value draw_value(source *from, call *into, int depth);

static nj_value draw_tuple(source *from, call *into, int depth)
{
    uint16_t start = into->leaf_count, members = (uint16_t)draw(from, 4);
    for (uint16_t i = 0; i < members; i++) {
        if (into->leaf_count == NJ_LEAVES_MAX) {
            members = i;
            break;
        }
        nj_value *leaf = &into->leaves[into->leaf_count++];
        *leaf = draw_value(from, into, depth + 1);
    }
    return (nj_value){.tag = NJ_TAG_TUPLE, .bits = nj_tuple(start, (uint16_t)(into->leaf_count - start), members)};
}

static nj_value draw_descriptor(source *from, call *into)
{
    if (into->descriptor_count == NJ_DESCRIPTORS_MAX) {
        return (nj_value){.tag = NJ_TAG_NONE};
    }
    nj_descriptor *descriptor = &into->descriptors[into->descriptor_count];
    *descriptor = (nj_descriptor){.base = {.tag = NJ_TAG_POINTER, .dtype = (uint8_t)draw(from, NJ_DTYPE_COUNT)}};
    descriptor->rank = (uint8_t)(1 + draw(from, NJ_DESCRIPTOR_RANK_MAX));
    for (int i = 0; i < descriptor->rank; i++) {
        descriptor->block[i] = draw(from, 2) * 64;
    }
    return (nj_value){.tag = NJ_TAG_DESCRIPTOR, .bits = into->descriptor_count++};
}

static nj_value draw_value(source *from, call *into, int depth)
{
    switch (draw(from, 12)) {
    case 0: return (nj_value){.tag = NJ_TAG_NONE};
    case 1: return (nj_value){.tag = NJ_TAG_BOOL, .bits = draw(from, 2)};
    case 2: return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits((double)draw_int(from))};
    case 3: return (nj_value){.tag = NJ_TAG_UINT, .bits = INT64_MIN + draw(from, 256)};
    case 4: return (nj_value){.tag = NJ_TAG_UNKNOWN, .bits = draw(from, 3)};
    case 5: return (nj_value){.tag = NJ_TAG_CONSTANT, .bits = NJ_OPAQUE_BASE + draw(from, 16)};
    case 6:
    case 7:
    case 8: return (nj_value){.tag = NJ_TAG_POINTER, .dtype = (uint8_t)draw(from, NJ_DTYPE_COUNT + 1), .bits = 8 * (int64_t)draw(from, 256)};
    case 9: return depth < 6 ? draw_tuple(from, into, depth) : (nj_value){.tag = NJ_TAG_NONE};
    case 10: return draw_descriptor(from, into);
    default: return (nj_value){.tag = NJ_TAG_INT, .bits = draw_int(from)};
    }
}

/* A constexpr: one of a table's own, or any other. */
static nj_constant draw_constant(source *from, const nj_table *table)
{
    static const char *const texts[] = {"fp16", "bfloat16", "zero", "torch.half", "", "tl.int32", "torch.uint8", "double", "float8_e5m2", "int1"};
    static const nj_constant pair[2] = {{.kind = NJ_CONSTANT_INT, .magnitude = 1}, {.kind = NJ_CONSTANT_TEXT, .text = {(const unsigned char *)"half", 4}}};
    if (table->axis_count > 0 && draw(from, 4) != 0) {
        const nj_axis *axis = &table->axes[draw(from, table->axis_count)];
        if (axis->count > 0) {
            return axis->values[draw(from, axis->count)];
        }
    }
    switch (draw(from, 7)) {
    case 0: return (nj_constant){.kind = NJ_CONSTANT_NONE};
    case 1: return (nj_constant){.kind = NJ_CONSTANT_BOOL, .truth = draw(from, 2) != 0};
    case 2: return (nj_constant){.kind = NJ_CONSTANT_FLOAT, .number = (double)draw_int(from) / 3};
    case 3: return (nj_constant){.kind = NJ_CONSTANT_INT, .magnitude = draw(from, 256), .negative = draw(from, 2) != 0};
    case 4: return (nj_constant){.kind = NJ_CONSTANT_TUPLE, .count = draw(from, 3), .items = pair};
    default: break;
    }
    const char *text = texts[draw(from, sizeof texts / sizeof *texts)];
    return (nj_constant){.kind = NJ_CONSTANT_TEXT, .text = {(const unsigned char *)text, strlen(text)}};
}

/* The next of a tuple's members, whose text it is cut off. */
static nj_span next_member(nj_span *members)
{
    size_t depth = 0, end = 0;
    while (end < members->size && (depth > 0 || members->at[end] != ',')) {
        unsigned char c = members->at[end++];
        depth += (size_t)(c == '(' || c == '[') - (size_t)((c == ')' || c == ']') && depth > 0);
    }
    nj_span member = {members->at, end};
    size_t used = end < members->size ? end + 1 : end;
    *members = (nj_span){members->at + used, members->size - used};
    return member;
}

static nj_value draw_fitting(source *from, nj_span type, call *into, int depth);

static nj_value draw_members(source *from, nj_span members, call *into, int depth)
{
    uint16_t start = into->leaf_count, count = 0;
    for (; members.size > 0 && into->leaf_count < NJ_LEAVES_MAX; count++) {
        nj_value *leaf = &into->leaves[into->leaf_count++];
        *leaf = draw_fitting(from, next_member(&members), into, depth + 1);
    }
    return (nj_value){.tag = NJ_TAG_TUPLE, .bits = nj_tuple(start, (uint16_t)(into->leaf_count - start), count)};
}

/* A descriptor of an element type and a block, as `tensordesc<fp16[64,32]>` spells them. */
static nj_value draw_described(source *from, nj_span type, call *into)
{
    nj_value value = draw_descriptor(from, into);
    char text[32] = "";
    if (value.tag == NJ_TAG_DESCRIPTOR && type.size < sizeof text) {
        nj_descriptor *descriptor = &into->descriptors[value.bits];
        char *at = text + strlen("tensordesc<"), *block;
        memcpy(text, type.at, type.size);
        block = strchr(at, '[');
        descriptor->rank = 0;
        while (block != NULL && descriptor->rank < NJ_DESCRIPTOR_RANK_MAX) {
            *block = 0;
            descriptor->block[descriptor->rank++] = (uint32_t)strtoul(block + 1, NULL, 10);
            block = strchr(block + 1, ',');
        }
        descriptor->base.dtype = (uint8_t)nj_dtype_of((nj_span){(unsigned char *)at, strlen(at)});
    }
    return value;
}

/* What was compiled in: numbers as they are, all else by its id. */
static nj_value draw_compiled_in(source *from, nj_span type, call *into, int depth)
{
    static unsigned char decoded[1 << 12];
    nj_constant constant;
    if (type.size > sizeof decoded || !nj_type_constant(type, decoded, &constant)) {
        return draw_value(from, into, depth);
    }
    nj_value value = nj_ids_find(into->ids, &constant);
    value.tag = nj_is_id(&value) ? NJ_TAG_CONSTANT : value.tag;
    return value;
}

/* A value that a type takes, if it is one of those below; any value for another. */
static nj_value draw_fitting(source *from, nj_span type, call *into, int depth)
{
    nj_span rest = {type.at + 1, type.size - 1};
    if (type.size > 2 && *type.at == '(' && depth < 6) {
        return draw_members(from, (nj_span){rest.at, rest.size - 1}, into, depth);
    }
    if (type.size > 1 && *type.at == '=') {
        return draw_compiled_in(from, type, into, depth);
    }
    if (type.size > 12 && memcmp(type.at, "tensordesc<", 11) == 0) {
        return draw_described(from, type, into);
    }
    if (type.size > 1 && *type.at == '*') {
        uint32_t dtype = draw(from, 8) == 0 ? NJ_DTYPE_NONE : nj_dtype_of(rest);
        return (nj_value){.tag = NJ_TAG_POINTER, .dtype = (uint8_t)dtype, .bits = 16 * (int64_t)draw(from, 16)};
    }
    if (nj_span_is(type, "i1") || nj_span_is(type, "u1")) {
        return (nj_value){.tag = NJ_TAG_BOOL, .bits = draw(from, 2)};
    }
    if (type.size > 1 && type.size < 4 && (*type.at == 'i' || *type.at == 'u')) {
        return (nj_value){.tag = NJ_TAG_INT, .bits = draw(from, 2) ? 16 : draw(from, 128)};
    }
    if (type.size == 4 && memcmp(type.at, "fp", 2) == 0) {
        return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(1.5)};
    }
    return nj_span_is(type, "none") ? (nj_value){.tag = NJ_TAG_NONE} : draw_value(from, into, depth);
}

/* A constexpr's or an option's value: mostly that of a case, if it is an axis's; NULL for none. */
static const nj_constant *draw_given(source *from, const nj_table *table, const nj_case *of, uint32_t place, call *into)
{
    for (uint32_t axis = 0; of != NULL && place < table->param_count && axis < table->axis_count; axis++) {
        if (nj_span_equal(table->axes[axis].name, table->params[place].name) && draw(from, 8) != 0) {
            return &table->axes[axis].values[of->places[axis]];
        }
    }
    if (draw(from, 8) != 1) {
        return NULL;
    }
    into->constants[place] = draw_constant(from, table);
    return &into->constants[place];
}

/* A call that is much like one of the table's cases. */
static void draw_call(source *from, const nj_table *table, call *into)
{
    static const char *const names[] = {"num_warps", "num_ctas", "num_stages", "other"};
    const nj_case *of = table->case_count > 0 ? &table->cases[draw(from, table->case_count)] : NULL;
    const nj_span *types = of == NULL ? NULL : table->signatures[of->signature];
    uint32_t runtime = 0;
    into->leaf_count = into->descriptor_count = 0;
    for (uint32_t i = 0; i < table->param_count + OPTIONS; i++) {
        into->values[i] = (nj_value){.tag = NJ_TAG_MISSING};
        into->given[i] = NULL;
        if (i < table->param_count && !table->params[i].is_constexpr) {
            nj_span type = types == NULL ? (nj_span){0} : types[runtime++];
            into->values[i] = types == NULL || draw(from, 16) == 0 ? draw_value(from, into, 0) : draw_fitting(from, type, into, 0);
        } else if ((into->given[i] = draw_given(from, table, of, i, into)) != NULL) {
            into->values[i] = nj_ids_find(into->ids, into->given[i]);
        }
    }
    for (int i = 0; i < OPTIONS; i++) {
        const char *name = names[draw(from, sizeof names / sizeof *names)];
        into->options[i] = (nj_span){(const unsigned char *)name, strlen(name)};
    }
}

/* Stops a search, or not. */
static bool interrupt(void *context)
{
    return *(bool *)context;
}

/* The rows that were handed out. */
typedef struct {
    const nj_table *table;
    nj_match *match;
    const nj_preference *preference;
    size_t count, last;
    uint32_t last_rank, last_bits;
} taken;

static bool take(void *context, size_t row)
{
    taken *it = context;
    uint32_t case_number = nj_table_at(it->table, NJ_COLUMN_CASE, row), rank;
    uint32_t bits = it->match->signatures->bits[it->table->cases[case_number].signature];
    if (nj_first_broken_rule(it->match, row) != NJ_RULE_NONE ||
        !nj_config_rank(it->match, it->preference, case_number, nj_table_at(it->table, NJ_COLUMN_CONFIG, row), &rank)) {
        if (!fuzz_is_starved()) {
            abort();
        }
        return false;
    }
    bool later = bits > it->last_bits || (bits == it->last_bits && rank >= it->last_rank);
    if (it->count > 0 && (!later || row == it->last) && !fuzz_is_starved()) {
        abort();
    }
    it->count++;
    it->last = row;
    it->last_rank = rank;
    it->last_bits = bits;
    return true;
}

/* Sets a coerced call against a table, once whole and once for the best alone. */
static void choose(const nj_signatures *signatures, const nj_coerced_call *passed, const nj_preference *preference)
{
    const nj_table *table = signatures->table;
    nj_match match;
    nj_fault fault;
    size_t best = SIZE_MAX, serving = 0;
    uint32_t hints;
    nj_verdict verdict = nj_match_open(&match, signatures, passed, &fault);
    if (verdict == NJ_SERVED) {
        taken it = {.table = table, .match = &match, .preference = preference};
        verdict = nj_rows_best_first(&match, preference, take, &it);
        for (size_t row = 0; row < table->rows; row++) {
            serving += nj_first_broken_rule(&match, row) == NJ_RULE_NONE;
        }
        bool whole = verdict != NJ_STOPPED && !fuzz_is_starved();
        if (whole && (serving != it.count || (verdict == NJ_SERVED) != (serving > 0))) {
            abort();
        }
        nj_verdict chosen = nj_best_row(&match, preference, &best);
        whole = whole && chosen != NJ_STOPPED && !fuzz_is_starved();
        if (whole && (chosen != verdict || (serving > 0 && nj_first_broken_rule(&match, best) != NJ_RULE_NONE))) {
            abort();
        }
        if (chosen == NJ_SERVED && serving > 0 && !fuzz_is_starved() && nj_near_hints(signatures, &passed->arguments, best, &hints) &&
            table->hint_sets[hints].count <= table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, best)].count) {
            abort();
        }
    } else if (verdict != NJ_NO_MEMORY && fault.place >= table->param_count + OPTIONS + table->axis_count) {
        abort();
    }
    nj_match_close(&match);
}

/* A key over params that is not the table's own, as a tuning file has it. */
static nj_tuning draw_tuning(source *from, const nj_table *table, char text[128])
{
    static const char *const forms[] = {"%.*s * %.*s", "cdiv(%.*s, 2) + %.*s", "%.*s * 'x' - %.*s", "%.*s (%.*s", "has(%.*s) and %.*s == \"a\"", "m - %.*s%.*s"};
    nj_tuning tuning = {.key_count = 1 + draw(from, 2), .table_count = table->tuning.table_count, .tables = table->tuning.tables};
    nj_span name = table->params[draw(from, table->param_count)].name;
    int size = name.size < 32 ? (int)name.size : 32;
    snprintf(text, 128, forms[draw(from, sizeof forms / sizeof *forms)], size, name.at, size, name.at);
    tuning.key[0] = (nj_span){(const unsigned char *)text, strlen(text)};
    tuning.key[1] = name;
    tuning.bucket = (nj_bucket)draw(from, NJ_BUCKET_SIXTEENTH_POW2 + 1);
    return tuning;
}

static void select_of(const nj_table *table, source *from)
{
    static call made;
    static nj_key key;
    char text[128];
    nj_tuning foreign;
    const nj_tuning *tuning = table->tuning.key_count > 0 && table->tuning.table_count > 0 ? &table->tuning : NULL;
    if (table->param_count > 0 && draw(from, 8) == 0) {
        foreign = draw_tuning(from, table, text);
        tuning = &foreign;
    }
    nj_ids *ids = nj_ids_new();
    nj_error error;
    nj_spec spec;
    if (ids == NULL || table->param_count > NJ_ARGUMENTS_MAX - OPTIONS) {
        nj_ids_free(ids);
        return;
    }
    static const nj_tuning_table unmeasured;
    nj_tuned tuned = {0};
    if (tuning != NULL) {
        tuned.table = tuning->table_count == 0 ? &unmeasured : tuning->tables;
    }
    if (nj_spec_init(&spec, table, ids, OPTIONS, 90, tuning, &tuned, &error)) {
        made.ids = ids;
        draw_call(from, table, &made);
        bool stop = draw(from, 8) == 0;
        nj_coerced_call passed = {
            .arguments = {made.values, made.leaves, made.descriptors},
            .given = made.given,
            .option_count = OPTIONS,
            .options = made.options,
            .arch = draw(from, 2) ? 90 : 0,
            .interrupted = interrupt,
            .context = &stop,
        };
        int64_t numbers[NJ_TUNING_KEYS_MAX];
        nj_preference preference = {.key = numbers, .key_count = spec.tuning_count, .tuned.multiprocessors = draw(from, 200)};
        nj_spec_key(&spec, made.values, &passed.arguments, &key);
        nj_tuning_round(spec.tuning, spec.tuning_count, spec.bucket, made.values, numbers);
        preference.tuned.table = tuning == NULL || tuning->table_count == 0 ? NULL : &tuning->tables[draw(from, tuning->table_count)];
        choose(&spec.signatures, &passed, &preference);
    } else {
        fuzz_expect(false, &error, false);
    }
    nj_spec_clear(&spec);
    nj_ids_free(ids);
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    nj_table table;
    if (size < CALL_BYTES + 4) {
        return;
    }
    source from = {bytes, 0};
    size_t rest = size - 4, rows = nj_u16(bytes + rest), images = nj_u16(bytes + rest + 2);
    nj_span raw = fuzz_lay_out((nj_span){bytes + CALL_BYTES, rest - CALL_BYTES}, rows);
    if (raw.at == NULL) {
        return;
    }
    if (nj_table_read(raw, rows, images, &table, NULL)) {
        for (int calls = 0; calls < 4; calls++) {
            select_of(&table, &from);
        }
    }
    nj_table_close(&table);
    free((void *)raw.at);
}
