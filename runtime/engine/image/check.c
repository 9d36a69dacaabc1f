#include "image/check.h"

#include "base/arch.h"
#include "image/cubin.h"
#include "image/hsaco.h"

enum { TENSOR_MAP_ALIGN = 64, NAMED = 4 };

static bool check_params(const nj_image_kernel *kernel, const nj_expected_image *entry, nj_error *error)
{
    uint32_t end = kernel->param_base;
    if (kernel->param_count != entry->param_count) {
        return nj_differ(error, nj_format("%zu", kernel->param_count).text, "expected %s to take %zu params", nj_quote(entry->symbol).text, entry->param_count);
    }
    for (size_t i = 0; i < kernel->param_count; i++) {
        nj_image_param param = kernel->params[i];
        /* params are aligned by their offset in the constant bank, not by their offset from the first param */
        uint32_t size = entry->sizes[i], align = size == 0 ? 1 : size < TENSOR_MAP_ALIGN ? size : TENSOR_MAP_ALIGN;
        uint32_t begin = (end + align - 1) / align * align;
        if (param.size != size || param.offset != begin - kernel->param_base) {
            return nj_differ(error, nj_format("%d bytes at offset %d", param.size, param.offset).text,
                             "expected param %zu of %s to be %u bytes at offset %u", i, nj_quote(entry->symbol).text, size, begin - kernel->param_base);
        }
        end = begin + param.size;
    }
    return true;
}

static nj_text spell(const nj_declared *declared, const char *otherwise)
{
    const uint32_t *xyz = declared->xyz;
    return declared->declared ? nj_format("(%u, %u, %u)", xyz[0], xyz[1], xyz[2]) : nj_format("%s", otherwise);
}

static bool is_line(const nj_declared *declared, uint32_t x)
{
    return declared->declared && declared->xyz[0] == x && declared->xyz[1] == 1 && declared->xyz[2] == 1;
}

static bool agrees(const nj_image_kernel *kernel, const nj_expected_image *entry, nj_error *error)
{
    uint32_t threads = nj_warp_threads((int)entry->arch) * entry->num_warps;
    if (!check_params(kernel, entry, error)) {
        return false;
    }
    if (!is_line(&kernel->block, threads)) {
        return nj_differ(error, spell(&kernel->block, "any block size").text, "expected %s to need blocks of (%u, 1, 1) threads", nj_quote(entry->symbol).text,
                         threads);
    }
    return is_line(&kernel->cluster, entry->num_ctas) || (!kernel->cluster.declared && entry->num_ctas == 1) ||
           nj_differ(error, spell(&kernel->cluster, "none").text, "expected %s to need clusters of %u CTAs", nj_quote(entry->symbol).text, entry->num_ctas);
}

/* The names of an image's first kernels, for the error that the wanted one is missing. */
typedef struct {
    nj_text text;
    size_t count;
} named;

static void name_kernel(named *it, nj_span symbol)
{
    nj_text next = nj_quote(symbol);
    if (it->count < NAMED) {
        it->text = it->count == 0 ? next : nj_format("%.120s, %.60s", it->text.text, next.text);
    }
    it->count++;
}

static bool lacks(const named *found, const nj_expected_image *entry, nj_error *error)
{
    return nj_differ(error, found->count == 0 ? "no kernel" : found->text.text, "expected kernel %s in the image", nj_quote(entry->symbol).text);
}

static bool lacks_in_cubin(const nj_cubin *cubin, const nj_expected_image *entry, nj_error *error)
{
    named found = {.count = 0};
    for (size_t i = 0; i < cubin->kernel_count; i++) {
        name_kernel(&found, cubin->kernels[i].name);
    }
    return lacks(&found, entry, error);
}

static bool check_cubin(nj_span image, const nj_expected_image *entry, nj_image_facts *facts, nj_error *error)
{
    nj_cubin cubin;
    if (!nj_cubin_read(image, &cubin, error)) {
        return false;
    }
    size_t wanted = cubin.kernel_count;
    for (size_t i = 0; i < cubin.kernel_count; i++) {
        if (nj_span_equal(cubin.kernels[i].name, entry->symbol)) {
            wanted = i;
        } else if (!nj_cubin_kernel_read(&cubin, i, &facts->kernel, error)) {
            return false;
        }
    }
    if (wanted < cubin.kernel_count && !nj_cubin_kernel_read(&cubin, wanted, &facts->kernel, error)) {
        return false;
    }
    if (cubin.sm != entry->arch || cubin.arch_specific != entry->arch_specific) {
        return nj_differ(error, nj_format("sm_%u%s", cubin.sm, cubin.arch_specific ? "a" : "").text, "expected an image for sm_%u%s",
                         entry->arch, entry->arch_specific ? "a" : "");
    }
    if (wanted == cubin.kernel_count) {
        return lacks_in_cubin(&cubin, entry, error);
    }
    facts->own_shared_bytes = nj_cubin_own_shared(&cubin, &facts->kernel);
    return agrees(&facts->kernel, entry, error);
}

/* Checks a hsaco's kernel as `agrees` does a cubin's. A hsaco declares the largest block, not the required one, but Triton always launches
 * the largest. */
static bool agrees_hsaco(const nj_hsaco_kernel *kernel, const nj_expected_image *entry, nj_error *error)
{
    uint32_t wave = nj_warp_threads((int)entry->arch);
    if (kernel->wave_threads != wave) {
        return nj_differ(error, nj_format("%u", kernel->wave_threads).text, "expected %s to have waves of %u threads", nj_quote(entry->symbol).text, wave);
    }
    nj_image_kernel as_cubin = kernel->it;
    as_cubin.block = kernel->it.largest_block;
    return agrees(&as_cubin, entry, error);
}

static bool check_hsaco(nj_span image, const nj_expected_image *entry, nj_image_facts *facts, nj_error *error)
{
    nj_hsaco hsaco;
    nj_hsaco_kernel kernel, wanted;
    named found = {.count = 0};
    bool has = false;
    if (!nj_hsaco_read(image, &hsaco, error)) {
        return false;
    }
    nj_cursor rest = {hsaco.kernels};
    for (size_t i = 0; i < hsaco.kernel_count; i++) {
        if (!nj_hsaco_kernel_take(&hsaco, &rest, &kernel, error)) {
            return false;
        }
        name_kernel(&found, kernel.it.symbol);
        if (nj_span_equal(kernel.it.symbol, entry->symbol)) {
            if (has) {
                return nj_break(error, "hsaco-names", nj_quote(entry->symbol).text, "expected each kernel once");
            }
            wanted = kernel;
            has = true;
        }
    }
    if (hsaco.gfx != entry->arch) {
        return nj_differ(error, nj_format("gfx%u", hsaco.gfx).text, "expected an image for gfx%u", entry->arch);
    }
    if (!has) {
        return lacks(&found, entry, error);
    }
    facts->kernel = wanted.it;
    facts->own_shared_bytes = (uint32_t)wanted.it.static_shared_bytes;
    return agrees_hsaco(&wanted, entry, error);
}

bool nj_image_check(nj_span image, const nj_expected_image *entry, nj_image_facts *facts, nj_error *error)
{
    return (nj_is_gfx((int)entry->arch) ? check_hsaco : check_cubin)(image, entry, facts, error);
}
