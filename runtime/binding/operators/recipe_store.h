/* Recipes of calls by their keys: set-associative. A call's entry lies in one of as many places, which its hash gives: what is full
 * forgets, and nothing grows. Whoever calls locks. */
#ifndef NOJIT_RECIPE_STORE_H
#define NOJIT_RECIPE_STORE_H

#include "operators/call_key.h"
#include "operators/recipe.h"

#define PY_STORE_WAYS 8

typedef struct {
    uint64_t hash;
    py_recipe *recipe;
    bool used; /* since the last time that room was sought */
    Py_ssize_t word_count;
    PyObject **words; /* behind the facts */
    size_t fact_count;
    uint64_t facts[];
} py_entry;

typedef struct {
    size_t set_count; /* a power of two */
    unsigned int hand; /* goes round the places of a set */
    py_entry **entries; /* PY_STORE_WAYS of each set; owned */
} py_recipe_store;

/* The place of a call's entry; NULL if there is none. */
py_entry **py_store_find(const py_recipe_store *self, const py_call_key *key);

/* A place for a new entry: that of the same call, an empty one, or of those that were not used lately the next. */
py_entry **py_store_room(py_recipe_store *self, const py_call_key *key);

/* Makes an entry; NULL with an exception raised. */
py_entry *py_entry_make(py_recipe *recipe, const py_call_key *key);

/* Frees an entry, which may be NULL, without the lock: what goes with it may be anything. */
void py_entry_drop(py_entry *entry);

#endif
