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

/* Computes an expression: all its names stand for ints, so that one constant is left of it, unless something fails. */
static int64_t cost_of(nj_span text, const nj_cost_facts *facts)
{
    nj_assembly made;
    bool whole = nj_assemble(text, find_fact, (void *)facts, SIZE_MAX, &made);
    return whole && made.length == 1 && made.code[0].op == NJ_OP_CONST_INT ? made.code[0].operand : INT64_MAX;
}

int nj_next_cost(nj_json *json, bool first, const nj_cost_facts *facts, nj_cost *cost)
{
    nj_span text;
    if (first && !nj_json_char(json, '[')) {
        return -1;
    }
    int more = nj_json_item(json, first);
    if (more <= 0) {
        return more;
    }
    if (!nj_json_char(json, '[') || !nj_json_count(json, 0, INT64_MAX, &cost->config) || !nj_json_char(json, ',') ||
        !nj_json_text(json, NJ_TEXT_MAX, &text) || !nj_json_char(json, ']')) {
        return -1;
    }
    cost->picoseconds = cost_of(text, facts);
    return 1;
}
