#include "image.h"

#include "cubin.h"

#include "cold.h"

enum {
    WARP = 32,
    TENSOR_MAP_ALIGN = 64,
    COUNT_MAX = 1 << 16, /* of warps, of CTAs: more than any device takes */
};

/* What an index entry says. */
typedef struct {
    nj_span symbol;
    uint32_t sm;
    bool arch_specific;
    int num_warps;
    int num_ctas;
    size_t param_count;
    uint32_t sizes[NJ_CUBIN_PARAMS_MAX];
} nj_entry;

/* Whether each param has its size, and lies where `pack` puts it. */
static bool params_agree(const nj_cubin_kernel *kernel, const nj_entry *entry)
{
    uint32_t end = kernel->param_base;
    if (kernel->param_count != entry->param_count) {
        return false;
    }
    for (size_t i = 0; i < kernel->param_count; i++) {
        nj_param param = kernel->params[i];
        uint32_t align = param.size < TENSOR_MAP_ALIGN ? param.size : TENSOR_MAP_ALIGN;
        uint32_t begin = (end + align - 1) / align * align;
        if (param.size != entry->sizes[i] || param.offset != begin - kernel->param_base) {
            return false;
        }
        end = begin + param.size;
    }
    return true;
}

static bool agrees(const nj_cubin *cubin, const nj_entry *entry)
{
    const nj_cubin_kernel *kernel = &cubin->kernel;
    const uint32_t block[3] = {WARP * (uint32_t)entry->num_warps, 1, 1};
    const uint32_t cluster[3] = {(uint32_t)entry->num_ctas, 1, 1};
    return cubin->sm == entry->sm && cubin->arch_specific == entry->arch_specific && params_agree(kernel, entry) &&
           memcmp(kernel->block, block, sizeof block) == 0 && memcmp(kernel->cluster, cluster, sizeof cluster) == 0;
}

/* The UTF-8 of a str: 1, 0 if it has none, -1 with an exception raised. */
static int read_text(PyObject *text, nj_span *out)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    *out = (nj_span){(const unsigned char *)bytes, (size_t)size};
    return 1;
}

/* Reads ``sm_90a``; false for anything that is not spelled like it. */
static bool read_arch(nj_span text, nj_entry *entry)
{
    if (text.size < 5 || memcmp(text.at, "sm_", 3) != 0) {
        return false;
    }
    unsigned char suffix = text.at[text.size - 1];
    size_t end = text.size - (suffix == 'a' || suffix == 'f');
    entry->arch_specific = suffix == 'a';
    entry->sm = 0;
    for (size_t i = 3; i < end; i++) {
        if (text.at[i] < '0' || text.at[i] > '9' || i > 5) {
            return false;
        }
        entry->sm = 10 * entry->sm + (text.at[i] - '0');
    }
    return end > 4;
}

/* As `read_text`; 0 for more params than are read here. */
static int read_sizes(PyObject *sizes, nj_entry *entry)
{
    if (PyTuple_GET_SIZE(sizes) > NJ_CUBIN_PARAMS_MAX) {
        return 0;
    }
    entry->param_count = (size_t)PyTuple_GET_SIZE(sizes);
    for (size_t i = 0; i < entry->param_count; i++) {
        long size = PyLong_AsLong(PyTuple_GET_ITEM(sizes, (Py_ssize_t)i));
        if (size == -1 && PyErr_Occurred()) {
            return -1;
        }
        /* no param is empty: a size that no param can have agrees with none */
        entry->sizes[i] = size < 0 || size > UINT16_MAX ? 0 : (uint32_t)size;
    }
    return entry->num_warps > 0 && entry->num_warps < COUNT_MAX && entry->num_ctas > 0 && entry->num_ctas < COUNT_MAX;
}

static PyObject *list_params(const nj_cubin_kernel *kernel)
{
    PyObject *list = PyList_New((Py_ssize_t)kernel->param_count);
    for (size_t i = 0; list != NULL && i < kernel->param_count; i++) {
        PyObject *pair = Py_BuildValue("(ii)", kernel->params[i].offset, kernel->params[i].size);
        if (pair == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    return list;
}

/* What the caller goes on with: the params, the bytes of static shared memory, and the registers of a thread. */
static PyObject *told_of(const nj_cubin_kernel *kernel)
{
    PyObject *params = list_params(kernel);
    return params == NULL ? NULL : Py_BuildValue("(NII)", params, (unsigned int)kernel->shared_bytes, (unsigned int)kernel->registers);
}

PyObject *nj_check_image(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer image;
    PyObject *symbol, *sizes, *arch;
    nj_entry entry;
    if (!PyArg_ParseTuple(args, "y*UO!iiU:check_image", &image, &symbol, &PyTuple_Type, &sizes, &entry.num_warps,
                          &entry.num_ctas, &arch)) {
        return NULL;
    }
    nj_span bytes = {image.buf, (size_t)image.len}, arch_text;
    nj_cubin cubin;
    int status = read_sizes(sizes, &entry);
    status = status > 0 ? read_text(symbol, &entry.symbol) : status;
    status = status > 0 ? read_text(arch, &arch_text) : status;
    bool good = status > 0 && read_arch(arch_text, &entry) && nj_cubin_read(bytes, entry.symbol, &cubin) &&
                agrees(&cubin, &entry);
    PyBuffer_Release(&image);
    return status < 0 ? NULL : good ? told_of(&cubin.kernel) : Py_NewRef(Py_None);
}
