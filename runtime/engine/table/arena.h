/* Memory that is freed all at once, and arrays that grow until they are moved there. */
#ifndef NOJIT_TABLE_ARENA_H
#define NOJIT_TABLE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nj_chunk nj_chunk;

typedef struct {
    nj_chunk *chunks;
    unsigned char *items; /* items of the arrays that still grow, one array after the other */
    size_t size, room;
} nj_arena;

/* Allocates `size` bytes, aligned to 8; NULL without memory. */
void *nj_arena_take(nj_arena *arena, size_t size);

/* Starts an array, and returns the mark that `nj_arena_end` needs. Arrays nest: only the one that was started last can grow. */
static inline size_t nj_arena_start(const nj_arena *arena)
{
    return arena->size;
}

/* Adds an item to the array that was started last; false without memory. */
bool nj_arena_add(nj_arena *arena, const void *item, size_t size);

/* Ends that array. Returns its items, moved to their final place, and fills their number; NULL without memory. */
void *nj_arena_end(nj_arena *arena, size_t mark, size_t item_size, uint32_t *count);

/* Frees the memory of growing arrays. Returns all other memory, which `nj_arena_free` frees. */
void *nj_arena_keep(nj_arena *arena);
void nj_arena_free(void *kept);

#endif
