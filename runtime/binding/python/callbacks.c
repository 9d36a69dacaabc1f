#include "python/callbacks.h"

#include "module.h"
#include "python/at_import.h"

#include <stdarg.h>

py_asked_names py_asked;

int py_add_callbacks(PyObject *Py_UNUSED(module))
{
#define METHOD(method, params) {&py_asked.method, #method},
#define ATTRIBUTE(attribute) {&py_asked.attribute, #attribute},
    static const py_interned wanted[] = {
        PY_KERNEL_CALLBACKS(METHOD)
        PY_SERVED_CALLBACKS(METHOD)
        PY_ATTRIBUTES(ATTRIBUTE)
        {NULL},
    };
    return py_intern(wanted);
}

PyObject *py_call_back(PyObject *object, PyObject *method, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *arguments = Py_VaBuildValue(format, values);
    va_end(values);
    PyObject *bound = arguments == NULL ? NULL : PyObject_GetAttr(object, method);
    PyObject *made = bound == NULL ? NULL : PyObject_CallObject(bound, arguments);
    Py_XDECREF(bound);
    Py_XDECREF(arguments);
    return made;
}
