#include "operators/recipe.h"

#include <structmember.h>

#include "call/bind.h"
#include "kernel/dispatcher.h"
#include "module.h"
#include "python/at_import.h"
#include "python/records.h"
#include "python/threads.h"
#include "python/tuples.h"

PyTypeObject *py_recipe_type;

static PyObject *take_step(const py_step *step, PyObject *const *made, const py_seen *seen)
{
    /* PY_VECTORCALL_ARGUMENTS_OFFSET lets the callee write to the first element */
    PyObject *arguments[1 + PY_STEP_ARGUMENTS_MAX];
    Py_ssize_t count = PyTuple_GET_SIZE(step->arguments);
    Py_ssize_t named = step->names == NULL ? 0 : PyTuple_GET_SIZE(step->names);
    for (Py_ssize_t i = 0; i < count; i++) {
        arguments[1 + i] = PyTuple_GET_ITEM(step->arguments, i);
    }
    for (Py_ssize_t i = 0; i < step->place_count; i++) {
        arguments[1 + step->places[i].argument] = made[step->places[i].made];
    }
    size_t positional = (size_t)(count - named) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (step->launches) {
        return py_dispatcher_launch((py_dispatcher *)step->function, NULL, seen, arguments + 1, positional, step->names);
    }
    if (Py_EnterRecursiveCall(" in the steps of a recipe")) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(step->function, arguments + 1, positional, step->names);
    Py_LeaveRecursiveCall();
    return result;
}

static PyObject *results_of(const py_recipe *recipe, PyObject *const *made)
{
    if (recipe->result_count == 1) {
        return Py_NewRef(made[recipe->results[0]]);
    }
    PyObject *tuple = PyTuple_New(recipe->result_count);
    for (Py_ssize_t i = 0; tuple != NULL && i < recipe->result_count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(made[recipe->results[i]]));
    }
    return tuple;
}

PyObject *py_recipe_follow(const py_recipe *recipe, PyObject *const *operands, const DLTensor *views)
{
    PyObject *made[PY_MADE_MAX];
    Py_ssize_t count = recipe->operand_count;
    const py_seen seen = {operands, views, views == NULL ? 0 : count};
    memcpy(made, operands, (size_t)count * sizeof *made);
    bool done = true;
    for (Py_ssize_t i = 0; i < recipe->step_count && done; i++) {
        PyObject *result = take_step(&recipe->steps[i], made, &seen);
        done = result != NULL;
        if (done && recipe->steps[i].keeps) {
            made[count++] = result;
        } else {
            Py_XDECREF(result);
        }
    }
    PyObject *results = done ? results_of(recipe, made) : NULL;
    while (count > recipe->operand_count) {
        Py_DECREF(made[--count]);
    }
    return results;
}

static PyObject *recipe_call(PyObject *self, PyObject *const *arguments, size_t positional, PyObject *keywords)
{
    const py_recipe *recipe = (const py_recipe *)self;
    if (recipe->levels > PY_RECIPE_LEVELS_MAX) {
        return PyErr_Format(PyExc_RecursionError, "expected recipes nested at most %d deep", PY_RECIPE_LEVELS_MAX);
    }
    if (PyVectorcall_NARGS(positional) != recipe->operand_count || keywords != NULL) {
        PyErr_Format(PyExc_TypeError, "expected %zd operands by position", recipe->operand_count);
        return NULL;
    }
    return py_recipe_follow(recipe, arguments, NULL);
}

/* Reads an index. Returns -1 with an exception raised if it is no int from 0 to `limit` - 1. */
static Py_ssize_t read_index(PyObject *object, Py_ssize_t limit)
{
    Py_ssize_t index = PyLong_Check(object) ? PyLong_AsSsize_t(object) : -1;
    if (index < 0 || index >= limit) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "a step or result refers to an argument that does not exist");
        return -1;
    }
    return index;
}

