#include "kernel/dispatcher.h"

#include <structmember.h>

#include "call/bind.h"
#include "call/call_facts.h"
#include "call/classify.h"
#include "call/gather.h"
#include "kernel/fallback.h"
#include "kernel/find_plan.h"
#include "kernel/launcher.h"
#include "kernel/nesting.h"
#include "launch/grid.h"
#include "launch/py_grid.h"
#include "launch/run_plan.h"
#include "module.h"
#include "python/at_import.h"
#include "python/callbacks.h"
#include "python/exceptions.h"
#include "python/threads.h"

static PyTypeObject *dispatcher_type;

int py_dispatcher_check(const py_dispatcher *self)
{
    if (self->signature.names == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Dispatcher.__init__ was not called");
        return -1;
    }
    return 0;
}

/* Computes the grid that the bundle gives. Python words the error if the engine cannot compute it. */
static int default_grid(py_dispatcher *self, const py_plan *plan, const py_call *call, int64_t grid[3])
{
    if (plan->it.grid_count == 0) {
        py_refuse(self->signature.kernel, NULL, NULL, PY_GRIDLESS);
        return -1;
    }
    int failed = nj_runnable_grid(&plan->it, call->values, grid);
    if (failed < 0) {
        return 0;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    if (facts != NULL) {
        Py_XDECREF(py_call_back((PyObject *)self, py_asked._refuse_grid, "(OiN)", plan, failed, facts));
    }
    return -1;
}

/* Binds the arguments of a call and classifies them. */
static inline int read_call(py_dispatcher *self, const py_fixed *fixed, const py_seen *seen, PyObject *const *arguments,
                     size_t positional, PyObject *keywords, py_call *call)
{
    call->seen = seen;
    Py_ssize_t count = PyVectorcall_NARGS(positional);
    if (py_dispatcher_check(self) < 0 ||
        py_bind(&self->signature, (PyObject *)self, fixed, arguments, count, keywords, call) < 0) {
        return -1;
    }
    return py_classify(&self->signature, (PyObject *)self, false, call);
}

/* Stores the plan of a launch. Not inline: most launches run the same plan as the launch before. */
static __attribute__((noinline)) void keep_last(py_dispatcher *self, py_plan *plan)
{
    py_plan *before;
    PY_BEGIN_LOCKED(self);
    before = atomic_exchange(&self->last, (py_plan *)Py_NewRef((PyObject *)plan));
    PY_END_LOCKED();
    Py_XDECREF((PyObject *)before);
}

/* Keeps a function with a large stack frame out of line: inlined, its frame would be allocated before py_nest checks the stack. */
#define LARGE __attribute__((noinline))

static LARGE PyObject *launch(py_dispatcher *self, const py_launcher *launcher, const py_seen *seen,
                              PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    py_call call;
    const py_fixed *fixed = launcher == NULL ? NULL : &launcher->fixed;
    if (read_call(self, fixed, seen, arguments, positional, keywords, &call) < 0) {
        return NULL;
    }
    py_plan *plan = py_find_plan(self, &call);
    if (plan == NULL) {
        return py_handle_miss(self, launcher, &call);
    }
    int64_t grid[3];
    int status = 0;
    if (launcher == NULL || launcher->kind == PY_GRID_OF_BUNDLE) {
        status = default_grid(self, plan, &call, grid);
    } else if (launcher->kind == PY_GRID_CALLABLE) {
        status = py_call_grid(&self->signature, plan, &call, launcher->callable, grid);
    } else {
        memcpy(grid, launcher->grid, sizeof grid);
    }
    if (status == 0) {
        status = py_run_plan(plan, &self->signature, &call, grid);
    }
    if (status == 0 && plan != atomic_load_explicit(&self->last, memory_order_relaxed)) {
        keep_last(self, plan);
    }
    PyObject *result = status < 0 ? NULL : Py_NewRef(plan->result);
    Py_DECREF(plan);
    return result;
}

PyObject *py_dispatcher_launch(py_dispatcher *self, const py_launcher *launcher, const py_seen *seen,
                               PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    if (!py_nest()) {
        return NULL;
    }
    PyObject *result = NULL;
    py_gathered gathered;
    if (self->signature.rest < 0 || self->signature.names == NULL) {
        result = launch(self, launcher, seen, arguments, positional, keywords);
    } else if (py_gather(&self->signature, arguments, PyVectorcall_NARGS(positional), keywords, &gathered) == 0) {
        result = launch(self, launcher, seen, gathered.values, (size_t)gathered.positional, gathered.keywords);
        py_gathered_clear(&gathered);
    }
    py_unnest();
    return result;
}

static PyObject *dispatcher_call(PyObject *self, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    return py_dispatcher_launch((py_dispatcher *)self, NULL, NULL, arguments, positional, keywords);
}

bool py_dispatcher_is(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    return PyType_IsSubtype(type, dispatcher_type) && type->tp_call == PyVectorcall_Call;
}

static int dispatcher_init(py_dispatcher *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "params", "options", "ids", NULL};
    PyObject *name, *params, *options, *ids;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO!O!O!:Dispatcher", names, &name, &PyTuple_Type, &params,
                                     &PyTuple_Type, &options, py_ids_type, &ids)) {
        return -1;
    }
    if (self->signature.names != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Dispatcher.__init__ was called before");
        return -1;
    }
    return py_signature_init(&self->signature, name, params, options, (py_ids *)ids);
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    py_dispatcher *self = (py_dispatcher *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = dispatcher_call;
    }
    return (PyObject *)self;
}

