#include "select/hint.h"

#include "select/rows_best_first.h"
#include "table/find_by_name.h"

const nj_value *nj_argument_at(const nj_signatures *signatures, const nj_arguments *arguments, nj_span path)
{
    const unsigned char *end = path.at + path.size, *dot = memchr(path.at, '.', path.size);
    const nj_known_name *known = nj_signatures_find(signatures, (nj_span){path.at, dot == NULL ? path.size : (size_t)(dot - path.at)});
    /* an axis hides a param of the same name, which is then found among the params */
    size_t place = known->place >= 0 ? (size_t)known->place : nj_param_place(signatures->table, known->name);
    if (known->name.at == NULL || place >= signatures->table->param_count || signatures->table->params[place].is_constexpr) {
        return NULL;
    }
    const nj_value *value = &arguments->values[place];
    while (dot != NULL) {
        uint64_t number = 0;
        for (dot++; dot < end && *dot != '.' && number < NJ_LEAVES_MAX; dot++) {
            number = 10 * number + (uint64_t)(*dot - '0');
        }
        if (value->tag != NJ_TAG_TUPLE || number >= nj_tuple_members(value)) {
            return NULL;
        }
        value = &arguments->leaves[nj_tuple_start(value)];
        for (; number > 0; number--) {
            value += value->tag == NJ_TAG_TUPLE ? 1 + nj_tuple_entries(value) : 1;
        }
        dot = dot < end ? dot : NULL;
    }
    return value;
}

bool nj_hint_holds(const nj_signatures *signatures, const nj_arguments *arguments, const nj_hint *hint)
{
    const nj_value *value = nj_argument_at(signatures, arguments, hint->leaf);
    return value != NULL && (nj_hints_of(value) >> (hint->value == 1) & 1) != 0;
}

/* Finds the rows with the case and config of a row: `first` to before `end`. */
static void find_siblings(const nj_table *table, size_t row, size_t *first, size_t *end)
{
    uint32_t case_number = nj_table_at(table, NJ_COLUMN_CASE, row), config = nj_table_at(table, NJ_COLUMN_CONFIG, row);
    *first = nj_first_row(table, NJ_COLUMN_CASE, case_number, 0, row);
    *end = nj_first_row(table, NJ_COLUMN_CASE, case_number + 1, row, table->rows);
    *first = nj_first_row(table, NJ_COLUMN_CONFIG, config, *first, row);
    *end = nj_first_row(table, NJ_COLUMN_CONFIG, config + 1, row, *end);
}

/* Returns whether a sibling of a row has equal derived constexprs and more hints. */
static bool is_richer(const nj_table *table, size_t row, size_t other)
{
    const nj_hint_set *hints = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, row)];
    return nj_table_at(table, NJ_COLUMN_DERIVED, other) == nj_table_at(table, NJ_COLUMN_DERIVED, row) &&
           table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, other)].count > hints->count;
}

static uint32_t count_failing(const nj_signatures *signatures, const nj_arguments *arguments, const nj_hint_set *set)
{
    uint32_t failing = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        failing += !nj_hint_holds(signatures, arguments, &set->hints[i]);
    }
    return failing;
}

/* Orders hint sets of equal size by their leaves and values. */
static int compare_sets(const nj_hint_set *one, const nj_hint_set *other)
{
    for (uint32_t i = 0; i < one->count; i++) {
        nj_span a = one->hints[i].leaf, b = other->hints[i].leaf;
        int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);
        if (order == 0 && a.size == b.size) {
            order = one->hints[i].value - other->hints[i].value;
        } else if (order == 0) {
            order = a.size < b.size ? -1 : 1;
        }
        if (order != 0) {
            return order;
        }
    }
    return 0;
}

bool nj_near_hints(const nj_signatures *signatures, const nj_arguments *arguments, size_t row, uint32_t *hint_set)
{
    const nj_table *table = signatures->table;
    const nj_hint_set *nearest = NULL;
    uint32_t fewest = 0;
    size_t first, end;
    find_siblings(table, row, &first, &end);
    for (size_t other = first; other < end; other++) {
        uint32_t number = nj_table_at(table, NJ_COLUMN_HINTS, other);
        const nj_hint_set *set = &table->hint_sets[number];
        if (!is_richer(table, row, other)) {
            continue;
        }
        uint32_t failing = count_failing(signatures, arguments, set);
        bool near = failing > 0 && 2 * failing <= set->count;
        bool nearer = nearest == NULL || failing < fewest || (failing == fewest && set->count > nearest->count) ||
                      (failing == fewest && set->count == nearest->count && compare_sets(set, nearest) < 0);
        if (near && nearer) {
            nearest = set;
            fewest = failing;
            *hint_set = number;
        }
    }
    return nearest != NULL;
}
