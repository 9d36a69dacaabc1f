/* Reads expressions as manifests write them, by the grammar in docs/manifest.md, and writes them in postfix. */
#ifndef NOJIT_EXPR_INFIX_H
#define NOJIT_EXPR_INFIX_H

#include "base/internal.h"
#include "base/span.h"

/* The most characters of an expression, and levels of its operations: the text can come from a bundle that is not trusted yet. */
#define NJ_EXPRESSION_LENGTH_MAX 4096
#define NJ_EXPRESSION_HEIGHT_MAX 64

/* Why a text is no expression, and the character at which it fails: for "unexpected", the unexpected one; for "unknown function", the
 * first of the function's name. */
typedef struct {
    char what[96];
    size_t column;
} nj_syntax_error;

/* Returns the most bytes that the postfix words of a text of `size` bytes take. */
NJ_FOR_BINDING size_t nj_postfix_room(size_t size);

/* Writes a text in postfix; false if it is no expression. */
NJ_FOR_BINDING bool nj_postfix(nj_span text, char *words, size_t *length, nj_syntax_error *error);

#endif
