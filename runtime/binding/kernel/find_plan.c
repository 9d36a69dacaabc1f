#include "kernel/find_plan.h"

#include "call/call_facts.h"
#include "call/classify.h"
#include "driver/py_driver.h"
#include "plan/select_row.h"
#include "python/callbacks.h"
#include "python/threads.h"

#include "select/hint.h"
#include "select/key.h"

/* Returns the spec of a device, borrowed. Asks Python for it at the first call on the device. */
static py_spec *find_spec(py_dispatcher *self, int device)
{
    if (device >= 0 && device < NJ_DEVICES_MAX) {
        py_spec *known = atomic_load_explicit(&self->specs[device], memory_order_acquire);
        if (known != NULL) {
            return known;
        }
    }
    PyObject *spec = py_call_back((PyObject *)self, py_asked._prepare, "(i)", device);
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
        Py_DECREF(spec); /* another thread has stored its spec first */
        return there;
    }
    return (py_spec *)spec;
}

/* Asks Python for the plan of a row. If no row serves the call, asks Python to raise the reason. */
static PyObject *ask_plan(py_dispatcher *self, const py_call *call, Py_ssize_t row)
{
    if (row >= 0) {
        return py_call_back((PyObject *)self, py_asked._plan_of, "(in)", call->device, row);
    }
    PyObject *facts = row == PY_UNSERVED_ROW ? py_call_facts(&self->signature, call) : NULL;
    PyObject *none = facts == NULL ? NULL : py_call_back((PyObject *)self, py_asked._refuse, "(iN)", call->device, facts);
    if (none != NULL) {
        Py_DECREF(none);
        PyErr_SetString(PyExc_SystemError, "expected a reason why no variant serves a call");
    }
    return NULL;
}

/* Tells Python which hints of a variant with more hints the call just misses. Returns 0, or -1 with an exception raised. */
static __attribute__((noinline, cold)) int note_hints(py_dispatcher *self, const py_spec *spec, const py_call *call,
                                                     size_t row, PyObject *plan)
{
    const nj_arguments arguments = {call->values, call->leaves, call->descriptors};
    uint32_t hints;
    if (!nj_near_hints(&spec->it.signatures, &arguments, row, &hints)) {
        return 0;
    }
    PyObject *facts = py_call_facts(&self->signature, call);
    PyObject *none = facts == NULL ? NULL : py_call_back((PyObject *)self, py_asked._note_hints, "(OIN)", plan, hints, facts);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

/* Selects the variant that serves a call and makes its plan. Returns a new reference. */
static py_plan *resolve(py_dispatcher *self, const py_spec *spec, const py_call *call)
{
    Py_ssize_t row = py_select_row((PyObject *)self, &self->signature, spec, call);
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

/* Caches a plan under a key; the cache takes its own reference. Returns 0, or -1 with an exception raised. */
static int publish(py_spec *spec, const nj_key *key, py_plan *plan)
{
    bool published, taken = false;
    PY_BEGIN_LOCKED(spec);
    published = nj_plan_cache_publish(&spec->cache, key, plan, &taken);
    if (published && taken) {
        Py_INCREF(plan);
    }
    PY_END_LOCKED();
    if (!published) {
        PyErr_NoMemory();
    }
    return published ? 0 : -1;
}

/* Makes the key of a call. Returns false if the plan of such a call is not cached. */
static inline bool make_key(const py_spec *spec, py_call *call, nj_key *key)
{
    const nj_arguments arguments = {call->values, call->leaves, call->descriptors};
    return nj_spec_key(&spec->it, call->values, &arguments, key);
}

/* Makes the plan of a call that has none in the cache. Returns a new reference. */
static py_plan *make_plan(py_dispatcher *self, py_spec *spec, py_call *call, nj_key *key, bool cacheable)
{
    if (!cacheable) {
        /* making the spec interned the table's constexprs, and the first call was classified before that */
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

py_plan *py_find_plan(py_dispatcher *self, py_call *call)
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
    py_plan *plan = cacheable ? nj_plan_cache_find(&spec->cache, &key) : NULL;
    if (plan != NULL) {
        return (py_plan *)Py_NewRef((PyObject *)plan);
    }
    Py_INCREF(spec); /* Python code below may drop the kernel's reference */
    plan = make_plan(self, spec, call, &key, cacheable);
    Py_DECREF(spec);
    return plan;
}
