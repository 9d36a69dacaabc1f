#include "launch/plan_cache.h"

#include <stdlib.h>

#define CAPACITY_AT_FIRST 16

typedef struct {
    uint64_t hash;
    void *plan;
    uint32_t count;
    uint64_t words[];
} cache_entry;

/* A hash table, and the smaller tables that it replaced, which readers may still use. */
struct nj_plan_cache_places {
    struct nj_plan_cache_places *previous;
    size_t capacity; /* a power of two */
    _Atomic(cache_entry *) entries[];
};

static cache_entry *entry_at(nj_plan_cache_places *places, size_t at)
{
    return atomic_load_explicit(&places->entries[at & (places->capacity - 1)], memory_order_acquire);
}

void nj_plan_cache_clear(nj_plan_cache *cache, void (*drop)(void *plan))
{
    nj_plan_cache_places *places = atomic_exchange(&cache->places, NULL);
    cache->used = 0;
    for (size_t i = 0; places != NULL && i < places->capacity; i++) {
        cache_entry *entry = entry_at(places, i);
        if (entry != NULL && drop != NULL) {
            drop(entry->plan);
        }
        free(entry);
    }
    while (places != NULL) {
        nj_plan_cache_places *previous = places->previous;
        free(places);
        places = previous;
    }
}

int nj_plan_cache_visit(nj_plan_cache *cache, int (*visit)(void *plan, void *context), void *context)
{
    nj_plan_cache_places *places = atomic_load_explicit(&cache->places, memory_order_relaxed);
    int status = 0;
    for (size_t i = 0; places != NULL && status == 0 && i < places->capacity; i++) {
        cache_entry *entry = entry_at(places, i);
        status = entry == NULL ? 0 : visit(entry->plan, context);
    }
    return status;
}

static bool same_key(const cache_entry *entry, const nj_key *key)
{
    return entry->hash == key->hash && entry->count == key->count &&
           memcmp(entry->words, key->words, key->count * sizeof *key->words) == 0;
}

void *nj_plan_cache_find(nj_plan_cache *cache, const nj_key *key)
{
    nj_plan_cache_places *places = atomic_load_explicit(&cache->places, memory_order_acquire);
    for (size_t at = (size_t)key->hash; places != NULL; at++) {
        const cache_entry *entry = entry_at(places, at);
        if (entry == NULL) {
            return NULL;
        }
        if (same_key(entry, key)) {
            return entry->plan;
        }
    }
    return NULL;
}

static void place(nj_plan_cache_places *places, cache_entry *entry)
{
    size_t at = (size_t)entry->hash;
    while (entry_at(places, at) != NULL) {
        at++;
    }
    atomic_store_explicit(&places->entries[at & (places->capacity - 1)], entry, memory_order_release);
}

/* Makes room for one more entry; false if memory runs out. */
static bool grow(nj_plan_cache *cache)
{
    nj_plan_cache_places *old = atomic_load_explicit(&cache->places, memory_order_relaxed);
    if (old != NULL && cache->used * 2 < old->capacity) {
        return true;
    }
    size_t capacity = old == NULL ? CAPACITY_AT_FIRST : old->capacity * 2;
    nj_plan_cache_places *places = calloc(1, sizeof *places + capacity * sizeof *places->entries);
    if (places == NULL) {
        return false;
    }
    places->previous = old;
    places->capacity = capacity;
    for (size_t i = 0; old != NULL && i < old->capacity; i++) {
        cache_entry *entry = entry_at(old, i);
        if (entry != NULL) {
            place(places, entry);
        }
    }
    atomic_store_explicit(&cache->places, places, memory_order_release);
    return true;
}

bool nj_plan_cache_publish(nj_plan_cache *cache, const nj_key *key, void *plan, bool *taken)
{
    *taken = false;
    if (cache->used >= NJ_CACHED_PLANS_MAX || nj_plan_cache_find(cache, key) != NULL) {
        return true;
    }
    cache_entry *entry = malloc(sizeof *entry + key->count * sizeof *key->words);
    if (entry == NULL || !grow(cache)) {
        free(entry);
        return false;
    }
    entry->hash = key->hash;
    entry->plan = plan;
    entry->count = key->count;
    memcpy(entry->words, key->words, key->count * sizeof *key->words);
    place(atomic_load_explicit(&cache->places, memory_order_relaxed), entry);
    cache->used++;
    *taken = true;
    return true;
}
