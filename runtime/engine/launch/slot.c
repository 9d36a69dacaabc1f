#include "launch/slot.h"

#include <stdlib.h>

static nj_packing packing_of(const nj_slot *slot)
{
    if (slot->source < 0) {
        return NJ_PACK_SCRATCH;
    }
    if (slot->leaf >= 0 || slot->part != NJ_PART_VALUE) {
        return NJ_PACK_OTHER;
    }
    const nj_dtype_facts *dtype = &nj_dtypes[slot->dtype];
    return dtype->kind == NJ_OF_FLOATS && dtype->bytes < sizeof(double) ? NJ_PACK_FLOAT : NJ_PACK_BITS;
}

bool nj_runnable_read_slots(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    runnable->slots = calloc(facts->slot_count + 1, sizeof *runnable->slots);
    if (runnable->slots == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < facts->slot_count; i++) {
        const nj_slot_facts *from = &facts->slots[i];
        nj_slot *slot = &runnable->slots[i];
        *slot = (nj_slot){.source = from->source, .leaf = from->leaf, .part = from->part, .index = from->index};
        slot->dtype = from->dtype;
        slot->packing = (uint8_t)packing_of(slot);
    }
    runnable->slot_count = facts->slot_count;
    return true;
}

bool nj_runnable_read_maps(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    runnable->maps = facts->map_count == 0 ? NULL : calloc(facts->map_count, sizeof *runnable->maps);
    if (facts->map_count != 0 && runnable->maps == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < facts->map_count; i++) {
        runnable->maps[i].facts = facts->maps[i];
        nj_tensormap_cache_init(&runnable->maps[i].cache);
        runnable->map_count++;
    }
    return true;
}
