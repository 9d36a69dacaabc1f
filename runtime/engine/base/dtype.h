/* Triton's dtypes. Each is a row of the table in dtype.c and a number of nojit.h. */
#ifndef NOJIT_BASE_DTYPE_H
#define NOJIT_BASE_DTYPE_H

#include "base/internal.h"
#include "base/span.h"
#include "nojit.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    NJ_OF_NOTHING, /* the kind of NJ_DTYPE_NONE and NJ_DTYPE_COUNT */
    NJ_OF_BOOLS,
    NJ_OF_INTS,
    NJ_OF_UINTS,
    NJ_OF_FLOATS,
} nj_dtype_kind;

typedef struct {
    const char *name;           /* name in a signature: i32 */
    const char *constexpr_name; /* name of Triton's dtype object: int32 */
    uint8_t kind;
    uint8_t bytes;
    bool is_scalar;   /* true if a param can have this type; other dtypes are only pointed to */
    uint8_t map_type; /* CUtensorMapDataType; that of bytes for fp8, which cuda.h lacks */
    uint8_t dlpack;   /* DLDataTypeCode; NJ_NOT_IN_DLPACK if DLPack has none */
} nj_dtype_facts;

enum { NJ_NOT_IN_DLPACK = 255 };

/* The number of dtypes, NJ_DTYPE_NONE included. */
#define NJ_DTYPE_COUNT ((nj_dtype)(NJ_DTYPE_FP8E4B15 + 1))

/* Facts of each nj_dtype. The entries of NJ_DTYPE_NONE and NJ_DTYPE_COUNT are empty. */
NJ_FOR_BINDING extern const nj_dtype_facts nj_dtypes[NJ_DTYPE_COUNT + 1];

/* Returns Triton's name of a dtype; "" for an untyped address. */
static inline const char *nj_dtype_name(nj_dtype dtype)
{
    return nj_dtypes[dtype].name;
}

/* Returns the dtype of memory: maps Triton's second name of bool, u1, to i1. */
static inline nj_dtype nj_dtype_of_memory(nj_dtype dtype)
{
    return dtype == NJ_DTYPE_U1 ? NJ_DTYPE_I1 : dtype;
}

/* Reads the name of a dtype in a signature, such as "fp16"; NJ_DTYPE_COUNT if unknown. */
nj_dtype nj_dtype_of(nj_span text);

/* Reads Triton's or a framework's name ("fp16", "torch.float16", "bfloat16"); NJ_DTYPE_COUNT if unknown. */
NJ_FOR_BINDING nj_dtype nj_dtype_parse(const char *text);

/* Returns the name at an index of all names that `nj_dtype_parse` knows; NULL past the end. */
NJ_FOR_BINDING const char *nj_dtype_spelling(size_t number);

/* Reads a dtype that is the value of a constexpr: `bfloat16`, `torch.half`, `tl.int32`, `fp16`; NJ_DTYPE_COUNT if unknown. */
NJ_FOR_BINDING nj_dtype nj_dtype_read(nj_span text);

/* Returns the name at an index of all names that `nj_dtype_read` knows, without a module; NULL past the end. Callers skip "". */
NJ_FOR_BINDING const char *nj_dtype_word(size_t number);

/* Writes a number as a float param of a dtype; false on overflow. */
bool nj_dtype_pack(nj_dtype dtype, double number, uint64_t *cell);

#endif
