/* Recipes: the calls that an operator made for validated operands, kept to replay them for operands with the same key. */
#ifndef NOJIT_RECIPE_H
#define NOJIT_RECIPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/read_tensor.h"

/* Limit of the values in a recipe: operands and results of steps. */
#define PY_MADE_MAX 128
#define PY_STEP_ARGUMENTS_MAX 64
/* Limit of recipes nested as steps: a level takes 1 KB of the C stack, and CPython 3.13 itself allows 10,000 levels. */
#define PY_RECIPE_LEVELS_MAX 64

typedef struct {
    uint16_t argument; /* index in the step's arguments */
    uint16_t made;     /* index of the value: an operand, or the result of an earlier step */
} py_recipe_place;

/* One call of a recipe. */
typedef struct {
    PyObject *function;
    PyObject *arguments; /* tuple: positional arguments, then named ones; None where `places` fills in a value */
    PyObject *names;     /* tuple of str, the names of the last arguments; NULL if none */
    py_recipe_place *places;
    Py_ssize_t place_count;
    bool launches; /* true if the function is a Dispatcher */
    bool keeps; /* true if a later step or the recipe's results use this result */
} py_step;

/* A recipe. Immutable. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t operand_count;
    Py_ssize_t made_count;
    Py_ssize_t step_count;
    uint32_t levels; /* depth of nested recipes; 1 if no step is a recipe */
    py_step *steps;
    Py_ssize_t result_count;
    uint16_t results[PY_MADE_MAX];
} py_recipe;

extern PyTypeObject *py_recipe_type;

/* Replays the calls. Returns the result, or a tuple unless there is exactly one, as a new reference; NULL with the exception of the
 * call that failed. `views` holds the views of the operands that are tensors, or is NULL. */
PyObject *py_recipe_follow(const py_recipe *recipe, PyObject *const *operands, const DLTensor *views);

#endif
