/* Arguments as runtime/call/call_facts.py describes them, for the engine. Every function needs the GIL. */
#ifndef NOJIT_ARGUMENT_RECORDS_H
#define NOJIT_ARGUMENT_RECORDS_H

#include "values/py_constant.h"

#include "expr/arguments.h"
#include "select/constant_ids.h"

/* What is read of the arguments of one call. */
typedef struct {
    nj_value values[NJ_ARGUMENTS_MAX];
    nj_value leaves[NJ_LEAVES_MAX];
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    uint16_t leaf_count, descriptor_count;
} py_read_arguments;

/* Reads an `Argument`: 0, or -1 with an exception raised. Strings, dtypes and functions are looked up among `ids`. */
int py_argument_read(PyObject *argument, const nj_ids *ids, py_read_arguments *into, nj_value *value);

#endif
