#include "table/arena.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 8 << 10, CHUNK_BYTES_MAX = 256 << 10, ALIGNMENT = 8 };

struct nj_chunk {
    nj_chunk *before;
    size_t size, used;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

static bool add_chunk(nj_arena *arena, size_t size)
{
    size_t room = arena->chunks == NULL ? FIRST_BYTES : 2 * arena->chunks->size;
    room = room < CHUNK_BYTES_MAX ? room : CHUNK_BYTES_MAX;
    room = room < size ? size : room;
    nj_chunk *chunk = malloc(sizeof *chunk + room);
    if (chunk == NULL) {
        return false;
    }
    *chunk = (nj_chunk){.before = arena->chunks, .size = room};
    arena->chunks = chunk;
    return true;
}

void *nj_arena_take(nj_arena *arena, size_t size)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if ((arena->chunks == NULL || size > arena->chunks->size - arena->chunks->used) && !add_chunk(arena, size)) {
        return NULL;
    }
    void *taken = arena->chunks->bytes + arena->chunks->used;
    arena->chunks->used += size;
    return taken;
}

bool nj_arena_add(nj_arena *arena, const void *item, size_t size)
{
    if (size > arena->room - arena->size) {
        size_t room = arena->room == 0 ? FIRST_BYTES : 2 * arena->room;
        unsigned char *items = realloc(arena->items, room);
        if (items == NULL) {
            return false;
        }
        arena->items = items;
        arena->room = room;
    }
    memcpy(arena->items + arena->size, item, size);
    arena->size += size;
    return true;
}

void *nj_arena_end(nj_arena *arena, size_t mark, size_t item_size, uint32_t *count)
{
    size_t size = arena->size - mark;
    void *items = nj_arena_take(arena, size);
    if (items != NULL && size > 0) {
        memcpy(items, arena->items + mark, size);
    }
    arena->size = mark;
    *count = (uint32_t)(size / item_size);
    return items;
}

void *nj_arena_keep(nj_arena *arena)
{
    nj_chunk *chunks = arena->chunks;
    free(arena->items);
    *arena = (nj_arena){0};
    return chunks;
}

void nj_arena_free(void *kept)
{
    for (nj_chunk *chunk = kept, *before; chunk != NULL; chunk = before) {
        before = chunk->before;
        free(chunk);
    }
}
