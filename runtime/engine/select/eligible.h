/* The rules of selection, each by itself. */
#ifndef NOJIT_SELECT_ELIGIBLE_H
#define NOJIT_SELECT_ELIGIBLE_H

#include "select/choose.h"

/* Whether the point of a case is the call's; its types are judged by `fits`. */
bool nj_choice_at_point(const nj_choice *choice, uint32_t case_number);

/* Whether a config is one that the caller's own settings allow. */
bool nj_choice_allows(nj_choice *choice, uint32_t config);

/* Whether a set of derived values is what a call comes to. */
bool nj_choice_derives(const nj_choice *choice, uint32_t number, const nj_value *results);

/* Whether all hints of a set hold. */
bool nj_choice_hinted(nj_choice *choice, uint32_t number);

#endif
