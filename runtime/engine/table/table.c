/* Reads the JSON of a table, part by part. */
#include "table/table.h"

#include "table/expression_programs.h"
#include "table/table_reader.h"
#include "table/table_rules.h"
#include "table/tuning.h"
#include "table/type_name.h"
#include "table/work_limits.h"

const char *const nj_column_names[NJ_COLUMN_COUNT] = {
    [NJ_COLUMN_CASE] = "case",     [NJ_COLUMN_CONFIG] = "config", [NJ_COLUMN_HINTS] = "hints",         [NJ_COLUMN_DERIVED] = "derived",
    [NJ_COLUMN_LAUNCH] = "launch", [NJ_COLUMN_IMAGE] = "image",   [NJ_COLUMN_REGISTERS] = "registers", [NJ_COLUMN_SPILL_BYTES] = "spill_bytes",
};

enum { GRID_MAX = 3, LAYOUT_CHARS_MAX = 1 << 18 };

#define COUNT(fields) (sizeof fields / sizeof *fields)

static bool add(nj_document *it, nj_table_reader *reader, const void *item, size_t size)
{
    return nj_arena_add(&reader->arena, item, size) || nj_no_memory(it->error);
}

/* The state of reading a part of the table. */
typedef struct {
    nj_table_reader *reader;
    nj_axis axis;
    nj_param param;
    nj_derived derived;
    nj_config config;
    nj_setting setting;
    nj_hint hint;
    uint32_t number; /* number of items taken so far */
} nj_part;

static bool take_text_item(nj_document *it, void *reader)
{
    nj_span text;
    return nj_take_text(it, &text) && add(it, reader, &text, sizeof text);
}

static bool take_name_item(nj_document *it, void *reader)
{
    nj_span name;
    return nj_take_name(it, &name) && add(it, reader, &name, sizeof name);
}

/* Takes an array of texts. */
static bool take_spans(nj_document *it, nj_table_reader *reader, size_t most, nj_taker take, const nj_span **spans, uint32_t *count)
{
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, most, take, reader) && NJ_END_LIST(it, reader, mark, *spans, *count);
}

static bool take_axis_is_type(nj_document *it, void *part)
{
    return nj_take_flag(it, &((nj_part *)part)->axis.is_type);
}

static bool take_axis_name(nj_document *it, void *part)
{
    return nj_take_name(it, &((nj_part *)part)->axis.name);
}

static bool take_axis_values(nj_document *it, void *into)
{
    nj_part *part = into;
    return nj_take_constants(it, &part->reader->arena, NJ_POOL_MAX, &part->axis.values, &part->axis.count);
}

static bool take_axis(nj_document *it, void *reader)
{
    static const nj_field fields[] = {{"is_type", take_axis_is_type}, {"name", take_axis_name}, {"values", take_axis_values}};
    nj_part part = {.reader = reader};
    return nj_take_object(it, fields, COUNT(fields), &part) && add(it, reader, &part.axis, sizeof part.axis);
}

static bool take_axes(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_TABLE_PAIRS_MAX, take_axis, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->axes, reader->table->axis_count);
}

static bool take_batch(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    return take_spans(it, reader, NJ_TABLE_SMALL_MAX, take_name_item, &reader->table->batch, &reader->table->batch_count);
}

static bool take_half(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_setting *setting = &part->setting;
    return part->number++ == 0 ? nj_take_name(it, &setting->name) : nj_take_constant(it, &part->reader->arena, &setting->value);
}

static bool need_pair(nj_document *it, uint32_t items)
{
    return items == 2 || nj_break(it->error, "size", nj_format("%u items", (unsigned)items).text, "expected a pair");
}

static bool take_setting(nj_document *it, void *reader)
{
    nj_part part = {.reader = reader};
    return nj_take_array(it, 2, take_half, &part) && need_pair(it, part.number) && add(it, reader, &part.setting, sizeof part.setting);
}

static bool take_settings(nj_document *it, nj_table_reader *reader, const nj_setting **settings, uint32_t *count)
{
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_TABLE_PAIRS_MAX, take_setting, reader) && NJ_END_LIST(it, reader, mark, *settings, *count);
}

static bool take_constexprs(nj_document *it, void *into)
{
    nj_part *part = into;
    return take_settings(it, part->reader, &part->config.constexprs, &part->config.constexpr_count);
}

static bool take_options(nj_document *it, void *into)
{
    nj_part *part = into;
    return take_settings(it, part->reader, &part->config.options, &part->config.option_count);
}

