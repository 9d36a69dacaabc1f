/* Kernels of loaded images and the launch limits raised for them. */
#ifndef NOJIT_DRIVER_FUNCTION_H
#define NOJIT_DRIVER_FUNCTION_H

#include "driver/driver.h"

#include <pthread.h>

/* The limits raised for a kernel on one device: the maximum that any of its launches needs. */
typedef struct {
    atomic_uint epoch; /* epoch of the device when they were raised; in a later one they are lost */
    int shared_bytes;  /* dynamic shared memory that a launch may use */
    bool wide;         /* true if clusters may have more than eight CTAs */
} nj_function_limits;

/* A kernel of a loaded image. It lives as long as the process. */
typedef struct nj_function {
    struct nj_function *next; /* the next kernel of the same image */
    CUkernel handle;
    unsigned int shared_bytes; /* static shared memory of a block */
    pthread_mutex_t lock;      /* guards the limits, except their epochs */
    nj_function_limits limits[NJ_DEVICES_MAX];
    char symbol[]; /* NUL-terminated */
} nj_function;

/* True if launches with this much dynamic shared memory and clusters of this many CTAs need raised limits. */
bool nj_function_limited(const nj_function *function, unsigned int dynamic_bytes, unsigned int num_ctas);

/* True if the device was reset after the limits were raised. */
static inline bool nj_function_has_lost(const nj_function *function, const nj_device *device)
{
    return atomic_load_explicit(&function->limits[device->ordinal].epoch, memory_order_relaxed) !=
           atomic_load_explicit(&device->epoch, memory_order_relaxed);
}

/* Raises the limits that such launches need, unless they are already raised in the device's current primary context. If `lost` is true,
 * raises them in any case. */
nj_outcome nj_function_raise(nj_function *function, nj_device *device, unsigned int dynamic_bytes, unsigned int num_ctas, bool lost);

#endif
