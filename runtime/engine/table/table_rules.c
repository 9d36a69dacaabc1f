#include "table/table_rules.h"

enum { POINTING_COLUMNS = NJ_COLUMN_IMAGE + 1 };

static bool refuse_twice(nj_span name, const char *what, nj_error *error)
{
    return nj_break(error, "duplicate", nj_format("%.150s twice", nj_quote(name).text).text, "expected each %s once", what);
}

static nj_named *make_names(nj_arena *arena, uint32_t count, nj_error *error)
{
    nj_named *names = nj_arena_take(arena, sizeof *names * count);
    if (names == NULL) {
        nj_no_memory(error);
    }
    return names;
}

/* Sorts names, and checks that each occurs once. */
static bool check_once(nj_named *names, uint32_t count, const char *what, nj_error *error)
{
    const nj_named *twice = nj_names_sort(names, count);
    return twice == NULL || refuse_twice(twice->name, what, error);
}

/* Sorts the params, for look-up. */
static bool sort_params(nj_table_reader *reader, nj_error *error)
{
    const nj_table *table = reader->table;
    reader->params = make_names(&reader->arena, table->param_count, error);
    if (reader->params == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < table->param_count; i++) {
        reader->params[i] = (nj_named){table->params[i].name, i};
    }
    return check_once(reader->params, table->param_count, "param", error);
}

/* Returns the index of a param; NJ_NO_NAME if none has the name. */
static uint32_t find_param(const nj_table_reader *reader, nj_span name)
{
    return nj_names_find(reader->params, reader->table->param_count, name);
}

static bool is_runtime_param(const nj_table_reader *reader, nj_span name)
{
    uint32_t number = find_param(reader, name);
    return number != NJ_NO_NAME && !reader->table->params[number].is_constexpr;
}

static bool check_axes(nj_table_reader *reader, nj_named *names, nj_error *error)
{
    const nj_table *table = reader->table;
    for (uint32_t i = 0; i < table->axis_count; i++) {
        names[i] = (nj_named){table->axes[i].name, i};
    }
    return check_once(names, table->axis_count, "axis", error);
}

static bool check_batch(nj_table_reader *reader, nj_named *names, nj_error *error)
{
    const nj_table *table = reader->table;
    for (uint32_t i = 0; i < table->batch_count; i++) {
        names[i] = (nj_named){table->batch[i], i};
        if (!is_runtime_param(reader, table->batch[i])) {
            return nj_break(error, "param", nj_quote(table->batch[i]).text, "expected a batch of runtime params alone");
        }
    }
    return check_once(names, table->batch_count, "param of the batch", error);
}

/* Checks that an option has no name of a param or another option; else a name in an expression or a call would be ambiguous. */
static bool check_options(const nj_table_reader *reader, nj_named *names, nj_error *error)
{
    const nj_table *table = reader->table;
    bool right = true;
    for (uint32_t i = 0; right && i < table->config_count; i++) {
        const nj_config *config = &table->configs[i];
        for (uint32_t j = 0; j < config->option_count; j++) {
            names[j] = (nj_named){config->options[j].name, j};
            if (find_param(reader, names[j].name) != NJ_NO_NAME) {
                return refuse_twice(names[j].name, "param or option", error);
            }
        }
        right = check_once(names, config->option_count, "option of a config", error);
    }
    return right;
}

/* Returns whether the rest of a leaf's path, after the param, is a list of places in tuples, such as `.1.0`, without leading zeros. */
static bool are_places(nj_span places)
{
    size_t digits = 1;
    for (size_t i = 0; i < places.size; i++) {
        unsigned char c = places.at[i];
        if (c == '.') {
            if (digits == 0) {
                return false;
            }
            digits = 0;
        } else if (c < '0' || c > '9' || ++digits > 3 || (digits == 2 && places.at[i - 1] == '0')) {
            return false;
        }
    }
    return digits > 0;
}

static bool check_hint(const nj_table_reader *reader, nj_span leaf, nj_error *error)
{
    const unsigned char *dot = memchr(leaf.at, '.', leaf.size);
    size_t length = dot == NULL ? leaf.size : (size_t)(dot - leaf.at);
    if (!is_runtime_param(reader, (nj_span){leaf.at, length})) {
        return nj_break(error, "param", nj_quote(leaf).text, "expected hints of this kernel's params");
    }
    return are_places((nj_span){leaf.at + length, leaf.size - length}) ||
           nj_break(error, "param", nj_quote(leaf).text, "expected hints of leaves, spelled x or x.1.0");
}

