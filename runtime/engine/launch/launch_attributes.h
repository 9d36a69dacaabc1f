/* The attributes of a launch: cooperative, programmatic dependent launch (PDL), clusters. */
#ifndef NOJIT_LAUNCH_LAUNCH_ATTRIBUTES_H
#define NOJIT_LAUNCH_LAUNCH_ATTRIBUTES_H

#include "launch/runnable.h"

/* Fills the attributes as Triton launches: a cluster spreads over as many SMs as it can. */
void nj_runnable_set_attributes(nj_runnable *runnable, const nj_runnable_facts *facts);

#endif
