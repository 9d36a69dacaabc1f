#include "select/constant_ids.h"

#include "base/dtype.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

/* The kinds of an id, as its bits of NJ_OPAQUE_KIND_MASK number them. */
enum { KIND_TEXT, KIND_DTYPE, KIND_FUNCTION, KIND_OTHER };

enum { CAPACITY_AT_FIRST = 32 };

typedef struct {
    uint64_t hash;
    int64_t number;
    size_t size;
    unsigned char bytes[];
} name_entry;

/* A hash table, at most half full. Lookups take no lock: an entry never changes once it is in a table, and entries and tables live as
 * long as the ids. */
typedef struct name_places {
    struct name_places *previous;
    size_t capacity; /* a power of two */
    _Atomic(name_entry *) entries[];
} name_places;

struct nj_ids {
    pthread_mutex_t lock; /* held while an entry is added */
    _Atomic(name_places *) places;
    size_t count;
    uint64_t seed; /* random, so that no bundle can force hash collisions */
};

static name_places *new_places(name_places *previous, size_t capacity)
{
    name_places *made = calloc(1, sizeof *made + capacity * sizeof *made->entries);
    if (made != NULL) {
        made->previous = previous;
        made->capacity = capacity;
    }
    return made;
}

nj_ids *nj_ids_new(void)
{
    nj_ids *ids = calloc(1, sizeof *ids);
    name_places *places = ids == NULL ? NULL : new_places(NULL, CAPACITY_AT_FIRST);
    if (places == NULL) {
        free(ids);
        return NULL;
    }
    if (getrandom(&ids->seed, sizeof ids->seed, GRND_NONBLOCK) != (ssize_t)sizeof ids->seed) {
        ids->seed = (uint64_t)(uintptr_t)ids * UINT64_C(0x9e3779b97f4a7c15);
    }
    pthread_mutex_init(&ids->lock, NULL);
    atomic_init(&ids->places, places);
    return ids;
}

void nj_ids_free(nj_ids *ids)
{
    if (ids == NULL) {
        return;
    }
    name_places *places = atomic_load(&ids->places);
    for (size_t i = 0; i < places->capacity; i++) {
        free(atomic_load(&places->entries[i]));
    }
    while (places != NULL) {
        name_places *previous = places->previous;
        free(places);
        places = previous;
    }
    pthread_mutex_destroy(&ids->lock);
    free(ids);
}

