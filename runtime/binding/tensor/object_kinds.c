#include "tensor/object_kinds.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/threads.h"

/* Set once by `py_add_kind_names` under the import lock. */
static PyObject *exchange_api_name, *block_shape_name, *base_name, *data_ptr_name;

/* Hash table of known types, with linear probing; NULL marks a free slot. An entry never changes, so threads read it without a lock.
 * The table owns its types, so that no new type is allocated at the address of a known one. */
#define KNOWN_BITS 10
#define KNOWN_MAX (1 << KNOWN_BITS)
#define KNOWN_PROBES 8
/* Limit of the tables of other versions that a framework links by `prev_api`. */
#define VERSIONS_MAX 16
typedef struct {
    PyTypeObject *type;
    py_kind kind;
    const DLPackExchangeAPI *api;
} known_type;

static _Atomic(known_type *) known_types[KNOWN_MAX];

/* Returns the first slot to probe for a type. Mixes all bits of the address, since types are allocated at round addresses. */
static inline size_t home_of(const PyTypeObject *type)
{
    return (size_t)((uint64_t)(uintptr_t)type * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS));
}

int py_add_kind_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {
        {&exchange_api_name, "__dlpack_c_exchange_api__"},
        {&block_shape_name, "block_shape"},
        {&base_name, "base"},
        {&data_ptr_name, "data_ptr"},
        {NULL},
    };
    return py_intern(wanted);
}

/* Finds the exchange API of DLPack 1 of a type; NULL if it has none. Returns 0, or -1 with an exception raised if the type's capsule is
 * invalid. */
static int find_exchange_api(PyTypeObject *type, const DLPackExchangeAPI **api)
{
    *api = NULL;
    PyObject *capsule = py_optional_attribute((PyObject *)type, exchange_api_name);
    if (capsule == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    const DLPackExchangeAPIHeader *header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    /* the framework keeps the table for the life of the process (dlpack.h) */
    Py_DECREF(capsule);
    if (header == NULL) {
        return -1;
    }
    for (int i = 0; header != NULL && header->version.major != 1; i++) {
        header = i < VERSIONS_MAX ? header->prev_api : NULL;
    }
    *api = (const DLPackExchangeAPI *)header;
    if (*api != NULL && ((*api)->managed_tensor_from_py_object_no_sync == NULL || (*api)->current_work_stream == NULL)) {
        PyErr_SetString(PyExc_ValueError, "the exchange API lacks functions that it must have");
        return -1;
    }
    return 0;
}

static int has_attribute(PyObject *object, PyObject *name)
{
    PyObject *value = py_optional_attribute(object, name);
    int found = value != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(value);
    return found;
}

int py_is_descriptor(PyObject *object)
{
    int found = has_attribute(object, block_shape_name);
    return found > 0 ? has_attribute(object, base_name) : found;
}

/* Finds the kind of an object whose type is not in the table. */
static int learn(PyObject *object, known_type *known)
{
    known->type = Py_TYPE(object);
    known->kind = PY_KIND_OTHER;
    if (find_exchange_api(known->type, &known->api) < 0) {
        return -1;
    }
    if (known->api != NULL) {
        known->kind = PY_KIND_EXCHANGE;
        return 0;
    }
    int found = py_is_descriptor(object);
    if (found > 0) {
        known->kind = PY_KIND_DESCRIPTOR;
    }
    return found < 0 ? -1 : 0;
}

/* Returns 1 if objects of the type can be of different kinds even without a dict, 0 if not, or -1 with an exception raised. */
static int may_differ(const known_type *learnt)
{
    if (learnt->kind == PY_KIND_EXCHANGE) {
        return 0;
    }
    if (learnt->type->tp_getattro != PyObject_GenericGetAttr) { /* a proxy, or a class with __getattr__ */
        return 1;
    }
    /* an object may leave a slot unset */
    return has_attribute((PyObject *)learnt->type, learnt->kind == PY_KIND_DESCRIPTOR ? data_ptr_name : block_shape_name);
}

/* Adds a type to the table, unless its slots are full or another thread has added it. */
static void keep(const known_type *learnt)
{
    known_type *made = PyMem_RawMalloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    *made = *learnt;
    Py_INCREF((PyObject *)made->type);
    size_t at = home_of(made->type);
    for (size_t i = 0; i < KNOWN_PROBES; i++) {
        known_type *there = NULL;
        if (atomic_compare_exchange_strong(&known_types[(at + i) % KNOWN_MAX], &there, made)) {
            return;
        }
        if (there->type == made->type) {
            break;
        }
    }
    Py_DECREF((PyObject *)made->type);
    PyMem_RawFree(made);
}

int py_kind_of(PyObject *object, py_kind *kind, const DLPackExchangeAPI **api)
{
    PyTypeObject *type = Py_TYPE(object);
    size_t home = home_of(type);
    for (size_t i = 0; i < KNOWN_PROBES; i++) {
        const known_type *known = atomic_load_explicit(&known_types[(home + i) % KNOWN_MAX], memory_order_acquire);
        if (known == NULL) {
            break;
        }
        if (known->type == type) {
            *kind = known->kind;
            *api = known->api;
            return 0;
        }
    }
    known_type learnt;
    int differs = learn(object, &learnt) < 0 ? -1 : may_differ(&learnt);
    if (differs < 0) {
        return -1;
    }
    if (differs == 0) {
        keep(&learnt);
    }
    *kind = learnt.kind;
    *api = learnt.api;
    return 0;
}
