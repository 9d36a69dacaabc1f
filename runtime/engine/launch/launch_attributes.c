#include "launch/launch_attributes.h"

static void add_number(nj_runnable *runnable, int id, int number)
{
    runnable->attributes[runnable->attribute_count++] = (CUlaunchAttribute){.id = id, .value.number = number};
}

void nj_runnable_set_attributes(nj_runnable *runnable, const nj_runnable_facts *facts)
{
    if (facts->cooperative) {
        add_number(runnable, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
    }
    if (facts->pdl) {
        add_number(runnable, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1);
    }
    if (runnable->num_ctas > 1) {
        add_number(runnable, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
        runnable->attributes[runnable->attribute_count++] = (CUlaunchAttribute){
            .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {runnable->num_ctas, 1, 1}};
    }
}
