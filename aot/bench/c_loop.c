/* Launches in C loops: the floor of launch overhead, cuLaunchKernel with as many parameters as the kernel has, and libnojit. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int (*launch_fn)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **params,
                         void **extra);

/* Launch `count` times; return nanoseconds for all of them, or minus the CUresult of the first launch that failed. */
int64_t launch_loop(launch_fn launch, void *function, unsigned grid, unsigned block, unsigned shared_bytes,
                    void *stream, void **params, int count)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++) {
        int code = launch(function, grid, 1, 1, block, 1, 1, shared_bytes, stream, params, 0);
        if (code)
            return -(int64_t)code;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - begin.tv_nsec);
}

/* nj_plan_launch of nojit.h. */
typedef int (*plan_fn)(const void *plan, const void *const *values, const uint32_t grid[3], void *stream, void *error);

/* As `launch_loop`, with minus an nj_code. */
int64_t plan_loop(plan_fn launch, const void *plan, const void *const *values, void *stream, int count)
{
    static const uint32_t grid[3] = {1, 1, 1};
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++) {
        int code = launch(plan, values, grid, stream, 0);
        if (code)
            return -(int64_t)code;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - begin.tv_nsec);
}

/* nj_kernel_launch of nojit.h. */
typedef int (*call_fn)(void *kernel, const void *call, const void *setup, void *error);

/* As `launch_loop`, with minus an nj_code. */
int64_t call_loop(call_fn launch, void *kernel, const void *call, const void *setup, int count)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++) {
        int code = launch(kernel, call, setup, 0);
        if (code)
            return -(int64_t)code;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - begin.tv_nsec);
}
