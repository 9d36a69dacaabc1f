/* The operations of expressions: their names in manifests, and their words in postfix. */
#ifndef NOJIT_EXPR_OPERATION_NAMES_H
#define NOJIT_EXPR_OPERATION_NAMES_H

#include "base/span.h"
#include "expr/machine.h"

/* How tightly an operation binds its operands. */
typedef enum {
    NJ_BINDS_OR = 1,
    NJ_BINDS_AND,
    NJ_BINDS_NOT,
    NJ_BINDS_COMPARISON,
    NJ_BINDS_SUM,
    NJ_BINDS_PRODUCT,
    NJ_BINDS_SIGN,
    NJ_BINDS_CALL, /* a function */
} nj_binding;

typedef struct {
    const char *name; /* the member of `Op` in runtime/expr/operations.py */
    const char *word; /* in postfix, with "()" after the name of a function; NULL for an instruction without a word */
    uint8_t op;       /* an nj_op; for `and` and `or` their jump */
    uint8_t binding;  /* 0 without a word */
    bool is_open;     /* whether a function also takes more than two operands */
} nj_operation;

enum { NJ_OPERATION_COUNT = 27 };

extern NJ_FOR_BINDING const nj_operation nj_operations[NJ_OPERATION_COUNT];

/* Returns the number of operands of a word in postfix. */
static inline size_t nj_operands(uint8_t op)
{
    return nj_is_unary(op) ? 1 : 2;
}

/* Finds an operation by its word in postfix; NULL if that names none. */
const nj_operation *nj_operation_of(nj_span word);

/* Finds a function by its name in an expression; NULL if it is none. */
const nj_operation *nj_function_of(nj_span name);

/* Returns the word in postfix of an operation that has one. */
const char *nj_word_of(nj_op op);

#endif
