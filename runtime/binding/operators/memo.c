/* Memos: recipes of calls that were checked, by all that the checks looked at. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "module.h"
#include "operators/plain_tensors.h"
#include "operators/recipe.h"
#include "python/at_import.h"
#include "python/threads.h"
#include "tensor/overlap.h"

#include "expr/value.h"

/* A call's entry lies in one of as many places, which its hash gives: what is full forgets, and nothing grows. */
#define WAYS 8
#define LIMIT_MAX 65536

#define OPERANDS_MAX 12
#define RANK_MAX 8
#define FACTS_MAX (OPERANDS_MAX * (2 + 2 * RANK_MAX))
#define ALIGNMENT 16

/* What decides how a call of an owner is made: facts of its operands, then its words. */
typedef struct {
    PyObject *const *words; /* the owner first */
    Py_ssize_t word_count;
    uint64_t hash;
    size_t fact_count;
    bool requires_grad; /* whether some operand does */
    uint64_t facts[FACTS_MAX];
    DLTensor views[OPERANDS_MAX]; /* of the operands that are tensors */
} call_key;

typedef struct {
    uint64_t hash;
    py_recipe *recipe;
    bool used; /* since the last time that room was sought */
    Py_ssize_t word_count;
    PyObject **words; /* behind the facts */
    size_t fact_count;
    uint64_t facts[];
} entry;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    py_plain *plain;
    PyObject *states;
    Py_ssize_t operand_count;
    bool writes;      /* to the last operand, unless it is None */
    uint32_t in_place; /* which of the others may be the very same tensor then */
    size_t set_count; /* a power of two */
    unsigned int hand; /* goes round the places of a set */
    entry **entries;   /* guarded by the GIL or the memo's lock */
} memo;

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static bool is_word(PyObject *object)
{
    return object == Py_None || PyLong_CheckExact(object) || PyBool_Check(object) || PyFloat_CheckExact(object) ||
           PyUnicode_CheckExact(object);
}

static uint64_t hash_word(PyObject *word)
{
    if (PyFloat_CheckExact(word)) {
        return (uint64_t)nj_double_bits(PyFloat_AS_DOUBLE(word));
    }
    bool by_value = PyLong_CheckExact(word) || PyUnicode_CheckExact(word);
    return by_value ? (uint64_t)PyObject_Hash(word) : (uint64_t)(uintptr_t)word;
}

/* Whether two words are of one type and value: 1 is neither True nor 1.0 here, and 0.0 is not -0.0. */
static bool same_word(PyObject *one, PyObject *other)
{
    if (one == other) {
        return true;
    }
    if (Py_TYPE(one) != Py_TYPE(other)) {
        return false;
    }
    if (PyFloat_CheckExact(one)) {
        return nj_double_bits(PyFloat_AS_DOUBLE(one)) == nj_double_bits(PyFloat_AS_DOUBLE(other));
    }
    bool by_value = PyLong_CheckExact(one) || PyUnicode_CheckExact(one);
    return by_value && PyObject_RichCompareBool(one, other, Py_EQ) > 0;
}

/* Hashes the words behind the owner; false if there is one that can be changed, or whose equals are not known. */
static bool read_words(PyObject *const *words, Py_ssize_t count, call_key *key)
{
    key->words = words;
    key->word_count = count;
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!is_word(words[i])) {
            return false;
        }
        key->hash = mix(key->hash, hash_word(words[i]));
    }
    return true;
}

/* Requires words of kinds that operators take: 0, or -1 with TypeError raised. A number of another class, numpy's say, is a
 * caller's choice, and such a call is made anew each time; a tuple is a mistake of the operator's, whose calls all are. */
static int check_words(PyObject *const *words, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!is_word(words[i]) && !PyNumber_Check(words[i]) && !PyUnicode_Check(words[i])) {
            PyErr_Format(PyExc_TypeError, "expected words that are None, numbers or str, got %.200s",
                         Py_TYPE(words[i])->tp_name);
            return -1;
        }
    }
    return 0;
}

/* Writes down all of a tensor that may decide: 1, or 0 if it has too many dimensions. */
static int add_facts(const py_plain_tensor *tensor, call_key *key)
{
    const DLTensor *view = &tensor->view;
    uint64_t *to = key->facts + key->fact_count;
    if (view->ndim > RANK_MAX) {
        return 0;
    }
    bool aligned = ((uintptr_t)view->data + view->byte_offset) % ALIGNMENT == 0;
    *to++ = (uint64_t)view->dtype.code | (uint64_t)view->dtype.bits << 8 | (uint64_t)view->dtype.lanes << 16 |
            (uint64_t)(view->ndim + 1) << 32 | (uint64_t)tensor->requires_grad << 40 | (uint64_t)aligned << 41;
    *to++ = (uint64_t)(uint32_t)view->device.device_type << 32 | (uint32_t)view->device.device_id;
    for (int32_t i = 0; i < view->ndim; i++) {
        *to++ = (uint64_t)view->shape[i];
        /* without strides a tensor is contiguous */
        *to++ = view->strides == NULL ? UINT64_MAX : (uint64_t)view->strides[i];
    }
    key->fact_count = (size_t)(to - key->facts);
    key->requires_grad |= tensor->requires_grad;
    return 1;
}

