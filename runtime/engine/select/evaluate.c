/* What expressions of a table come to for a call, in a case and with a config. */
#include "select/eligible.h"

#include "expr/postfix.h"

#include <stdlib.h>

/* Where the expressions of a table are evaluated. */
typedef struct {
    nj_choice *choice;
    uint32_t case_number, config;
    bool asks_types; /* set where a program asks for an axis that only spells types */
} site;

static bool find_name(void *context, nj_span name, nj_instruction *push)
{
    site *it = context;
    if (*name.at == '\'' || *name.at == '"') {
        nj_constant text = {.kind = NJ_CONSTANT_TEXT, .text = {name.at + 1, name.size - 2}};
        return name.size >= 2 && name.at[name.size - 1] == *name.at &&
               nj_push_constant(it->choice->typing->ids, &text, push, &it->choice->starved);
    }
    nj_found_name found = nj_choice_name(it->choice, it->case_number, it->config, name);
    it->asks_types |= found.is_type;
    switch (found.kind) {
    case NJ_NAME_ARCH: *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = it->choice->call->arch}; return true;
    case NJ_NAME_ARGUMENT: *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = found.place}; return true;
    case NJ_NAME_CONSTANT: return nj_push_constant(it->choice->typing->ids, found.constant, push, &it->choice->starved);
    default: return false;
    }
}

/* Evaluates the table's program of that number; false where it fails. */
static bool evaluate(site *it, uint32_t number, nj_value *result)
{
    const nj_table *table = it->choice->typing->table;
    nj_assembly made;
    return nj_assemble(table->programs[number], find_name, it, table->param_count, &made) &&
           nj_run(&(nj_program){(uint32_t)made.length, made.code}, it->choice->call->arguments.values, result, NULL);
}

bool nj_choice_requires(nj_choice *choice, uint32_t case_number, uint32_t config)
{
    nj_config_state *state = &choice->states[config];
    int32_t program = choice->typing->table->configs[config].requires_program;
    if (program < 0 || state->requires != NJ_NOT_ASKED) {
        return program < 0 || state->requires == NJ_YES;
    }
    site it = {choice, case_number, config, false};
    nj_value result;
    bool holds = evaluate(&it, (uint32_t)program, &result) && result.tag == NJ_TAG_BOOL && result.bits != 0;
    /* the axes that are constexprs have the call's values in each case that is looked at */
    if (!it.asks_types) {
        state->requires = holds ? NJ_YES : NJ_NO;
    }
    return holds;
}

const nj_value *nj_choice_derive(nj_choice *choice, uint32_t case_number, uint32_t config)
{
    const nj_table *table = choice->typing->table;
    nj_config_state *state = &choice->states[config];
    if (state->derived != NULL) {
        return state->derived;
    }
    site it = {choice, case_number, config, false};
    for (uint32_t i = 0; i < table->derived_count; i++) {
        if (!evaluate(&it, table->grid_count + i, &choice->derived[i])) {
            choice->derived[i] = (nj_value){.tag = NJ_TAG_MISSING};
        }
    }
    if (!it.asks_types) {
        size_t bytes = table->derived_count * sizeof *choice->derived;
        state->derived = malloc(bytes + 1);
        if (state->derived != NULL) {
            memcpy(state->derived, choice->derived, bytes);
        }
    }
    return choice->derived;
}

bool nj_choice_is_result(const nj_choice *choice, const nj_value *result, const nj_constant *constant)
{
    if (result->tag == NJ_TAG_MISSING) {
        return false;
    }
    nj_value value = nj_value_seen(nj_ids_find(choice->typing->ids, constant));
    return value.tag == result->tag && (value.tag == NJ_TAG_NONE || value.bits == result->bits);
}
