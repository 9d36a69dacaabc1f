/* The first 64 bytes of a bundle. */
#ifndef NOJIT_BUNDLE_HEADER_H
#define NOJIT_BUNDLE_HEADER_H

#include "base/cursor.h"
#include "base/error.h"
#include "base/sha256.h"

#define NJ_MAGIC "nojit\r\n\x1a" /* the first bytes of a file */
#define NJ_HEADER_BYTES 64
#define NJ_FORMAT_VERSION 2

/* File name suffixes of a bundle and of the signed statement beside it. */
#define NJ_SUFFIX ".nojit"
#define NJ_STATEMENT_SUFFIX ".intoto.jsonl"

typedef struct {
    uint64_t index_bytes;         /* size of the index as stored */
    uint64_t index_raw_bytes;     /* size of the decompressed index */
    const unsigned char *sha256;  /* digest of the index as stored */
} nj_header;

/* Reads the header from the first bytes of a file. False with `error` filled (may be NULL) if it breaks a rule. */
bool nj_header_read(nj_span file, nj_header *header, nj_error *error);

#endif
