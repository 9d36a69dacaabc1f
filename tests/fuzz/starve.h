/* What each target defines, and memory that runs out. The engine of a target allocates by the functions of starve.c: each input is
 * run as it is, and one of eight once more with an allocation that fails. */
#ifndef NOJIT_FUZZ_STARVE_H
#define NOJIT_FUZZ_STARVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Runs the target over one input. */
void fuzz_input(const unsigned char *bytes, size_t size);

/* Runs one input once for each of its allocations, which fails. */
void fuzz_starve_each(const unsigned char *bytes, size_t size);

/* Whether an allocation has failed since this input was started: what is not so by then need not be an error of the input. */
bool fuzz_is_starved(void);

/* Ends the program if a failure has no code or no words; `format` asks for a rule too, where memory sufficed. */
void fuzz_expect(bool good, const nj_error *error, bool format);

#endif