static bool check_hints(const nj_table_reader *reader, nj_named *names, nj_error *error)
{
    const nj_table *table = reader->table;
    bool right = true;
    for (uint32_t i = 0; right && i < table->hint_set_count; i++) {
        const nj_hint_set *set = &table->hint_sets[i];
        for (uint32_t j = 0; right && j < set->count; j++) {
            names[j] = (nj_named){set->hints[j].leaf, j};
            right = check_hint(reader, set->hints[j].leaf, error);
        }
        right = right && check_once(names, set->count, "hinted param", error);
    }
    return right;
}

/* The constexprs that have values for the current config. */
typedef struct {
    const nj_table_reader *reader;
    uint32_t *marks; /* for each param: the last config that gave it a value, counted from 1 */
    uint32_t needed; /* number of constexprs without a default */
} nj_valued;

/* Notes that a constexpr gets a value, and counts it in `given` if it has no default. */
static bool give(const nj_valued *valued, nj_span name, uint32_t mark, uint32_t *given, nj_error *error)
{
    uint32_t number = find_param(valued->reader, name);
    const nj_param *param = number == NJ_NO_NAME ? NULL : &valued->reader->table->params[number];
    if (param == NULL || !param->is_constexpr) {
        return nj_break(error, "param", nj_quote(name).text, "expected axes, configs and derived values of this kernel's constexprs");
    }
    if (valued->marks[number] == mark) {
        return refuse_twice(name, "valued constexpr", error);
    }
    valued->marks[number] = mark;
    *given += !param->has_default;
    return true;
}

static bool refuse_valueless(const nj_valued *valued, uint32_t mark, nj_error *error)
{
    const nj_table *table = valued->reader->table;
    uint32_t i = 0;
    while (!table->params[i].is_constexpr || table->params[i].has_default || valued->marks[i] == mark) {
        i++;
    }
    return nj_break(error, "param", nj_format("none for %.150s", nj_quote(table->params[i].name).text).text,
                    "expected a value for each constexpr");
}

