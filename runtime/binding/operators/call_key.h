/* The key of an operator's call: all that its checks looked at. */
#ifndef NOJIT_CALL_KEY_H
#define NOJIT_CALL_KEY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "operators/plain_tensors.h"

#define PY_OPERANDS_MAX 12
#define PY_FACTS_RANK_MAX 8
#define PY_FACTS_MAX (PY_OPERANDS_MAX * (2 + 2 * PY_FACTS_RANK_MAX))

/* What decides how a call of an owner is made: facts of its operands, then its words. */
typedef struct {
    PyObject *const *words; /* the owner first */
    Py_ssize_t word_count;
    uint64_t hash;
    size_t fact_count;
    bool requires_grad; /* whether some operand does */
    uint64_t facts[PY_FACTS_MAX];
    DLTensor views[PY_OPERANDS_MAX]; /* of the operands that are tensors */
} py_call_key;

/* Reads a call, (*operands, owner, *words): 1, 0 if it is none to remember, or -1 with an exception raised. */
int py_read_call_key(py_plain *plain, Py_ssize_t operand_count, PyObject *const *arguments, Py_ssize_t count, py_call_key *key);

/* Requires words of kinds that operators take: 0, or -1 with TypeError raised. A number of another class, numpy's say, is a
 * caller's choice, and such a call is made anew each time; a tuple is a mistake of the operator's, whose calls all are. */
int py_check_words(PyObject *const *words, Py_ssize_t count);

/* Whether two words are of one type and value: 1 is neither True nor 1.0 here, and 0.0 is not -0.0. */
bool py_same_word(PyObject *one, PyObject *other);

#endif
