#include "plan.h"

#include <structmember.h>

#include "objects.h"
#include "sync.h"

#include "cold.h"

PyTypeObject *nj_plan_type;

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

/* What is read of a plan's arguments; freed when the engine has copied it. */
typedef struct {
    nj_plan_facts facts;
    nj_slot_facts *slots;
    nj_map_facts maps[NJ_DESCRIPTORS_MAX];
} plan_reading;

/* `slots`: (source, leaf, part, index, type) of each parameter of the compiled kernel. */
static int read_slots(plan_reading *reading, PyObject *slots)
{
    Py_ssize_t count = PyTuple_GET_SIZE(slots);
    reading->slots = PyMem_Calloc((size_t)count + 1, sizeof *reading->slots);
    if (reading->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        nj_slot_facts *slot = &reading->slots[i];
        const char *type;
        PyObject *facts = PyTuple_GET_ITEM(slots, i);
        if (!nj_is_tuple(facts, "a tuple for each slot") ||
            !PyArg_ParseTuple(facts, "hhbbs", &slot->source, &slot->leaf, &slot->part, &slot->index, &type)) {
            return -1;
        }
        slot->dtype = *type == '*' || slot->part == NJ_PART_MAP ? NJ_U64 : (uint8_t)nj_dtype_parse(type);
    }
    reading->facts.slots = reading->slots;
    reading->facts.slot_count = (size_t)count;
    return 0;
}

static int read_block(PyObject *block, nj_map_facts *map)
{
    map->rank = (size_t)PyTuple_GET_SIZE(block);
    for (size_t i = 0; i < map->rank && map->rank <= NJ_RANK_MAX; i++) {
        unsigned long size = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(block, (Py_ssize_t)i));
        if (size == (unsigned long)-1 && PyErr_Occurred()) {
            return -1;
        }
        map->box[map->rank - 1 - i] = (uint32_t)size;
    }
    return 0;
}

/* `maps`: (source, leaf, swizzle, element bytes, element type, block, whether 4-bit values are padded) of each. */
static int read_maps(plan_reading *reading, PyObject *maps)
{
    Py_ssize_t count = PyTuple_GET_SIZE(maps);
    for (Py_ssize_t i = 0; i < count && i < NJ_DESCRIPTORS_MAX; i++) {
        nj_map_facts *map = &reading->maps[i];
        PyObject *facts = PyTuple_GET_ITEM(maps, i), *block;
        int padded;
        if (!nj_is_tuple(facts, "the facts of a tensor map") ||
            !PyArg_ParseTuple(facts, "hhiIiO!p", &map->source, &map->leaf, &map->swizzle, &map->element_bytes,
                              &map->element_type, &PyTuple_Type, &block, &padded) ||
            read_block(block, map) < 0) {
            return -1;
        }
        map->fp4_padded = padded;
    }
    reading->facts.maps = reading->maps;
    reading->facts.map_count = (size_t)count;
    return 0;
}

static int read_grid(plan_reading *reading, PyObject *grid)
{
    nj_plan_facts *facts = &reading->facts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(grid) && i < 3; i++) {
        if (nj_program_from_bytes(PyTuple_GET_ITEM(grid, i), (Py_ssize_t)facts->argument_count, &facts->grid[i]) < 0) {
            return -1;
        }
        facts->grid_count++;
    }
    return 0;
}

static void drop_reading(plan_reading *reading)
{
    PyMem_Free(reading->slots);
    for (int i = 0; i < 3; i++) {
        PyMem_Free(reading->facts.grid[i].code);
    }
}

/* Raises what the engine found: -1. */
static int refuse(const nj_plan_object *self, const nj_error *error)
{
    if (error->code == NJ_ERROR_DRIVER) {
        nj_raise_driver(error, self->it.device, self->it.device == NULL ? NULL : self->label);
    } else if (error->code == NJ_ERROR_MEMORY) {
        PyErr_NoMemory();
    } else {
        PyErr_Format(PyExc_ValueError, *error->got == 0 ? "%s" : "%s, got %s", error->what, error->got);
    }
    return -1;
}

