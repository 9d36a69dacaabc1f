/* A framework for the tests: tensors at any address of any device, reached through DLPack's C exchange API.
 *
 * The declarations are our own reading of DLPack 1.3 and share nothing with the runtime's, so that a mistake there shows. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 8, DEVICES_MAX = 8, CUDA = 2, LOG_MAX = 4096 };

struct dl_device {
    int32_t type, id;
};

struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_version {
    uint32_t major, minor;
};

struct dl_managed {
    struct dl_version version;
    void *context;
    void (*deleter)(struct dl_managed *);
    uint64_t flags;
    struct dl_tensor tensor;
};

struct dl_api {
    struct dl_version version;
    struct dl_api *previous;
    int (*allocate)(struct dl_tensor *, struct dl_managed **, void *, void (*)(void *, const char *, const char *));
    int (*export_managed)(void *, struct dl_managed **);
    int (*import_managed)(struct dl_managed *, void **);
    int (*export_tensor)(void *, struct dl_tensor *);
    int (*current_stream)(int32_t, int32_t, void **);
};

typedef struct {
    PyObject_HEAD
    struct dl_tensor tensor;
    int64_t shape[DIMS_MAX], strides[DIMS_MAX];
} Tensor;

struct allocation {
    uint64_t address, bytes;
    int device;
    /* the device's current one when it was made: freed memory may be handed out again to work on that stream only */
    void *stream;
    int freed;
};

static const uint64_t FIRST_ADDRESS = 0x600000000000u;

/* `lock` guards the allocations, for DLPack lets the allocator run without the GIL; the rest is atomic, for Pythons that
 * have none */
static struct {
    _Atomic(void *) stream[DEVICES_MAX];
    atomic_long exports, streams;
    long allocated, freed;
    _Atomic uint64_t next_address;
    struct allocation log[LOG_MAX];
    atomic_int fail_export, fail_stream, fail_allocate;
} fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    const char *name;
    struct dl_type type;
} dtypes[] = {
    {"bool", {6, 8, 1}},      {"int8", {0, 8, 1}},           {"int16", {0, 16, 1}},
    {"int32", {0, 32, 1}},    {"int64", {0, 64, 1}},         {"uint8", {1, 8, 1}},
    {"uint16", {1, 16, 1}},   {"uint32", {1, 32, 1}},        {"uint64", {1, 64, 1}},
    {"float16", {2, 16, 1}},  {"float32", {2, 32, 1}},       {"float64", {2, 64, 1}},
    {"bfloat16", {4, 16, 1}}, {"complex64", {5, 64, 1}},     {"float8_e4m3fn", {10, 8, 1}},
    {"float8_e5m2", {12, 8, 1}}, {"float8_e4m3fnuz", {11, 8, 1}}, {"float8_e5m2fnuz", {13, 8, 1}},
    {"float32x4", {2, 32, 4}},
};

static int parse_dtype(const char *name, struct dl_type *out) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = dtypes[i].type;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "no dtype %s", name);
    return -1;
}

/* --- the tensor type --- */

static int read_dims(PyObject *tuple, int64_t *out, int *count) {
    Py_ssize_t size = PyTuple_Size(tuple);
    if (size < 0 || size > DIMS_MAX) {
        PyErr_SetString(PyExc_ValueError, "expected a tuple of at most 8 dimensions");
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++)
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    *count = (int)size;
    return PyErr_Occurred() ? -1 : 0;
}

static int tensor_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"address", "dtype", "shape", "device", "strides", "byte_offset", "device_type", NULL};
    Tensor *self = (Tensor *)object;
    unsigned long long address, byte_offset = 0;
    const char *dtype = "float16";
    PyObject *shape = NULL, *strides = NULL;
    int device = 0, device_type = CUDA, count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|sO!iO!Ki", names, &address, &dtype, &PyTuple_Type, &shape,
                                     &device, &PyTuple_Type, &strides, &byte_offset, &device_type))
        return -1;
    struct dl_tensor *tensor = &self->tensor;
    *tensor = (struct dl_tensor){(void *)(uintptr_t)address, {device_type, device}, 1, {0, 0, 0}, self->shape, NULL,
                                 byte_offset};
    self->shape[0] = 1;
    if (parse_dtype(dtype, &tensor->dtype) < 0 || (shape && read_dims(shape, self->shape, &tensor->ndim) < 0))
        return -1;
    if (strides) {
        if (read_dims(strides, self->strides, &count) < 0)
            return -1;
        tensor->strides = self->strides;
    }
    return 0;
}

static PyObject *tensor_repr(PyObject *object) {
    const struct dl_tensor *tensor = &((Tensor *)object)->tensor;
    return PyUnicode_FromFormat("faketorch.Tensor(%p, device=%d)", tensor->data, tensor->device.id);
}

static PyType_Slot tensor_slots[] = {
    {Py_tp_init, tensor_init}, {Py_tp_new, PyType_GenericNew}, {Py_tp_repr, tensor_repr}, {0, NULL},
};

