/* The key under which a memo caches a call of an operator: every fact that the operator's checks read. */
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

/* Key of a call: the facts of its operands (dtype, device, shape, strides, alignment) and its words. */
typedef struct {
    PyObject *const *words; /* the owner, then None, numbers and str; borrowed */
    Py_ssize_t word_count;
    uint64_t hash;
    size_t fact_count;
    bool requires_grad; /* true if some operand does */
    uint64_t facts[PY_FACTS_MAX];
    DLTensor views[PY_OPERANDS_MAX]; /* views of the operands that are tensors */
} py_call_key;

/* Reads the key of a call (*operands, owner, *words). Returns 1, 0 if the call cannot be cached, or -1 with an exception raised. */
int py_read_call_key(py_plain *plain, Py_ssize_t operand_count, PyObject *const *arguments, Py_ssize_t count, py_call_key *key);

/* Requires that each word is None, a number or a str. Returns 0, or -1 with TypeError raised. A number of another class, such as
 * numpy's, is valid, but its calls are not cached. Any other word is a bug in the operator: none of its calls would be cached. */
int py_check_words(PyObject *const *words, Py_ssize_t count);

/* True if two words have the same type and value: 1 differs from True and from 1.0, and 0.0 differs from -0.0. */
bool py_same_word(PyObject *one, PyObject *other);

#endif
