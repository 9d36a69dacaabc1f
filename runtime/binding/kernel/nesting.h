/* Limits how deeply calls of kernels nest, by their number and by the room on the thread's stack. */
#ifndef NOJIT_NESTING_H
#define NOJIT_NESTING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Number of calls in progress on this thread. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) int py_nested;

/* Lowest stack address at which an outermost call skips py_has_room. UINTPTR_MAX until the thread's first call. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t py_lowest_call;

/* Counts a nested call. Returns false with RecursionError raised if there are too many, or the stack has too little room. */
bool py_nest_deeper(void);

/* Measures the thread's stack, at its first call and when little is left. Returns false with RecursionError raised if it is short. */
bool py_has_room(void);

/* Counts a call, until `py_unnest`. Returns false with RecursionError raised if there are too many, or the stack has too little room. */
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
