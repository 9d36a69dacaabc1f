#include "api/kernel_call.h"

#include "base/struct_size.h"
#include "launch/descriptor.h"
#include "select/coerced_call.h"

#include <stdlib.h>

/* -- launch setup -- */

bool nj_setup_read(const nj_launch_setup *setup, nj_launch_setup *read, nj_error *error)
{
    static const nj_sized sized = {"nj_launch_setup", sizeof *setup, NJ_END_OF(nj_launch_setup, reserved), -1};
    *read = (nj_launch_setup)NJ_LAUNCH_SETUP_INIT;
    if (setup != NULL && !nj_sized_take(&sized, setup, read, error)) {
        return false;
    }
    return read->reserved == 0 ||
           nj_refuse_argument(error, -1, nj_format("%u", read->reserved).text, "expected nj_launch_setup.reserved to be 0");
}

/* -- binding -- */

/* Returns the index of a param or an option by name; the number of both if it is unknown. The search starts at `from`, since most
 * callers pass keywords in order. */
static size_t place_of(const nj_kernel *kernel, const char *name, size_t from)
{
    size_t count = kernel->param_count + kernel->option_count;
    for (size_t i = 0; i < count; i++) {
        size_t place = from + i < count ? from + i : from + i - count;
        if (strcmp(kernel->names[place], name) == 0) {
            return place;
        }
    }
    return count;
}

static bool refuse_name(const nj_kernel *kernel, const char *name, nj_error *error, const char *what)
{
    nj_note_argument(error, -1, nj_quote((nj_span){(const unsigned char *)name, strlen(name)}).text, "%s", what);
    return nj_within_kernel(kernel, error);
}

static bool bind(const nj_kernel *kernel, const nj_call *given, nj_bound_call *call, nj_error *error)
{
    size_t count = kernel->param_count + kernel->option_count, place = given->arg_count;
    if (given->arg_count > kernel->param_count) {
        nj_note_argument(error, -1, nj_format("%zu", given->arg_count).text, NJ_POSITIONAL_RULE, kernel->param_count);
        return nj_within_kernel(kernel, error);
    }
    memset(call->passed, 0, count * sizeof *call->passed);
    for (size_t i = 0; i < given->arg_count; i++) {
        call->passed[i] = given->args[i].kind == NJ_ARG_DEFAULT ? NULL : &given->args[i];
    }
    for (size_t i = 0; i < given->keyword_count; i++, place++) {
        const nj_keyword *keyword = &given->keywords[i];
        place = place_of(kernel, keyword->name, place < count ? place : 0);
        if (place == count) {
            return refuse_name(kernel, keyword->name, error, "expected the name of a param or an option");
        }
        if (call->passed[place] != NULL) {
            return refuse_name(kernel, keyword->name, error, NJ_ONCE_RULE);
        }
        call->passed[place] = keyword->value.kind == NJ_ARG_DEFAULT ? NULL : &keyword->value;
    }
    return true;
}

/* -- reading -- */

static nj_span text_of(const nj_arg *arg)
{
    return (nj_span){(const unsigned char *)arg->text, strlen(arg->text)};
}

/* Converts an argument to a constant; false for kinds that have none, such as tuples and pointers. */
static bool read_constant(const nj_arg *arg, nj_constant *value)
{
    *value = (nj_constant){.kind = NJ_CONSTANT_NONE};
    switch (arg->kind) {
    case NJ_ARG_NONE: return true;
    case NJ_ARG_BOOL: *value = (nj_constant){.kind = NJ_CONSTANT_BOOL, .truth = arg->integer != 0}; return true;
    case NJ_ARG_INT:
        *value = (nj_constant){.kind = NJ_CONSTANT_INT, .negative = arg->integer < 0,
                               .magnitude = arg->integer < 0 ? 0 - (uint64_t)arg->integer : (uint64_t)arg->integer};
        return true;
    case NJ_ARG_UINT: *value = (nj_constant){.kind = NJ_CONSTANT_INT, .magnitude = arg->unsigned_integer}; return true;
    case NJ_ARG_FLOAT: *value = (nj_constant){.kind = NJ_CONSTANT_FLOAT, .number = arg->number}; return true;
    case NJ_ARG_TEXT: *value = (nj_constant){.kind = NJ_CONSTANT_TEXT, .text = text_of(arg)}; return true;
    case NJ_ARG_DTYPE: *value = (nj_constant){.kind = NJ_CONSTANT_DTYPE, .text = text_of(arg)}; return true;
    case NJ_ARG_FUNCTION: *value = (nj_constant){.kind = NJ_CONSTANT_FUNCTION, .text = text_of(arg)}; return true;
    default: return false;
    }
}

