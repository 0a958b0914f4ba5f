/* SPDX-License-Identifier: Apache-2.0 */
/* Every policy of the options at every size of the options. For the verbs sweep and plot. */
#ifndef CNRE_SIM_SWEEP_H
#define CNRE_SIM_SWEEP_H

#include "tools/sim/report.h"
#include "tools/sim/study.h"

struct sim_sweep {
	uint32_t count;              /* sizes * policies, size by size */
	struct sim_study_arm *arm;   /* [count] */
	struct sim_result *result;   /* [count] */
};

/* 0, -EINVAL (a size of no object) or another error */
int sim_sweep_open(struct sim_sweep *ret_sweep, struct sim_study *study);
void sim_sweep_close(struct sim_sweep *sweep);

#endif
