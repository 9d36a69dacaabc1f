#include "ranking.h"

#include "costs.h"

#include <math.h>

#include "cold.h"

/* As in runtime/neighbours.py, which says what they mean. */
#define REACH 0.3
#define SPAN (4 * REACH)
#define ABSENT 1000
#define DISTANCE_STEPS 1e9
#define SUM_STEPS 1e6

enum {
    KEYS_MAX = 8,
    CONFIGS_MAX = 1 << 16,
    NOT_READ = -1,
    NO_MEMORY = -2,
};

/* A measured problem: how far it is from the key, and where its configs are spelled. */
typedef struct {
    double distance;
    const unsigned char *configs;
} nj_problem;

typedef struct {
    double keys[KEYS_MAX]; /* logarithms */
    int64_t exact[KEYS_MAX];
    Py_ssize_t key_count;
    const unsigned char *end; /* of the text */
    nj_problem *problems;
    Py_ssize_t count, room;
    int64_t largest;             /* number of a config */
    const unsigned char *equal; /* the configs of the problem with the very key; NULL without one */
    bool only_equal;            /* whether no other problem is asked for, so that no distance is */
} nj_ranking;

/* A config on its way to its rank. */
typedef struct {
    int64_t config;
    double sum;
} nj_rank;

static double logarithm(int64_t value)
{
    return log2(value == 0 ? 0.5 : (double)value);
}

/* Goes through the numbers of an array, and keeps the largest in mind; false if it is none. */
static bool skip_numbers(nj_json *json, int64_t *largest)
{
    int more = -1;
    if (nj_json_char(json, '[')) {
        for (bool first = true; (more = nj_json_item(json, first)) > 0; first = false) {
            int64_t number;
            if (!nj_json_count(json, 0, INT64_MAX, &number)) {
                return false;
            }
            *largest = number > *largest ? number : *largest;
        }
    }
    return more == 0;
}

/* Takes the key values of a problem. */
static bool read_distance(const nj_ranking *it, nj_json *json, double *distance, bool *equal)
{
    double sum = 0;
    *equal = true;
    for (Py_ssize_t i = 0; i < it->key_count; i++) {
        int64_t value;
        if (!nj_json_char(json, i == 0 ? '[' : ',') || !nj_json_count(json, 0, INT64_MAX, &value)) {
            return false;
        }
        *equal &= value == it->exact[i];
        sum += it->only_equal ? 0.0 : fabs(logarithm(value) - it->keys[i]);
    }
    *distance = floor(sum * DISTANCE_STEPS + 0.5) / DISTANCE_STEPS;
    return nj_json_char(json, ']');
}

static int add_problem(nj_ranking *it, nj_problem problem)
{
    if (it->count == it->room) {
        Py_ssize_t room = it->room == 0 ? 64 : 2 * it->room;
        nj_problem *larger = PyMem_Realloc(it->problems, (size_t)room * sizeof *larger);
        if (larger == NULL) {
            return NO_MEMORY;
        }
        it->problems = larger;
        it->room = room;
    }
    it->problems[it->count++] = problem;
    return 0;
}

/* Finds how far each problem is; stops at one with the very key. */
static int read_problems(nj_ranking *it, nj_json *json)
{
    int more = -1, status = 0;
    if (!nj_json_char(json, '[')) {
        return NOT_READ;
    }
    while (it->equal == NULL && status == 0 && (more = nj_json_item(json, it->count == 0)) > 0) {
        nj_problem problem;
        bool equal;
        int64_t ignored = 0;
        if (!nj_json_char(json, '[') || !read_distance(it, json, &problem.distance, &equal) || !nj_json_char(json, ',')) {
            return NOT_READ;
        }
        problem.configs = json->at;
        if (!skip_numbers(json, &it->largest) || !nj_json_char(json, ',') || !skip_numbers(json, &ignored) ||
            !nj_json_char(json, ']')) {
            return NOT_READ;
        }
        it->equal = equal ? problem.configs : NULL;
        status = add_problem(it, problem);
    }
    if (status == 0 && it->equal == NULL && (more != 0 || json->at != json->end || it->count == 0)) {
        return NOT_READ;
    }
    return it->largest < CONFIGS_MAX ? status : NOT_READ;
}

/* Goes on to the next number of an array that was gone through before; false behind the last. */
static bool next_number(nj_json *json, bool first, int64_t *number)
{
    return (!first || nj_json_char(json, '[')) && nj_json_item(json, first) > 0 && nj_json_count(json, 0, INT64_MAX, number);
}

/* Gives each config of a problem that has none yet its place among the ranks. */
static Py_ssize_t enter_configs(const nj_ranking *it, const unsigned char *configs, Py_ssize_t *places, nj_rank *ranks, Py_ssize_t count)
{
    nj_json json = {configs, it->end};
    int64_t config;
    for (bool first = true; next_number(&json, first, &config); first = false) {
        if (places[config] == 0) {
            ranks[count++] = (nj_rank){.config = config};
            places[config] = count;
        }
    }
    return count;
}

/* Adds what a problem says to the sums: how far each config is behind, more than the last for one that it does not have. */
static void add_word(const nj_ranking *it, const nj_problem *problem, double weight, const Py_ssize_t *places, nj_rank *ranks,
                     Py_ssize_t count)
{
    nj_json configs = {problem->configs, it->end};
    int64_t ignored = 0, most = 0, config, behind;
    skip_numbers(&configs, &ignored);
    nj_json_char(&configs, ',');
    nj_json behinds = configs;
    skip_numbers(&configs, &most);
    double absent = (double)(most + ABSENT);
    for (Py_ssize_t i = 0; i < count; i++) {
        ranks[i].sum += weight * absent;
    }
    configs.at = problem->configs;
    for (bool first = true; next_number(&configs, first, &config) && next_number(&behinds, first, &behind); first = false) {
        ranks[places[config] - 1].sum += weight * ((double)behind - absent);
    }
}

