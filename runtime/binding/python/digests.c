/* Digests of bytes. */
#include "module.h"
#include "python/utf8.h"

#include "base/sha256.h"

/* `sha256(data)`: returns the SHA-256 of bytes. */
static PyObject *sha256(PyObject *Py_UNUSED(module), PyObject *data)
{
    Py_buffer bytes;
    unsigned char digest[NJ_SHA256_BYTES];
    if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    nj_sha256(py_buffer_span(&bytes), digest);
    PyBuffer_Release(&bytes);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyMethodDef functions[] = {
    {"sha256", sha256, METH_O, PyDoc_STR("The SHA-256 of bytes.")},
    {NULL},
};

int py_add_digests(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
