#include "variant_table/columns.h"

#include "module.h"
#include "python/at_import.h"

PyObject *py_columns_make(const unsigned char *columns, size_t rows)
{
    static const char *const names[PY_COLUMNS] = {"case", "config", "hints",     "derived",
                                                  "launch",  "image",  "registers", "spill_bytes"};
    Py_ssize_t size = (Py_ssize_t)(sizeof(uint32_t) * rows * PY_COLUMNS);
    /* not before somebody asks for columns: it imports `collections` */
    PyObject *array = NULL;
    if (py_import("array", "array", &array) < 0) {
        return NULL;
    }
    /* an array out of bytes takes longer to make than the slices of one */
    PyObject *all = PyObject_CallFunction(array, "sy#", "I", (const char *)columns, size);
    PyObject *made = all == NULL ? NULL : PyDict_New();
    Py_DECREF(array);
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
