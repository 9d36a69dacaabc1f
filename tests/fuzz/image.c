/* Fuzz the readers of images: every section and kernel of one, and its check against a table that describes its first kernel. */
#include "base/arch.h"
#include "image/cubin.h"
#include "image/check.h"
#include "image/hsaco.h"
#include "starve.h"

#include <stdlib.h>

static void check(nj_span image, const nj_image_kernel *kernel, uint32_t arch, bool arch_specific, uint32_t threads)
{
    nj_error error;
    nj_image_facts facts;
    nj_expected_image entry = {
        .symbol = kernel->symbol,
        .arch = arch,
        .arch_specific = arch_specific,
        .num_warps = threads / nj_warp_threads((int)arch),
        .num_ctas = kernel->cluster.declared ? kernel->cluster.xyz[0] : 1,
        .param_count = kernel->param_count,
    };
    for (size_t i = 0; i < entry.param_count; i++) {
        entry.sizes[i] = kernel->params[i].size;
    }
    /* what is told must be what was read */
    if (nj_image_check(image, &entry, &facts, &error) && facts.kernel.param_count != kernel->param_count) {
        abort();
    }
    /* and a table that says anything else describes another image */
    for (int lie = 0; lie < 6; lie++) {
        nj_expected_image other = entry;
        other.symbol.size -= lie == 0 && entry.symbol.size > 0;
        other.arch += lie == 1;
        other.num_warps += lie == 2;
        other.num_ctas += lie == 3;
        other.param_count -= lie == 4 && entry.param_count > 0;
        other.sizes[0] ^= lie == 5 ? 4 : 0;
        nj_image_check(image, &other, &facts, &error);
    }
}

static void read_hsaco(nj_span image)
{
    nj_error error = {.code = NJ_OK};
    nj_hsaco hsaco;
    nj_hsaco_kernel kernel;
    bool good = nj_hsaco_read(image, &hsaco, &error);
    nj_cursor rest = {hsaco.kernels};
    for (size_t i = 0; good && i < hsaco.kernel_count; i++) {
        good = nj_hsaco_kernel_take(&hsaco, &rest, &kernel, &error);
    }
    fuzz_expect(good, &error, true);
    if (good && hsaco.kernel_count > 0) {
        rest.rest = hsaco.kernels;
        nj_hsaco_kernel_take(&hsaco, &rest, &kernel, &error);
        check(image, &kernel.it, hsaco.gfx, false, kernel.it.largest_block.xyz[0]);
    }
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    nj_span image = {bytes, size};
    nj_error error = {.code = NJ_OK};
    read_hsaco(image);
    nj_cubin cubin;
    nj_image_kernel kernel, first;
    bool good = nj_cubin_read(image, &cubin, &error);
    for (size_t i = 0; good && i < cubin.kernel_count; i++) {
        good = nj_cubin_kernel_read(&cubin, i, &kernel, &error);
        first = i == 0 ? kernel : first;
    }
    fuzz_expect(good, &error, true);
    if (good) {
        nj_cubin_has_debug(&cubin);
    }
    if (good && cubin.kernel_count > 0) {
        check(image, &first, cubin.sm, cubin.arch_specific, first.block.declared ? first.block.xyz[0] : 128);
    }
}
