#include "table/work_limits.h"

#include "table/expression_programs.h"
#include "table/table_reader.h"

#include <stdlib.h>

static bool hold(uint64_t number, uint64_t most, const char *what, nj_error *error)
{
    return number <= most || nj_break(error, "size", nj_format("%llu", (unsigned long long)number).text, "expected at most %llu %s",
                                      (unsigned long long)most, what);
}

static size_t signature_chars(const nj_table *table, uint32_t number)
{
    size_t count = 0;
    for (uint32_t i = 0; i < table->runtime_count; i++) {
        count += nj_chars(table->signatures[number][i]);
    }
    return count;
}

static size_t longest_signature(const nj_table *table)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < table->signature_count; i++) {
        size_t count = signature_chars(table, i);
        longest = count > longest ? count : longest;
    }
    return longest;
}

/* The state of counting the distinct points of cases on some type axes. */
typedef struct {
    const nj_table *table;
    uint32_t *order, *sorted; /* the cases as sorted so far, and room to sort them by the next axis */
    uint32_t *starts;         /* for each place of an axis: the index of its next case in `sorted` */
    uint64_t known_axes;      /* the axes that were counted last, as bits */
    uint32_t known_points;
} nj_points;

static uint32_t place_of(const nj_points *points, uint32_t number, uint32_t axis)
{
    return points->table->cases[number].places[axis];
}

/* Sorts the cases by their place on an axis; ties keep their order. */
static void sort_by(nj_points *points, uint32_t axis)
{
    const nj_table *table = points->table;
    uint32_t places = table->axes[axis].count, start = 0;
    memset(points->starts, 0, sizeof *points->starts * places);
    for (uint32_t i = 0; i < table->case_count; i++) {
        points->starts[place_of(points, i, axis)]++;
    }
    for (uint32_t place = 0; place < places; place++) {
        uint32_t count = points->starts[place];
        points->starts[place] = start;
        start += count;
    }
    for (uint32_t i = 0; i < table->case_count; i++) {
        points->sorted[points->starts[place_of(points, points->order[i], axis)]++] = points->order[i];
    }
    uint32_t *order = points->order;
    points->order = points->sorted;
    points->sorted = order;
}

static bool same_point(const nj_points *points, uint32_t one, uint32_t other, uint64_t axes)
{
    bool same = true;
    for (uint32_t axis = 0; same && axis < points->table->axis_count; axis++) {
        same = (axes >> axis & 1) == 0 || place_of(points, one, axis) == place_of(points, other, axis);
    }
    return same;
}

/* Returns the number of distinct points of cases on some axes, given as bits; 1 for no axes. */
static uint32_t count_points(nj_points *points, uint64_t axes)
{
    const nj_table *table = points->table;
    if (axes == points->known_axes) {
        return points->known_points;
    }
    for (uint32_t i = 0; i < table->case_count; i++) {
        points->order[i] = i;
    }
    for (uint32_t axis = 0; axis < table->axis_count; axis++) {
        if ((axes >> axis & 1) != 0) {
            sort_by(points, axis);
        }
    }
    uint32_t count = 1;
    for (uint32_t i = 1; i < table->case_count; i++) {
        count += !same_point(points, points->order[i - 1], points->order[i], axes);
    }
    points->known_axes = axes;
    points->known_points = count;
    return count;
}

static bool contains(nj_span text, nj_span word)
{
    const unsigned char *at = text.at, *end = text.at + text.size;
    while ((size_t)(end - at) >= word.size && (at = memchr(at, word.at[0], (size_t)(end - at) - word.size + 1)) != NULL) {
        if (memcmp(at, word.at, word.size) == 0) {
            return true;
        }
        at++;
    }
    return false;
}

/* Returns the type axes that an expression names, as bits. A name within another word counts too, which can only raise the result. */
static uint64_t axes_in(const nj_table *table, nj_span text)
{
    uint64_t axes = 0;
    for (uint32_t axis = 0; axis < table->axis_count; axis++) {
        if (table->axes[axis].is_type && contains(text, table->axes[axis].name)) {
            axes |= (uint64_t)1 << axis;
        }
    }
    return axes;
}

typedef struct {
    uint64_t choosing, naming;
} nj_work;

/* Adds the work of an expression that is evaluated for `configs` configs. */
static bool add_work(nj_points *points, nj_span text, uint64_t configs, nj_work *work, nj_error *error)
{
    uint64_t chars = nj_chars(text), count = count_points(points, axes_in(points->table, text));
    work->choosing += chars * configs * count;
    work->naming += count > 1 ? chars : 0;
    return hold(work->choosing, NJ_CHOOSING_WORK_MAX, "characters of expressions over all configs and points", error);
}

static bool check_choosing(nj_points *points, nj_error *error)
{
    const nj_table *table = points->table;
    nj_work work = {0};
    bool right = true;
    for (uint32_t i = 0; right && i < table->derived_count; i++) {
        right = add_work(points, table->derived[i].expression, table->config_count, &work, error);
    }
    for (uint32_t i = 0; right && i < table->config_count; i++) {
        right = table->configs[i].requires.size == 0 || add_work(points, table->configs[i].requires, 1, &work, error);
    }
    return right && hold(table->rows * work.naming, NJ_NAMING_WORK_MAX, "rows times characters of expressions that name a type axis", error);
}

bool nj_check_work(const nj_table *table, size_t raw_bytes, nj_error *error)
{
    size_t times = table->rows > table->config_count ? table->rows : table->config_count, places = 1;
    if (raw_bytes <= NJ_SMALL_WORK && times * raw_bytes <= NJ_SMALL_WORK) {
        return true;
    }
    if (!hold(nj_expression_chars(table), NJ_EXPRESSION_CHARS_MAX, "characters of expressions", error) ||
        !hold(table->rows * longest_signature(table), NJ_TYPED_WORK_MAX, "rows times characters of the longest signature", error)) {
        return false;
    }
    for (uint32_t axis = 0; axis < table->axis_count; axis++) {
        places = table->axes[axis].count > places ? table->axes[axis].count : places;
    }
    uint32_t *numbers = malloc(sizeof *numbers * (2 * (size_t)table->case_count + places));
    if (numbers == NULL) {
        return nj_no_memory(error);
    }
    nj_points points = {table, numbers, numbers + table->case_count, numbers + 2 * (size_t)table->case_count, 0, 1};
    bool right = check_choosing(&points, error);
    free(numbers);
    return right;
}
