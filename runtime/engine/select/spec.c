/* Makes the spec of a kernel: finds the fields of its keys, and lays them out. */
#include "select/key_expressions.h"

#include "table/find_by_name.h"

#include <stdlib.h>

#define WORD_BITS 64

/* Gives an id to every value that a key can hold; false without memory. */
static bool number_values(const nj_table *table, nj_ids *ids)
{
    nj_value ignored;
    bool numbered = true;
    for (uint32_t i = 0; numbered && i < table->param_count; i++) {
        const nj_param *param = &table->params[i];
        numbered = !param->is_constexpr || !param->has_default || nj_ids_add(ids, &param->fallback, &ignored);
    }
    for (uint32_t i = 0; i < table->axis_count; i++) {
        const nj_axis *axis = &table->axes[i];
        for (uint32_t value = 0; numbered && !axis->is_type && value < axis->count; value++) {
            numbered = nj_ids_add(ids, &axis->values[value], &ignored);
        }
    }
    for (uint32_t i = 0; i < table->config_count; i++) {
        const nj_config *config = &table->configs[i];
        for (uint32_t value = 0; numbered && value < config->constexpr_count; value++) {
            numbered = nj_ids_add(ids, &config->constexprs[value].value, &ignored);
        }
        for (uint32_t value = 0; numbered && value < config->option_count; value++) {
            numbered = nj_ids_add(ids, &config->options[value].value, &ignored);
        }
    }
    return numbered;
}

/* Returns the value that programs see for a constexpr that a call leaves out: the default of an axis, else NJ_TAG_MISSING. */
static nj_value fallback_of(const nj_table *table, const nj_param *param, const nj_ids *ids)
{
    if (!param->has_default || !nj_is_axis(table, param->name)) {
        return (nj_value){.tag = NJ_TAG_MISSING};
    }
    nj_value value = nj_value_seen(nj_ids_find(ids, &param->fallback));
    return value.tag == NJ_TAG_UNKNOWN ? (nj_value){.tag = NJ_TAG_MISSING} : value;
}

/* Lists the strings that name dtypes of a constexpr that was built with dtypes and no strings; false without memory. */
static bool find_aliases(const nj_table *table, uint32_t place, const nj_ids *ids, nj_key_field *field)
{
    enum { SPELLINGS_MAX = 32 };
    size_t count = nj_built_values(table, place, NULL, 0), dtypes = 0;
    const nj_constant **built = malloc((count + 1) * sizeof *built);
    bool texts = built == NULL;
    count = built == NULL ? 0 : nj_built_values(table, place, built, count);
    for (size_t i = 0; i < count; i++) {
        dtypes += built[i]->kind == NJ_CONSTANT_DTYPE;
        texts |= built[i]->kind == NJ_CONSTANT_TEXT;
    }
    bool spells = !texts && dtypes > 0 && dtypes < UINT16_MAX / SPELLINGS_MAX;
    field->aliases = spells ? malloc(dtypes * SPELLINGS_MAX * sizeof *field->aliases) : NULL;
    for (size_t i = 0; field->aliases != NULL && i < count; i++) {
        int64_t strings[SPELLINGS_MAX];
        size_t found = built[i]->kind == NJ_CONSTANT_DTYPE ? nj_ids_spellings(ids, built[i]->text, strings, SPELLINGS_MAX) : 0;
        for (size_t each = 0; each < found; each++) {
            field->aliases[field->alias_count++] = (nj_alias){strings[each], nj_ids_find(ids, built[i]).bits};
        }
    }
    free(built);
    return built != NULL && (!spells || field->aliases != NULL);
}

static nj_field_kind kind_of(const nj_param_types *param)
{
    if (param->type_count == 1 && param->types[0].tags == NJ_BIT(NJ_TAG_INT) && !param->types[0].constant) {
        return NJ_FIELD_INT;
    }
    return param->pointers[NJ_DTYPE_NONE] != 0 ? NJ_FIELD_POINTER : NJ_FIELD_ANY;
}

static bool fill_fields(nj_spec *spec)
{
    const nj_table *table = spec->signatures.table;
    bool filled = true;
    for (uint32_t i = 0; i < spec->argument_count + spec->program_count; i++) {
        spec->fields[i] = (nj_key_field){.kind = NJ_FIELD_CONSTEXPR, .fallback.tag = NJ_TAG_MISSING};
        if (i < table->param_count && table->params[i].is_constexpr) {
            spec->fields[i].fallback = fallback_of(table, &table->params[i], spec->signatures.ids);
            filled = filled && find_aliases(table, i, spec->signatures.ids, &spec->fields[i]);
        }
    }
    for (uint32_t i = 0; i < table->runtime_count; i++) {
        const nj_param_types *param = &spec->signatures.params[i];
        nj_key_field *field = &spec->fields[param->place];
        field->kind = (uint8_t)kind_of(param);
        field->param = param;
        field->types = param->types;
        field->type_count = param->type_count;
    }
    return filled;
}

