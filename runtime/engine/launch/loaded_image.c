#include "launch/loaded_image.h"

#include "base/arch.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, ANY_DEVICE = -1 };

/* An image that is loaded into the driver. */
typedef struct loaded_image {
    struct loaded_image *next; /* the next image in its bucket */
    unsigned char group_sha256[NJ_SHA256_BYTES];
    uint64_t start; /* offset in its decompressed group */
    int device;     /* ordinal of the device that holds it; ANY_DEVICE if the driver loads it on all */
    CUlibrary handle;
    nj_function *functions; /* list of the kernels requested so far, with their raised limits */
} loaded_image;

/* Guards all variables below. It is held while the driver loads an image, so that each image is loaded once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded_image *buckets[BUCKETS];

nj_image nj_image_of(const nj_reader *reader, const nj_image_bytes *bytes, const nj_expected_image *entry)
{
    nj_image_arch arch = nj_image_arch_read(reader->index.image_arch);
    nj_image image = {*bytes, (int)reader->index.min_driver, *entry};
    image.entry.arch = (uint32_t)arch.number;
    image.entry.arch_specific = arch.suffix == 'a';
    return image;
}

static bool check_version(int needed, nj_error *error)
{
    int version;
    if (!nj_outcome_good(NJ_TRY(cuDriverGetVersion, &version), error)) {
        return false;
    }
    const nj_vendor *it = nj_vendor_found;
    return version >= needed ||
           nj_driver_failed(error, it->spell("cuDriverGetVersion"), it->too_old, it->too_old_name,
                            "expected a driver for %s %d.%d or later, this one is for %d.%d", it->release, needed / 1000, needed % 1000 / 10,
                            version / 1000, version % 1000 / 10);
}

typedef struct {
    const nj_image *image;
    const nj_device *device;
    CUlibrary handle;
} loading;

static nj_outcome load_there(void *facts)
{
    loading *it = facts;
    bool pushed = false;
    nj_outcome outcome = nj_vendor_found->per_device ? nj_context_enter(it->device, &pushed) : NJ_SUCCESS;
    if (outcome.call == NULL) {
        /* no JIT options, since the driver must not compile anything */
        outcome = NJ_TRY(cuLibraryLoadData, &it->handle, it->image->bytes.content.at, NULL, NULL, 0, NULL, NULL, 0);
        nj_context_leave(pushed);
    }
    return outcome;
}

static loaded_image *load_locked(const nj_image *image, const nj_device *device, nj_error *error)
{
    loading facts = {.image = image, .device = device};
    /* allocates before the driver loads the image, because an image without an entry would be lost */
    loaded_image *made = calloc(1, sizeof *made);
    if (made == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    if (!check_version(image->min_driver, error) || !nj_outcome_good(load_there(&facts), error)) {
        free(made);
        return NULL;
    }
    memcpy(made->group_sha256, image->bytes.group_sha256, sizeof made->group_sha256);
    made->start = image->bytes.start;
    made->handle = facts.handle;
    made->device = nj_vendor_found->per_device ? device->ordinal : ANY_DEVICE;
    return made;
}

static loaded_image *find_locked(const nj_image *image, const nj_device *device, bool *loaded, nj_error *error)
{
    const unsigned char *sha256 = image->bytes.group_sha256;
    loaded_image **bucket = &buckets[(sha256[0] << 8 | sha256[1]) % BUCKETS];
    for (loaded_image *one = *bucket; one != NULL; one = one->next) {
        bool there = one->device == ANY_DEVICE || one->device == device->ordinal;
        if (there && one->start == image->bytes.start && memcmp(one->group_sha256, sha256, sizeof one->group_sha256) == 0) {
            return one;
        }
    }
    loaded_image *made = load_locked(image, device, error);
    if (made != NULL) {
        made->next = *bucket;
        *bucket = made;
        *loaded = true;
    }
    return made;
}

/* The state of comparing the driver's params of a kernel with those in the image. */
typedef struct {
    CUkernel handle;
    const nj_device *device;
    const nj_image_kernel *kernel;
    nj_error *error;
    bool agrees;
} comparing;

static bool compare(comparing *it, size_t number, size_t offset, size_t size)
{
    if (number == it->kernel->param_count) {
        return nj_differ(it->error, "more", "expected the driver to find %zu params in %s", number, nj_quote(it->kernel->symbol).text);
    }
    nj_image_param param = it->kernel->params[number];
    return (param.offset == offset && param.size == size) ||
           nj_differ(it->error, nj_format("%zu bytes at offset %zu", size, offset).text,
                     "expected the driver to find param %zu of %s to be %d bytes at offset %d", number, nj_quote(it->kernel->symbol).text, param.size,
                     param.offset);
}

static bool compare_count(comparing *it, size_t found)
{
    return found == it->kernel->param_count || nj_differ(it->error, nj_format("%zu", found).text,
                                                         "expected the driver to find %zu params in %s",
                                                         it->kernel->param_count, nj_quote(it->kernel->symbol).text);
}

static nj_outcome compare_there(void *facts)
{
    comparing *it = facts;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->device, &pushed);
    if (outcome.call != NULL) {
        return outcome;
    }
    it->agrees = true;
    for (size_t i = 0; it->agrees && outcome.call == NULL; i++) {
        size_t offset, size;
        outcome = NJ_TRY(cuKernelGetParamInfo, it->handle, i, &offset, &size);
        if (outcome.code == CUDA_ERROR_INVALID_VALUE) { /* the kernel has no param i */
            it->agrees = compare_count(it, i);
            outcome = NJ_SUCCESS;
            break;
        }
        it->agrees = outcome.call != NULL || compare(it, i, offset, size);
    }
    nj_context_leave(pushed);
    return outcome;
}

