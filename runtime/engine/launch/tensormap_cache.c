#include "launch/tensormap_cache.h"

#include <stdlib.h>

enum {
    WAYS = 4,
    SETS_FIRST = 2,
    SETS_MAX = 128,
    GROWTH = 8,
    KEY_WORDS = sizeof(nj_map_key) / 8,
    MAP_WORDS = sizeof(CUtensorMap) / 8,
    USED_WORD = offsetof(nj_map_key, used) / 8,
};

_Static_assert(sizeof(nj_map_key) == 8 * KEY_WORDS, "keys are compared word by word");

/* 2^64 divided by the golden ratio, rounded to an odd number: the multiplier of Fibonacci hashing */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

typedef struct {
    _Atomic(uint64_t) key[KEY_WORDS], map[MAP_WORDS];
} cached_map;

typedef struct nj_map_table {
    struct nj_map_table *smaller; /* the table that this one replaced; other threads may still read it */
    unsigned int sets;             /* a power of two */
    cached_map ways[];               /* the ways of the first set, then those of the next */
} nj_map_table;

static uint64_t load(const _Atomic(uint64_t) *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic(uint64_t) *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t word_of(const void *from, size_t number)
{
    uint64_t word;
    memcpy(&word, (const char *)from + 8 * number, sizeof word);
    return word;
}

/* Returns the ways of a key's set. */
static cached_map *set_of(nj_map_table *table, const nj_map_key *key)
{
    uint64_t hash = 0;
    for (int i = 0; i < NJ_DESCRIPTOR_RANK_MAX; i++) {
        hash = (hash + (uint64_t)key->shape[i]) * GOLDEN;
    }
    /* hashes the address last, so that equidistant addresses spread evenly over the sets */
    hash = (hash + key->address) * GOLDEN;
    return &table->ways[((hash >> 57) & (table->sets - 1)) * WAYS];
}

static bool is_of(const cached_map *way, const nj_map_key *key)
{
    for (size_t i = 0; i < KEY_WORDS; i++) {
        if (load(&way->key[i]) != word_of(key, i)) {
            return false;
        }
    }
    return true;
}

static cached_map *way_of(nj_map_table *table, const nj_map_key *key)
{
    cached_map *ways = table == NULL ? NULL : set_of(table, key);
    for (int i = 0; ways != NULL && i < WAYS; i++) {
        if (is_of(&ways[i], key)) {
            return &ways[i];
        }
    }
    return NULL;
}

bool nj_tensormap_cache_find(const nj_tensormap_cache *cache, const nj_map_key *key, CUtensorMap *map)
{
    unsigned int edition = atomic_load_explicit(&cache->edition, memory_order_acquire);
    const cached_map *way = way_of(atomic_load_explicit(&cache->table, memory_order_acquire), key);
    if (way == NULL) {
        return false;
    }
    for (size_t i = 0; i < MAP_WORDS; i++) {
        map->words[i] = load(&way->map[i]);
    }
    atomic_thread_fence(memory_order_acquire);
    return edition % 2 == 0 && atomic_load_explicit(&cache->edition, memory_order_relaxed) == edition;
}

/* Returns a free way of the key's set, or NULL. */
static cached_map *free_way(nj_map_table *table, const nj_map_key *key)
{
    cached_map *ways = table == NULL ? NULL : set_of(table, key);
    for (int i = 0; ways != NULL && i < WAYS; i++) {
        if (load(&ways[i].key[USED_WORD]) == 0) {
            return &ways[i];
        }
    }
    return NULL;
}

static void move(const cached_map *from, nj_map_table *to)
{
    nj_map_key key;
    for (size_t i = 0; i < KEY_WORDS; i++) {
        uint64_t word = load(&from->key[i]);
        memcpy((char *)&key + 8 * i, &word, sizeof word);
    }
    /* the larger table has room, because each of its sets takes maps from only one set of the smaller one */
    cached_map *way = key.used ? free_way(to, &key) : NULL;
    for (size_t i = 0; way != NULL && i < KEY_WORDS; i++) {
        store(&way->key[i], load(&from->key[i]));
    }
    for (size_t i = 0; way != NULL && i < MAP_WORDS; i++) {
        store(&way->map[i], load(&from->map[i]));
    }
}

/* Replaces the table by a larger one and returns it. If memory runs out, returns the old table. */
static nj_map_table *grow(nj_tensormap_cache *cache, nj_map_table *table)
{
    unsigned int sets = table == NULL ? SETS_FIRST : GROWTH * table->sets;
    nj_map_table *grown = calloc(1, sizeof *grown + sets * WAYS * sizeof *grown->ways);
    if (grown == NULL) {
        return table;
    }
    grown->smaller = table;
    grown->sets = sets;
    for (unsigned int i = 0; table != NULL && i < table->sets * WAYS; i++) {
        move(&table->ways[i], grown);
    }
    atomic_store_explicit(&cache->table, grown, memory_order_release);
    return grown;
}

static void write(nj_tensormap_cache *cache, cached_map *way, const nj_map_key *key, const CUtensorMap *map)
{
    unsigned int edition = atomic_load_explicit(&cache->edition, memory_order_relaxed);
    atomic_store_explicit(&cache->edition, edition + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < KEY_WORDS; i++) {
        store(&way->key[i], word_of(key, i));
    }
    for (size_t i = 0; i < MAP_WORDS; i++) {
        store(&way->map[i], map->words[i]);
    }
    atomic_store_explicit(&cache->edition, edition + 2, memory_order_release);
}

void nj_tensormap_cache_add(nj_tensormap_cache *cache, const nj_map_key *key, const CUtensorMap *map)
{
    pthread_mutex_lock(&cache->lock);
    nj_map_table *table = atomic_load_explicit(&cache->table, memory_order_relaxed);
    bool there = way_of(table, key) != NULL; /* true if another thread added the map first */
    cached_map *way = there ? NULL : free_way(table, key);
    if (!there && way == NULL && (table == NULL || table->sets < SETS_MAX)) {
        table = grow(cache, table);
        way = free_way(table, key);
    }
    if (!there && way == NULL && table != NULL) {
        way = &set_of(table, key)[cache->next++ % WAYS];
    }
    if (way != NULL) {
        write(cache, way, key, map);
    }
    pthread_mutex_unlock(&cache->lock);
}

void nj_tensormap_cache_init(nj_tensormap_cache *cache)
{
    pthread_mutex_init(&cache->lock, NULL);
    atomic_init(&cache->edition, 0);
    atomic_init(&cache->table, NULL);
    cache->next = 0;
}

void nj_tensormap_cache_clear(nj_tensormap_cache *cache)
{
    nj_map_table *table = atomic_load_explicit(&cache->table, memory_order_relaxed);
    while (table != NULL) {
        nj_map_table *smaller = table->smaller;
        free(table);
        table = smaller;
    }
    pthread_mutex_destroy(&cache->lock);
}