static bool take_requires(nj_document *it, void *part)
{
    return nj_take_text(it, &((nj_part *)part)->config.requires);
}

static bool take_config(nj_document *it, void *reader)
{
    static const nj_field fields[] = {{"constexprs", take_constexprs}, {"options", take_options}, {"requires", take_requires}};
    nj_part part = {.reader = reader, .config.requires_program = -1};
    return nj_take_object(it, fields, COUNT(fields), &part) && add(it, reader, &part.config, sizeof part.config);
}

static bool take_configs(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_config, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->configs, reader->table->config_count);
}

static bool take_derived_expression(nj_document *it, void *part)
{
    return nj_take_text(it, &((nj_part *)part)->derived.expression);
}

static bool take_derived_name(nj_document *it, void *part)
{
    return nj_take_name(it, &((nj_part *)part)->derived.name);
}

static bool take_derived_item(nj_document *it, void *reader)
{
    static const nj_field fields[] = {{"expression", take_derived_expression}, {"name", take_derived_name}};
    nj_part part = {.reader = reader};
    return nj_take_object(it, fields, COUNT(fields), &part) && add(it, reader, &part.derived, sizeof part.derived);
}

static bool take_derived(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_TABLE_PAIRS_MAX, take_derived_item, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->derived, reader->table->derived_count);
}

static bool take_values(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    const nj_constant *values;
    uint32_t count;
    if (!nj_take_constants(it, &reader->arena, NJ_TABLE_PAIRS_MAX, &values, &count)) {
        return false;
    }
    return count == reader->table->derived_count ? add(it, reader, &values, sizeof values)
                                                 : nj_break(it->error, "size", nj_format("%u", (unsigned)count).text,
                                                            "expected %u derived values", (unsigned)reader->table->derived_count);
}

static bool take_entry_text(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_named entry = {nj_take_raw(it), 0};
    return add(it, reader, &entry, sizeof entry);
}

/* Checks that the entries of the next array are distinct. Comparing texts suffices, because each value has one spelling. */
static bool check_entries(nj_document *it, nj_table_reader *reader)
{
    nj_document ahead = *it;
    nj_named *entries;
    uint32_t count;
    size_t mark = nj_arena_start(&reader->arena);
    if (!nj_take_array(&ahead, NJ_POOL_MAX, take_entry_text, reader) || !NJ_END_LIST(it, reader, mark, entries, count)) {
        return false;
    }
    const nj_named *twice = nj_names_sort(entries, count);
    return twice == NULL ||
           nj_break(it->error, "duplicate", nj_quote(twice->name).text, "expected each entry of derived values once");
}

static bool take_derived_values(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_table *table = reader->table;
    nj_document start = *it;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_values, reader) &&
           NJ_END_LIST(it, reader, mark, table->derived_values, table->derived_value_count) &&
           (table->derived_value_count < 2 || check_entries(&start, reader));
}

static bool take_grid(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    return take_spans(it, reader, GRID_MAX, take_text_item, &reader->table->grid, &reader->table->grid_count);
}

static bool take_hint_half(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_integer number;
    if (part->number++ == 0) {
        return nj_take_name(it, &part->hint.leaf);
    }
    if (!nj_take_integer(it, &number)) {
        return false;
    }
    part->hint.value = (uint8_t)number.magnitude;
    bool right = !number.negative && (number.magnitude == 1 || number.magnitude == 16);
    return right || nj_break(it->error, "hint", nj_integer_text(&number).text, "expected a hint of 16 or 1");
}

static bool take_hint(nj_document *it, void *reader)
{
    nj_part part = {.reader = reader};
    return nj_take_array(it, 2, take_hint_half, &part) && need_pair(it, part.number) && add(it, reader, &part.hint, sizeof part.hint);
}

static bool take_hint_set(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_hint_set set = {0};
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_TABLE_SMALL_MAX, take_hint, reader) && NJ_END_LIST(it, reader, mark, set.hints, set.count) &&
           add(it, reader, &set, sizeof set);
}

static bool take_hint_sets(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_hint_set, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->hint_sets, reader->table->hint_set_count);
}

/* Takes a launch as raw JSON, because a call needs only one of thousands. */
static bool take_launch(nj_document *it, void *reader)
{
    nj_launch_text launch = {nj_take_raw(it)};
    return add(it, reader, &launch, sizeof launch);
}

static bool take_launches(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_launch, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->launches, reader->table->launch_count);
}

