/* Recipes: the calls that an operator makes for tensors like those that were checked before. */
#ifndef NOJIT_RECIPE_H
#define NOJIT_RECIPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/read_tensor.h"

/* Operands, and what the steps make of them. */
#define PY_MADE_MAX 128
#define PY_STEP_ARGUMENTS_MAX 64
/* Recipes whose steps are recipes: a level takes a kilobyte of the stack, and CPython 3.13 counts to 10,000 levels. */
#define PY_RECIPE_LEVELS_MAX 64

typedef struct {
    uint16_t argument;
    uint16_t made; /* an operand, or what an earlier step made */
} py_recipe_place;

/* One call. */
typedef struct {
    PyObject *function;
    PyObject *arguments; /* tuple: by position, then by name; None where a place is */
    PyObject *names;     /* tuple of str; NULL if none */
    py_recipe_place *places;
    Py_ssize_t place_count;
    bool launches; /* whether the function is a kernel of ours */
    bool keeps; /* whether the result is one that later steps use */
} py_step;

/* Immutable. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t operand_count;
    Py_ssize_t made_count;
    Py_ssize_t step_count;
    uint32_t levels; /* of recipes, one that has none in it included */
    py_step *steps;
    Py_ssize_t result_count;
    uint16_t results[PY_MADE_MAX];
} py_recipe;

extern PyTypeObject *py_recipe_type;

/* Makes the calls; what was asked for, alone or as a tuple, new. NULL with the exception of the call that failed. `views` are
 * those of the operands that are tensors, or NULL. */
PyObject *py_recipe_follow(const py_recipe *recipe, PyObject *const *operands, const DLTensor *views);

#endif
