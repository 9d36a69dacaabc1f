#include "base/dtype.h"

#include "base/dlpack.h"

#include <string.h>

const nj_dtype_facts nj_dtypes[NJ_DTYPE_COUNT + 1] = {
    [NJ_DTYPE_NONE] = {"", "", NJ_OF_NOTHING, 0, false, 0, NJ_NOT_IN_DLPACK},
    [NJ_DTYPE_I1] = {"i1", "int1", NJ_OF_BOOLS, 1, true, 0, kDLBool},
    [NJ_DTYPE_U1] = {"u1", "int1", NJ_OF_BOOLS, 1, true, 0, NJ_NOT_IN_DLPACK},
    [NJ_DTYPE_I8] = {"i8", "int8", NJ_OF_INTS, 1, true, 0, kDLInt},
    [NJ_DTYPE_I16] = {"i16", "int16", NJ_OF_INTS, 2, true, 1, kDLInt},
    [NJ_DTYPE_I32] = {"i32", "int32", NJ_OF_INTS, 4, true, 3, kDLInt},
    [NJ_DTYPE_I64] = {"i64", "int64", NJ_OF_INTS, 8, true, 5, kDLInt},
    [NJ_DTYPE_U8] = {"u8", "uint8", NJ_OF_UINTS, 1, true, 0, kDLUInt},
    [NJ_DTYPE_U16] = {"u16", "uint16", NJ_OF_UINTS, 2, true, 1, kDLUInt},
    [NJ_DTYPE_U32] = {"u32", "uint32", NJ_OF_UINTS, 4, true, 2, kDLUInt},
    [NJ_DTYPE_U64] = {"u64", "uint64", NJ_OF_UINTS, 8, true, 4, kDLUInt},
    [NJ_DTYPE_FP16] = {"fp16", "fp16", NJ_OF_FLOATS, 2, true, 6, kDLFloat},
    [NJ_DTYPE_BF16] = {"bf16", "bf16", NJ_OF_FLOATS, 2, true, 9, kDLBfloat},
    [NJ_DTYPE_FP32] = {"fp32", "fp32", NJ_OF_FLOATS, 4, true, 7, kDLFloat},
    [NJ_DTYPE_FP64] = {"fp64", "fp64", NJ_OF_FLOATS, 8, true, 8, kDLFloat},
    [NJ_DTYPE_FP8E4NV] = {"fp8e4nv", "fp8e4nv", NJ_OF_FLOATS, 1, false, 0, kDLFloat8_e4m3fn},
    [NJ_DTYPE_FP8E5] = {"fp8e5", "fp8e5", NJ_OF_FLOATS, 1, false, 0, kDLFloat8_e5m2},
    [NJ_DTYPE_FP8E4B8] = {"fp8e4b8", "fp8e4b8", NJ_OF_FLOATS, 1, false, 0, kDLFloat8_e4m3fnuz},
    [NJ_DTYPE_FP8E5B16] = {"fp8e5b16", "fp8e5b16", NJ_OF_FLOATS, 1, false, 0, kDLFloat8_e5m2fnuz},
    [NJ_DTYPE_FP8E4B15] = {"fp8e4b15", "fp8e4b15", NJ_OF_FLOATS, 1, false, 0, NJ_NOT_IN_DLPACK},
    [NJ_DTYPE_COUNT] = {"", "", NJ_OF_NOTHING, 0, false, 0, NJ_NOT_IN_DLPACK},
};

typedef struct {
    const char *name;
    nj_dtype dtype;
} spelling;

/* Names of dtypes in frameworks and array interfaces: numpy's, torch's without "torch.", and typestr of __array_interface__. */
static const spelling of_tensors[] = {
    {"bool", NJ_DTYPE_I1},         {"int1", NJ_DTYPE_I1},
    {"|b1", NJ_DTYPE_I1},
    {"int8", NJ_DTYPE_I8},         {"|i1", NJ_DTYPE_I8},
    {"int16", NJ_DTYPE_I16},       {"<i2", NJ_DTYPE_I16},
    {"int32", NJ_DTYPE_I32},       {"<i4", NJ_DTYPE_I32},
    {"int64", NJ_DTYPE_I64},       {"<i8", NJ_DTYPE_I64},
    {"uint8", NJ_DTYPE_U8},        {"|u1", NJ_DTYPE_U8},
    {"uint16", NJ_DTYPE_U16},      {"<u2", NJ_DTYPE_U16},
    {"uint32", NJ_DTYPE_U32},      {"<u4", NJ_DTYPE_U32},
    {"uint64", NJ_DTYPE_U64},      {"<u8", NJ_DTYPE_U64},
    {"float16", NJ_DTYPE_FP16},    {"<f2", NJ_DTYPE_FP16},
    {"bfloat16", NJ_DTYPE_BF16},   {"float32", NJ_DTYPE_FP32},
    {"<f4", NJ_DTYPE_FP32},        {"float64", NJ_DTYPE_FP64},
    {"<f8", NJ_DTYPE_FP64},        {"float8_e4m3fn", NJ_DTYPE_FP8E4NV},
    {"float8_e5m2", NJ_DTYPE_FP8E5}, {"float8_e4m3fnuz", NJ_DTYPE_FP8E4B8},
    {"float8_e5m2fnuz", NJ_DTYPE_FP8E5B16},
};

