#include "ranking.h"

#include "select/costs.h"

#include <math.h>
#include <stdlib.h>

#include "cold.h"

/* As in runtime/neighbours.py, which says what they mean. */
#define REACH 0.3
#define SPAN (4 * REACH)
#define ABSENT 1000
#define DISTANCE_STEPS 1e9
#define SUM_STEPS 1e6

enum {
    KEYS_MAX = 8,
    NOT_READ = -1,
    NO_MEMORY = -2,
};

/* A measured problem: how far it is from the key, and where its configs are spelled. */
typedef struct {
    double distance;
    const unsigned char *configs;
    Py_ssize_t config_count;
} nj_problem;

typedef struct {
    double keys[KEYS_MAX]; /* logarithms */
    int64_t exact[KEYS_MAX];
    Py_ssize_t key_count;
    const unsigned char *end; /* of the text */
    nj_problem *problems;
    Py_ssize_t count, room;
    const nj_problem *equal; /* the one with the very key; NULL without one */
    bool only_equal;            /* whether no other problem is asked for, so that no distance is */
} nj_ranking;

/* A config on its way to its rank. */
typedef struct {
    int64_t config;
    double sum;
    Py_ssize_t place; /* in the order in which configs were met */
} nj_rank;

/* The configs that were met. */
typedef struct {
    nj_rank *ranks; /* room for all that near problems name */
    Py_ssize_t count;
    Py_ssize_t *places; /* hashed by the config's number: one more than its place in `ranks`, or 0 */
    size_t mask;
} nj_ranks;

static double logarithm(int64_t value)
{
    return log2(value == 0 ? 0.5 : (double)value);
}