static int read_places(PyObject *places, Py_ssize_t made, py_step *step)
{
    Py_ssize_t count = PyTuple_GET_SIZE(places);
    step->places = PyMem_Calloc((size_t)count + 1, sizeof *step->places);
    if (step->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *argument, *of;
        PyObject *place = PyTuple_GET_ITEM(places, i);
        if (!py_is_tuple(place, "places: (argument, made)") || !PyArg_ParseTuple(place, "OO;expected places: (argument, made)", &argument, &of)) {
            return -1;
        }
        Py_ssize_t at = read_index(argument, PyTuple_GET_SIZE(step->arguments));
        Py_ssize_t from = at < 0 ? -1 : read_index(of, made);
        if (from < 0) {
            return -1;
        }
        step->places[i] = (py_recipe_place){(uint16_t)at, (uint16_t)from};
    }
    step->place_count = count;
    return 0;
}

/* True if all names are str, and there are no more names than arguments. */
static bool names_fit(PyObject *names, PyObject *arguments)
{
    bool fit = PyTuple_GET_SIZE(names) <= PyTuple_GET_SIZE(arguments);
    for (Py_ssize_t i = 0; fit && i < PyTuple_GET_SIZE(names); i++) {
        fit = PyUnicode_Check(PyTuple_GET_ITEM(names, i));
    }
    return fit;
}

/* True if a kernel takes each param by name or position alike. A kernel with `*args` gathers positional arguments instead. */
static bool takes_names(const PyObject *kernel)
{
    const py_signature *signature = &((const py_dispatcher *)kernel)->signature;
    return signature->names != NULL && signature->rest < 0;
}

/* Computes the new index of each argument of a launch. A named argument becomes positional if every param before its own is given,
 * too. Returns the number of positional arguments. */
static Py_ssize_t find_positions(const py_step *step, uint16_t to[PY_STEP_ARGUMENTS_MAX])
{
    const py_signature *signature = &((const py_dispatcher *)step->function)->signature;
    Py_ssize_t count = PyTuple_GET_SIZE(step->arguments), first = count - PyTuple_GET_SIZE(step->names), end = first;
    Py_ssize_t params[PY_STEP_ARGUMENTS_MAX];
    bool given[PY_STEP_ARGUMENTS_MAX + 1] = {false};
    for (Py_ssize_t i = first; i < count; i++) {
        Py_ssize_t param = py_place_of(signature, PyTuple_GET_ITEM(step->names, i - first), i);
        bool moves = param >= first && param < count && param < signature->param_count && !given[param];
        params[i] = moves ? param : count;
        given[params[i]] = true;
    }
    while (end < count && given[end]) {
        end++;
    }
    for (Py_ssize_t i = 0, next = end; i < count; i++) {
        bool moves = i >= first && params[i] < end;
        to[i] = (uint16_t)(i < first ? i : moves ? params[i] : next++);
    }
    return end;
}

/* Makes named arguments of a launch positional, as far as the order of the params allows, so that replays look up no names. */
static int pass_by_position(py_step *step)
{
    uint16_t to[PY_STEP_ARGUMENTS_MAX];
    Py_ssize_t count = PyTuple_GET_SIZE(step->arguments), first = count - PyTuple_GET_SIZE(step->names);
    Py_ssize_t end = find_positions(step, to);
    PyObject *arguments = PyTuple_New(count), *names = PyTuple_New(count - end);
    if (arguments == NULL || names == NULL) {
        Py_XDECREF(arguments);
        Py_XDECREF(names);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(arguments, to[i], Py_NewRef(PyTuple_GET_ITEM(step->arguments, i)));
        if (to[i] >= end) {
            PyTuple_SET_ITEM(names, to[i] - end, Py_NewRef(PyTuple_GET_ITEM(step->names, i - first)));
        }
    }
    for (Py_ssize_t i = 0; i < step->place_count; i++) {
        step->places[i].argument = to[step->places[i].argument];
    }
    Py_SETREF(step->arguments, arguments);
    if (end == count) {
        Py_CLEAR(names);
    }
    Py_SETREF(step->names, names);
    return 0;
}

