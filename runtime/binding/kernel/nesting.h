/* Calls of kernels in calls of kernels: how many there are, and whether the thread's stack has room for one more. */
#ifndef NOJIT_NESTING_H
#define NOJIT_NESTING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* How many calls of this thread are under way. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) int py_nested;

/* Where the stack must not have come yet for a call that is in no other: all there is, until it was looked at. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t py_lowest_call;

/* Counts a call in another; false with RecursionError raised where there are too many. */
bool py_nest_deeper(void);

/* Looks at the stack of a thread at its first call, and wherever little is left; false with RecursionError raised. */
bool py_has_room(void);

/* Counts a call; false with RecursionError raised where there are too many. `py_unnest` when it ends. */
static inline bool py_nest(void)
{
    if (py_nested > 0) {
        return py_nest_deeper();
    }
    if ((uintptr_t)__builtin_frame_address(0) < py_lowest_call && !py_has_room()) {
        return false;
    }
    py_nested = 1;
    return true;
}

static inline void py_unnest(void)
{
    py_nested--;
}

#endif
