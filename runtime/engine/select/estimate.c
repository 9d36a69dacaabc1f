#include "select/estimate.h"

#include "expr/postfix.h"

static bool find_fact(void *context, nj_span word, nj_instruction *push)
{
    const nj_estimate_facts *facts = context;
    push->op = NJ_OP_CONST_INT;
    if (nj_span_is(word, "multiprocessors")) {
        push->operand = facts->multiprocessors;
        return true;
    }
    uint32_t number;
    bool known = nj_cost_key(word, (uint32_t)facts->key_count, &number);
    push->operand = known ? facts->key[number] : 0;
    return known;
}

int64_t nj_estimate_of(nj_span words, const nj_estimate_facts *facts)
{
    nj_assembly made;
    /* all names are constant ints, so folding leaves one constant unless an operation fails */
    bool whole = nj_assemble(words, find_fact, (void *)facts, SIZE_MAX, &made);
    return whole && made.length == 1 && made.code[0].op == NJ_OP_CONST_INT ? made.code[0].operand : INT64_MAX;
}