/* --- the exchange API --- */

static int export_tensor(void *object, struct dl_tensor *out) {
    fake.exports++;
    if (fake.fail_export) {
        PyErr_SetString(PyExc_BufferError, "faketorch was told to fail");
        return -1;
    }
    *out = ((Tensor *)object)->tensor;
    return 0;
}

static void drop_view(struct dl_managed *self) {
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)self->context);
    PyGILState_Release(gil);
    free(self);
}

static int export_managed(void *object, struct dl_managed **out) {
    struct dl_managed *view = calloc(1, sizeof *view);
    if (!view || export_tensor(object, &view->tensor) < 0) {
        free(view);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return -1;
    }
    view->version = (struct dl_version){1, 3};
    view->context = Py_NewRef((PyObject *)object);
    view->deleter = drop_view;
    *out = view;
    return 0;
}

static int import_managed(struct dl_managed *tensor, void **out) {
    (void)tensor, (void)out;
    PyErr_SetString(PyExc_NotImplementedError, "faketorch imports nothing");
    return -1;
}

static int current_stream(int32_t type, int32_t id, void **out) {
    fake.streams++;
    if (fake.fail_stream || id < 0 || id >= DEVICES_MAX) {
        PyErr_SetString(PyExc_RuntimeError, "faketorch was told to fail");
        return -1;
    }
    *out = type == CUDA ? fake.stream[id] : NULL;
    return 0;
}

/* The allocation that holds an address, freed or not; NULL if it was never one. */
static struct allocation *find_allocation(uint64_t address) {
    for (long i = fake.allocated - 1; i >= 0 && i >= fake.allocated - LOG_MAX; i--) {
        struct allocation *entry = &fake.log[i % LOG_MAX];
        if (address >= entry->address && address < entry->address + entry->bytes)
            return entry;
    }
    return NULL;
}

/* Record an allocation. No address is ever given twice, so that one which was freed is known for ever. */
static uint64_t add_allocation(uint64_t bytes, int device) {
    pthread_mutex_lock(&lock);
    uint64_t address = fake.next_address;
    fake.next_address += (bytes + 1023) / 512 * 512;
    fake.log[fake.allocated++ % LOG_MAX] = (struct allocation){address, bytes, device, fake.stream[device], 0};
    pthread_mutex_unlock(&lock);
    return address;
}

static void drop_allocation(struct dl_managed *self) {
    pthread_mutex_lock(&lock);
    fake.freed++;
    struct allocation *entry = find_allocation((uint64_t)(uintptr_t)self->tensor.data);
    if (entry)
        entry->freed = 1;
    pthread_mutex_unlock(&lock);
    free(self->tensor.shape);
    free(self);
}

/* As a caching allocator does: every address is aligned to 512, and freed memory stays good on the stream. */
static int allocate(struct dl_tensor *prototype, struct dl_managed **out, void *error_context,
                    void (*set_error)(void *, const char *, const char *)) {
    struct dl_managed *view = fake.fail_allocate ? NULL : calloc(1, sizeof *view);
    int64_t *shape = calloc((size_t)prototype->ndim + 1, sizeof *shape);
    int device = prototype->device.id;
    if (!view || !shape || prototype->device.type != CUDA || device < 0 || device >= DEVICES_MAX) {
        free(view);
        free(shape);
        set_error(error_context, "MemoryError", "faketorch is out of memory");
        return -1;
    }
    uint64_t bytes = (uint64_t)prototype->dtype.bits * prototype->dtype.lanes / 8;
    for (int i = 0; i < prototype->ndim; i++)
        bytes *= (uint64_t)(shape[i] = prototype->shape[i]);
    uint64_t address = add_allocation(bytes, device);
    *view = (struct dl_managed){{1, 3}, NULL, drop_allocation, 0, *prototype};
    view->tensor.data = (void *)(uintptr_t)address;
    view->tensor.shape = shape;
    view->tensor.strides = NULL;
    view->tensor.byte_offset = 0;
    *out = view;
    return 0;
}

static struct dl_api api = {{1, 3}, NULL, allocate, export_managed, import_managed, export_tensor, current_stream};
/* a type of DLPack 2 that still offers the table of version 1 behind it */
static struct dl_api newer_api = {{2, 0}, &api, NULL, NULL, NULL, NULL, NULL};
/* a type that has only DLPack 2, whose table nobody here can read */
static struct dl_api foreign_api = {{2, 0}, NULL, NULL, NULL, NULL, NULL, NULL};
/* the quick export is optional */
static struct dl_api slow_api = {{1, 3}, NULL, allocate, export_managed, import_managed, NULL, current_stream};

