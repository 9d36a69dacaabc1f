/* Checks the header and the blocks of a zstd frame before it is decompressed (docs/bundle-format.md, chapter 3; RFC 8878, section
 * 3.1.1). */
#ifndef NOJIT_BUNDLE_FRAME_H
#define NOJIT_BUNDLE_FRAME_H

#include "base/cursor.h"
#include "base/error.h"

/* Checks that a part of a bundle is exactly one frame that declares `raw_bytes`, has a checksum and keeps within the largest window.
 * False with `error` filled (may be NULL) if it breaks a rule. */
NJ_FOR_BINDING bool nj_frame_check(nj_span frame, uint64_t raw_bytes, nj_error *error);

#endif
