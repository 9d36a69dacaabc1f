#include "placement.h"

#include "elf.h"

enum {
    LENGTH_BYTES = 4,
    RECORD_BYTES = 44,
    BYTES_MAX = 64 << 20, /* of an image; of a group, stored or raw */
};

/* What images and groups add up to, written behind a first 0. */
typedef struct {
    uint64_t *images, *bytes, *stored;
} nj_sums;

/* Whether each image has a length that it may have. */
static bool sum_images(nj_span lengths, uint64_t *bytes)
{
    size_t count = lengths.size / LENGTH_BYTES;
    bytes[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t length = nj_u32(lengths.at + i * LENGTH_BYTES);
        if (length == 0 || length > BYTES_MAX) {
            return false;
        }
        bytes[i + 1] = bytes[i] + length;
    }
    return true;
}

/* Whether the groups hold all images, each as many bytes as it says. */
static bool sum_records(nj_span records, uint64_t image_count, nj_sums *sums)
{
    size_t count = records.size / RECORD_BYTES;
    sums->images[0] = sums->stored[0] = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *record = records.at + i * RECORD_BYTES;
        uint32_t images = nj_u32(record), stored = nj_u32(record + 4), raw = nj_u32(record + 8);
        uint64_t first = sums->images[i];
        if (images == 0 || images > image_count - first || stored > BYTES_MAX || raw > BYTES_MAX ||
            sums->bytes[first + images] - sums->bytes[first] != raw) {
            return false;
        }
        sums->images[i + 1] = first + images;
        sums->stored[i + 1] = sums->stored[i] + stored;
    }
    return records.size % RECORD_BYTES == 0 && sums->images[count] == image_count;
}

static PyObject *make_sums(size_t count, uint64_t **numbers)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 1) * sizeof(uint64_t)));
    *numbers = bytes == NULL ? NULL : (uint64_t *)PyBytes_AS_STRING(bytes);
    return bytes;
}

static PyObject *sum_groups(nj_span images, nj_span groups)
{
    nj_sums sums;
    size_t image_count = images.size / LENGTH_BYTES, group_count = groups.size / RECORD_BYTES;
    PyObject *firsts = make_sums(group_count, &sums.images);
    PyObject *starts = make_sums(image_count, &sums.bytes);
    PyObject *stored = make_sums(group_count, &sums.stored);
    PyObject *made = NULL;
    if (firsts != NULL && starts != NULL && stored != NULL) {
        bool right = sum_images(images, sums.bytes) && sum_records(groups, image_count, &sums);
        made = right ? PyTuple_Pack(3, firsts, starts, stored) : NULL;
    }
    Py_XDECREF(firsts);
    Py_XDECREF(starts);
    Py_XDECREF(stored);
    return made;
}

PyObject *nj_sum_groups(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    Py_ssize_t images;
    PyObject *sums = NULL;
    if (!PyArg_ParseTuple(args, "y*n:sum_groups", &raw, &images)) {
        return NULL;
    }
    if (images >= 0 && images <= raw.len / LENGTH_BYTES) {
        size_t length = (size_t)images * LENGTH_BYTES;
        const unsigned char *at = raw.buf;
        sums = sum_groups((nj_span){at, length}, (nj_span){at + length, (size_t)raw.len - length});
    }
    PyBuffer_Release(&raw);
    return sums != NULL || PyErr_Occurred() ? sums : Py_NewRef(Py_None);
}
