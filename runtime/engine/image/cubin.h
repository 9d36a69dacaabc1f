/* Reads cubins: what machine code itself says about how it must be launched.
 *
 * Each kernel has a section `.text.<symbol>` with its code and a section `.nv.info.<symbol>` of attributes: the offset and size
 * of each param, the block and cluster that it was compiled for. NVIDIA does not document them; docs/bundle-format.md lists
 * what ptxas 12.8 to 13.4 writes and `cuobjdump -elf` spells. Nothing says that an image was assembled for a family (sm_100f): it
 * looks like plain sm_100. */
#ifndef NOJIT_IMAGE_CUBIN_H
#define NOJIT_IMAGE_CUBIN_H

#include "image/elf.h"

#define NJ_CUBIN_PARAMS_MAX 512

typedef struct {
    uint16_t offset; /* in bytes */
    uint16_t size;   /* in bytes; not 0 */
} nj_cubin_param;

/* A size in x, y and z, if the image declares it. */
typedef struct {
    bool declared;
    uint32_t xyz[3];
} nj_declared;

typedef struct {
    nj_span symbol;
    size_t param_count;
    nj_cubin_param params[NJ_CUBIN_PARAMS_MAX]; /* in the order of the signature */
    uint32_t param_base;                  /* bytes; where params start in the constant bank, 0 without params */
    nj_declared block;                    /* threads: the only block that it may be launched with */
    nj_declared largest_block;            /* threads */
    nj_declared cluster;                  /* CTAs */
    uint32_t registers;                   /* of a thread; 0 if the image does not say */
    uint32_t stack_bytes;                 /* of a thread */
    uint64_t static_shared_bytes;         /* of a block; from sm_90 up 1,024 of them may be the system's */
    uint64_t text_bytes;
} nj_cubin_kernel;

typedef struct {
    nj_elf elf;
    size_t quota; /* attributes that may still be read */
    uint32_t sm;  /* compute capability without the dot: 90 */
    bool arch_specific;
    uint32_t toolkit; /* of the ptxas that wrote it, 130 for 13.0; 0 if no kernel that was read says */
    size_t kernel_count;
    nj_symbol kernels[NJ_SECTIONS_MAX];
    uint32_t registers[NJ_SECTIONS_MAX], stack_bytes[NJ_SECTIONS_MAX]; /* of kernels, by number */
} nj_cubin;

/* Reads an image up to its kernels. False with `error` filled (may be NULL) where a rule is broken. */
NJ_INTERNAL bool nj_cubin_read(nj_span image, nj_cubin *cubin, nj_error *error);

/* Reads and checks kernel `number`. */
NJ_INTERNAL bool nj_cubin_kernel_read(nj_cubin *cubin, size_t number, nj_cubin_kernel *kernel, nj_error *error);

/* Returns the static shared memory that counts against the driver's limits, in bytes. */
NJ_INTERNAL uint32_t nj_cubin_own_shared(const nj_cubin *cubin, const nj_cubin_kernel *kernel);

/* Whether sections tell of source lines, and so hold paths. */
NJ_INTERNAL bool nj_cubin_has_debug(const nj_cubin *cubin);

#endif
