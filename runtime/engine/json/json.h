/* The syntax of canonical JSON (docs/bundle-format.md, chapter 4). */
#ifndef NOJIT_JSON_JSON_H
#define NOJIT_JSON_JSON_H

#include "base/error.h"
#include "base/span.h"

/* Checks that bytes are canonical JSON. False with `error` filled (may be NULL) if they are not. */
NJ_FOR_BINDING bool nj_check_json(nj_span raw, nj_error *error);

#endif
