#include "plan/py_spec.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/threads.h"
#include "table/py_table.h"

PyTypeObject *py_spec_type;

static int read_ordering(PyObject *object, const nj_table *table, py_ordering *ordering)
{
    return PyLong_Check(object) ? py_ordering_own(table, object, ordering) : py_ordering_read(object, ordering);
}

static int spec_init(py_spec *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"table", "options", "ids", "arch", "ordering", "where", NULL};
    PyObject *handle, *ids, *ordering, *where;
    Py_ssize_t options;
    int arch;
    nj_error error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnO!iOO:Spec", names, &handle, &options, py_ids_type, &ids, &arch, &ordering, &where)) {
        return -1;
    }
    const nj_table *table = py_table_of(handle);
    if (table == NULL || options < 0 || read_ordering(ordering, table, &self->ordering) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "expected how many options there are");
        }
        self->ordering.object = NULL;
        return -1;
    }
    Py_XINCREF(self->ordering.object);
    self->table = Py_NewRef(handle);
    self->ids = (py_ids *)Py_NewRef(ids);
    const py_ordering *by = &self->ordering;
    if (!nj_spec_init(&self->it, table, self->ids->ids, (size_t)options, arch, by->tuning, &by->tuned, &error)) {
        py_raise(&error, where);
        return -1;
    }
    return 0;
}

static PyObject *spec_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    py_spec *self = (py_spec *)type->tp_alloc(type, 0);
    if (self != NULL && spec_init(self, args, kwargs) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* The arguments of a tp_traverse. */
typedef struct {
    visitproc visit;
    void *arg;
} visiting;

static int visit_plan(void *plan, void *context)
{
    const visiting *it = context;
    return it->visit(plan, it->arg);
}

static void drop_plan(void *plan)
{
    Py_DECREF((PyObject *)plan);
}

static int spec_traverse(py_spec *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    visiting facts = {visit, arg};
    return nj_plan_cache_visit(&self->cache, visit_plan, &facts);
}

static int spec_clear(py_spec *self)
{
    nj_plan_cache_clear(&self->cache, drop_plan);
    return 0;
}

static void spec_dealloc(py_spec *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PY_BEGIN_FREE(self, spec_dealloc);
    spec_clear(self);
    nj_spec_clear(&self->it);
    Py_XDECREF((PyObject *)self->ordering.object);
    Py_XDECREF(self->table);
    Py_XDECREF((PyObject *)self->ids);
    type->tp_free(self);
    Py_DECREF(type);
    PY_END_FREE();
}

static Py_ssize_t spec_length(py_spec *self)
{
    return (Py_ssize_t)self->cache.used;
}

static PyType_Slot spec_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("The facts that select a variant on one device, and the cached plans.")},
    {Py_tp_new, spec_new},
    {Py_tp_traverse, spec_traverse},
    {Py_tp_clear, spec_clear},
    {Py_tp_dealloc, spec_dealloc},
    {Py_sq_length, spec_length},
    {0, NULL},
};

static PyType_Spec spec_spec = {
    .name = "nojit.runtime._core.Spec",
    .basicsize = sizeof(py_spec),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = spec_slots,
};

int py_add_spec(PyObject *module)
{
    return py_add_type(module, &spec_spec, &py_spec_type);
}
