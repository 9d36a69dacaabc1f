/* Which rules a call breaks, by which parts of the table: as tuples of numbers or names, each new or NULL with an exception raised. */
#ifndef NOJIT_BROKEN_RULES_H
#define NOJIT_BROKEN_RULES_H

#include "explain/explained_call.h"

/* Of each row, the number of the first rule that it breaks, in bytes. */
PyObject *py_first_broken_rules(py_explained_call *self);

/* The params whose type in a signature does not take the argument, by their place among the runtime params. */
PyObject *py_misfits(py_explained_call *self, size_t signature);

/* The axes on which the point of a case is not the call's. */
PyObject *py_axes_apart(py_explained_call *self, size_t case_number);

/* The names of constexprs and options that the caller sets, and to another value than a config has. */
PyObject *py_settings_apart(py_explained_call *self, size_t config);

/* The derived constexprs whose values in a row are not what the call comes to. */
PyObject *py_derived_apart(py_explained_call *self, size_t row);

/* The hints of a set that do not hold, by their place. */
PyObject *py_failing_hints(py_explained_call *self, size_t set);

#endif