static int dispatcher_traverse(py_dispatcher *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < self->signature.param_count; i++) {
        Py_VISIT(self->signature.defaults[i]);
    }
    for (int i = 0; i < NJ_DEVICES_MAX; i++) {
        Py_VISIT((PyObject *)atomic_load_explicit(&self->specs[i], memory_order_relaxed));
    }
    Py_VISIT((PyObject *)atomic_load_explicit(&self->last, memory_order_relaxed));
    return 0;
}

static int dispatcher_clear(py_dispatcher *self)
{
    for (Py_ssize_t i = 0; i < self->signature.param_count; i++) {
        Py_CLEAR(self->signature.defaults[i]);
    }
    for (int i = 0; i < NJ_DEVICES_MAX; i++) {
        Py_XDECREF((PyObject *)atomic_exchange(&self->specs[i], NULL));
    }
    Py_XDECREF((PyObject *)atomic_exchange(&self->last, NULL));
    return 0;
}

static void dispatcher_dealloc(py_dispatcher *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, dispatcher_dealloc);
    dispatcher_clear(self);
    py_signature_clear(&self->signature);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static LARGE PyObject *read_facts(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional,
                                  PyObject *keywords)
{
    py_call call;
    call.seen = NULL;
    if (py_dispatcher_check(self) < 0 ||
        py_bind(&self->signature, (PyObject *)self, NULL, arguments, positional, keywords, &call) < 0 ||
        py_classify(&self->signature, (PyObject *)self, true, &call) < 0) {
        return NULL;
    }
    PyObject *facts = py_call_facts(&self->signature, &call);
    if (facts == NULL) {
        return NULL;
    }
    return call.device == PY_DEVICE_ANY ? Py_BuildValue("(ON)", Py_None, facts)
                                        : Py_BuildValue("(iN)", call.device, facts);
}

static LARGE PyObject *warm(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords)
{
    py_call call;
    nj_launch_state launch;
    py_plan *plan = read_call(self, NULL, NULL, arguments, (size_t)positional, keywords, &call) < 0
                        ? NULL
                        : py_find_plan(self, &call);
    if (plan != NULL && py_plan_pack(plan, &self->signature, &call, &launch) < 0) {
        Py_CLEAR(plan);
    }
    return (PyObject *)plan;
}

