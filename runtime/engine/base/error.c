#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(nj_error) == 1536 && sizeof(nj_arg) == 24 && sizeof(nj_keyword) == 32 && sizeof(nj_call) == 32 &&
                   sizeof(nj_code) == 4 && sizeof(nj_arg_kind) == 4 && sizeof(nj_dtype) == 4,
               "nojit.h says that these never grow");

int nj_version(void)
{
    return NOJIT_VERSION_MAJOR * 1000 + NOJIT_VERSION_MINOR;
}

size_t nj_error_text(const nj_error *error, char *text, size_t room)
{
    const char *got = error->got[0] == 0 ? "" : ", got ", *at = error->where[0] == 0 ? "" : " - at ";
    return (size_t)snprintf(text, room, "%s%s%s%s%s", error->what, got, error->got, at, error->where);
}

static void copy(char *to, size_t room, const char *text)
{
    size_t length = strlen(text);
    length = length < room ? length : room - 1;
    memcpy(to, text, length);
    to[length] = 0;
}

static void fill(nj_error *error, nj_code code, const char *rule, const char *got, const char *what, va_list numbers)
{
    if (error != NULL) {
        error->code = code;
        error->driver_code = error->system_code = 0;
        error->argument = -1;
        error->call[0] = 0;
        error->where[0] = 0;
        copy(error->rule, sizeof error->rule, rule);
        copy(error->got, sizeof error->got, got);
        vsnprintf(error->what, sizeof error->what, what, numbers);
    }
}

void nj_note_break(nj_error *error, const char *rule, const char *got, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, NJ_ERROR_FORMAT, rule, got, what, numbers);
    va_end(numbers);
}

void nj_note_failure(nj_error *error, nj_code code, const char *got, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, code, "", got, what, numbers);
    va_end(numbers);
}

void nj_note_difference(nj_error *error, const char *got, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, NJ_ERROR_INTEGRITY, "", got, what, numbers);
    va_end(numbers);
}

void nj_note_driver(nj_error *error, const char *call, int code, const char *name, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, NJ_ERROR_DRIVER, "", name, what, numbers);
    va_end(numbers);
    if (error != NULL) {
        error->driver_code = code;
        copy(error->call, sizeof error->call, call);
    }
}

void nj_note_lack(nj_error *error, const char *got, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, NJ_ERROR_NEEDS, "", got, what, numbers);
    va_end(numbers);
}

bool nj_system_failed(nj_error *error, const char *call, int code)
{
    nj_note_failure(error, NJ_ERROR_SYSTEM, strerror(code), "expected %s to succeed", call);
    if (error != NULL) {
        error->system_code = code;
        copy(error->call, sizeof error->call, call);
    }
    return false;
}

bool nj_no_memory(nj_error *error)
{
    return nj_fail(error, NJ_ERROR_MEMORY, "", "expected more memory");
}

/* Prepends a text to an error's place. If the result is too long, it loses its end, the innermost steps. */
static void put_before(nj_error *error, const char *text)
{
    char inner[sizeof error->where];
    memcpy(inner, error->where, sizeof inner);
    copy(error->where, sizeof error->where, text);
    copy(error->where + strlen(error->where), sizeof error->where - strlen(error->where), inner);
}

void nj_note_step(nj_error *error, const char *format, ...)
{
    char step[64];
    if (error == NULL) {
        return;
    }
    va_list numbers;
    va_start(numbers, format);
    vsnprintf(step, sizeof step, format, numbers);
    va_end(numbers);
    put_before(error, step);
}

bool nj_note_place(nj_error *error, const char *place)
{
    if (error != NULL) {
        if (error->where[0] != 0) {
            put_before(error, " ");
        }
        put_before(error, place);
    }
    return false;
}

void nj_note_argument(nj_error *error, int argument, const char *got, const char *what, ...)
{
    va_list numbers;
    va_start(numbers, what);
    fill(error, NJ_ERROR_ARGUMENT, "", got, what, numbers);
    va_end(numbers);
    if (error != NULL) {
        error->argument = argument;
    }
}

bool nj_at(nj_error *error, const char *where)
{
    if (error != NULL) {
        copy(error->where, sizeof error->where, where);
    }
    return false;
}

nj_text nj_format(const char *format, ...)
{
    nj_text made;
    va_list numbers;
    va_start(numbers, format);
    vsnprintf(made.text, sizeof made.text, format, numbers);
    va_end(numbers);
    return made;
}

nj_text nj_quote(nj_span bytes)
{
    nj_text made;
    size_t at = 0;
    made.text[at++] = '\'';
    for (size_t i = 0; i < bytes.size && i < 120 && at < sizeof made.text - 8; i++) {
        unsigned char c = bytes.at[i];
        bool escaped = c == '\'' || c == '\\', shown = c >= ' ' && c < 0x7f;
        at += (size_t)snprintf(made.text + at, 5, escaped ? "\\%c" : shown ? "%c" : "\\x%02x", c);
    }
    made.text[at++] = '\'';
    made.text[at] = 0;
    return made;
}
