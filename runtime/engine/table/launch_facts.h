/* Reads the launches and layouts of a table, and checks their rules, when a call needs them. */
#ifndef NOJIT_TABLE_LAUNCH_FACTS_H
#define NOJIT_TABLE_LAUNCH_FACTS_H

#include "table/table.h"
#include "table/type_name.h"

#define NJ_GLOBAL_SCRATCH "$global_scratch"
#define NJ_PROFILE_SCRATCH "$profile_scratch"

enum { NJ_LAYOUT_SLOTS_MAX = 1024 };

/* A parameter of a compiled kernel. */
typedef struct {
    nj_span source, type;
} nj_layout_slot;

/* The encoding of a descriptor. */
typedef struct {
    nj_span source;
    uint8_t swizzle, element_bytes, element_type, rank; /* enums of cuda.h */
    bool fp4_padded;
    uint16_t block[NJ_DESCRIPTOR_RANK_MAX];
} nj_tensor_map;

/* Returns the name in tables of a field, by number, of a launch or a tensor map; NULL after the last. */
NJ_FOR_BINDING const char *nj_launch_field(size_t number);
NJ_FOR_BINDING const char *nj_tensor_map_field(size_t number);

/* One launch of a table. */
typedef struct nj_launch_facts {
    nj_document document;
    void *memory; /* memory of slots and maps; owned */
    nj_span symbol;
    uint32_t layout; /* the number of its layout */
    uint32_t num_warps, num_ctas, shared_bytes;
    uint32_t global_scratch_bytes, global_scratch_align, profile_scratch_bytes, profile_scratch_align;
    bool cooperative, pdl;
    uint32_t slot_count, map_count;
    const nj_layout_slot *slots;
    const nj_tensor_map *maps;
} nj_launch_facts;

/* Reads a launch and its layout. Returns false with `error` filled (may be NULL) if a rule is broken. Call `nj_launch_close` in either
 * case. */
NJ_FOR_BINDING bool nj_table_launch(const nj_table *table, size_t number, nj_launch_facts *launch, nj_error *error);
NJ_FOR_BINDING void nj_launch_close(nj_launch_facts *launch);

/* `nj_table_launch` for the JSON of a launch, whose layout is one of `layouts`. */
NJ_FOR_BINDING bool nj_launch_read(nj_span raw, const nj_span *layouts, uint32_t layout_count, nj_launch_facts *launch, nj_error *error);

/* Reads a layout, `source:type` for each parameter, into at most NJ_LAYOUT_SLOTS_MAX slots. */
NJ_FOR_BINDING bool nj_read_layout(nj_span text, nj_layout_slot *slots, uint32_t *count, nj_error *error);

#endif
