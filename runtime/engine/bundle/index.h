/* The index of a bundle (docs/bundle-format.md, section 5). */
#ifndef NOJIT_BUNDLE_INDEX_H
#define NOJIT_BUNDLE_INDEX_H

#include "bundle/document.h"
#include "bundle/limits.h"

/* One kernel, as the index lists it. */
typedef struct {
    nj_span name;
    uint64_t variants; /* rows of its table */
    uint64_t images, groups;
    uint64_t payload_bytes;                             /* of its groups together, as stored */
    uint64_t section_stored_bytes, section_raw_bytes;   /* of its table, and of where its images lie */
    nj_span section_sha256;                             /* of the section as stored, in hex */
} nj_kernel_entry;

typedef struct {
    nj_span name, version;
} nj_tool;

typedef struct nj_index {
    nj_document document;
    nj_span name, version, inputs;
    nj_span backend, arch, image_arch;
    uint64_t warp_size, min_driver;
    size_t tool_count, kernel_count, kernel_room;
    nj_tool tools[NJ_TOOLS_MAX]; /* sorted by name */
    nj_kernel_entry *kernels;    /* sorted by name */
} nj_index;

/* Reads an index, whose texts lie in `raw`. False with `error` filled (may be NULL) where a rule is broken. To be closed, whether
 * or not this succeeds. */
NJ_INTERNAL bool nj_index_read(nj_span raw, nj_index *index, nj_error *error);
NJ_INTERNAL void nj_index_close(nj_index *index);

#endif
