#include "tuning_table.h"

#include "select/costs.h"
#include "meaning.h"
#include "objects.h"
#include "reading.h"

#include "cold.h"

enum {
    KEYS_MAX = 8,
    TABLES_MAX = 64,
    USE_MAX = 64, /* configs of a row that are gone into here */
    BEHIND_MAX = 100000,
};

_Static_assert(NJ_COSTS_MAX < USE_MAX, "the costs of a block are gone into here");

typedef struct {
    nj_reading reading; /* first: readers of arrays get no more */
    Py_ssize_t meanings, configs, keys;
} nj_tuning;

/* Set once by `nj_tuning_init` under the import lock, and never changed. */
static struct {
    nj_record tuning, table, block, device;
} classes;

int nj_tuning_init(void)
{
    static const char *const home = "nojit.runtime.tuning_table";
    bool found = nj_record_find(home, "Tuning", 3, &classes.tuning) == 0 &&
                 nj_record_find(home, "TuningTable", 2, &classes.table) == 0 &&
                 nj_record_find(home, "TuningBlock", 3, &classes.block) == 0 &&
                 nj_record_find(home, "TunedDevice", 4, &classes.device) == 0;
    return found ? 0 : -1;
}

/* Numbers of an array. */
typedef struct {
    int64_t at[USE_MAX];
    Py_ssize_t count;
} nj_numbers;

static nj_tuning *tuning_of(nj_reading *it)
{
    return (nj_tuning *)it;
}

/* Takes ``[1,2]``: numbers from 0. Most of a large table is these: read where the compiler sees that nobody else looks on. */
static bool read_numbers(nj_json *json, int64_t most, nj_numbers *numbers)
{
    nj_json rest = *json;
    numbers->count = 0;
    if (!nj_json_char(&rest, '[')) {
        return false;
    }
    bool more = !nj_json_char(&rest, ']');
    bool right = true;
    while (right && more) {
        int64_t number;
        right = numbers->count < USE_MAX && nj_json_natural(&rest, &number) && number <= most;
        if (right) {
            numbers->at[numbers->count++] = number;
            more = nj_json_char(&rest, ',');
            right = more || nj_json_char(&rest, ']');
        }
    }
    *json = rest;
    return right;
}

/* Whether numbers come behind others, of as many, in the order of tuples. */
static bool ascends(const nj_numbers *numbers, const nj_numbers *last)
{
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        if (numbers->at[i] != last->at[i]) {
            return numbers->at[i] > last->at[i];
        }
    }
    return false;
}

static bool are_distinct(const nj_numbers *numbers)
{
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        for (Py_ssize_t j = 0; j < i; j++) {
            if (numbers->at[i] == numbers->at[j]) {
                return false;
            }
        }
    }
    return true;
}

/* Takes the numbers of meanings, which ascend; at least one. */
static PyObject *read_meanings(nj_reading *it)
{
    nj_items items;
    int64_t last = -1, number;
    int more = -1;
    nj_items_init(&items);
    if (nj_json_char(&it->json, '[')) {
        while ((more = nj_json_item(&it->json, items.count == 0)) > 0) {
            if (!nj_json_count(&it->json, last + 1, tuning_of(it)->meanings - 1, &number) ||
                nj_items_add(&items, PyLong_FromLongLong(number)) < 0) {
                more = -1;
                break;
            }
            last = number;
        }
    }
    return nj_items_end(&items, more == 0 && last >= 0);
}

/* Takes ``[[key values], [configs], [how far behind]]``, which comes after the row before; its key values are `last` then. */
static bool read_row(nj_reading *it, bool first, nj_numbers *last)
{
    nj_json *json = &it->json;
    nj_numbers key, configs, behind;
    bool right = nj_json_char(json, '[') && read_numbers(json, INT64_MAX, &key) && key.count == tuning_of(it)->keys &&
                 (first || ascends(&key, last)) && nj_json_char(json, ',') &&
                 read_numbers(json, tuning_of(it)->configs - 1, &configs) && configs.count > 0 &&
                 are_distinct(&configs) && nj_json_char(json, ',') && read_numbers(json, BEHIND_MAX, &behind) &&
                 behind.count == configs.count && nj_json_char(json, ']');
    *last = key;
    return right;
}

/* Takes the rows of a block, at least one: their text, since few calls ask for more. */
static PyObject *read_rows(nj_reading *it)
{
    const unsigned char *start = it->json.at;
    nj_numbers last = {.count = 0};
    Py_ssize_t count = 0;
    int more = -1;
    if (nj_json_char(&it->json, '[')) {
        while ((more = nj_json_item(&it->json, count == 0)) > 0) {
            if (!read_row(it, count == 0, &last)) {
                return NULL;
            }
            count++;
        }
    }
    return more == 0 && count > 0 ? PyBytes_FromStringAndSize((const char *)start, it->json.at - start) : NULL;
}

