/* SPDX-License-Identifier: Apache-2.0 */
/* An arm of a comparison as a policy's setup. Between arm.c and replay.c. */
#ifndef CNRE_SIM_ARM_H
#define CNRE_SIM_ARM_H

#include "tools/sim/replay.h"

struct sim_arm_setup {
	struct policy_setup setup;   /* points into what follows: not to be moved */
	struct policy_tuning tuning;
	uint64_t *bytes_of;          /* [object_count] */
	uint32_t *capacity;          /* [layer_count] */
};

int sim_arm_setup_open(struct sim_arm_setup *ret_made, const struct sim_arm *arm, const struct sim_model *model);
void sim_arm_setup_close(struct sim_arm_setup *made);

/* 1: belady that places nothing that is needed later than what it replaces */
int sim_policy_bypasses(const char *policy);

#endif