/* More names of dtypes from Triton, C and torch. */
static const spelling of_constexprs[] = {
    {"uint1", NJ_DTYPE_I1},           {"u1", NJ_DTYPE_I1},          {"int", NJ_DTYPE_I32},
    {"half", NJ_DTYPE_FP16},          {"float", NJ_DTYPE_FP32},     {"double", NJ_DTYPE_FP64},
    {"float8e4nv", NJ_DTYPE_FP8E4NV}, {"float8e5", NJ_DTYPE_FP8E5}, {"float8e4b15", NJ_DTYPE_FP8E4B15},
    {"float8e4b8", NJ_DTYPE_FP8E4B8}, {"float8e5b16", NJ_DTYPE_FP8E5B16},
};

enum {
    NAMES = NJ_DTYPE_COUNT - NJ_DTYPE_I1,
    TENSOR_NAMES = sizeof of_tensors / sizeof *of_tensors,
    CONSTEXPR_NAMES = sizeof of_constexprs / sizeof *of_constexprs,
};

static nj_dtype find(const spelling *known, size_t count, nj_span text)
{
    for (size_t i = 0; i < count; i++) {
        if (nj_span_is(text, known[i].name)) {
            return known[i].dtype;
        }
    }
    return NJ_DTYPE_COUNT;
}

nj_dtype nj_dtype_of(nj_span text)
{
    nj_dtype dtype = NJ_DTYPE_I1;
    while (dtype < NJ_DTYPE_COUNT && !nj_span_is(text, nj_dtypes[dtype].name)) {
        dtype++;
    }
    return dtype;
}

static nj_dtype find_name(nj_span text)
{
    nj_dtype known = nj_dtype_of(text);
    return known != NJ_DTYPE_COUNT ? known : find(of_tensors, TENSOR_NAMES, text);
}

nj_dtype nj_dtype_parse(const char *text)
{
    const char *dot = strrchr(text, '.'), *name = dot == NULL ? text : dot + 1;
    return find_name((nj_span){(const unsigned char *)name, strlen(name)});
}

const char *nj_dtype_spelling(size_t number)
{
    if (number < NAMES) {
        return nj_dtypes[NJ_DTYPE_I1 + number].name;
    }
    return number - NAMES < TENSOR_NAMES ? of_tensors[number - NAMES].name : NULL;
}

/* True if a spelling starts as a name does, not as a typestr such as `<f4` or `|b1`. */
static bool is_word(char first)
{
    return first >= 'a' && first <= 'z';
}

static void drop_prefix(nj_span *text, const char *prefix)
{
    size_t size = strlen(prefix);
    if (text->size >= size && memcmp(text->at, prefix, size) == 0) {
        *text = (nj_span){text->at + size, text->size - size};
    }
}

nj_dtype nj_dtype_read(nj_span text)
{
    drop_prefix(&text, "torch.");
    drop_prefix(&text, "tl.");
    if (text.size == 0 || !is_word((char)*text.at)) {
        return NJ_DTYPE_COUNT;
    }
    nj_dtype known = find(of_constexprs, CONSTEXPR_NAMES, text);
    return known != NJ_DTYPE_COUNT ? known : find_name(text);
}

const char *nj_dtype_word(size_t number)
{
    if (number < CONSTEXPR_NAMES) {
        return of_constexprs[number].name;
    }
    const char *name = nj_dtype_spelling(number - CONSTEXPR_NAMES);
    return name == NULL || is_word(*name) ? name : "";
}

/* Rounds to fp16, nearest even; false on overflow. */
static bool round_half(double number, uint64_t *cell)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint64_t sign = bits >> 63 << 15;
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent == 1024) {
        *cell = sign | (fraction == 0 ? 0x7c00 : 0x7e00);
        return true;
    }
    if (exponent < -25 || exponent > 15) {
        *cell = sign;
        return exponent <= 15;
    }
    int shift = exponent < -14 ? 28 - exponent : 42;
    uint64_t whole = fraction | UINT64_C(1) << 52, half = whole >> shift, rest = whole & ((UINT64_C(1) << shift) - 1);
    uint64_t middle = UINT64_C(1) << (shift - 1);
    /* the addition of a normal number's implicit leading bit adds 1 to the exponent field */
    half += exponent < -14 ? 0 : (uint64_t)(exponent + 14) << 10;
    half += rest > middle || (rest == middle && half % 2 == 1);
    *cell = sign | half;
    return half < 0x7c00;
}

bool nj_dtype_pack(nj_dtype dtype, double number, uint64_t *cell)
{
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case NJ_DTYPE_FP16: return round_half(number, cell);
    case NJ_DTYPE_BF16: *cell = bits >> 16; return true; /* truncated, not rounded, as in Triton */
    case NJ_DTYPE_FP32: *cell = bits; return true;
    default: memcpy(cell, &number, sizeof number); return true;
    }
}
