#include "driver/py_function.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"

PyTypeObject *py_function_type;

static PyObject *function_of(nj_function *it, bool loaded)
{
    py_function *function = (py_function *)py_function_type->tp_alloc(py_function_type, 0);
    if (function == NULL) {
        return NULL;
    }
    function->it = it;
    return Py_BuildValue("(NN)", function, PyBool_FromLong(loaded));
}

PyObject *py_load_function(const nj_image *image, int device, PyObject *where)
{
    nj_error error;
    nj_function *function;
    bool loaded;
    Py_BEGIN_ALLOW_THREADS
    function = nj_image_load(image, device, &loaded, &error);
    Py_END_ALLOW_THREADS
    return function == NULL ? py_raise(&error, where) : function_of(function, loaded);
}

static void function_dealloc(py_function *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *function_load(py_function *self, PyObject *number)
{
    nj_error error;
    bool placed;
    long ordinal = PyLong_AsLong(number);
    if (ordinal == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    placed = nj_function_place(self->it, ordinal < 0 || ordinal >= NJ_DEVICES_MAX ? -1 : (int)ordinal, &error);
    Py_END_ALLOW_THREADS
    if (placed) {
        Py_RETURN_NONE;
    }
    PyObject *symbol = PyUnicode_FromString(self->it->symbol);
    py_raise(&error, symbol);
    Py_XDECREF(symbol);
    return NULL;
}

static PyMethodDef function_methods[] = {
    {"load", (PyCFunction)function_load, METH_O, PyDoc_STR("Put the image on a device now.")},
    {NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A kernel of a loaded image.")},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {0, NULL},
};

static PyType_Spec function_spec = {
    .name = "nojit.runtime._core.Function",
    .basicsize = sizeof(py_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = function_slots,
};

int py_add_function(PyObject *module)
{
    return py_add_type(module, &function_spec, &py_function_type);
}
