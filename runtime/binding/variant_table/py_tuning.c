#include "variant_table/py_tuning.h"

#include "gpu/py_driver.h"
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "variant_table/py_table.h"

#include "select/costs.h"
#include "select/spec.h"

static PyTypeObject *tuning_type;

/* Takes a tuple of at most so many; false with an exception raised. */
static bool is_tuple(PyObject *object, Py_ssize_t most)
{
    if (!py_is_tuple(object, "a tuple")) {
        return false;
    }
    if (PyTuple_GET_SIZE(object) > most) {
        PyErr_Format(PyExc_ValueError, "expected at most %zd items, got %zd", most, PyTuple_GET_SIZE(object));
        return false;
    }
    return true;
}

/* Reads a tuple of ints from 0; NULL with an exception raised. */
static uint32_t *read_numbers(PyObject *numbers, py_pile **pile, uint32_t *count)
{
    uint32_t *made = is_tuple(numbers, UINT32_MAX) ? py_pile_take(pile, (size_t)PyTuple_GET_SIZE(numbers) * sizeof *made) : NULL;
    *count = made == NULL ? 0 : (uint32_t)PyTuple_GET_SIZE(numbers);
    for (uint32_t i = 0; i < *count; i++) {
        unsigned long number = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(numbers, i));
        if (PyErr_Occurred() || number > UINT32_MAX) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "expected numbers of 32 bits");
            return NULL;
        }
        made[i] = (uint32_t)number;
    }
    return made;
}

/* Reads as many ints of 63 bits as a key has, which is not checked here. */
static bool read_point(PyObject *numbers, int64_t *point, uint32_t count)
{
    if (!py_is_tuple(numbers, "a tuple of numbers")) {
        return false;
    }
    if (PyTuple_GET_SIZE(numbers) != (Py_ssize_t)count) {
        PyErr_Format(PyExc_ValueError, "expected %u numbers, got %zd", count, PyTuple_GET_SIZE(numbers));
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        point[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
        if (point[i] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "expected numbers from 0");
            }
            return false;
        }
    }
    return true;
}

/* Reads measured problems. */
static bool read_problems(PyObject *at, PyObject *use, PyObject *behind, uint32_t key_count, py_pile **pile, nj_tuning_block *block)
{
    if (!is_tuple(at, UINT32_MAX) || !is_tuple(use, PyTuple_GET_SIZE(at)) || !is_tuple(behind, PyTuple_GET_SIZE(at)) ||
        PyTuple_GET_SIZE(use) != PyTuple_GET_SIZE(at) || PyTuple_GET_SIZE(behind) != PyTuple_GET_SIZE(at)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "expected columns of one length");
        }
        return false;
    }
    uint32_t count = (uint32_t)PyTuple_GET_SIZE(at);
    nj_problem *problems = py_pile_take(pile, count * sizeof *problems);
    int64_t *points = problems == NULL ? NULL : py_pile_take(pile, (size_t)count * key_count * sizeof *points);
    bool read = points != NULL;
    for (uint32_t i = 0; read && i < count; i++) {
        uint32_t others = 0;
        problems[i].at = points + (size_t)i * key_count;
        read = read_point(PyTuple_GET_ITEM(at, i), points + (size_t)i * key_count, key_count) &&
               (problems[i].configs = read_numbers(PyTuple_GET_ITEM(use, i), pile, &problems[i].count)) != NULL &&
               (problems[i].behind = read_numbers(PyTuple_GET_ITEM(behind, i), pile, &others)) != NULL;
        if (read && others != problems[i].count) {
            PyErr_SetString(PyExc_ValueError, "expected as many numbers as configs");
            read = false;
        }
    }
    block->problem_count = count;
    block->problems = problems;
    return read;
}

