/* Fuzz selection: a call out of the first 128 bytes is set against the table that the rest holds, if it is one. The rows that are
 * handed out are those that break no rule, the best first. */
#include "select/choose.h"
#include "select/spec.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

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
    descriptor->rank = (uint8_t)(1 + draw(from, NJ_RANK_MAX));
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
    static const char *const texts[] = {"fp16", "bfloat16", "zero", "torch.half", ""};
    if (table->axis_count > 0 && draw(from, 4) != 0) {
        const nj_axis *axis = &table->axes[draw(from, table->axis_count)];
        if (axis->count > 0) {
            return axis->values[draw(from, axis->count)];
        }
    }
    switch (draw(from, 5)) {
    case 0: return (nj_constant){.kind = NJ_CONSTANT_NONE};
    case 1: return (nj_constant){.kind = NJ_CONSTANT_BOOL, .truth = draw(from, 2) != 0};
    case 2: return (nj_constant){.kind = NJ_CONSTANT_FLOAT, .number = (double)draw_int(from) / 3};
    case 3: return (nj_constant){.kind = NJ_CONSTANT_INT, .magnitude = draw(from, 256), .negative = draw(from, 2) != 0};
    default: break;
    }
    const char *text = texts[draw(from, sizeof texts / sizeof *texts)];
    return (nj_constant){.kind = NJ_CONSTANT_TEXT, .text = {(const unsigned char *)text, strlen(text)}};
}

/* A value that a plain type takes; any other for another type. */
static nj_value draw_fitting(source *from, nj_span type, call *into)
{
    char element[16];
    if (type.size > 1 && type.size < sizeof element && *type.at == '*') {
        memcpy(element, type.at + 1, type.size - 1);
        element[type.size - 1] = '\0';
        return (nj_value){.tag = NJ_TAG_POINTER, .dtype = (uint8_t)nj_dtype_parse(element), .bits = 16 * (int64_t)draw(from, 16)};
    }
    if (type.size > 1 && type.size < 4 && (*type.at == 'i' || *type.at == 'u') && !nj_span_is(type, "i1") && !nj_span_is(type, "u1")) {
        return (nj_value){.tag = NJ_TAG_INT, .bits = draw(from, 2) ? 16 : draw(from, 128)};
    }
    if (type.size == 4 && memcmp(type.at, "fp", 2) == 0) {
        return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(1.5)};
    }
    return nj_span_is(type, "none") ? (nj_value){.tag = NJ_TAG_NONE} : draw_value(from, into, 0);
}

static void draw_call(source *from, const nj_table *table, call *into)
{
    static const char *const names[] = {"num_warps", "num_ctas", "num_stages", "other"};
    memset(into->given, 0, sizeof into->given);
    into->leaf_count = into->descriptor_count = 0;
    uint32_t runtime = 0;
    const nj_span *types = table->signature_count > 0 ? table->signatures[draw(from, table->signature_count)] : NULL;
    for (uint32_t i = 0; i < table->param_count + OPTIONS; i++) {
        bool passed = i < table->param_count && !table->params[i].is_constexpr;
        into->values[i] = (nj_value){.tag = NJ_TAG_MISSING};
        if (passed) {
            nj_span type = types == NULL ? (nj_span){0} : types[runtime++];
            into->values[i] = types == NULL || draw(from, 8) == 0 ? draw_value(from, into, 0) : draw_fitting(from, type, into);
        }
        if (!passed && draw(from, i < table->param_count ? 2 : 8) == 1) {
            into->constants[i] = draw_constant(from, table);
            into->given[i] = &into->constants[i];
        }
    }
    for (int i = 0; i < OPTIONS; i++) {
        const char *name = names[draw(from, sizeof names / sizeof *names)];
        into->options[i] = (nj_span){(const unsigned char *)name, strlen(name)};
    }
}

/* The rows that were handed out. */
typedef struct {
    const nj_table *table;
    nj_choice *choice;
    const nj_preference *preference;
    size_t count, last;
    uint32_t last_rank, last_bits;
} taken;