static uint64_t hash_of(const nj_ids *ids, nj_span bytes)
{
    uint64_t hash = ids->seed ^ bytes.size;
    size_t i = 0;
    for (; i + sizeof hash <= bytes.size; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, bytes.at + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    for (; i < bytes.size; i++) {
        hash = (hash ^ bytes.at[i]) * UINT64_C(0x100000001b3);
    }
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Returns the number of a name; -1 if it has none. */
static int64_t find(const nj_ids *ids, nj_span bytes, uint64_t hash)
{
    name_places *places = atomic_load_explicit(&ids->places, memory_order_acquire);
    for (size_t at = (size_t)hash;; at++) {
        const name_entry *entry = atomic_load_explicit(&places->entries[at & (places->capacity - 1)], memory_order_acquire);
        if (entry == NULL) {
            return -1;
        }
        if (entry->hash == hash && entry->size == bytes.size && memcmp(entry->bytes, bytes.at, bytes.size) == 0) {
            return entry->number;
        }
    }
}

static void place(name_places *places, name_entry *entry)
{
    size_t at = (size_t)entry->hash;
    while (atomic_load_explicit(&places->entries[at & (places->capacity - 1)], memory_order_relaxed) != NULL) {
        at++;
    }
    atomic_store_explicit(&places->entries[at & (places->capacity - 1)], entry, memory_order_release);
}

static bool make_room(nj_ids *ids)
{
    name_places *old = atomic_load_explicit(&ids->places, memory_order_relaxed);
    if (ids->count * 2 < old->capacity) {
        return true;
    }
    name_places *places = new_places(old, old->capacity * 2);
    for (size_t i = 0; places != NULL && i < old->capacity; i++) {
        name_entry *entry = atomic_load_explicit(&old->entries[i], memory_order_relaxed);
        if (entry != NULL) {
            place(places, entry);
        }
    }
    if (places != NULL) {
        atomic_store_explicit(&ids->places, places, memory_order_release);
    }
    return places != NULL;
}

/* Returns the number of a name, after giving it one if it has none; -1 without memory. The caller holds the lock. */
static int64_t add_locked(nj_ids *ids, nj_span bytes, uint64_t hash)
{
    int64_t number = find(ids, bytes, hash);
    if (number >= 0) {
        return number;
    }
    name_entry *entry = make_room(ids) ? malloc(sizeof *entry + bytes.size) : NULL;
    if (entry == NULL) {
        return -1;
    }
    entry->hash = hash;
    entry->size = bytes.size;
    entry->number = (int64_t)ids->count++;
    memcpy(entry->bytes, bytes.at, bytes.size);
    place(atomic_load_explicit(&ids->places, memory_order_relaxed), entry);
    return entry->number;
}

static int64_t add(nj_ids *ids, nj_span bytes)
{
    uint64_t hash = hash_of(ids, bytes);
    int64_t number = find(ids, bytes, hash);
    if (number < 0) {
        pthread_mutex_lock(&ids->lock);
        number = add_locked(ids, bytes, hash);
        pthread_mutex_unlock(&ids->lock);
    }
    return number;
}

static nj_value id(int kind, int64_t number)
{
    return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = NJ_OPAQUE_BASE + ((int64_t)kind << NJ_OPAQUE_KIND_SHIFT) + number};
}

/* Returns the size of a tuple's unique encoding, in bytes. */
static size_t tuple_size(const nj_constant *constant)
{
    size_t size = 1 + sizeof(uint64_t);
    for (uint32_t i = 0; constant->kind == NJ_CONSTANT_TUPLE && i < constant->count; i++) {
        size += tuple_size(&constant->items[i]);
    }
    return size + (constant->kind >= NJ_CONSTANT_TEXT && constant->kind < NJ_CONSTANT_TUPLE ? constant->text.size : 0);
}

/* Returns the word that follows the kind of an item: the size of a text, a number, or the count of items. */
static uint64_t item_word(const nj_constant *constant)
{
    uint64_t word = 0;
    switch (constant->kind) {
    case NJ_CONSTANT_NONE: break;
    case NJ_CONSTANT_BOOL: word = constant->truth; break;
    case NJ_CONSTANT_INT: word = constant->magnitude; break;
    case NJ_CONSTANT_FLOAT: memcpy(&word, &constant->number, sizeof word); break;
    case NJ_CONSTANT_TUPLE: word = constant->count; break;
    default: word = constant->text.size;
    }
    return word;
}

static unsigned char *write_tuple(const nj_constant *constant, unsigned char *at)
{
    uint64_t word = item_word(constant);
    /* a text in UTF-8 never starts with this byte */
    *at++ = (unsigned char)(0xf8 | constant->kind);
    if (constant->kind == NJ_CONSTANT_INT && constant->negative && word != 0) {
        at[-1] = 0xf8 | NJ_CONSTANT_NONE; /* a negative int has the kind of None, whose word is always 0 */
    }
    memcpy(at, &word, sizeof word);
    at += sizeof word;
    if (constant->kind == NJ_CONSTANT_TUPLE) {
        for (uint32_t i = 0; i < constant->count; i++) {
            at = write_tuple(&constant->items[i], at);
        }
    } else if (constant->kind >= NJ_CONSTANT_TEXT) {
        memcpy(at, constant->text.at, constant->text.size);
        at += constant->text.size;
    }
    return at;
}

/* Returns the number of a tuple, after giving it one if `adds`; -1 if it has none, or without memory. */
static int64_t number_tuple(nj_ids *ids, const nj_constant *constant, bool adds)
{
    size_t size = tuple_size(constant);
    unsigned char *bytes = malloc(size);
    if (bytes == NULL) {
        return -1;
    }
    nj_span span = {bytes, (size_t)(write_tuple(constant, bytes) - bytes)};
    int64_t number = adds ? add(ids, span) : find(ids, span, hash_of(ids, span));
    free(bytes);
    return number;
}

static int kind_of(const nj_constant *constant)
{
    switch (constant->kind) {
    case NJ_CONSTANT_TEXT: return KIND_TEXT;
    case NJ_CONSTANT_DTYPE: return KIND_DTYPE;
    case NJ_CONSTANT_FUNCTION: return KIND_FUNCTION;
    default: return KIND_OTHER;
    }
}

/* Reads a constant that needs no id. Returns false for a text, a dtype, a function or a tuple. */
static bool read_plain(const nj_constant *constant, nj_value *value)
{
    switch (constant->kind) {
    case NJ_CONSTANT_NONE: *value = (nj_value){.tag = NJ_TAG_NONE}; return true;
    case NJ_CONSTANT_BOOL: *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = constant->truth}; return true;
    case NJ_CONSTANT_FLOAT:
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_opaque_double(constant->number)};
        return true;
    case NJ_CONSTANT_INT: {
        bool fits = constant->magnitude < UINT64_C(1) << 63 || (constant->negative && constant->magnitude == UINT64_C(1) << 63);
        uint64_t bits = constant->negative ? 0 - constant->magnitude : constant->magnitude;
        *value = (nj_value){.tag = fits ? NJ_TAG_INT : NJ_TAG_UNKNOWN, .bits = fits ? (int64_t)bits : 0};
        return true;
    }
    default: return false;
    }
}

