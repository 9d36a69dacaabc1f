#include "select/serving_rules.h"

#include "select/hint.h"
#include "table/find_by_name.h"

bool nj_match_asks(const nj_match *match, size_t place)
{
    const nj_table *table = match->signatures->table;
    return match->call->given[place] != NULL && (place >= table->param_count || !nj_is_axis(table, table->params[place].name));
}

/* Returns the value of a config at a place: its own, or else the function's default; NULL if there is neither. */
static const nj_constant *built_with(const nj_match *match, const nj_config *config, size_t place)
{
    const nj_table *table = match->signatures->table;
    const nj_constant *value = nj_config_value(config, nj_match_name_at(match, place));
    if (value == NULL && place < table->param_count && table->params[place].is_constexpr && table->params[place].has_default) {
        return &table->params[place].fallback;
    }
    return value;
}

bool nj_match_sets(const nj_match *match, uint32_t config, size_t place)
{
    const nj_constant *built = built_with(match, &match->signatures->table->configs[config], place);
    return built != NULL && nj_constant_same(built, &match->resolved[place]);
}

bool nj_match_allows(nj_match *match, uint32_t config)
{
    if (match->sets && match->allowed[config] == NJ_NOT_ASKED) {
        bool allowed = true;
        for (size_t place = 0; allowed && place < nj_match_places(match); place++) {
            allowed = !nj_match_asks(match, place) || nj_match_sets(match, config, place);
        }
        match->allowed[config] = allowed ? NJ_YES : NJ_NO;
    }
    return !match->sets || match->allowed[config] == NJ_YES;
}

bool nj_match_on_axis(const nj_match *match, uint32_t case_number, uint32_t axis)
{
    int64_t wanted = match->wanted[axis];
    return wanted == NJ_TYPES_ONLY || match->signatures->table->cases[case_number].places[axis] == wanted;
}

bool nj_match_at_point(const nj_match *match, uint32_t case_number)
{
    bool at = true;
    for (uint32_t axis = 0; at && axis < match->signatures->table->axis_count; axis++) {
        at = nj_match_on_axis(match, case_number, axis);
    }
    return at;
}

bool nj_match_derives(const nj_match *match, uint32_t number, const nj_value *results)
{
    const nj_table *table = match->signatures->table;
    bool right = true;
    for (uint32_t i = 0; right && i < table->derived_count; i++) {
        right = nj_match_is_result(match, &results[i], &table->derived_values[number][i]);
    }
    return right;
}

bool nj_match_hinted(nj_match *match, uint32_t number)
{
    const nj_hint_set *set = &match->signatures->table->hint_sets[number];
    if (match->held[number] == NJ_NOT_ASKED) {
        bool holds = true;
        for (uint32_t i = 0; holds && i < set->count; i++) {
            holds = nj_hint_holds(match->signatures, &match->call->arguments, &set->hints[i]);
        }
        match->held[number] = holds ? NJ_YES : NJ_NO;
    }
    return match->held[number] == NJ_YES;
}

nj_rule nj_first_broken_rule(nj_match *match, size_t row)
{
    const nj_table *table = match->signatures->table;
    uint32_t case_number = nj_table_at(table, NJ_COLUMN_CASE, row), config = nj_table_at(table, NJ_COLUMN_CONFIG, row);
    if (!match->fits[table->cases[case_number].signature]) {
        return NJ_RULE_TYPES;
    }
    if (!nj_match_at_point(match, case_number)) {
        return NJ_RULE_MATRIX;
    }
    if (!nj_match_allows(match, config)) {
        return NJ_RULE_SETTINGS;
    }
    if (!nj_match_requires(match, case_number, config)) {
        return NJ_RULE_REQUIRES;
    }
    if (!nj_match_derives(match, nj_table_at(table, NJ_COLUMN_DERIVED, row), nj_match_derive(match, case_number, config))) {
        return NJ_RULE_DERIVED;
    }
    return nj_match_hinted(match, nj_table_at(table, NJ_COLUMN_HINTS, row)) ? NJ_RULE_NONE : NJ_RULE_HINTS;
}
