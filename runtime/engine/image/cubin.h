/* Reads cubins, NVIDIA's ELF images, for the facts of a launch.
 *
 * Each kernel has a section `.text.<symbol>` with its code and a section `.nv.info.<symbol>` with attributes: the offset and size of each
 * param, the block and the cluster for which it was compiled. NVIDIA does not document the attributes; docs/bundle-format.md lists those
 * that ptxas 12.8 to 13.4 writes and `cuobjdump -elf` prints. A cubin for a family (sm_100f) cannot be told from one for sm_100. */
#ifndef NOJIT_IMAGE_CUBIN_H
#define NOJIT_IMAGE_CUBIN_H

#include "image/elf.h"
#include "image/image_kernel.h"

typedef struct {
    nj_elf elf;
    size_t quota; /* number of attributes that may still be read */
    uint32_t sm;  /* compute capability without the dot: 90 */
    bool arch_specific;
    uint32_t toolkit; /* version of the ptxas that wrote it, 130 for 13.0; 0 if no kernel read so far has it */
    size_t kernel_count;
    nj_symbol kernels[NJ_SECTIONS_MAX];
    uint32_t registers[NJ_SECTIONS_MAX], stack_bytes[NJ_SECTIONS_MAX]; /* one for each kernel */
} nj_cubin;

/* Reads an image except the sections `.nv.info.<symbol>` of its kernels. False with `error` filled (may be NULL) if it breaks a rule. */
NJ_FOR_BINDING bool nj_cubin_read(nj_span image, nj_cubin *cubin, nj_error *error);

/* Reads and checks the attributes of kernel `number`. */
NJ_FOR_BINDING bool nj_cubin_kernel_read(nj_cubin *cubin, size_t number, nj_image_kernel *kernel, nj_error *error);

/* Returns the static shared memory that counts against the driver's limits, in bytes. */
NJ_FOR_BINDING uint32_t nj_cubin_own_shared(const nj_cubin *cubin, const nj_image_kernel *kernel);

/* True if a section holds debug information, and so paths of source files. */
NJ_FOR_BINDING bool nj_cubin_has_debug(const nj_cubin *cubin);

#endif
