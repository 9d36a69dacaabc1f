#include "select/dtype.h"

/* What Triton's own dtypes, C and torch call elements besides. */
static const struct {
    const char *name;
    nj_dtype dtype;
} words[] = {
    {"uint1", NJ_I1},           {"u1", NJ_I1},          {"int", NJ_I32},
    {"half", NJ_FP16},          {"float", NJ_FP32},     {"double", NJ_FP64},
    {"float8e4nv", NJ_FP8E4NV}, {"float8e5", NJ_FP8E5}, {"float8e4b15", NJ_FP8E4B15},
    {"float8e4b8", NJ_FP8E4B8}, {"float8e5b16", NJ_FP8E5B16},
};

enum { WORDS = sizeof words / sizeof *words };

/* Whether a spelling is a name, and no type of array interfaces such as `<f4` or `|b1`. */
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
    char name[24];
    drop_prefix(&text, "torch.");
    drop_prefix(&text, "tl.");
    if (text.size == 0 || text.size >= sizeof name || !is_word((char)*text.at) || memchr(text.at, '.', text.size) != NULL) {
        return NJ_DTYPE_COUNT;
    }
    memcpy(name, text.at, text.size);
    name[text.size] = '\0';
    for (size_t i = 0; i < WORDS; i++) {
        if (strcmp(name, words[i].name) == 0) {
            return words[i].dtype;
        }
    }
    return strlen(name) == text.size ? nj_dtype_parse(name) : NJ_DTYPE_COUNT;
}

const char *nj_dtype_constexpr(nj_dtype dtype)
{
    static const char *const ints[] = {
        [NJ_I1] = "int1",   [NJ_U1] = "int1",   [NJ_I8] = "int8",     [NJ_I16] = "int16",   [NJ_I32] = "int32",
        [NJ_I64] = "int64", [NJ_U8] = "uint8",  [NJ_U16] = "uint16",  [NJ_U32] = "uint32",  [NJ_U64] = "uint64",
    };
    return dtype >= NJ_I1 && dtype <= NJ_U64 ? ints[dtype] : nj_dtype_name(dtype);
}

const char *nj_dtype_word(size_t number)
{
    if (number < WORDS) {
        return words[number].name;
    }
    const char *spelling = nj_dtype_spelling(number - WORDS);
    return spelling == NULL || is_word(*spelling) ? spelling : "";
}
