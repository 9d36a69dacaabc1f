#include "launch/descriptor.h"

#include "base/struct_size.h"

static bool refuse(int argument, int64_t got, nj_error *error, const char *what)
{
    return nj_refuse_argument(error, argument, nj_format("%lld", (long long)got).text, "%s", what);
}

bool nj_descriptor_check_geometry(const nj_descriptor *it, int argument, nj_error *error)
{
    for (int i = 0; i < it->rank; i++) {
        if (it->shape[i] < 1) {
            return refuse(argument, it->shape[i], error, "shape: expected positive sizes");
        }
    }
    return it->strides[it->rank - 1] == 1 || refuse(argument, it->strides[it->rank - 1], error, "strides: expected the last to be 1");
}

bool nj_descriptor_check_box(size_t rank, const int64_t *box, const int64_t *steps, int argument, nj_error *error)
{
    for (size_t i = 0; i < rank; i++) {
        if (box != NULL && (box[i] < 1 || box[i] > NJ_BOX_MAX)) {
            return refuse(argument, box[i], error, nj_format("box: expected sizes of 1 to %d", NJ_BOX_MAX).text);
        }
        if (steps != NULL && (steps[i] < 1 || steps[i] > NJ_STEP_MAX || (i == rank - 1 && steps[i] != 1))) {
            return refuse(argument, steps[i], error, nj_format("steps: expected 1 to %d, and 1 in the last dimension", NJ_STEP_MAX).text);
        }
    }
    return true;
}

bool nj_descriptor_check_options(const nj_descriptor *it, int argument, nj_error *error)
{
    const char *dtype = nj_dtype_name(it->base.dtype);
    if (it->pads_nan && nj_dtypes[it->base.dtype].kind != NJ_OF_FLOATS) {
        return nj_refuse_argument(error, argument, dtype, "expected a descriptor with padding 'nan' to be of floats");
    }
    return !it->rounds_tf32 || it->base.dtype == NJ_DTYPE_FP32 ||
           nj_refuse_argument(error, argument, dtype, "expected a descriptor with round_f32_to_tf32 to be of fp32");
}

/* Reads the box and the steps of a descriptor and checks them. */
static bool take_box(const nj_tensor_descriptor *from, int argument, nj_descriptor *it, nj_error *error)
{
    int64_t box[NJ_DESCRIPTOR_RANK_MAX], steps[NJ_DESCRIPTOR_RANK_MAX];
    for (int i = 0; i < it->rank; i++) {
        box[i] = it->box[i] = from->box[i];
        steps[i] = it->steps[i] = from->steps[i];
    }
    return nj_descriptor_check_box(it->rank, from->box[0] == 0 ? NULL : box, from->steps[0] == 0 ? NULL : steps, argument, error);
}

bool nj_descriptor_take(const nj_tensor_descriptor *from, int argument, nj_descriptor *it, nj_error *error)
{
    const nj_sized sized = {"nj_tensor_descriptor", sizeof *from, NJ_END_OF(nj_tensor_descriptor, reserved), argument};
    nj_tensor_descriptor given;
    if (!nj_sized_take(&sized, from, &given, error)) {
        return false;
    }
    int reserved = given.reserved[0] | given.reserved[1] | given.reserved[2];
    if (reserved != 0) {
        return refuse(argument, reserved, error, "expected nj_tensor_descriptor.reserved to be 0");
    }
    if (given.rank < 1 || given.rank > NJ_DESCRIPTOR_RANK_MAX) {
        return refuse(argument, given.rank, error, nj_format("shape: expected 1 to %d dimensions", NJ_DESCRIPTOR_RANK_MAX).text);
    }
    if (given.dtype <= NJ_DTYPE_NONE || given.dtype >= NJ_DTYPE_COUNT) {
        return refuse(argument, given.dtype, error, "expected a descriptor of a dtype");
    }
    *it = (nj_descriptor){
        .base = {.tag = NJ_TAG_POINTER, .dtype = (uint8_t)nj_dtype_of_memory(given.dtype), .bits = (int64_t)given.address},
        .rank = (uint8_t)given.rank,
        .pads_nan = given.pads_nan != 0,
        .rounds_tf32 = given.rounds_tf32 != 0,
    };
    memcpy(it->shape, given.shape, sizeof it->shape);
    memcpy(it->strides, given.strides, sizeof it->strides);
    memcpy(it->block, given.block, sizeof it->block);
    return nj_descriptor_check_geometry(it, argument, error) && take_box(&given, argument, it, error) &&
           nj_descriptor_check_options(it, argument, error);
}
