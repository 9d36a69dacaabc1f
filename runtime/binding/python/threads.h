/* Locks for free-threaded Python; with the GIL, they do nothing. */
#ifndef NOJIT_THREADS_H
#define NOJIT_THREADS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#ifdef Py_GIL_DISABLED
#define PY_BEGIN_LOCKED(object) Py_BEGIN_CRITICAL_SECTION(object)
#define PY_END_LOCKED() Py_END_CRITICAL_SECTION()
typedef PyMutex py_mutex;
#define PY_LOCK(mutex) PyMutex_Lock(mutex)
#define PY_UNLOCK(mutex) PyMutex_Unlock(mutex)
#else
#define PY_BEGIN_LOCKED(object) {
#define PY_END_LOCKED() }
typedef struct {
    char unused;
} py_mutex;
#define PY_LOCK(mutex) ((void)(mutex))
#define PY_UNLOCK(mutex) ((void)(mutex))
#endif

/* A counter that several threads increment. */
#ifdef Py_GIL_DISABLED
typedef _Atomic(unsigned long long) py_atomic_count;
#define PY_COUNT(count) ((void)atomic_fetch_add_explicit(&(count), 1, memory_order_relaxed))
#define PY_COUNTED(count) atomic_load_explicit(&(count), memory_order_relaxed)
#else
typedef unsigned long long py_atomic_count;
#define PY_COUNT(count) ((void)(count)++)
#define PY_COUNTED(count) (count)
#endif

/* Enclose the body of a tp_dealloc whose objects may hold others of their kind: without the trashcan, deeply nested objects would
 * overflow the stack when freed. */
#define PY_BEGIN_FREE(self, dealloc) \
    PyObject_GC_UnTrack(self);       \
    Py_TRASHCAN_BEGIN(self, dealloc)
#define PY_END_FREE() Py_TRASHCAN_END

#endif
