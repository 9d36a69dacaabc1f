/* Marks what the Python binding uses of the engine, beside nojit.h: no promise to anybody else. libnojit.map gives these symbols the
 * version NOJIT_PRIVATE. */
#ifndef NOJIT_BASE_INTERNAL_H
#define NOJIT_BASE_INTERNAL_H

#include <stddef.h>

#define NJ_FOR_BINDING __attribute__((visibility("default")))

#endif
