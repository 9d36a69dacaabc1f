/* Finds the rules that a call breaks, and the parts of the table concerned. Functions return a new tuple of numbers or names, unless
 * they say otherwise; NULL with an exception raised. */
#ifndef NOJIT_BROKEN_RULES_H
#define NOJIT_BROKEN_RULES_H

#include "explain/explained_call.h"

/* Returns bytes: for each row, the number of the first rule that it breaks. */
PyObject *py_first_broken_rules(py_explained_call *self);

/* Returns the params whose type in a signature does not accept the argument, by index among the runtime params. */
PyObject *py_misfits(py_explained_call *self, size_t signature);

/* Returns the axes on which a case has another value than the call. */
PyObject *py_axes_apart(py_explained_call *self, size_t case_number);

/* Returns the names of constexprs and options that the caller sets to another value than a config. */
PyObject *py_settings_apart(py_explained_call *self, size_t config);

/* Returns the derived constexprs whose value in a row differs from the one that the call's arguments give. */
PyObject *py_derived_apart(py_explained_call *self, size_t row);

/* Returns the hints of a hint set that the call does not meet, by index. */
PyObject *py_failing_hints(py_explained_call *self, size_t set);

#endif
