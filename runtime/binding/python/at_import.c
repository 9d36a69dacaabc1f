#include "python/at_import.h"

#include "module.h"
#include "python/tuples.h"

int py_intern(const py_interned *wanted)
{
    for (; wanted->text != NULL; wanted++) {
        Py_XSETREF(*wanted->string, PyUnicode_InternFromString(wanted->text));
        if (*wanted->string == NULL) {
            return -1;
        }
    }
    return 0;
}

int py_import(const char *module, const char *name, PyObject **object)
{
    PyObject *home = PyImport_ImportModule(module);
    Py_XSETREF(*object, home == NULL ? NULL : PyObject_GetAttrString(home, name));
    Py_XDECREF(home);
    return *object == NULL ? -1 : 0;
}

int py_import_only(const char *module)
{
    PyObject *home = PyImport_ImportModule(module);
    Py_XDECREF(home);
    return home == NULL ? -1 : 0;
}

int py_add_numbers(PyObject *module, const py_number *numbers)
{
    for (; numbers->name != NULL; numbers++) {
        if (PyModule_AddIntConstant(module, numbers->name, (long)numbers->value) < 0) {
            return -1;
        }
    }
    return 0;
}

int py_add_texts(PyObject *module, const py_named_text *texts)
{
    for (; texts->name != NULL; texts++) {
        if (PyModule_AddStringConstant(module, texts->name, texts->text) < 0) {
            return -1;
        }
    }
    return 0;
}

int py_add_object(PyObject *module, const char *name, PyObject *object)
{
    int status = object == NULL ? -1 : PyModule_AddObjectRef(module, name, object);
    Py_XDECREF(object);
    return status;
}

static PyObject *make_text(void *Py_UNUSED(context), const void *texts, size_t number)
{
    return PyUnicode_FromString(((const char *const *)texts)[number]);
}

int py_add_list(PyObject *module, const char *name, const char *const *texts, size_t count)
{
    return py_add_object(module, name, py_tuple(count, make_text, NULL, texts));
}

int py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    Py_XSETREF(*type, (PyTypeObject *)PyType_FromSpec(spec));
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}
