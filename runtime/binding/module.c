/* The module `nojit.runtime._core`. */
#include "values/argument_records.h"
#include "expression/assemble.h"
#include "bundle_file/open_bundle.h"
#include "variant_table/columns.h"
#include "tensor/geometry.h"
#include "tensor/read_descriptor.h"
#include "kernel/dispatcher.h"
#include "gpu/py_driver.h"
#include "python/exceptions.h"
#include "enqueue/hooks.h"
#include "bundle_file/image_checks.h"
#include "bundle_file/index_records.h"
#include "variant_table/launch_records.h"
#include "kernel/launcher.h"
#include "gpu/py_function.h"
#include "operators/memo.h"
#include "python/records.h"
#include "bundle_file/py_placement.h"
#include "operators/plain_calls.h"
#include "operators/recipe.h"
#include "variant_table/py_row.h"
#include "enqueue/scratch.h"
#include "plan/selection.h"
#include "kernel/served.h"
#include "plan/py_spec.h"
#include "enqueue/stream.h"
#include "variant_table/py_table.h"
#include "variant_table/table_records.h"
#include "tensor/tensor.h"
#include "variant_table/py_tuning.h"
#include "values/type_spellings.h"

#include "driver/query.h"

static PyObject *find_driver(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    bool found;
    Py_BEGIN_ALLOW_THREADS
    found = nj_driver_find();
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(found);
}

static PyObject *raise_driver(const nj_error *error)
{
    py_raise_driver(error, NULL, NULL);
    return NULL;
}

static PyObject *driver_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int version;
    nj_error error;
    if (py_need_driver() < 0) {
        return NULL;
    }
    return nj_driver_version(&version, &error) ? PyLong_FromLong(version) : raise_driver(&error);
}

static PyObject *device_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int count;
    nj_error error;
    if (py_need_driver() < 0) {
        return NULL;
    }
    return nj_device_count(&count, &error) ? PyLong_FromLong(count) : raise_driver(&error);
}

/* Reads the number of a device, and has the driver ready: 0, or -1 with an exception raised. */
static int read_ordinal(PyObject *number, int *ordinal)
{
    long read = PyLong_AsLong(number);
    *ordinal = read < 0 || read > NJ_DEVICES_MAX ? -1 : (int)read;
    return (read == -1 && PyErr_Occurred()) || py_need_driver() < 0 ? -1 : 0;
}

