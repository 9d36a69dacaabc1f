/* What the measured problems near a call say about its configs. As `ranked` in runtime/neighbours.py, which is the spec. */
#ifndef NOJIT_RANKING_H
#define NOJIT_RANKING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `rank_configs(rows, key, costs, multiprocessors)`: the configs of a block, for a key of as many ints as its rows have, the best
 * first: by its costs, if there are any, else by its rows. None if something is not gone into here. */
PyObject *nj_rank_configs(PyObject *module, PyObject *args);

#endif