/* Sorts ranks by their sums; of equal ones the first stays the first. */
static void sort(nj_rank *ranks, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        nj_rank moved = ranks[i];
        Py_ssize_t to = i;
        for (; to > 0 && ranks[to - 1].sum > moved.sum; to--) {
            ranks[to] = ranks[to - 1];
        }
        ranks[to] = moved;
    }
}

/* Ranks the configs of all near problems; how many there are. */
static Py_ssize_t rank(const nj_ranking *it, Py_ssize_t *places, nj_rank *ranks)
{
    if (it->equal != NULL) {
        return enter_configs(it, it->equal, places, ranks, 0);
    }
    const nj_problem *nearest = it->problems;
    for (Py_ssize_t i = 1; i < it->count; i++) {
        nearest = it->problems[i].distance < nearest->distance ? &it->problems[i] : nearest;
    }
    Py_ssize_t count = enter_configs(it, nearest->configs, places, ranks, 0), near = 0;
    for (Py_ssize_t i = 0; i < it->count; i++) {
        if (it->problems[i].distance - nearest->distance < SPAN) {
            count = enter_configs(it, it->problems[i].configs, places, ranks, count);
            near++;
        }
    }
    if (near == 1) {
        return count;
    }
    for (Py_ssize_t i = 0; i < it->count; i++) {
        double farther = it->problems[i].distance - nearest->distance;
        if (farther < SPAN) {
            add_word(it, &it->problems[i], exp(-farther / REACH), places, ranks, count);
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ranks[i].sum = floor(ranks[i].sum * SUM_STEPS + 0.5);
    }
    sort(ranks, count);
    return count;
}

static PyObject *configs_of(const nj_rank *ranks, Py_ssize_t count)
{
    PyObject *order = PyTuple_New(count);
    for (Py_ssize_t i = 0; order != NULL && i < count; i++) {
        PyObject *config = PyLong_FromLongLong(ranks[i].config);
        if (config == NULL) {
            Py_CLEAR(order);
            break;
        }
        PyTuple_SET_ITEM(order, i, config);
    }
    return order;
}

/* Ranks configs by what they are estimated to take; of equal ones the first stays the first. */
static PyObject *ranked_by_cost(nj_json json, const nj_cost_facts *facts)
{
    nj_cost costs[NJ_COSTS_MAX], cost;
    nj_rank ranks[NJ_COSTS_MAX];
    Py_ssize_t count = 0;
    int more;
    while ((more = nj_next_cost(&json, count == 0, facts, &cost)) > 0 && count < NJ_COSTS_MAX) {
        Py_ssize_t to = count++;
        for (; to > 0 && costs[to - 1].picoseconds > cost.picoseconds; to--) {
            costs[to] = costs[to - 1];
        }
        costs[to] = cost;
    }
    if (more != 0 || json.at != json.end) {
        return Py_NewRef(Py_None);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ranks[i].config = costs[i].config;
    }
    return configs_of(ranks, count);
}

static PyObject *ranked(const nj_ranking *it)
{
    size_t most = (size_t)it->largest + 1;
    Py_ssize_t *places = PyMem_Calloc(most, sizeof *places);
    nj_rank *ranks = PyMem_Calloc(most, sizeof *ranks);
    PyObject *order = NULL;
    if (places == NULL || ranks == NULL) {
        PyErr_NoMemory();
    } else {
        order = configs_of(ranks, rank(it, places, ranks));
    }
    PyMem_Free(places);
    PyMem_Free(ranks);
    return order;
}

static int read_key(nj_ranking *it, PyObject *key)
{
    it->key_count = PyTuple_GET_SIZE(key);
    if (it->key_count == 0 || it->key_count > KEYS_MAX) {
        return NOT_READ;
    }
    for (Py_ssize_t i = 0; i < it->key_count; i++) {
        it->exact[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(key, i));
        if (it->exact[i] < 0) {
            PyErr_Clear(); /* no int, or one that no key has */
            return NOT_READ;
        }
        it->keys[i] = logarithm(it->exact[i]);
    }
    return 0;
}

PyObject *nj_rank_configs(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *key, *costs;
    long long multiprocessors;
    if (!PyArg_ParseTuple(args, "SO!SL:rank_configs", &rows, &PyTuple_Type, &key, &costs, &multiprocessors)) {
        return NULL;
    }
    const unsigned char *text = (const unsigned char *)PyBytes_AS_STRING(rows);
    nj_json json = {text, text + PyBytes_GET_SIZE(rows)};
    nj_ranking it = {.end = json.end, .only_equal = PyBytes_GET_SIZE(costs) > 0};
    int status = read_key(&it, key);
    status = status < 0 ? status : read_problems(&it, &json);
    PyObject *order;
    if (status != 0) {
        order = status == NO_MEMORY ? PyErr_NoMemory() : Py_NewRef(Py_None);
    } else if (it.equal == NULL && it.only_equal) {
        nj_cost_facts facts = {it.exact, (size_t)it.key_count, multiprocessors};
        text = (const unsigned char *)PyBytes_AS_STRING(costs);
        order = ranked_by_cost((nj_json){text, text + PyBytes_GET_SIZE(costs)}, &facts);
    } else {
        order = ranked(&it);
    }
    PyMem_Free(it.problems);
    return order;
}
