/* Checks, before the driver loads an image, that it is the one that the bundle's variant table describes. */
#ifndef NOJIT_IMAGE_CHECK_H
#define NOJIT_IMAGE_CHECK_H

#include "base/error.h"
#include "image/image_kernel.h"

/* An image as a variant table describes it. */
typedef struct {
    nj_span symbol;
    uint32_t arch; /* number of the arch: 90 for sm_90, 942 for gfx942 */
    bool arch_specific;
    uint32_t num_warps; /* warps of a block */
    uint32_t num_ctas;  /* CTAs of a cluster; 1 means no cluster */
    size_t param_count;
    uint32_t sizes[NJ_IMAGE_PARAMS_MAX]; /* bytes of each packed param; 0 for an unknown type, which matches no param */
} nj_expected_image;

/* The facts of an image that a launch needs. */
typedef struct {
    nj_image_kernel kernel;
    uint32_t own_shared_bytes; /* static shared memory of a block that counts against the driver's limits */
} nj_image_facts;

/* Reads every kernel of an image, and checks that the kernel `entry->symbol` is as the table describes it. Each param must be aligned to
 * its size, a tensor map to 64 bytes. False with `error` filled (may be NULL): NJ_ERROR_FORMAT if the image breaks a rule,
 * NJ_ERROR_INTEGRITY if it differs from the entry. */
NJ_FOR_BINDING bool nj_image_check(nj_span image, const nj_expected_image *entry, nj_image_facts *facts, nj_error *error);

#endif
