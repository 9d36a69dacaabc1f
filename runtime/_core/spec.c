#include "spec.h"

PyTypeObject *nj_spec_type;

#define WORD_BITS 64
#define TYPES_MAX 60

/* Whether every type is a pointer, None apart. */
static bool takes_addresses(const nj_field *field)
{
    bool any = false;
    for (int i = 0; i < field->type_count; i++) {
        uint16_t tags = field->types[i].tags;
        if (tags != NJ_BIT(NJ_TAG_NONE) && tags != NJ_BIT(NJ_TAG_POINTER)) {
            return false;
        }
        any |= tags == NJ_BIT(NJ_TAG_POINTER);
    }
    return any;
}

static int read_types(nj_field *field, PyObject *types)
{
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    if (count > TYPES_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d types of one param, got %zd", TYPES_MAX, count);
        return -1;
    }
    field->spelled = Py_NewRef(types);
    field->types = PyMem_Calloc((size_t)count + 1, sizeof *field->types);
    field->pointers = PyMem_Calloc(NJ_DTYPE_COUNT, sizeof *field->pointers);
    if (field->types == NULL || field->pointers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(types, i));
        if (text == NULL) {
            return -1;
        }
        field->type_count++;
        if (nj_type_read(text, &field->types[i]) < 0) {
            return -1;
        }
        field->tuple |= field->types[i].tags == NJ_BIT(NJ_TAG_TUPLE);
        if (nj_pointee(text) != NJ_DTYPE_COUNT) {
            field->pointers[nj_pointee(text)] |= UINT64_C(1) << i;
            field->pointers[NJ_DTYPE_NONE] |= UINT64_C(1) << i;
        }
    }
    field->address = takes_addresses(field);
    return 0;
}

static nj_field_kind kind_of(const nj_field *field)
{
    if (field->type_count == 1 && field->types[0].tags == NJ_BIT(NJ_TAG_INT)) {
        return NJ_FIELD_INT;
    }
    return field->pointers[NJ_DTYPE_NONE] != 0 ? NJ_FIELD_POINTER : NJ_FIELD_ANY;
}

/* One of `params`: (types, whether hint 16 matters, whether hint 1 does), or (tag, bits) of a constexpr's default. */
static int read_field(nj_field *field, PyObject *param)
{
    if (PyTuple_Check(param) && PyTuple_GET_SIZE(param) == 3) {
        PyObject *types;
        int hint_16, hint_1;
        if (!PyArg_ParseTuple(param, "O!pp", &PyTuple_Type, &types, &hint_16, &hint_1)) {
            return -1;
        }
        field->hint_16 = hint_16;
        field->hint_1 = hint_1;
        if (read_types(field, types) < 0) {
            return -1;
        }
        field->kind = (uint8_t)kind_of(field);
        return 0;
    }
    int tag;
    long long bits;
    if (!PyArg_ParseTuple(param, "iL", &tag, &bits)) {
        return -1;
    }
    field->kind = NJ_FIELD_CONSTEXPR;
    field->fallback = (nj_value){.tag = (uint8_t)tag, .bits = bits};
    return 0;
}

/* Gives every field its bits, none across two words. */
static int lay_out(nj_spec *self)
{
    unsigned int word = 0, used = 0;
    Py_ssize_t payloads = 0;
    for (Py_ssize_t i = 0; i < self->argument_count + self->program_count; i++) {
        nj_field *field = &self->fields[i];
        unsigned int bits = field->types == NULL ? NJ_MARK_BITS : field->type_count + 2u;
        payloads += field->types == NULL ? 1 : field->tuple ? NJ_LEAF_WORDS_MAX : 0;
        if (used + bits > WORD_BITS) {
            word++;
            used = 0;
        }
        field->word = (uint16_t)word;
        field->shift = (uint8_t)used;
        used += bits;
    }
    self->packed_words = word + 1;
    if (self->packed_words + payloads + self->tuning_count > NJ_KEY_WORDS_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d words of facts that choose a variant, got %zd",
                     NJ_KEY_WORDS_MAX, self->packed_words + payloads + self->tuning_count);
        return -1;
    }
    return 0;
}

