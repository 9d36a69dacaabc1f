#include "reading.h"

#include "objects.h"

PyObject *nj_make_text(nj_span text)
{
    return PyUnicode_FromStringAndSize((const char *)text.at, (Py_ssize_t)text.size);
}

nj_word *nj_find_word(nj_reading *it, nj_span text)
{
    size_t mark = text.size == 0 ? 0 : text.size * 7 + text.at[0] * 3u + text.at[text.size - 1] * 5u + text.at[text.size / 2];
    nj_word *word = &it->words[mark % NJ_WORDS];
    if (word->object == NULL || !nj_span_equal(word->text, text)) {
        PyObject *object = nj_make_text(text);
        if (object == NULL) {
            return NULL;
        }
        Py_XSETREF(word->object, object);
        word->text = text;
        word->is_type = false;
    }
    return word;
}

PyObject *nj_read_array(nj_reading *it, Py_ssize_t most, nj_reader read)
{
    nj_items items;
    int more = -1;
    nj_items_init(&items);
    if (nj_json_char(&it->json, '[')) {
        while ((more = nj_json_item(&it->json, items.count == 0)) > 0) {
            if (items.count == most || nj_items_add(&items, read(it)) < 0) {
                more = -1;
                break;
            }
        }
    }
    return nj_items_end(&items, more == 0);
}

PyObject *nj_read_closed(nj_reading *it, PyObject *object, char bracket)
{
    if (object != NULL && !nj_json_char(&it->json, bracket)) {
        Py_CLEAR(object);
    }
    return object;
}

PyObject *nj_read_word(nj_reading *it, nj_span text)
{
    nj_word *word = nj_find_word(it, text);
    return word == NULL ? NULL : Py_NewRef(word->object);
}

bool nj_add_text(PyObject *texts, const unsigned char *start, const unsigned char *end)
{
    PyObject *text = PyBytes_FromStringAndSize((const char *)start, end - start);
    bool added = nj_set_grows(texts, text);
    Py_XDECREF(text);
    return added;
}

PyObject *nj_read_name(nj_reading *it)
{
    nj_span name;
    return nj_json_name(&it->json, &name) ? nj_read_word(it, name) : NULL;
}

PyObject *nj_read_text(nj_reading *it)
{
    nj_span text;
    return nj_json_text(&it->json, NJ_TEXT_MAX, &text) ? nj_make_text(text) : NULL;
}

PyObject *nj_ask(PyObject *function, PyObject *object)
{
    PyObject *answer = object == NULL ? NULL : PyObject_CallOneArg(function, object);
    Py_XDECREF(object);
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
    }
    return answer;
}

PyObject *nj_read_value(nj_reading *it)
{
    nj_json *json = &it->json;
    nj_span span;
    int64_t number;
    bool flag;
    if (json->at < json->end && *json->at == '"') {
        return nj_json_text(json, NJ_TEXT_MAX, &span) ? nj_read_word(it, span) : NULL;
    }
    if (json->at < json->end && *json->at == '{') {
        return nj_json_object(json, &span)
                   ? nj_ask(it->decode_value, PyBytes_FromStringAndSize((const char *)span.at, (Py_ssize_t)span.size))
                   : NULL;
    }
    if (nj_json_is(json, "null")) {
        Py_RETURN_NONE;
    }
    if (nj_json_flag(json, &flag)) {
        return PyBool_FromLong(flag);
    }
    return nj_json_int(json, &number) ? PyLong_FromLongLong(number) : NULL;
}

void nj_reading_end(nj_reading *it)
{
    for (size_t i = 0; i < NJ_WORDS; i++) {
        Py_CLEAR(it->words[i].object);
    }
}