/* Reads pairs of a config and a cost. */
static bool read_costs(PyObject *costs, py_pile **pile, nj_tuning_block *block)
{
    if (!is_tuple(costs, UINT32_MAX)) {
        return false;
    }
    uint32_t count = (uint32_t)PyTuple_GET_SIZE(costs);
    nj_estimate *estimates = py_pile_take(pile, count * sizeof *estimates);
    bool read = estimates != NULL;
    for (uint32_t i = 0; read && i < count; i++) {
        PyObject *words, *pair = PyTuple_GET_ITEM(costs, i);
        unsigned int config;
        read = py_is_tuple(pair, "pairs of a config and a cost") && PyArg_ParseTuple(pair, "IU", &config, &words) &&
               py_borrow_text(words, &estimates[i].picoseconds);
        if (read) {
            estimates[i].config = config;
        }
    }
    block->estimate_count = count;
    block->estimates = estimates;
    return read;
}

/* Reads a block: (key values, configs, how far each is behind, costs). */
static bool read_block(PyObject *object, uint32_t key_count, py_pile **pile, nj_tuning_block *block)
{
    PyObject *at, *use, *behind, *costs;
    return py_is_tuple(object, "a block: (key values, configs, behind, costs)") &&
           PyArg_ParseTuple(object, "OOOO", &at, &use, &behind, &costs) &&
           read_problems(at, use, behind, key_count, pile, block) && read_costs(costs, pile, block);
}

/* Reads a table: (device, multiprocessors, bytes of memory, blocks), each block with the cases that it is of. */
static bool read_table(PyObject *object, uint32_t key_count, py_pile **pile, nj_tuning_table *table)
{
    PyObject *device, *blocks;
    unsigned long long multiprocessors, memory_bytes;
    if (!py_is_tuple(object, "a table: (device, multiprocessors, bytes of memory, blocks)") ||
        !PyArg_ParseTuple(object, "UKKO!", &device, &multiprocessors, &memory_bytes, &PyTuple_Type, &blocks) ||
        !py_borrow_text(device, &table->device)) {
        return false;
    }
    table->multiprocessors = multiprocessors;
    table->memory_bytes = memory_bytes;
    table->block_count = (uint32_t)PyTuple_GET_SIZE(blocks);
    nj_tuning_block *made = py_pile_take(pile, table->block_count * sizeof *made);
    table->blocks = made;
    bool read = made != NULL;
    for (uint32_t i = 0; read && i < table->block_count; i++) {
        PyObject *cases, *block, *pair = PyTuple_GET_ITEM(blocks, i);
        made[i] = (nj_tuning_block){0};
        read = py_is_tuple(pair, "blocks: (cases, block)") && PyArg_ParseTuple(pair, "OO", &cases, &block) &&
               (made[i].cases = read_numbers(cases, pile, &made[i].case_count)) != NULL && read_block(block, key_count, pile, &made[i]);
    }
    return read;
}

static bool read_tuning(PyObject *key, int bucket, PyObject *tables, py_tuning *self)
{
    nj_tuning *own = &self->own;
    if (!is_tuple(key, NJ_TUNING_KEYS_MAX) || !is_tuple(tables, UINT32_MAX) || bucket < NJ_BUCKET_POW2 || bucket > NJ_BUCKET_SIXTEENTH_POW2) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "expected a bucket of 0 to %d, got %d", NJ_BUCKET_SIXTEENTH_POW2, bucket);
        }
        return false;
    }
    own->bucket = (nj_bucket)bucket;
    own->key_count = (uint32_t)PyTuple_GET_SIZE(key);
    own->table_count = (uint32_t)PyTuple_GET_SIZE(tables);
    nj_tuning_table *made = py_pile_take(&self->pile, own->table_count * sizeof *made);
    own->tables = made;
    bool read = made != NULL;
    for (uint32_t i = 0; read && i < own->key_count; i++) {
        read = py_borrow_text(PyTuple_GET_ITEM(key, i), &own->key[i]);
    }
    for (uint32_t i = 0; read && i < own->table_count; i++) {
        made[i] = (nj_tuning_table){0};
        read = read_table(PyTuple_GET_ITEM(tables, i), own->key_count, &self->pile, &made[i]);
    }
    return read;
}

