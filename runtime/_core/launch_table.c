#include "launch_table.h"

#include "objects.h"
#include "reading.h"

#include "cold.h"

enum {
    RANK_MAX = 5,
    BOX_MAX = 256,
    ELEMENT_BYTES_MAX = 8,
    ENUM_MAX = 31,
    MAPS_MAX = 1024,
};

typedef struct {
    nj_span source;
    int64_t swizzle, element_bytes, element_type, block[RANK_MAX];
    int rank;
    bool fp4_padded;
} nj_map_entry;

typedef struct {
    nj_span symbol;
    int64_t layout, num_warps, num_ctas, shared_bytes;
    int64_t global_bytes, global_align, profile_bytes, profile_align;
    bool cooperative, pdl;
    nj_json maps; /* from the first, with the `]` */
} nj_launch_entry;

static bool read_block(nj_json *json, nj_map_entry *map)
{
    int more;
    map->rank = 0;
    while ((more = nj_json_item(json, map->rank == 0)) > 0) {
        if (map->rank == RANK_MAX || !nj_json_count(json, 1, BOX_MAX, &map->block[map->rank])) {
            return false;
        }
        map->rank++;
    }
    return more == 0 && map->rank > 0;
}

static bool read_map(nj_json *json, nj_map_entry *map)
{
    return nj_json_is(json, "{\"block\":[") && read_block(json, map) && nj_json_is(json, ",\"element_bytes\":") &&
           nj_json_count(json, 1, ELEMENT_BYTES_MAX, &map->element_bytes) && nj_json_is(json, ",\"element_type\":") &&
           nj_json_count(json, 0, ENUM_MAX, &map->element_type) && nj_json_is(json, ",\"fp4_padded\":") &&
           nj_json_flag(json, &map->fp4_padded) && nj_json_is(json, ",\"source\":") &&
           nj_json_text(json, NJ_TEXT_MAX, &map->source) && nj_json_is(json, ",\"swizzle\":") &&
           nj_json_count(json, 0, ENUM_MAX, &map->swizzle) && nj_json_char(json, '}');
}

static bool pass_maps(nj_json *json)
{
    nj_map_entry map;
    int more, count = 0;
    while ((more = nj_json_item(json, count == 0)) > 0) {
        if (count++ == MAPS_MAX || !read_map(json, &map)) {
            return false;
        }
    }
    return more == 0;
}

static bool read_bytes(nj_json *json, int64_t *bytes)
{
    return nj_json_count(json, 0, 1 << 30, bytes);
}

static bool read_align(nj_json *json, int64_t *align)
{
    return nj_json_count(json, 1, 1 << 20, align) && (*align & (*align - 1)) == 0;
}

static bool read_launch(nj_json *json, nj_launch_entry *launch)
{
    bool fits = nj_json_is(json, "{\"cooperative\":") && nj_json_flag(json, &launch->cooperative) &&
                nj_json_is(json, ",\"global_scratch_align\":") && read_align(json, &launch->global_align) &&
                nj_json_is(json, ",\"global_scratch_bytes\":") && read_bytes(json, &launch->global_bytes) &&
                nj_json_is(json, ",\"layout\":") && nj_json_count(json, 0, NJ_POOL_MAX, &launch->layout) &&
                nj_json_is(json, ",\"num_ctas\":") && nj_json_count(json, 1, 16, &launch->num_ctas) &&
                nj_json_is(json, ",\"num_warps\":") && nj_json_count(json, 1, 32, &launch->num_warps) &&
                nj_json_is(json, ",\"pdl\":") && nj_json_flag(json, &launch->pdl) &&
                nj_json_is(json, ",\"profile_scratch_align\":") && read_align(json, &launch->profile_align) &&
                nj_json_is(json, ",\"profile_scratch_bytes\":") && read_bytes(json, &launch->profile_bytes) &&
                nj_json_is(json, ",\"shared_bytes\":") && nj_json_count(json, 0, 1 << 20, &launch->shared_bytes) &&
                nj_json_is(json, ",\"symbol\":") && nj_json_text(json, NJ_TEXT_MAX, &launch->symbol) &&
                nj_json_is(json, ",\"tensor_maps\":[");
    launch->maps = *json;
    return fits && pass_maps(json) && nj_json_char(json, '}');
}

bool nj_launch_pass(nj_json *json)
{
    nj_launch_entry launch;
    return read_launch(json, &launch);
}

/* Set once by `nj_launch_table_init` under the import lock, and never changed. */
static struct {
    nj_record launch, map;
} classes;

int nj_launch_table_init(void)
{
    static const char *const home = "nojit.runtime.table";
    bool found = nj_record_find(home, "Launch", 12, &classes.launch) == 0 && nj_record_find(home, "TensorMap", 6, &classes.map) == 0;
    return found ? 0 : -1;
}

static PyObject *make_map(const nj_map_entry *map)
{
    PyObject *block = PyTuple_New(map->rank);
    for (int i = 0; block != NULL && i < map->rank; i++) {
        PyObject *size = PyLong_FromLongLong(map->block[i]);
        if (size == NULL) {
            Py_CLEAR(block);
            break;
        }
        PyTuple_SET_ITEM(block, i, size);
    }
    return nj_record_make(&classes.map, (PyObject *[]){nj_make_text(map->source), PyLong_FromLongLong(map->swizzle),
                                                       PyLong_FromLongLong(map->element_bytes),
                                                       PyLong_FromLongLong(map->element_type), block,
                                                       PyBool_FromLong(map->fp4_padded)});
}

static PyObject *make_maps(nj_json json)
{
    nj_items maps;
    nj_map_entry map;
    bool made = true;
    nj_items_init(&maps);
    while (made && nj_json_item(&json, maps.count == 0) > 0) {
        made = read_map(&json, &map) && nj_items_add(&maps, make_map(&map)) == 0;
    }
    return nj_items_end(&maps, made);
}

PyObject *nj_read_launch(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *bytes;
    Py_ssize_t size;
    PyObject *layout_of;
    nj_launch_entry it;
    if (!PyArg_ParseTuple(args, "y#O:read_launch", &bytes, &size, &layout_of)) {
        return NULL;
    }
    nj_json json = {(const unsigned char *)bytes, (const unsigned char *)bytes + size};
    if (!read_launch(&json, &it) || json.at != json.end) {
        Py_RETURN_NONE;
    }
    PyObject *layout = PyObject_CallFunction(layout_of, "L", (long long)it.layout);
    if (layout == NULL) {
        return NULL;
    }
    return nj_record_make(
        &classes.launch,
        (PyObject *[]){nj_make_text(it.symbol), layout,
                       PyLong_FromLongLong(it.num_warps), PyLong_FromLongLong(it.num_ctas), PyLong_FromLongLong(it.shared_bytes),
                       PyLong_FromLongLong(it.global_bytes), PyLong_FromLongLong(it.global_align),
                       PyLong_FromLongLong(it.profile_bytes), PyLong_FromLongLong(it.profile_align),
                       PyBool_FromLong(it.cooperative), PyBool_FromLong(it.pdl), make_maps(it.maps)});
}
