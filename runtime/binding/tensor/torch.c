#include "tensor/torch.h"

#include <stdbool.h>

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"

/* Set once by `py_add_torch_names` under the import lock. */
static PyObject *torch_name, *tensor_name;

PyObject *py_of_torch(PyObject *name)
{
    PyObject *torch = py_dict_get(PyImport_GetModuleDict(), torch_name);
    PyObject *found = torch == NULL ? NULL : py_optional_attribute(torch, name);
    Py_XDECREF(torch);
    return found;
}

int py_is_torch(PyObject *object)
{
    PyObject *tensor = py_of_torch(tensor_name);
    bool is = tensor != NULL && PyType_Check(tensor) && PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)tensor);
    Py_XDECREF(tensor);
    return PyErr_Occurred() ? -1 : is;
}

int py_add_torch_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {{&torch_name, "torch"}, {&tensor_name, "Tensor"}, {NULL}};
    return py_intern(wanted);
}
