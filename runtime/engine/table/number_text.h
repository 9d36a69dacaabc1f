/* Floats as texts spell them. */
#ifndef NOJIT_TABLE_NUMBER_TEXT_H
#define NOJIT_TABLE_NUMBER_TEXT_H

#include "base/span.h"

typedef enum {
    NJ_FLOAT_CANONICAL,
    NJ_FLOAT_OTHERWISE, /* a float, spelled otherwise */
    NJ_FLOAT_NONE,
} nj_float_spelling;

/* Reads what C's %a and Python's float.hex write: 0x1.8000000000000p+0, -0x0.0p+0, inf, nan. */
nj_float_spelling nj_float_of_hex(nj_span text, double *number);

/* Reads what Python's repr writes, the shortest decimals that make up the number: 1.5, 1e-05, inf, nan. False for any other text. */
bool nj_float_of_repr(nj_span text, double *number);

#endif
