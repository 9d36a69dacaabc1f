/* The stream of a launch. */
#ifndef NOJIT_STREAM_H
#define NOJIT_STREAM_H

#include "call/bound_call.h"

/* Finds the stream to launch on: the caller's `stream=`; else the current one of the tensors' framework; else the one that
 * an array names; else torch's current one, where torch is loaded; else the default stream. 0, or -1 with an exception
 * raised. */
int py_find_stream(const py_signature *signature, const py_call *call, void **stream);

#endif
