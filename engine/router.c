/* SPDX-License-Identifier: Apache-2.0 */
/* See router.h. k passes over the experts: for a few dozen experts faster than any heap. */
#include "engine/router.h"

#include "engine/vector.h"

#include <errno.h>
#include <math.h>

static bool is_taken(const struct route *route, uint32_t count, uint32_t expert)
{
	for (uint32_t i = 0; i < count; i++)
		if (route->expert[i] == expert)
			return true;
	return false;
}

/* The largest probability not yet taken; experts when there is none. */
static uint32_t best_left(const struct route *route, uint32_t count, const float *probability, uint32_t experts)
{
	uint32_t best = experts;
	float largest = -INFINITY;

	for (uint32_t i = 0; i < experts; i++) {
		if (probability[i] > largest && !is_taken(route, count, i)) {
			largest = probability[i];
			best = i;
		}
	}
	return best;
}

int router_choose(const struct config *config, float *logits, struct route *ret_route)
{
	struct route route = {0};
	float sum = 0;

	vector_softmax(logits, config->experts);
	for (uint32_t i = 0; i < config->top_k; i++) {
		uint32_t best = best_left(&route, i, logits, config->experts);

		if (best == config->experts)
			return -EDOM;
		route.expert[i] = best;
		route.gate[i] = logits[best];
		sum += route.gate[i];
	}
	for (uint32_t i = 0; config->norm_top_k && i < config->top_k; i++)
		route.gate[i] /= sum;
	*ret_route = route;
	return 0;
}
