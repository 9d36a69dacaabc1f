/* SHA-256 (FIPS 180-4). */
#ifndef NOJIT_BASE_SHA256_H
#define NOJIT_BASE_SHA256_H

#include "base/internal.h"
#include "base/span.h"

#define NJ_SHA256_BYTES 32
#define NJ_SHA256_CHARS 64

/* Computes the digest of bytes. */
NJ_FOR_BINDING void nj_sha256(nj_span bytes, unsigned char digest[NJ_SHA256_BYTES]);

/* Writes a digest in lower-case hex, NUL-terminated. */
void nj_sha256_spell(const unsigned char digest[NJ_SHA256_BYTES], char spelled[NJ_SHA256_CHARS + 1]);

/* Reads NJ_SHA256_CHARS valid lower-case hex digits. */
void nj_sha256_read(const unsigned char *spelled, unsigned char digest[NJ_SHA256_BYTES]);

#endif
