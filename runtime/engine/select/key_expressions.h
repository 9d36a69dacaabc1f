/* Finds the expressions whose results belong to a kernel's keys. */
#ifndef NOJIT_SELECT_KEY_EXPRESSIONS_H
#define NOJIT_SELECT_KEY_EXPRESSIONS_H

#include "select/spec.h"

/* Fills the programs of a spec: the distinct `requires` and derived constexprs of a kernel's configs that depend on a call's
 * arguments, with the values of configs filled in. Matrix constexprs stay names, because keys hold their values anyway. Returns false
 * with `error` filled. */
bool nj_spec_find_expressions(nj_spec *spec, nj_error *error);

/* Fills the error for an expression without a program: it names an unknown name, or the limits of programs. Returns false. */
bool nj_refuse_program(nj_span text, nj_span words, bool (*knows)(void *context, nj_span name), void *context, nj_error *error);

/* Copies a program; the caller owns its code. Returns false without memory. */
bool nj_program_copy(const nj_instruction *code, size_t length, nj_program *program);

#endif
