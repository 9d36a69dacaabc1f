/* Ranks the configs of tuning blocks, which Python passes as tuples. */
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"
#include "table/tuning_records.h"

#include "select/config_order.h"
#include "select/estimate.h"
#include "select/tuning_key.h"

/* The common arguments of `rank_configs`, `estimate` and `nearest`. */
typedef struct {
    py_pile *pile;
    int64_t key[NJ_TUNING_KEYS_MAX];
    nj_preference preference;
} py_asked;

static bool read_key(PyObject *key, long long multiprocessors, py_asked *asked)
{
    *asked = (py_asked){0};
    if (!py_is_short_tuple(key, NJ_TUNING_KEYS_MAX)) {
        return false;
    }
    asked->preference.key = asked->key;
    asked->preference.key_count = (uint32_t)PyTuple_GET_SIZE(key);
    asked->preference.tuned.multiprocessors = multiprocessors;
    return py_read_point(key, asked->key, asked->preference.key_count);
}

/* `rank_configs(block, key, multiprocessors)`: returns the configs of a block, best first. A block is (key values, configs, how far each
 * config is behind the best, costs), as `TuningBlock` returns it. */
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
    if (read_key(key, multiprocessors, &asked) && py_read_block(block, asked.preference.key_count, &asked.pile, &read)) {
        made = nj_order_configs(&read, &asked.preference, &order) ? py_tuple_of_numbers(order.configs, order.count) : PyErr_NoMemory();
    }
    nj_order_clear(&order);
    py_pile_free(asked.pile);
    return made;
}

/* `estimate(costs, key, multiprocessors)`: returns a dict of each config's estimated time in picoseconds; None if it cannot be
 * computed. */
static PyObject *estimate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *costs, *key, *made = NULL;
    long long multiprocessors;
    py_asked asked;
    nj_tuning_block block = {0};
    if (!PyArg_ParseTuple(args, "OOL:estimate", &costs, &key, &multiprocessors)) {
        return NULL;
    }
    if (read_key(key, multiprocessors, &asked) && py_read_costs(costs, &asked.pile, &block)) {
        nj_estimate_facts facts = {asked.key, asked.preference.key_count, multiprocessors};
        made = PyDict_New();
        for (uint32_t i = 0; made != NULL && i < block.estimate_count; i++) {
            int64_t cost = nj_estimate_of(block.estimates[i].picoseconds, &facts);
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

/* `nearest(points, key)`: returns the index of the nearest point. */
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
            whole = py_read_point(PyTuple_GET_ITEM(listed, i), read + (size_t)i * count, count);
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

/* `behind_in_sum(configs, behind)`: returns a dict of how far each config is behind the best, summed over the rows. */
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
    if (at != NULL && nowhere != NULL && py_read_problems(at, use, behind, 0, &pile, &block)) {
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

/* `bucket_of(bucket, value)`: returns a key value rounded to its bucket. */
static PyObject *bucket_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    int overflow;
    nj_bucket bucket;
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "OO!:bucket_of", &name, &PyLong_Type, &value) || !py_read_bucket(name, &bucket)) {
        return NULL;
    }
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow > 0 && bucket == NJ_BUCKET_EXACT) {
        return Py_NewRef(value); /* nothing is rounded */
    }
    number = overflow > 0 ? INT64_MAX : overflow < 0 ? 0 : number;
    return PyLong_FromLongLong(nj_bucket_of(bucket, number));
}

static PyMethodDef functions[] = {
    {"rank_configs", rank_configs, METH_VARARGS, PyDoc_STR("The configs of a block for a key, the best first.")},
    {"estimate", estimate, METH_VARARGS,
     PyDoc_STR("The estimated time of configs, in picoseconds; None if it cannot be computed.")},
    {"nearest", nearest, METH_VARARGS, PyDoc_STR("The index of the point nearest to a key.")},
    {"behind_in_sum", behind_in_sum, METH_VARARGS, PyDoc_STR("How far each config is behind the best, summed over rows.")},
    {"bucket_of", bucket_of, METH_VARARGS, PyDoc_STR("A tuning key value rounded to its bucket.")},
    {NULL},
};

int py_add_config_order(PyObject *module)
{
    bool added = PyModule_AddFunctions(module, functions) == 0 && py_add_list(module, "BUCKETS", nj_bucket_names, NJ_BUCKET_COUNT) == 0;
    return added ? 0 : -1;
}
