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

static bool is_slot(const nj_runnable *runnable, const nj_slot *slot)
{
    bool map = slot->part == NJ_PART_MAP;
    return slot->dtype < NJ_DTYPE_COUNT && nj_dtypes[slot->dtype].is_scalar && slot->source >= NJ_SOURCE_PROFILE_SCRATCH && slot->source < (int64_t)runnable->argument_count &&
           slot->leaf >= -1 && slot->leaf < NJ_LEAVES_MAX && slot->part <= NJ_PART_ROUNDS_TF32 &&
           slot->index < (map ? runnable->map_count : NJ_RANK_MAX);
}

bool nj_runnable_read_slots(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    if (facts->slot_count > NJ_ARGUMENTS_MAX) {
        return nj_differ(error, nj_format("%zu", facts->slot_count).text, "expected at most %d slots", NJ_ARGUMENTS_MAX);
    }
    runnable->slots = calloc(facts->slot_count + 1, sizeof *runnable->slots);
    if (runnable->slots == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < facts->slot_count; i++) {
        const nj_slot_facts *from = &facts->slots[i];
        nj_slot *slot = &runnable->slots[i];
        *slot = (nj_slot){.source = from->source, .leaf = from->leaf, .part = from->part, .index = from->index};
        slot->dtype = from->dtype;
        if (!is_slot(runnable, slot)) {
            return nj_differ(error, nj_format("%d and %d", slot->source, from->dtype).text,
                             "expected a slot of a known source and type");
        }
        slot->packing = (uint8_t)packing_of(slot);
    }
    runnable->slot_count = facts->slot_count;
    return true;
}

static bool check_map(const nj_map_facts *map, size_t argument_count, nj_error *error)
{
    if (map->source < 0 || (size_t)map->source >= argument_count || map->leaf >= NJ_LEAVES_MAX || map->element_bytes == 0 ||
        map->element_bytes > 16) {
        return nj_differ(error, "", "expected the facts of a tensor map");
    }
    return (map->rank >= 1 && map->rank <= NJ_RANK_MAX) ||
           nj_differ(error, nj_format("%zu", map->rank).text, "expected a tensor map of rank 1 to %d", NJ_RANK_MAX);
}

bool nj_runnable_read_maps(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    if (facts->map_count > NJ_DESCRIPTORS_MAX) {
        return nj_differ(error, nj_format("%zu", facts->map_count).text, "expected at most %d tensor maps", NJ_DESCRIPTORS_MAX);
    }
    runnable->maps = facts->map_count == 0 ? NULL : calloc(facts->map_count, sizeof *runnable->maps);
    if (facts->map_count != 0 && runnable->maps == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < facts->map_count; i++) {
        if (!check_map(&facts->maps[i], facts->argument_count, error)) {
            return false;
        }
        runnable->maps[i].facts = facts->maps[i];
        nj_map_cache_init(&runnable->maps[i].cache);
        runnable->map_count++;
    }
    return true;
}
