/* Launch attributes: cooperative, programmatic dependent launch (PDL), clusters. */
#ifndef NOJIT_LAUNCH_LAUNCH_ATTRIBUTES_H
#define NOJIT_LAUNCH_LAUNCH_ATTRIBUTES_H

#include "launch/runnable.h"

/* Sets the same launch attributes as Triton. Clusters get the policy that spreads their CTAs over the SMs. */
void nj_runnable_set_attributes(nj_runnable *runnable, const nj_runnable_facts *facts);

#endif
