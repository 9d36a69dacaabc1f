#include "operators/plain_tensors.h"

#include <structmember.h>

#include "base/dlpack.h"
#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/threads.h"
#include "tensor/read_tensor.h"

PyTypeObject *py_plain_type;

/* The frameworks' names of the devices. Set once by `py_add_plain` under the import lock. */
static PyObject *cpu, *cuda;

int py_states_check(PyObject *states)
{
    bool right = PyTuple_Check(states);
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(states); i++) {
        PyObject *state = PyTuple_GET_ITEM(states, i);
        Py_ssize_t count = PyTuple_Check(state) ? PyTuple_GET_SIZE(state) : 0;
        right = count == 2 || (count == 3 && PyDict_Check(PyTuple_GET_ITEM(state, 0)));
    }
    if (!right) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of states: (function, result) or (dict, name, value)");
    }
    return right ? 0 : -1;
}

static PyObject *state_now(PyObject *state)
{
    PyObject *first = PyTuple_GET_ITEM(state, 0);
    if (PyTuple_GET_SIZE(state) == 2) {
        return PyObject_CallNoArgs(first);
    }
    PyObject *value = py_dict_get(first, PyTuple_GET_ITEM(state, 1));
    return value == NULL && !PyErr_Occurred() ? Py_NewRef(Py_NotImplemented) : value;
}

int py_states_hold(PyObject *states)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(states); i++) {
        PyObject *state = PyTuple_GET_ITEM(states, i);
        PyObject *now = state_now(state);
        if (now == NULL) {
            return -1;
        }
        bool holds = now == PyTuple_GET_ITEM(state, PyTuple_GET_SIZE(state) - 1);
        Py_DECREF(now);
        if (!holds) {
            return 0;
        }
    }
    return 1;
}

/* Returns the truth of a result: 1, 0, or -1 with an exception raised. Steals `result`, which may be NULL. */
static int take_truth(PyObject *result)
{
    if (result == Py_False) {
        Py_DECREF(result);
        return 0;
    }
    int truth = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth;
}

int py_plain_records(const py_plain *plain)
{
    return take_truth(PyObject_CallNoArgs(plain->grad_enabled));
}

/* Gets the view of a tensor's memory from its framework. Returns 1, 0 if it has none, or -1 with an exception raised. */
static int view(PyObject *object, DLTensor *out)
{
    py_kind kind;
    const DLPackExchangeAPI *api;
    if (py_kind_of(object, &kind, &api) < 0) {
        return -1;
    }
    if (api == NULL || api->dltensor_from_py_object_no_sync == NULL) {
        return 0;
    }
    py_clear_view(out);
    if (api->dltensor_from_py_object_no_sync(object, out) != 0) {
        /* the framework raises for sparse tensors and for tensors without memory */
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    return !py_lacks_memory(out) && (out->ndim <= 0 || out->shape != NULL);
}

static bool is_of_class(const py_plain *plain, PyObject *object)
{
    bool found = false;
    for (Py_ssize_t i = 0; !found && i < PyTuple_GET_SIZE(plain->tensors); i++) {
        found = Py_IS_TYPE(object, (PyTypeObject *)PyTuple_GET_ITEM(plain->tensors, i));
    }
    return found;
}

/* False for integers, which have no gradients. */
static bool may_have_gradients(const DLTensor *view)
{
    return view->dtype.code != kDLInt && view->dtype.code != kDLUInt;
}

static int wants_gradient(const py_plain *plain, PyObject *tensor)
{
    descrgetfunc get = Py_TYPE(plain->requires_grad)->tp_descr_get;
    return take_truth(get(plain->requires_grad, tensor, (PyObject *)Py_TYPE(tensor)));
}

static int is_negated(const py_plain *plain, PyObject *tensor)
{
    return take_truth(PyObject_Vectorcall(plain->is_negated, &tensor, 1, NULL));
}

int py_plain_read(const py_plain *plain, PyObject *object, py_plain_tensor *tensor)
{
    if (!is_of_class(plain, object)) {
        return 0;
    }
    int found = view(object, &tensor->view);
    if (found <= 0) {
        return found;
    }
    int differentiated = may_have_gradients(&tensor->view) ? wants_gradient(plain, object) : 0;
    tensor->requires_grad = differentiated > 0;
    if (differentiated < 0) {
        return -1;
    }
    /* every dtype needs the check: torch negates tensors of any dtype lazily, and then their memory holds the values times -1 */
    int negated = is_negated(plain, object);
    return negated < 0 ? -1 : !negated;
}

/* Returns 1 if a tensor lies on one of the devices, 0 if not, or -1 with an exception raised. */
static int lies_on(PyObject *devices, const py_plain_tensor *tensor)
{
    int32_t type = tensor->view.device.device_type;
    PyObject *name = py_is_gpu(type) ? cuda : type == kDLCPU ? cpu : NULL;
    return name == NULL ? 0 : PySet_Contains(devices, name);
}

/* Returns 1 if all tensors are plain and on one of the devices, 0 if not, or -1 with an exception raised. */
static int are_plain(const py_plain *self, PyObject *devices, PyObject *const *tensors, Py_ssize_t count)
{
    int fits = py_states_hold(self->states);
    bool requires_grad = false;
    for (Py_ssize_t i = 0; i < count && fits > 0; i++) {
        if (tensors[i] == Py_None) {
            continue;
        }
        py_plain_tensor tensor;
        fits = py_plain_read(self, tensors[i], &tensor);
        if (fits > 0) {
            requires_grad |= tensor.requires_grad;
            fits = lies_on(devices, &tensor);
        }
    }
    if (fits > 0 && requires_grad) {
        int records = py_plain_records(self);
        fits = records < 0 ? -1 : !records;
    }
    return fits;
}

static PyObject *plain_call(PyObject *self, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    Py_ssize_t count = PyVectorcall_NARGS(positional);
    if (count < 1 || keywords != NULL || !PyAnySet_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "expected a set of devices, then tensors");
        return NULL;
    }
    int fits = are_plain((const py_plain *)self, arguments[0], arguments + 1, count - 1);
    return fits < 0 ? NULL : PyBool_FromLong(fits);
}