nj_value nj_ids_find_text(const nj_ids *ids, nj_span text)
{
    int64_t number = find(ids, text, hash_of(ids, text));
    return number < 0 ? (nj_value){.tag = NJ_TAG_UNKNOWN} : id(KIND_TEXT, number);
}

nj_value nj_ids_find(const nj_ids *ids, const nj_constant *constant)
{
    nj_value value;
    if (read_plain(constant, &value)) {
        return value;
    }
    int64_t number = constant->kind == NJ_CONSTANT_TUPLE ? number_tuple((nj_ids *)ids, constant, false)
                                                         : find(ids, constant->text, hash_of(ids, constant->text));
    return number < 0 ? (nj_value){.tag = NJ_TAG_UNKNOWN} : id(kind_of(constant), number);
}

/* Takes a spelling of a dtype; false stops the walk. */
typedef bool (*take_spelling)(void *context, nj_span spelling);

static bool each_spelling(nj_span text, take_spelling take, void *context)
{
    static const char *const modules[] = {"", "torch."};
    nj_dtype dtype = nj_dtype_read(text);
    const char *word;
    for (size_t i = 0; dtype != NJ_DTYPE_COUNT && (word = nj_dtype_word(i)) != NULL; i++) {
        nj_span name = {(const unsigned char *)word, strlen(word)};
        for (size_t module = 0; nj_dtype_read(name) == dtype && module < sizeof modules / sizeof *modules; module++) {
            unsigned char spelled[32];
            size_t start = strlen(modules[module]);
            memcpy(spelled, modules[module], start);
            memcpy(spelled + start, name.at, name.size);
            if (!take(context, (nj_span){spelled, start + name.size})) {
                return false;
            }
        }
    }
    return true;
}

static bool add_spelling(void *context, nj_span spelling)
{
    return add(context, spelling) >= 0;
}

/* Collects the ids of spellings. */
typedef struct {
    const nj_ids *ids;
    int64_t *bits;
    size_t count, room;
} spelling_list;

static bool list_spelling(void *context, nj_span spelling)
{
    spelling_list *list = context;
    nj_value value = nj_ids_find_text(list->ids, spelling);
    if (value.tag == NJ_TAG_OPAQUE && list->count < list->room) {
        list->bits[list->count++] = value.bits;
    }
    return true;
}

size_t nj_ids_spellings(const nj_ids *ids, nj_span dtype, int64_t *bits, size_t room)
{
    spelling_list list = {ids, bits, 0, room};
    each_spelling(dtype, list_spelling, &list);
    return list.count;
}

bool nj_ids_add(nj_ids *ids, const nj_constant *constant, nj_value *value)
{
    if (read_plain(constant, value)) {
        return true;
    }
    int64_t number = constant->kind == NJ_CONSTANT_TUPLE ? number_tuple(ids, constant, true) : add(ids, constant->text);
    *value = id(kind_of(constant), number);
    return number >= 0 && (constant->kind != NJ_CONSTANT_DTYPE || each_spelling(constant->text, add_spelling, ids));
}

bool nj_push_constant(nj_ids *ids, const nj_constant *constant, nj_instruction *push, bool *starved)
{
    static const uint8_t ops[] = {
        [NJ_TAG_NONE] = NJ_OP_CONST_NONE,
        [NJ_TAG_BOOL] = NJ_OP_CONST_BOOL,
        [NJ_TAG_INT] = NJ_OP_CONST_INT,
        [NJ_TAG_OPAQUE] = NJ_OP_CONST_OPAQUE,
    };
    nj_value value;
    if (!nj_ids_add(ids, constant, &value)) {
        *starved = true;
        return false;
    }
    if (value.tag == NJ_TAG_UNKNOWN) {
        return false;
    }
    *push = (nj_instruction){.op = ops[value.tag], .operand = nj_value_seen(value).bits};
    return true;
}

bool nj_push_quoted(nj_ids *ids, nj_span word, nj_instruction *push, bool *starved)
{
    if (word.size < 2 || word.at[word.size - 1] != *word.at) {
        return false;
    }
    nj_constant text = {.kind = NJ_CONSTANT_TEXT, .text = {word.at + 1, word.size - 2}};
    return nj_push_constant(ids, &text, push, starved);
}
