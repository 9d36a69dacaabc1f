/* Decompresses with libzstd.so.1, which the first use opens. */
#ifndef NOJIT_BUNDLE_ZSTD_H
#define NOJIT_BUNDLE_ZSTD_H

#include "base/error.h"
#include "base/span.h"

/* Opens libzstd.so.1. False if it is not installed. */
NJ_FOR_BINDING bool nj_zstd_find(void);

/* Decompresses one frame that nj_frame_check accepted into exactly `raw_bytes`. False with `error` filled; NJ_ERROR_NEEDS if libzstd is
 * not installed. `context` is ignored. */
NJ_FOR_BINDING bool nj_zstd_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

/* Fills the error of a frame that does not decompress; `got` is the decompressor's error. Returns false. */
NJ_FOR_BINDING bool nj_frame_broken(nj_error *error, const char *got);

#endif
