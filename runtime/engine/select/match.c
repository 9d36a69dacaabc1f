/* Matches a call against a table. */
#include "select/serving_rules.h"

#include "table/find_by_name.h"

#include <stdlib.h>

/* Returns the kind of an argument: the tags that a type accepts if it accepts any value of the kind. */
static uint16_t kind_of(const nj_value *value)
{
    const uint16_t ints = NJ_BIT(NJ_TAG_INT) | NJ_BIT(NJ_TAG_UINT);
    switch (value->tag) {
    case NJ_TAG_INT:
    case NJ_TAG_UINT: return ints;
    case NJ_TAG_UNKNOWN:
        return value->bits == NJ_UNKNOWN_INT ? ints : value->bits == NJ_UNKNOWN_CONSTANT ? NJ_BIT(NJ_TAG_CONSTANT) : 0;
    default: return NJ_BIT(value->tag);
    }
}

/* Returns whether the types of a param accept no value of an argument's kind. False for None. */
static bool is_hopeless(const nj_param_types *param, const nj_value *value)
{
    uint16_t kinds = 0;
    for (int i = 0; i < param->type_count; i++) {
        kinds |= param->types[i].tags;
    }
    return param->type_count > 0 && value->tag != NJ_TAG_NONE && (kinds & kind_of(value)) == 0;
}

static bool is_derived(const nj_table *table, nj_span name)
{
    for (uint32_t i = 0; i < table->derived_count; i++) {
        if (nj_span_equal(table->derived[i].name, name)) {
            return true;
        }
    }
    return false;
}

static bool has_option(const nj_table *table, nj_span name)
{
    for (uint32_t i = 0; i < table->config_count; i++) {
        if (nj_setting_value(table->configs[i].options, table->configs[i].option_count, name) != NULL) {
            return true;
        }
    }
    return false;
}

nj_span nj_match_name_at(const nj_match *match, size_t place)
{
    const nj_table *table = match->signatures->table;
    return place < table->param_count ? table->params[place].name : match->call->options[place - table->param_count];
}

size_t nj_match_places(const nj_match *match)
{
    return match->signatures->table->param_count + match->call->option_count;
}

/* Refuses derived constexprs and unknown options that the caller gives. */
static nj_verdict check_names(const nj_match *match, nj_fault *fault)
{
    const nj_table *table = match->signatures->table;
    for (size_t place = 0; place < nj_match_places(match); place++) {
        if (match->call->given[place] == NULL) {
            continue;
        }
        fault->place = (uint32_t)place;
        if (is_derived(table, nj_match_name_at(match, place))) {
            return NJ_DERIVED_GIVEN;
        }
        if (place >= table->param_count && !has_option(table, nj_match_name_at(match, place))) {
            return NJ_UNKNOWN_NAME;
        }
    }
    return NJ_SERVED;
}

/* Finds the types that accept each argument. */
static nj_verdict find_takers(nj_match *match, nj_fault *fault)
{
    const nj_signatures *signatures = match->signatures;
    for (uint32_t i = 0; i < signatures->table->runtime_count; i++) {
        const nj_param_types *param = &signatures->params[i];
        const nj_value *value = &match->call->arguments.values[param->place];
        match->takers[i] = nj_takers(param, value, &match->call->arguments);
        if (match->takers[i] == 0 && is_hopeless(param, value)) {
            fault->place = param->place;
            return NJ_WRONG_KIND;
        }
    }
    return NJ_SERVED;
}

/* Resolves each given constexpr; false without memory. */
static bool find_meant(nj_match *match)
{
    const nj_table *table = match->signatures->table;
    bool found = true;
    for (size_t place = 0; found && place < nj_match_places(match); place++) {
        const nj_constant *given = match->call->given[place];
        if (given == NULL) {
            continue;
        }
        match->resolved[place] = *given;
        if (place < table->param_count && (given->kind == NJ_CONSTANT_TEXT || given->kind == NJ_CONSTANT_TUPLE)) {
            size_t count = nj_built_values(table, place, NULL, 0);
            const nj_constant **built = malloc((count + 1) * sizeof *built);
            found = built != NULL;
            if (found) {
                nj_built_values(table, place, built, count);
                found = nj_constexpr_resolve(given, built, count, &match->items, &match->resolved[place]);
            }
            free(built);
        }
    }
    return found;
}

/* Returns the value of a constexpr: the given one, or else the default; NULL if there is neither. */
static const nj_constant *value_at(const nj_match *match, size_t place)
{
    const nj_param *param = &match->signatures->table->params[place];
    if (match->call->given[place] != NULL) {
        return &match->resolved[place];
    }
    return param->is_constexpr && param->has_default ? &param->fallback : NULL;
}

static int64_t find_value(const nj_axis *axis, const nj_constant *value)
{
    for (uint32_t i = 0; i < axis->count; i++) {
        if (nj_constant_same(&axis->values[i], value)) {
            return i;
        }
    }
    return NJ_NOT_BUILT;
}

