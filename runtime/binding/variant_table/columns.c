#include "variant_table/columns.h"

/* `array.array`; set once by `py_columns_init` under the import lock, and never changed. */
static PyObject *array;

int py_columns_init(void)
{
    PyObject *module = PyImport_ImportModule("array");
    Py_XSETREF(array, module == NULL ? NULL : PyObject_GetAttrString(module, "array"));
    Py_XDECREF(module);
    return array == NULL ? -1 : 0;
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