/* Takes ``[config, expression]``, of another config than those before. */
static bool read_cost(nj_reading *it, nj_numbers *configs)
{
    int64_t *config = &configs->at[configs->count];
    nj_span ignored;
    return configs->count++ < NJ_COSTS_MAX && nj_json_char(&it->json, '[') &&
           nj_json_count(&it->json, 0, tuning_of(it)->configs - 1, config) && nj_json_char(&it->json, ',') &&
           nj_json_text(&it->json, NJ_TEXT_MAX, &ignored) && ignored.size > 0 && nj_json_char(&it->json, ']') &&
           are_distinct(configs);
}

/* Takes what configs are estimated to take, at least one: their text, which few calls ask for. */
static PyObject *read_costs(nj_reading *it)
{
    const unsigned char *start = it->json.at;
    nj_numbers configs = {.count = 0};
    int more = -1;
    if (nj_json_char(&it->json, '[')) {
        while ((more = nj_json_item(&it->json, configs.count == 0)) > 0) {
            if (!read_cost(it, &configs)) {
                return NULL;
            }
        }
    }
    return more == 0 && configs.count > 0 ? PyBytes_FromStringAndSize((const char *)start, it->json.at - start) : NULL;
}

static PyObject *read_block(nj_reading *it)
{
    PyObject *values[3] = {NULL};
    bool estimated = nj_json_is(&it->json, "{\"costs\":");
    values[2] = estimated ? read_costs(it) : PyBytes_FromStringAndSize("", 0);
    if (values[2] != NULL && nj_json_is(&it->json, estimated ? ",\"meanings\":" : "{\"meanings\":")) {
        values[0] = read_meanings(it);
    }
    if (values[0] != NULL && nj_json_is(&it->json, ",\"rows\":")) {
        values[1] = read_rows(it);
    }
    return nj_read_closed(it, nj_record_make(&classes.block, values), '}');
}

static PyObject *read_positive(nj_reading *it)
{
    int64_t number;
    return nj_json_count(&it->json, 1, INT64_MAX, &number) ? PyLong_FromLongLong(number) : NULL;
}

static PyObject *read_device(nj_reading *it)
{
    PyObject *values[4] = {NULL};
    if (nj_json_is(&it->json, "{\"arch\":")) {
        values[1] = nj_read_name(it);
    }
    if (values[1] != NULL && nj_json_is(&it->json, ",\"memory_bytes\":")) {
        values[3] = read_positive(it);
    }
    if (values[3] != NULL && nj_json_is(&it->json, ",\"multiprocessors\":")) {
        values[2] = read_positive(it);
    }
    if (values[2] != NULL && nj_json_is(&it->json, ",\"name\":")) {
        values[0] = nj_read_text(it);
    }
    return nj_read_closed(it, nj_record_make(&classes.device, values), '}');
}

/* Whether no two tables are of one device. */
static bool devices_are_apart(PyObject *tables)
{
    PyObject *seen = nj_size(tables) < 2 ? NULL : PySet_New(NULL);
    bool apart = seen != NULL || nj_size(tables) < 2;
    for (Py_ssize_t i = 0; seen != NULL && apart && i < nj_size(tables); i++) {
        apart = nj_set_grows(seen, nj_peek(nj_item(tables, i), NJ_FIELD_DEVICE));
    }
    Py_XDECREF(seen);
    return apart;
}

/* Whether no meaning is in two blocks of a table; in one block they ascend. */
static bool meanings_are_apart(PyObject *blocks)
{
    PyObject *seen = nj_size(blocks) < 2 ? NULL : PySet_New(NULL);
    bool apart = seen != NULL || nj_size(blocks) < 2;
    for (Py_ssize_t i = 0; seen != NULL && apart && i < nj_size(blocks); i++) {
        PyObject *meanings = nj_peek(nj_item(blocks, i), NJ_FIELD_MEANINGS);
        for (Py_ssize_t j = 0; apart && j < nj_size(meanings); j++) {
            apart = nj_set_grows(seen, nj_item(meanings, j));
        }
    }
    Py_XDECREF(seen);
    return apart;
}

