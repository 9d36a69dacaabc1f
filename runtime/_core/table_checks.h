/* Rules between the fields of a variant table. */
#ifndef NOJIT_TABLE_CHECKS_H
#define NOJIT_TABLE_CHECKS_H

#include "reading.h"

/* Whether every hint is of a runtime param, or of a member of one. */
bool nj_hints_are_known(const nj_reading *it, PyObject *hint_sets);

/* Whether the names of the batch are runtime params, each once. */
bool nj_batch_is_known(const nj_reading *it, PyObject *names);

/* Whether each constexpr gets one value, from the meaning, the config, an expression or its default. */
bool nj_constexprs_are_valued(const nj_reading *it, PyObject *configs);

/* The distinct types of each runtime param, in the order of the signatures, by its name. */
PyObject *nj_param_types(const nj_reading *it, PyObject *signatures);

#endif
