#include "variant_table/columns.h"

#include "module.h"
#include "python/at_import.h"

/* `array.array`; set once by `py_add_columns` under the import lock, and never changed. */
static PyObject *array;

int py_add_columns(PyObject *Py_UNUSED(module))
{
    return py_import("array", "array", &array);
}

PyObject *py_columns_make(const unsigned char *columns, size_t rows)
{
    static const char *const names[PY_COLUMNS] = {"case", "config", "hints",     "derived",
                                                  "launch",  "image",  "registers", "spill_bytes"};
    Py_ssize_t size = (Py_ssize_t)(sizeof(uint32_t) * rows * PY_COLUMNS);
    /* an array out of bytes takes longer to make than the slices of one */
    PyObject *all = PyObject_CallFunction(array, "sy#", "I", (const char *)columns, size);
    PyObject *made = all == NULL ? NULL : PyDict_New();
    for (Py_ssize_t i = 0; made != NULL && i < PY_COLUMNS; i++) {
        PyObject *column = PySequence_GetSlice(all, i * (Py_ssize_t)rows, (i + 1) * (Py_ssize_t)rows);
        if (column == NULL || PyDict_SetItemString(made, names[i], column) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(column);
    }
    Py_XDECREF(all);
    return made;
}
