/* Setting a call against a table: which of its types, axes and configs fit. */
#include "select/eligible.h"

#include "select/hint.h"
#include "select/setting.h"

#include <stdlib.h>

/* Kinds of arguments: what a type takes that takes some value of the kind. */
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

/* Whether no manifest line could make the kernel take an argument. */
static bool is_hopeless(const nj_param_types *param, const nj_value *value)
{
    uint16_t kinds = 0;
    for (int i = 0; i < param->type_count; i++) {
        kinds |= param->types[i].tags;
    }
    return param->type_count > 0 && value->tag != NJ_TAG_NONE && (kinds & kind_of(value)) == 0;
}

/* Whether a name is that of an axis. */
static bool is_axis(const nj_table *table, nj_span name)
{
    for (uint32_t i = 0; i < table->axis_count; i++) {
        if (nj_span_equal(table->axes[i].name, name)) {
            return true;
        }
    }
    return false;
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

/* The name of a place: of a param, or of an option behind them. */
static nj_span name_at(const nj_choice *choice, size_t place)
{
    const nj_table *table = choice->typing->table;
    return place < table->param_count ? table->params[place].name : choice->call->options[place - table->param_count];
}

static size_t count_places(const nj_choice *choice)
{
    return choice->typing->table->param_count + choice->call->option_count;
}

/* Refuses constexprs and options that no call can give. */
static nj_verdict check_names(const nj_choice *choice, nj_fault *fault)
{
    const nj_table *table = choice->typing->table;
    for (size_t place = 0; place < count_places(choice); place++) {
        if (choice->call->given[place] == NULL) {
            continue;
        }
        fault->place = (uint32_t)place;
        if (is_derived(table, name_at(choice, place))) {
            return NJ_DERIVED_GIVEN;
        }
        if (place >= table->param_count && !has_option(table, name_at(choice, place))) {
            return NJ_UNKNOWN_NAME;
        }
    }
    return NJ_SERVED;
}

/* Finds which types take each argument. */
static nj_verdict find_takers(nj_choice *choice, nj_fault *fault)
{
    const nj_typing *typing = choice->typing;
    for (uint32_t i = 0; i < typing->table->runtime_count; i++) {
        const nj_param_types *param = &typing->params[i];
        const nj_value *value = &choice->call->arguments.values[param->place];
        choice->takers[i] = nj_takers(param, value, &choice->call->arguments);
        if (choice->takers[i] == 0 && is_hopeless(param, value)) {
            fault->place = param->place;
            return NJ_WRONG_KIND;
        }
    }
    return NJ_SERVED;
}

/* Finds what each given constexpr stands for; false without memory. */
static bool find_meant(nj_choice *choice)
{
    const nj_table *table = choice->typing->table;
    bool found = true;
    for (size_t place = 0; found && place < count_places(choice); place++) {
        const nj_constant *given = choice->call->given[place];
        if (given == NULL) {
            continue;
        }
        choice->resolved[place] = *given;
        if (place < table->param_count && (given->kind == NJ_CONSTANT_TEXT || given->kind == NJ_CONSTANT_TUPLE)) {
            size_t count = nj_built_values(table, place, NULL, 0);
            const nj_constant **built = malloc((count + 1) * sizeof *built);
            found = built != NULL;
            if (found) {
                nj_built_values(table, place, built, count);
                found = nj_constexpr_resolve(given, built, count, &choice->items, &choice->resolved[place]);
            }
            free(built);
        }
    }
    return found;
}

/* The constexpr that a call has for a param: as given, or its default; NULL if it has none. */
static const nj_constant *value_at(const nj_choice *choice, size_t place)
{
    const nj_param *param = &choice->typing->table->params[place];
    if (choice->call->given[place] != NULL) {
        return &choice->resolved[place];
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

/* The place of a param by its name; the number of params if there is none. */
static size_t param_place(const nj_table *table, nj_span name)
{
    size_t place = 0;
    while (place < table->param_count && !nj_span_equal(table->params[place].name, name)) {
        place++;
    }
    return place;
}

/* Finds what the call means on each axis. */
static nj_verdict find_wanted(nj_choice *choice, nj_fault *fault)
{
    const nj_table *table = choice->typing->table;
    for (uint32_t i = 0; i < table->axis_count; i++) {
        const nj_axis *axis = &table->axes[i];
        choice->wanted[i] = NJ_TYPES_ONLY;
        if (axis->is_type) {
            continue;
        }
        size_t place = param_place(table, axis->name);
        const nj_constant *value = place < table->param_count ? value_at(choice, place) : NULL;
        if (value == NULL) {
            fault->place = i;
            return NJ_VALUE_MISSING;
        }
        choice->wanted[i] = find_value(axis, value);
    }
    return NJ_SERVED;
}

static void find_fitting(nj_choice *choice)
{
    const nj_typing *typing = choice->typing;
    const size_t runtime = typing->table->runtime_count;
    for (uint32_t number = 0; number < typing->table->signature_count; number++) {
        const uint8_t *types = &typing->numbers[number * runtime];
        bool fits = true;
        for (size_t i = 0; fits && i < runtime; i++) {
            fits = choice->takers[i] >> types[i] & 1;
        }
        choice->fits[number] = fits;
    }
}

/* Whether the types of a param that fitting signatures have say one thing of what is pointed to; `leaf` is -1 for the argument
 * itself. */
static bool points_to_one(const nj_choice *choice, uint32_t number, int leaf)
{
    const nj_typing *typing = choice->typing;
    uint64_t types = 0;
    uint32_t pointees = 0;
    for (uint32_t i = 0; i < typing->table->signature_count; i++) {
        types |= choice->fits[i] ? UINT64_C(1) << typing->numbers[(size_t)i * typing->table->runtime_count + number] : 0;
    }
    for (int i = 0; i < typing->params[number].type_count; i++) {
        const nj_type *type = &typing->params[number].types[i];
        pointees |= types >> i & 1 ? UINT32_C(1) << (leaf < 0 ? type->pointee : type->entries[leaf].pointee) : 0;
    }
    return (pointees & (pointees - 1)) == 0;
}

static bool is_untyped(const nj_value *value)
{
    return value->tag == NJ_TAG_POINTER && value->dtype == NJ_DTYPE_NONE;
}

/* Refuses addresses that leave open what decides. */
static nj_verdict check_untyped(const nj_choice *choice, nj_fault *fault)
{
    const nj_typing *typing = choice->typing;
    for (uint32_t i = 0; i < typing->table->runtime_count; i++) {
        const nj_value *value = &choice->call->arguments.values[typing->params[i].place];
        bool one = !is_untyped(value) || points_to_one(choice, i, -1);
        if (value->tag == NJ_TAG_TUPLE) {
            const nj_value *leaves = &choice->call->arguments.leaves[nj_tuple_start(value)];
            for (int leaf = 0; one && leaf < nj_tuple_entries(value); leaf++) {
                one = !is_untyped(&leaves[leaf]) || points_to_one(choice, i, leaf);
            }
        }
        if (!one) {
            fault->place = typing->params[i].place;
            return NJ_UNTYPED;
        }
    }
    return NJ_SERVED;
}

bool nj_choice_asks(const nj_choice *choice, size_t place)
{
    const nj_table *table = choice->typing->table;
    return choice->call->given[place] != NULL && (place >= table->param_count || !is_axis(table, table->params[place].name));
}

/* The value that a config was built with; NULL if it sets none. */
static const nj_constant *built_with(const nj_choice *choice, const nj_config *config, size_t place)
{
    const nj_table *table = choice->typing->table;
    const nj_constant *value = nj_config_value(config, name_at(choice, place));
    if (value == NULL && place < table->param_count && table->params[place].is_constexpr && table->params[place].has_default) {
        return &table->params[place].fallback;
    }
    return value;
}

bool nj_choice_sets(const nj_choice *choice, uint32_t config, size_t place)
{
    const nj_constant *built = built_with(choice, &choice->typing->table->configs[config], place);
    return built != NULL && nj_constant_same(built, &choice->resolved[place]);
}

/* Whether a config is one that the caller's own settings allow. */
bool nj_choice_allows(nj_choice *choice, uint32_t config)
{
    if (choice->sets && choice->allowed[config] == NJ_NOT_ASKED) {
        bool allowed = true;
        for (size_t place = 0; allowed && place < count_places(choice); place++) {
            allowed = !nj_choice_asks(choice, place) || nj_choice_sets(choice, config, place);
        }
        choice->allowed[config] = allowed ? NJ_YES : NJ_NO;
    }
    return !choice->sets || choice->allowed[config] == NJ_YES;
}

static bool make_room(nj_choice *choice)
{
    const nj_table *table = choice->typing->table;
    choice->takers = calloc((size_t)table->runtime_count + 1, sizeof *choice->takers);
    choice->resolved = calloc(count_places(choice) + 1, sizeof *choice->resolved);
    choice->wanted = calloc((size_t)table->axis_count + 1, sizeof *choice->wanted);
    choice->fits = calloc((size_t)table->signature_count + 1, sizeof *choice->fits);
    choice->allowed = calloc((size_t)table->config_count + 1, 1);
    choice->held = calloc((size_t)table->hint_set_count + 1, 1);
    choice->states = calloc((size_t)table->config_count + 1, sizeof *choice->states);
    choice->derived = calloc((size_t)table->derived_count + 1, sizeof *choice->derived);
    return choice->takers != NULL && choice->resolved != NULL && choice->wanted != NULL && choice->fits != NULL &&
           choice->allowed != NULL && choice->held != NULL && choice->states != NULL && choice->derived != NULL;
}

nj_verdict nj_choice_open(nj_choice *choice, const nj_typing *typing, const nj_passed *call, nj_fault *fault)
{
    *choice = (nj_choice){.typing = typing, .call = call};
    *fault = (nj_fault){0};
    if (!make_room(choice)) {
        return NJ_NO_MEMORY;
    }
    nj_verdict outcome = check_names(choice, fault);
    outcome = outcome == NJ_SERVED ? find_takers(choice, fault) : outcome;
    if (outcome == NJ_SERVED && !find_meant(choice)) {
        return NJ_NO_MEMORY;
    }
    outcome = outcome == NJ_SERVED ? find_wanted(choice, fault) : outcome;
    if (outcome == NJ_SERVED) {
        find_fitting(choice);
        outcome = check_untyped(choice, fault);
    }
    for (size_t place = 0; outcome == NJ_SERVED && place < count_places(choice); place++) {
        choice->sets |= nj_choice_asks(choice, place);
    }
    return outcome;
}

void nj_choice_close(nj_choice *choice)
{
    for (uint32_t i = 0; choice->states != NULL && i < choice->typing->table->config_count; i++) {
        free(choice->states[i].derived);
    }
    nj_resolved_free(choice->items);
    free(choice->takers);
    free(choice->resolved);
    free(choice->wanted);
    free(choice->fits);
    free(choice->allowed);
    free(choice->held);
    free(choice->states);
    free(choice->derived);
}

bool nj_choice_on_axis(const nj_choice *choice, uint32_t case_number, uint32_t axis)
{
    int64_t wanted = choice->wanted[axis];
    return wanted == NJ_TYPES_ONLY || choice->typing->table->cases[case_number].places[axis] == wanted;
}

/* Whether the point of a case is the call's. */
bool nj_choice_at_point(const nj_choice *choice, uint32_t case_number)
{
    bool at = true;
    for (uint32_t axis = 0; at && axis < choice->typing->table->axis_count; axis++) {
        at = nj_choice_on_axis(choice, case_number, axis);
    }
    return at;
}

nj_found_name nj_choice_name(const nj_choice *choice, uint32_t case_number, uint32_t config, nj_span name)
{
    const nj_table *table = choice->typing->table;
    if (choice->call->arch != 0 && nj_span_is(name, "arch")) {
        return (nj_found_name){.kind = NJ_NAME_ARCH};
    }
    const nj_constant *value = nj_config_value(&table->configs[config], name);
    if (value != NULL) {
        return (nj_found_name){.kind = NJ_NAME_CONSTANT, .constant = value};
    }
    const nj_known_name *known = nj_typing_find(choice->typing, name);
    if (known->name.at == NULL) {
        return (nj_found_name){.kind = NJ_NAME_UNKNOWN};
    }
    if (known->place < 0) {
        uint32_t axis = (uint32_t)(-1 - known->place);
        value = &table->axes[axis].values[table->cases[case_number].places[axis]];
        return (nj_found_name){.kind = NJ_NAME_CONSTANT, .constant = value, .is_type = table->axes[axis].is_type};
    }
    const nj_param *param = &table->params[known->place];
    if (!param->is_constexpr) {
        return (nj_found_name){.kind = NJ_NAME_ARGUMENT, .place = (uint32_t)known->place};
    }
    return (nj_found_name){.kind = param->has_default ? NJ_NAME_CONSTANT : NJ_NAME_UNKNOWN, .constant = &param->fallback};
}

/* Whether a set of derived values is what a call comes to. */
bool nj_choice_derives(const nj_choice *choice, uint32_t number, const nj_value *results)
{
    const nj_table *table = choice->typing->table;
    bool right = true;
    for (uint32_t i = 0; right && i < table->derived_count; i++) {
        right = nj_choice_is_result(choice, &results[i], &table->derived_values[number][i]);
    }
    return right;
}

/* The argument at a leaf path, x or x.1.0; NULL if the call's tuples have none there. */
static const nj_value *leaf_at(const nj_typing *typing, const nj_arguments *arguments, nj_span path)
{
    const unsigned char *end = path.at + path.size, *dot = memchr(path.at, '.', path.size);
    const nj_known_name *known = nj_typing_find(typing, (nj_span){path.at, dot == NULL ? path.size : (size_t)(dot - path.at)});
    /* a param hides behind an axis of its name, and is looked for among the params then */
    size_t place = known->place >= 0 ? (size_t)known->place : param_place(typing->table, known->name);
    if (known->name.at == NULL || place >= typing->table->param_count || typing->table->params[place].is_constexpr) {
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

bool nj_hint_holds(const nj_typing *typing, const nj_arguments *arguments, const nj_hint *hint)
{
    const nj_value *value = leaf_at(typing, arguments, hint->leaf);
    return value != NULL && (nj_hints_of(value) >> (hint->value == 1) & 1) != 0;
}

bool nj_choice_hinted(nj_choice *choice, uint32_t number)
{
    const nj_hint_set *set = &choice->typing->table->hint_sets[number];
    if (choice->held[number] == NJ_NOT_ASKED) {
        bool holds = true;
        for (uint32_t i = 0; holds && i < set->count; i++) {
            holds = nj_hint_holds(choice->typing, &choice->call->arguments, &set->hints[i]);
        }
        choice->held[number] = holds ? NJ_YES : NJ_NO;
    }
    return choice->held[number] == NJ_YES;
}

nj_stage nj_choice_stage(nj_choice *choice, size_t row)
{
    const nj_table *table = choice->typing->table;
    uint32_t case_number = nj_table_at(table, NJ_COLUMN_CASE, row), config = nj_table_at(table, NJ_COLUMN_CONFIG, row);
    if (!choice->fits[table->cases[case_number].signature]) {
        return NJ_STAGE_TYPES;
    }
    if (!nj_choice_at_point(choice, case_number)) {
        return NJ_STAGE_MATRIX;
    }
    if (!nj_choice_allows(choice, config)) {
        return NJ_STAGE_SETTINGS;
    }
    if (!nj_choice_requires(choice, case_number, config)) {
        return NJ_STAGE_REQUIRES;
    }
    if (!nj_choice_derives(choice, nj_table_at(table, NJ_COLUMN_DERIVED, row), nj_choice_derive(choice, case_number, config))) {
        return NJ_STAGE_DERIVED;
    }
    return nj_choice_hinted(choice, nj_table_at(table, NJ_COLUMN_HINTS, row)) ? NJ_STAGE_SERVES : NJ_STAGE_HINTS;
}