/* What is wrong with a launch on `stream` of `device` that is handed `address`; a `fake_watch` of the fake driver. */
static const char *problem_with(uint64_t address, int device, uint64_t stream) {
    if (address < FIRST_ADDRESS || address >= fake.next_address)
        return NULL;
    pthread_mutex_lock(&lock);
    const struct allocation *entry = find_allocation(address);
    const char *problem = !entry                                         ? "scratch memory that nobody allocated"
                          : entry->freed                                 ? "scratch memory that was freed"
                          : entry->device != device                      ? "scratch memory of another device"
                          : (uint64_t)(uintptr_t)entry->stream != stream ? "scratch memory of another stream"
                                                                         : NULL;
    pthread_mutex_unlock(&lock);
    return problem;
}

/* --- control --- */

static PyObject *watch(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    const char *(*function)(uint64_t, int, uint64_t) = problem_with;
    void *address;
    memcpy(&address, &function, sizeof address);
    return PyLong_FromVoidPtr(address);
}

static PyObject *set_stream(PyObject *module, PyObject *args) {
    (void)module;
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "iK", &device, &stream))
        return NULL;
    if (device < 0 || device >= DEVICES_MAX)
        return PyErr_Format(PyExc_ValueError, "no device %d", device);
    fake.stream[device] = (void *)(uintptr_t)stream;
    Py_RETURN_NONE;
}

static PyObject *counts(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return Py_BuildValue("{s:l,s:l,s:l,s:l}", "exports", (long)fake.exports, "streams", (long)fake.streams,
                         "allocated", fake.allocated, "freed", fake.freed);
}

/* A list with an item for each allocation that is still recorded, oldest first. */
static PyObject *list_allocations(PyObject *(*item_of)(const struct allocation *)) {
    PyObject *list = PyList_New(0);
    for (long i = fake.allocated > LOG_MAX ? fake.allocated - LOG_MAX : 0; list && i < fake.allocated; i++) {
        PyObject *item = item_of(&fake.log[i % LOG_MAX]);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *place_of(const struct allocation *entry) {
    return Py_BuildValue("(KKi)", (unsigned long long)entry->address, (unsigned long long)entry->bytes,
                         entry->device);
}

static PyObject *stream_of(const struct allocation *entry) { return PyLong_FromVoidPtr(entry->stream); }

static PyObject *allocations(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return list_allocations(place_of);
}

static PyObject *allocation_streams(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return list_allocations(stream_of);
}

static PyObject *fail(PyObject *module, PyObject *args) {
    (void)module;
    const char *what;
    int on = 1;
    if (!PyArg_ParseTuple(args, "s|p", &what, &on))
        return NULL;
    atomic_int *flag = !strcmp(what, "export")     ? &fake.fail_export
                       : !strcmp(what, "stream")   ? &fake.fail_stream
                       : !strcmp(what, "allocate") ? &fake.fail_allocate
                                                   : NULL;
    if (!flag)
        return PyErr_Format(PyExc_ValueError, "expected export, stream or allocate, got %s", what);
    *flag = on;
    Py_RETURN_NONE;
}

static PyObject *reset(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    uint64_t next = fake.next_address;
    memset(&fake, 0, sizeof fake);
    fake.next_address = next;
    Py_RETURN_NONE;
}

static PyObject *take(PyObject *module, PyObject *const *arguments, Py_ssize_t number) {
    (void)module, (void)arguments, (void)number;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_stream", set_stream, METH_VARARGS, "set_stream(device, handle): what current_work_stream gives for it."},
    {"counts", counts, METH_NOARGS, "How often tensors were exported, streams asked for, scratch allocated and freed."},
    {"allocations", allocations, METH_NOARGS, "(address, bytes, device) of each allocation."},
    {"allocation_streams", allocation_streams, METH_NOARGS, "The stream that was current at each allocation."},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, "Take any arguments and do nothing."},
    {"watch", watch, METH_NOARGS, "The address of a function that the fake driver can ask about launched addresses."},
    {"fail", fail, METH_VARARGS, "fail(what, on=True): make 'export', 'stream' or 'allocate' fail."},
    {"reset", reset, METH_NOARGS, "Forget counts, streams and failures."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, struct dl_api *table) {
    PyType_Spec spec = {.name = name, .basicsize = sizeof(Tensor), .slots = tensor_slots,
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE};
    PyObject *type = PyType_FromSpec(&spec);
    PyObject *capsule = type ? PyCapsule_New(table, "dlpack_exchange_api", NULL) : NULL;
    int code = -1;
    if (capsule && PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule) == 0)
        code = PyModule_AddObjectRef(module, strrchr(name, '.') + 1, type);
    Py_XDECREF(capsule);
    Py_XDECREF(type);
    return code;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "faketorch", "A framework without a GPU.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_faketorch(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    fake.next_address = FIRST_ADDRESS;
    if (add_type(module, "faketorch.Tensor", &api) < 0 || add_type(module, "faketorch.NewerTensor", &newer_api) < 0 ||
        add_type(module, "faketorch.ForeignTensor", &foreign_api) < 0 ||
        add_type(module, "faketorch.SlowTensor", &slow_api) < 0)
        Py_CLEAR(module);
    return module;
}
