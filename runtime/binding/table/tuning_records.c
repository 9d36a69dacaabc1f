#include "table/tuning_records.h"

#include "python/tuples.h"
#include "python/utf8.h"

bool py_is_short_tuple(PyObject *object, Py_ssize_t most)
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

uint32_t *py_read_numbers(PyObject *numbers, py_pile **pile, uint32_t *count)
{
    uint32_t *made = py_is_short_tuple(numbers, UINT32_MAX) ? py_pile_take(pile, (size_t)PyTuple_GET_SIZE(numbers) * sizeof *made) : NULL;
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

bool py_read_point(PyObject *numbers, int64_t *point, uint32_t count)
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

bool py_read_bucket(PyObject *name, nj_bucket *bucket)
{
    nj_span text;
    if (!py_borrow_text(name, &text)) {
        return false;
    }
    bool known = nj_bucket_named(text, bucket);
    if (!known) {
        PyErr_Format(PyExc_ValueError, "expected the name of a bucket, got %R", name);
    }
    return known;
}

bool py_read_problems(PyObject *at, PyObject *use, PyObject *behind, uint32_t key_count, py_pile **pile, nj_tuning_block *block)
{
    if (!py_is_short_tuple(at, UINT32_MAX) || !py_is_short_tuple(use, PyTuple_GET_SIZE(at)) ||
        !py_is_short_tuple(behind, PyTuple_GET_SIZE(at)) || PyTuple_GET_SIZE(use) != PyTuple_GET_SIZE(at) ||
        PyTuple_GET_SIZE(behind) != PyTuple_GET_SIZE(at)) {
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
        read = py_read_point(PyTuple_GET_ITEM(at, i), points + (size_t)i * key_count, key_count) &&
               (problems[i].configs = py_read_numbers(PyTuple_GET_ITEM(use, i), pile, &problems[i].count)) != NULL &&
               (problems[i].behind = py_read_numbers(PyTuple_GET_ITEM(behind, i), pile, &others)) != NULL;
        if (read && others != problems[i].count) {
            PyErr_SetString(PyExc_ValueError, "expected as many numbers as configs");
            read = false;
        }
    }
    block->problem_count = count;
    block->problems = problems;
    return read;
}

bool py_read_costs(PyObject *costs, py_pile **pile, nj_tuning_block *block)
{
    if (!py_is_short_tuple(costs, UINT32_MAX)) {
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

bool py_read_block(PyObject *object, uint32_t key_count, py_pile **pile, nj_tuning_block *block)
{
    PyObject *at, *use, *behind, *costs;
    return py_is_tuple(object, "a block: (key values, configs, behind, costs)") &&
           PyArg_ParseTuple(object, "OOOO", &at, &use, &behind, &costs) &&
           py_read_problems(at, use, behind, key_count, pile, block) && py_read_costs(costs, pile, block);
}
