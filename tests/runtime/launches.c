/* Launch three kernels from eight threads that share everything, then once more from one, and count what the engine allocates and locks
 * in calls that were made before. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "nojit.h"

#define THREADS 8
#define ROUNDS 200

/* The linker has the engine call these (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);

static atomic_int allocations, locks;

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    return __real_realloc(memory, size);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locks++;
    return __real_pthread_mutex_lock(mutex);
}

static nj_bundle *bundle;
static pthread_barrier_t start;

static void must(int holds, const char *what, const nj_error *error)
{
    if (!holds) {
        fprintf(stderr, "%s: %s, got %s - at %s\n", what, error->what, error->got, error->where);
        exit(1);
    }
}

static int count_reason(void *user, const nj_reason *reason)
{
    (void)reason;
    ++*(int *)user;
    return 0;
}

/* Launches each specialization of a kernel, in an order of the thread's own. */
static void launch_all(nj_kernel *kernel, int from)
{
    nj_error error;
    for (int i = 0; i < 16; i++) {
        int which = (i + from) % 16;
        nj_dtype dtype = which & 1 ? NJ_DTYPE_FP16 : NJ_DTYPE_FP32;
        nj_arg args[] = {nj_arg_pointer(which & 2 ? 0x1000 : 0x1004, dtype), nj_arg_pointer(0x2000, dtype),
                         nj_arg_int(which & 4 ? 1024 : 1001)};
        nj_launch_setup setup = NJ_LAUNCH_SETUP_INIT;
        setup.device = which >> 3;
        nj_call call = {args, 3, NULL, 0};
        must(nj_kernel_launch(kernel, &call, &setup, &error) == NJ_OK, "launch", &error);
    }
}

/* Launches with descriptors of tensors, so many that their maps replace one another. */
static void launch_tiles(nj_kernel *kernel, int from)
{
    nj_error error;
    for (int i = 0; i < 24; i++) {
        nj_tensor_descriptor tile = {sizeof tile, 0x4000 + 0x100 * (uint64_t)((i + from) % 24), NJ_DTYPE_FP16, 2, {128, 64}, {64, 1}, {64, 64},
                                     {0}, {0}, 0, 0, {0}};
        nj_arg args[] = {nj_arg_descriptor(&tile), nj_arg_int(i + 1)};
        nj_call call = {args, 2, NULL, 0};
        must(nj_kernel_launch(kernel, &call, NULL, &error) == NJ_OK, "tile", &error);
    }
}

static void *work(void *number)
{
    int from = (int)(size_t)number;
    nj_error error;
    pthread_barrier_wait(&start);
    nj_kernel *kernels[2];
    for (int i = 0; i < 2; i++) {
        int which = (i + from) % 2;
        kernels[which] = nj_bundle_kernel(bundle, which ? "add" : "sub", &error);
        must(kernels[which] != NULL, "kernel", &error);
    }
    size_t size;
    must(nj_bundle_attachment(bundle, "notes.txt", &size, &error) != NULL && size == 5, "attachment", &error);
    nj_kernel *tile = nj_bundle_kernel(bundle, "tile", &error);
    must(tile != NULL, "kernel", &error);
    if (from == 3) {
        must(nj_kernel_load(kernels[0], 1, &error) == NJ_OK, "load", &error);
    }
    for (int round = 0; round < ROUNDS; round++) {
        launch_all(kernels[(round + from) % 2], from);
        nj_arg args[] = {nj_arg_pointer(0x1000, NJ_DTYPE_FP32), nj_arg_pointer(0x2000, NJ_DTYPE_FP32), nj_arg_int(16)};
        nj_call call = {args, 3, NULL, 0};
        const nj_plan *plan = nj_kernel_prepare(kernels[round % 2], &call, NJ_CURRENT_DEVICE, &error);
        must(plan != NULL, "prepare", &error);
        const void *values[] = {&args[0].address, &args[1].address, &args[2].integer};
        must(nj_plan_launch(plan, values, NULL, NULL, &error) == NJ_OK, "plan", &error);
        if (round % 10 == 0) {
            launch_tiles(tile, from);
        }
        if (round % 50 == 0) {
            int reasons = 0;
            must(nj_kernel_explain(kernels[0], &call, NJ_CURRENT_DEVICE, count_reason, &reasons, &error) == NJ_OK, "explain", &error);
            nj_kernel_info about = NJ_KERNEL_INFO_INIT;
            must(nj_kernel_about(kernels[0], &about, &error) == NJ_OK && reasons == (int)about.variant_count, "reasons", &error);
            nj_config_info config = NJ_CONFIG_INFO_INIT;
            must(nj_kernel_config(kernels[0], 0, &config, &error) == NJ_OK && config.setting_count > 0, "config", &error);
        }
    }
    return NULL;
}

int main(int count, char **words)
{
    nj_error error;
    if (count != 2) {
        return 2;
    }
    bundle = nj_bundle_open(words[1], NULL, &error);
    must(bundle != NULL, "open", &error);
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    nj_kernel *kernel = nj_bundle_kernel(bundle, "add", &error);
    int allocated = allocations, locked = locks;
    launch_all(kernel, 0);
    printf("first: %s allocations, %s locks\n", allocated > 0 ? "some" : "no", locked > 0 ? "some" : "no");
    printf("again: %d allocations, %d locks\n", allocations - allocated, locks - locked);
    nj_bundle_close(bundle);
    return 0;
}
