/* Limits that a reader checks before it allocates memory (docs/bundle-format.md, chapter 9). */
#ifndef NOJIT_BUNDLE_LIMITS_H
#define NOJIT_BUNDLE_LIMITS_H

enum {
    NJ_INDEX_BYTES_MAX = 2 << 20, /* stored or raw */
    NJ_SECTION_BYTES_MAX = 5 << 20, /* of a kernel's section, stored or raw */
    NJ_ATTACHMENT_BYTES_MAX = 64 << 20, /* stored or raw */
    NJ_GROUP_BYTES_MAX = 8 << 20, /* stored or raw */
    NJ_IMAGE_BYTES_MAX = 8 << 20,
    NJ_KERNELS_MAX = 4096,
    NJ_VARIANTS_MAX = 32768, /* largest number of a kernel's variants, of its images and of its groups */
    NJ_TOOLS_MAX = 64,
    NJ_ATTACHMENTS_MAX = 64,
    NJ_STATEMENT_BYTES_MAX = 4 << 20, /* the signed statement beside a bundle */
    NJ_DRIVER_MAX = 1000000,
    /* a section, the groups of a kernel or an attachment decompress to at most NJ_FREE_BYTES plus its ratio times the stored bytes */
    NJ_FREE_BYTES = 4 << 10,
    NJ_SECTION_RATIO_MAX = 32,
    NJ_PAYLOAD_RATIO_MAX = 64,
    NJ_ATTACHMENT_RATIO_MAX = 64,
    NJ_WINDOW_LOG_MAX = 23, /* log2 of the largest window of a zstd frame */
};

#define NJ_PAYLOAD_BYTES_MAX ((uint64_t)1 << 40) /* stored groups of a kernel */

#endif
