/* The facts of a kernel that its image declares, for images of all vendors. */
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

/* A size in x, y and z that an image may declare. */
typedef struct {
    bool declared;
    uint32_t xyz[3];
} nj_declared;

typedef struct {
    nj_span symbol;
    size_t param_count;
    nj_image_param params[NJ_IMAGE_PARAMS_MAX]; /* in the order of the signature */
    uint32_t param_base;                  /* offset of the first param in the constant bank; 0 without params and for hsacos */
    nj_declared block;                    /* required block size, in threads */
    nj_declared largest_block;            /* largest block size, in threads */
    nj_declared cluster;                  /* cluster size, in CTAs */
    uint32_t registers;                   /* registers of a thread (hsacos: vector registers); 0 if the image does not declare them */
    uint32_t stack_bytes;                 /* stack of a thread */
    uint64_t static_shared_bytes;         /* static shared memory of a block; from sm_90 on it may include 1,024 bytes for the system */
    uint64_t text_bytes;                  /* size of the code */
} nj_image_kernel;

#endif
