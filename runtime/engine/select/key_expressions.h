/* Which expressions over a call can matter to a kernel. */
#ifndef NOJIT_SELECT_KEY_EXPRESSIONS_H
#define NOJIT_SELECT_KEY_EXPRESSIONS_H

#include "select/spec.h"

/* Fills the programs of a spec: the distinct `requires` and derived constexprs of a kernel's configs that depend on a call's
 * arguments, with the values of configs in place. Constexprs of the matrix stay names: their values are in the key anyway. False
 * with `error` filled. */
bool nj_spec_find_expressions(nj_spec *spec, nj_error *error);

/* Says why no program could be made of an expression. False. */
bool nj_refuse_program(nj_span text, nj_span words, bool (*knows)(void *context, nj_span name), void *context, nj_error *error);

/* Copies a program, whose code is owned then; false without memory. */
bool nj_program_copy(const nj_instruction *code, size_t length, nj_program *program);

#endif
