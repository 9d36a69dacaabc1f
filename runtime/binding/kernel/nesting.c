#include "kernel/nesting.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Limit of nested calls. Hooks, allocators, grid functions and tensors run Python code, which can launch again, and Python's own
 * recursion limit allows more of these calls than the C stack holds. */
#define NESTED_MAX 32
/* Upper bound of the stack that one call takes, including the frames of the driver and of Python. */
#define CALL_BYTES (128 * 1024)
/* A process's first thread skips the check of an outermost call if its stack may grow to this size. */
#define AMPLE_BYTES (1024 * 1024)

_Thread_local __attribute__((tls_model("initial-exec"))) int py_nested;
_Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t py_lowest_call = UINTPTR_MAX;

/* Lowest address of this thread's stack; NULL until first needed, since glibc reads a file to find it for the first thread. */
static _Thread_local char *stack_end;

/* Returns the bytes that are left on this thread's stack; SIZE_MAX if the platform does not say. */
static size_t stack_left(void)
{
    pthread_attr_t attributes;
    char here;
    size_t size;
    void *lowest;
    if (stack_end == NULL && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &lowest, &size) == 0) {
            stack_end = lowest;
        }
        pthread_attr_destroy(&attributes);
    }
    return stack_end == NULL || &here < stack_end ? SIZE_MAX : (size_t)(&here - stack_end);
}

__attribute__((cold)) bool py_nest_deeper(void)
{
    if (py_nested >= NESTED_MAX) {
        PyErr_Format(PyExc_RecursionError, "expected at most %d nested calls of kernels: a hook, allocator, grid function or tensor keeps launching", NESTED_MAX);
        return false;
    }
    if (stack_left() < CALL_BYTES) {
        PyErr_Format(PyExc_RecursionError, "expected room on the thread's stack for a call of a kernel nested in %d others",
                     py_nested);
        return false;
    }
    py_nested++;
    return true;
}

static bool has_ample_stack(void)
{
    struct rlimit limit;
    bool first = syscall(SYS_gettid) == getpid();
    return first && getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= AMPLE_BYTES;
}

__attribute__((cold)) bool py_has_room(void)
{
    if (py_lowest_call == UINTPTR_MAX && has_ample_stack()) {
        py_lowest_call = 0;
        return true;
    }
    size_t left = stack_left();
    py_lowest_call = stack_end == NULL ? 0 : (uintptr_t)stack_end + CALL_BYTES;
    if (left < CALL_BYTES) {
        PyErr_Format(PyExc_RecursionError,
                     "expected %d bytes on the thread's stack for a call of a kernel, got %zu: threading.stack_size gives threads more",
                     CALL_BYTES, left);
        return false;
    }
    return true;
}
