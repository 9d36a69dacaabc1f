/* What a cubin says of itself. runtime/cubin.py holds the rules and names the one that is broken; here is said only that all
 * of them hold. */
#ifndef NOJIT_CUBIN_H
#define NOJIT_CUBIN_H

#include "elf.h"

#define NJ_CUBIN_PARAMS_MAX 512

typedef struct {
    uint16_t offset;
    uint16_t size; /* in bytes; not 0 */
} nj_param;

typedef struct {
    size_t param_count;
    size_t param_end; /* one more than the greatest ordinal */
    nj_param params[NJ_CUBIN_PARAMS_MAX];
    uint32_t param_base; /* where they start in the constant bank */
    uint32_t bank_bytes;
    uint32_t block[3];   /* in threads; zeros if any block will do */
    uint32_t cluster[3]; /* in CTAs; ones if none was declared */
    uint32_t shared_bytes; /* static, of a block: the kernel's own */
    uint32_t registers;    /* of a thread; 0 if the image does not say */
} nj_cubin_kernel;

typedef struct {
    uint32_t sm; /* 90 */
    bool arch_specific;
    nj_cubin_kernel kernel;
} nj_cubin;

/* Reads an image, whose size is all that is known of it, and its kernel `symbol`. False where a rule is broken, or there is no
 * such kernel. */
bool nj_cubin_read(nj_span image, nj_span symbol, nj_cubin *cubin);

#endif
