#include "tuning_table.h"

#include "objects.h"
#include "reading.h"

enum {
    KEYS_MAX = 8,
    TABLES_MAX = 64,
    USE_MAX = 64, /* configs of a row that are gone into here */
    BEHIND_MAX = 100000,
};

typedef struct {
    nj_reading reading; /* first: readers of arrays get no more */
    nj_record table, block, device;
    Py_ssize_t meanings, configs, keys;
} nj_tuning;

/* Numbers of an array. */
typedef struct {
    int64_t at[USE_MAX];
    Py_ssize_t count;
} nj_numbers;

static nj_tuning *tuning_of(nj_reading *it)
{
    return (nj_tuning *)it;
}

static bool read_numbers(nj_json *json, int64_t most, nj_numbers *numbers)
{
    int more = -1;
    numbers->count = 0;
    if (!nj_json_char(json, '[')) {
        return false;
    }
    while ((more = nj_json_item(json, numbers->count == 0)) > 0) {
        if (numbers->count == USE_MAX || !nj_json_count(json, 0, most, &numbers->at[numbers->count])) {
            return false;
        }
        numbers->count++;
    }
    return more == 0;
}

static PyObject *make_numbers(const nj_numbers *numbers)
{
    PyObject *tuple = PyTuple_New(numbers->count);
    for (Py_ssize_t i = 0; tuple != NULL && i < numbers->count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers->at[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
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
static bool read_row(nj_reading *it, bool first, nj_numbers *last, nj_items columns[3])
{
    nj_json *json = &it->json;
    nj_numbers key, configs, behind;
    bool right = nj_json_char(json, '[') && read_numbers(json, INT64_MAX, &key) && key.count == tuning_of(it)->keys &&
                 (first || ascends(&key, last)) && nj_json_char(json, ',') &&
                 read_numbers(json, tuning_of(it)->configs - 1, &configs) && configs.count > 0 &&
                 are_distinct(&configs) && nj_json_char(json, ',') && read_numbers(json, BEHIND_MAX, &behind) &&
                 behind.count == configs.count && nj_json_char(json, ']');
    if (!right || nj_items_add(&columns[0], make_numbers(&key)) < 0) {
        return false;
    }
    *last = key;
    return nj_items_add(&columns[1], make_numbers(&configs)) == 0 && nj_items_add(&columns[2], make_numbers(&behind)) == 0;
}

/* Takes the rows of a block, column by column: key values, configs, how far behind; NULL for all where a rule is broken. */
static void read_rows(nj_reading *it, PyObject *values[3])
{
    nj_items columns[3];
    nj_numbers last;
    int more = -1;
    for (int i = 0; i < 3; i++) {
        nj_items_init(&columns[i]);
    }
    if (nj_json_char(&it->json, '[')) {
        while ((more = nj_json_item(&it->json, columns[0].count == 0)) > 0) {
            if (!read_row(it, columns[0].count == 0, &last, columns)) {
                more = -1;
                break;
            }
        }
    }
    bool right = more == 0 && columns[0].count > 0;
    for (int i = 0; i < 3; i++) {
        values[i] = nj_items_end(&columns[i], right);
    }
}

static PyObject *read_block(nj_reading *it)
{
    PyObject *values[4] = {nj_json_is(&it->json, "{\"meanings\":") ? read_meanings(it) : NULL};
    if (values[0] != NULL && nj_json_is(&it->json, ",\"rows\":")) {
        read_rows(it, &values[1]);
    }
    return nj_read_closed(it, nj_record_make(&tuning_of(it)->block, values), '}');
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
    return nj_read_closed(it, nj_record_make(&tuning_of(it)->device, values), '}');
}

static PyObject *read_table(nj_reading *it)
{
    PyObject *values[2] = {NULL};
    if (nj_json_is(&it->json, "{\"blocks\":")) {
        values[1] = nj_read_array(it, NJ_POOL_MAX, read_block);
    }
    if (values[1] != NULL && nj_json_is(&it->json, ",\"device\":")) {
        values[0] = read_device(it);
    }
    return nj_read_closed(it, nj_record_make(&tuning_of(it)->table, values), '}');
}

static PyObject *read_bucket(nj_reading *it)
{
    nj_span text;
    bool known = nj_json_text(&it->json, NJ_NAME_MAX, &text) &&
                 (nj_span_is(text, "pow2") || nj_span_is(text, "quarter_pow2") || nj_span_is(text, "exact"));
    return known ? nj_read_word(it, text) : NULL;
}

static PyObject *read_tuning(nj_tuning *tuning)
{
    nj_reading *it = &tuning->reading;
    PyObject *bucket = nj_json_is(&it->json, "{\"bucket\":") ? read_bucket(it) : NULL, *key = NULL, *tables = NULL;
    if (bucket != NULL && nj_json_is(&it->json, ",\"key\":")) {
        key = nj_read_array(it, KEYS_MAX, nj_read_text);
    }
    tuning->keys = key == NULL ? 0 : PyTuple_GET_SIZE(key);
    if (tuning->keys > 0 && nj_json_is(&it->json, ",\"tables\":")) {
        tables = nj_read_array(it, TABLES_MAX, read_table);
    }
    bool whole = tables != NULL && nj_json_char(&it->json, '}') && it->json.at == it->json.end;
    PyObject *made = whole ? PyTuple_Pack(3, bucket, key, tables) : NULL;
    Py_XDECREF(bucket);
    Py_XDECREF(key);
    Py_XDECREF(tables);
    return made;
}

PyObject *nj_read_tuning(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *table, *block, *device, *read = NULL;
    nj_tuning tuning = {0};
    if (!PyArg_ParseTuple(args, "y*nnOOO:read_tuning", &raw, &tuning.meanings, &tuning.configs, &table, &block, &device)) {
        return NULL;
    }
    if (nj_record_of(table, 2, &tuning.table) == 0 && nj_record_of(block, 4, &tuning.block) == 0 &&
        nj_record_of(device, 4, &tuning.device) == 0) {
        tuning.reading.json = (nj_json){raw.buf, (const unsigned char *)raw.buf + raw.len};
        read = read_tuning(&tuning);
    }
    nj_reading_end(&tuning.reading);
    nj_record_clear(&tuning.table);
    nj_record_clear(&tuning.block);
    nj_record_clear(&tuning.device);
    PyBuffer_Release(&raw);
    return read != NULL || PyErr_Occurred() ? read : Py_NewRef(Py_None);
}