static int read_step(PyObject *facts, Py_ssize_t made, py_step *step)
{
    PyObject *function, *arguments, *names, *places;
    int keeps;
    if (!py_is_tuple(facts, "steps: (function, arguments, names, places, keeps)") ||
        !PyArg_ParseTuple(facts, "OO!O!O!p", &function, &PyTuple_Type, &arguments, &PyTuple_Type, &names, &PyTuple_Type,
                          &places, &keeps)) {
        return -1;
    }
    if (PyTuple_GET_SIZE(arguments) > PY_STEP_ARGUMENTS_MAX || !names_fit(names, arguments) || made + keeps > PY_MADE_MAX) {
        PyErr_Format(PyExc_ValueError, "expected a step of at most %d arguments, named from the last one, and at most %d results in all",
                     PY_STEP_ARGUMENTS_MAX, PY_MADE_MAX);
        return -1;
    }
    step->function = Py_NewRef(function);
    step->arguments = Py_NewRef(arguments);
    step->names = PyTuple_GET_SIZE(names) > 0 ? Py_NewRef(names) : NULL;
    step->launches = py_dispatcher_is(function);
    step->keeps = keeps;
    if (read_places(places, made, step) < 0) {
        return -1;
    }
    return step->launches && step->names != NULL && takes_names(step->function) ? pass_by_position(step) : 0;
}

static int read_recipe(PyObject *steps, PyObject *results, py_recipe *self)
{
    self->steps = PyMem_Calloc((size_t)PyTuple_GET_SIZE(steps) + 1, sizeof *self->steps);
    if (self->steps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->made_count = self->operand_count;
    self->levels = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); i++) {
        self->step_count = i + 1;
        if (read_step(PyTuple_GET_ITEM(steps, i), self->made_count, &self->steps[i]) < 0) {
            return -1;
        }
        self->made_count += self->steps[i].keeps;
        uint32_t inner = Py_IS_TYPE(self->steps[i].function, py_recipe_type) ? ((py_recipe *)self->steps[i].function)->levels : 0;
        self->levels = inner >= self->levels ? inner + 1 : self->levels;
    }
    if (PyTuple_GET_SIZE(results) > PY_MADE_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d results", PY_MADE_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++) {
        Py_ssize_t from = read_index(PyTuple_GET_ITEM(results, i), self->made_count);
        if (from < 0) {
            return -1;
        }
        self->results[self->result_count++] = (uint16_t)from;
    }
    return 0;
}

static PyObject *recipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"operands", "steps", "results", NULL};
    Py_ssize_t operands;
    PyObject *steps, *results;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO!O!:Recipe", names, &operands, &PyTuple_Type, &steps, &PyTuple_Type,
                                     &results)) {
        return NULL;
    }
    if (operands < 0 || operands > PY_MADE_MAX) {
        return PyErr_Format(PyExc_ValueError, "expected 0 to %d operands, got %zd", PY_MADE_MAX, operands);
    }
    py_recipe *self = (py_recipe *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = recipe_call;
        self->operand_count = operands;
        if (read_recipe(steps, results, self) < 0) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static int recipe_traverse(py_recipe *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        Py_VISIT(self->steps[i].function);
        Py_VISIT(self->steps[i].arguments);
    }
    return 0;
}

static void recipe_dealloc(py_recipe *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, recipe_dealloc);
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        Py_XDECREF(self->steps[i].function);
        Py_XDECREF(self->steps[i].arguments);
        Py_XDECREF(self->steps[i].names);
        PyMem_Free(self->steps[i].places);
    }
    PyMem_Free(self->steps);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static PyMemberDef recipe_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_recipe, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot recipe_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Recipe(operands, steps, results)\n--\n\nCalls of an operator on its operands, to be replayed.")},
    {Py_tp_new, recipe_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, recipe_traverse},
    {Py_tp_dealloc, recipe_dealloc},
    {Py_tp_members, recipe_members},
    {0, NULL},
};

static PyType_Spec recipe_spec = {
    .name = "nojit.runtime._core.Recipe",
    .basicsize = sizeof(py_recipe),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recipe_slots,
};

int py_add_recipe(PyObject *module)
{
    static const py_number limits[] = {{"MADE_MAX", PY_MADE_MAX}, {NULL}};
    return py_add_numbers(module, limits) < 0 ? -1 : py_add_type(module, &recipe_spec, &py_recipe_type);
}
