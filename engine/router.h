/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a token goes to. Pure. */
#ifndef ENGINE_ROUTER_H
#define ENGINE_ROUTER_H

#include "engine/config.h"

struct route {
	uint32_t expert[CONFIG_TOP_K_MAX];    /* by falling gate, equal gates by rising id: the order of computation */
	float gate[CONFIG_TOP_K_MAX];
};

/*
 * Softmax over all experts (in place: logits become probabilities), then the top k. Returns 0, or -EDOM if the logits
 * hold fewer than k numbers (NaN): the weights or the state are broken, and any choice would be a lie.
 */
int router_choose(const struct config *config, float *logits, struct route *ret_route);

#endif
