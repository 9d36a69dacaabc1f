/* A call as selection takes it, and how an argument is coerced to the type of its param. */
#ifndef NOJIT_SELECT_COERCED_CALL_H
#define NOJIT_SELECT_COERCED_CALL_H

#include "expr/arguments.h"
#include "select/signatures.h"
#include "table/constant.h"

/* Bits of NJ_TAG_UNKNOWN: what an argument is that no value stands for. */
enum {
    NJ_UNKNOWN_OTHER = 0,
    NJ_UNKNOWN_INT = 1,      /* of more than 64 bits */
    NJ_UNKNOWN_CONSTANT = 2, /* a string, a dtype or a function that no variant was compiled with */
};

/* The caller has coerced it by `nj_spec_coerce` or `nj_spec_key`: selection takes the values as they are. */
typedef struct {
    nj_arguments arguments;             /* a value for each param; those of constexprs are not looked at */
    const nj_constant *const *given;    /* for each param, then each option: the constexpr that is given, or NULL */
    size_t option_count;
    const nj_span *options;             /* their names */
    int arch;                           /* what ``arch`` stands for in expressions: 90; 0 if unknown */
    bool (*interrupted)(void *context); /* whether to stop, asked every few hundred looks; may be NULL */
    void *context;
} nj_coerced_call;

/* Which types of a runtime param take an argument. */
NJ_FOR_BINDING uint64_t nj_takers(const nj_param_types *param, const nj_value *value, const nj_arguments *arguments);

/* Makes of an argument what Triton makes of it for a param of a declared type, unless a type takes it as it is: an address of an
 * int where the param takes nothing but pointers, a float of an int or a bool, an int of a bool, a bool of 0 or 1. */
NJ_FOR_BINDING void nj_coerce(const nj_param_types *param, nj_value *value, const nj_arguments *arguments);

#endif
