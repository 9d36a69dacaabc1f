/* The section of a kernel: its variant table and the placement of its images (docs/bundle-format.md, chapters 7 and 8). */
#ifndef NOJIT_BUNDLE_PLACEMENT_H
#define NOJIT_BUNDLE_PLACEMENT_H

#include "base/cursor.h"
#include "base/error.h"

#define NJ_GROUP_RECORD_BYTES 44

/* A group: images that are compressed together. */
typedef struct {
    uint32_t images, stored_bytes, raw_bytes;
    const unsigned char *sha256; /* digest of the group as stored */
} nj_group;

/* The places of a kernel's images. */
typedef struct nj_placement {
    const unsigned char *records; /* records of the groups, in the bytes passed to `nj_placement_read` */
    size_t images, groups;
    uint64_t *image_starts;  /* for each image, the raw bytes of all images before it; a last entry has the total */
    uint64_t *stored_starts; /* for each group, the stored bytes of all groups before it */
    uint64_t *firsts;        /* for each group, the number of its first image */
} nj_placement;

/* The place of an image. */
typedef struct {
    size_t number; /* number of its group */
    nj_group group;
    uint64_t stored_start; /* offset of the group in the kernel's part of the payload */
    uint64_t start, end;   /* offsets of the image in the decompressed group */
} nj_image_place;

/* Checks that a section does not decompress to more than NJ_SECTION_RATIO_MAX allows. All functions here that take an error return false
 * with `error` filled (may be NULL). */
NJ_FOR_BINDING bool nj_section_check(uint64_t stored_bytes, uint64_t raw_bytes, nj_error *error);

/* Splits a section into its table and its placement: the lengths of images and the records of groups, which come last. */
NJ_FOR_BINDING bool nj_section_split(nj_span raw, uint64_t images, uint64_t groups, nj_span *table, nj_span *placement, nj_error *error);

/* Reads the lengths of images and the records of groups, and keeps pointers into `raw`. The caller closes the placement in either case. */
NJ_FOR_BINDING bool nj_placement_read(nj_span raw, uint64_t images, uint64_t payload_bytes, nj_placement *placement, nj_error *error);
NJ_FOR_BINDING void nj_placement_close(nj_placement *placement);

/* Returns a group by its number, which is below `groups`. */
NJ_FOR_BINDING nj_group nj_placement_group(const nj_placement *placement, size_t number);

/* Finds an image by its number, which is below `images`. */
NJ_FOR_BINDING nj_image_place nj_placement_find(const nj_placement *placement, size_t image);

#endif
