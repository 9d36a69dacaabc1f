/* Runs programs of expressions, for Python. */
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"

#include "expr/arguments.h"
#include "expr/machine.h"

/* Copies and validates the bytes of a program. Returns 0, or -1 with an exception raised. The caller frees `program->code`. */
static int read_program(PyObject *bytes, Py_ssize_t slots, nj_program *program)
{
    if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) % (Py_ssize_t)sizeof(nj_instruction) != 0) {
        PyErr_SetString(PyExc_ValueError, "expected the bytes of a program");
        return -1;
    }
    size_t length = (size_t)PyBytes_GET_SIZE(bytes) / sizeof(nj_instruction);
    nj_instruction *code = PyMem_Malloc((size_t)PyBytes_GET_SIZE(bytes) + 1);
    if (code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(code, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    if (!nj_program_valid(code, length, (size_t)slots)) {
        PyMem_Free(code);
        PyErr_SetString(PyExc_ValueError, "expected a program that stays within its stack and its slots");
        return -1;
    }
    *program = (nj_program){(uint32_t)length, code};
    return 0;
}

/* Reads a tuple of (tag, bits). Returns 0, or -1 with an exception raised. */
static int read_values(PyObject *pairs, nj_value *values)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        int tag;
        long long bits;
        PyObject *pair = PyTuple_GET_ITEM(pairs, i);
        if (!py_is_tuple(pair, "pairs (tag, bits)") || !PyArg_ParseTuple(pair, "iL", &tag, &bits)) {
            return -1;
        }
        values[i] = (nj_value){.tag = (uint8_t)tag, .bits = bits};
    }
    return 0;
}

/* `run_program(bytes, slots)`: returns (tag, bits) of the result, or the operation that failed as (op, left, right). */
static PyObject *run_program(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *bytes, *slots;
    if (!PyArg_ParseTuple(args, "SO!:run_program", &bytes, &PyTuple_Type, &slots)) {
        return NULL;
    }
    nj_value values[NJ_ARGUMENTS_MAX];
    nj_program program;
    if (PyTuple_GET_SIZE(slots) > NJ_ARGUMENTS_MAX) {
        return PyErr_Format(PyExc_ValueError, "expected at most %d slots", NJ_ARGUMENTS_MAX);
    }
    if (read_values(slots, values) < 0 || read_program(bytes, PyTuple_GET_SIZE(slots), &program) < 0) {
        return NULL;
    }
    nj_value result;
    nj_failure why;
    bool done = nj_run(&program, values, &result, &why);
    PyMem_Free(program.code);
    if (done) {
        return Py_BuildValue("(iL)", result.tag, (long long)result.bits);
    }
    return Py_BuildValue("(i(iL)(iL))", why.op, why.left.tag, (long long)why.left.bits, why.right.tag, (long long)why.right.bits);
}

static PyMethodDef functions[] = {
    {"run_program", run_program, METH_VARARGS,
     PyDoc_STR("Run a program over (tag, bits) slots. Return (tag, bits), or the operation that failed as (op, left, right).")},
    {NULL},
};

int py_add_run_program(PyObject *module)
{
    static const py_number tags[] = {
        {"TAG_MISSING", NJ_TAG_MISSING}, {"TAG_NONE", NJ_TAG_NONE},       {"TAG_BOOL", NJ_TAG_BOOL},   {"TAG_INT", NJ_TAG_INT},
        {"TAG_OPAQUE", NJ_TAG_OPAQUE},   {"TAG_POINTER", NJ_TAG_POINTER}, {"TAG_UINT", NJ_TAG_UINT}, {"TAG_TUPLE", NJ_TAG_TUPLE},
        {NULL},
    };
    return PyModule_AddFunctions(module, functions) < 0 ? -1 : py_add_numbers(module, tags);
}