/* Checks that each constexpr has exactly one value under a config: from an axis, an expression, the config or its default. */
static bool check_config(const nj_valued *valued, const nj_config *config, uint32_t mark, nj_error *error)
{
    const nj_table *table = valued->reader->table;
    uint32_t given = 0;
    for (uint32_t i = 0; i < table->axis_count; i++) {
        if (!table->axes[i].is_type && !give(valued, table->axes[i].name, mark, &given, error)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < table->derived_count; i++) {
        if (!give(valued, table->derived[i].name, mark, &given, error)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < config->constexpr_count; i++) {
        if (!give(valued, config->constexprs[i].name, mark, &given, error)) {
            return false;
        }
    }
    return given == valued->needed || refuse_valueless(valued, mark, error);
}

static bool same_names(const nj_config *one, const nj_config *other)
{
    bool same = one->constexpr_count == other->constexpr_count;
    for (uint32_t i = 0; same && i < one->constexpr_count; i++) {
        same = nj_span_equal(one->constexprs[i].name, other->constexprs[i].name);
    }
    return same;
}

static bool check_constexprs(nj_table_reader *reader, nj_error *error)
{
    static const nj_config none = {.constexpr_count = 0};
    const nj_table *table = reader->table;
    nj_valued valued = {reader, nj_arena_take(&reader->arena, sizeof *valued.marks * table->param_count), 0};
    if (valued.marks == NULL) {
        return nj_no_memory(error);
    }
    for (uint32_t i = 0; i < table->param_count; i++) {
        valued.marks[i] = 0;
        valued.needed += table->params[i].is_constexpr && !table->params[i].has_default;
    }
    bool right = table->config_count > 0 || check_config(&valued, &none, 1, error);
    for (uint32_t i = 0; right && i < table->config_count; i++) {
        const nj_config *config = &table->configs[i];
        /* skips the check for equal names, because most configs differ in values only */
        right = (i > 0 && same_names(config, config - 1)) || check_config(&valued, config, i + 1, error);
    }
    return right;
}

bool nj_check_names(nj_table_reader *reader, nj_error *error)
{
    nj_named *names = make_names(&reader->arena, NJ_TABLE_SMALL_MAX, error);
    return names != NULL && sort_params(reader, error) && check_axes(reader, names, error) && check_batch(reader, names, error) &&
           check_options(reader, names, error) && check_hints(reader, names, error) && check_constexprs(reader, error);
}

/* Returns whether a row follows the one before it in the order of rows. */
static bool ascends(const nj_table *table, size_t row)
{
    for (int column = 0; column < NJ_KEY_COLUMNS; column++) {
        uint32_t before = nj_table_at(table, (nj_column)column, row - 1), here = nj_table_at(table, (nj_column)column, row);
        if (before != here) {
            return before < here;
        }
    }
    return false;
}

static bool check_column(const nj_table *table, nj_column column, size_t size, nj_error *error)
{
    uint32_t greatest = 0;
    for (size_t row = 0; row < table->rows; row++) {
        uint32_t number = nj_table_at(table, column, row);
        greatest = number > greatest ? number : greatest;
    }
    return table->rows == 0 || greatest < size ||
           nj_break(error, "pool", nj_format("%u", (unsigned)greatest).text, "expected column %s below %zu", nj_column_names[column], size);
}

static bool refuse_case(const char *got, nj_error *error)
{
    return nj_break(error, "pool", got, "expected a case within its signatures and axes");
}

bool nj_check_pools(const nj_table_reader *reader, size_t image_count, nj_error *error)
{
    const nj_table *table = reader->table;
    const size_t sizes[POINTING_COLUMNS] = {
        table->case_count, table->config_count, table->hint_set_count, table->derived_value_count, table->launch_count, image_count,
    };
    if (reader->misplaced.size > 0) {
        return refuse_case(nj_quote(reader->misplaced).text, error);
    }
    for (uint32_t i = 0; i < table->case_count; i++) {
        if (table->cases[i].signature >= table->signature_count) {
            return refuse_case(nj_format("signature %u", (unsigned)table->cases[i].signature).text, error);
        }
    }
    bool right = true;
    for (int column = 0; right && column < POINTING_COLUMNS; column++) {
        right = check_column(table, (nj_column)column, sizes[column], error);
    }
    for (size_t row = 1; right && row < table->rows; row++) {
        right = ascends(table, row) || nj_break(error, "order", nj_format("row %zu", row).text,
                                                "expected rows sorted by case, config, hints and derived, each once");
    }
    return right;
}

/* Takes the next word of a program; a string may contain spaces. Returns false at the end. */
static bool next_word(nj_span *rest, nj_span *word)
{
    if (rest->size == 0) {
        return false;
    }
    unsigned char quote = rest->at[0] == '\'' || rest->at[0] == '"' ? rest->at[0] : 0;
    const unsigned char *closing = quote == 0 ? NULL : memchr(rest->at + 1, quote, rest->size - 1);
    size_t start = closing == NULL ? 0 : (size_t)(closing - rest->at);
    const unsigned char *space = memchr(rest->at + start, ' ', rest->size - start);
    size_t end = space == NULL ? rest->size : (size_t)(space - rest->at);
    *word = (nj_span){rest->at, end};
    end += space != NULL;
    *rest = (nj_span){rest->at + end, rest->size - end};
    return true;
}

/* Returns whether a word of a program is a name. */
static bool is_name(nj_span word)
{
    static const char *const others[] = {"and", "or", "true", "false", "none"};
    unsigned char lower = word.size == 0 ? 0 : word.at[0] | 0x20;
    bool is = ((lower >= 'a' && lower <= 'z') || lower == ('_' | 0x20)) && word.at[word.size - 1] != ')';
    for (size_t i = 0; is && i < sizeof others / sizeof *others; i++) {
        is = !nj_span_is(word, others[i]);
    }
    return is;
}

bool nj_check_tuning_key(const nj_table_reader *reader, nj_error *error)
{
    const nj_table *table = reader->table;
    for (uint32_t i = 0; i < table->tuning.key_count; i++) {
        nj_span rest = table->programs[table->grid_count + table->derived_count + i], word;
        while (next_word(&rest, &word)) {
            if (is_name(word) && !is_runtime_param(reader, word)) {
                return nj_break(error, "param", nj_quote(word).text, "expected a tuning key of runtime params alone");
            }
        }
    }
    return true;
}
