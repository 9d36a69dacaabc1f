/* Matches a call against a table: finds the types, axis values and configs that its arguments, constexprs and options fit.
 * serving_rules.h applies the rules. */
#ifndef NOJIT_SELECT_MATCH_H
#define NOJIT_SELECT_MATCH_H

#include "select/coerced_call.h"
#include "select/constexpr.h"
#include "select/signatures.h"

/* The outcome of a selection. */
typedef enum {
    NJ_SERVED,
    NJ_UNSERVED,     /* no variant serves the call */
    NJ_STOPPED,      /* the caller ended the selection */
    NJ_NO_MEMORY,
    /* the kernel can never run such a call: */
    NJ_DERIVED_GIVEN, /* the caller gives a derived constexpr */
    NJ_UNKNOWN_NAME,  /* the caller gives an option that no config has */
    NJ_WRONG_KIND,    /* no type of a param accepts the kind of its argument */
    NJ_VALUE_MISSING, /* a matrix constexpr has neither a value nor a default */
    NJ_UNTYPED,       /* an address has no dtype, and the dtype would select the variant */
} nj_verdict;

/* The part at fault in a refused call. */
typedef struct {
    uint32_t place; /* index of the param, of the option (after all params), or of the axis whose value is missing */
} nj_fault;

enum { NJ_NOT_BUILT = -1, NJ_TYPES_ONLY = -2 };

/* The state of a config during a selection. */
typedef struct {
    uint8_t requires;  /* an nj_known: whether its `requires` holds */
    nj_value *derived; /* values of derived constexprs; owned; NULL until computed */
} nj_config_state;

typedef enum { NJ_NOT_ASKED, NJ_NO, NJ_YES } nj_known;

/* A call matched against a table; each result is computed once. */
typedef struct {
    const nj_signatures *signatures;
    const nj_coerced_call *call;
    uint64_t *takers;   /* for each runtime param: the types that accept its argument, as bits */
    nj_constant *resolved; /* for each param and option: the given value, resolved */
    int64_t *wanted;    /* for each axis: the number of the call's value, NJ_NOT_BUILT or NJ_TYPES_ONLY */
    bool *fits;         /* for each signature: whether it accepts the arguments */
    uint8_t *allowed;   /* for each config, an nj_known: whether the caller's settings allow it */
    uint8_t *held;      /* for each hint set, an nj_known: whether all its hints hold */
    nj_config_state *states; /* for each config */
    nj_value *derived;  /* values of derived constexprs that no config's state caches */
    nj_resolved_items *items;
    bool sets;    /* whether the caller gives a value that configs decide */
    bool starved; /* memory ran out */
    bool stopped;
    unsigned int looks;
} nj_match;

/* Matches a coerced call against a table; both must outlive the match. Returns NJ_SERVED if the kernel can run such a call at all.
 * Call `nj_match_close` in any case. */
NJ_FOR_BINDING nj_verdict nj_match_open(nj_match *match, const nj_signatures *signatures, const nj_coerced_call *call, nj_fault *fault);
NJ_FOR_BINDING void nj_match_close(nj_match *match);

/* Places number the params, then the call's options. */
size_t nj_match_places(const nj_match *match);
nj_span nj_match_name_at(const nj_match *match, size_t place);

#endif
