/* The call that selection takes, and the coercion of its arguments to the types of their params. */
#ifndef NOJIT_SELECT_COERCED_CALL_H
#define NOJIT_SELECT_COERCED_CALL_H

#include "expr/arguments.h"
#include "select/signatures.h"
#include "table/constant.h"

/* The `bits` of a value with NJ_TAG_UNKNOWN: the kind of the argument. */
enum {
    NJ_UNKNOWN_OTHER = 0,
    NJ_UNKNOWN_INT = 1,      /* an int of more than 64 bits */
    NJ_UNKNOWN_CONSTANT = 2, /* a string, a dtype or a function that no variant was compiled with */
};

/* A call whose values the caller coerced with `nj_spec_coerce` or `nj_spec_key`; selection does not coerce them again. */
typedef struct {
    nj_arguments arguments;             /* a value for each param; the serving rules do not read those of constexprs */
    const nj_constant *const *given;    /* for each param, then each option: the value that the caller gives, or NULL */
    size_t option_count;
    const nj_span *options;             /* names of the options */
    int arch;                           /* value of ``arch`` in expressions, such as 90; 0 if unknown */
    bool (*interrupted)(void *context); /* returns whether to stop; called once in a few hundred steps; may be NULL */
    void *context;
} nj_coerced_call;

/* Returns the types of a runtime param that accept an argument, as bits by type number. */
NJ_FOR_BINDING uint64_t nj_takers(const nj_param_types *param, const nj_value *value, const nj_arguments *arguments);

/* Coerces an argument that no type of its param accepts, as Triton does for a declared type: an int to an address if the param takes
 * pointers only, an int or a bool to a float, a bool to an int, 0 or 1 to a bool. */
NJ_FOR_BINDING void nj_coerce(const nj_param_types *param, nj_value *value, const nj_arguments *arguments);

#endif
