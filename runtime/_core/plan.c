#include "plan.h"

#include <structmember.h>

#include "objects.h"

#include "cold.h"

PyTypeObject *nj_plan_type;

/* Of a block, static and dynamic together: a launch that takes more has to ask for it. */
#define USUAL_SHARED_BYTES (48 * 1024)
#define PORTABLE_CLUSTER_MAX 8

int nj_program_from_bytes(PyObject *bytes, Py_ssize_t slots, nj_program *program)
{
    if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) % (Py_ssize_t)sizeof(nj_instruction) != 0) {
        PyErr_SetString(PyExc_ValueError, "expected the bytes of a program");
        return -1;
    }
    size_t length = (size_t)PyBytes_GET_SIZE(bytes) / sizeof(nj_instruction);
    nj_instruction *code = PyMem_Malloc((size_t)PyBytes_GET_SIZE(bytes) + 1);
    if (code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(code, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    if (!nj_program_valid(code, length, (size_t)slots)) {
        PyMem_Free(code);
        PyErr_SetString(PyExc_ValueError, "expected a program that stays within its stack and its slots");
        return -1;
    }
    *program = (nj_program){(uint32_t)length, code};
    return 0;
}

static nj_packing packing_of(const nj_slot *slot)
{
    if (slot->source < 0) {
        return NJ_PACK_SCRATCH;
    }
    if (slot->leaf >= 0 || slot->part != NJ_PART_VALUE) {
        return NJ_PACK_OTHER;
    }
    return slot->dtype == NJ_FP16 || slot->dtype == NJ_BF16 || slot->dtype == NJ_FP32 ? NJ_PACK_FLOAT : NJ_PACK_BITS;
}

static bool is_slot(const nj_plan *self, const nj_slot *slot)
{
    bool map = slot->part == NJ_PART_MAP;
    return slot->dtype <= NJ_FP64 && slot->source >= NJ_SOURCE_PROFILE_SCRATCH && slot->source < self->argument_count &&
           slot->leaf >= -1 && slot->leaf < NJ_LEAVES_MAX && slot->part <= NJ_PART_ROUNDS_TF32 &&
           slot->index < (map ? self->map_count : NJ_RANK_MAX);
}

/* `slots`: (source, leaf, part, index, type) of each parameter of the compiled kernel. */
static int read_slots(nj_plan *self, PyObject *slots)
{
    Py_ssize_t count = PyTuple_GET_SIZE(slots);
    self->slots = PyMem_Calloc((size_t)count + 1, sizeof *self->slots);
    if (self->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (count > NJ_ARGUMENTS_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d slots, got %zd", NJ_ARGUMENTS_MAX, count);
        return -1;
    }
    self->slot_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        nj_slot *slot = &self->slots[i];
        const char *type;
        PyObject *facts = PyTuple_GET_ITEM(slots, i);
        if (!nj_is_tuple(facts, "a tuple for each slot") ||
            !PyArg_ParseTuple(facts, "hhbbs", &slot->source, &slot->leaf, &slot->part,
                              &slot->index, &type)) {
            return -1;
        }
        slot->dtype = *type == '*' || slot->part == NJ_PART_MAP ? NJ_U64 : (uint8_t)nj_dtype_parse(type);
        if (!is_slot(self, slot)) {
            PyErr_Format(PyExc_ValueError, "expected a slot of a known source and type, got %d and %s", slot->source,
                         type);
            return -1;
        }
        slot->packing = (uint8_t)packing_of(slot);
    }
    return 0;
}

static int read_maps(nj_plan *self, PyObject *maps)
{
    Py_ssize_t count = PyTuple_GET_SIZE(maps);
    if (count > NJ_DESCRIPTORS_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d tensor maps, got %zd", NJ_DESCRIPTORS_MAX, count);
        return -1;
    }
    self->maps = count == 0 ? NULL : PyMem_Calloc((size_t)count, sizeof *self->maps);
    if (count != 0 && self->maps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->map_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (nj_map_read(PyTuple_GET_ITEM(maps, i), self->argument_count, &self->maps[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int read_grid(nj_plan *self, PyObject *grid)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(grid) && i < 3; i++) {
        if (nj_program_from_bytes(PyTuple_GET_ITEM(grid, i), self->argument_count, &self->grid[i]) < 0) {
            return -1;
        }
        self->grid_count++;
    }
    return 0;
}

static void add_number(nj_plan *self, int id, int number)
{
    self->attributes[self->attribute_count++] = (CUlaunchAttribute){.id = id, .value.number = number};
}

/* As Triton launches: a cluster spreads over as many SMs as it can. */
static void set_attributes(nj_plan *self, bool cooperative, bool pdl)
{
    if (cooperative) {
        add_number(self, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
    }
    if (pdl) {
        add_number(self, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1);
    }
    if (self->num_ctas > 1) {
        add_number(self, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                   CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
        self->attributes[self->attribute_count++] = (CUlaunchAttribute){
            .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {self->num_ctas, 1, 1}};
    }
}

static nj_outcome set_attribute(const nj_plan *plan, int attribute, int value)
{
    return NJ_TRY(cuKernelSetAttribute, attribute, value, plan->function->handle, plan->device->handle);
}

/* Whether a launch with so many bytes of dynamic shared memory has to ask for them. */
static bool is_unusual(const nj_function *function, unsigned int dynamic_bytes)
{
    return (uint64_t)dynamic_bytes + function->shared_bytes > USUAL_SHARED_BYTES;
}

/* Asks for dynamic shared memory; the L1 cache then gives up all it can, as Triton has it. */
static nj_outcome raise_shared(const nj_plan *plan, int bytes, nj_limits *limits)
{
    nj_outcome outcome = set_attribute(plan, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
    if (outcome.call == NULL) {
        outcome = set_attribute(plan, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    }
    if (outcome.call == NULL) {
        limits->shared_bytes = bytes;
    }
    return outcome;
}

/* Where they are lost, to what every plan of the function needs: each sees only that the limits were raised since. */
static nj_outcome raise_limits(const nj_plan *plan, bool lost, nj_limits *limits)
{
    nj_outcome outcome = NJ_SUCCESS;
    int bytes = (int)plan->shared_bytes > limits->shared_bytes ? (int)plan->shared_bytes : limits->shared_bytes;
    if (is_unusual(plan->function, (unsigned int)bytes) && (lost || bytes > limits->shared_bytes)) {
        outcome = raise_shared(plan, bytes, limits);
    }
    bool wide = limits->wide || plan->num_ctas > PORTABLE_CLUSTER_MAX;
    if (outcome.call == NULL && wide && (lost || !limits->wide)) {
        outcome = set_attribute(plan, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
        limits->wide |= outcome.call == NULL;
    }
    return outcome;
}

nj_outcome nj_plan_prepare(const nj_plan *plan, bool lost)
{
    nj_outcome outcome = NJ_SUCCESS;
    if (!plan->limited) {
        return outcome;
    }
    NJ_BEGIN_LOCKED(plan->function);
    nj_limits *limits = &plan->function->limits[plan->ordinal];
    unsigned int epoch = atomic_load(&plan->device->epoch);
    outcome = raise_limits(plan, lost || atomic_load(&limits->epoch) != epoch, limits);
    if (outcome.call == NULL) {
        atomic_store(&limits->epoch, epoch);
    }
    NJ_END_LOCKED();
    return outcome;
}

static bool is_align(const nj_scratch *scratch)
{
    return scratch->bytes == 0 || (scratch->align != 0 && (scratch->align & (scratch->align - 1)) == 0);
}

static int check_numbers(const nj_plan *self)
{
    if (self->block_threads == 0 || self->block_threads > 2048 || self->num_ctas == 0 || self->num_ctas > 16 ||
        self->shared_bytes > 1u << 20 || !is_align(&self->global_scratch) || !is_align(&self->profile_scratch)) {
        PyErr_SetString(PyExc_ValueError, "expected the launch facts of a variant");
        return -1;
    }
    return 0;
}

static int plan_init(nj_plan *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"label",       "function", "device",        "arguments", "slots",          "maps",
                            "grid",        "meta",     "payload",       "block_threads", "num_ctas",   "shared_bytes",
                            "cooperative", "pdl",      "global_scratch", "profile_scratch", "outhinted", NULL};
    PyObject *label, *function, *slots, *maps, *grid, *meta, *payload;
    int cooperative, pdl, outhinted;
    unsigned long long scratch[4];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OO!inO!O!O!O!OIIIpp(KK)(KK)p:Plan", names, &label, nj_function_type,
                                     &function, &self->ordinal, &self->argument_count, &PyTuple_Type, &slots,
                                     &PyTuple_Type, &maps, &PyTuple_Type, &grid, &PyDict_Type, &meta, &payload, &self->block_threads,
                                     &self->num_ctas, &self->shared_bytes, &cooperative, &pdl, &scratch[0],
                                     &scratch[1], &scratch[2], &scratch[3], &outhinted)) {
        return -1;
    }
    self->outhinted = outhinted;
    self->global_scratch = (nj_scratch){scratch[0], scratch[1]};
    self->profile_scratch = (nj_scratch){scratch[2], scratch[3]};
    self->label = Py_NewRef(label);
    self->meta = Py_NewRef(meta);
    self->payload = Py_NewRef(payload);
    self->function = (nj_function *)Py_NewRef(function);
    if (check_numbers(self) < 0 || read_maps(self, maps) < 0 || read_slots(self, slots) < 0 || read_grid(self, grid) < 0) {
        return -1;
    }
    set_attributes(self, cooperative, pdl);
    self->limited = is_unusual(self->function, self->shared_bytes) || self->num_ctas > PORTABLE_CLUSTER_MAX;
    self->device = nj_need_device(self->ordinal);
    return self->device == NULL ? -1 : nj_check(nj_plan_prepare(self, false), self->device, label);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    nj_plan *self = (nj_plan *)type->tp_alloc(type, 0);
    if (self != NULL && plan_init(self, args, kwargs) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int plan_traverse(nj_plan *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->label);
    Py_VISIT(self->meta);
    Py_VISIT(self->payload);
    return 0;
}

static int plan_clear(nj_plan *self)
{
    Py_CLEAR(self->meta);
    Py_CLEAR(self->payload);
    return 0;
}

static void plan_dealloc(nj_plan *self)
{
    PyTypeObject *type = Py_TYPE(self);
    NJ_BEGIN_FREE(self, plan_dealloc);
    plan_clear(self);
    Py_XDECREF(self->label);
    Py_XDECREF(self->function);
    PyMem_Free(self->slots);
    for (Py_ssize_t i = 0; i < self->map_count; i++) {
        nj_map_clear(&self->maps[i]);
    }
    PyMem_Free(self->maps);
    for (int i = 0; i < 3; i++) {
        PyMem_Free(self->grid[i].code);
    }
    type->tp_free(self);
    Py_DECREF(type);
    NJ_END_FREE();
}

static PyMemberDef plan_members[] = {
    {"label", T_OBJECT, offsetof(nj_plan, label), READONLY, PyDoc_STR("What errors call it: its str.")},
    {"payload", T_OBJECT, offsetof(nj_plan, payload), READONLY, PyDoc_STR("What the slow path noted.")},
    {"device", T_INT, offsetof(nj_plan, ordinal), READONLY, PyDoc_STR("The device that it is bound to.")},
    {NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A variant bound to a device, ready to launch.")},
    {Py_tp_new, plan_new},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_clear, plan_clear},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_members, plan_members},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "nojit.runtime._core.Plan",
    .basicsize = sizeof(nj_plan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

int nj_plan_init(PyObject *module)
{
    nj_plan_type = (PyTypeObject *)PyType_FromSpec(&plan_spec);
    return nj_plan_type == NULL ? -1 : PyModule_AddType(module, nj_plan_type);
}
