/* Programs made of expressions in postfix, with constant parts computed: as runtime/expr/postfix.py says. */
#ifndef NOJIT_EXPR_POSTFIX_H
#define NOJIT_EXPR_POSTFIX_H

#include "base/internal.h"
#include "base/span.h"
#include "expr/machine.h"

/* Finds the instruction that pushes the value of a name; false if there is none. */
typedef bool (*nj_find_name)(void *context, nj_span name, nj_instruction *push);

typedef struct {
    nj_instruction code[NJ_PROGRAM_LENGTH_MAX];
    size_t length;
    size_t starts[NJ_PROGRAM_STACK_MAX]; /* of each operand on the stack, where its code starts */
    size_t depth;
} nj_assembly;

/* Makes the program of a text over so many slots; false if that is not possible. */
NJ_FOR_BINDING bool nj_assemble(nj_span text, nj_find_name find, void *context, size_t slots, nj_assembly *made);

#endif
