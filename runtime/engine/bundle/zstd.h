/* Decompressing with libzstd.so.1, which is opened when it is first needed. */
#ifndef NOJIT_BUNDLE_ZSTD_H
#define NOJIT_BUNDLE_ZSTD_H

#include "base/error.h"
#include "base/span.h"

/* Whether libzstd.so.1 is there; opens it. */
NJ_FOR_BINDING bool nj_zstd_find(void);

/* Decompresses one whole frame, which nj_frame_check has passed, into exactly `raw_bytes`. False with `error` filled: NJ_ERROR_NEEDS
 * without libzstd. `context` is not looked at. */
NJ_FOR_BINDING bool nj_zstd_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

/* Says that a frame is not what it declares; `got` is what a decompressor said. False, for the caller to return. */
NJ_FOR_BINDING bool nj_frame_broken(nj_error *error, const char *got);

#endif
