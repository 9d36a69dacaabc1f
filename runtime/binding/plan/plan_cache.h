/* Plans by key, for Python: the engine's cache, which holds a reference to each. */
#ifndef NOJIT_PLAN_CACHE_H
#define NOJIT_PLAN_CACHE_H

#include "plan/py_plan.h"
#include "launch/cache.h"

/* Adds a plan under a key; 0, or -1 with an exception raised. The caller locks. */
static inline int py_plan_publish(nj_cache *cache, const nj_key *key, py_plan *plan)
{
    bool taken;
    if (!nj_cache_publish(cache, key, plan, &taken)) {
        PyErr_NoMemory();
        return -1;
    }
    if (taken) {
        Py_INCREF(plan);
    }
    return 0;
}

#endif