static int read_operands(const memo *self, PyObject *const *operands, call_key *key)
{
    for (Py_ssize_t i = 0; i < self->operand_count; i++) {
        if (operands[i] == Py_None) {
            key->facts[key->fact_count++] = 0;
            continue;
        }
        py_plain_tensor tensor;
        int fits = py_plain_read(self->plain, operands[i], &tensor);
        if (fits > 0) {
            key->views[i] = tensor.view;
            fits = add_facts(&tensor, key);
        }
        if (fits <= 0) {
            return fits;
        }
    }
    for (size_t i = 0; i < key->fact_count; i++) {
        key->hash = mix(key->hash, key->facts[i]);
    }
    return 1;
}

/* Reads a call, (*operands, owner, *words): 1, 0 if it is none to remember, or -1 with an exception raised. */
static int read_key(const memo *self, PyObject *const *arguments, Py_ssize_t count, call_key *key)
{
    if (count <= self->operand_count) {
        PyErr_Format(PyExc_TypeError, "expected %zd operands, an owner, and words", self->operand_count);
        return -1;
    }
    PyObject *const *words = arguments + self->operand_count;
    key->hash = (uint64_t)(uintptr_t)words[0];
    key->fact_count = 0;
    key->requires_grad = false;
    return read_words(words, count - self->operand_count, key) ? read_operands(self, arguments, key) : 0;
}

static bool is_of(const entry *entry, const call_key *key)
{
    if (entry->hash != key->hash || entry->fact_count != key->fact_count || entry->word_count != key->word_count ||
        entry->words[0] != key->words[0] ||
        memcmp(entry->facts, key->facts, key->fact_count * sizeof *key->facts) != 0) {
        return false;
    }
    for (Py_ssize_t i = 1; i < key->word_count; i++) {
        if (!same_word(entry->words[i], key->words[i])) {
            return false;
        }
    }
    return true;
}

static entry **set_of(const memo *self, const call_key *key)
{
    return self->entries + WAYS * (key->hash & (self->set_count - 1));
}

/* The place of a call's entry; NULL if there is none. The caller locks. */
static entry **find(const memo *self, const call_key *key)
{
    entry **set = set_of(self, key);
    for (int i = 0; i < WAYS; i++) {
        if (set[i] != NULL && is_of(set[i], key)) {
            return &set[i];
        }
    }
    return NULL;
}

/* The recipe of a call, new; NULL if none is known. */
static py_recipe *recall(memo *self, const call_key *key)
{
    py_recipe *recipe = NULL;
    PY_BEGIN_LOCKED(self);
    entry **place = find(self, key);
    if (place != NULL) {
        (*place)->used = true;
        recipe = (py_recipe *)Py_NewRef((PyObject *)(*place)->recipe);
    }
    PY_END_LOCKED();
    return recipe;
}

static void drop(entry *entry)
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

