#include "columns.h"

#include "image/elf.h"

#include "cold.h"

static uint32_t number_at(const unsigned char *columns, size_t rows, int column, size_t row)
{
    return nj_u32(columns + sizeof(uint32_t) * ((size_t)column * rows + row));
}

static bool ascends(const unsigned char *columns, size_t rows, size_t row)
{
    for (int column = 0; column < NJ_KEY_COLUMNS; column++) {
        uint32_t before = number_at(columns, rows, column, row - 1), here = number_at(columns, rows, column, row);
        if (before != here) {
            return before < here;
        }
    }
    return false;
}

bool nj_columns_right(const unsigned char *columns, size_t rows, const size_t sizes[NJ_POINTING_COLUMNS])
{
    for (int column = 0; column < NJ_POINTING_COLUMNS; column++) {
        for (size_t row = 0; row < rows; row++) {
            if (number_at(columns, rows, column, row) >= sizes[column]) {
                return false;
            }
        }
    }
    for (size_t row = 1; row < rows; row++) {
        if (!ascends(columns, rows, row)) {
            return false;
        }
    }
    return true;
}

/* `array.array`; set once by `nj_columns_init` under the import lock, and never changed. */
static PyObject *array;

int nj_columns_init(void)
{
    PyObject *module = PyImport_ImportModule("array");
    Py_XSETREF(array, module == NULL ? NULL : PyObject_GetAttrString(module, "array"));
    Py_XDECREF(module);
    return array == NULL ? -1 : 0;
}

PyObject *nj_columns_make(const unsigned char *columns, size_t rows)
{
    static const char *const names[NJ_COLUMNS] = {"meaning", "config", "hints",     "derived",
                                                  "launch",  "image",  "registers", "spill_bytes"};
    Py_ssize_t size = (Py_ssize_t)(sizeof(uint32_t) * rows * NJ_COLUMNS);
    /* an array out of bytes takes longer to make than the slices of one */
    PyObject *all = PyObject_CallFunction(array, "sy#", "I", (const char *)columns, size);
    PyObject *made = all == NULL ? NULL : PyDict_New();
    for (Py_ssize_t i = 0; made != NULL && i < NJ_COLUMNS; i++) {
        PyObject *column = PySequence_GetSlice(all, i * (Py_ssize_t)rows, (i + 1) * (Py_ssize_t)rows);
        if (column == NULL || PyDict_SetItemString(made, names[i], column) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(column);
    }
    Py_XDECREF(all);
    return made;
}
