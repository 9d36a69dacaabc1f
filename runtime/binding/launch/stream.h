/* Finds the stream of a launch. */
#ifndef NOJIT_STREAM_H
#define NOJIT_STREAM_H

#include "call/bound_call.h"

/* Finds the stream to launch on. Uses the first of these: the caller's `stream=`, the current stream of the tensors' framework, the
 * stream that an array names, torch's current stream if torch is loaded, the default stream. Returns 0, or -1 with an exception
 * raised. */
int py_find_stream(const py_signature *signature, const py_call *call, void **stream);

#endif