static bool take(void *context, size_t row)
{
    taken *it = context;
    uint32_t case_number = nj_table_at(it->table, NJ_COLUMN_CASE, row), rank;
    uint32_t bits = it->choice->typing->bits[it->table->cases[case_number].signature];
    if (nj_choice_stage(it->choice, row) != NJ_STAGE_SERVES ||
        !nj_choice_rank(it->choice, it->preference, case_number, nj_table_at(it->table, NJ_COLUMN_CONFIG, row), &rank)) {
        abort();
    }
    bool later = bits > it->last_bits || (bits == it->last_bits && rank >= it->last_rank);
    if (it->count > 0 && (!later || row == it->last)) {
        abort();
    }
    it->count++;
    it->last = row;
    it->last_rank = rank;
    it->last_bits = bits;
    return true;
}

/* Sets a coerced call against a table, once whole and once for the best alone. */
static void choose(const nj_typing *typing, const nj_passed *passed, const nj_preference *preference)
{
    const nj_table *table = typing->table;
    nj_choice choice;
    nj_fault fault;
    size_t best = SIZE_MAX, serving = 0;
    uint32_t hints;
    nj_verdict verdict = nj_choice_open(&choice, typing, passed, &fault);
    if (verdict == NJ_SERVED) {
        taken it = {.table = table, .choice = &choice, .preference = preference};
        verdict = nj_choice_rows(&choice, preference, take, &it);
        for (size_t row = 0; row < table->rows; row++) {
            serving += nj_choice_stage(&choice, row) == NJ_STAGE_SERVES;
        }
        if (serving != it.count || (verdict == NJ_SERVED) != (serving > 0)) {
            abort();
        }
        if (nj_choose(&choice, preference, &best) != verdict || (serving > 0 && nj_choice_stage(&choice, best) != NJ_STAGE_SERVES)) {
            abort();
        }
        if (serving > 0 && nj_near_hints(typing, &passed->arguments, best, &hints) &&
            table->hint_sets[hints].count <= table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, best)].count) {
            abort();
        }
    } else if (fault.place >= table->param_count + OPTIONS + table->axis_count) {
        abort();
    }
    nj_choice_close(&choice);
}

static void select_of(const nj_table *table, source *from)
{
    static call made;
    static nj_key key;
    const nj_tuning *tuning = table->tuning.key_count > 0 && table->tuning.table_count > 0 ? &table->tuning : NULL;
    nj_ids *ids = nj_ids_new();
    nj_error error;
    nj_spec spec;
    if (ids == NULL || table->param_count > NJ_ARGUMENTS_MAX - OPTIONS) {
        nj_ids_free(ids);
        return;
    }
    draw_call(from, table, &made);
    if (nj_spec_init(&spec, table, ids, OPTIONS, 90, tuning, &error)) {
        nj_passed passed = {
            .arguments = {made.values, made.leaves, made.descriptors},
            .given = made.given,
            .option_count = OPTIONS,
            .options = made.options,
            .arch = draw(from, 2) ? 90 : 0,
        };
        int64_t numbers[NJ_TUNING_KEYS_MAX];
        nj_preference preference = {.key = numbers, .key_count = spec.tuning_count, .multiprocessors = draw(from, 200)};
        nj_spec_key(&spec, made.values, &passed.arguments, &key);
        for (uint32_t i = 0; i < spec.tuning_count; i++) {
            numbers[i] = nj_bucket_of(spec.bucket, nj_tuning_number(&spec.tuning[i], made.values));
        }
        preference.table = tuning == NULL ? NULL : &tuning->tables[draw(from, tuning->table_count)];
        choose(&spec.typing, &passed, &preference);
    } else if (error.what[0] == 0) {
        abort();
    }
    nj_spec_clear(&spec);
    nj_ids_free(ids);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    nj_table table;
    if (size < CALL_BYTES + 4) {
        return 0;
    }
    source from = {bytes, 0};
    size_t rest = size - 4, rows = nj_u16(bytes + rest), images = nj_u16(bytes + rest + 2);
    if (nj_table_read((nj_span){bytes + CALL_BYTES, rest - CALL_BYTES}, rows, images, &table, NULL)) {
        for (int calls = 0; calls < 4; calls++) {
            select_of(&table, &from);
        }
    }
    nj_table_close(&table);
    return 0;
}
