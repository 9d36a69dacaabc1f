/* Which tuning table counts on a device. */
#ifndef NOJIT_LAUNCH_TUNED_H
#define NOJIT_LAUNCH_TUNED_H

#include "select/config_order.h"

/* Takes the first table: the device that was measured stands for the one at hand. */
NJ_INTERNAL nj_tuned nj_tuned_first(const nj_tuning *tuning);

/* Chooses the table of the device that is most like one. The driver is asked only if there is a choice, or an estimate; otherwise
 * the device that was measured stands for this one. False with `error` filled. */
NJ_INTERNAL bool nj_tuned_on(const nj_tuning *tuning, int device, nj_tuned *tuned, nj_error *error);

#endif
