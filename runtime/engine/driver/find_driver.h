/* The declarations that driver.c and find_driver.c share. */
#ifndef NOJIT_DRIVER_FIND_DRIVER_H
#define NOJIT_DRIVER_FIND_DRIVER_H

#include "driver/driver.h"

#include <pthread.h>

/* Guards the driver's state and the devices. */
extern pthread_mutex_t nj_driver_lock;

/* True if a driver is installed, has every symbol, and cuInit has not failed. Opens the driver, but does not call cuInit. */
bool nj_driver_can_start(void);

#endif
