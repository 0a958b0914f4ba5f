/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is learned from traces that are not evaluated: how often each object is used, which are the most used, whether
 * that holds on what was not counted, and how large each layer's pool should be.
 */
#ifndef CNRE_SIM_TRAIN_H
#define CNRE_SIM_TRAIN_H

#include "policy/curve.h"
#include "tools/sim/replay.h"

struct sim_train {
	uint32_t *use_count;         /* [object_count] visits that used it */
	uint32_t *ranked;            /* objects that were used, the most used last */
	uint32_t ranked_count;
	uint64_t *visits;            /* [layer_count] */
	struct curves *curves;
	/*
	 * The skew gate: nats a use of the second half under the counts of the first, and under no knowledge. Counts
	 * that predict no better than chance are noise, and a policy that trusted them would be worse than without.
	 */
	double log_loss, uniform_log_loss;
	int prior_holds;
};

int sim_train_open(struct sim_train *ret_train, const struct sim_trace *trace, uint32_t traces,
		   const struct sim_geometry *geometry); /* 0 or -ENOMEM */
/*
 * Adds a history of Colibri's engines, which has no order to be examined by: alone it is believed. 0, or
 * sim_prior_add_usage's.
 */
int sim_train_add_usage(struct sim_train *train, const char *path, const struct sim_geometry *geometry, char *message,
			size_t message_bytes);
void sim_train_close(struct sim_train *train); /* zeroed is fine */

/* Equal capacities of the arm's budget, and those of the train curves half-way to equal; [layer_count]. 0 or -errno. */
int sim_train_equal(const struct sim_arm *arm, const struct sim_model *model, uint32_t *ret_capacity);
int sim_train_capacities(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			 uint32_t *ret_capacity);

/*
 * Capacities and, of each layer, whether it is held compressed: the hull of both representations' train curves, with the
 * arm's ratio and cost of a hit. Nothing is drawn towards equal. 0 or -errno.
 */
int sim_train_represent(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			uint32_t *ret_capacity, unsigned char *ret_compressed);

/*
 * What a miss more costs in each layer at the misses that LRU of equal capacities had on the train traces; train NULL:
 * the slope.
 */
int sim_train_marginals(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			float *ret_miss_us);

#endif
