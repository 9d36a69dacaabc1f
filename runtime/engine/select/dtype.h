/* Dtypes as constexprs: how callers spell them, and how Triton does. */
#ifndef NOJIT_SELECT_DTYPE_H
#define NOJIT_SELECT_DTYPE_H

#include "base/span.h"
#include "expr/value.h"

/* Reads a dtype's name as people spell it: `bfloat16`, `torch.half`, `tl.int32`, `fp16`; NJ_DTYPE_COUNT if it is none. */
NJ_INTERNAL nj_dtype nj_dtype_read(nj_span text);

/* The name of Triton's dtype: int32, fp16. */
NJ_INTERNAL const char *nj_dtype_constexpr(nj_dtype dtype);

/* Each spelling that `nj_dtype_read` knows, without a module's name, by number; NULL behind the last. "" stands for none. */
NJ_INTERNAL const char *nj_dtype_word(size_t number);

#endif