static PyObject *device_facts(PyObject *Py_UNUSED(module), PyObject *number)
{
    int ordinal;
    nj_device_facts facts;
    nj_error error;
    if (read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_describe(ordinal, &facts, &error)
               ? Py_BuildValue("(sin)", facts.name, facts.multiprocessors, (Py_ssize_t)facts.memory_bytes)
               : raise_driver(&error);
}

static PyObject *device_attribute(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *number;
    int ordinal, attribute, value;
    nj_error error;
    if (!PyArg_ParseTuple(args, "Oi:device_attribute", &number, &attribute) || read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_attribute(ordinal, attribute, &value, &error) ? PyLong_FromLong(value) : raise_driver(&error);
}

static PyObject *device_capability(PyObject *Py_UNUSED(module), PyObject *number)
{
    int ordinal, capability;
    nj_error error;
    if (read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_capability(ordinal, &capability, &error) ? PyLong_FromLong(capability) : raise_driver(&error);
}

/* Says nothing of what fails: whoever asks goes on without. */
static PyObject *running_capability(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int capability;
    Py_BEGIN_ALLOW_THREADS
    capability = nj_running_capability();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(capability);
}

static PyObject *current_device(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int device = py_find_current_device();
    return device < 0 ? NULL : PyLong_FromLong(device);
}

static PyObject *forget_images(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    nj_images_forget();
    Py_RETURN_NONE;
}

static PyObject *healthy(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    bool healthy;
    Py_BEGIN_ALLOW_THREADS
    healthy = nj_driver_healthy();
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(healthy);
}

/* Turns (tag, bits) pairs into values; 0, or -1 with an exception raised. */
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
    if (read_values(slots, values) < 0 || py_program_from_bytes(bytes, PyTuple_GET_SIZE(slots), &program) < 0) {
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
    {"find_driver", find_driver, METH_NOARGS,
     PyDoc_STR("Look up the symbols of a driver that the process has opened; whether they are known. Calls nothing of it.")},
    {"driver_version", driver_version, METH_NOARGS, PyDoc_STR("The CUDA version of the driver: 13000 for 13.0.")},
    {"device_count", device_count, METH_NOARGS, PyDoc_STR("How many devices the driver sees.")},
    {"device_capability", device_capability, METH_O, PyDoc_STR("The compute capability of a device: 90 for 9.0.")},
    {"running_capability", running_capability, METH_NOARGS,
     PyDoc_STR("The compute capability of the device of this thread's context, 0 without one. Starts nothing.")},
    {"device_facts", device_facts, METH_O,
     PyDoc_STR("The name of a device, how many multiprocessors and how many bytes of memory it has.")},
    {"device_attribute", device_attribute, METH_VARARGS, PyDoc_STR("What `cuDeviceGetAttribute` says of a device.")},
    {"current_device", current_device, METH_NOARGS,
     PyDoc_STR("The device of this thread's current context; 0 if there is none.")},
    {"healthy", healthy, METH_NOARGS,
     PyDoc_STR("False without a driver that starts, and once CUDA has met an error that only a new process mends. Asks each "
               "device in use.")},
    {"set_allocator", py_set_allocator, METH_O,
     PyDoc_STR("Take scratch memory from `allocator(size, alignment, stream)`; from the tensors' framework if None.")},
    {"set_hooks", py_set_hooks, METH_VARARGS,
     PyDoc_STR("Call `enter(kernel, plan, grid, stream)` before and `leave(entered)` after every launch.")},
    {"check_image", py_check_image, METH_VARARGS,
     PyDoc_STR("Check that an image is the one that a table describes; return its params, own shared bytes and registers.")},
    {"forget_images", forget_images, METH_NOARGS, PyDoc_STR("Have each image loaded anew, as in a new process: for tests.")},
    {"read_cubin", py_read_cubin, METH_O, PyDoc_STR("What a cubin says of itself.")},
    {"read_sections", py_read_sections, METH_O, PyDoc_STR("The name and the content of each section of a cubin.")},
    {"read_index", py_read_index, METH_VARARGS, PyDoc_STR("The index of a bundle as a record.")},
    {"check_json", py_check_json_of, METH_VARARGS, PyDoc_STR("Check that bytes are canonical JSON.")},
    {"is_printable", py_is_printable_of, METH_O, PyDoc_STR("Whether a text is safe to show.")},
    {"is_name", py_is_name_of, METH_O, PyDoc_STR("Whether a text is a name of the format, and never a path.")},
    {"check_frame", py_check_frame, METH_VARARGS, PyDoc_STR("Check the header of a zstd frame.")},
    {"read_frame", py_read_frame, METH_VARARGS, PyDoc_STR("What a zstd frame holds.")},
    {"read_image_arch", py_read_image_arch, METH_O, PyDoc_STR("Number and suffix of an image arch; None if a text names none.")},
    {"warp_threads", py_warp_threads_of, METH_O, PyDoc_STR("Threads of a warp of an arch, by its number.")},
    {"image_fit", py_image_fit_of, METH_VARARGS,
     PyDoc_STR("How well images of an arch fit a device, the higher the better; 0 if they do not run there.")},
    {"image_families", py_image_families, METH_NOARGS, PyDoc_STR("The members of each family of architectures.")},
    {"lone_archs", py_lone_archs, METH_NOARGS, PyDoc_STR("Chips that share no images with others.")},
    {"sha256", py_sha256_of, METH_O, PyDoc_STR("The SHA-256 of bytes.")},
    {"check_section", py_check_section, METH_VARARGS, PyDoc_STR("Check that a section decompresses to no more than it may.")},
    {"split_section", py_split_section, METH_VARARGS, PyDoc_STR("The variant table of a section, and the bytes of its placement.")},
    {"read_table", py_read_table, METH_VARARGS, PyDoc_STR("A variant table, whose rules are checked.")},
    {"read_launch", py_read_launch, METH_VARARGS, PyDoc_STR("The launch that its JSON and its layout say.")},
    {"is_cost", py_is_cost_of, METH_VARARGS, PyDoc_STR("Whether an expression in postfix is the cost of a config.")},
    {"read_value", py_read_value, METH_VARARGS, PyDoc_STR("The constexpr value that JSON spells.")},
    {"read_layout", py_read_layout_of, METH_VARARGS, PyDoc_STR("The slots of a layout.")},
    {"is_type", py_is_type_of, METH_O, PyDoc_STR("Whether a text is a type in its one spelling.")},
    {"constant_of", py_constant_of, METH_O, PyDoc_STR("The value of a constant's type.")},
    {"leaves", py_leaves_of, METH_VARARGS, PyDoc_STR("The path and the type of each leaf of a type.")},
    {"members", py_members_of, METH_O, PyDoc_STR("The members of a tuple's type.")},
    {"param_bytes", py_param_bytes_of, METH_O, PyDoc_STR("The bytes of a parameter by its type; 0 for a type that no parameter has.")},
    {"element_name", py_element_name_of, METH_O, PyDoc_STR("An element in the spelling of types; None if the text names none.")},
    {"dtype_name", py_dtype_name_of, METH_O, PyDoc_STR("The name of Triton's dtype; None if the text names none.")},
    {"dtypes", py_dtypes_of, METH_NOARGS,
     PyDoc_STR("Of each dtype its name in types, its kind, its bytes, and whether a param can be one.")},
    {"dtype_words", py_dtype_words, METH_NOARGS, PyDoc_STR("Every name of a dtype, without a module's.")},
    {"descriptor_parts", py_descriptor_parts_of, METH_O, PyDoc_STR("The element and the block of a descriptor's type.")},
    {"rank_configs", py_rank_configs, METH_VARARGS, PyDoc_STR("The configs of a block for a key, the best first.")},
    {"estimate", py_estimate_costs, METH_VARARGS, PyDoc_STR("What configs are estimated to take, in picoseconds; None where that cannot be computed.")},
    {"nearest", py_nearest_of, METH_VARARGS, PyDoc_STR("The place of the point nearest to a key.")},
    {"behind_in_sum", py_behind_sums, METH_VARARGS, PyDoc_STR("How far each config is behind the best of rows in sum.")},
    {"bucket_of", py_bucket_value, METH_VARARGS, PyDoc_STR("A number of a tuning key, rounded to its bucket.")},
    {"takes", py_takes, METH_VARARGS, PyDoc_STR("Whether a param of a type takes an argument.")},
    {"coerced", py_coerced, METH_VARARGS, PyDoc_STR("What Triton makes of an argument for a param of some types, as (kind, value); None if it stays.")},
    {"resolved", py_resolved, METH_VARARGS, PyDoc_STR("What a constexpr stands for where only dtypes are known.")},
    {"row_constexprs", py_row_constexprs_of, METH_VARARGS, PyDoc_STR("What each constexpr and option is for a row.")},
    {"assemble", py_assemble_text, METH_VARARGS,
     PyDoc_STR("The program of an expression in postfix, with what is constant computed; no bytes if it has none.")},
    {"postfix", py_postfix_of, METH_O,
     PyDoc_STR("An expression in postfix; why it is none as (what, column).")},
    {"map_fault", py_map_fault, METH_VARARGS,
     PyDoc_STR("What a tensor map must be to be that of a descriptor, and is not; None if nothing.")},
    {"run_program", run_program, METH_VARARGS,
     PyDoc_STR("Run a program over (tag, bits) slots: (tag, bits), or what failed as (op, left, right).")},
    {NULL},
};

/* Whether the module was made. Its types are the process's: a second one would take them from the kernels of the first. */
static atomic_bool made;

static int add_types(PyObject *module)
{
    if (atomic_load(&made)) {
        PyErr_SetString(PyExc_ImportError, "expected nojit.runtime to be imported once in a process");
        return -1;
    }
    if (py_exceptions_init() < 0 || py_tensor_init() < 0 || py_classify_init() < 0 || py_stream_init() < 0 || py_descriptor_init() < 0 || py_function_init(module) < 0 || py_row_init(module) < 0 || py_plan_init(module) < 0 ||
        py_ids_init(module) < 0 || py_tuning_init(module) < 0 || py_selection_init(module) < 0 || py_spec_init(module) < 0 || py_launcher_init(module) < 0 ||
        py_dispatcher_init(module) < 0 || py_served_init(module) < 0 || py_geometry_init(module) < 0 || py_plain_init(module) < 0 ||
        py_recipe_init(module) < 0 || py_memo_init(module) < 0 || py_table_records_init() < 0 || py_launch_records_init() < 0 ||
        py_table_init(module) < 0 || py_columns_init() < 0 || py_limits_init(module) < 0 ||
        py_placement_init(module) < 0 || py_bundle_init(module) < 0) {
        return -1;
    }
    if (PyModule_AddIntConstant(module, "INTERESTS_MAX", NJ_PROGRAMS_MAX) < 0 ||
        PyModule_AddIntConstant(module, "ARGUMENTS_MAX", NJ_ARGUMENTS_MAX) < 0 ||
        PyModule_AddIntConstant(module, "MADE_MAX", PY_MADE_MAX) < 0) {
        return -1;
    }
    atomic_store(&made, true);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_types},
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
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
