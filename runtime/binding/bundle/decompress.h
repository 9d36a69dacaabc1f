/* Decompresses frames with a Python callable. */
#ifndef NOJIT_DECOMPRESS_H
#define NOJIT_DECOMPRESS_H

#include "base/error.h"
#include "base/span.h"

/* A decompress callback of `nj_reader_calls`: calls `context`, a callable, as `decompress(frame, raw)` to fill `raw`. Takes the GIL.
 * Returns false with `error` set if it raises ValueError; any other exception stays pending. */
bool py_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

#endif
