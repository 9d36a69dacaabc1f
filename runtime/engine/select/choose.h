/* Choosing the variant that serves a call. Variants that serve it are ordered by the narrowest ints, then by the
 * preferred config, then by the most hints, then as in the table (docs/bundle-format.md, chapter 7).
 *
 * A variant *serves* a call if its types take the arguments, its matrix constexprs are the call's, its config is one that the
 * caller's own settings allow and whose `requires` holds, its derived constexprs are what the call gives, and all its hints hold.
 * What cannot be evaluated for a call does not hold. */
#ifndef NOJIT_SELECT_CHOOSE_H
#define NOJIT_SELECT_CHOOSE_H

#include "select/passed.h"
#include "select/constexpr.h"
#include "select/ranking.h"
#include "select/typing.h"

/* What came of a selection. */
typedef enum {
    NJ_SERVED,
    NJ_UNSERVED,     /* by any variant */
    NJ_STOPPED,      /* where the caller wanted so */
    NJ_NO_MEMORY,
    /* the kernel can never take such a call */
    NJ_DERIVED_GIVEN, /* a constexpr that follows from the call is given */
    NJ_UNKNOWN_NAME,  /* an option is given that no config has */
    NJ_WRONG_KIND,    /* an argument is of a kind that no type of its param takes */
    NJ_VALUE_MISSING, /* a matrix constexpr has neither a value nor a default */
    NJ_UNTYPED,       /* an address leaves open what it points to where that would decide the variant */
} nj_verdict;

/* Where a call that is refused is wrong. */
typedef struct {
    uint32_t place; /* of a param, of an option behind all params, or of an axis whose value is missing */
} nj_fault;

/* The rules of selection in their order: the first that a variant breaks. */
typedef enum {
    NJ_STAGE_TYPES,
    NJ_STAGE_MATRIX,
    NJ_STAGE_SETTINGS,
    NJ_STAGE_REQUIRES,
    NJ_STAGE_DERIVED,
    NJ_STAGE_HINTS,
    NJ_STAGE_SERVES, /* it breaks none */
} nj_stage;

enum { NJ_NOT_BUILT = -1, NJ_TYPES_ONLY = -2 };

/* What is known of a config. */
typedef struct {
    uint8_t requires;  /* whether its `requires` holds: an nj_known */
    bool derives;      /* whether `derived` is what a call comes to in every case */
    nj_value *derived; /* owned; NULL before */
} nj_config_state;

typedef enum { NJ_NOT_ASKED, NJ_NO, NJ_YES } nj_known;

/* A call set against a table: each part is judged once. */
typedef struct {
    const nj_typing *typing;
    const nj_passed *call;
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
} nj_choice;

/* Sets a coerced call against a table; both must outlive the choice. NJ_SERVED if the kernel can take such a call at all.
 * `nj_choice_close` is due in any case. */
NJ_INTERNAL nj_verdict nj_choice_open(nj_choice *choice, const nj_typing *typing, const nj_passed *call, nj_fault *fault);
NJ_INTERNAL void nj_choice_close(nj_choice *choice);

/* Takes a row that serves the call; false to end the search. */
typedef bool (*nj_take_row)(void *context, size_t row);

/* Hands out the rows that serve the call, the best first; of a config nothing is evaluated before its turn. `preference` may be
 * NULL. */
NJ_INTERNAL nj_verdict nj_choice_rows(nj_choice *choice, const nj_preference *preference, nj_take_row take, void *context);

/* The best of them. */
nj_verdict nj_choose(nj_choice *choice, const nj_preference *preference, size_t *row);

/* The place of a config among those of a case, by preference; false without memory. */
NJ_INTERNAL bool nj_choice_rank(nj_choice *choice, const nj_preference *preference, uint32_t case_number, uint32_t config, uint32_t *rank);

/* The first rule that a row breaks. */
NJ_INTERNAL nj_stage nj_choice_stage(nj_choice *choice, size_t row);

/* Whether a case lies at the call's value of an axis. */
NJ_INTERNAL bool nj_choice_on_axis(const nj_choice *choice, uint32_t case_number, uint32_t axis);

/* Whether a config has what the call sets at a place, which is a param's, or an option's behind them. */
NJ_INTERNAL bool nj_choice_sets(const nj_choice *choice, uint32_t config, size_t place);

/* Whether the call sets something at a place that a caller may set. */
NJ_INTERNAL bool nj_choice_asks(const nj_choice *choice, size_t place);

/* Whether a config's `requires` holds in a case that lies at the call's values. */
bool nj_choice_requires(nj_choice *choice, uint32_t case_number, uint32_t config);

/* The values of derived constexprs there, valid until the next call: NJ_TAG_MISSING for one that cannot be computed. */
NJ_INTERNAL const nj_value *nj_choice_derive(nj_choice *choice, uint32_t case_number, uint32_t config);

/* Whether a result equals a constant that was compiled in. */
NJ_INTERNAL bool nj_choice_is_result(const nj_choice *choice, const nj_value *result, const nj_constant *constant);

/* Whether a hint holds. */
NJ_INTERNAL bool nj_hint_holds(const nj_typing *typing, const nj_arguments *arguments, const nj_hint *hint);

/* What a name in an expression stands for, for a case and a config. */
typedef enum {
    NJ_NAME_UNKNOWN,
    NJ_NAME_ARCH,
    NJ_NAME_CONSTANT,
    NJ_NAME_ARGUMENT,
} nj_found_kind;

typedef struct {
    nj_found_kind kind;
    const nj_constant *constant;
    uint32_t place; /* of an argument */
    bool is_type;   /* whether it is the value of an axis that only spells types */
} nj_found_name;

NJ_INTERNAL nj_found_name nj_choice_name(const nj_choice *choice, uint32_t case_number, uint32_t config, nj_span name);

/* Finds the set of hints that a call which a row serves just misses: as many of them hold as fail at least, and the fewest fail.
 * False if none is near. */
NJ_INTERNAL bool nj_near_hints(const nj_typing *typing, const nj_arguments *arguments, size_t row, uint32_t *hint_set);

#endif
