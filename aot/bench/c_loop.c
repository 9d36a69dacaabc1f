/* The floor of launch overhead: cuLaunchKernel in a C loop, with as many parameters as the kernel has. */
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
