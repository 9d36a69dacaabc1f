/* The facts of a device that selection reads. */
#ifndef NOJIT_BASE_DEVICE_FACTS_H
#define NOJIT_BASE_DEVICE_FACTS_H

#include <stddef.h>

typedef struct {
    char name[256];
    int multiprocessors;
    size_t memory_bytes;
} nj_device_facts;

#endif
