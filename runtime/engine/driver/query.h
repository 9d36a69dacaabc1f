/* What the driver says of devices and addresses. */
#ifndef NOJIT_DRIVER_QUERY_H
#define NOJIT_DRIVER_QUERY_H

#include "base/device_facts.h"
#include "driver/driver.h"

/* False with `error` filled. */
NJ_FOR_BINDING bool nj_driver_version(int *version, nj_error *error); /* 13010: CUDA 13.1; 6040: ROCm 6.4 */
NJ_FOR_BINDING bool nj_device_count(int *count, nj_error *error);
bool nj_device_find(int device, int *ordinal, nj_error *error); /* the ordinal of a device, which NJ_CURRENT_DEVICE may stand for */
NJ_FOR_BINDING bool nj_device_describe(int ordinal, nj_device_facts *facts, nj_error *error);
NJ_FOR_BINDING bool nj_device_capability(int ordinal, int *capability, nj_error *error); /* 90: sm_90; 942: gfx942 */
NJ_FOR_BINDING bool nj_device_attribute(int ordinal, int attribute, int *value, nj_error *error); /* by its number in cuda.h */

/* The arch of the device of this thread's context; 0 without one, or if anything fails. Starts nothing. */
NJ_FOR_BINDING int nj_running_capability(void);

/* Finds the device that memory is of; -1 for an address that the driver does not know. False with `error` filled. */
NJ_FOR_BINDING bool nj_address_find(uint64_t address, int *ordinal, nj_error *error);

/* Whether a device reaches host memory, and by which address. */
NJ_FOR_BINDING bool nj_address_reach(nj_device *device, uint64_t host, uint64_t *address);

#endif
