/* Triton's dtypes. A dtype is one row of the table in dtype.c, and one number of nojit.h. */
#ifndef NOJIT_BASE_DTYPE_H
#define NOJIT_BASE_DTYPE_H

#include "base/internal.h"
#include "base/span.h"
#include "nojit.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    NJ_OF_NOTHING, /* of NJ_DTYPE_NONE and NJ_DTYPE_COUNT */
    NJ_OF_BOOLS,
    NJ_OF_INTS,
    NJ_OF_UINTS,
    NJ_OF_FLOATS,
} nj_dtype_kind;

typedef struct {
    const char *name;      /* in types: i32 */
    const char *constexpr_name; /* of Triton's dtype: int32 */
    uint8_t kind;
    uint8_t bytes;
    bool is_scalar; /* whether a param can be one; all else is pointed to */
    uint8_t map_type; /* CUtensorMapDataType of cuda.h, which has no fp8: bytes */
    uint8_t dlpack;   /* DLDataTypeCode of dlpack.h, NJ_NOT_IN_DLPACK if it has none */
} nj_dtype_facts;

enum { NJ_NOT_IN_DLPACK = 255 };

/* One more than the last nj_dtype. */
#define NJ_DTYPE_COUNT ((nj_dtype)(NJ_DTYPE_FP8E4B15 + 1))

/* By nj_dtype. Those of NJ_DTYPE_NONE and NJ_DTYPE_COUNT are empty. */
NJ_FOR_BINDING extern const nj_dtype_facts nj_dtypes[NJ_DTYPE_COUNT + 1];

/* Triton's spelling, "" for an untyped address. */
static inline const char *nj_dtype_name(nj_dtype dtype)
{
    return nj_dtypes[dtype].name;
}

/* The dtype of memory: Triton has two names of a bool. */
static inline nj_dtype nj_dtype_of_memory(nj_dtype dtype)
{
    return dtype == NJ_DTYPE_U1 ? NJ_DTYPE_I1 : dtype;
}

/* Reads the spelling of types, such as "fp16", and no other; NJ_DTYPE_COUNT if unknown. */
nj_dtype nj_dtype_of(nj_span text);

/* Reads Triton's spelling, a framework's ("torch.float16", "bfloat16") included; NJ_DTYPE_COUNT if unknown. */
NJ_FOR_BINDING nj_dtype nj_dtype_parse(const char *text);

/* Each spelling that `nj_dtype_parse` knows, by number; NULL behind the last. */
NJ_FOR_BINDING const char *nj_dtype_spelling(size_t number);

/* Reads the name of a dtype that is a constexpr, as people spell it: `bfloat16`, `torch.half`, `tl.int32`, `fp16`; NJ_DTYPE_COUNT if it
 * is none. */
NJ_FOR_BINDING nj_dtype nj_dtype_read(nj_span text);

/* Each spelling that `nj_dtype_read` knows, without a module's name, by number; NULL behind the last. "" stands for none. */
NJ_FOR_BINDING const char *nj_dtype_word(size_t number);

/* Writes the bytes of a param that is a float; false for a number that is too large. */
bool nj_dtype_pack(nj_dtype dtype, double number, uint64_t *cell);

#endif
