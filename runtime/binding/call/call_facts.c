#include "call/call_facts.h"

#include "call/signature.h"
#include "python/tuples.h"

static PyObject *argument_fact(const py_call *call, const nj_value *value, PyObject *object);

/* Returns ("tuple", "", facts of the members). */
static PyObject *tuple_fact(const py_call *call, const nj_value *value, PyObject *object)
{
    const nj_value *leaf = &call->leaves[nj_tuple_start(value)];
    PyObject *facts = PyTuple_New(PyTuple_GET_SIZE(object));
    for (Py_ssize_t i = 0; facts != NULL && i < PyTuple_GET_SIZE(object); i++) {
        PyObject *fact = argument_fact(call, leaf, PyTuple_GET_ITEM(object, i));
        if (fact == NULL) {
            Py_CLEAR(facts);
            break;
        }
        PyTuple_SET_ITEM(facts, i, fact);
        leaf += leaf->tag == NJ_TAG_TUPLE ? 1 + nj_tuple_entries(leaf) : 1;
    }
    return facts == NULL ? NULL : Py_BuildValue("(ssN)", "tuple", "", facts);
}

/* Returns ("descriptor", dtype, block shape). */
static PyObject *descriptor_fact(const nj_descriptor *descriptor)
{
    return Py_BuildValue("(ssN)", "descriptor", nj_dtype_name(descriptor->base.dtype), py_tuple_of_numbers(descriptor->block, descriptor->rank));
}

/* Returns (kind, dtype, value) of an argument, as `Kernel` reads it. */
static PyObject *argument_fact(const py_call *call, const nj_value *value, PyObject *object)
{
    switch (value->tag) {
    case NJ_TAG_NONE: return Py_BuildValue("(ssO)", "none", "", Py_None);
    case NJ_TAG_BOOL: return Py_BuildValue("(ssO)", "bool", "", value->bits ? Py_True : Py_False);
    case NJ_TAG_INT: return Py_BuildValue("(ssL)", "int", "", (long long)value->bits);
    case NJ_TAG_UINT: return Py_BuildValue("(ssK)", "int", "", (unsigned long long)value->bits);
    case NJ_TAG_OPAQUE: return Py_BuildValue("(ssd)", "float", "", nj_as_double(value->bits));
    case NJ_TAG_POINTER:
        return Py_BuildValue("(ssK)", "pointer", nj_dtype_name(value->dtype), (unsigned long long)value->bits);
    case NJ_TAG_TUPLE: return tuple_fact(call, value, object);
    case NJ_TAG_DESCRIPTOR: return descriptor_fact(&call->descriptors[value->bits]);
    default: return Py_BuildValue("(ssO)", PyLong_Check(object) ? "int" : "other", "", object);
    }
}

static int add_fact(const py_signature *signature, const py_call *call, Py_ssize_t at, PyObject *arguments,
                    PyObject *constexprs, PyObject *options)
{
    PyObject *name = signature->names[at];
    PyObject *object = call->objects[at];
    if (at >= signature->param_count || signature->constexprs[at]) {
        PyObject *into = at >= signature->param_count ? options : constexprs;
        return object == NULL ? 0 : PyDict_SetItem(into, name, object);
    }
    PyObject *fact = argument_fact(call, &call->values[at], object);
    int status = fact == NULL ? -1 : PyDict_SetItem(arguments, name, fact);
    Py_XDECREF(fact);
    return status;
}

PyObject *py_call_facts(const py_signature *signature, const py_call *call)
{
    PyObject *arguments = PyDict_New();
    PyObject *constexprs = PyDict_New();
    PyObject *options = PyDict_New();
    int status = arguments == NULL || constexprs == NULL || options == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < signature->count && status == 0; i++) {
        status = add_fact(signature, call, i, arguments, constexprs, options);
    }
    PyObject *facts = status == 0 ? PyTuple_Pack(3, arguments, constexprs, options) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(constexprs);
    Py_XDECREF(options);
    return facts;
}
