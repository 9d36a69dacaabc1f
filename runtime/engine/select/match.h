/* A call set against a table: what its arguments, constexprs and options fit, each judged once. serving_rules.h asks the rest. */
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
    /* the kernel can never take such a call */
    NJ_DERIVED_GIVEN, /* a constexpr that follows from the call is given */
    NJ_UNKNOWN_NAME,  /* an option is given that no config has */
    NJ_WRONG_KIND,    /* an argument is of a kind that no type of its param takes */
    NJ_VALUE_MISSING, /* a matrix constexpr has neither a value nor a default */
    NJ_UNTYPED,       /* the dtype of an address is unknown, and would decide the variant */
} nj_verdict;

/* The wrong part of a refused call. */
typedef struct {
    uint32_t place; /* of a param, of an option behind all params, or of an axis whose value is missing */
} nj_fault;

enum { NJ_NOT_BUILT = -1, NJ_TYPES_ONLY = -2 };

/* The state of a config during a selection. */
typedef struct {
    uint8_t requires;  /* whether its `requires` holds: an nj_known */
    nj_value *derived; /* owned; NULL before */
} nj_config_state;

typedef enum { NJ_NOT_ASKED, NJ_NO, NJ_YES } nj_known;

/* A call set against a table: each part is judged once. */
typedef struct {
    const nj_signatures *signatures;
    const nj_coerced_call *call;
    uint64_t *takers;   /* of each runtime param: the types that take its argument */
    nj_constant *resolved; /* of each param and option: what the given constexpr stands for */
    int64_t *wanted;    /* of each axis: the number of the call's value, or one of the above */
    bool *fits;         /* of each signature */
    uint8_t *allowed;   /* of each config, an nj_known: whether the caller's settings allow it */
    uint8_t *held;      /* of each set of hints, an nj_known */
    nj_config_state *states; /* of each config */
    nj_value *derived;  /* what derived constexprs come to, where it is kept for no config */
    nj_resolved_items *items;
    bool sets;    /* whether the caller sets something that configs decide */
    bool starved; /* memory ran out */
    bool stopped;
    unsigned int looks;
} nj_match;

/* Sets a coerced call against a table; both must outlive the match. NJ_SERVED if the kernel can take such a call at all.
 * `nj_match_close` is due in any case. */
NJ_FOR_BINDING nj_verdict nj_match_open(nj_match *match, const nj_signatures *signatures, const nj_coerced_call *call, nj_fault *fault);
NJ_FOR_BINDING void nj_match_close(nj_match *match);

/* Places: of params, then of the call's options. */
size_t nj_match_places(const nj_match *match);
nj_span nj_match_name_at(const nj_match *match, size_t place);

#endif
