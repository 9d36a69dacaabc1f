/* NJ_FOR_BINDING marks symbols that only the Python binding may use. They may change in every build; libnojit.map gives them the version
 * NOJIT_PRIVATE. */
#ifndef NOJIT_BASE_INTERNAL_H
#define NOJIT_BASE_INTERNAL_H

#include <stddef.h>

#define NJ_FOR_BINDING __attribute__((visibility("default")))

#endif
