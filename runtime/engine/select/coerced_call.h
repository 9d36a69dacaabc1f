/* What a call passes, as selection takes it. */
#ifndef NOJIT_SELECT_COERCED_CALL_H
#define NOJIT_SELECT_COERCED_CALL_H

#include "expr/arguments.h"
#include "table/constant.h"

/* Bits of NJ_TAG_UNKNOWN: what an argument is that no value stands for. */
enum {
    NJ_UNKNOWN_OTHER = 0,
    NJ_UNKNOWN_INT = 1,      /* of more than 64 bits */
    NJ_UNKNOWN_CONSTANT = 2, /* a string, a dtype or a function that no variant was compiled with */
};

/* A call is *coerced* once `nj_coerce` has looked at each argument. */
typedef struct {
    nj_arguments arguments;             /* a value for each param; those of constexprs are not looked at */
    const nj_constant *const *given;    /* for each param, then each option: the constexpr that is given, or NULL */
    size_t option_count;
    const nj_span *options;             /* their names */
    int arch;                           /* what ``arch`` stands for in expressions: 90; 0 if unknown */
    bool (*interrupted)(void *context); /* whether to stop, asked every few hundred looks; may be NULL */
    void *context;
} nj_coerced_call;

#endif
