#include "placement.h"

#include "image/elf.h"
#include "base/span.h"

#include "cold.h"

enum {
    LENGTH_BYTES = 4,
    RECORD_BYTES = 44,
    DIGEST_BYTES = 32,
    BYTES_MAX = 8 << 20, /* of an image; of a group, stored or raw */
    RAW_BYTES_FREE = 4 << 10,
    RATIO_MAX = 64, /* of what is stored, what groups may be decompressed to beside that */
};

/* The lengths of images, and the record of each group. */
typedef struct {
    const unsigned char *lengths, *records;
    size_t images, groups;
} nj_placement;

/* A group, as its record has it. */
typedef struct {
    uint32_t images, stored_bytes, raw_bytes;
    const unsigned char *sha256;
} nj_group;

/* Takes bytes apart; false if there are not whole records behind so many lengths. */
static bool split(const Py_buffer *raw, Py_ssize_t images, nj_placement *it)
{
    if (images < 0 || images > raw->len / LENGTH_BYTES) {
        return false;
    }
    size_t length = (size_t)images * LENGTH_BYTES, rest = (size_t)raw->len - length;
    *it = (nj_placement){raw->buf, (const unsigned char *)raw->buf + length, (size_t)images, rest / RECORD_BYTES};
    return rest % RECORD_BYTES == 0;
}

static nj_group group_at(const nj_placement *it, size_t number)
{
    const unsigned char *record = it->records + number * RECORD_BYTES;
    return (nj_group){nj_u32(record), nj_u32(record + 4), nj_u32(record + 8), record + 12};
}

/* How long images are together; false if one is longer than it may be, or empty. */
static bool sum_lengths(const nj_placement *it, size_t first, size_t count, uint64_t *bytes)
{
    *bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        uint32_t length = nj_u32(it->lengths + i * LENGTH_BYTES);
        if (length == 0 || length > BYTES_MAX) {
            return false;
        }
        *bytes += length;
    }
    return true;
}

/* Whether the groups hold all images, each as many bytes as it says, and are so many bytes in all. */
static bool groups_are_right(const nj_placement *it, uint64_t payload_bytes)
{
    uint64_t raw_bytes, stored = 0, raw = 0;
    size_t first = 0;
    for (size_t i = 0; i < it->groups; i++) {
        nj_group group = group_at(it, i);
        if (group.images == 0 || group.images > it->images - first || group.stored_bytes > BYTES_MAX ||
            group.raw_bytes > BYTES_MAX || !sum_lengths(it, first, group.images, &raw_bytes) || raw_bytes != group.raw_bytes) {
            return false;
        }
        first += group.images;
        stored += group.stored_bytes;
        raw += group.raw_bytes;
    }
    return first == it->images && stored == payload_bytes && raw <= RAW_BYTES_FREE + RATIO_MAX * stored;
}

PyObject *nj_check_groups(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    Py_ssize_t images;
    unsigned long long payload_bytes;
    nj_placement it;
    if (!PyArg_ParseTuple(args, "y*nK:check_groups", &raw, &images, &payload_bytes)) {
        return NULL;
    }
    bool right = split(&raw, images, &it) && groups_are_right(&it, payload_bytes);
    PyBuffer_Release(&raw);
    return PyBool_FromLong(right);
}

/* Finds the group of an image: NULL with an exception raised, which there is not where groups were checked. */
static PyObject *find_image(const nj_placement *it, size_t image)
{
    uint64_t stored_start = 0, before, length;
    size_t first = 0;
    for (size_t i = 0; i < it->groups; i++) {
        nj_group group = group_at(it, i);
        if (image - first >= group.images) {
            first += group.images;
            stored_start += group.stored_bytes;
        } else if (sum_lengths(it, first, image - first, &before) && sum_lengths(it, image, 1, &length)) {
            return Py_BuildValue("(nKIIy#KK)", (Py_ssize_t)i, (unsigned long long)stored_start, group.stored_bytes,
                                 group.raw_bytes, (const char *)group.sha256, (Py_ssize_t)DIGEST_BYTES,
                                 (unsigned long long)before, (unsigned long long)(before + length));
        }
    }
    PyErr_SetString(PyExc_ValueError, "expected groups that were checked");
    return NULL;
}

PyObject *nj_find_image(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    Py_ssize_t images, image;
    nj_placement it;
    PyObject *place = NULL;
    if (!PyArg_ParseTuple(args, "y*nn:find_image", &raw, &images, &image)) {
        return NULL;
    }
    if (image < 0 || image >= images) {
        PyErr_Format(PyExc_IndexError, "expected an image below %zd, got %zd", images, image);
    } else if (!split(&raw, images, &it)) {
        PyErr_SetString(PyExc_ValueError, "expected groups that were checked");
    } else {
        place = find_image(&it, (size_t)image);
    }
    PyBuffer_Release(&raw);
    return place;
}
