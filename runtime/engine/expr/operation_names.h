/* The operations of expressions: how each is written, as manifests have it and in postfix. */
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
    const char *name; /* in `Op` of runtime/expr/operations.py */
    const char *word; /* in postfix, "()" behind the name of a function; NULL for an instruction that programs alone have */
    uint8_t op;       /* the jump of `and` and of `or` */
    uint8_t binding;  /* 0 without a word */
    bool is_open;     /* whether a function takes more than two operands, too */
} nj_operation;

enum { NJ_OPERATION_COUNT = 27 };

extern NJ_FOR_BINDING const nj_operation nj_operations[NJ_OPERATION_COUNT];

/* How many operands a word of postfix takes. */
static inline size_t nj_operands(uint8_t op)
{
    return nj_is_unary(op) ? 1 : 2;
}

/* Finds an operation by its word in postfix; NULL if that names none. */
const nj_operation *nj_operation_of(nj_span word);

/* Finds a function by its name in an expression; NULL if it is none. */
const nj_operation *nj_function_of(nj_span name);

/* The word in postfix of an operation that has one. */
const char *nj_word_of(nj_op op);

#endif
