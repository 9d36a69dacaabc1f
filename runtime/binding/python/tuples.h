/* Reads tuples, and makes them from arrays. */
#ifndef NOJIT_TUPLES_H
#define NOJIT_TUPLES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Requires a tuple. Returns false with TypeError raised, which says that `what` was expected. `object` may be NULL with an exception
 * raised. */
bool py_is_tuple(PyObject *object, const char *what);

/* Returns a new object for an item of an array, by its index; NULL with an exception raised. */
typedef PyObject *(*py_item)(void *context, const void *items, size_t number);

/* Returns a new tuple of `count` items; NULL with an exception raised. */
PyObject *py_tuple(size_t count, py_item item, void *context, const void *items);

/* Returns a new tuple of ints; NULL with an exception raised. */
PyObject *py_tuple_of_numbers(const uint32_t *numbers, size_t count);

/* Appends an object to a list. Returns false with an exception raised. Steals `object`, which may be NULL with an exception raised. */
bool py_append(PyObject *list, PyObject *object);

/* Returns a new tuple of a list's items if `whole`, else NULL. Steals `list`, which may be NULL. */
PyObject *py_ended_list(PyObject *list, bool whole);

#endif
