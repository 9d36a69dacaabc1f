/* Evaluates `requires` and derived constexprs for a call, in a case and with a config: two rules of serving_rules.h. */
#include "select/serving_rules.h"

#include "expr/postfix.h"
#include "table/find_by_name.h"

#include <stdlib.h>

nj_found_name nj_match_name(const nj_match *match, uint32_t case_number, uint32_t config, nj_span name)
{
    const nj_table *table = match->signatures->table;
    if (match->call->arch != 0 && nj_span_is(name, "arch")) {
        return (nj_found_name){.kind = NJ_NAME_ARCH};
    }
    const nj_constant *value = nj_config_value(&table->configs[config], name);
    if (value != NULL) {
        return (nj_found_name){.kind = NJ_NAME_CONSTANT, .constant = value};
    }
    const nj_known_name *known = nj_signatures_find(match->signatures, name);
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

/* The call, case and config for which expressions are evaluated. */
typedef struct {
    nj_match *match;
    uint32_t case_number, config;
    bool asks_types; /* set if a program reads an axis of types only */
} site;

static bool find_name(void *context, nj_span name, nj_instruction *push)
{
    site *it = context;
    if (nj_is_quoted(name)) {
        return nj_push_quoted(it->match->signatures->ids, name, push, &it->match->starved);
    }
    nj_found_name found = nj_match_name(it->match, it->case_number, it->config, name);
    it->asks_types |= found.is_type;
    switch (found.kind) {
    case NJ_NAME_ARCH: *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = it->match->call->arch}; return true;
    case NJ_NAME_ARGUMENT: *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = found.place}; return true;
    case NJ_NAME_CONSTANT: return nj_push_constant(it->match->signatures->ids, found.constant, push, &it->match->starved);
    default: return false;
    }
}

/* Evaluates program `number` of the table; false if it fails. */
static bool evaluate(site *it, uint32_t number, nj_value *result)
{
    const nj_table *table = it->match->signatures->table;
    nj_assembly made;
    return nj_assemble(table->programs[number], find_name, it, table->param_count, &made) &&
           nj_run(&(nj_program){(uint32_t)made.length, made.code}, it->match->call->arguments.values, result, NULL);
}

bool nj_match_requires(nj_match *match, uint32_t case_number, uint32_t config)
{
    nj_config_state *state = &match->states[config];
    int32_t program = match->signatures->table->configs[config].requires_program;
    if (program < 0 || state->requires != NJ_NOT_ASKED) {
        return program < 0 || state->requires == NJ_YES;
    }
    site it = {match, case_number, config, false};
    nj_value result;
    bool holds = evaluate(&it, (uint32_t)program, &result) && result.tag == NJ_TAG_BOOL && result.bits != 0;
    /* every case in question has the call's values on the axes of constexprs, so the result holds for all of them */
    if (!it.asks_types) {
        state->requires = holds ? NJ_YES : NJ_NO;
    }
    return holds;
}

const nj_value *nj_match_derive(nj_match *match, uint32_t case_number, uint32_t config)
{
    const nj_table *table = match->signatures->table;
    nj_config_state *state = &match->states[config];
    if (state->derived != NULL) {
        return state->derived;
    }
    site it = {match, case_number, config, false};
    for (uint32_t i = 0; i < table->derived_count; i++) {
        if (!evaluate(&it, table->grid_count + i, &match->derived[i])) {
            match->derived[i] = (nj_value){.tag = NJ_TAG_MISSING};
        }
    }
    if (!it.asks_types) {
        size_t bytes = table->derived_count * sizeof *match->derived;
        state->derived = malloc(bytes + 1);
        if (state->derived != NULL) {
            memcpy(state->derived, match->derived, bytes);
        }
    }
    return match->derived;
}

bool nj_match_is_result(const nj_match *match, const nj_value *result, const nj_constant *constant)
{
    if (result->tag == NJ_TAG_MISSING) {
        return false;
    }
    nj_value value = nj_value_seen(nj_ids_find(match->signatures->ids, constant));
    return value.tag == result->tag && (value.tag == NJ_TAG_NONE || value.bits == result->bits);
}
