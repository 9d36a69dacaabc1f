#include "python/exceptions.h"

#include "module.h"
#include "python/at_import.h"

#include "expr/value.h"

/* Set once by `py_add_exceptions` under the import lock, and never changed. */
static struct {
    PyObject *argument_error;
    PyObject *bundle_error;
    PyObject *format_error;
    PyObject *integrity_error;
    PyObject *driver_error;
    PyObject *trust_error;
    PyObject *kernel_not_found_error;
    PyObject *no_matching_variant_error;
} classes;

int py_add_exceptions(PyObject *Py_UNUSED(module))
{
    static const struct {
        const char *name;
        PyObject **object;
    } wanted[] = {
        {"ArgumentError", &classes.argument_error},
        {"BundleError", &classes.bundle_error},
        {"BundleFormatError", &classes.format_error},
        {"BundleIntegrityError", &classes.integrity_error},
        {"BundleTrustError", &classes.trust_error},
        {"DriverError", &classes.driver_error},
        {"KernelNotFoundError", &classes.kernel_not_found_error},
        {"NoMatchingVariantError", &classes.no_matching_variant_error},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (py_import("nojit.runtime.errors", wanted[i].name, wanted[i].object) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Raises `cls(*args, **kwargs)`. Steals both, which may be NULL with an exception raised. */
static void raise_instance(PyObject *cls, PyObject *args, PyObject *kwargs)
{
    if (args != NULL && kwargs != NULL) {
        PyObject *error = PyObject_Call(cls, args, kwargs);
        if (error != NULL) {
            PyErr_SetObject(cls, error);
            Py_DECREF(error);
        }
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
}

static void refuse(PyObject *kernel, PyObject *argument, PyObject *got, PyObject *what)
{
    PyObject *where = argument == NULL ? PyUnicode_FromFormat("kernel %U", kernel)
                                       : PyUnicode_FromFormat("argument %U of kernel %U", argument, kernel);
    PyObject *empty = PyUnicode_FromString("");
    if (what != NULL && where != NULL && empty != NULL) {
        raise_instance(classes.argument_error, Py_BuildValue("(O)", what),
                       Py_BuildValue("{s:O,s:O,s:O}", "got", got == NULL ? empty : got, "where", where, "argument",
                                     argument == NULL ? empty : argument));
    }
    Py_XDECREF(where);
    Py_XDECREF(empty);
    Py_XDECREF(what);
    Py_XDECREF(got);
}

void py_refuse(PyObject *kernel, PyObject *argument, PyObject *got, const char *what_format, ...)
{
    if (PyErr_Occurred()) { /* making `got` failed, or the caller's code raised */
        Py_XDECREF(got);
        return;
    }
    va_list arguments;
    va_start(arguments, what_format);
    PyObject *what = PyUnicode_FromFormatV(what_format, arguments);
    va_end(arguments);
    refuse(kernel, argument, got, what);
}

/* Returns a new str "<class>: <first line>" of an exception, since frameworks may append a stack trace; NULL with an exception
 * raised. */
static PyObject *quote(PyObject *cause)
{
    PyObject *text = PyObject_Str(cause);
    PyObject *lines = text == NULL ? NULL : PyUnicode_Splitlines(text, 0);
    PyObject *quoted = lines == NULL ? NULL
                       : PyList_GET_SIZE(lines) == 0
                           ? PyUnicode_FromString(Py_TYPE(cause)->tp_name)
                           : PyUnicode_FromFormat("%s: %U", Py_TYPE(cause)->tp_name, PyList_GET_ITEM(lines, 0));
    Py_XDECREF(lines);
    Py_XDECREF(text);
    return quoted;
}

void py_refuse_pending(PyObject *kernel, PyObject *argument, const char *what)
{
    PyObject *type, *cause, *traceback;
    if (!PyErr_Occurred()) {
        py_refuse(kernel, argument, NULL, "%s", what);
        return;
    }
    PyErr_Fetch(&type, &cause, &traceback);
    PyErr_NormalizeException(&type, &cause, &traceback);
    /* keep KeyboardInterrupt and MemoryError, which the argument does not cause */
    if (!PyErr_GivenExceptionMatches(type, PyExc_Exception) || PyErr_GivenExceptionMatches(type, PyExc_MemoryError)) {
        PyErr_Restore(type, cause, traceback);
        return;
    }
    if (traceback != NULL) {
        PyException_SetTraceback(cause, traceback);
    }
    py_refuse(kernel, argument, quote(cause), "%s", what);
    PyObject *new_type, *error, *new_traceback;
    PyErr_Fetch(&new_type, &error, &new_traceback);
    PyErr_NormalizeException(&new_type, &error, &new_traceback);
    PyException_SetCause(error, Py_NewRef(cause));
    PyErr_Restore(new_type, error, new_traceback);
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(traceback);
}

/* Clears the pending exception and returns it as a new reference. */
static PyObject *take(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

PyObject *py_take_miss(void)
{
    return PyErr_ExceptionMatches(classes.no_matching_variant_error) ? take() : NULL;
}

PyObject *py_take_refusal(void)
{
    bool refused = PyErr_ExceptionMatches(classes.no_matching_variant_error) || PyErr_ExceptionMatches(classes.argument_error);
    return refused ? take() : NULL;
}

static PyObject *dtype_spellings(void)
{
    PyObject *spellings = PyList_New(0);
    const char *next;
    for (size_t i = 0; spellings != NULL && (next = nj_dtype_spelling(i)) != NULL; i++) {
        PyObject *text = PyUnicode_FromString(next);
        if (text == NULL || PyList_Append(spellings, text) < 0) {
            Py_CLEAR(spellings);
        }
        Py_XDECREF(text);
    }
    return spellings;
}

void py_refuse_dtype(PyObject *dtype)
{
    PyObject *no_dtype = NULL;
    if (py_import("nojit.runtime.base.suggestions", "no_dtype", &no_dtype) < 0) {
        return;
    }
    PyObject *text = PyObject_Str(dtype), *spellings = text == NULL ? NULL : dtype_spellings();
    PyObject *what = spellings == NULL ? NULL : PyObject_CallFunctionObjArgs(no_dtype, text, spellings, NULL);
    if (what != NULL) {
        PyErr_SetObject(PyExc_TypeError, what);
    }
    Py_DECREF(no_dtype);
    Py_XDECREF(text);
    Py_XDECREF(spellings);
    Py_XDECREF(what);
}

/* Decodes a text of the engine. It may quote bytes of a file and end in the middle of a character. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* Returns the place of an error as a new str: `where`, then the place inside of it if there is one. */
static PyObject *place_of(const nj_error *error, PyObject *where)
{
    PyObject *inner = error->where[0] == 0 ? NULL : text_of(error->where);
    PyObject *place = error->where[0] == 0 ? PyObject_Str(where) : inner == NULL ? NULL : PyUnicode_FromFormat("%S %U", where, inner);
    Py_XDECREF(inner);
    return place;
}

bool py_is_bundle_error(PyObject *type)
{
    return PyErr_GivenExceptionMatches(type, classes.bundle_error);
}

/* Raises an error of a class at the error's place, with one more attribute unless `fact` is NULL. Returns NULL. */
static PyObject *raise_as(PyObject *cls, const nj_error *error, PyObject *where, const char *fact, const char *value)
{
    PyObject *place = place_of(error, where), *what = text_of(error->what), *got = text_of(error->got);
    if (place != NULL && what != NULL && got != NULL) {
        PyObject *named = fact != NULL ? Py_BuildValue("{s:O,s:O,s:s}", "got", got, "where", place, fact, value)
                                       : Py_BuildValue("{s:O,s:O}", "got", got, "where", place);
        raise_instance(cls, Py_BuildValue("(O)", what), named);
    }
    Py_XDECREF(place);
    Py_XDECREF(what);
    Py_XDECREF(got);
    return NULL;
}

static PyObject *raise_driver(const nj_error *error, PyObject *where)
{
    PyObject *place = place_of(error, where), *what = place == NULL ? NULL : text_of(error->what);
    if (what != NULL) {
        py_driver_error(error->call, error->driver_code, error->got, what, place);
    }
    Py_XDECREF(place);
    Py_XDECREF(what);
    return NULL;
}

PyObject *py_raise(const nj_error *error, PyObject *where)
{
    switch (error->code) {
    case NJ_ERROR_FORMAT: return raise_as(classes.format_error, error, where, "rule", error->rule);
    case NJ_ERROR_INTEGRITY: return raise_as(classes.integrity_error, error, where, NULL, NULL);
    case NJ_ERROR_NEEDS: return raise_as(classes.bundle_error, error, where, NULL, NULL);
    case NJ_ERROR_ARGUMENT: return raise_as(classes.argument_error, error, where, NULL, NULL);
    case NJ_ERROR_TRUST: return raise_as(classes.trust_error, error, where, NULL, NULL);
    case NJ_ERROR_NO_KERNEL: return raise_as(classes.kernel_not_found_error, error, where, NULL, NULL);
    case NJ_ERROR_NO_VARIANT: return raise_as(classes.no_matching_variant_error, error, where, NULL, NULL);
    case NJ_ERROR_DRIVER: return raise_driver(error, where);
    case NJ_ERROR_MEMORY: return PyErr_NoMemory();
    case NJ_ERROR_SYSTEM: errno = error->system_code; return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, where);
    case NJ_OK: break;
    }
    return PyErr_Format(PyExc_SystemError, "expected an error of the engine, got code %d", (int)error->code);
}

void py_driver_error(const char *call, int code, const char *name, PyObject *what, PyObject *where)
{
    PyObject *kwargs = PyDict_New();
    PyObject *place = where == NULL ? NULL : PyObject_Str(where);
    if (kwargs != NULL && ((what != NULL && PyDict_SetItemString(kwargs, "what", what) < 0) ||
                           (where != NULL && (place == NULL || PyDict_SetItemString(kwargs, "where", place) < 0)))) {
        Py_CLEAR(kwargs);
    }
    Py_XDECREF(place);
    const char *known = name == NULL ? "unknown error" : name;
    /* the text of dlopen quotes a path, which may not be UTF-8 */
    PyObject *text = text_of(known);
    raise_instance(classes.driver_error, text == NULL ? NULL : Py_BuildValue("(siN)", call, code, text), kwargs);
}

PyObject *py_describe(PyObject *object)
{
    const char *type = Py_TYPE(object)->tp_name;
    if (object == Py_None) {
        return PyUnicode_FromString("None");
    }
    if (!PyLong_Check(object) && !PyFloat_Check(object) && !PyUnicode_Check(object)) {
        return PyUnicode_FromString(type);
    }
    PyObject *shown = PyObject_Repr(object);
    if (shown == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) { /* an int with more digits than sys.get_int_max_str_digits() */
        PyErr_Clear();
        return PyUnicode_FromString(type);
    }
    PyObject *cut = shown == NULL ? NULL : PyUnicode_Substring(shown, 0, 80);
    PyObject *text = cut == NULL ? NULL : PyUnicode_FromFormat("%s %U", type, cut);
    Py_XDECREF(shown);
    Py_XDECREF(cut);
    return text;
}
