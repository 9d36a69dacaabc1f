/* One function for each file that adds objects to the module `_core` or looks up names at its import. Each returns 0, or -1 with an
 * exception raised. */
#ifndef NOJIT_MODULE_H
#define NOJIT_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int py_add_archs(PyObject *module);
int py_add_argument_records(PyObject *module);
int py_add_assemble(PyObject *module);
int py_add_bundle(PyObject *module);
int py_add_callbacks(PyObject *module);
int py_add_columns(PyObject *module);
int py_add_config_order(PyObject *module);
int py_add_decompress(PyObject *module);
int py_add_descriptor_names(PyObject *module);
int py_add_devices(PyObject *module);
int py_add_digests(PyObject *module);
int py_add_dispatcher(PyObject *module);
int py_add_exceptions(PyObject *module);
int py_add_format_rules(PyObject *module);
int py_add_function(PyObject *module);
int py_add_geometry(PyObject *module);
int py_add_hooks(PyObject *module);
int py_add_ids(PyObject *module);
int py_add_image_checks(PyObject *module);
int py_add_index_records(PyObject *module);
int py_add_kind_names(PyObject *module);
int py_add_launch_records(PyObject *module);
int py_add_launcher(PyObject *module);
int py_add_make_value(PyObject *module);
int py_add_memo(PyObject *module);
int py_add_placement(PyObject *module);
int py_add_plain(PyObject *module);
int py_add_plan(PyObject *module);
int py_add_array_names(PyObject *module);
int py_add_recipe(PyObject *module);
int py_add_row(PyObject *module);
int py_add_run_program(PyObject *module);
int py_add_scratch(PyObject *module);
int py_add_selection(PyObject *module);
int py_add_served(PyObject *module);
int py_add_spec(PyObject *module);
int py_add_stream_names(PyObject *module);
int py_add_subscript(PyObject *module);
int py_add_table(PyObject *module);
int py_add_table_records(PyObject *module);
int py_add_dtype_names(PyObject *module);
int py_add_torch_names(PyObject *module);
int py_add_tuning(PyObject *module);
int py_add_type_spellings(PyObject *module);

#endif
