/* Memos: caches that map the key of a validated call of an operator to the recipe that replays it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "module.h"
#include "operators/recipe_store.h"
#include "python/at_import.h"
#include "python/threads.h"
#include "tensor/overlap.h"

#define LIMIT_MAX 65536

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    py_plain *plain;
    PyObject *states;
    Py_ssize_t operand_count;
    bool writes;      /* true if a call writes to its last operand, unless that is None */
    uint32_t in_place; /* bit i: operand i may be the same view as the output */
    py_recipe_store store; /* guarded by the GIL or the memo's lock */
} memo;

/* Returns the recipe of a call as a new reference; NULL if the call is not cached. */
static py_recipe *recall(memo *self, const py_call_key *key)
{
    py_recipe *recipe = NULL;
    PY_BEGIN_LOCKED(self);
    py_entry **place = py_store_find(&self->store, key);
    if (place != NULL) {
        (*place)->used = true;
        recipe = (py_recipe *)Py_NewRef((PyObject *)(*place)->recipe);
    }
    PY_END_LOCKED();
    return recipe;
}

/* True if the output aliases no input, other than inputs that may be computed in place. */
static bool writes_apart(const memo *self, PyObject *const *operands, const py_call_key *key)
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

/* Replays a cached call. Returns its results, or None if the call is not cached or autograd has to record it. */
static PyObject *follow(memo *self, PyObject *const *operands, const py_call_key *key)
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
    py_call_key key;
    int fits = py_states_hold(self->plain->states);
    if (fits > 0) {
        fits = py_states_hold(self->states);
    }
    if (fits > 0) {
        fits = py_read_call_key(self->plain, self->operand_count, arguments, PyVectorcall_NARGS(positional), &key);
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
    py_call_key key;
    int fits = py_read_call_key(self->plain, self->operand_count, arguments + 1, count - 1, &key);
    if (fits == 0 && py_check_words(key.words, key.word_count) < 0) {
        return NULL;
    }
    py_entry *made = fits > 0 ? py_entry_make((py_recipe *)arguments[0], &key) : NULL;
    if (made == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    py_entry *before;
    PY_BEGIN_LOCKED(self);
    py_entry **place = py_store_room(&self->store, &key);
    before = *place;
    *place = made;
    PY_END_LOCKED();
    /* after the unlock, since the destructors of its objects may run any code */
    py_entry_drop(before);
    Py_RETURN_NONE;
}

static int memo_clear(memo *self)
{
    for (size_t i = 0; self->store.entries != NULL && i < PY_STORE_WAYS * self->store.set_count; i++) {
        py_entry *before;
        PY_BEGIN_LOCKED(self);
        before = self->store.entries[i];
        self->store.entries[i] = NULL;
        PY_END_LOCKED();
        py_entry_drop(before);
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
    for (size_t i = 0; i < PY_STORE_WAYS * self->store.set_count; i++) {
        count += self->store.entries[i] != NULL;
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
    if (operands < 0 || operands > PY_OPERANDS_MAX || limit < PY_STORE_WAYS || limit > LIMIT_MAX || (limit & (limit - 1)) != 0) {
        return PyErr_Format(PyExc_ValueError, "expected 0 to %d operands, and a limit that is a power of two from %d to %d",
                            PY_OPERANDS_MAX, PY_STORE_WAYS, LIMIT_MAX);
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
    self->store.set_count = (size_t)limit / PY_STORE_WAYS;
    self->store.entries = PyMem_Calloc((size_t)limit, sizeof *self->store.entries);
    if (self->store.entries == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* `memo_clear` drops only the entries. `plain` and `states` are older than the memo, so a cycle through them also runs through a
 * mutable object, and clearing that object breaks the cycle. */
static int memo_traverse(memo *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->plain);
    Py_VISIT(self->states);
    for (size_t i = 0; self->store.entries != NULL && i < PY_STORE_WAYS * self->store.set_count; i++) {
        const py_entry *entry = self->store.entries[i];
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
    PyMem_Free(self->store.entries);
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
                                  "Replay a cached call: memo(*operands, owner, *words). Return None if it is not cached.")},
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
