/* Compares constexprs, and resolves strings that name dtypes. */
#ifndef NOJIT_SELECT_CONSTEXPR_H
#define NOJIT_SELECT_CONSTEXPR_H

#include "base/internal.h"
#include "table/constant.h"

/* Returns whether two constants have equal type and value: True, 1 and 1.0 differ, and so do 0.0 and -0.0; a NaN equals itself. */
NJ_FOR_BINDING bool nj_constant_same(const nj_constant *one, const nj_constant *other);

/* A list of the tuple items that `nj_constexpr_resolve` allocates. */
typedef struct nj_resolved_items {
    struct nj_resolved_items *next;
    nj_constant items[];
} nj_resolved_items;

NJ_FOR_BINDING void nj_resolved_free(nj_resolved_items *made);

/* Resolves a constexpr. Where variants were built with dtypes and no strings, a string such as `bfloat16` becomes the dtype that it
 * names, within tuples too; any other value stays. `known` are the `count` built values; `made` collects the memory for
 * `nj_resolved_free`. Returns false without memory. */
NJ_FOR_BINDING bool nj_constexpr_resolve(const nj_constant *value, const nj_constant *const *known, size_t count,
                                      nj_resolved_items **made, nj_constant *resolved);

#endif