/* Reads a constant that is passed for a runtime param; a variant may have it compiled in. */
static nj_value read_compiled_in(const nj_ids *ids, const nj_constant *constant)
{
    nj_value value = nj_ids_find(ids, constant);
    if (value.tag == NJ_TAG_UNKNOWN) {
        value.bits = NJ_UNKNOWN_CONSTANT;
    }
    value.tag = nj_is_id(&value) ? NJ_TAG_CONSTANT : value.tag;
    return value;
}

static bool read_value(const nj_kernel *kernel, nj_bound_call *call, const nj_arg *arg, int place, nj_value *value, nj_error *error);

static bool refuse_leaves(int place, nj_error *error)
{
    return nj_refuse_argument(error, place, "more", NJ_LEAVES_RULE, NJ_LEAVES_MAX);
}

/* Reads a tuple. The members of a nested tuple follow it in `leaves`. */
static bool read_tuple(const nj_kernel *kernel, nj_bound_call *call, const nj_arg *arg, int place, nj_value *value, nj_error *error)
{
    uint16_t start = call->leaf_count;
    for (size_t i = 0; i < arg->count; i++) {
        if (call->leaf_count == NJ_LEAVES_MAX) {
            return refuse_leaves(place, error);
        }
        nj_value *leaf = &call->leaves[call->leaf_count++];
        if (!read_value(kernel, call, &arg->items[i], place, leaf, error)) {
            return false;
        }
    }
    *value = (nj_value){.tag = NJ_TAG_TUPLE, .bits = nj_tuple(start, (uint16_t)(call->leaf_count - start), (uint16_t)arg->count)};
    return true;
}

static bool read_descriptor(nj_bound_call *call, const nj_arg *arg, int place, nj_value *value, nj_error *error)
{
    if (call->descriptor_count == NJ_DESCRIPTORS_MAX) {
        return nj_refuse_argument(error, place, "more", NJ_DESCRIPTORS_RULE, NJ_DESCRIPTORS_MAX);
    }
    *value = (nj_value){.tag = NJ_TAG_DESCRIPTOR, .bits = call->descriptor_count};
    return nj_descriptor_take(arg->descriptor, place, &call->descriptors[call->descriptor_count++], error);
}

static bool refuse_kind(const nj_arg *arg, int place, nj_error *error)
{
    return nj_refuse_argument(error, place, nj_format("%u", arg->kind).text, "expected an argument of a kind of nj_arg_kind");
}

/* Reads an argument of a runtime param. */
static bool read_value(const nj_kernel *kernel, nj_bound_call *call, const nj_arg *arg, int place, nj_value *value, nj_error *error)
{
    nj_constant constant;
    switch (arg->kind) {
    case NJ_ARG_NONE: *value = (nj_value){.tag = NJ_TAG_NONE}; return true;
    case NJ_ARG_BOOL: *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = arg->integer != 0}; return true;
    case NJ_ARG_INT: *value = (nj_value){.tag = NJ_TAG_INT, .bits = arg->integer}; return true;
    case NJ_ARG_UINT: *value = (nj_value){.tag = arg->unsigned_integer > INT64_MAX ? NJ_TAG_UINT : NJ_TAG_INT, .bits = arg->integer}; return true;
    case NJ_ARG_FLOAT: *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(arg->number)}; return true;
    case NJ_ARG_POINTER:
        if (arg->dtype >= NJ_DTYPE_COUNT) {
            return nj_refuse_argument(error, place, nj_format("%u", arg->dtype).text, "expected a pointer to a dtype of nj_dtype");
        }
        *value = (nj_value){.tag = NJ_TAG_POINTER, .dtype = (uint8_t)nj_dtype_of_memory(arg->dtype), .bits = arg->integer};
        return true;
    case NJ_ARG_TUPLE: return read_tuple(kernel, call, arg, place, value, error);
    case NJ_ARG_DESCRIPTOR: return read_descriptor(call, arg, place, value, error);
    default:
        if (!read_constant(arg, &constant)) {
            return refuse_kind(arg, place, error);
        }
        *value = read_compiled_in(kernel->ids, &constant);
        return true;
    }
}