static PyObject *read_table(nj_reading *it)
{
    PyObject *values[2] = {NULL};
    if (nj_json_is(&it->json, "{\"blocks\":")) {
        values[1] = nj_read_array(it, NJ_POOL_MAX, read_block);
    }
    if (values[1] != NULL && meanings_are_apart(values[1]) && nj_json_is(&it->json, ",\"device\":")) {
        values[0] = read_device(it);
    }
    return nj_read_closed(it, nj_record_make(&classes.table, values), '}');
}

static PyObject *read_bucket(nj_reading *it)
{
    nj_span text;
    bool known = nj_json_text(&it->json, NJ_NAME_MAX, &text) &&
                 (nj_span_is(text, "pow2") || nj_span_is(text, "quarter_pow2") || nj_span_is(text, "exact") ||
                  nj_span_is(text, "sixteenth_pow2"));
    return known ? nj_read_word(it, text) : NULL;
}

PyObject *nj_tuning_read(nj_json *json, Py_ssize_t meanings, Py_ssize_t configs)
{
    nj_tuning tuning = {.reading.json = *json, .meanings = meanings, .configs = configs};
    nj_reading *it = &tuning.reading;
    PyObject *bucket = nj_json_is(&it->json, "{\"bucket\":") ? read_bucket(it) : NULL, *key = NULL, *tables = NULL;
    if (bucket != NULL && nj_json_is(&it->json, ",\"key\":")) {
        key = nj_read_array(it, KEYS_MAX, nj_read_text);
    }
    tuning.keys = key == NULL ? 0 : PyTuple_GET_SIZE(key);
    if (tuning.keys > 0 && nj_json_is(&it->json, ",\"tables\":")) {
        tables = nj_read_array(it, TABLES_MAX, read_table);
    }
    if (tables != NULL && (!nj_json_char(&it->json, '}') || !devices_are_apart(tables))) {
        Py_CLEAR(tables);
    }
    nj_reading_end(it);
    *json = it->json;
    return nj_record_make(&classes.tuning, (PyObject *[]){key, bucket, tables});
}

PyObject *nj_read_tuning(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *text;
    Py_ssize_t size, meanings, configs;
    if (!PyArg_ParseTuple(args, "y#nn:read_tuning", &text, &size, &meanings, &configs)) {
        return NULL;
    }
    nj_json json = {(const unsigned char *)text, (const unsigned char *)text + size};
    PyObject *read = nj_tuning_read(&json, meanings, configs);
    if (read != NULL && json.at != json.end) {
        Py_CLEAR(read);
    }
    return read != NULL || PyErr_Occurred() ? read : Py_NewRef(Py_None);
}

static PyObject *make_number(nj_reading *it)
{
    int64_t number;
    return nj_json_count(&it->json, 0, INT64_MAX, &number) ? PyLong_FromLongLong(number) : NULL;
}

static PyObject *make_numbers(nj_reading *it)
{
    return nj_read_array(it, NJ_POOL_MAX, make_number);
}

static bool make_row(nj_reading *it, nj_items columns[3])
{
    for (int i = 0; i < 3; i++) {
        if (!nj_json_char(&it->json, i == 0 ? '[' : ',') || nj_items_add(&columns[i], make_numbers(it)) < 0) {
            return false;
        }
    }
    return nj_json_char(&it->json, ']');
}

PyObject *nj_tuning_columns(PyObject *Py_UNUSED(module), PyObject *rows)
{
    nj_reading reading = {.json = {NULL, NULL}};
    PyObject *made[3];
    nj_items columns[3];
    int more = -1;
    if (!PyBytes_Check(rows)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, got %.100s", Py_TYPE(rows)->tp_name);
        return NULL;
    }
    const unsigned char *start = (const unsigned char *)PyBytes_AS_STRING(rows);
    reading.json = (nj_json){start, start + PyBytes_GET_SIZE(rows)};
    for (int i = 0; i < 3; i++) {
        nj_items_init(&columns[i]);
    }
    if (nj_json_char(&reading.json, '[')) {
        while ((more = nj_json_item(&reading.json, columns[0].count == 0)) > 0) {
            if (!make_row(&reading, columns)) {
                more = -1;
                break;
            }
        }
    }
    bool whole = more == 0 && reading.json.at == reading.json.end;
    for (int i = 0; i < 3; i++) {
        made[i] = nj_items_end(&columns[i], whole);
    }
    whole = made[0] != NULL && made[1] != NULL && made[2] != NULL;
    PyObject *all = whole ? PyTuple_Pack(3, made[0], made[1], made[2]) : NULL;
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(made[i]);
    }
    nj_reading_end(&reading);
    return all != NULL || PyErr_Occurred() ? all : Py_NewRef(Py_None);
}
