/* The module `nojit.runtime._core`. */
#include "module.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "python/at_import.h"

#include "expr/arguments.h"
#include "select/spec.h"

/* Parts that import Python modules come last, since these modules may use objects of the other parts. */
static int (*const parts[])(PyObject *module) = {
    py_add_callbacks, py_add_exceptions, py_add_digests, py_add_dtype_names, py_add_array_names, py_add_kind_names, py_add_torch_names,
    py_add_stream_names, py_add_descriptor_names, py_add_devices, py_add_function, py_add_assemble,
    py_add_run_program, py_add_archs, py_add_format_rules, py_add_decompress, py_add_image_checks, py_add_type_spellings,
    py_add_argument_records, py_add_ids, py_add_row, py_add_plan, py_add_tuning, py_add_config_order, py_add_selection, py_add_spec,
    py_add_scratch, py_add_hooks, py_add_launcher, py_add_dispatcher, py_add_served, py_add_subscript, py_add_geometry, py_add_plain,
    py_add_recipe, py_add_memo, py_add_make_value, py_add_table_records, py_add_launch_records, py_add_table, py_add_columns,
    py_add_index_records, py_add_placement, py_add_bundle,
};

/* True once the module is initialized. The types are static, so a second initialization would replace those of existing kernels. */
static atomic_bool made;

static int add_parts(PyObject *module)
{
    static const py_number limits[] = {{"INTERESTS_MAX", NJ_PROGRAMS_MAX}, {"ARGUMENTS_MAX", NJ_ARGUMENTS_MAX}, {NULL}};
    if (atomic_load(&made)) {
        PyErr_SetString(PyExc_ImportError, "expected nojit.runtime to be imported once in a process");
        return -1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module) < 0) {
            return -1;
        }
    }
    if (py_add_numbers(module, limits) < 0) {
        return -1;
    }
    atomic_store(&made, true);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_parts},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nojit.runtime._core",
    .m_doc = PyDoc_STR("The hot path: CUDA driver, argument packing, plan cache, launch."),
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
