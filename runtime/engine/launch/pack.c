#include "launch/pack.h"

#include "launch/slot.h"

static bool pack_number(const nj_slot *slot, const nj_value *value, uint64_t *cell, nj_error *error)
{
    if (nj_dtypes[slot->dtype].kind != NJ_OF_FLOATS) {
        *cell = (uint64_t)value->bits;
        return true;
    }
    double number = nj_as_double(value->bits);
    return nj_dtype_pack(slot->dtype, number, cell) ||
           nj_refuse_argument(error, slot->source, nj_format("%g", number).text, "expected a number that fits %s", nj_dtype_name(slot->dtype));
}

/* Fills the error of an argument that does not fit its slot. This is a second line of defence: selection has already matched the call's
 * types with the variant, and loading has matched the types with the slots. Returns false. */
static bool refuse_shape(const nj_slot *slot, nj_error *error, const char *what)
{
    return nj_refuse_argument(error, slot->source, "another", "expected %s", what);
}

static const nj_value *find_value(const nj_slot *slot, const nj_arguments *arguments)
{
    const nj_value *value = &arguments->values[slot->source];
    if (slot->leaf < 0) {
        return value;
    }
    bool fits = value->tag == NJ_TAG_TUPLE && slot->leaf < nj_tuple_entries(value);
    return fits ? &arguments->leaves[nj_tuple_start(value) + slot->leaf] : NULL;
}

static bool pack_shape(const nj_slot *slot, int64_t size, uint64_t *cell, nj_error *error)
{
    if (slot->dtype == NJ_DTYPE_I32 && size > INT32_MAX) {
        return nj_refuse_argument(error, slot->source, nj_format("%lld", (long long)size).text,
                                  "expected a descriptor's dimensions below 2^31");
    }
    *cell = (uint64_t)size;
    return true;
}

static bool pack_part(const nj_slot *slot, const nj_descriptor *descriptor, uint64_t *cell, nj_error *error)
{
    if ((slot->part == NJ_PART_SHAPE || slot->part == NJ_PART_STRIDE) && slot->index >= descriptor->rank) {
        return refuse_shape(slot, error, "a descriptor of the rank that the kernel was built for");
    }
    switch (slot->part) {
    case NJ_PART_BASE:
        if (descriptor->box[0] != 0 || descriptor->steps[0] != 0) {
            return refuse_shape(slot, error, "a descriptor without a box of its own: the kernel uses no tensor maps");
        }
        *cell = (uint64_t)descriptor->base.bits;
        return true;
    case NJ_PART_SHAPE: return pack_shape(slot, descriptor->shape[slot->index], cell, error);
    case NJ_PART_STRIDE: *cell = (uint64_t)descriptor->strides[slot->index]; return true;
    case NJ_PART_PADS_NAN: *cell = descriptor->pads_nan; return true;
    default: *cell = descriptor->rounds_tf32; return true; /* NJ_PART_ROUNDS_TF32 */
    }
}

bool nj_launch_pack_part(const nj_runnable *runnable, size_t at, const nj_descriptor *descriptor, nj_launch_state *launch, nj_error *error)
{
    const nj_slot *slot = &runnable->slots[at];
    launch->params[at] = &launch->cells[at];
    if (slot->part == NJ_PART_MAP) {
        CUtensorMap *map = &launch->maps[slot->index];
        launch->params[at] = map;
        return nj_map_encode(&runnable->maps[slot->index], runnable->device, descriptor, slot->source, map, error);
    }
    return pack_part(slot, descriptor, &launch->cells[at], error);
}

static __attribute__((noinline)) bool pack_other(const nj_runnable *runnable, size_t at, const nj_arguments *arguments, nj_launch_state *launch,
                                                 nj_error *error)
{
    const nj_slot *slot = &runnable->slots[at];
    const nj_value *value = find_value(slot, arguments);
    launch->params[at] = &launch->cells[at];
    if (value == NULL) {
        return refuse_shape(slot, error, "a tuple of the members that the kernel was built for");
    }
    if (slot->part == NJ_PART_VALUE) {
        return pack_number(slot, value, &launch->cells[at], error);
    }
    if (value->tag != NJ_TAG_DESCRIPTOR) {
        return refuse_shape(slot, error, "a tensor descriptor");
    }
    return nj_launch_pack_part(runnable, at, &arguments->descriptors[value->bits], launch, error);
}

bool nj_launch_pack(const nj_runnable *runnable, const nj_arguments *arguments, nj_launch_state *launch, nj_error *error)
{
    for (size_t i = 0; i < runnable->slot_count; i++) {
        const nj_slot *slot = &runnable->slots[i];
        bool packed = true;
        switch (slot->packing) {
        case NJ_PACK_BITS:
            /* the host is little-endian, so a narrower param reads the value's low bytes; selection has checked that it fits */
            launch->params[i] = (void *)&arguments->values[slot->source].bits;
            break;
        case NJ_PACK_FLOAT:
            launch->params[i] = &launch->cells[i];
            packed = pack_number(slot, &arguments->values[slot->source], &launch->cells[i], error);
            break;
        case NJ_PACK_SCRATCH:
            launch->params[i] = nj_launch_scratch_param(launch, slot->source);
            break;
        default: packed = pack_other(runnable, i, arguments, launch, error); break; /* NJ_PACK_OTHER */
        }
        if (!packed) {
            return false;
        }
    }
    return true;
}
