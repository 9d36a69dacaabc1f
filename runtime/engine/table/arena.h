/* Memory that is freed all at once, and arrays that grow until they are moved there. */
#ifndef NOJIT_TABLE_ARENA_H
#define NOJIT_TABLE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nj_chunk nj_chunk;

typedef struct {
    nj_chunk *chunks;
    unsigned char *items; /* of arrays that still grow, one behind the other */
    size_t size, room;
} nj_arena;

/* Takes `size` bytes, aligned to 8; NULL if no memory is left. */
void *nj_arena_take(nj_arena *arena, size_t size);

/* Starts an array: the mark that its end needs. An array may grow while an older one waits. */
static inline size_t nj_arena_start(const nj_arena *arena)
{
    return arena->size;
}

/* Adds an item to the array that was started last; false if no memory is left. */
bool nj_arena_add(nj_arena *arena, const void *item, size_t size);

/* Ends that array: its items, moved to where they stay, and their number. NULL if no memory is left. */
void *nj_arena_end(nj_arena *arena, size_t mark, size_t item_size, uint32_t *count);

/* Frees what grows. Returns the rest, for nj_arena_free. */
void *nj_arena_keep(nj_arena *arena);
void nj_arena_free(void *kept);

#endif