static int read_programs(nj_spec *self, PyObject *programs)
{
    for (Py_ssize_t i = 0; i < self->program_count; i++) {
        if (nj_program_from_bytes(PyTuple_GET_ITEM(programs, i), self->argument_count, &self->programs[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int read_tuning(nj_spec *self, PyObject *tuning, int bucket)
{
    if (!PyTuple_Check(tuning)) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of programs, or None, got %s", Py_TYPE(tuning)->tp_name);
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tuning);
    if (bucket < NJ_BUCKET_POW2 || bucket > NJ_BUCKET_SIXTEENTH_POW2) {
        PyErr_Format(PyExc_ValueError, "expected a bucket of 0 to %d, got %d", NJ_BUCKET_SIXTEENTH_POW2, bucket);
        return -1;
    }
    self->bucket = (nj_bucket)bucket;
    self->tuning = PyMem_Calloc((size_t)count + 1, sizeof *self->tuning);
    if (self->tuning == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->tuning_count < count; self->tuning_count++) {
        nj_tuning_key *key = &self->tuning[self->tuning_count];
        if (nj_program_from_bytes(PyTuple_GET_ITEM(tuning, self->tuning_count), self->argument_count,
                                  &key->program) < 0) {
            return -1;
        }
        nj_tuning_key_shorten(key);
    }
    return 0;
}

static int spec_init(nj_spec *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params", "programs", "tuning", "bucket", "table", "arch", NULL};
    PyObject *params, *programs, *tuning = Py_None, *table = NULL;
    int bucket = NJ_BUCKET_EXACT;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|OiOi:Spec", names, &PyTuple_Type, &params, &PyTuple_Type,
                                     &programs, &tuning, &bucket, &table, &self->arch)) {
        return -1;
    }
    self->table = Py_XNewRef(table);
    self->argument_count = PyTuple_GET_SIZE(params);
    self->fields = PyMem_Calloc((size_t)(self->argument_count + PyTuple_GET_SIZE(programs)) + 1, sizeof *self->fields);
    self->programs = PyMem_Calloc((size_t)PyTuple_GET_SIZE(programs) + 1, sizeof *self->programs);
    if (self->fields == NULL || self->programs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->program_count = PyTuple_GET_SIZE(programs);
    if (self->argument_count > NJ_ARGUMENTS_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d params and options, got %zd", NJ_ARGUMENTS_MAX,
                     self->argument_count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->argument_count; i++) {
        if (read_field(&self->fields[i], PyTuple_GET_ITEM(params, i)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < self->program_count; i++) {
        self->fields[self->argument_count + i].kind = NJ_FIELD_CONSTEXPR;
    }
    if (read_programs(self, programs) < 0 || (tuning != Py_None && read_tuning(self, tuning, bucket) < 0)) {
        return -1;
    }
    return lay_out(self);
}

static PyObject *spec_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    nj_spec *self = (nj_spec *)type->tp_alloc(type, 0);
    if (self != NULL && spec_init(self, args, kwargs) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int spec_traverse(nj_spec *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->table);
    return nj_cache_traverse(&self->cache, visit, arg);
}

static int spec_clear(nj_spec *self)
{
    nj_cache_clear(&self->cache);
    return 0;
}

static void spec_dealloc(nj_spec *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    spec_clear(self);
    for (Py_ssize_t i = 0; self->fields != NULL && i < self->argument_count; i++) {
        for (int type = 0; type < self->fields[i].type_count; type++) {
            nj_type_clear(&self->fields[i].types[type]);
        }
        Py_XDECREF(self->fields[i].spelled);
        PyMem_Free(self->fields[i].types);
        PyMem_Free(self->fields[i].pointers);
    }
    for (Py_ssize_t i = 0; i < self->program_count; i++) {
        PyMem_Free(self->programs[i].code);
    }
    for (Py_ssize_t i = 0; i < self->tuning_count; i++) {
        PyMem_Free(self->tuning[i].program.code);
    }
    Py_XDECREF(self->table);
    PyMem_Free(self->fields);
    PyMem_Free(self->programs);
    PyMem_Free(self->tuning);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t spec_length(nj_spec *self)
{
    return (Py_ssize_t)self->cache.used;
}

static PyType_Slot spec_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("The facts that choose a variant on one device, and the plans found so far.")},
    {Py_tp_new, spec_new},
    {Py_tp_traverse, spec_traverse},
    {Py_tp_clear, spec_clear},
    {Py_tp_dealloc, spec_dealloc},
    {Py_sq_length, spec_length},
    {0, NULL},
};

static PyType_Spec spec_spec = {
    .name = "nojit.runtime._core.Spec",
    .basicsize = sizeof(nj_spec),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = spec_slots,
};

int nj_spec_init(PyObject *module)
{
    nj_spec_type = (PyTypeObject *)PyType_FromSpec(&spec_spec);
    return nj_spec_type == NULL ? -1 : PyModule_AddType(module, nj_spec_type);
}
