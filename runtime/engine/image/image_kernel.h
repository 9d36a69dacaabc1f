/* A kernel as its image describes it, for images of all vendors. */
#ifndef NOJIT_IMAGE_IMAGE_KERNEL_H
#define NOJIT_IMAGE_IMAGE_KERNEL_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

#define NJ_IMAGE_PARAMS_MAX 512

typedef struct {
    uint16_t offset; /* in bytes */
    uint16_t size;   /* in bytes; not 0 */
} nj_image_param;

/* A size in x, y and z, if the image declares it. */
typedef struct {
    bool declared;
    uint32_t xyz[3];
} nj_declared;

typedef struct {
    nj_span symbol;
    size_t param_count;
    nj_image_param params[NJ_IMAGE_PARAMS_MAX]; /* in the order of the signature */
    uint32_t param_base;                  /* bytes; where params start in the constant bank, 0 without params and of hsacos */
    nj_declared block;                    /* threads: the only block that it may be launched with */
    nj_declared largest_block;            /* threads */
    nj_declared cluster;                  /* CTAs */
    uint32_t registers;                   /* of a thread, of hsacos the vector registers; 0 if the image does not say */
    uint32_t stack_bytes;                 /* of a thread */
    uint64_t static_shared_bytes;         /* of a block; of cubins from sm_90 up 1,024 of them may be the system's */
    uint64_t text_bytes;
} nj_image_kernel;

#endif
