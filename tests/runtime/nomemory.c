/* Open a bundle, ask, launch and close it, again and again, with one more allocation that works each time; and go on with
 * enough memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nojit.h"

/* The linker has the engine call these (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);

static long left = -1; /* allocations until one fails; negative: none does */

static int fails(void)
{
    return left >= 0 && left-- == 0;
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

static int ignore(void *user, const nj_reason *reason)
{
    (void)user;
    (void)reason;
    return 0;
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
    if (nj_kernel_explain(add, &given, NJ_CURRENT_DEVICE, ignore, NULL, error) != NJ_OK || nj_kernel_launch(add, &plain, NULL, error) != NJ_OK ||
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

int main(int count, char **words)
{
    if (count != 2) {
        return 2;
    }
    long failed = 0;
    for (long works = 0;; works++) {
        nj_error error;
        memset(&error, 0, sizeof error);
        left = works;
        nj_bundle *bundle = nj_bundle_open(words[1], NULL, &error);
        nj_code code = bundle == NULL ? error.code : use(bundle, &error);
        int all = left >= 0;
        left = -1;
        if (bundle != NULL && code == NJ_ERROR_MEMORY && use(bundle, &error) != NJ_OK) {
            fprintf(stderr, "%ld: %s, got %s - at %s with memory again\n", works, error.what, error.got, error.where);
            return 1;
        }
        nj_bundle_close(bundle);
        if (code != NJ_OK && code != NJ_ERROR_MEMORY) {
            fprintf(stderr, "%ld: %d, %s, got %s - at %s\n", works, (int)code, error.what, error.got, error.where);
            return 1;
        }
        failed += code != NJ_OK;
        if (all) {
            if (code != NJ_OK) {
                fprintf(stderr, "%ld: %d without a failure\n", works, (int)code);
                return 1;
            }
            printf("%s\n", failed > 30 ? "many failed" : "few failed");
            return 0;
        }
    }
}
