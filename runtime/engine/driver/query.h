/* Queries about devices and addresses. */
#ifndef NOJIT_DRIVER_QUERY_H
#define NOJIT_DRIVER_QUERY_H

#include "base/device_facts.h"
#include "driver/driver.h"

/* Each returns false with `error` filled if the driver fails. */
NJ_FOR_BINDING bool nj_driver_version(int *version, nj_error *error); /* 13010: CUDA 13.1; 6040: ROCm 6.4 */
NJ_FOR_BINDING bool nj_device_count(int *count, nj_error *error);
bool nj_device_find(int device, int *ordinal, nj_error *error); /* resolves NJ_CURRENT_DEVICE */
NJ_FOR_BINDING bool nj_device_describe(int ordinal, nj_device_facts *facts, nj_error *error);
NJ_FOR_BINDING bool nj_device_capability(int ordinal, int *capability, nj_error *error); /* 90: sm_90; 942: gfx942 */
NJ_FOR_BINDING bool nj_device_attribute(int ordinal, int attribute, int *value, nj_error *error); /* attribute: a CUdevice_attribute */

/* Returns the arch of the current context's device; 0 if no context is current or a call fails. Does not initialise the driver. */
NJ_FOR_BINDING int nj_running_capability(void);

/* Finds the device of an address; `ordinal` becomes -1 if the driver does not know the address. False with `error` filled. */
NJ_FOR_BINDING bool nj_address_find(uint64_t address, int *ordinal, nj_error *error);

/* True if a device can access host memory; `address` becomes the device's address of it. */
NJ_FOR_BINDING bool nj_address_reach(nj_device *device, uint64_t host, uint64_t *address);

#endif
