/* Whether an image is the one that a bundle's table describes, asked before the driver sees it. */
#ifndef NOJIT_IMAGE_CHECK_H
#define NOJIT_IMAGE_CHECK_H

#include "base/error.h"
#include "image/image_kernel.h"

/* An image as a table describes it. */
typedef struct {
    nj_span symbol;
    uint32_t arch; /* its number: 90 for sm_90, 942 for gfx942 */
    bool arch_specific;
    uint32_t num_warps; /* of a block */
    uint32_t num_ctas;  /* of a cluster; 1 needs no cluster */
    size_t param_count;
    uint32_t sizes[NJ_IMAGE_PARAMS_MAX]; /* bytes of each param that is packed; 0 for a size that no param has */
} nj_expected_image;

/* The facts of an image that a launch needs. */
typedef struct {
    nj_image_kernel kernel;
    uint32_t own_shared_bytes; /* static, of a block */
} nj_image_facts;

/* Reads every kernel of an image, and checks that `entry->symbol` is as the table says. Each param is aligned to its size, a
 * tensor map to 64 bytes. False with `error` filled (may be NULL): NJ_ERROR_FORMAT for an image that breaks a rule,
 * NJ_ERROR_INTEGRITY for another image than the table's. */
NJ_FOR_BINDING bool nj_image_check(nj_span image, const nj_expected_image *entry, nj_image_facts *facts, nj_error *error);

#endif
