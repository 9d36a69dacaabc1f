#include "values/make_value.h"

#include "module.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "table/constant.h"

/* Set once by `py_add_make_value` under the import lock, and never changed. */
static struct {
    py_record dtype, function;
} classes;

void py_texts_clear(py_texts *texts)
{
    for (size_t i = 0; i < PY_KEPT_TEXTS; i++) {
        Py_CLEAR(texts->kept[i].object);
    }
}

static size_t hash(nj_span text)
{
    return text.size == 0 ? 0 : text.size * 7 + text.at[0] * 3u + text.at[text.size - 1] * 5u + text.at[text.size / 2];
}

PyObject *py_texts_make(py_texts *texts, nj_span utf8)
{
    size_t place = hash(utf8) % PY_KEPT_TEXTS;
    PyObject **kept = &texts->kept[place].object;
    if (*kept == NULL || !nj_span_equal(texts->kept[place].text, utf8)) {
        PyObject *object = py_text(utf8);
        if (object == NULL) {
            return NULL;
        }
        Py_XSETREF(*kept, object);
        texts->kept[place].text = utf8;
    }
    return Py_NewRef(*kept);
}

static PyObject *make_int(const nj_constant *constant)
{
    PyObject *magnitude = PyLong_FromUnsignedLongLong(constant->magnitude);
    if (magnitude == NULL || !constant->negative) {
        return magnitude;
    }
    PyObject *negative = PyNumber_Negative(magnitude);
    Py_DECREF(magnitude);
    return negative;
}

static PyObject *make_item(void *texts, const void *items, size_t number)
{
    return py_make_value(texts, (const nj_constant *)items + number);
}

PyObject *py_make_value(py_texts *texts, const nj_constant *constant)
{
    switch (constant->kind) {
    case NJ_CONSTANT_BOOL: return PyBool_FromLong(constant->truth);
    case NJ_CONSTANT_INT: return make_int(constant);
    case NJ_CONSTANT_FLOAT: return PyFloat_FromDouble(constant->number);
    case NJ_CONSTANT_TEXT: return py_texts_make(texts, constant->text);
    case NJ_CONSTANT_DTYPE: return py_record_make(&classes.dtype, (PyObject *[]){py_texts_make(texts, constant->text)});
    case NJ_CONSTANT_FUNCTION: return py_record_make(&classes.function, (PyObject *[]){py_texts_make(texts, constant->text)});
    case NJ_CONSTANT_TUPLE: return py_tuple(constant->count, make_item, texts, constant->items);
    default: Py_RETURN_NONE;
    }
}

PyObject *py_make_one_value(const nj_constant *constant)
{
    py_texts texts = {0};
    PyObject *made = py_make_value(&texts, constant);
    py_texts_clear(&texts);
    return made;
}

/* `read_value(raw, where)`: returns the constexpr value of a JSON text. */
static PyObject *read_value(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *raw, *where;
    nj_lone_constant constant;
    nj_error error;
    if (!PyArg_ParseTuple(args, "SO:read_value", &raw, &where)) {
        return NULL;
    }
    PyObject *made = NULL;
    if (nj_constant_read(py_span(raw), &constant, &error)) {
        made = py_make_one_value(&constant.value);
    } else {
        /* the caller knows the place of the value */
        error.where[0] = 0;
        py_raise(&error, where);
    }
    nj_constant_close(&constant);
    return made;
}

static PyMethodDef functions[] = {
    {"read_value", read_value, METH_VARARGS, PyDoc_STR("The constexpr value of a JSON text.")},
    {NULL},
};

int py_add_make_value(PyObject *module)
{
    bool found = py_record_find("nojit.runtime.values", "DType", 1, &classes.dtype) == 0 &&
                 py_record_find("nojit.runtime.values", "FunctionRef", 1, &classes.function) == 0;
    return found ? PyModule_AddFunctions(module, functions) : -1;
}
