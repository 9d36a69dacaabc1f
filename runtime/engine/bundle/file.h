/* The bytes of a bundle: a file that stays open, or the caller's memory. */
#ifndef NOJIT_BUNDLE_FILE_H
#define NOJIT_BUNDLE_FILE_H

#include "base/error.h"
#include "base/span.h"

#include <stdint.h>

typedef struct {
    int descriptor;              /* -1 for memory */
    const unsigned char *memory; /* NULL for a file */
    uint64_t size;
} nj_file;

/* Opens a regular file. All functions here return false with `error` filled (may be NULL); a failed system call is NJ_ERROR_SYSTEM. */
bool nj_file_open(const char *path, nj_file *file, nj_error *error);
void nj_file_close(nj_file *file);

/* Reads `size` bytes from offset `start`. */
NJ_FOR_BINDING bool nj_file_read(const nj_file *file, uint64_t start, size_t size, void *to, nj_error *error);

#endif
