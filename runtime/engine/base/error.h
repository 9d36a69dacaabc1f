/* Filling an nj_error. */
#ifndef NOJIT_BASE_ERROR_H
#define NOJIT_BASE_ERROR_H

#include "base/internal.h"
#include "base/span.h"
#include "nojit.h"

#include <stdbool.h>

/* Says that bytes break a rule: `what` was expected, `got` was found. False, for the caller to return. `error` may be NULL.
 *
 *     nj_break(error, rule, got, what, ...) */
#define nj_break(...) (nj_note_break(__VA_ARGS__), false)

/* As `nj_break`, for bytes that keep the rules and are not those that were built.
 *
 *     nj_differ(error, got, what, ...) */
#define nj_differ(...) (nj_note_difference(__VA_ARGS__), false)

/* As `nj_break`, for a call of the driver that gave `code`, of that name.
 *
 *     nj_driver_failed(error, call, code, name, what, ...) */
#define nj_driver_failed(...) (nj_note_driver(__VA_ARGS__), false)

/* As `nj_break`, for argument `argument` of a call; -1: the call as a whole.
 *
 *     nj_refuse_argument(error, argument, got, what, ...) */
#define nj_refuse_argument(...) (nj_note_argument(__VA_ARGS__), false)

/* As `nj_break`, for something that is not installed.
 *
 *     nj_lacks(error, got, what, ...) */
#define nj_lacks(...) (nj_note_lack(__VA_ARGS__), false)

/* As `nj_break`, for a failure of another code, which has nothing but its words.
 *
 *     nj_fail(error, code, got, what, ...) */
#define nj_fail(...) (nj_note_failure(__VA_ARGS__), false)

/* As `nj_break`, for a system call that gave an errno. */
bool nj_system_failed(nj_error *error, const char *call, int code);

/* Says where the error is that was just filled. False. */
bool nj_at(nj_error *error, const char *where);

void nj_note_break(nj_error *error, const char *rule, const char *got, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
void nj_note_failure(nj_error *error, nj_code code, const char *got, const char *what, ...) __attribute__((format(printf, 4, 5)));
void nj_note_difference(nj_error *error, const char *got, const char *what, ...) __attribute__((format(printf, 3, 4)));
void nj_note_driver(nj_error *error, const char *call, int code, const char *name, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
void nj_note_argument(nj_error *error, int argument, const char *got, const char *what, ...) __attribute__((format(printf, 4, 5)));

NJ_FOR_BINDING void nj_note_lack(nj_error *error, const char *got, const char *what, ...) __attribute__((format(printf, 3, 4)));

/* Says that memory ran out. False, for the caller to return. */
bool nj_no_memory(nj_error *error);

/* Puts a step before the place of an error, as each reader does on the way out: "[3]", then ".kernels", then "$" make
 * $.kernels[3]. */
void nj_note_step(nj_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a larger place before the place of an error, a space between them. False, for the caller to return. */
bool nj_note_place(nj_error *error, const char *place);

/* A text made of numbers, for `got`. */
typedef struct {
    char text[256];
} nj_text;

nj_text nj_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Quotes bytes as Python's repr does, at most 120 of them. Takes microseconds: for errors alone. */
nj_text nj_quote(nj_span bytes);

#endif