/* Finds the number of the call's value on each axis. */
static nj_verdict find_wanted(nj_match *match, nj_fault *fault)
{
    const nj_table *table = match->signatures->table;
    for (uint32_t i = 0; i < table->axis_count; i++) {
        const nj_axis *axis = &table->axes[i];
        match->wanted[i] = NJ_TYPES_ONLY;
        if (axis->is_type) {
            continue;
        }
        size_t place = nj_param_place(table, axis->name);
        const nj_constant *value = place < table->param_count ? value_at(match, place) : NULL;
        if (value == NULL) {
            fault->place = i;
            return NJ_VALUE_MISSING;
        }
        match->wanted[i] = find_value(axis, value);
    }
    return NJ_SERVED;
}

static void find_fitting(nj_match *match)
{
    const nj_signatures *signatures = match->signatures;
    const size_t runtime = signatures->table->runtime_count;
    for (uint32_t number = 0; number < signatures->table->signature_count; number++) {
        const uint8_t *types = &signatures->numbers[number * runtime];
        bool fits = true;
        for (size_t i = 0; fits && i < runtime; i++) {
            fits = match->takers[i] >> types[i] & 1;
        }
        match->fits[number] = fits;
    }
}

/* Returns whether all fitting signatures have the same dtype behind a pointer: a param's member `leaf`, or the param itself if `leaf`
 * is -1. */
static bool points_to_one(const nj_match *match, uint32_t number, int leaf)
{
    const nj_signatures *signatures = match->signatures;
    uint64_t types = 0;
    uint32_t pointees = 0;
    for (uint32_t i = 0; i < signatures->table->signature_count; i++) {
        types |= match->fits[i] ? UINT64_C(1) << signatures->numbers[(size_t)i * signatures->table->runtime_count + number] : 0;
    }
    for (int i = 0; i < signatures->params[number].type_count; i++) {
        const nj_type *type = &signatures->params[number].types[i];
        pointees |= types >> i & 1 ? UINT32_C(1) << (leaf < 0 ? type->pointee : type->entries[leaf].pointee) : 0;
    }
    return (pointees & (pointees - 1)) == 0;
}

static bool is_untyped(const nj_value *value)
{
    return value->tag == NJ_TAG_POINTER && value->dtype == NJ_DTYPE_NONE;
}

/* Refuses addresses without a dtype where the dtype would select the variant. */
static nj_verdict check_untyped(const nj_match *match, nj_fault *fault)
{
    const nj_signatures *signatures = match->signatures;
    for (uint32_t i = 0; i < signatures->table->runtime_count; i++) {
        const nj_value *value = &match->call->arguments.values[signatures->params[i].place];
        bool one = !is_untyped(value) || points_to_one(match, i, -1);
        if (value->tag == NJ_TAG_TUPLE) {
            const nj_value *leaves = &match->call->arguments.leaves[nj_tuple_start(value)];
            for (int leaf = 0; one && leaf < nj_tuple_entries(value); leaf++) {
                one = !is_untyped(&leaves[leaf]) || points_to_one(match, i, leaf);
            }
        }
        if (!one) {
            fault->place = signatures->params[i].place;
            return NJ_UNTYPED;
        }
    }
    return NJ_SERVED;
}

static bool make_room(nj_match *match)
{
    const nj_table *table = match->signatures->table;
    match->takers = calloc((size_t)table->runtime_count + 1, sizeof *match->takers);
    match->resolved = calloc(nj_match_places(match) + 1, sizeof *match->resolved);
    match->wanted = calloc((size_t)table->axis_count + 1, sizeof *match->wanted);
    match->fits = calloc((size_t)table->signature_count + 1, sizeof *match->fits);
    match->allowed = calloc((size_t)table->config_count + 1, 1);
    match->held = calloc((size_t)table->hint_set_count + 1, 1);
    match->states = calloc((size_t)table->config_count + 1, sizeof *match->states);
    match->derived = calloc((size_t)table->derived_count + 1, sizeof *match->derived);
    return match->takers != NULL && match->resolved != NULL && match->wanted != NULL && match->fits != NULL &&
           match->allowed != NULL && match->held != NULL && match->states != NULL && match->derived != NULL;
}

nj_verdict nj_match_open(nj_match *match, const nj_signatures *signatures, const nj_coerced_call *call, nj_fault *fault)
{
    *match = (nj_match){.signatures = signatures, .call = call};
    *fault = (nj_fault){0};
    if (!make_room(match)) {
        return NJ_NO_MEMORY;
    }
    nj_verdict verdict = check_names(match, fault);
    verdict = verdict == NJ_SERVED ? find_takers(match, fault) : verdict;
    if (verdict == NJ_SERVED && !find_meant(match)) {
        return NJ_NO_MEMORY;
    }
    verdict = verdict == NJ_SERVED ? find_wanted(match, fault) : verdict;
    if (verdict == NJ_SERVED) {
        find_fitting(match);
        verdict = check_untyped(match, fault);
    }
    for (size_t place = 0; verdict == NJ_SERVED && place < nj_match_places(match); place++) {
        match->sets |= nj_match_asks(match, place);
    }
    return verdict;
}

void nj_match_close(nj_match *match)
{
    for (uint32_t i = 0; match->states != NULL && i < match->signatures->table->config_count; i++) {
        free(match->states[i].derived);
    }
    nj_resolved_free(match->items);
    free(match->takers);
    free(match->resolved);
    free(match->wanted);
    free(match->fits);
    free(match->allowed);
    free(match->held);
    free(match->states);
    free(match->derived);
}
