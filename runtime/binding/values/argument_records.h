/* Converts the `Argument`s of runtime/call/call_facts.py to the engine's values. Every function needs the GIL. */
#ifndef NOJIT_ARGUMENT_RECORDS_H
#define NOJIT_ARGUMENT_RECORDS_H

#include "values/py_constant.h"

#include "expr/arguments.h"
#include "select/constant_ids.h"

/* The engine's values of one call's arguments. */
typedef struct {
    nj_value values[NJ_ARGUMENTS_MAX];
    nj_value leaves[NJ_LEAVES_MAX];
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    uint16_t leaf_count, descriptor_count;
} py_read_arguments;

/* Reads an `Argument`. Returns 0, or -1 with an exception raised. Looks up strings, dtypes and functions in `ids`. */
int py_argument_read(PyObject *argument, const nj_ids *ids, py_read_arguments *into, nj_value *value);

#endif
