/* Readers of what stands in the arrays of a variant table, and of its `tuning`. */
#ifndef NOJIT_TABLE_FIELDS_H
#define NOJIT_TABLE_FIELDS_H

#include "reading.h"

/* Finds the records that tables are made of; once, at import. */
int nj_table_fields_init(void);

/* What stands for a default that a param does not have; borrowed. */
PyObject *nj_missing(void);

PyObject *nj_table_axis(nj_reading *it);
PyObject *nj_table_config(nj_reading *it);
PyObject *nj_table_derived(nj_reading *it);
PyObject *nj_table_derived_values(nj_reading *it);
PyObject *nj_table_hint_set(nj_reading *it);
PyObject *nj_table_layout(nj_reading *it);
PyObject *nj_table_meaning(nj_reading *it);
PyObject *nj_table_param(nj_reading *it);
PyObject *nj_table_signature(nj_reading *it);

/* The JSON of a launch. */
PyObject *nj_table_launch(nj_reading *it);

/* The tuning of a kernel of so many meanings and configs, or None for null. */
PyObject *nj_table_tuning(nj_reading *it, Py_ssize_t meanings, Py_ssize_t configs);

#endif
