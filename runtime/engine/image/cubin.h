/* Reads cubins: what machine code itself says about how it must be launched.
 *
 * Each kernel has a section `.text.<symbol>` with its code and a section `.nv.info.<symbol>` of attributes: the offset and size
 * of each param, the block and cluster that it was compiled for. NVIDIA does not document them; docs/bundle-format.md lists
 * what ptxas 12.8 to 13.4 writes and `cuobjdump -elf` spells. Nothing says that an image was assembled for a family (sm_100f): it
 * looks like plain sm_100. */
#ifndef NOJIT_IMAGE_CUBIN_H
#define NOJIT_IMAGE_CUBIN_H

#include "image/elf.h"
#include "image/image_kernel.h"

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
NJ_FOR_BINDING bool nj_cubin_read(nj_span image, nj_cubin *cubin, nj_error *error);

/* Reads and checks kernel `number`. */
NJ_FOR_BINDING bool nj_cubin_kernel_read(nj_cubin *cubin, size_t number, nj_image_kernel *kernel, nj_error *error);

/* Returns the static shared memory that counts against the driver's limits, in bytes. */
NJ_FOR_BINDING uint32_t nj_cubin_own_shared(const nj_cubin *cubin, const nj_image_kernel *kernel);

/* Whether sections tell of source lines, and so hold paths. */
NJ_FOR_BINDING bool nj_cubin_has_debug(const nj_cubin *cubin);

#endif
