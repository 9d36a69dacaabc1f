/* The index of a bundle (docs/bundle-format.md, chapter 5). */
#ifndef NOJIT_BUNDLE_INDEX_H
#define NOJIT_BUNDLE_INDEX_H

#include "bundle/limits.h"
#include "json/document.h"

/* A compressed part of the file, with its size and digest. */
typedef struct {
    uint64_t stored_bytes, raw_bytes;
    nj_span sha256; /* digest of the stored bytes, in hex */
} nj_stored_section;

/* One kernel, as the index lists it. */
typedef struct {
    nj_span name;
    uint64_t variants; /* number of rows of its table */
    uint64_t images, groups;
    uint64_t payload_bytes;    /* stored size of all its groups */
    nj_stored_section section; /* its variant table and the placement of its images */
} nj_kernel_entry;

/* An attachment: bytes that the build stored in the bundle under a name. */
typedef struct {
    nj_span name;
    nj_stored_section section;
} nj_attachment_entry;

typedef struct {
    nj_span name, version;
} nj_tool;

typedef struct nj_index {
    nj_document document;
    nj_span name, version, inputs;
    nj_span backend, arch, image_arch;
    uint64_t warp_size, min_driver;
    size_t tool_count, kernel_count, kernel_room, attachment_count;
    nj_tool tools[NJ_TOOLS_MAX];      /* sorted by name */
    nj_kernel_entry *kernels;         /* sorted by name */
    nj_attachment_entry *attachments; /* sorted by name; NULL if there are none */
} nj_index;

/* Reads an index; its texts point into `raw`. False with `error` filled (may be NULL) if it breaks a rule. The caller closes the index
 * in either case. */
NJ_FOR_BINDING bool nj_index_read(nj_span raw, nj_index *index, nj_error *error);
NJ_FOR_BINDING void nj_index_close(nj_index *index);

#endif
