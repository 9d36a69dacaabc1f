/* Assembles programs from postfix expressions, and lists the engine's operations, for Python. */
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "expr/infix.h"
#include "expr/operation_names.h"
#include "expr/postfix.h"

typedef struct {
    PyObject *values, *slots; /* dicts by name: values of constants, slots of variables; borrowed */
    PyObject *constant;       /* callable: returns the instruction for a constant that is neither int, bool nor None; borrowed */
} py_names;

/* Asks Python for the instruction that pushes a constant. Returns false with an exception raised. */
static bool ask_constant(const py_names *names, PyObject *value, nj_instruction *push)
{
    PyObject *pair = PyObject_CallOneArg(names->constant, value);
    long long operand;
    bool right = py_is_tuple(pair, "an instruction: (op, operand)") && PyArg_ParseTuple(pair, "bL", &push->op, &operand);
    Py_XDECREF(pair);
    push->operand = right ? operand : 0;
    return right;
}

static bool push_constant(const py_names *names, PyObject *value, nj_instruction *push)
{
    int overflow = 0;
    if (value == Py_None) {
        push->op = NJ_OP_CONST_NONE;
    } else if (PyBool_Check(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_BOOL, .operand = value == Py_True};
    } else if (PyLong_CheckExact(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = PyLong_AsLongLongAndOverflow(value, &overflow)};
    } else {
        return ask_constant(names, value, push);
    }
    return overflow == 0;
}

/* Removes a string's quotes and asks Python for its instruction. */
static bool push_string(const py_names *names, nj_span word, nj_instruction *push)
{
    bool whole = word.size > 1 && word.at[word.size - 1] == *word.at;
    PyObject *string = !whole ? NULL : PyUnicode_FromStringAndSize((const char *)word.at + 1, (Py_ssize_t)word.size - 2);
    bool done = string != NULL && ask_constant(names, string, push);
    Py_XDECREF(string);
    return done;
}

static bool find_name(void *context, nj_span word, nj_instruction *push)
{
    const py_names *names = context;
    if (*word.at == '\'' || *word.at == '"') {
        return push_string(names, word, push);
    }
    PyObject *name = PyUnicode_FromStringAndSize((const char *)word.at, (Py_ssize_t)word.size);
    PyObject *value = name == NULL ? NULL : PyDict_GetItemWithError(names->values, name);
    PyObject *slot = name == NULL || value != NULL || PyErr_Occurred() ? NULL : PyDict_GetItemWithError(names->slots, name);
    Py_XDECREF(name);
    if (value != NULL) {
        return push_constant(names, value, push);
    }
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = slot == NULL ? -1 : PyLong_AsLongLong(slot)};
    return slot != NULL;
}

/* `assemble(words, values, slots, constant)`: returns the bytes of a program over `values` and `slots`, dicts by name; empty if the words
 * make no valid program. `constant` returns the instruction that pushes a value other than an int, bool or None. */
static PyObject *assemble(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *words;
    Py_ssize_t size;
    nj_assembly made;
    py_names names;
    if (!PyArg_ParseTuple(args, "s#O!O!O:assemble", &words, &size, &PyDict_Type, &names.values, &PyDict_Type, &names.slots,
                          &names.constant)) {
        return NULL;
    }
    bool whole = nj_assemble((nj_span){(const unsigned char *)words, (size_t)size}, find_name, &names, SIZE_MAX, &made);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)made.code, whole ? (Py_ssize_t)(made.length * sizeof *made.code) : 0);
}

/* `postfix(text)`: returns an expression in postfix, or its syntax error as `(what, column)`. */
static PyObject *postfix(PyObject *Py_UNUSED(module), PyObject *text)
{
    nj_span infix;
    if (!py_borrow_text(text, &infix)) {
        return NULL;
    }
    char *words = PyMem_Malloc(nj_postfix_room(infix.size));
    if (words == NULL) {
        return PyErr_NoMemory();
    }
    size_t length;
    nj_syntax_error error;
    bool whole = nj_postfix(infix, words, &length, &error);
    PyObject *found = whole ? PyUnicode_FromStringAndSize(words, (Py_ssize_t)length)
                            : Py_BuildValue("(sn)", error.what, (Py_ssize_t)error.column);
    PyMem_Free(words);
    return found;
}

static PyObject *make_operation(void *Py_UNUSED(context), const void *operations, size_t number)
{
    const nj_operation *it = &((const nj_operation *)operations)[number];
    const char *word = it->word == NULL ? "" : it->word;
    return Py_BuildValue("(sisii)", it->name, it->op, word, it->word == NULL ? 0 : (int)nj_operands(it->op), it->binding);
}

/* `operations()`: returns (name, number, word in postfix, number of operands, precedence) of each instruction. */
static PyObject *operations(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return py_tuple(NJ_OPERATION_COUNT, make_operation, NULL, nj_operations);
}

static PyMethodDef functions[] = {
    {"assemble", assemble, METH_VARARGS,
     PyDoc_STR("The program of a postfix expression, with constants folded; no bytes if it is not valid.")},
    {"operations", operations, METH_NOARGS, PyDoc_STR("(name, number, word, number of operands, precedence) of each instruction.")},
    {"postfix", postfix, METH_O, PyDoc_STR("An expression in postfix, or its syntax error as (what, column).")},
    {NULL},
};

int py_add_assemble(PyObject *module)
{
    static const py_number numbers[] = {
        {"BINDS_NOT", NJ_BINDS_NOT},
        {"BINDS_COMPARISON", NJ_BINDS_COMPARISON},
        {"BINDS_SIGN", NJ_BINDS_SIGN},
        {"BINDS_CALL", NJ_BINDS_CALL},
        {"EXPRESSION_LENGTH_MAX", NJ_EXPRESSION_LENGTH_MAX},
        {"EXPRESSION_HEIGHT_MAX", NJ_EXPRESSION_HEIGHT_MAX},
        {"PROGRAM_LENGTH_MAX", NJ_PROGRAM_LENGTH_MAX},
        {NULL},
    };
    static const py_named_text texts[] = {{"PROGRAM_RULE", NJ_PROGRAM_RULE}, {NULL}};
    bool added = PyModule_AddFunctions(module, functions) == 0 && py_add_numbers(module, numbers) == 0 && py_add_texts(module, texts) == 0;
    return added ? 0 : -1;
}
