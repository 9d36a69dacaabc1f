#include "index.h"

#include "objects.h"
#include "reading.h"

#include "cold.h"

enum {
    SECTION_BYTES_MAX = 5 << 20,
    KERNELS_MAX = 4096,
    VARIANTS_MAX = 32768,
    TOOLS_MAX = 64,
    WARP_THREADS = 32,
    DRIVER_MAX = 1000000,
    DIGEST_CHARS = 64,
    SECTION_FIELDS = 3,
    ENTRY_FIELDS = 6,
    TARGET_FIELDS = 4,
};

#define PAYLOAD_BYTES_MAX ((int64_t)1 << 40)

typedef struct {
    nj_reading reading; /* first: readers of arrays get no more */
    nj_record section, entry, target;
    nj_span last; /* what a name must come behind, in arrays that are sorted by name */
} nj_index;

static nj_index *index_of(nj_reading *it)
{
    return (nj_index *)it;
}

static bool is_hex(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static PyObject *read_digest(nj_reading *it)
{
    nj_json *json = &it->json;
    if (!nj_json_char(json, '"')) {
        return NULL;
    }
    nj_span text = {json->at, 0};
    while (json->at < json->end && is_hex(*json->at)) {
        json->at++;
    }
    text.size = (size_t)(json->at - text.at);
    return text.size == DIGEST_CHARS && nj_json_char(json, '"') ? nj_read_word(it, text) : NULL;
}

static PyObject *read_count(nj_reading *it, int64_t most)
{
    int64_t number;
    return nj_json_count(&it->json, 0, most, &number) ? PyLong_FromLongLong(number) : NULL;
}

/* Takes a section: stored bytes, raw bytes, digest. */
static PyObject *read_section(nj_reading *it)
{
    PyObject *values[SECTION_FIELDS] = {NULL};
    if (nj_json_is(&it->json, "{\"raw_bytes\":")) {
        values[1] = read_count(it, SECTION_BYTES_MAX);
    }
    if (values[1] != NULL && nj_json_is(&it->json, ",\"sha256\":")) {
        values[2] = read_digest(it);
    }
    if (values[2] != NULL && nj_json_is(&it->json, ",\"stored_bytes\":")) {
        values[0] = read_count(it, SECTION_BYTES_MAX);
    }
    return nj_read_closed(it, nj_record_make(&index_of(it)->section, values), '}');
}

static bool comes_behind(nj_span text, nj_span last)
{
    size_t common = text.size < last.size ? text.size : last.size;
    int order = common == 0 ? 0 : memcmp(text.at, last.at, common);
    return last.at == NULL || order > 0 || (order == 0 && text.size > last.size);
}

/* The text that was just taken, if it comes behind the one before. */
static PyObject *in_order(nj_reading *it, nj_span text)
{
    nj_span last = index_of(it)->last;
    index_of(it)->last = text;
    return comes_behind(text, last) ? nj_read_word(it, text) : NULL;
}

/* Takes how many variants, images or groups a kernel has. */
static PyObject *read_amount(nj_reading *it)
{
    return read_count(it, VARIANTS_MAX);
}

static PyObject *read_payload_bytes(nj_reading *it)
{
    return read_count(it, PAYLOAD_BYTES_MAX);
}

static PyObject *read_kernel(nj_reading *it)
{
    nj_span name;
    return nj_json_name(&it->json, &name) ? in_order(it, name) : NULL;
}

static const struct {
    const char *key;
    int field; /* its place in the record */
    nj_reader read;
} of_entry[ENTRY_FIELDS] = {
    {"{\"groups\":", 3, read_amount},
    {",\"images\":", 2, read_amount},
    {",\"name\":", 0, read_kernel},
    {",\"payload_bytes\":", 4, read_payload_bytes},
    {",\"table\":", 5, read_section},
    {",\"variants\":", 1, read_amount},
};

static PyObject *read_entry(nj_reading *it)
{
    PyObject *values[ENTRY_FIELDS] = {NULL};
    bool whole = true;
    for (int i = 0; whole && i < ENTRY_FIELDS; i++) {
        PyObject *value = nj_json_is(&it->json, of_entry[i].key) ? of_entry[i].read(it) : NULL;
        values[of_entry[i].field] = value;
        whole = value != NULL;
    }
    return nj_read_closed(it, nj_record_make(&index_of(it)->entry, values), '}');
}

/* Takes ``"sm_90"``; with one of the letters `suffixes` behind it or not. */
static PyObject *read_arch(nj_reading *it, const char *suffixes)
{
    nj_span text;
    if (!nj_json_text(&it->json, 7, &text) || text.size < 5 || memcmp(text.at, "sm_", 3) != 0) {
        return NULL;
    }
    size_t digits = text.size - 3;
    digits -= memchr(suffixes, text.at[text.size - 1], strlen(suffixes)) != NULL;
    for (size_t i = 0; i < digits; i++) {
        if (text.at[3 + i] < '0' || text.at[3 + i] > '9') {
            return NULL;
        }
    }
    return digits == 2 || digits == 3 ? nj_read_word(it, text) : NULL;
}

/* Whether the target is CUDA's, and its images are for the chip that the arch names. */
static bool is_of_one_chip(PyObject *const *values)
{
    PyObject *arch = values[1], *image = values[2];
    Py_ssize_t size = PyUnicode_GET_LENGTH(arch), image_size = PyUnicode_GET_LENGTH(image);
    bool has_suffix = image_size == size + 1 && !Py_UNICODE_ISDIGIT(PyUnicode_READ_CHAR(image, size));
    return PyUnicode_CompareWithASCIIString(values[0], "cuda") == 0 && PyLong_AsLong(values[3]) == WARP_THREADS &&
           PyUnicode_Tailmatch(image, arch, 0, image_size, -1) == 1 && (image_size == size || has_suffix);
}

static PyObject *read_target(nj_reading *it)
{
    PyObject *values[TARGET_FIELDS] = {NULL};
    if (nj_json_is(&it->json, "{\"arch\":")) {
        values[1] = read_arch(it, "");
    }
    if (values[1] != NULL && nj_json_is(&it->json, ",\"backend\":")) {
        values[0] = nj_read_name(it);
    }
    if (values[0] != NULL && nj_json_is(&it->json, ",\"image_arch\":")) {
        values[2] = read_arch(it, "af");
    }
    if (values[2] != NULL && nj_json_is(&it->json, ",\"warp_size\":")) {
        values[3] = read_count(it, WARP_THREADS);
    }
    if (values[3] != NULL && !is_of_one_chip(values)) {
        Py_CLEAR(values[3]);
    }
    return nj_read_closed(it, nj_record_make(&index_of(it)->target, values), '}');
}

static PyObject *read_tool(nj_reading *it)
{
    nj_span name;
    PyObject *tool = NULL, *version = NULL;
    if (nj_json_char(&it->json, '[') && nj_json_text(&it->json, NJ_TEXT_MAX, &name)) {
        tool = in_order(it, name);
    }
    if (tool != NULL && nj_json_char(&it->json, ',')) {
        version = nj_read_text(it);
    }
    PyObject *pair = version == NULL ? NULL : PyTuple_Pack(2, tool, version);
    Py_XDECREF(tool);
    Py_XDECREF(version);
    return nj_read_closed(it, pair, ']');
}

static PyObject *read_entries(nj_reading *it)
{
    index_of(it)->last = (nj_span){0};
    return nj_read_array(it, KERNELS_MAX, read_entry);
}

static PyObject *read_tools(nj_reading *it)
{
    index_of(it)->last = (nj_span){0};
    return nj_read_array(it, TOOLS_MAX, read_tool);
}

static PyObject *read_min_driver(nj_reading *it)
{
    return read_count(it, DRIVER_MAX);
}

static const struct {
    const char *key;
    nj_reader read;
} fields[] = {
    {"{\"inputs\":", read_digest},
    {",\"kernels\":", read_entries},
    {",\"min_driver\":", read_min_driver},
    {",\"name\":", nj_read_name},
    {",\"target\":", read_target},
    {",\"toolchain\":", read_tools},
    {",\"version\":", nj_read_text},
};

static PyObject *read_index(nj_index *index)
{
    nj_json *json = &index->reading.json;
    nj_items items;
    bool whole = nj_json_modest(json);
    nj_items_init(&items);
    for (size_t i = 0; whole && i < sizeof fields / sizeof *fields; i++) {
        whole = nj_json_is(json, fields[i].key) && nj_items_add(&items, fields[i].read(&index->reading)) == 0;
    }
    return nj_items_end(&items, whole && nj_json_char(json, '}') && json->at == json->end);
}

PyObject *nj_read_index(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *section, *entry, *target, *read = NULL;
    nj_index index = {0};
    if (!PyArg_ParseTuple(args, "y*OOO:read_index", &raw, &section, &entry, &target)) {
        return NULL;
    }
    if (nj_record_of(section, SECTION_FIELDS, &index.section) == 0 &&
        nj_record_of(entry, ENTRY_FIELDS, &index.entry) == 0 && nj_record_of(target, TARGET_FIELDS, &index.target) == 0) {
        index.reading.json = (nj_json){raw.buf, (const unsigned char *)raw.buf + raw.len};
        read = read_index(&index);
    }
    nj_reading_end(&index.reading);
    nj_record_clear(&index.section);
    nj_record_clear(&index.entry);
    nj_record_clear(&index.target);
    PyBuffer_Release(&raw);
    return read != NULL || PyErr_Occurred() ? read : Py_NewRef(Py_None);
}
