#include "table/columns.h"

#include "module.h"
#include "python/at_import.h"

#include "table/table.h"

int py_add_columns(PyObject *module)
{
    bool added = py_add_list(module, "COLUMNS", nj_column_names, NJ_COLUMN_COUNT) == 0 &&
                 py_add_list(module, "KEY_COLUMNS", nj_column_names, NJ_KEY_COLUMNS) == 0;
    return added ? 0 : -1;
}

PyObject *py_columns_make(const unsigned char *columns, size_t rows)
{
    Py_ssize_t size = (Py_ssize_t)(sizeof(uint32_t) * rows * NJ_COLUMN_COUNT);
    /* imported late, since `array` imports `collections` */
    PyObject *array = NULL;
    if (py_import("array", "array", &array) < 0) {
        return NULL;
    }
    /* slices of one array take less time than an array from bytes for each column */
    PyObject *all = PyObject_CallFunction(array, "sy#", "I", (const char *)columns, size);
    PyObject *made = all == NULL ? NULL : PyDict_New();
    Py_DECREF(array);
    for (Py_ssize_t i = 0; made != NULL && i < NJ_COLUMN_COUNT; i++) {
        PyObject *column = PySequence_GetSlice(all, i * (Py_ssize_t)rows, (i + 1) * (Py_ssize_t)rows);
        if (column == NULL || PyDict_SetItemString(made, nj_column_names[i], column) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(column);
    }
    Py_XDECREF(all);
    return made;
}
