#include "select/costs.h"

#include "expr/postfix.h"

static bool find_fact(void *context, nj_span word, nj_instruction *push)
{
    const nj_cost_facts *facts = context;
    push->op = NJ_OP_CONST_INT;
    if (nj_span_is(word, "multiprocessors")) {
        push->operand = facts->multiprocessors;
        return true;
    }
    size_t number = word.size == 4 && memcmp(word.at, "key", 3) == 0 ? (size_t)word.at[3] - '0' : SIZE_MAX;
    push->operand = number < facts->key_count ? facts->key[number] : 0;
    return number < facts->key_count;
}

int64_t nj_cost_of(nj_span words, const nj_cost_facts *facts)
{
    nj_assembly made;
    /* all its names stand for ints, so that one constant is left of it, unless something fails */
    bool whole = nj_assemble(words, find_fact, (void *)facts, SIZE_MAX, &made);
    return whole && made.length == 1 && made.code[0].op == NJ_OP_CONST_INT ? made.code[0].operand : INT64_MAX;
}