/* Requires a tuple of classes. Returns 0, or -1 with TypeError raised. */
static int check_classes(PyObject *tensors)
{
    bool right = PyTuple_Check(tensors);
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(tensors); i++) {
        right = PyType_Check(PyTuple_GET_ITEM(tensors, i));
    }
    if (!right) {
        PyErr_SetString(PyExc_TypeError, "tensors: expected a tuple of classes");
    }
    return right ? 0 : -1;
}

static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tensors", "requires_grad", "is_negated", "grad_enabled", "states", NULL};
    PyObject *tensors, *requires_grad, *is_negated, *grad_enabled, *states;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO:Plain", names, &tensors, &requires_grad, &is_negated,
                                     &grad_enabled, &states) ||
        check_classes(tensors) < 0 || py_states_check(states) < 0) {
        return NULL;
    }
    if (Py_TYPE(requires_grad)->tp_descr_get == NULL) {
        PyErr_SetString(PyExc_TypeError, "requires_grad: expected a descriptor");
        return NULL;
    }
    py_plain *self = (py_plain *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = plain_call;
        self->tensors = Py_NewRef(tensors);
        self->requires_grad = Py_NewRef(requires_grad);
        self->is_negated = Py_NewRef(is_negated);
        self->grad_enabled = Py_NewRef(grad_enabled);
        self->states = Py_NewRef(states);
    }
    return (PyObject *)self;
}

static int plain_traverse(py_plain *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->tensors);
    Py_VISIT(self->requires_grad);
    Py_VISIT(self->is_negated);
    Py_VISIT(self->grad_enabled);
    Py_VISIT(self->states);
    return 0;
}

static void plain_dealloc(py_plain *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, plain_dealloc);
    Py_XDECREF(self->tensors);
    Py_XDECREF(self->requires_grad);
    Py_XDECREF(self->is_negated);
    Py_XDECREF(self->grad_enabled);
    Py_XDECREF(self->states);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMemberDef plain_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_plain, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot plain_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Plain(tensors, requires_grad, is_negated, grad_enabled, states)\n--\n\n"
                                  "Tell whether a call may skip the framework's dispatcher: plain(devices, *tensors).")},
    {Py_tp_new, plain_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, plain_traverse},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_members, plain_members},
    {0, NULL},
};

static PyType_Spec plain_spec = {
    .name = "nojit.runtime._core.Plain",
    .basicsize = sizeof(py_plain),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plain_slots,
};

int py_add_plain(PyObject *module)
{
    static const py_interned wanted[] = {{&cpu, "cpu"}, {&cuda, "cuda"}, {NULL}};
    return py_intern(wanted) < 0 ? -1 : py_add_type(module, &plain_spec, &py_plain_type);
}