/* Goes through the numbers of an array, counts them, and keeps the largest in mind; false if it is none. */
static bool skip_numbers(nj_json *json, Py_ssize_t *count, int64_t *largest)
{
    int more = -1;
    *count = 0;
    *largest = 0;
    if (nj_json_char(json, '[')) {
        while ((more = nj_json_item(json, *count == 0)) > 0) {
            int64_t number;
            if (!nj_json_count(json, 0, INT64_MAX, &number)) {
                return false;
            }
            *count += 1;
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
        Py_ssize_t count;
        bool equal;
        int64_t ignored;
        if (!nj_json_char(json, '[') || !read_distance(it, json, &problem.distance, &equal) || !nj_json_char(json, ',')) {
            return NOT_READ;
        }
        problem.configs = json->at;
        if (!skip_numbers(json, &problem.config_count, &ignored) || !nj_json_char(json, ',') ||
            !skip_numbers(json, &count, &ignored) || count != problem.config_count || !nj_json_char(json, ']')) {
            return NOT_READ;
        }
        status = add_problem(it, problem);
        it->equal = equal && status == 0 ? &it->problems[it->count - 1] : NULL;
    }
    if (status == 0 && it->equal == NULL && (more != 0 || json->at != json->end || it->count == 0)) {
        return NOT_READ;
    }
    return status;
}

/* Goes on to the next number of an array that was gone through before; false behind the last. */
static bool next_number(nj_json *json, bool first, int64_t *number)
{
    return (!first || nj_json_char(json, '[')) && nj_json_item(json, first) > 0 && nj_json_count(json, 0, INT64_MAX, number);
}

/* Where a config's place is kept, or would be. */
static Py_ssize_t *place_of(const nj_ranks *all, int64_t config)
{
    size_t at = (size_t)((uint64_t)config * UINT64_C(0x9e3779b97f4a7c15) >> 32) & all->mask;
    while (all->places[at] != 0 && all->ranks[all->places[at] - 1].config != config) {
        at = (at + 1) & all->mask;
    }
    return &all->places[at];
}

/* Gives each config of a problem that has none yet its place among the ranks. */
static void enter_configs(const nj_ranking *it, const nj_problem *problem, nj_ranks *all)
{
    nj_json json = {problem->configs, it->end};
    int64_t config;
    for (bool first = true; next_number(&json, first, &config); first = false) {
        Py_ssize_t *place = place_of(all, config);
        if (*place == 0) {
            all->ranks[all->count] = (nj_rank){.config = config, .place = all->count};
            *place = ++all->count;
        }
    }
}

/* Makes room for as many configs as some problems name; false without memory. */
static bool make_ranks(Py_ssize_t named, nj_ranks *all)
{
    size_t room = 16;
    while (room < 2 * (size_t)named) {
        room *= 2;
    }
    *all = (nj_ranks){.mask = room - 1};
    all->ranks = PyMem_Malloc(((size_t)named + 1) * sizeof *all->ranks);
    all->places = PyMem_Calloc(room, sizeof *all->places);
    return all->ranks != NULL && all->places != NULL;
}

/* Adds what a problem says to the sums of its configs: how far each is behind, less what a config counts that it does not have.
 * Returns that, which is more than its last counts. */
static double add_word(const nj_ranking *it, const nj_problem *problem, double weight, nj_ranks *all)
{
    nj_json configs = {problem->configs, it->end};
    Py_ssize_t ignored;
    int64_t most, config, behind;
    skip_numbers(&configs, &ignored, &most);
    nj_json_char(&configs, ',');
    nj_json behinds = configs;
    skip_numbers(&configs, &ignored, &most);
    double absent = (double)(most + ABSENT);
    configs.at = problem->configs;
    for (bool first = true; next_number(&configs, first, &config) && next_number(&behinds, first, &behind); first = false) {
        all->ranks[*place_of(all, config) - 1].sum += weight * ((double)behind - absent);
    }
    return weight * absent;
}

/* By their sums; of equal ones the first stays the first. */
static int compare_ranks(const void *one, const void *other)
{
    const nj_rank *a = one, *b = other;
    if (a->sum != b->sum) {
        return a->sum < b->sum ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

/* The problem that is nearest to the key; of equally near ones the first. */
static const nj_problem *nearest_of(const nj_ranking *it)
{
    const nj_problem *nearest = it->problems;
    for (Py_ssize_t i = 1; i < it->count; i++) {
        nearest = it->problems[i].distance < nearest->distance ? &it->problems[i] : nearest;
    }
    return nearest;
}

/* Ranks the configs of all near problems; false without memory. */
static bool rank(const nj_ranking *it, nj_ranks *all)
{
    const nj_problem *nearest = it->equal == NULL ? nearest_of(it) : it->equal;
    Py_ssize_t near = 0, named = 0;
    for (Py_ssize_t i = 0; it->equal == NULL && i < it->count; i++) {
        bool counts = it->problems[i].distance - nearest->distance < SPAN;
        near += counts;
        named += counts ? it->problems[i].config_count : 0;
    }
    if (!make_ranks(named + nearest->config_count, all)) {
        return false;
    }
    enter_configs(it, nearest, all);
    if (near <= 1) {
        return true;
    }
    for (Py_ssize_t i = 0; i < it->count; i++) {
        if (it->problems[i].distance - nearest->distance < SPAN) {
            enter_configs(it, &it->problems[i], all);
        }
    }
    double absent = 0.0;
    for (Py_ssize_t i = 0; i < it->count; i++) {
        double farther = it->problems[i].distance - nearest->distance;
        if (farther < SPAN) {
            absent += add_word(it, &it->problems[i], exp(-farther / REACH), all);
        }
    }
    for (Py_ssize_t i = 0; i < all->count; i++) {
        all->ranks[i].sum = floor((absent + all->ranks[i].sum) * SUM_STEPS + 0.5);
    }
    qsort(all->ranks, (size_t)all->count, sizeof *all->ranks, compare_ranks);
    return true;
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
    nj_ranks all;
    PyObject *order = rank(it, &all) ? configs_of(all.ranks, all.count) : PyErr_NoMemory();
    PyMem_Free(all.places);
    PyMem_Free(all.ranks);
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
