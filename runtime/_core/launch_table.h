/* The launches of a variant table, as runtime/launch_codec.py reads them. */
#ifndef NOJIT_LAUNCH_TABLE_H
#define NOJIT_LAUNCH_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bundle/json.h"

/* Passes over a launch that keeps every rule, its layout apart; false if one is broken, or something is not gone into. */
bool nj_launch_pass(nj_json *json);

/* Finds the records that launches are made of; once, at import. */
int nj_launch_table_init(void);

/* `read_launch(json, layout_of)`: a `Launch` of its JSON, with the layout that a function gives for a number; None if a rule is
 * broken, or something is not gone into here. */
PyObject *nj_read_launch(PyObject *module, PyObject *args);

#endif