/* Checks that the driver reports the params that the image declares. Skipped for drivers before CUDA 12.4 and for HIP, which lack the
 * query. */
static bool check_params(CUkernel handle, nj_device *device, const nj_image_kernel *kernel, nj_error *error)
{
    comparing it = {.handle = handle, .device = device, .kernel = kernel, .error = error};
    return nj_calls.cuKernelGetParamInfo == NULL ||
           (nj_outcome_good(nj_on_device(device, compare_there, &it), error) && it.agrees);
}

static nj_function *make_function(nj_span symbol, unsigned int shared_bytes, nj_error *error)
{
    nj_function *made = calloc(1, sizeof *made + symbol.size + 1);
    if (made == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    memcpy(made->symbol, symbol.at, symbol.size);
    made->shared_bytes = shared_bytes;
    pthread_mutex_init(&made->lock, NULL);
    return made;
}

static void drop_function(nj_function *function)
{
    if (function != NULL) {
        pthread_mutex_destroy(&function->lock);
        free(function);
    }
}

static nj_function *find_function_locked(loaded_image *held, nj_device *device, const nj_image *image, const nj_image_facts *facts,
                                         nj_error *error)
{
    for (nj_function *one = held->functions; one != NULL; one = one->next) {
        if (nj_span_is(image->entry.symbol, one->symbol)) {
            return one;
        }
    }
    nj_function *made = make_function(image->entry.symbol, facts->own_shared_bytes, error);
    bool good = made != NULL &&
                nj_outcome_good(NJ_TRY(cuLibraryGetKernel, &made->handle, held->handle, made->symbol), error) &&
                check_params(made->handle, device, &facts->kernel, error);
    if (!good) {
        drop_function(made);
        return NULL;
    }
    made->next = held->functions;
    held->functions = made;
    return made;
}

nj_function *nj_image_load(const nj_image *image, int ordinal, bool *loaded, nj_error *error)
{
    nj_image_facts facts;
    *loaded = false;
    nj_device *device = nj_image_check(image->bytes.content, &image->entry, &facts, error) ? nj_device_ready(ordinal, error) : NULL;
    if (device == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    loaded_image *held = find_locked(image, device, loaded, error);
    nj_function *function = held == NULL ? NULL : find_function_locked(held, device, image, &facts, error);
    pthread_mutex_unlock(&lock);
    return function;
}

void nj_images_forget(void)
{
    pthread_mutex_lock(&lock);
    memset(buckets, 0, sizeof buckets);
    pthread_mutex_unlock(&lock);
}

typedef struct {
    const nj_function *function;
    const nj_device *device;
} placing;

static nj_outcome place_there(void *facts)
{
    const placing *it = facts;
    bool pushed;
    CUfunction function;
    nj_outcome outcome = nj_context_enter(it->device, &pushed);
    if (outcome.call == NULL) {
        /* with lazy loading, the driver loads the image on the current device at the first cuKernelGetFunction */
        outcome = NJ_TRY(cuKernelGetFunction, &function, it->function->handle);
        nj_context_leave(pushed);
    }
    return outcome;
}

bool nj_function_place(const nj_function *function, int ordinal, nj_error *error)
{
    nj_device *device = nj_device_ready(ordinal, error);
    placing facts = {function, device};
    return device != NULL && nj_outcome_good(nj_on_device(device, place_there, &facts), error);
}
