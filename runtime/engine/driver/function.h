/* Kernels of loaded images, and what they were allowed. */
#ifndef NOJIT_DRIVER_FUNCTION_H
#define NOJIT_DRIVER_FUNCTION_H

#include "driver/driver.h"

#include <pthread.h>

/* The limits that were raised for a kernel on one device, to the most that any of its launches needs; they end with the epoch. */
typedef struct {
    atomic_uint epoch;
    int shared_bytes;
    bool wide; /* clusters of more than eight */
} nj_function_limits;

/* A kernel of a loaded image, for the life of the process. */
typedef struct nj_function {
    struct nj_function *next; /* of the same image */
    CUkernel handle;
    unsigned int shared_bytes; /* static, of a block */
    pthread_mutex_t lock;      /* guards limits, but for their epochs */
    nj_function_limits limits[NJ_DEVICES_MAX];
    char symbol[]; /* ends with a 0 */
} nj_function;

/* Whether launches with so much dynamic shared memory, of clusters of so many CTAs, need limits raised. */
bool nj_function_limited(const nj_function *function, unsigned int dynamic_bytes, unsigned int num_ctas);

/* Whether limits were raised in a context that is gone. */
static inline bool nj_function_has_lost(const nj_function *function, const nj_device *device)
{
    return atomic_load_explicit(&function->limits[device->ordinal].epoch, memory_order_relaxed) !=
           atomic_load_explicit(&device->epoch, memory_order_relaxed);
}

/* Raises the limits that such launches need, where nobody has yet in the device's present context; `lost` says that they must
 * be raised anew. */
nj_outcome nj_function_raise(nj_function *function, nj_device *device, unsigned int dynamic_bytes, unsigned int num_ctas, bool lost);

#endif
