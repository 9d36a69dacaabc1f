#include "cache.h"

#define CAPACITY_AT_FIRST 16

int nj_cache_init(nj_cache *cache)
{
    cache->used = 0;
    cache->capacity = CAPACITY_AT_FIRST;
    cache->entries = PyMem_Calloc(cache->capacity, sizeof *cache->entries);
    if (cache->entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void nj_cache_clear(nj_cache *cache)
{
    if (cache->entries == NULL) {
        return;
    }
    /* dropping a plan can run code that comes back here: it must find the cache whole */
    nj_entry **entries = cache->entries;
    size_t capacity = cache->capacity;
    cache->entries = NULL;
    cache->capacity = cache->used = 0;
    for (size_t i = 0; i < capacity; i++) {
        if (entries[i] != NULL) {
            Py_DECREF(entries[i]->plan);
            PyMem_Free(entries[i]);
        }
    }
    PyMem_Free(entries);
}

int nj_cache_traverse(const nj_cache *cache, visitproc visit, void *arg)
{
    for (size_t i = 0; i < cache->capacity; i++) {
        if (cache->entries[i] != NULL) {
            Py_VISIT(cache->entries[i]->plan);
        }
    }
    return 0;
}

static bool same_key(const nj_entry *entry, const nj_key *key)
{
    return entry->hash == key->hash && entry->count == key->count &&
           memcmp(entry->words, key->words, key->count * sizeof *key->words) == 0;
}

nj_plan *nj_cache_find(const nj_cache *cache, const nj_key *key)
{
    for (size_t at = key->hash; cache->entries != NULL; at++) {
        const nj_entry *entry = cache->entries[at & (cache->capacity - 1)];
        if (entry == NULL) {
            return NULL;
        }
        if (same_key(entry, key)) {
            return entry->plan;
        }
    }
    return NULL;
}

static void place(nj_entry **entries, size_t capacity, nj_entry *entry)
{
    size_t at = entry->hash;
    while (entries[at & (capacity - 1)] != NULL) {
        at++;
    }
    entries[at & (capacity - 1)] = entry;
}

static int grow(nj_cache *cache)
{
    size_t capacity = cache->capacity * 2;
    nj_entry **entries = PyMem_Calloc(capacity, sizeof *entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < cache->capacity; i++) {
        if (cache->entries[i] != NULL) {
            place(entries, capacity, cache->entries[i]);
        }
    }
    PyMem_Free(cache->entries);
    cache->entries = entries;
    cache->capacity = capacity;
    return 0;
}

int nj_cache_publish(nj_cache *cache, const nj_key *key, nj_plan *plan)
{
    if (nj_cache_find(cache, key) != NULL) {
        return 0;
    }
    if (cache->entries == NULL ? nj_cache_init(cache) < 0 : cache->used * 2 >= cache->capacity && grow(cache) < 0) {
        return -1;
    }
    nj_entry *entry = PyMem_Malloc(sizeof *entry + key->count * sizeof *key->words);
    if (entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    entry->hash = key->hash;
    entry->plan = (nj_plan *)Py_NewRef((PyObject *)plan);
    entry->count = key->count;
    memcpy(entry->words, key->words, key->count * sizeof *key->words);
    place(cache->entries, cache->capacity, entry);
    cache->used++;
    return 0;
}
