/* The stream of a launch, and what torch says of it. Nothing here imports torch: it is asked where the process has it. */
#ifndef NOJIT_STREAM_H
#define NOJIT_STREAM_H

#include "call/bound_call.h"

/* Prepares the names that are looked up; once, at import. */
int py_stream_init(void);

/* Finds the stream to launch on: the caller's `stream=`; else the current one of the tensors' framework; else the one that
 * an array names; else torch's current one, where torch is loaded; else the default stream. 0, or -1 with an exception
 * raised. */
int py_find_stream(const py_signature *signature, const py_call *call, void **stream);

/* Whether an object is a tensor of torch: 1, 0, or -1 with an exception raised. */
int py_is_torch(PyObject *object);

#endif
