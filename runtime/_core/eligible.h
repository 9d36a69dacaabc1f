/* What serves a call: which parts of a table fit it, each looked at once. As runtime/selection.py, for calls without anything
 * rare. Every function needs the GIL. */
#ifndef NOJIT_ELIGIBLE_H
#define NOJIT_ELIGIBLE_H

#include "meaning.h"

enum {
    NJ_COLUMN_MEANING,
    NJ_COLUMN_CONFIG,
    NJ_COLUMN_HINTS,
    NJ_COLUMN_DERIVED,
    NJ_KEY_COLUMNS,
    NJ_AXES_MAX = 64,
    NJ_DERIVED_MAX = 64,
};

/* What is known of a signature or a set of hints. */
typedef enum { NJ_NOT_ASKED, NJ_DOES_NOT_FIT, NJ_FITS } nj_fit;

/* What is known of a config whose expressions ask for nothing that a meaning decides. */
typedef struct {
    int32_t requires;  /* the number of its `requires` among the programs; -1 without one */
    uint8_t runs;      /* an nj_fit */
    nj_value *derived; /* what its derived constexprs are, if it runs; owned */
} nj_ran;

/* The rows of one meaning and config, and how much they are preferred. */
typedef struct {
    Py_ssize_t meaning, config, first, end;
    int64_t bits, rank;
} nj_run_of_rows;

typedef struct {
    const nj_choosing *it;
    PyObject *table;
    Py_buffer columns[NJ_KEY_COLUMNS];
    int column_count; /* held */
    Py_ssize_t row_count;
    Py_ssize_t wanted[NJ_AXES_MAX]; /* of each axis, the value of the call; -1 for one that only spells types */
    PyObject *axes, *meanings, *configs, *hint_sets, *signatures, *derived, *derived_values;
    uint8_t *fit, *held; /* of each signature, and of each set of hints: an nj_fit */
    nj_ran *ran;         /* of each config */
    Py_ssize_t judged;   /* the meaning that was looked at last, -1 before the first */
    bool judged_meant;
    int64_t judged_bits;
    nj_known_names known;
    bool unsure;
    Py_ssize_t row; /* the best so far; NJ_UNSURE if there is none */
    int64_t bits, rank;
    Py_ssize_t hint_count;
} nj_choice;

/* Whether the call passes nothing but the kernel's arguments, and constexprs that say what it means: no option, no
 * setting of a config, no tuple, no address of anything. */
bool nj_is_common(const nj_choice *choice);

/* Finds what the call means on each axis; false where Python must look. */
bool nj_find_point(nj_choice *choice);

/* Prepares to look at each part once; -1 with an exception raised. */
int nj_choice_start(nj_choice *choice);
void nj_choice_end(nj_choice *choice);

/* Whether a meaning is the call's, and the width of its ints together. */
bool nj_is_meant(nj_choice *choice, Py_ssize_t number, int64_t *bits);

/* Whether all hints of a set hold. */
bool nj_hints_hold(nj_choice *choice, uint32_t number);

/* Whether a config can run, and what its derived constexprs are. */
bool nj_runs(nj_choice *choice, const nj_run_of_rows *rows, nj_value *derived);

/* Whether these are the values that were compiled in. */
bool nj_is_derived(nj_choice *choice, uint32_t number, const nj_value *derived);

#endif
