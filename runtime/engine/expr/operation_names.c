#include "expr/operation_names.h"

/* The operations in the order of their numbers, which start at 1. */
const nj_operation nj_operations[NJ_OPERATION_COUNT] = {
    {"CONST_INT", NULL, NJ_OP_CONST_INT, 0, false},
    {"CONST_BOOL", NULL, NJ_OP_CONST_BOOL, 0, false},
    {"CONST_NONE", NULL, NJ_OP_CONST_NONE, 0, false},
    {"CONST_OPAQUE", NULL, NJ_OP_CONST_OPAQUE, 0, false},
    {"LOAD", NULL, NJ_OP_LOAD, 0, false},
    {"NEG", "neg()", NJ_OP_NEG, NJ_BINDS_SIGN, false},
    {"NOT", "not()", NJ_OP_NOT, NJ_BINDS_NOT, false},
    {"ADD", "+", NJ_OP_ADD, NJ_BINDS_SUM, false},
    {"SUB", "-", NJ_OP_SUB, NJ_BINDS_SUM, false},
    {"MUL", "*", NJ_OP_MUL, NJ_BINDS_PRODUCT, false},
    {"FLOORDIV", "//", NJ_OP_FLOORDIV, NJ_BINDS_PRODUCT, false},
    {"MOD", "%", NJ_OP_MOD, NJ_BINDS_PRODUCT, false},
    {"EQ", "==", NJ_OP_EQ, NJ_BINDS_COMPARISON, false},
    {"NE", "!=", NJ_OP_NE, NJ_BINDS_COMPARISON, false},
    {"LT", "<", NJ_OP_LT, NJ_BINDS_COMPARISON, false},
    {"LE", "<=", NJ_OP_LE, NJ_BINDS_COMPARISON, false},
    {"GT", ">", NJ_OP_GT, NJ_BINDS_COMPARISON, false},
    {"GE", ">=", NJ_OP_GE, NJ_BINDS_COMPARISON, false},
    {"CDIV", "cdiv()", NJ_OP_CDIV, NJ_BINDS_CALL, false},
    {"MIN", "min()", NJ_OP_MIN, NJ_BINDS_CALL, true},
    {"MAX", "max()", NJ_OP_MAX, NJ_BINDS_CALL, true},
    {"NEXT_POW2", "next_pow2()", NJ_OP_NEXT_POW2, NJ_BINDS_CALL, false},
    {"ALIGNED", "aligned()", NJ_OP_ALIGNED, NJ_BINDS_CALL, false},
    {"HAS", "has()", NJ_OP_HAS, NJ_BINDS_CALL, false},
    {"JUMP_IF_FALSE_KEEP", "and", NJ_OP_JUMP_IF_FALSE_KEEP, NJ_BINDS_AND, false},
    {"JUMP_IF_TRUE_KEEP", "or", NJ_OP_JUMP_IF_TRUE_KEEP, NJ_BINDS_OR, false},
    {"CHECK_BOOL", NULL, NJ_OP_CHECK_BOOL, 0, false},
};

_Static_assert((int)NJ_OP_CHECK_BOOL == NJ_OPERATION_COUNT, "every instruction has a row");

const nj_operation *nj_operation_of(nj_span word)
{
    for (size_t i = 0; i < NJ_OPERATION_COUNT; i++) {
        if (nj_operations[i].word != NULL && nj_span_is(word, nj_operations[i].word)) {
            return &nj_operations[i];
        }
    }
    return NULL;
}

const nj_operation *nj_function_of(nj_span name)
{
    for (size_t i = 0; i < NJ_OPERATION_COUNT; i++) {
        const nj_operation *known = &nj_operations[i];
        bool is_function = known->binding == NJ_BINDS_CALL;
        if (is_function && nj_span_equal(name, (nj_span){(const unsigned char *)known->word, strlen(known->word) - 2})) {
            return known;
        }
    }
    return NULL;
}

const char *nj_word_of(nj_op op)
{
    return nj_operations[op - 1].word;
}
