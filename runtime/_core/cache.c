#include "cache.h"

#define CAPACITY_AT_FIRST 16

void nj_cache_clear(nj_cache *cache)
{
    /* dropping a plan can run code that comes back here: it must find the cache whole */
    nj_places *places = atomic_exchange(&cache->places, NULL);
    cache->used = 0;
    for (size_t i = 0; places != NULL && i < places->capacity; i++) {
        nj_cache_entry *entry = atomic_load_explicit(&places->entries[i], memory_order_relaxed);
        if (entry != NULL) {
            Py_DECREF(entry->plan);
            PyMem_Free(entry);
        }
    }
    while (places != NULL) {
        nj_places *previous = places->previous;
        PyMem_Free(places);
        places = previous;
    }
}

int nj_cache_traverse(nj_cache *cache, visitproc visit, void *arg)
{
    nj_places *places = atomic_load_explicit(&cache->places, memory_order_relaxed);
    for (size_t i = 0; places != NULL && i < places->capacity; i++) {
        nj_cache_entry *entry = atomic_load_explicit(&places->entries[i], memory_order_relaxed);
        if (entry != NULL) {
            Py_VISIT(entry->plan);
        }
    }
    return 0;
}

static bool same_key(const nj_cache_entry *entry, const nj_key *key)
{
    return entry->hash == key->hash && entry->count == key->count &&
           memcmp(entry->words, key->words, key->count * sizeof *key->words) == 0;
}

nj_plan_object *nj_cache_find(nj_cache *cache, const nj_key *key)
{
    nj_places *places = atomic_load_explicit(&cache->places, memory_order_acquire);
    for (size_t at = key->hash; places != NULL; at++) {
        const nj_cache_entry *entry =
            atomic_load_explicit(&places->entries[at & (places->capacity - 1)], memory_order_acquire);
        if (entry == NULL) {
            return NULL;
        }
        if (same_key(entry, key)) {
            return entry->plan;
        }
    }
    return NULL;
}

static void place(nj_places *places, nj_cache_entry *entry)
{
    size_t at = entry->hash;
    while (atomic_load_explicit(&places->entries[at & (places->capacity - 1)], memory_order_relaxed) != NULL) {
        at++;
    }
    atomic_store_explicit(&places->entries[at & (places->capacity - 1)], entry, memory_order_release);
}

/* Makes room for one more. */
static int grow(nj_cache *cache)
{
    nj_places *old = atomic_load_explicit(&cache->places, memory_order_relaxed);
    if (old != NULL && cache->used * 2 < old->capacity) {
        return 0;
    }
    size_t capacity = old == NULL ? CAPACITY_AT_FIRST : old->capacity * 2;
    nj_places *places = PyMem_Calloc(1, sizeof *places + capacity * sizeof *places->entries);
    if (places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    places->previous = old;
    places->capacity = capacity;
    for (size_t i = 0; old != NULL && i < old->capacity; i++) {
        nj_cache_entry *entry = atomic_load_explicit(&old->entries[i], memory_order_relaxed);
        if (entry != NULL) {
            place(places, entry);
        }
    }
    atomic_store_explicit(&cache->places, places, memory_order_release);
    return 0;
}

int nj_cache_publish(nj_cache *cache, const nj_key *key, nj_plan_object *plan)
{
    if (cache->used >= NJ_ENTRIES_MAX || nj_cache_find(cache, key) != NULL) {
        return 0;
    }
    nj_cache_entry *entry = PyMem_Malloc(sizeof *entry + key->count * sizeof *key->words);
    if (entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (grow(cache) < 0) {
        PyMem_Free(entry);
        return -1;
    }
    entry->hash = key->hash;
    entry->plan = (nj_plan_object *)Py_NewRef((PyObject *)plan);
    entry->count = key->count;
    memcpy(entry->words, key->words, key->count * sizeof *key->words);
    place(atomic_load_explicit(&cache->places, memory_order_relaxed), entry);
    cache->used++;
    return 0;
}
