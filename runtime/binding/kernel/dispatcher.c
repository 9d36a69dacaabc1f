/* Kernels as Python calls them: `_core.Dispatcher`, the base of `Kernel`. */
#include "kernel/dispatcher.h"

#include <pthread.h>
#include <structmember.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plan/choose_row.h"
#include "python/exceptions.h"
#include "enqueue/grid.h"
#include "kernel/launcher.h"
#include "plan/py_plan.h"
#include "tensor/tensor.h"
#include "select/choose.h"
#include "python/threads.h"

/* Hooks, allocators, grids and tensors are Python code, which can launch again. Python's own limit allows for more calls
 * than the stack holds of ours. */
#define NESTED_MAX 32
/* What one of ours takes of it at most, with what the driver and Python put upon it. */
#define CALL_BYTES (128 * 1024)
/* A first thread whose stack may grow to so much is not looked at before its calls nest. */
#define AMPLE_BYTES (1024 * 1024)

static PyTypeObject *dispatcher_type;

/* How many calls of this thread are under way. */
static _Thread_local __attribute__((tls_model("initial-exec"))) int nested;

/* Where this thread's stack ends; NULL until it was asked, which for a process's first thread takes reading a file. */
static _Thread_local char *stack_end;

/* Where the stack must not have come yet for a call that is in no other: all there is, until it was looked at. */
static _Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t lowest_call = UINTPTR_MAX;

/* What is left of this thread's stack, in bytes; SIZE_MAX if the platform does not say. */
static size_t stack_left(void)
{
    pthread_attr_t attributes;
    char here;
    size_t size;
    void *lowest;
    if (stack_end == NULL && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &lowest, &size) == 0) {
            stack_end = lowest;
        }
        pthread_attr_destroy(&attributes);
    }
    return stack_end == NULL || &here < stack_end ? SIZE_MAX : (size_t)(&here - stack_end);
}

/* Counts a call in another. */
static __attribute__((noinline, cold)) bool nest_deeper(void)
{
    if (nested >= NESTED_MAX) {
        PyErr_Format(PyExc_RecursionError, "expected at most %d nested calls of kernels: a hook, allocator, grid function or tensor keeps launching", NESTED_MAX);
        return false;
    }
    if (stack_left() < CALL_BYTES) {
        PyErr_Format(PyExc_RecursionError, "expected room on the thread's stack for a call of a kernel nested in %d others",
                     nested);
        return false;
    }
    nested++;
    return true;
}

static bool has_ample_stack(void)
{
    struct rlimit limit;
    bool first = syscall(SYS_gettid) == getpid();
    return first && getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= AMPLE_BYTES;
}

/* Looks at the stack of a thread at its first call, and wherever little is left. */
static __attribute__((noinline, cold)) bool has_room(void)
{
    if (lowest_call == UINTPTR_MAX && has_ample_stack()) {
        lowest_call = 0;
        return true;
    }
    size_t left = stack_left();
    lowest_call = stack_end == NULL ? 0 : (uintptr_t)stack_end + CALL_BYTES;
    if (left < CALL_BYTES) {
        PyErr_Format(PyExc_RecursionError,
                     "expected %d bytes on the thread's stack for a call of a kernel, got %zu: threading.stack_size gives threads more",
                     CALL_BYTES, left);
        return false;
    }
    return true;
}

/* Counts a call; false with RecursionError raised where there are too many. `nested` goes down when it ends. */
static inline bool nest(void)
{
    if (nested > 0) {
        return nest_deeper();
    }
    if ((uintptr_t)__builtin_frame_address(0) < lowest_call && !has_room()) {
        return false;
    }
    nested = 1;
    return true;
}

int py_dispatcher_check(const py_dispatcher *self)
{
    if (self->signature.names == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Dispatcher.__init__ was not called");
        return -1;
    }
    return 0;
}