static PyObject *tuning_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *first, *tables = NULL;
    int bucket = 0;
    if (!PyArg_ParseTuple(args, "O|iO:Tuning", &first, &bucket, &tables)) {
        return NULL;
    }
    py_tuning *self = (py_tuning *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    if (tables == NULL) {
        const nj_table *table = py_table_of(first);
        self->source = Py_NewRef(first);
        self->tuning = table == NULL ? NULL : &table->tuning;
    } else {
        self->source = PyTuple_Pack(2, first, tables);
        self->tuning = self->source != NULL && read_tuning(first, bucket, tables, self) ? &self->own : NULL;
    }
    if (self->tuning == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void tuning_dealloc(py_tuning *self)
{
    PyTypeObject *type = Py_TYPE(self);
    py_pile_free(self->pile);
    Py_XDECREF(self->source);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The place of the table of the device that is most like one. */
static PyObject *tuning_closest(py_tuning *self, PyObject *args)
{
    PyObject *name;
    unsigned long long multiprocessors, memory_bytes;
    nj_span device;
    if (!PyArg_ParseTuple(args, "UKK:closest", &name, &multiprocessors, &memory_bytes) || !py_borrow_text(name, &device)) {
        return NULL;
    }
    if (self->tuning->table_count == 0) {
        PyErr_SetString(PyExc_ValueError, "expected tables");
        return NULL;
    }
    return PyLong_FromSize_t(nj_closest_table(self->tuning, device, multiprocessors, memory_bytes));
}

/* Finds what a tuning says on the device with a number: false with an exception raised. */
static bool find_tuned(const nj_tuning *tuning, PyObject *device, nj_tuned *tuned)
{
    nj_error error;
    long ordinal = PyLong_AsLong(device);
    if (ordinal == -1 && PyErr_Occurred()) {
        return false;
    }
    if (!nj_tuned_on(tuning, ordinal < 0 || ordinal >= NJ_DEVICES_MAX ? -1 : (int)ordinal, tuned, &error)) {
        py_raise_driver(&error, NULL, NULL);
        return false;
    }
    return true;
}

static PyObject *tuning_on(py_tuning *self, PyObject *device)
{
    nj_tuned tuned = nj_tuned_first(self->tuning);
    if (device != Py_None && !find_tuned(self->tuning, device, &tuned)) {
        return NULL;
    }
    Py_ssize_t place = tuned.table == NULL ? -1 : tuned.table - self->tuning->tables;
    return Py_BuildValue("(nL)", place, (long long)tuned.multiprocessors);
}

int py_ordering_read(PyObject *object, py_ordering *ordering)
{
    Py_ssize_t place;
    long long multiprocessors;
    *ordering = (py_ordering){0};
    if (object == Py_None) {
        return 0;
    }
    if (!py_is_tuple(object, "an ordering: (Tuning, place, multiprocessors)") ||
        !PyArg_ParseTuple(object, "O!nL", tuning_type, &ordering->object, &place, &multiprocessors)) {
        return -1;
    }
    ordering->tuning = ordering->object->tuning;
    if (place >= (Py_ssize_t)ordering->tuning->table_count) {
        PyErr_SetString(PyExc_ValueError, "expected the place of a tuning table");
        return -1;
    }
    ordering->tuned = (nj_tuned){place < 0 ? NULL : &ordering->tuning->tables[place], multiprocessors};
    return 0;
}

int py_ordering_own(const nj_table *table, PyObject *device, py_ordering *ordering)
{
    *ordering = (py_ordering){.tuning = table->tuning.key_count == 0 ? NULL : &table->tuning};
    return ordering->tuning == NULL || find_tuned(ordering->tuning, device, &ordering->tuned) ? 0 : -1;
}

/* What a call of `rank_configs` or of its like passes. */
typedef struct {
    py_pile *pile;
    int64_t key[NJ_TUNING_KEYS_MAX];
    nj_preference preference;
} py_asked;

static bool read_key(PyObject *key, long long multiprocessors, py_asked *asked)
{
    *asked = (py_asked){0};
    if (!is_tuple(key, NJ_TUNING_KEYS_MAX)) {
        return false;
    }
    asked->preference.key = asked->key;
    asked->preference.key_count = (uint32_t)PyTuple_GET_SIZE(key);
    asked->preference.multiprocessors = multiprocessors;
    return read_point(key, asked->key, asked->preference.key_count);
}

/* `rank_configs(block, key, multiprocessors)`: the configs of a block, the best first. A block is (key values, configs, how far each
 * is behind, costs), as `TuningBlock` gives them. */
static PyObject *rank_configs(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *block, *key, *made = NULL;
    long long multiprocessors;
    py_asked asked;
    nj_tuning_block read = {0};
    nj_order order = {0};
    if (!PyArg_ParseTuple(args, "OOL:rank_configs", &block, &key, &multiprocessors)) {
        return NULL;
    }
    if (read_key(key, multiprocessors, &asked) && read_block(block, asked.preference.key_count, &asked.pile, &read)) {
        made = nj_rank(&read, &asked.preference, &order) ? py_tuple_of_numbers(order.configs, order.count) : PyErr_NoMemory();
    }
    nj_order_clear(&order);
    py_pile_free(asked.pile);
    return made;
}

/* `estimate(costs, key, multiprocessors)`: what each config is estimated to take; None where that cannot be computed. */
static PyObject *estimate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *costs, *key, *made = NULL;
    long long multiprocessors;
    py_asked asked;
    nj_tuning_block block = {0};
    if (!PyArg_ParseTuple(args, "OOL:estimate", &costs, &key, &multiprocessors)) {
        return NULL;
    }
    if (read_key(key, multiprocessors, &asked) && read_costs(costs, &asked.pile, &block)) {
        nj_cost_facts facts = {asked.key, asked.preference.key_count, multiprocessors};
        made = PyDict_New();
        for (uint32_t i = 0; made != NULL && i < block.estimate_count; i++) {
            int64_t cost = nj_cost_of(block.estimates[i].picoseconds, &facts);
            PyObject *config = PyLong_FromUnsignedLong(block.estimates[i].config);
            PyObject *number = cost == INT64_MAX ? Py_NewRef(Py_None) : PyLong_FromLongLong(cost);
            if (config == NULL || number == NULL || PyDict_SetItem(made, config, number) < 0) {
                Py_CLEAR(made);
            }
            Py_XDECREF(config);
            Py_XDECREF(number);
        }
    }
    py_pile_free(asked.pile);
    return made;
}

/* `nearest(points, key)`: the place of the nearest point. */
static PyObject *nearest(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *points, *key, *made = NULL;
    py_asked asked;
    if (!PyArg_ParseTuple(args, "OO:nearest", &points, &key)) {
        return NULL;
    }
    PyObject *listed = PySequence_Tuple(points);
    if (listed != NULL && read_key(key, 0, &asked)) {
        uint32_t count = asked.preference.key_count;
        Py_ssize_t size = PyTuple_GET_SIZE(listed);
        int64_t *read = py_pile_take(&asked.pile, (size_t)size * count * sizeof *read);
        bool whole = read != NULL;
        for (Py_ssize_t i = 0; whole && i < size; i++) {
            whole = read_point(PyTuple_GET_ITEM(listed, i), read + (size_t)i * count, count);
        }
        made = whole ? PyLong_FromSize_t(nj_nearest_point(read, (size_t)size, asked.key, count)) : NULL;
        py_pile_free(asked.pile);
    }
    Py_XDECREF(listed);
    return made;
}

static PyObject *make_sums(const uint32_t *configs, const double *sums, size_t count)
{
    PyObject *made = PyDict_New();
    for (size_t i = 0; made != NULL && i < count; i++) {
        PyObject *config = PyLong_FromUnsignedLong(configs[i]), *sum = PyFloat_FromDouble(sums[i]);
        if (config == NULL || sum == NULL || PyDict_SetItem(made, config, sum) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(config);
        Py_XDECREF(sum);
    }
    return made;
}

/* `behind_in_sum(weights, configs, behind)`: how far each config is behind in sum, as a dict. */
static PyObject *behind_in_sum(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *use, *behind, *made = NULL;
    py_pile *pile = NULL;
    nj_tuning_block block = {0};
    if (!PyArg_ParseTuple(args, "O!O:behind_in_sum", &PyTuple_Type, &use, &behind)) {
        return NULL;
    }
    PyObject *at = PyTuple_New(PyTuple_GET_SIZE(use)), *nowhere = PyTuple_New(0);
    for (Py_ssize_t i = 0; at != NULL && nowhere != NULL && i < PyTuple_GET_SIZE(at); i++) {
        PyTuple_SET_ITEM(at, i, Py_NewRef(nowhere));
    }
    if (at != NULL && nowhere != NULL && read_problems(at, use, behind, 0, &pile, &block)) {
        size_t named = 0;
        nj_behind_row *rows = py_pile_take(&pile, block.problem_count * sizeof *rows);
        for (uint32_t i = 0; rows != NULL && i < block.problem_count; i++) {
            rows[i] = (nj_behind_row){1.0, block.problems[i].count, block.problems[i].configs, block.problems[i].behind};
            named += rows[i].count;
        }
        uint32_t *configs = rows == NULL ? NULL : py_pile_take(&pile, named * sizeof *configs);
        double *sums = configs == NULL ? NULL : py_pile_take(&pile, named * sizeof *sums);
        size_t count = sums == NULL ? SIZE_MAX : nj_behind_in_sum(rows, block.problem_count, configs, sums);
        made = count != SIZE_MAX ? make_sums(configs, sums, count) : sums == NULL ? NULL : PyErr_NoMemory();
    }
    Py_XDECREF(at);
    Py_XDECREF(nowhere);
    py_pile_free(pile);
    return made;
}

/* `bucket_of(kind, value)`: a number of a key, rounded. */
static PyObject *bucket_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    int kind, overflow;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "iO!:bucket_of", &kind, &PyLong_Type, &value)) {
        return NULL;
    }
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow > 0 && kind == NJ_BUCKET_EXACT) {
        return Py_NewRef(value); /* nothing is rounded */
    }
    number = overflow > 0 ? INT64_MAX : overflow < 0 ? 0 : number;
    return PyLong_FromLongLong(nj_bucket_of((nj_bucket)kind, number));
}

