/* Tuples: read, and made of arrays. */
#ifndef NOJIT_TUPLES_H
#define NOJIT_TUPLES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether an object is a tuple; TypeError raised, which says what else was expected, if it is none. NULL is none, too, and
 * has raised already. */
bool py_is_tuple(PyObject *object, const char *what);

/* Makes one of some items, by its number: new, or NULL with an exception raised. */
typedef PyObject *(*py_item)(void *context, const void *items, size_t number);

/* A tuple of `count` items, new; NULL with an exception raised. */
PyObject *py_tuple(size_t count, py_item item, void *context, const void *items);

/* A tuple of numbers, new; NULL with an exception raised. */
PyObject *py_tuple_of_numbers(const uint32_t *numbers, size_t count);

/* Appends an object, which it steals; false where that is NULL, or with MemoryError raised. */
bool py_append(PyObject *list, PyObject *object);

/* A tuple of a list's items if it is whole, else NULL; the list, which may be NULL, ends. */
PyObject *py_ended_list(PyObject *list, bool whole);

#endif
