/* Declares what driver.c uses of find_driver.c. */
#ifndef NOJIT_DRIVER_FIND_DRIVER_H
#define NOJIT_DRIVER_FIND_DRIVER_H

#include "driver/driver.h"

#include <pthread.h>

/* Guards the driver's state and the devices. */
extern pthread_mutex_t nj_driver_lock;

/* Before the driver was started: whether there is one, and it has not refused to start. Starts nothing. */
bool nj_driver_can_start(void);

#endif
