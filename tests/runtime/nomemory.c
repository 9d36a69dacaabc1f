/* Open a bundle, ask, launch and close it, again and again, with one more allocation that works each time; and go on with
 * enough memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "nojit.h"

/* The linker has the engine call these (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);

static long left = -1; /* allocations until one fails; negative: none does */
static int one_fails;  /* or all from there on */
static int has_failed;

static int fails(void)
{
    if (left != 0) {
        left -= left > 0;
        return 0;
    }
    left = one_fails ? -1 : 0;
    has_failed = 1;
    return 1;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

static int loads; /* of images into the driver */
static nj_driver_calls real;

static CUresult count_load(CUlibrary *library, const void *image, int *jit_options, void **jit_values, unsigned int jit_count, int *options,
                           void **values, unsigned int count)
{
    loads++;
    return real.cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options, values, count);
}

/* Has the engine call `count_load`, once it has found the driver's calls. */
static void watch_loads(void)
{
    if (nj_calls.cuLibraryLoadData != NULL && nj_calls.cuLibraryLoadData != count_load) {
        real = nj_calls;
        nj_calls.cuLibraryLoadData = count_load;
    }
}

static int count_chosen(void *chosen, const nj_reason *reason)
{
    *(int *)chosen += reason->code == NJ_REASON_CHOSEN;
    return 0;
}

static nj_code explain(nj_kernel *kernel, const nj_call *call, nj_error *error)
{
    int chosen = 0;
    nj_code code = nj_kernel_explain(kernel, call, NJ_CURRENT_DEVICE, count_chosen, &chosen, error);
    if (code == NJ_OK && chosen != 1) {
        fprintf(stderr, "without memory %d variants are chosen\n", chosen);
        exit(1);
    }
    return code;
}

static nj_code use(nj_bundle *bundle, nj_error *error)
{
    size_t size;
    const void *notes = nj_bundle_attachment(bundle, "notes.txt", &size, error);
    nj_kernel *add = notes == NULL ? NULL : nj_bundle_kernel(bundle, "add", error);
    if (add == NULL) {
        return error->code;
    }
    nj_config_info config = NJ_CONFIG_INFO_INIT;
    if (nj_kernel_config(add, 0, &config, error) != NJ_OK) {
        return error->code;
    }
    nj_arg args[] = {nj_arg_pointer(0x1000, NJ_DTYPE_FP16), nj_arg_pointer(0x2000, NJ_DTYPE_FP16), nj_arg_int(1024)};
    nj_keyword block = {"BLOCK", nj_arg_int(256)};
    nj_call plain = {args, 3, NULL, 0}, given = {args, 3, &block, 1};
    if (explain(add, &given, error) != NJ_OK || nj_kernel_launch(add, &plain, NULL, error) != NJ_OK ||
        nj_kernel_launch(add, &given, NULL, error) != NJ_OK || nj_kernel_prepare(add, &given, NJ_CURRENT_DEVICE, error) == NULL ||
        nj_kernel_load(add, 0, error) != NJ_OK) {
        return error->code;
    }
    nj_kernel *tile = nj_bundle_kernel(bundle, "tile", error);
    if (tile == NULL) {
        return error->code;
    }
    nj_tensor_descriptor described = {sizeof described, 0x4000, NJ_DTYPE_FP16, 2, {128, 64}, {64, 1}, {64, 64}, {0}, {0}, 0, 0, {0}};
    nj_arg members[] = {nj_arg_descriptor(&described), nj_arg_int(5), nj_arg_text("sum")};
    nj_arg both[] = {nj_arg_tuple(members, 3)};
    nj_call tiled = {both, 1, NULL, 0};
    return nj_kernel_launch(tile, &tiled, NULL, error);
}

/* Fails one allocation after the other, and goes on with memory; or fails all from each of them on. Returns how many failures were told;
 * -1 if something is wrong. */
static long starve(const char *path, int one)
{
    long failed = 0;
    one_fails = one;
    for (long works = 0;; works++) {
        nj_error error;
        memset(&error, 0, sizeof error);
        left = works;
        has_failed = 0;
        watch_loads();
        nj_bundle *bundle = nj_bundle_open(path, NULL, &error);
        nj_code code = bundle == NULL ? error.code : use(bundle, &error);
        left = -1;
        if (one && bundle != NULL && code == NJ_ERROR_MEMORY && use(bundle, &error) != NJ_OK) {
            fprintf(stderr, "%ld: %s, got %s - at %s with memory again\n", works, error.what, error.got, error.where);
            return -1;
        }
        nj_bundle_close(bundle);
        if (code != NJ_OK && (!has_failed || code != NJ_ERROR_MEMORY)) {
            fprintf(stderr, "%ld: %d, %s, got %s - at %s\n", works, (int)code, error.what, error.got, error.where);
            return -1;
        }
        failed += code != NJ_OK;
        if (!has_failed) {
            return failed;
        }
    }
}

int main(int count, char **words)
{
    if (count != 2) {
        return 2;
    }
    /* with memory again every image is loaded, and stays so: what fails behind a load is seen first */
    long failed = starve(words[1], 0), again = failed < 0 ? -1 : starve(words[1], 1);
    if (again < 0) {
        return 1;
    }
    printf("%s, %d images loaded\n", failed > 30 && again > 30 ? "many failed" : "few failed", loads);
    return 0;
}
