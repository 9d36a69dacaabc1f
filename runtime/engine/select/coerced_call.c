#include "select/coerced_call.h"

uint64_t nj_takers(const nj_param_types *param, const nj_value *value, const nj_arguments *arguments)
{
    uint64_t takers = 0;
    if (value->tag == NJ_TAG_POINTER) {
        return param->pointers[value->dtype];
    }
    for (unsigned int i = 0; i < param->type_count; i++) {
        takers |= (uint64_t)nj_type_accepts(&param->types[i], value, arguments) << i;
    }
    return takers;
}

/* Converts an int or a bool to a kind that one of the types accepts. Returns false if the value stays as it is. */
static bool convert(const nj_type *types, size_t count, nj_value *value)
{
    uint16_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        taken |= types[i].constant ? 0 : types[i].tags;
    }
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT || value->tag == NJ_TAG_BOOL;
    if (!number || (taken & NJ_BIT(value->tag)) != 0) {
        return false;
    }
    if (value->tag == NJ_TAG_BOOL && (taken & NJ_BIT(NJ_TAG_INT)) != 0) {
        value->tag = NJ_TAG_INT;
        return true;
    }
    if ((taken & NJ_BIT(NJ_TAG_INT)) != 0) {
        return false;
    }
    if ((taken & NJ_BIT(NJ_TAG_OPAQUE)) != 0) {
        double real = value->tag == NJ_TAG_UINT ? (double)(uint64_t)value->bits : (double)value->bits;
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(real)};
        return true;
    }
    bool truth = (taken & NJ_BIT(NJ_TAG_BOOL)) != 0 && value->tag == NJ_TAG_INT && (value->bits == 0 || value->bits == 1);
    value->tag = truth ? NJ_TAG_BOOL : value->tag;
    return truth;
}

void nj_coerce(const nj_param_types *param, nj_value *value, const nj_arguments *arguments)
{
    if (param->address && (value->tag == NJ_TAG_UINT || (value->tag == NJ_TAG_INT && value->bits >= 0))) {
        *value = (nj_value){.tag = NJ_TAG_POINTER, .dtype = NJ_DTYPE_NONE, .bits = value->bits};
    } else if (value->tag <= NJ_TAG_UINT && nj_takers(param, value, arguments) == 0) {
        convert(param->types, param->type_count, value);
    }
}