static PyMethodDef tuning_methods[] = {
    {"on", (PyCFunction)tuning_on, METH_O,
     PyDoc_STR("The place of the table that counts on a device, -1 if there is none, and the device's multiprocessors. Without a "
               "device, the first table counts.")},
    {"closest", (PyCFunction)tuning_closest, METH_VARARGS,
     PyDoc_STR("The place of the table of the device most like one, by name, multiprocessors and bytes of memory.")},
    {NULL},
};

static PyType_Slot tuning_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Tuning(table) or Tuning(key, bucket, tables)\n--\n\nWhat orders the configs of a kernel.")},
    {Py_tp_new, tuning_new},
    {Py_tp_dealloc, tuning_dealloc},
    {Py_tp_methods, tuning_methods},
    {0, NULL},
};

static PyType_Spec tuning_spec = {
    .name = "nojit.runtime._core.Tuning",
    .basicsize = sizeof(py_tuning),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tuning_slots,
};

static PyMethodDef functions[] = {
    {"rank_configs", rank_configs, METH_VARARGS, PyDoc_STR("The configs of a block for a key, the best first.")},
    {"estimate", estimate, METH_VARARGS,
     PyDoc_STR("What configs are estimated to take, in picoseconds; None where that cannot be computed.")},
    {"nearest", nearest, METH_VARARGS, PyDoc_STR("The place of the point nearest to a key.")},
    {"behind_in_sum", behind_in_sum, METH_VARARGS, PyDoc_STR("How far each config is behind the best of rows in sum.")},
    {"bucket_of", bucket_of, METH_VARARGS, PyDoc_STR("A number of a tuning key, rounded to its bucket.")},
    {NULL},
};

int py_add_tuning(PyObject *module)
{
    return py_add_type(module, &tuning_spec, &tuning_type) < 0 || PyModule_AddFunctions(module, functions) < 0 ? -1 : 0;
}
