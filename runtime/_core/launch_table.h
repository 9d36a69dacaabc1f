/* The launches of a variant table, as runtime/launch_codec.py reads them. */
#ifndef NOJIT_LAUNCH_TABLE_H
#define NOJIT_LAUNCH_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "json.h"

/* Passes over a launch that keeps every rule, its layout apart; false if one is broken, or something is not gone into. */
bool nj_launch_pass(nj_json *json);

/* `read_launch(json)`: symbol, number of the layout, the numbers of `LAUNCH_NUMBERS`, cooperative, pdl, and what each tensor map
 * has to say, of the JSON of a launch; None if a rule is broken, or something is not gone into here. */
PyObject *nj_read_launch(PyObject *module, PyObject *json);

#endif