static int make(nj_plan_object *self, const nj_plan_facts *facts)
{
    nj_error error;
    bool made;
    Py_BEGIN_ALLOW_THREADS
    made = nj_plan_init(&self->it, facts, &error);
    Py_END_ALLOW_THREADS
    return made ? 0 : refuse(self, &error);
}

static int plan_init(nj_plan_object *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"label",       "function", "device",        "arguments", "slots",          "maps",
                            "grid",        "meta",     "payload",       "block_threads", "num_ctas",   "shared_bytes",
                            "cooperative", "pdl",      "global_scratch", "profile_scratch", NULL};
    PyObject *label, *function, *slots, *maps, *grid, *meta, *payload;
    int cooperative, pdl;
    unsigned long long scratch[4];
    Py_ssize_t arguments;
    plan_reading reading = {0};
    nj_plan_facts *facts = &reading.facts;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OO!inO!O!O!O!OIIIpp(KK)(KK):Plan", names, &label, nj_function_type,
                                     &function, &facts->device, &arguments, &PyTuple_Type, &slots,
                                     &PyTuple_Type, &maps, &PyTuple_Type, &grid, &PyDict_Type, &meta, &payload, &facts->block_threads,
                                     &facts->num_ctas, &facts->shared_bytes, &cooperative, &pdl, &scratch[0],
                                     &scratch[1], &scratch[2], &scratch[3])) {
        return -1;
    }
    self->label = Py_NewRef(label);
    self->meta = Py_NewRef(meta);
    self->payload = Py_NewRef(payload);
    facts->function = ((nj_function_object *)function)->it;
    facts->argument_count = arguments < 0 ? 0 : (size_t)arguments;
    facts->cooperative = cooperative;
    facts->pdl = pdl;
    facts->global_scratch = (nj_scratch){scratch[0], scratch[1]};
    facts->profile_scratch = (nj_scratch){scratch[2], scratch[3]};
    int status = read_slots(&reading, slots) < 0 || read_maps(&reading, maps) < 0 || read_grid(&reading, grid) < 0
                     ? -1
                     : make(self, facts);
    drop_reading(&reading);
    return status;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    nj_plan_object *self = (nj_plan_object *)type->tp_alloc(type, 0);
    if (self != NULL && plan_init(self, args, kwargs) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int plan_traverse(nj_plan_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->label);
    Py_VISIT(self->meta);
    Py_VISIT(self->payload);
    return 0;
}

static int plan_clear(nj_plan_object *self)
{
    Py_CLEAR(self->meta);
    Py_CLEAR(self->payload);
    return 0;
}

static void plan_dealloc(nj_plan_object *self)
{
    PyTypeObject *type = Py_TYPE(self);
    NJ_BEGIN_FREE(self, plan_dealloc);
    plan_clear(self);
    Py_XDECREF(self->label);
    nj_plan_clear(&self->it);
    type->tp_free(self);
    Py_DECREF(type);
    NJ_END_FREE();
}

static PyMemberDef plan_members[] = {
    {"label", T_OBJECT, offsetof(nj_plan_object, label), READONLY, PyDoc_STR("What errors call it: its str.")},
    {"payload", T_OBJECT, offsetof(nj_plan_object, payload), READONLY, PyDoc_STR("What the slow path noted.")},
    {"device", T_INT, offsetof(nj_plan_object, it.ordinal), READONLY, PyDoc_STR("The device that it is bound to.")},
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
    .basicsize = sizeof(nj_plan_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};

int nj_plan_type_init(PyObject *module)
{
    nj_plan_type = (PyTypeObject *)PyType_FromSpec(&plan_spec);
    return nj_plan_type == NULL ? -1 : PyModule_AddType(module, nj_plan_type);
}
