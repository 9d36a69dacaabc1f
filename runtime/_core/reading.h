/* What the parts of a bundle's JSON are read with: objects made of a text front to back. Every function needs the GIL. */
#ifndef NOJIT_READING_H
#define NOJIT_READING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bundle/json.h"

enum {
    NJ_PAIRS_MAX = 64, /* axes, derived constexprs, pairs of a config */
    NJ_WORDS = 64,
};

/* What a param is. */
#define NJ_RUNTIME Py_True
#define NJ_CONSTEXPR Py_False
#define NJ_DEFAULTED Py_None /* a constexpr with a default */

/* A text that was there before: most of a table is a few texts over and over. */
typedef struct {
    PyObject *object;
    nj_span text;
    bool is_type; /* whether it is known to be one */
} nj_word;

typedef struct {
    nj_json json;
    PyObject *is_type, *decode_value; /* borrowed: what only Python knows */
    PyObject *params;                         /* dict: NJ_RUNTIME and its like of each param by its name, in order */
    Py_ssize_t runtime_count, needed_count;   /* of params: those that signatures type, those that must be given a value */
    PyObject *fixed;                          /* list of the constexprs that axes and expressions give values */
    int64_t axis_count, axis_sizes[NJ_PAIRS_MAX];
    nj_span axis_names[NJ_PAIRS_MAX];
    int64_t derived_count;
    PyObject *derived_texts; /* set of the entries of derived values so far, as they are spelled */
    int64_t signatures_named; /* one more than the greatest that a meaning names */
    nj_word words[NJ_WORDS];  /* cleared by `nj_reading_end` */
} nj_reading;

/* A reader takes one thing: a new object, or NULL where a rule is broken or something is not gone into. Then an exception is
 * raised only if it is no fault of the text. */
typedef PyObject *(*nj_reader)(nj_reading *it);

void nj_reading_end(nj_reading *it);

/* A str of a text of ASCII. */
PyObject *nj_make_text(nj_span text);

/* The place of a text, with its object made; NULL with an exception raised. */
nj_word *nj_find_word(nj_reading *it, nj_span text);
PyObject *nj_read_word(nj_reading *it, nj_span text);

/* A tuple of at most so many things. */
PyObject *nj_read_array(nj_reading *it, Py_ssize_t most, nj_reader read);

/* An object behind which a bracket closes: itself, else NULL. */
PyObject *nj_read_closed(nj_reading *it, PyObject *object, char bracket);

/* What a function of Python makes of an object, which is stolen. A ValueError is a broken rule. */
PyObject *nj_ask(PyObject *function, PyObject *object);

/* Adds a text to a set: whether it was not there before. Values have one spelling each, so that their texts tell them apart. */
bool nj_add_text(PyObject *texts, const unsigned char *start, const unsigned char *end);

PyObject *nj_read_name(nj_reading *it);
PyObject *nj_read_text(nj_reading *it);
PyObject *nj_read_value(nj_reading *it);

#endif
