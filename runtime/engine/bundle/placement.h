/* The section of a kernel: its variant table, and where its images lie (docs/bundle-format.md, chapters 7 and 8). */
#ifndef NOJIT_BUNDLE_PLACEMENT_H
#define NOJIT_BUNDLE_PLACEMENT_H

#include "base/cursor.h"
#include "base/error.h"

#define NJ_GROUP_RECORD_BYTES 44

/* Images compressed together, as their record has it. */
typedef struct {
    uint32_t images, stored_bytes, raw_bytes;
    const unsigned char *sha256; /* of the group as stored */
} nj_group;

/* The places of a kernel's images. */
typedef struct nj_placement {
    const unsigned char *records; /* in the bytes that were read */
    size_t images, groups;
    uint64_t *image_starts;  /* of each image, how many raw bytes those before it have; one more for all */
    uint64_t *stored_starts; /* of each group, how many stored bytes those before it have */
    uint64_t *firsts;        /* of each group, its first image */
} nj_placement;

/* The place of an image. */
typedef struct {
    size_t number; /* of its group */
    nj_group group;
    uint64_t stored_start; /* of the group, in the kernel's part of the payload */
    uint64_t start, end;   /* of the image, in the decompressed group */
} nj_image_place;

/* Checks that a section decompresses to no more than it may. False with `error` filled (may be NULL), as in all of these. */
NJ_FOR_BINDING bool nj_section_check(uint64_t stored_bytes, uint64_t raw_bytes, nj_error *error);

/* Parts a section into its table and, from its end, the lengths of images and the records of groups. */
NJ_FOR_BINDING bool nj_section_split(nj_span raw, uint64_t images, uint64_t groups, nj_span *table, nj_span *placement, nj_error *error);

/* Reads the lengths of images and the records of groups, which lie in `raw`. To be closed, whether or not this succeeds. */
NJ_FOR_BINDING bool nj_placement_read(nj_span raw, uint64_t images, uint64_t payload_bytes, nj_placement *placement, nj_error *error);
NJ_FOR_BINDING void nj_placement_close(nj_placement *placement);

/* Returns a group by its number, which is below `groups`. */
NJ_FOR_BINDING nj_group nj_placement_group(const nj_placement *placement, size_t number);

/* Finds an image by its number, which is below `images`. */
NJ_FOR_BINDING nj_image_place nj_placement_find(const nj_placement *placement, size_t image);

#endif
