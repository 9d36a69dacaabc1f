#include "spec.h"

#include "spec_fields.h"
#include "sync.h"

#include "cold.h"

PyTypeObject *nj_spec_type;

#define WORD_BITS 64
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
    static char *names[] = {"table", "slots", "options", "interner", "programs", "tuning", "bucket", "arch", NULL};
    PyObject *table, *slots, *interner, *programs, *tuning = Py_None;
    Py_ssize_t options;
    int bucket = NJ_BUCKET_EXACT;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!nOO!|Oii:Spec", names, &table, &PyDict_Type, &slots, &options, &interner,
                                     &PyTuple_Type, &programs, &tuning, &bucket, &self->arch)) {
        return -1;
    }
    if (options < 0 || options > NJ_ARGUMENTS_MAX || PyDict_GET_SIZE(slots) > NJ_ARGUMENTS_MAX - options) {
        PyErr_Format(PyExc_ValueError, "expected at most %d params and options, got %zd and %zd", NJ_ARGUMENTS_MAX,
                     PyDict_GET_SIZE(slots), options);
        return -1;
    }
    self->table = Py_NewRef(table);
    self->argument_count = PyDict_GET_SIZE(slots) + options;
    self->fields = PyMem_Calloc((size_t)(self->argument_count + PyTuple_GET_SIZE(programs)) + 1, sizeof *self->fields);
    self->programs = PyMem_Calloc((size_t)PyTuple_GET_SIZE(programs) + 1, sizeof *self->programs);
    if (self->fields == NULL || self->programs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->program_count = PyTuple_GET_SIZE(programs);
    if (nj_spec_read_fields(self, slots, interner) < 0) {
        return -1;
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
    NJ_BEGIN_FREE(self, spec_dealloc);
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
    NJ_END_FREE();
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
