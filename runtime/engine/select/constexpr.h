/* Constexprs: which are the same, and what a string stands for. */
#ifndef NOJIT_SELECT_CONSTEXPR_H
#define NOJIT_SELECT_CONSTEXPR_H

#include "base/internal.h"
#include "table/constant.h"

/* Whether two are of equal type and value: True, 1 and 1.0 differ, and so do 0.0 and -0.0; a NaN equals itself. */
NJ_FOR_BINDING bool nj_constant_same(const nj_constant *one, const nj_constant *other);

/* The items of tuples that `nj_constexpr_resolve` makes. */
typedef struct nj_resolved_items {
    struct nj_resolved_items *next;
    nj_constant items[];
} nj_resolved_items;

NJ_FOR_BINDING void nj_resolved_free(nj_resolved_items *made);

/* Says what a constexpr stands for where only dtypes are known, as a string or in a tuple: the dtype of `bfloat16`. Anything else
 * is what it is. `known` are `count` values that were built; `made` gets what is to be freed. False without memory. */
NJ_FOR_BINDING bool nj_constexpr_resolve(const nj_constant *value, const nj_constant *const *known, size_t count,
                                      nj_resolved_items **made, nj_constant *resolved);

#endif