/* Reads a param's default. A runtime param that defaults to a tuple gets one without leaves. */
static bool read_default(const nj_kernel *kernel, nj_bound_call *call, size_t place, nj_error *error)
{
    const nj_param *param = &kernel->table.params[place];
    nj_value *value = &call->values[place];
    if (!param->has_default) {
        return nj_refuse_argument(error, (int)place, "nothing", NJ_VALUE_RULE);
    }
    if (param->fallback.kind == NJ_CONSTANT_TUPLE) {
        *value = (nj_value){.tag = NJ_TAG_TUPLE, .bits = nj_tuple(call->leaf_count, 0, 0)};
        return true;
    }
    *value = param->fallback.kind == NJ_CONSTANT_FLOAT
                 ? (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(param->fallback.number)}
                 : read_compiled_in(kernel->ids, &param->fallback);
    return true;
}

static bool refuse_constexpr(int place, nj_error *error)
{
    return nj_refuse_argument(error, place, "another", "expected None, a bool, a number, a text, a dtype, a function or a tuple of these");
}

/* Converts an argument to a constant. Members of tuples go to `items`, after the `used` members of earlier constexprs of the call. False
 * with `error` filled. */
static bool read_given(const nj_arg *arg, int place, nj_constant *items, uint16_t *used, nj_constant *value, nj_error *error)
{
    if (arg->kind != NJ_ARG_TUPLE) {
        return read_constant(arg, value) || refuse_constexpr(place, error);
    }
    if (arg->count > (size_t)NJ_LEAVES_MAX - *used) {
        return refuse_leaves(place, error);
    }
    nj_constant *own = items + *used;
    *used += (uint16_t)arg->count;
    for (size_t i = 0; i < arg->count; i++) {
        if (!read_given(&arg->items[i], place, items, used, &own[i], error)) {
            return false;
        }
    }
    *value = (nj_constant){.kind = NJ_CONSTANT_TUPLE, .count = (uint32_t)arg->count, .items = own};
    return true;
}

/* Reads a constexpr or an option as a value of the call's key. */
static bool read_constexpr(const nj_kernel *kernel, nj_bound_call *call, size_t place, nj_error *error)
{
    nj_constant constant, items[NJ_LEAVES_MAX];
    if (call->passed[place] == NULL) {
        call->values[place] = (nj_value){.tag = NJ_TAG_MISSING};
        return true;
    }
    if (!read_given(call->passed[place], (int)place, items, &call->item_count, &constant, error)) {
        return false;
    }
    call->values[place] = nj_ids_find(kernel->ids, &constant);
    return true;
}

static bool read_place(const nj_kernel *kernel, nj_bound_call *call, size_t place, nj_error *error)
{
    if (place >= kernel->param_count || kernel->table.params[place].is_constexpr) {
        return read_constexpr(kernel, call, place, error);
    }
    return call->passed[place] == NULL ? read_default(kernel, call, place, error)
                                       : read_value(kernel, call, call->passed[place], (int)place, &call->values[place], error);
}

nj_kernel_device *nj_call_begin(nj_kernel *kernel, const nj_call *given, int *device, nj_bound_call *call, nj_error *error)
{
    nj_kernel_device *on = nj_kernel_on(kernel, device, error);
    return on != NULL && nj_call_bind(kernel, given, call, error) ? on : NULL;
}

bool nj_call_bind(nj_kernel *kernel, const nj_call *given, nj_bound_call *call, nj_error *error)
{
    if (!bind(kernel, given, call, error)) {
        return false;
    }
    call->leaf_count = call->descriptor_count = call->item_count = 0;
    for (size_t i = 0; i < kernel->param_count + kernel->option_count; i++) {
        if (!read_place(kernel, call, i, error)) {
            return nj_within_argument(kernel, error);
        }
    }
    return true;
}

bool nj_constants_read(const nj_kernel *kernel, const nj_bound_call *call, nj_given_constants *made, nj_error *error)
{
    size_t count = kernel->param_count + kernel->option_count;
    uint16_t used = 0;
    made->constants = malloc((count + 1) * sizeof *made->constants);
    made->given = malloc((count + 1) * sizeof *made->given);
    made->items = malloc(NJ_LEAVES_MAX * sizeof *made->items);
    if (made->constants == NULL || made->given == NULL || made->items == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        bool runtime = i < kernel->param_count && !kernel->table.params[i].is_constexpr;
        made->given[i] = runtime || call->passed[i] == NULL ? NULL : &made->constants[i];
        if (made->given[i] != NULL && !read_given(call->passed[i], (int)i, made->items, &used, &made->constants[i], error)) {
            return false;
        }
    }
    return true;
}

void nj_constants_drop(nj_given_constants *made)
{
    free(made->constants);
    free(made->given);
    free(made->items);
}
