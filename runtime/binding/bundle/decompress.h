/* Decompressing by a function of Python's. */
#ifndef NOJIT_DECOMPRESS_H
#define NOJIT_DECOMPRESS_H

#include "base/error.h"
#include "base/span.h"

/* Fills `raw` with what a frame holds by `context`, which is called as `decompress(frame, raw)`. Takes the GIL; what it raises and
 * the engine has no error for stays raised. As `nj_reader_calls` asks for. */
bool py_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

#endif
