/* The facts of a call that some variant of a table asks about: what the fields of a spec are. */
#ifndef NOJIT_SPEC_FIELDS_H
#define NOJIT_SPEC_FIELDS_H

#include "spec.h"

/* Fills the fields of a spec's arguments from its table: first the params, `slots` being their places by name, then options.
 * `interner` gets every value that a key can hold. 0, or -1 with an exception raised: a ValueError for what the core does not
 * take. */
int nj_spec_read_fields(nj_spec *spec, PyObject *slots, PyObject *interner);

#endif