static bool take_layout(nj_document *it, void *reader)
{
    nj_span layout;
    return nj_take_text_of(it, LAYOUT_CHARS_MAX, &layout) && add(it, reader, &layout, sizeof layout);
}

static bool take_layouts(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    return take_spans(it, reader, NJ_POOL_MAX, take_layout, &reader->table->layouts, &reader->table->layout_count);
}

/* Takes a number of a case. Its range is checked later, when the pool that it indexes is known. */
static bool take_case_number(nj_document *it, void *reader)
{
    nj_integer number;
    if (!nj_take_integer(it, &number)) {
        return false;
    }
    if (number.negative) {
        return nj_break(it->error, "size", nj_integer_text(&number).text, "expected indices from 0");
    }
    uint32_t index = number.magnitude < UINT32_MAX ? (uint32_t)number.magnitude : UINT32_MAX;
    return add(it, reader, &index, sizeof index);
}

/* Returns whether the numbers of a case after the first are places on the axes, one for each. */
static bool are_places(const nj_table *table, const uint32_t *numbers, uint32_t count)
{
    bool right = count == table->axis_count;
    for (uint32_t axis = 0; right && axis < count; axis++) {
        right = numbers[axis] < table->axes[axis].count;
    }
    return right;
}

static bool take_case(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    const uint32_t *numbers;
    uint32_t count;
    nj_span spelled = {it->at, 0};
    size_t mark = nj_arena_start(&reader->arena);
    if (!nj_take_array(it, NJ_TABLE_PAIRS_MAX + 1, take_case_number, reader) || !NJ_END_LIST(it, reader, mark, numbers, count)) {
        return false;
    }
    if (count == 0) {
        return nj_break(it->error, "size", "nothing", "expected a case to name its signature");
    }
    spelled.size = (size_t)(it->at - spelled.at);
    nj_case point = {numbers[0], numbers + 1};
    if (reader->misplaced.size == 0 && !are_places(reader->table, point.places, count - 1)) {
        /* noted for later, because the error of a wrong name is more useful */
        reader->misplaced = spelled;
    }
    return add(it, reader, &point, sizeof point);
}

static bool take_cases(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_case, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->cases, reader->table->case_count);
}

static bool take_is_constexpr(nj_document *it, void *part)
{
    return nj_take_flag(it, &((nj_part *)part)->param.is_constexpr);
}

static bool take_default_value(nj_document *it, void *into)
{
    nj_part *part = into;
    part->param.has_default = true;
    return nj_take_constant(it, &part->reader->arena, &part->param.fallback);
}

static bool take_default(nj_document *it, void *part)
{
    return nj_take_array(it, 1, take_default_value, part);
}

static bool take_param_name(nj_document *it, void *into)
{
    nj_span *name = &((nj_part *)into)->param.name;
    /* a dot separates a param from its member */
    return nj_take_name(it, name) && (memchr(name->at, '.', name->size) == NULL ||
                                      nj_break(it->error, "name", nj_quote(*name).text, "expected params without dots"));
}

static bool take_param(nj_document *it, void *into)
{
    static const nj_field fields[] = {{"constexpr", take_is_constexpr}, {"default", take_default}, {"name", take_param_name}};
    nj_table_reader *reader = into;
    nj_part part = {.reader = reader};
    if (!nj_take_object(it, fields, COUNT(fields), &part)) {
        return false;
    }
    reader->table->runtime_count += !part.param.is_constexpr;
    return add(it, reader, &part.param, sizeof part.param);
}

static bool take_params(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_TABLE_SMALL_MAX, take_param, reader) &&
           NJ_END_LIST(it, reader, mark, reader->table->params, reader->table->param_count);
}

static bool take_programs(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    return take_spans(it, reader, NJ_POOL_MAX, take_text_item, &reader->table->programs, &reader->table->program_count);
}

static bool check_type(nj_document *it, nj_span type)
{
    return nj_is_type(type) || nj_break(it->error, "signature", nj_quote(type).text,
                                        "expected a type in canonical spelling, with at most %d leaves and tuples within", NJ_LEAVES_MAX);
}

/* The state of reading a signature. The types of the one before save checks, because most types of a param are alike. */
typedef struct {
    nj_table_reader *reader;
    const nj_span *before;
    uint32_t place;
} nj_typed;

