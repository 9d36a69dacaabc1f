/* Functions that fill an nj_error. */
#ifndef NOJIT_BASE_ERROR_H
#define NOJIT_BASE_ERROR_H

#include "base/internal.h"
#include "base/span.h"
#include "nojit.h"

#include <stdbool.h>

/* Fills the error of bytes that break a rule: `what` was expected, `got` was found. Returns false, so that callers can return it. `error`
 * may be NULL.
 *
 *     nj_break(error, rule, got, what, ...) */
#define nj_break(...) (nj_note_break(__VA_ARGS__), false)

/* As `nj_break`, for bytes that follow the rules but differ from what was built (NJ_ERROR_INTEGRITY).
 *
 *     nj_differ(error, got, what, ...) */
#define nj_differ(...) (nj_note_difference(__VA_ARGS__), false)

/* As `nj_break`, for a driver call that returned the error `code`, whose name is `name`.
 *
 *     nj_driver_failed(error, call, code, name, what, ...) */
#define nj_driver_failed(...) (nj_note_driver(__VA_ARGS__), false)

/* As `nj_break`, for the argument with the number `argument`; -1 means the whole call.
 *
 *     nj_refuse_argument(error, argument, got, what, ...) */
#define nj_refuse_argument(...) (nj_note_argument(__VA_ARGS__), false)

/* As `nj_break`, for a library that is not installed (NJ_ERROR_NEEDS).
 *
 *     nj_lacks(error, got, what, ...) */
#define nj_lacks(...) (nj_note_lack(__VA_ARGS__), false)

/* As `nj_break`, for an error of any other code, which has no fields beyond its texts.
 *
 *     nj_fail(error, code, got, what, ...) */
#define nj_fail(...) (nj_note_failure(__VA_ARGS__), false)

/* As `nj_break`, for a system call that failed with the errno `code`. */
bool nj_system_failed(nj_error *error, const char *call, int code);

/* Sets the place of an error that was just filled. Returns false. */
bool nj_at(nj_error *error, const char *where);

void nj_note_break(nj_error *error, const char *rule, const char *got, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
void nj_note_failure(nj_error *error, nj_code code, const char *got, const char *what, ...) __attribute__((format(printf, 4, 5)));
void nj_note_difference(nj_error *error, const char *got, const char *what, ...) __attribute__((format(printf, 3, 4)));
void nj_note_driver(nj_error *error, const char *call, int code, const char *name, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
void nj_note_argument(nj_error *error, int argument, const char *got, const char *what, ...) __attribute__((format(printf, 4, 5)));

NJ_FOR_BINDING void nj_note_lack(nj_error *error, const char *got, const char *what, ...) __attribute__((format(printf, 3, 4)));

/* Fills the error of a failed allocation. Returns false. */
bool nj_no_memory(nj_error *error);

/* Prepends a step to an error's place. Each reader does so as it returns: "[3]", then ".kernels", then "$" give $.kernels[3]. */
void nj_note_step(nj_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prepends an enclosing place and a space to an error's place. Returns false. */
bool nj_note_place(nj_error *error, const char *place);

/* A formatted text, mostly for `got`. */
typedef struct {
    char text[256];
} nj_text;

nj_text nj_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Quotes at most 120 bytes as Python's repr does. Takes microseconds, so use it only for errors. */
nj_text nj_quote(nj_span bytes);

#endif
