#include "library.h"

#include "cold.h"

PyTypeObject *nj_function_type;

typedef struct {
    PyObject_HEAD
    CUlibrary handle;
    PyObject *where;
} nj_library;

static PyObject *library_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"image", "where", NULL};
    Py_buffer image;
    PyObject *where;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*U:Library", names, &image, &where)) {
        return NULL;
    }
    nj_library *self = nj_need_driver() < 0 ? NULL : (nj_library *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->where = Py_NewRef(where);
        nj_outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        /* no options: nothing may be compiled behind the user's back */
        outcome = NJ_TRY(cuLibraryLoadData, &self->handle, image.buf, NULL, NULL, 0, NULL, NULL, 0);
        Py_END_ALLOW_THREADS
        if (nj_check(outcome, NULL, where) < 0) {
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&image);
    return (PyObject *)self;
}

static void library_dealloc(nj_library *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->where);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *library_function(nj_library *self, PyObject *args)
{
    PyObject *symbol;
    unsigned int shared_bytes;
    if (!PyArg_ParseTuple(args, "UI:function", &symbol, &shared_bytes)) {
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8(symbol);
    if (name == NULL) {
        return NULL;
    }
    CUkernel handle;
    if (NJ_CUDA(self->where, cuLibraryGetKernel, &handle, self->handle, name) < 0) {
        return NULL;
    }
    nj_function_object *function = (nj_function_object *)nj_function_type->tp_alloc(nj_function_type, 0);
    if (function != NULL) {
        function->symbol = Py_NewRef(symbol);
        nj_function_init(&function->it, handle, shared_bytes);
    }
    return (PyObject *)function;
}

static void function_dealloc(nj_function_object *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nj_function_clear(&self->it);
    Py_XDECREF(self->symbol);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Appends (offset, size) of each param until the driver knows no more, or an exception is raised. */
static nj_outcome append_params(CUkernel kernel, PyObject *list)
{
    for (size_t index = 0;; index++) {
        size_t offset, size;
        nj_outcome outcome = NJ_TRY(cuKernelGetParamInfo, kernel, index, &offset, &size);
        if (outcome.call != NULL) {
            return outcome.code == CUDA_ERROR_INVALID_VALUE ? NJ_SUCCESS : outcome;
        }
        PyObject *pair = Py_BuildValue("(nn)", (Py_ssize_t)offset, (Py_ssize_t)size);
        int status = pair == NULL ? -1 : PyList_Append(list, pair);
        Py_XDECREF(pair);
        if (status < 0) {
            return NJ_SUCCESS;
        }
    }
}

/* What is asked of a function on a device. */
typedef struct {
    const nj_function_object *function;
    nj_device *device;
    PyObject *list; /* of params, where they are asked for */
} nj_asking;

static nj_outcome list_params(void *facts)
{
    const nj_asking *asking = facts;
    bool pushed;
    nj_outcome outcome = nj_context_enter(asking->device, &pushed);
    if (outcome.call == NULL) {
        /* the context may have been lost half way */
        if (PyList_SetSlice(asking->list, 0, PyList_GET_SIZE(asking->list), NULL) == 0) {
            outcome = append_params(asking->function->it.handle, asking->list);
        }
        nj_context_leave(pushed);
    }
    return outcome;
}

static nj_outcome load(void *facts)
{
    const nj_asking *asking = facts;
    nj_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    bool pushed;
    CUfunction function;
    outcome = nj_context_enter(asking->device, &pushed);
    if (outcome.call == NULL) {
        /* the driver puts an image on a device when this is first asked */
        outcome = NJ_TRY(cuKernelGetFunction, &function, asking->function->it.handle);
        nj_context_leave(pushed);
    }
    Py_END_ALLOW_THREADS
    return outcome;
}

/* 0, or -1 with an exception raised. */
static int ask_on_device(nj_work work, nj_asking *asking)
{
    nj_outcome outcome = nj_do_on_device(asking->device, work, asking);
    return PyErr_Occurred() ? -1 : nj_check(outcome, asking->device, asking->function->symbol);
}

static nj_device *device_argument(PyObject *number)
{
    long ordinal = PyLong_AsLong(number);
    if (ordinal == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return nj_need_device(ordinal < 0 || ordinal >= NJ_DEVICES_MAX ? -1 : (int)ordinal);
}

static PyObject *function_params(nj_function_object *self, PyObject *ordinal)
{
    nj_device *device = device_argument(ordinal);
    if (device == NULL) {
        return NULL;
    }
    if (nj_cuda.cuKernelGetParamInfo == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *list = PyList_New(0);
    if (list != NULL && ask_on_device(list_params, &(nj_asking){self, device, list}) < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *function_load(nj_function_object *self, PyObject *ordinal)
{
    nj_device *device = device_argument(ordinal);
    if (device == NULL || ask_on_device(load, &(nj_asking){self, device, NULL}) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef library_methods[] = {
    {"function", (PyCFunction)library_function, METH_VARARGS,
     PyDoc_STR("Find a kernel by its symbol; it has so many bytes of static shared memory.")},
    {NULL},
};

static PyType_Slot library_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("An image in the driver, for the life of the process.")},
    {Py_tp_new, library_new},
    {Py_tp_dealloc, library_dealloc},
    {Py_tp_methods, library_methods},
    {0, NULL},
};

static PyMethodDef function_methods[] = {
    {"params", (PyCFunction)function_params, METH_O,
     PyDoc_STR("The driver's (offset, size) of each param on a device; None if this driver does not tell.")},
    {"load", (PyCFunction)function_load, METH_O, PyDoc_STR("Put the image on a device now.")},
    {NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A kernel of a loaded image.")},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {0, NULL},
};

static PyType_Spec library_spec = {
    .name = "nojit.runtime._core.Library",
    .basicsize = sizeof(nj_library),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = library_slots,
};

static PyType_Spec function_spec = {
    .name = "nojit.runtime._core.Function",
    .basicsize = sizeof(nj_function_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = function_slots,
};

int nj_library_init(PyObject *module)
{
    PyObject *library = PyType_FromSpec(&library_spec);
    nj_function_type = (PyTypeObject *)PyType_FromSpec(&function_spec);
    int status = library != NULL && nj_function_type != NULL &&
                         PyModule_AddType(module, (PyTypeObject *)library) == 0 &&
                         PyModule_AddType(module, nj_function_type) == 0
                     ? 0
                     : -1;
    Py_XDECREF(library);
    return status;
}
