#include "kernel/nesting.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Hooks, allocators, grids and tensors are Python code, which can launch again. Python's own limit allows for more calls
 * than the stack holds of ours. */
#define NESTED_MAX 32
/* What one of ours takes of it at most, with what the driver and Python put upon it. */
#define CALL_BYTES (128 * 1024)
/* A first thread whose stack may grow to so much is not looked at before its calls nest. */
#define AMPLE_BYTES (1024 * 1024)

_Thread_local __attribute__((tls_model("initial-exec"))) int py_nested;
_Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t py_lowest_call = UINTPTR_MAX;

/* Where this thread's stack ends; NULL until it was asked, which for a process's first thread takes reading a file. */
static _Thread_local char *stack_end;

/* What is left of this thread's stack, in bytes; SIZE_MAX if the platform does not say. */
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
