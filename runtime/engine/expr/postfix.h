/* Makes programs from expressions in postfix, and folds constants. */
#ifndef NOJIT_EXPR_POSTFIX_H
#define NOJIT_EXPR_POSTFIX_H

#include "base/internal.h"
#include "base/span.h"
#include "expr/machine.h"

/* Finds the instruction that pushes the value of a name; false if the name is unknown. */
typedef bool (*nj_find_name)(void *context, nj_span name, nj_instruction *push);

typedef struct {
    nj_instruction code[NJ_PROGRAM_LENGTH_MAX];
    size_t length;
    size_t starts[NJ_PROGRAM_STACK_MAX]; /* for each operand on the stack: where its code starts */
    size_t depth;
} nj_assembly;

/* Makes the program of a text over `slots` slots. Returns false if the text is not valid, a name is unknown or a limit is exceeded. */
NJ_FOR_BINDING bool nj_assemble(nj_span text, nj_find_name find, void *context, size_t slots, nj_assembly *made);

#endif
