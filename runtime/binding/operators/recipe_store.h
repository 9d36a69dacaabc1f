/* A set-associative cache of recipes by call key. The hash of a key selects a set. The cache never grows: a full set evicts an entry.
 * The caller holds the memo's lock. */
#ifndef NOJIT_RECIPE_STORE_H
#define NOJIT_RECIPE_STORE_H

#include "operators/call_key.h"
#include "operators/recipe.h"

#define PY_STORE_WAYS 8

typedef struct {
    uint64_t hash;
    py_recipe *recipe;
    bool used; /* set by a hit, cleared when an eviction passes the entry over (clock algorithm) */
    Py_ssize_t word_count;
    PyObject **words; /* owned; stored after the facts */
    size_t fact_count;
    uint64_t facts[];
} py_entry;

typedef struct {
    size_t set_count; /* a power of two */
    unsigned int hand; /* the clock's hand; all sets share it */
    py_entry **entries; /* PY_STORE_WAYS slots for each set; owned */
} py_recipe_store;

/* Returns the slot of a call's entry; NULL if the call is not cached. */
py_entry **py_store_find(const py_recipe_store *self, const py_call_key *key);

/* Returns the slot for a new entry: the one that holds the same call, else an empty one, else the next that was not used lately. */
py_entry **py_store_room(py_recipe_store *self, const py_call_key *key);

/* Returns a new entry; NULL with an exception raised. */
py_entry *py_entry_make(py_recipe *recipe, const py_call_key *key);

/* Frees an entry, which may be NULL. Call it without the lock: the destructors of its objects may run any code. */
void py_entry_drop(py_entry *entry);

#endif
