/* Selects the tuning table for a device. */
#ifndef NOJIT_SELECT_DEVICE_TUNING_H
#define NOJIT_SELECT_DEVICE_TUNING_H

#include "base/device_facts.h"
#include "base/error.h"
#include "table/table.h"

/* The tuning table selected for a device. */
typedef struct {
    const nj_tuning_table *table; /* NULL if nothing was measured: configs keep the order of the variant table */
    int64_t multiprocessors;      /* of the device */
} nj_tuned;

/* Returns whether `nj_tuned_on` needs the device, which it does if there are several tables, or estimates. */
NJ_FOR_BINDING bool nj_tuned_asks_device(const nj_tuning *tuning);

/* Selects the table whose device is most like this one. `device` may be NULL; then it selects the first table, with the multiprocessors
 * of the measured device. */
NJ_FOR_BINDING nj_tuned nj_tuned_on(const nj_tuning *tuning, const nj_device_facts *device);

#endif
