/* The header and the blocks of a zstd frame (docs/bundle-format.md, chapter 3; RFC 8878, section 3.1.1), checked before anything
 * decompresses it. */
#ifndef NOJIT_BUNDLE_FRAME_H
#define NOJIT_BUNDLE_FRAME_H

#include "base/cursor.h"
#include "base/error.h"

/* Checks that a part of a bundle is one whole frame that declares `raw_bytes`, with a checksum, and that decompressing it takes no more
 * memory than it may. False with `error` filled (may be NULL) where a rule is broken. */
NJ_FOR_BINDING bool nj_frame_check(nj_span frame, uint64_t raw_bytes, nj_error *error);

#endif
