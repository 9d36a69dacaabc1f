/* Which tuning table counts on a device. */
#ifndef NOJIT_SELECT_DEVICE_TUNING_H
#define NOJIT_SELECT_DEVICE_TUNING_H

#include "base/device_facts.h"
#include "base/error.h"
#include "table/table.h"

/* The tuning table that counts on a device. */
typedef struct {
    const nj_tuning_table *table; /* NULL if nothing was measured: the table's own order counts */
    int64_t multiprocessors;      /* of the device */
} nj_tuned;

/* Whether `nj_tuned_on` needs the device: if there is a choice of tables, or an estimate. */
NJ_FOR_BINDING bool nj_tuned_asks_device(const nj_tuning *tuning);

/* Takes the table of the device that is most like this one. Without a device, which may be NULL, takes the first table: the device
 * that was measured stands for the one at hand. */
NJ_FOR_BINDING nj_tuned nj_tuned_on(const nj_tuning *tuning, const nj_device_facts *device);

#endif
