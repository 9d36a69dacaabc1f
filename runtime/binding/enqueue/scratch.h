/* Scratch memory of a launch: from the caller's allocator if there is one, else from the tensors' framework. */
#ifndef NOJIT_SCRATCH_H
#define NOJIT_SCRATCH_H

#include "plan/py_plan.h"

/* What is held until the kernel is enqueued. */
typedef struct {
    DLManagedTensorVersioned *managed[2]; /* global, profile */
    PyObject *objects[2];
} nj_scratch_held;

/* `set_allocator(callable or None)`. */
PyObject *nj_set_allocator(PyObject *module, PyObject *allocator);

/* Fills `scratch_address`: 0, or -1 with an exception raised. `held` is given back in either case. */
int nj_scratch_borrow(const nj_plan_object *plan, const nj_signature *signature, const nj_call *call, nj_launch_state *launch,
                      nj_scratch_held *held);
void nj_scratch_return(nj_scratch_held *held);

#endif