static bool take_type(nj_document *it, void *into)
{
    nj_typed *typed = into;
    nj_span type;
    if (!nj_take_line(it, &type)) {
        return false;
    }
    uint32_t place = typed->place++;
    bool known = typed->before != NULL && place < typed->reader->table->runtime_count && nj_span_equal(typed->before[place], type);
    return (known || check_type(it, type)) && add(it, typed->reader, &type, sizeof type);
}

static bool take_signature(nj_document *it, void *into)
{
    nj_typed *all = into, typed = *all;
    nj_table_reader *reader = all->reader;
    const nj_span *types;
    uint32_t count;
    size_t mark = nj_arena_start(&reader->arena);
    if (!nj_take_array(it, NJ_TABLE_SMALL_MAX, take_type, &typed) || !NJ_END_LIST(it, reader, mark, types, count)) {
        return false;
    }
    all->before = types;
    return count == reader->table->runtime_count ? add(it, reader, &types, sizeof types)
                                                 : nj_break(it->error, "size", nj_format("%u", (unsigned)count).text,
                                                            "expected %u types in a signature", (unsigned)reader->table->runtime_count);
}

static bool take_signatures(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_typed typed = {.reader = reader};
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, NJ_POOL_MAX, take_signature, &typed) &&
           NJ_END_LIST(it, reader, mark, reader->table->signatures, reader->table->signature_count);
}

static bool take_tuning(nj_document *it, void *reader)
{
    return nj_take_tuning(it, reader);
}

static const nj_field table_fields[] = {
    {"axes", take_axes},
    {"batch", take_batch},
    {"cases", take_cases},
    {"configs", take_configs},
    {"derived", take_derived},
    {"derived_values", take_derived_values},
    {"grid", take_grid},
    {"hint_sets", take_hint_sets},
    {"launches", take_launches},
    {"layouts", take_layouts},
    {"params", take_params},
    {"programs", take_programs},
    {"signatures", take_signatures},
    {"tuning", take_tuning},
};

static bool take_table(nj_document *it, void *reader)
{
    return nj_take_object(it, table_fields, COUNT(table_fields), reader);
}

/* Splits a table into its JSON and its columns. */
static bool split(nj_span raw, nj_table *table, nj_span *json, nj_error *error)
{
    nj_cursor cursor = {raw};
    nj_span length, padding;
    if (!nj_take(&cursor, sizeof(uint32_t), &length)) {
        return nj_break(error, "truncated", nj_format("%zu bytes", raw.size).text, "expected a variant table");
    }
    uint64_t bytes = nj_u32(length.at), padded = (bytes + 3) / 4 * 4, start = sizeof(uint32_t) + padded;
    uint64_t expected = start + sizeof(uint32_t) * (uint64_t)table->rows * NJ_COLUMN_COUNT;
    if (raw.size != expected) {
        return nj_break(error, "size", nj_format("%zu", raw.size).text, "expected a table of %llu bytes for %zu variants",
                        (unsigned long long)expected, table->rows);
    }
    nj_take(&cursor, bytes, json);
    nj_take(&cursor, padded - bytes, &padding);
    table->columns = cursor.rest.at;
    for (size_t i = 0; i < padding.size; i++) {
        if (padding.at[i] != ' ') {
            return nj_break(error, "padding", nj_quote(padding).text, "expected only spaces as padding after the table's JSON");
        }
    }
    return true;
}

/* Checks the rules that need the whole table. */
static bool check(nj_table_reader *reader, size_t raw_bytes, size_t image_count, nj_error *error)
{
    return nj_check_programs(reader->table, error) && nj_check_names(reader, error) &&
           nj_check_pools(reader, image_count, error) && nj_check_tuning_key(reader, error) &&
           nj_check_work(reader->table, raw_bytes, error);
}

bool nj_table_read(nj_span raw, size_t rows, size_t image_count, nj_table *table, nj_error *error)
{
    nj_table_reader reader = {.table = table};
    nj_span json;
    *table = (nj_table){.rows = rows};
    if (rows > NJ_POOL_MAX) {
        return nj_break(error, "size", nj_format("%zu", rows).text, "expected at most %d variants", NJ_POOL_MAX);
    }
    bool read = split(raw, table, &json, error) && nj_document_take(&table->document, json, take_table, &reader, error) &&
                check(&reader, raw.size, image_count, error);
    table->memory = nj_arena_keep(&reader.arena);
    table->document.error = NULL;
    return read;
}

void nj_table_close(nj_table *table)
{
    nj_document_close(&table->document);
    nj_arena_free(table->memory);
    *table = (nj_table){0};
}
