/* Reads hsacos: what AMD's machine code itself says about how it must be launched.
 *
 * A note of the ELF file holds metadata of each kernel in MessagePack, by which HIP finds a kernel and lays out its arguments; a
 * kernel descriptor of 64 bytes, the object `<kernel>.kd`, is what the hardware launches. Both are documented in LLVM's "User Guide
 * for AMDGPU Backend": "Code Object V5 Metadata", "Kernel Descriptor", "Header". */
#ifndef NOJIT_IMAGE_HSACO_H
#define NOJIT_IMAGE_HSACO_H

#include "image/elf.h"
#include "image/image_kernel.h"

typedef struct {
    nj_elf elf;
    uint32_t gfx; /* 942 for gfx942 */
    nj_symbols symbols;
    nj_span kernels; /* the metadata of each kernel */
    size_t kernel_count;
} nj_hsaco;

typedef struct {
    nj_image_kernel it;
    uint32_t wave_threads;
} nj_hsaco_kernel;

/* Reads an image up to its kernels. False with `error` filled (may be NULL) where a rule is broken. */
bool nj_hsaco_read(nj_span image, nj_hsaco *hsaco, nj_error *error);

/* Takes the next of the kernels that `rest` holds, which is the image's `kernels` at first, and checks it. */
bool nj_hsaco_kernel_take(const nj_hsaco *hsaco, nj_cursor *rest, nj_hsaco_kernel *kernel, nj_error *error);

#endif