static entry *make_entry(py_recipe *recipe, const call_key *key)
{
    size_t facts = key->fact_count * sizeof *key->facts;
    entry *made = PyMem_Malloc(sizeof *made + facts + (size_t)key->word_count * sizeof *made->words);
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

/* A place for a new entry: that of the same call, an empty one, or of those that were not used lately the next. */
static entry **find_room(memo *self, const call_key *key)
{
    entry **there = find(self, key), **set = set_of(self, key);
    for (int i = 0; i < WAYS && there == NULL; i++) {
        there = set[i] == NULL ? &set[i] : NULL;
    }
    while (there == NULL) {
        entry **next = &set[self->hand++ % WAYS];
        there = (*next)->used ? NULL : next;
        (*next)->used = false;
    }
    return there;
}

/* Whether what a call writes is none of what it reads, but for what it may compute in place. */
static bool writes_apart(const memo *self, PyObject *const *operands, const call_key *key)
{
    Py_ssize_t last = self->operand_count - 1;
    if (!self->writes || operands[last] == Py_None) {
        return true;
    }
    const DLTensor *out = &key->views[last];
    for (Py_ssize_t i = 0; i < last; i++) {
        if (operands[i] == Py_None || ((self->in_place >> i & 1) && py_is_same_view(&key->views[i], out))) {
            continue;
        }
        if (!py_lies_apart(&key->views[i], out)) {
            return false;
        }
    }
    return true;
}

/* What a call that fits makes, or None. */
static PyObject *follow(memo *self, PyObject *const *operands, const call_key *key)
{
    int records = key->requires_grad ? py_plain_records(self->plain) : 0;
    py_recipe *recipe = records == 0 ? recall(self, key) : NULL;
    if (recipe == NULL) {
        return records < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *results = py_recipe_follow(recipe, operands, key->views);
    Py_DECREF(recipe);
    return results;
}

static PyObject *memo_call(PyObject *object, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    memo *self = (memo *)object;
    if (keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "expected arguments by position");
        return NULL;
    }
    call_key key;
    int fits = py_states_hold(self->plain->states);
    if (fits > 0) {
        fits = py_states_hold(self->states);
    }
    if (fits > 0) {
        fits = read_key(self, arguments, PyVectorcall_NARGS(positional), &key);
    }
    if (fits <= 0) {
        return fits < 0 ? NULL : Py_NewRef(Py_None);
    }
    return writes_apart(self, arguments, &key) ? follow(self, arguments, &key) : Py_NewRef(Py_None);
}

static PyObject *memo_remember(memo *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1 || !Py_IS_TYPE(arguments[0], py_recipe_type) ||
        ((py_recipe *)arguments[0])->operand_count != self->operand_count) {
        PyErr_Format(PyExc_TypeError, "expected a recipe for %zd operands, and a call", self->operand_count);
        return NULL;
    }
    call_key key;
    int fits = read_key(self, arguments + 1, count - 1, &key);
    if (fits == 0 && check_words(key.words, key.word_count) < 0) {
        return NULL;
    }
    entry *made = fits > 0 ? make_entry((py_recipe *)arguments[0], &key) : NULL;
    if (made == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    entry *before;
    PY_BEGIN_LOCKED(self);
    entry **place = find_room(self, &key);
    before = *place;
    *place = made;
    PY_END_LOCKED();
    /* what goes with it may be anything */
    drop(before);
    Py_RETURN_NONE;
}

static int memo_clear(memo *self)
{
    for (size_t i = 0; self->entries != NULL && i < WAYS * self->set_count; i++) {
        entry *before;
        PY_BEGIN_LOCKED(self);
        before = self->entries[i];
        self->entries[i] = NULL;
        PY_END_LOCKED();
        drop(before);
    }
    return 0;
}

static PyObject *memo_forget(memo *self, PyObject *Py_UNUSED(none))
{
    memo_clear(self);
    Py_RETURN_NONE;
}

static Py_ssize_t memo_length(memo *self)
{
    Py_ssize_t count = 0;
    PY_BEGIN_LOCKED(self);
    for (size_t i = 0; i < WAYS * self->set_count; i++) {
        count += self->entries[i] != NULL;
    }
    PY_END_LOCKED();
    return count;
}

static PyObject *memo_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"plain", "states", "operands", "limit", "writes", "in_place", NULL};
    PyObject *plain, *states;
    Py_ssize_t operands, limit;
    int writes = 0;
    unsigned int in_place = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Onn|pI:Memo", names, py_plain_type, &plain, &states, &operands, &limit,
                                     &writes, &in_place) ||
        py_states_check(states) < 0) {
        return NULL;
    }
    if (operands < 0 || operands > OPERANDS_MAX || limit < WAYS || limit > LIMIT_MAX || (limit & (limit - 1)) != 0) {
        return PyErr_Format(PyExc_ValueError, "expected 0 to %d operands, and a limit that is a power of two from %d to %d",
                            OPERANDS_MAX, WAYS, LIMIT_MAX);
    }
    memo *self = (memo *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = memo_call;
    self->plain = (py_plain *)Py_NewRef(plain);
    self->states = Py_NewRef(states);
    self->operand_count = operands;
    self->writes = writes && operands > 0;
    self->in_place = in_place;
    self->set_count = (size_t)limit / WAYS;
    self->entries = PyMem_Calloc((size_t)limit, sizeof *self->entries);
    if (self->entries == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int memo_traverse(memo *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->plain);
    Py_VISIT(self->states);
    for (size_t i = 0; self->entries != NULL && i < WAYS * self->set_count; i++) {
        const entry *entry = self->entries[i];
        if (entry != NULL) {
            Py_VISIT((PyObject *)entry->recipe);
            Py_VISIT(entry->words[0]);
        }
    }
    return 0;
}

static void memo_dealloc(memo *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, memo_dealloc);
    memo_clear(self);
    PyMem_Free(self->entries);
    Py_XDECREF((PyObject *)self->plain);
    Py_XDECREF(self->states);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMethodDef memo_methods[] = {
    {"remember", (PyCFunction)(void (*)(void))memo_remember, METH_FASTCALL,
     PyDoc_STR("Keep the recipe of a call: remember(recipe, *operands, owner, *words).")},
    {"forget", (PyCFunction)memo_forget, METH_NOARGS, PyDoc_STR("Drop all recipes.")},
    {NULL},
};

static PyMemberDef memo_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(memo, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot memo_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Memo(plain, states, operands, limit, writes=False, in_place=0)\n--\n\n"
                                  "Makes calls whose like was remembered: memo(*operands, owner, *words); else None.")},
    {Py_tp_new, memo_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, memo_traverse},
    {Py_tp_clear, memo_clear},
    {Py_tp_dealloc, memo_dealloc},
    {Py_tp_methods, memo_methods},
    {Py_tp_members, memo_members},
    {Py_sq_length, memo_length},
    {0, NULL},
};

static PyType_Spec memo_spec = {
    .name = "nojit.runtime._core.Memo",
    .basicsize = sizeof(memo),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = memo_slots,
};

int py_add_memo(PyObject *module)
{
    static PyTypeObject *type;
    return py_add_type(module, &memo_spec, &type);
}
