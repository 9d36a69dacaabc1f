#include "call/bind.h"

#include "call/bound_call.h"
#include "call/signature.h"
#include "python/callbacks.h"
#include "python/exceptions.h"

/* Returns the index of `name` among params, options and "stream"; -1 if there is none. Callers mostly pass interned names in the
 * function's order, so the first comparison from `start` on usually matches. */
static Py_ssize_t find_name(const py_signature *signature, PyObject *name, Py_ssize_t start)
{
    Py_ssize_t count = signature->name_count;
    for (Py_ssize_t i = start; i < count; i++) {
        if (signature->names[i] == name) {
            return i;
        }
    }
    for (Py_ssize_t i = 0; i < start; i++) {
        if (signature->names[i] == name) {
            return i;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) { /* a name that is not interned */
        if (PyUnicode_Compare(signature->names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

Py_ssize_t py_place_of(const py_signature *signature, PyObject *name, Py_ssize_t expected)
{
    Py_ssize_t at = find_name(signature, name, expected);
    return at == signature->count ? NJ_ARGUMENTS_MAX : at;
}

__attribute__((cold)) int py_check_option(PyObject *owner, PyObject *name, PyObject *value)
{
    PyObject *none = PyObject_CallMethodObjArgs(owner, py_asked._check_option, name, value, NULL);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

static int refuse_second(const py_signature *signature, Py_ssize_t place, const char *what)
{
    py_refuse(signature->kernel, signature->names[place == NJ_ARGUMENTS_MAX ? signature->count : place], NULL, what);
    return -1;
}

static int bind_keywords(const py_signature *signature, PyObject *owner, PyObject *const *values, PyObject *keywords,
                         py_call *call)
{
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
        Py_ssize_t place = py_place_of(signature, PyTuple_GET_ITEM(keywords, i), next);
        if (place < 0) {
            if (py_check_option(owner, PyTuple_GET_ITEM(keywords, i), values[i]) < 0) {
                return -1;
            }
            continue;
        }
        if (call->objects[place] != NULL) {
            return refuse_second(signature, place, NJ_ONCE_RULE);
        }
        call->objects[place] = values[i];
        next = place + 1 < signature->count ? place + 1 : 0;
    }
    return 0;
}

static int bind_fixed(const py_signature *signature, const py_fixed *fixed, py_call *call)
{
    for (Py_ssize_t i = 0; i < fixed->count; i++) {
        PyObject **object = &call->objects[fixed->places[i]];
        if (*object != NULL) {
            return refuse_second(signature, fixed->places[i], "expected no value for what is bound already");
        }
        *object = fixed->objects[i];
    }
    return 0;
}

static int fill_defaults(const py_signature *signature, py_call *call)
{
    for (Py_ssize_t i = 0; i < signature->param_count; i++) {
        if (call->objects[i] != NULL || signature->constexprs[i]) {
            continue;
        }
        if (signature->defaults[i] == NULL) {
            py_refuse(signature->kernel, signature->names[i], PyUnicode_FromString("nothing"), NJ_VALUE_RULE);
            return -1;
        }
        call->objects[i] = signature->defaults[i];
    }
    return 0;
}

int py_bind(const py_signature *signature, PyObject *owner, const py_fixed *fixed, PyObject *const *arguments,
            Py_ssize_t positional, PyObject *keywords, py_call *call)
{
    if (positional > signature->param_count) {
        py_refuse(signature->kernel, NULL, PyUnicode_FromFormat("%zd", positional),
                  NJ_POSITIONAL_RULE, (size_t)signature->param_count);
        return -1;
    }
    memcpy(call->objects, arguments, (size_t)positional * sizeof *arguments);
    memset(call->objects + positional, 0, (size_t)(signature->count - positional) * sizeof *arguments);
    call->objects[NJ_ARGUMENTS_MAX] = NULL;
    if (fixed != NULL && bind_fixed(signature, fixed, call) < 0) {
        return -1;
    }
    if (keywords != NULL && bind_keywords(signature, owner, arguments + positional, keywords, call) < 0) {
        return -1;
    }
    return fill_defaults(signature, call);
}
