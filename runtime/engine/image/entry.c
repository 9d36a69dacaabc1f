#include "image/entry.h"

enum { WARP = 32, TENSOR_MAP_ALIGN = 64, NAMED = 4 };

static bool check_params(const nj_cubin_kernel *kernel, const nj_entry *entry, nj_error *error)
{
    uint32_t end = kernel->param_base;
    if (kernel->param_count != entry->param_count) {
        return nj_differ(error, nj_format("%zu", kernel->param_count).text, "expected %s to take %zu params", nj_quote(entry->symbol).text, entry->param_count);
    }
    for (size_t i = 0; i < kernel->param_count; i++) {
        nj_cubin_param param = kernel->params[i];
        /* what is aligned is the place in the constant bank */
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

static bool agrees(const nj_cubin_kernel *kernel, const nj_entry *entry, nj_error *error)
{
    uint32_t threads = WARP * entry->num_warps;
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

static bool lacks(const nj_cubin *cubin, const nj_entry *entry, nj_error *error)
{
    nj_text got = nj_format("no kernel");
    for (size_t i = 0; i < cubin->kernel_count && i < NAMED; i++) {
        nj_text next = nj_quote(cubin->kernels[i].name);
        got = i == 0 ? next : nj_format("%.120s, %.60s", got.text, next.text);
    }
    return nj_differ(error, got.text, "expected kernel %s in the image", nj_quote(entry->symbol).text);
}

bool nj_entry_check(nj_span image, const nj_entry *entry, nj_entry_facts *facts, nj_error *error)
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
    if (cubin.sm != entry->sm || cubin.arch_specific != entry->arch_specific) {
        return nj_differ(error, nj_format("sm_%u%s", cubin.sm, cubin.arch_specific ? "a" : "").text, "expected an image for sm_%u%s",
                         entry->sm, entry->arch_specific ? "a" : "");
    }
    if (wanted == cubin.kernel_count) {
        return lacks(&cubin, entry, error);
    }
    facts->own_shared_bytes = nj_cubin_own_shared(&cubin, &facts->kernel);
    return agrees(&facts->kernel, entry, error);
}
