#include "expr/value.h"

static const char *const triton_names[NJ_DTYPE_COUNT] = {
    [NJ_DTYPE_NONE] = "",     [NJ_I1] = "i1",           [NJ_U1] = "u1",           [NJ_I8] = "i8",
    [NJ_I16] = "i16",         [NJ_I32] = "i32",         [NJ_I64] = "i64",         [NJ_U8] = "u8",
    [NJ_U16] = "u16",         [NJ_U32] = "u32",         [NJ_U64] = "u64",         [NJ_FP16] = "fp16",
    [NJ_BF16] = "bf16",       [NJ_FP32] = "fp32",       [NJ_FP64] = "fp64",       [NJ_FP8E4NV] = "fp8e4nv",
    [NJ_FP8E5] = "fp8e5",     [NJ_FP8E4B8] = "fp8e4b8", [NJ_FP8E5B16] = "fp8e5b16", [NJ_FP8E4B15] = "fp8e4b15",
};

/* What frameworks and array interfaces call them: numpy's names, torch's without "torch.", typestr. */
static const struct {
    const char *name;
    nj_dtype dtype;
} other_names[] = {
    {"bool", NJ_I1},         {"int1", NJ_I1},
    {"|b1", NJ_I1},
    {"int8", NJ_I8},         {"|i1", NJ_I8},
    {"int16", NJ_I16},       {"<i2", NJ_I16},
    {"int32", NJ_I32},       {"<i4", NJ_I32},
    {"int64", NJ_I64},       {"<i8", NJ_I64},
    {"uint8", NJ_U8},        {"|u1", NJ_U8},
    {"uint16", NJ_U16},      {"<u2", NJ_U16},
    {"uint32", NJ_U32},      {"<u4", NJ_U32},
    {"uint64", NJ_U64},      {"<u8", NJ_U64},
    {"float16", NJ_FP16},    {"<f2", NJ_FP16},
    {"bfloat16", NJ_BF16},   {"float32", NJ_FP32},
    {"<f4", NJ_FP32},        {"float64", NJ_FP64},
    {"<f8", NJ_FP64},        {"float8_e4m3fn", NJ_FP8E4NV},
    {"float8_e5m2", NJ_FP8E5}, {"float8_e4m3fnuz", NJ_FP8E4B8},
    {"float8_e5m2fnuz", NJ_FP8E5B16},
};

const char *nj_dtype_name(nj_dtype dtype)
{
    return triton_names[dtype];
}

const char *nj_dtype_spelling(size_t number)
{
    size_t others = number - (NJ_DTYPE_COUNT - NJ_I1);
    if (number < NJ_DTYPE_COUNT - NJ_I1) {
        return triton_names[NJ_I1 + number];
    }
    return others < sizeof other_names / sizeof *other_names ? other_names[others].name : NULL;
}

nj_dtype nj_dtype_of(nj_span text)
{
    for (int dtype = NJ_I1; dtype < NJ_DTYPE_COUNT; dtype++) {
        if (nj_span_is(text, triton_names[dtype])) {
            return (nj_dtype)dtype;
        }
    }
    return NJ_DTYPE_COUNT;
}

nj_dtype nj_dtype_parse(const char *text)
{
    const char *dot = strrchr(text, '.');
    const char *name = dot == NULL ? text : dot + 1;
    nj_dtype known = nj_dtype_of((nj_span){(const unsigned char *)name, strlen(name)});
    if (known != NJ_DTYPE_COUNT) {
        return known;
    }
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        if (strcmp(name, other_names[i].name) == 0) {
            return other_names[i].dtype;
        }
    }
    return NJ_DTYPE_COUNT;
}
