/* What C asks of Python's objects by name: the one list of it. `runtime/called_by_c.py` says of each method what it gets and returns, and
 * when C calls it; tests/runtime/test_callbacks.py compares the two lists. */
#ifndef NOJIT_CALLBACKS_H
#define NOJIT_CALLBACKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Of a kernel: runtime/first_call/callbacks.py. Calls with a cached plan need _refuse_grid, _check_option and _constexpr_key, too. */
#define PY_KERNEL_CALLBACKS(METHOD)                                                                                        \
    METHOD(_prepare, "device")                                   /* the Spec of a device */                                 \
    METHOD(_plan_of, "device, row")                              /* the Plan of a row */                                    \
    METHOD(_refuse, "device, facts")                             /* raises: why nothing serves the call */                  \
    METHOD(_refuse_grid, "plan, dimension, facts")               /* raises: why the bundle's grid cannot be computed */     \
    METHOD(_missed, "error, device, facts, given, grid")         /* False to raise the error, True if the call was made */  \
    METHOD(_note_hints, "plan, hint_set, facts")                 /* tells of hints that a call just misses */               \
    METHOD(_constexpr_value, "value, name")                      /* what a bundle stores for a constexpr */                 \
    METHOD(_constexpr_key, "value")                              /* (tag, bits) of such a constexpr */                      \
    METHOD(_check_option, "name, value")                         /* raises unless the keyword may be ignored */

/* Of a function of Triton that is served: runtime/serve/function.py. */
#define PY_SERVED_CALLBACKS(METHOD)                                                                                        \
    METHOD(_detour, "grid, args, kwargs")                        /* makes a call around which the program wants hooks */    \
    METHOD(_recover, "error, grid, args, kwargs")                /* makes a call that the kernel refused */

/* Attributes: of an Argument (runtime/call/call_facts.py); of a DType or a FunctionRef (runtime/values.py); of a bundle's error. */
#define PY_ATTRIBUTES(NAME) NAME(kind) NAME(value) NAME(dtype) NAME(items) NAME(name) NAME(what) NAME(got)

/* The names as strings, interned once at import. */
typedef struct {
#define PY_METHOD_FIELD(method, params) PyObject *method;
#define PY_ATTRIBUTE_FIELD(attribute) PyObject *attribute;
    PY_KERNEL_CALLBACKS(PY_METHOD_FIELD)
    PY_SERVED_CALLBACKS(PY_METHOD_FIELD)
    PY_ATTRIBUTES(PY_ATTRIBUTE_FIELD)
#undef PY_METHOD_FIELD
#undef PY_ATTRIBUTE_FIELD
} py_asked_names;

extern py_asked_names py_asked;

/* Calls a method with what Py_BuildValue makes of a format in parentheses: new, or NULL with an exception raised. What the format
 * steals is stolen in any case. */
PyObject *py_call_back(PyObject *object, PyObject *method, const char *format, ...);

#endif
