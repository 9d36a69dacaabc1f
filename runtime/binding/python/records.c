#include "python/records.h"

void py_record_clear(py_record *record)
{
    while (record->field_count > 0) {
        Py_CLEAR(record->fields[--record->field_count]);
    }
    Py_CLEAR(record->type);
}

/* Gets the descriptor of each field. Returns false with an exception raised. */
static bool take_fields(PyObject *type, PyObject *names, py_record *record)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *field = PyObject_GetAttr(type, PyTuple_GET_ITEM(names, i));
        if (field == NULL) {
            return false;
        }
        record->fields[record->field_count++] = field;
    }
    return true;
}

int py_record_of(PyObject *type, Py_ssize_t field_count, py_record *record)
{
    PyObject *names = PyObject_GetAttrString(type, "__match_args__");
    py_record_clear(record);
    bool fits = names != NULL && PyType_Check(type) && PyTuple_Check(names) && PyTuple_GET_SIZE(names) == field_count;
    bool taken = fits && take_fields(type, names, record);
    if (taken) {
        record->type = (PyTypeObject *)Py_NewRef(type);
    } else {
        py_record_clear(record);
    }
    if (!fits && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "expected a record of %zd fields, got %R", field_count, type);
    }
    Py_XDECREF(names);
    return taken ? 0 : -1;
}

int py_record_find(const char *module, const char *name, Py_ssize_t field_count, py_record *record)
{
    PyObject *home = PyImport_ImportModule(module), *type = home == NULL ? NULL : PyObject_GetAttrString(home, name);
    int status = type == NULL ? -1 : py_record_of(type, field_count, record);
    Py_XDECREF(type);
    Py_XDECREF(home);
    return status;
}

PyObject *py_record_make(const py_record *record, PyObject **values)
{
    bool whole = true;
    for (Py_ssize_t i = 0; i < record->field_count; i++) {
        whole = whole && values[i] != NULL;
    }
    PyObject *made = whole ? PyType_GenericAlloc(record->type, 0) : NULL;
    for (Py_ssize_t i = 0; i < record->field_count; i++) {
        PyObject *field = record->fields[i];
        /* use the slot's descriptor, since a record's `__setattr__` raises */
        if (made != NULL && Py_TYPE(field)->tp_descr_set(field, made, values[i]) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(values[i]);
    }
    return made;
}