/* The grid that the bundle gives. What C cannot compute Python words. */
static int default_grid(py_dispatcher *self, const py_plan *plan, const py_call *call, int64_t grid[3])
{
    if (plan->it.grid_count == 0) {
        py_refuse(self->signature.kernel, NULL, NULL,
                  "the bundle has no grid for this kernel: expected kernel[grid](...)");
        return -1;
    }
    int failed = nj_runnable_grid(&plan->it, call->values, grid);
    if (failed < 0) {
        return 0;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    if (facts != NULL) {
        Py_XDECREF(PyObject_CallMethod((PyObject *)self, "_refuse_grid", "OiN", plan, failed, facts));
    }
    return -1;
}

/* The spec of a device, borrowed; asks Python for it at the first call there. */
static py_spec *find_spec(py_dispatcher *self, int device)
{
    if (device >= 0 && device < NJ_DEVICES_MAX) {
        py_spec *known = atomic_load_explicit(&self->specs[device], memory_order_acquire);
        if (known != NULL) {
            return known;
        }
    }
    PyObject *spec = PyObject_CallMethod((PyObject *)self, "_prepare", "i", device);
    if (spec == NULL) {
        return NULL;
    }
    if (!Py_IS_TYPE(spec, py_spec_type) || ((py_spec *)spec)->it.argument_count != (size_t)self->signature.count || device < 0 ||
        device >= NJ_DEVICES_MAX) {
        PyErr_SetString(PyExc_TypeError, "expected a Spec of this kernel for an existing device");
        Py_DECREF(spec);
        return NULL;
    }
    py_spec *there = NULL;
    if (!atomic_compare_exchange_strong(&self->specs[device], &there, (py_spec *)spec)) {
        Py_DECREF(spec); /* another thread was faster */
        return there;
    }
    return (py_spec *)spec;
}

/* Asks Python for the plan of a row; has it say why nothing serves the call where there is none. */
static PyObject *ask_plan(py_dispatcher *self, const py_call *call, Py_ssize_t row)
{
    if (row >= 0) {
        return PyObject_CallMethod((PyObject *)self, "_plan_of", "in", call->device, row);
    }
    PyObject *facts = row == PY_UNSERVED_ROW ? py_call_facts(&self->signature, call) : NULL;
    PyObject *none = facts == NULL ? NULL : PyObject_CallMethod((PyObject *)self, "_refuse", "iN", call->device, facts);
    if (none != NULL) {
        Py_DECREF(none);
        PyErr_SetString(PyExc_SystemError, "expected a reason why no variant serves a call");
    }
    return NULL;
}

/* Has Python note which hints a call just misses that a variant with more of them asks for: 0, or -1 with an exception raised. */
static __attribute__((noinline, cold)) int note_hints(py_dispatcher *self, const py_spec *spec, const py_call *call,
                                                     size_t row, PyObject *plan)
{
    const nj_arguments arguments = {call->values, call->leaves, call->descriptors};
    uint32_t hints;
    if (!nj_near_hints(&spec->it.typing, &arguments, row, &hints)) {
        return 0;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    PyObject *none = facts == NULL ? NULL : PyObject_CallMethod((PyObject *)self, "_note_hints", "OIN", plan, hints, facts);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* Finds the variant that serves a call, and makes its plan. */
static py_plan *resolve(py_dispatcher *self, const py_spec *spec, const py_call *call)
{
    Py_ssize_t row = py_choose_row((PyObject *)self, &self->signature, spec, call);
    PyObject *plan = ask_plan(self, call, row);
    if (plan != NULL && (!Py_IS_TYPE(plan, py_plan_type) || ((py_plan *)plan)->it.ordinal != call->device ||
                         ((py_plan *)plan)->it.argument_count != (size_t)self->signature.count)) {
        PyErr_SetString(PyExc_TypeError, "expected a Plan of this kernel for the call's device");
        Py_CLEAR(plan);
    }
    if (plan != NULL && note_hints(self, spec, call, (size_t)row, plan) < 0) {
        Py_CLEAR(plan);
    }
    return (py_plan *)plan;
}

static int publish(py_spec *spec, const nj_key *key, py_plan *plan)
{
    int status;
    PY_BEGIN_LOCKED(spec);
    status = py_plan_publish(&spec->cache, key, plan);
    PY_END_LOCKED();
    return status;
}

/* Makes the key of a call; false if no plan is kept for it. */
static inline bool make_key(const py_spec *spec, py_call *call, nj_key *key)
{
    const nj_arguments arguments = {call->values, call->leaves, call->descriptors};
    return nj_spec_key(&spec->it, call->values, &arguments, key);
}

/* The plan for a call that has none, new. */
static py_plan *make_plan(py_dispatcher *self, py_spec *spec, py_call *call, nj_key *key, bool cacheable)
{
    if (!cacheable) {
        /* a first call was read before its spec was made, which interned the constexprs that it knows */
        if (py_classify_again(&self->signature, (PyObject *)self, call) < 0) {
            return NULL;
        }
        cacheable = make_key(spec, call, key);
    }
    py_plan *plan = resolve(self, spec, call);
    if (plan != NULL && cacheable && publish(spec, key, plan) < 0) {
        Py_CLEAR(plan);
    }
    return plan;
}

/* The plan for a call, new: found by its key, or made. */
static py_plan *find_plan(py_dispatcher *self, py_call *call)
{
    if (call->device == PY_DEVICE_ANY && (call->device = py_find_current_device()) < 0) {
        return NULL;
    }
    py_spec *spec = find_spec(self, call->device);
    if (spec == NULL) {
        return NULL;
    }
    nj_key key;
    bool cacheable = make_key(spec, call, &key);
    py_plan *plan = cacheable ? nj_cache_find(&spec->cache, &key) : NULL;
    if (plan != NULL) {
        return (py_plan *)Py_NewRef((PyObject *)plan);
    }
    Py_INCREF(spec); /* what Python does may end in anything */
    plan = make_plan(self, spec, call, &key, cacheable);
    Py_DECREF(spec);
    return plan;
}

/* What was given for a call, by name: new. */
static PyObject *given_of(const py_signature *signature, const py_call *call)
{
    PyObject *given = PyDict_New();
    int status = given == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i <= signature->count && status == 0; i++) {
        PyObject *object = call->objects[i == signature->count ? NJ_ARGUMENTS_MAX : i];
        status = object == NULL ? 0 : PyDict_SetItem(given, signature->names[i], object);
    }
    if (status < 0) {
        Py_CLEAR(given);
    }
    return given;
}

/* The grid that a launcher has: a tuple or a callable, new; None stands for the bundle's. */
static PyObject *grid_of(const py_launcher *launcher)
{
    if (launcher == NULL || launcher->kind == PY_GRID_OF_BUNDLE) {
        return Py_NewRef(Py_None);
    }
    const int64_t *grid = launcher->grid;
    return launcher->kind == PY_GRID_CALLABLE
               ? Py_NewRef(launcher->callable)
               : Py_BuildValue("(LLL)", (long long)grid[0], (long long)grid[1], (long long)grid[2]);
}

/* Hands a call that nothing serves over to Python, which may make it in another way; if not, the error stays as it is. */
static __attribute__((noinline, cold)) PyObject *hand_over(py_dispatcher *self, const py_launcher *launcher,
                                                           const py_call *call)
{
    PyObject *error = py_take_miss();
    if (error == NULL) {
        return NULL;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    PyObject *given = facts == NULL ? NULL : given_of(&self->signature, call);
    PyObject *grid = given == NULL ? NULL : grid_of(launcher);
    PyObject *made = grid == NULL ? NULL
                                  : PyObject_CallMethod((PyObject *)self, "_missed", "OiOOO", error, call->device,
                                                        facts, given, grid);
    Py_XDECREF(grid);
    Py_XDECREF(given);
    Py_XDECREF(facts);
    if (made == Py_False) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    }
    Py_DECREF(error);
    Py_XDECREF(made);
    return made == NULL || made == Py_False ? NULL : Py_NewRef(Py_None);
}

/* Binds a call, and says what its arguments are. */
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

/* Keeps what a launch ran. Not inline: most launches run what the last one did. */
static __attribute__((noinline)) void keep_last(py_dispatcher *self, py_plan *plan)
{
    py_plan *before;
    PY_BEGIN_LOCKED(self);
    before = atomic_exchange(&self->last, (py_plan *)Py_NewRef((PyObject *)plan));
    PY_END_LOCKED();
    Py_XDECREF((PyObject *)before);
}

/* What has a large frame is no part of what asks for room on the stack: the frame would be there before the answer is. */
#define LARGE __attribute__((noinline))

static LARGE PyObject *launch(py_dispatcher *self, const py_launcher *launcher, const py_seen *seen,
                              PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    py_call call;
    const py_fixed *fixed = launcher == NULL ? NULL : &launcher->fixed;
    if (read_call(self, fixed, seen, arguments, positional, keywords, &call) < 0) {
        return NULL;
    }
    py_plan *plan = find_plan(self, &call);
    if (plan == NULL) {
        return hand_over(self, launcher, &call);
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

/* Arguments of a kernel with `*args`, with those that it takes as a tuple, given by name behind the keywords. */
typedef struct {
    PyObject **values; /* owned, borrowing all but the tuple, the last */
    PyObject *keywords;
    Py_ssize_t positional;
} py_gathered;

static void drop_gathered(py_gathered *gathered)
{
    if (gathered->keywords != NULL) {
        Py_XDECREF(gathered->values[gathered->positional + PyTuple_GET_SIZE(gathered->keywords) - 1]);
    }
    Py_XDECREF(gathered->keywords);
    PyMem_Free(gathered->values);
}

/* Not inline: few kernels have such a param. */
static __attribute__((noinline)) int gather(const py_signature *signature, PyObject *const *arguments, Py_ssize_t positional,
                                            PyObject *keywords, py_gathered *gathered)
{
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    Py_ssize_t own = positional < signature->rest ? positional : signature->rest;
    *gathered = (py_gathered){.positional = own, .values = PyMem_Calloc((size_t)(own + named) + 1, sizeof *arguments)};
    PyObject *rest = PyTuple_New(positional - own), *names = PyTuple_New(named + 1);
    if (gathered->values == NULL || rest == NULL || names == NULL) {
        Py_XDECREF(rest);
        Py_XDECREF(names);
        PyMem_Free(gathered->values);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = own; i < positional; i++) {
        PyTuple_SET_ITEM(rest, i - own, Py_NewRef(arguments[i]));
    }
    memcpy(gathered->values, arguments, (size_t)own * sizeof *arguments);
    memcpy(gathered->values + own, arguments + positional, (size_t)named * sizeof *arguments);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(keywords, i)));
    }
    PyTuple_SET_ITEM(names, named, Py_NewRef(signature->names[signature->rest]));
    gathered->values[own + named] = rest;
    gathered->keywords = names;
    return 0;
}

PyObject *py_dispatcher_launch(py_dispatcher *self, const py_launcher *launcher, const py_seen *seen,
                               PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    if (!nest()) {
        return NULL;
    }
    PyObject *none = NULL;
    py_gathered gathered;
    if (self->signature.rest < 0 || self->signature.names == NULL) {
        none = launch(self, launcher, seen, arguments, positional, keywords);
    } else if (gather(&self->signature, arguments, PyVectorcall_NARGS(positional), keywords, &gathered) == 0) {
        none = launch(self, launcher, seen, gathered.values, (size_t)gathered.positional, gathered.keywords);
        drop_gathered(&gathered);
    }
    nested--;
    return none;
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

/* (device or None, arguments, constexprs, options) of a call, tensors in host memory included. */
static PyObject *dispatcher_facts(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional,
                                  PyObject *keywords)
{
    if (!nest()) {
        return NULL;
    }
    PyObject *facts = NULL;
    py_gathered gathered;
    if (self->signature.rest < 0 || self->signature.names == NULL) {
        facts = read_facts(self, arguments, positional, keywords);
    } else if (gather(&self->signature, arguments, positional, keywords, &gathered) == 0) {
        facts = read_facts(self, gathered.values, gathered.positional, gathered.keywords);
        drop_gathered(&gathered);
    }
    nested--;
    return facts;
}

static LARGE py_plan *warm(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords)
{
    py_call call;
    nj_launch_state launch;
    py_plan *plan = read_call(self, NULL, NULL, arguments, (size_t)positional, keywords, &call) < 0
                        ? NULL
                        : find_plan(self, &call);
    if (plan != NULL && py_plan_pack(plan, &self->signature, &call, &launch) < 0) {
        Py_CLEAR(plan);
    }
    return plan;
}

/* The plan of a call, found or made, with the tensor maps that it takes: its image is with the driver, and on the device
 * once `Kernel.warmup` loads it. */
static PyObject *dispatcher_warm(py_dispatcher *self, PyObject *const *arguments, Py_ssize_t positional,
                                 PyObject *keywords)
{
    if (!nest()) {
        return NULL;
    }
    py_plan *plan = NULL;
    py_gathered gathered;
    if (self->signature.rest < 0 || self->signature.names == NULL) {
        plan = warm(self, arguments, positional, keywords);
    } else if (gather(&self->signature, arguments, positional, keywords, &gathered) == 0) {
        plan = warm(self, gathered.values, gathered.positional, gathered.keywords);
        drop_gathered(&gathered);
    }
    nested--;
    return (PyObject *)plan;
}

/* Up to Python 3.11 a class written in Python does not inherit the flag that makes calls of it fast. */
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
     PyDoc_STR("Say what a call passes: (device or None, (arguments, constexprs, options)). Launches nothing.")},
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

int py_dispatcher_init(PyObject *module)
{
    dispatcher_type = (PyTypeObject *)PyType_FromSpec(&dispatcher_spec);
    return dispatcher_type == NULL ? -1 : PyModule_AddType(module, dispatcher_type);
}
