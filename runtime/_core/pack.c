#include "pack.h"

#include "errors.h"

static int pack_float(nj_dtype dtype, double number, uint64_t *cell)
{
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case NJ_FP16: return PyFloat_Pack2(number, (char *)cell, 1);
    case NJ_BF16: *cell = bits >> 16; return 0; /* cut off, not rounded: as Triton does */
    case NJ_FP64: *cell = (uint64_t)nj_double_bits(number); return 0;
    default: *cell = bits; return 0; /* NJ_FP32 */
    }
}

static int pack_number(const nj_slot *slot, const nj_signature *signature, const nj_value *value, uint64_t *cell)
{
    if (slot->dtype < NJ_FP16) {
        *cell = (uint64_t)value->bits;
        return 0;
    }
    if (pack_float(slot->dtype, nj_as_double(value->bits), cell) < 0) {
        nj_refuse_pending(signature->kernel, signature->names[slot->source], "expected a number that fits fp16");
        return -1;
    }
    return 0;
}

/* Selection has matched the call with the variant's types, and loading those with its layout. */
static int refuse_shape(const nj_slot *slot, const nj_signature *signature, const char *what)
{
    nj_refuse(signature->kernel, signature->names[slot->source], PyUnicode_FromString("another"), "expected %s", what);
    return -1;
}

static const nj_value *find_value(const nj_slot *slot, const nj_call *call)
{
    const nj_value *value = &call->values[slot->source];
    if (slot->leaf < 0) {
        return value;
    }
    bool fits = value->tag == NJ_TAG_TUPLE && slot->leaf < nj_tuple_entries(value);
    return fits ? &call->leaves[nj_tuple_start(value) + slot->leaf] : NULL;
}

static int pack_shape(const nj_slot *slot, const nj_signature *signature, int64_t size, uint64_t *cell)
{
    if (slot->dtype == NJ_I32 && size > INT32_MAX) {
        nj_refuse(signature->kernel, signature->names[slot->source], PyUnicode_FromFormat("%lld", (long long)size),
                  "expected a descriptor's dimensions below 2^31");
        return -1;
    }
    *cell = (uint64_t)size;
    return 0;
}

static int pack_map(nj_plan *plan, const nj_slot *slot, const nj_signature *signature,
                    const nj_descriptor *descriptor, CUtensorMap *map)
{
    int status;
    NJ_BEGIN_LOCKED(plan);
    status = nj_map_encode(&plan->maps[slot->index], plan->device, descriptor, signature->kernel,
                           signature->names[slot->source], plan->label, map);
    NJ_END_LOCKED();
    return status;
}

static int pack_part(const nj_slot *slot, const nj_signature *signature, const nj_descriptor *descriptor,
                     uint64_t *cell)
{
    if ((slot->part == NJ_PART_SHAPE || slot->part == NJ_PART_STRIDE) && slot->index >= descriptor->rank) {
        return refuse_shape(slot, signature, "a descriptor of the rank that the kernel was built for");
    }
    switch (slot->part) {
    case NJ_PART_BASE:
        if (descriptor->box[0] != 0 || descriptor->steps[0] != 0) {
            return refuse_shape(slot, signature, "a descriptor without a box of its own: the kernel uses no tensor maps");
        }
        *cell = (uint64_t)descriptor->base.bits;
        return 0;
    case NJ_PART_SHAPE: return pack_shape(slot, signature, descriptor->shape[slot->index], cell);
    case NJ_PART_STRIDE: *cell = (uint64_t)descriptor->strides[slot->index]; return 0;
    case NJ_PART_PADS_NAN: *cell = descriptor->pads_nan; return 0;
    default: *cell = descriptor->rounds_tf32; return 0; /* NJ_PART_ROUNDS_TF32 */
    }
}

static int pack_other(nj_plan *plan, const nj_slot *slot, const nj_signature *signature, nj_call *call,
                      nj_launch *launch, Py_ssize_t at)
{
    const nj_value *value = find_value(slot, call);
    launch->params[at] = &launch->cells[at];
    if (value == NULL) {
        return refuse_shape(slot, signature, "a tuple of the members that the kernel was built for");
    }
    if (slot->part == NJ_PART_VALUE) {
        return pack_number(slot, signature, value, &launch->cells[at]);
    }
    if (value->tag != NJ_TAG_DESCRIPTOR) {
        return refuse_shape(slot, signature, "a tensor descriptor");
    }
    const nj_descriptor *descriptor = &call->descriptors[value->bits];
    if (slot->part == NJ_PART_MAP) {
        launch->params[at] = &launch->maps[slot->index];
        return pack_map(plan, slot, signature, descriptor, &launch->maps[slot->index]);
    }
    return pack_part(slot, signature, descriptor, &launch->cells[at]);
}

int nj_pack(nj_plan *plan, const nj_signature *signature, nj_call *call, nj_launch *launch)
{
    for (Py_ssize_t i = 0; i < plan->slot_count; i++) {
        const nj_slot *slot = &plan->slots[i];
        int status = 0;
        switch (slot->packing) {
        case NJ_PACK_BITS:
            /* little-endian: the low bytes of a value are the value in fewer bytes; its range has chosen the variant */
            launch->params[i] = &call->values[slot->source].bits;
            break;
        case NJ_PACK_FLOAT:
            launch->params[i] = &launch->cells[i];
            status = pack_number(slot, signature, &call->values[slot->source], &launch->cells[i]);
            break;
        case NJ_PACK_SCRATCH:
            launch->params[i] = &launch->scratch_address[NJ_SOURCE_GLOBAL_SCRATCH - slot->source];
            break;
        default: status = pack_other(plan, slot, signature, call, launch, i); break; /* NJ_PACK_OTHER */
        }
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}
