/* The rules by which a variant serves a call. A variant *serves* a call if its types take the arguments, its matrix constexprs are the
 * call's, its config is one that the caller's own settings allow and whose `requires` holds, its derived constexprs are what the call
 * gives, and all its hints hold. What cannot be evaluated for a call does not hold. */
#ifndef NOJIT_SELECT_SERVING_RULES_H
#define NOJIT_SELECT_SERVING_RULES_H

#include "select/match.h"

/* The rules in their order. */
typedef enum {
    NJ_RULE_TYPES,
    NJ_RULE_MATRIX,
    NJ_RULE_SETTINGS,
    NJ_RULE_REQUIRES,
    NJ_RULE_DERIVED,
    NJ_RULE_HINTS,
    NJ_RULE_NONE, /* it breaks none */
} nj_rule;

/* The first rule that a row breaks. */
NJ_FOR_BINDING nj_rule nj_first_broken_rule(nj_match *match, size_t row);

/* -- matrix -- */

/* Whether a case lies at the call's value of an axis. */
NJ_FOR_BINDING bool nj_match_on_axis(const nj_match *match, uint32_t case_number, uint32_t axis);

/* Whether the point of a case is the call's; its types are judged by `fits`. */
bool nj_match_at_point(const nj_match *match, uint32_t case_number);

/* -- settings -- */

/* Whether a config has what the call sets at a place, which is a param's, or an option's behind them. */
NJ_FOR_BINDING bool nj_match_sets(const nj_match *match, uint32_t config, size_t place);

/* Whether the call sets something at a place that a caller may set. */
NJ_FOR_BINDING bool nj_match_asks(const nj_match *match, size_t place);

/* Whether a config is one that the caller's own settings allow. */
bool nj_match_allows(nj_match *match, uint32_t config);

/* -- requires and derived constexprs -- */

/* Whether a config's `requires` holds in a case that lies at the call's values. */
bool nj_match_requires(nj_match *match, uint32_t case_number, uint32_t config);

/* The values of derived constexprs there, valid until the next call: NJ_TAG_MISSING for one that cannot be computed. */
NJ_FOR_BINDING const nj_value *nj_match_derive(nj_match *match, uint32_t case_number, uint32_t config);

/* Whether a result equals a constant that was compiled in. */
NJ_FOR_BINDING bool nj_match_is_result(const nj_match *match, const nj_value *result, const nj_constant *constant);

/* Whether a set of derived values equals the results of a call. */
bool nj_match_derives(const nj_match *match, uint32_t number, const nj_value *results);

/* The meaning of a name in an expression, for a case and a config. */
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

NJ_FOR_BINDING nj_found_name nj_match_name(const nj_match *match, uint32_t case_number, uint32_t config, nj_span name);

/* -- hints -- */

/* Whether all hints of a set hold. */
bool nj_match_hinted(nj_match *match, uint32_t number);

#endif
