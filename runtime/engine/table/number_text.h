/* Reads floats from text. */
#ifndef NOJIT_TABLE_NUMBER_TEXT_H
#define NOJIT_TABLE_NUMBER_TEXT_H

#include "base/span.h"

typedef enum {
    NJ_FLOAT_CANONICAL,
    NJ_FLOAT_OTHERWISE, /* a float, but not in its canonical spelling */
    NJ_FLOAT_NONE,
} nj_float_spelling;

/* Reads a float as Python's float.hex writes it: 0x1.8000000000000p+0, -0x0.0p+0, inf, nan. Fills `number` if the spelling is
 * canonical. */
nj_float_spelling nj_float_of_hex(nj_span text, double *number);

/* Reads a float as Python's repr writes it, by the shortest decimals that identify it: 1.5, 1e-05, inf, nan. Returns false for any
 * other text. */
bool nj_float_of_repr(nj_span text, double *number);

#endif
