/* Gets scratch memory for a launch from the allocator of `set_allocator`, or without one from the tensors' framework. */
#ifndef NOJIT_SCRATCH_H
#define NOJIT_SCRATCH_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* References to a launch's scratch memory, held until the kernel is enqueued. */
typedef struct {
    DLManagedTensorVersioned *managed[2]; /* global, profile */
    PyObject *objects[2];
} py_scratch_held;

/* Fills `launch->scratch_address`. Returns 0, or -1 with an exception raised. Pass `held` to `py_scratch_return` in either case. */
int py_scratch_borrow(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch,
                      py_scratch_held *held);
void py_scratch_return(py_scratch_held *held);

#endif
