#include "operators/recipe_store.h"

static bool is_of(const py_entry *entry, const py_call_key *key)
{
    if (entry->hash != key->hash || entry->fact_count != key->fact_count || entry->word_count != key->word_count ||
        entry->words[0] != key->words[0] ||
        memcmp(entry->facts, key->facts, key->fact_count * sizeof *key->facts) != 0) {
        return false;
    }
    for (Py_ssize_t i = 1; i < key->word_count; i++) {
        if (!py_same_word(entry->words[i], key->words[i])) {
            return false;
        }
    }
    return true;
}

static py_entry **set_of(const py_recipe_store *self, const py_call_key *key)
{
    return self->entries + PY_STORE_WAYS * (key->hash & (self->set_count - 1));
}

py_entry **py_store_find(const py_recipe_store *self, const py_call_key *key)
{
    py_entry **set = set_of(self, key);
    for (int i = 0; i < PY_STORE_WAYS; i++) {
        if (set[i] != NULL && is_of(set[i], key)) {
            return &set[i];
        }
    }
    return NULL;
}

void py_entry_drop(py_entry *entry)
{
    if (entry == NULL) {
        return;
    }
    for (Py_ssize_t i = 0; i < entry->word_count; i++) {
        Py_DECREF(entry->words[i]);
    }
    Py_DECREF(entry->recipe);
    PyMem_Free(entry);
}

py_entry *py_entry_make(py_recipe *recipe, const py_call_key *key)
{
    size_t facts = key->fact_count * sizeof *key->facts;
    py_entry *made = PyMem_Malloc(sizeof *made + facts + (size_t)key->word_count * sizeof *made->words);
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->hash = key->hash;
    made->recipe = (py_recipe *)Py_NewRef((PyObject *)recipe);
    made->used = true;
    made->fact_count = key->fact_count;
    made->word_count = key->word_count;
    made->words = (PyObject **)(void *)(made->facts + key->fact_count);
    memcpy(made->facts, key->facts, facts);
    for (Py_ssize_t i = 0; i < key->word_count; i++) {
        made->words[i] = Py_NewRef(key->words[i]);
    }
    return made;
}

py_entry **py_store_room(py_recipe_store *self, const py_call_key *key)
{
    py_entry **there = py_store_find(self, key), **set = set_of(self, key);
    for (int i = 0; i < PY_STORE_WAYS && there == NULL; i++) {
        there = set[i] == NULL ? &set[i] : NULL;
    }
    while (there == NULL) {
        py_entry **next = &set[self->hand++ % PY_STORE_WAYS];
        there = (*next)->used ? NULL : next;
        (*next)->used = false;
    }
    return there;
}
