/* The rules by which a variant serves a call. A variant *serves* a call if its types accept the arguments, its matrix constexprs equal
 * the call's, the caller's settings allow its config, the config's `requires` holds, its derived constexprs equal those computed for the
 * call, and all its hints hold. An expression that cannot be evaluated for a call does not hold. */
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
    NJ_RULE_NONE, /* the row breaks no rule */
} nj_rule;

/* Returns the first rule that a row breaks. */
NJ_FOR_BINDING nj_rule nj_first_broken_rule(nj_match *match, size_t row);

/* -- matrix -- */

/* Returns whether a case has the call's value on an axis. */
NJ_FOR_BINDING bool nj_match_on_axis(const nj_match *match, uint32_t case_number, uint32_t axis);

/* Returns whether a case has the call's value on every axis of a constexpr; `fits` of nj_match covers the types. */
bool nj_match_at_point(const nj_match *match, uint32_t case_number);

/* -- settings -- */

/* Returns whether a config has the value that the call gives at a place. */
NJ_FOR_BINDING bool nj_match_sets(const nj_match *match, uint32_t config, size_t place);

/* Returns whether the call gives, at a place, a value that configs decide: an option, or a constexpr that is no axis. */
NJ_FOR_BINDING bool nj_match_asks(const nj_match *match, size_t place);

/* Returns whether the caller's settings allow a config. */
bool nj_match_allows(nj_match *match, uint32_t config);

/* -- requires and derived constexprs -- */

/* Returns whether a config's `requires` holds in a case that has the call's values. */
bool nj_match_requires(nj_match *match, uint32_t case_number, uint32_t config);

/* Returns the values of the derived constexprs there, valid until the next call; NJ_TAG_MISSING for a value that cannot be computed. */
NJ_FOR_BINDING const nj_value *nj_match_derive(nj_match *match, uint32_t case_number, uint32_t config);

/* Returns whether a result equals a compiled-in constant. */
NJ_FOR_BINDING bool nj_match_is_result(const nj_match *match, const nj_value *result, const nj_constant *constant);

/* Returns whether set `number` of derived values equals the results for the call. */
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
    uint32_t place; /* of an argument: its param's index */
    bool is_type;   /* whether the name is that of an axis of types only */
} nj_found_name;

NJ_FOR_BINDING nj_found_name nj_match_name(const nj_match *match, uint32_t case_number, uint32_t config, nj_span name);

/* -- hints -- */

/* Returns whether all hints of a set hold. */
bool nj_match_hinted(nj_match *match, uint32_t number);

#endif