/* Notes the hints that variants have for each param. Keys hold the hints of tuple members in any case. */
static void note_hints(nj_spec *spec)
{
    const nj_table *table = spec->signatures.table;
    for (uint32_t set = 0; set < table->hint_set_count; set++) {
        for (uint32_t i = 0; i < table->hint_sets[set].count; i++) {
            const nj_hint *hint = &table->hint_sets[set].hints[i];
            for (uint32_t number = 0; number < table->runtime_count; number++) {
                uint32_t place = spec->signatures.params[number].place;
                if (nj_span_equal(table->params[place].name, hint->leaf)) {
                    spec->fields[place].hint_1 |= hint->value == 1;
                    spec->fields[place].hint_16 |= hint->value != 1;
                }
            }
        }
    }
}

/* Assigns bits of the packed words to every field; no field spans two words. */
static bool lay_out(nj_spec *spec, nj_error *error)
{
    unsigned int word = 0, used = 0;
    size_t payloads = 0;
    for (uint32_t i = 0; i < spec->argument_count + spec->program_count; i++) {
        nj_key_field *field = &spec->fields[i];
        unsigned int bits = field->types == NULL ? NJ_MARK_BITS : field->type_count + 2u;
        payloads += field->types == NULL ? 1 : field->param->tuple ? NJ_LEAF_WORDS_MAX : 0;
        if (used + bits > WORD_BITS) {
            word++;
            used = 0;
        }
        field->word = (uint16_t)word;
        field->shift = (uint8_t)used;
        used += bits;
    }
    spec->packed_words = word + 1;
    size_t words = spec->packed_words + payloads + spec->tuning_count;
    if (words > NJ_KEY_WORDS_MAX) {
        return nj_differ(error, nj_format("%zu", words).text, "expected at most %d words of facts that choose a variant",
                         NJ_KEY_WORDS_MAX);
    }
    return true;
}

/* Makes the programs of the tuning key, which orders the configs; false with `error` filled. */
static bool take_tuning(nj_spec *spec, const nj_tuning *tuning, nj_error *error)
{
    spec->tuning = calloc(NJ_TUNING_KEYS_MAX, sizeof *spec->tuning);
    if (spec->tuning == NULL) {
        return nj_no_memory(error);
    }
    spec->tuning_count = tuning->key_count;
    spec->bucket = tuning->bucket;
    return nj_tuning_programs(&spec->signatures, tuning, spec->tuning, error);
}

bool nj_spec_init(nj_spec *spec, const nj_table *table, nj_ids *ids, size_t option_count, int arch, const nj_tuning *tuning,
                  const nj_tuned *tuned, nj_error *error)
{
    *spec = (nj_spec){.arch = arch, .tuned = *tuned, .bucket = NJ_BUCKET_EXACT};
    if (option_count > NJ_ARGUMENTS_MAX || table->param_count > NJ_ARGUMENTS_MAX - option_count) {
        return nj_differ(error, nj_format("%u and %zu", table->param_count, option_count).text,
                         NJ_ARGUMENTS_RULE, NJ_ARGUMENTS_MAX);
    }
    spec->argument_count = table->param_count + (uint32_t)option_count;
    if (!nj_signatures_init(&spec->signatures, table, ids, error)) {
        return false;
    }
    if (!number_values(table, ids)) {
        return nj_no_memory(error);
    }
    if (!nj_spec_find_expressions(spec, error)) {
        return false;
    }
    spec->fields = calloc((size_t)spec->argument_count + spec->program_count + 1, sizeof *spec->fields);
    if (spec->fields == NULL || !fill_fields(spec)) {
        return nj_no_memory(error);
    }
    note_hints(spec);
    return (tuned->table == NULL || take_tuning(spec, tuning, error)) && lay_out(spec, error);
}

void nj_spec_clear(nj_spec *spec)
{
    for (uint32_t i = 0; i < spec->program_count; i++) {
        free(spec->programs[i].code);
    }
    for (uint32_t i = 0; spec->tuning != NULL && i < NJ_TUNING_KEYS_MAX; i++) {
        nj_tuning_key_clear(&spec->tuning[i]);
    }
    for (uint32_t i = 0; spec->fields != NULL && i < spec->argument_count; i++) {
        free(spec->fields[i].aliases);
    }
    free(spec->programs);
    free(spec->fields);
    free(spec->tuning);
    if (spec->signatures.table != NULL) {
        nj_signatures_clear(&spec->signatures);
    }
    *spec = (nj_spec){0};
}