/* Calls `use` with the arguments of a call. Gathers `*args` first, as a launch does. */
static PyObject *with_arguments(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords,
                                PyObject *(*use)(py_dispatcher *, PyObject *const *, Py_ssize_t, PyObject *))
{
    if (!py_nest()) {
        return NULL;
    }
    PyObject *result = NULL;
    py_gathered gathered;
    if (self->signature.rest < 0 || self->signature.names == NULL) {
        result = use(self, arguments, positional, keywords);
    } else if (py_gather(&self->signature, arguments, positional, keywords, &gathered) == 0) {
        result = use(self, gathered.values, gathered.positional, gathered.keywords);
        py_gathered_clear(&gathered);
    }
    py_unnest();
    return result;
}

/* Returns (device or None, (arguments, constexprs, options)) of a call. Accepts tensors in host memory. */
static PyObject *dispatcher_facts(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords)
{
    return with_arguments(self, arguments, positional, keywords, read_facts);
}

/* Returns the plan of a call, and encodes the call's tensor maps. The driver has the image then; `Kernel.warmup` puts it on the
 * device. */
static PyObject *dispatcher_warm(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords)
{
    return with_arguments(self, arguments, positional, keywords, warm);
}

/* Up to Python 3.11, a class written in Python does not inherit Py_TPFLAGS_HAVE_VECTORCALL. */
static PyObject *dispatcher_init_subclass(PyObject *cls, PyObject *Py_UNUSED(none))
{
    PyTypeObject *type = (PyTypeObject *)cls;
    if (type->tp_call == PyVectorcall_Call) {
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef dispatcher_methods[] = {
    {"_facts", (PyCFunction)(void (*)(void))dispatcher_facts, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("Return the facts of a call: (device or None, (arguments, constexprs, options)). Launches nothing.")},
    {"_warm", (PyCFunction)(void (*)(void))dispatcher_warm, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("Find the plan of a call. Launches nothing.")},
    {"bind", (PyCFunction)(void (*)(void))py_launcher_bind, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("bind(grid=None, /, **fixed)\n--\n\nFix the grid, and constexprs, options, stream or arguments by name.")},
    {"__init_subclass__", (PyCFunction)dispatcher_init_subclass, METH_NOARGS | METH_CLASS, NULL},
    {NULL},
};

static PyObject *dispatcher_last(py_dispatcher *self, void *Py_UNUSED(closure))
{
    PyObject *plan;
    PY_BEGIN_LOCKED(self);
    plan = Py_XNewRef((PyObject *)atomic_load(&self->last));
    PY_END_LOCKED();
    return plan == NULL ? Py_NewRef(Py_None) : plan;
}

static PyGetSetDef dispatcher_attributes[] = {
    {"_last", (getter)dispatcher_last, NULL, PyDoc_STR("The plan that the last launch ran; None before the first."), NULL},
    {NULL},
};

static PyMemberDef dispatcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_dispatcher, vectorcall), READONLY, NULL},
    {"name", T_OBJECT, offsetof(py_dispatcher, signature.kernel), READONLY, PyDoc_STR("The kernel's name.")},
    {NULL},
};

static PyType_Slot dispatcher_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Launches a kernel; a subclass finds the variants.")},
    {Py_tp_new, dispatcher_new},
    {Py_tp_init, dispatcher_init},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, dispatcher_traverse},
    {Py_tp_clear, dispatcher_clear},
    {Py_tp_dealloc, dispatcher_dealloc},
    {Py_tp_methods, dispatcher_methods},
    {Py_tp_members, dispatcher_members},
    {Py_tp_getset, dispatcher_attributes},
    {Py_mp_subscript, py_launcher_subscript},
    {0, NULL},
};

static PyType_Spec dispatcher_spec = {
    .name = "nojit.runtime._core.Dispatcher",
    .basicsize = sizeof(py_dispatcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = dispatcher_slots,
};

int py_add_dispatcher(PyObject *module)
{
    static const py_named_text texts[] = {{"GRID_RULE", PY_GRID_RULE}, {"GRIDLESS", PY_GRIDLESS}, {NULL}};
    return py_add_texts(module, texts) < 0 ? -1 : py_add_type(module, &dispatcher_spec, &dispatcher_type);
}
