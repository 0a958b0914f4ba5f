/* SPDX-License-Identifier: Apache-2.0 */
/* Fading uses and the value of a block; see value.h. */
#include "kvstore/value.h"

#include <math.h>

static double fade(int64_t elapsed_ns)
{
	return elapsed_ns <= 0 ? 1.0 : exp2(-(double)elapsed_ns / (double)KV_HALF_LIFE_NS);
}

double kv_use_count(const struct kv_use *use, int64_t now_ns)
{
	return use->count * fade(now_ns - use->at_ns);
}

void kv_use_add(struct kv_use *use, double amount, int64_t now_ns)
{
	use->count = kv_use_count(use, now_ns) + amount;
	if (now_ns > use->at_ns)
		use->at_ns = now_ns;
}

double kv_value(const struct kv_use *use, uint64_t compute_ns, uint64_t bytes, int64_t now_ns)
{
	uint64_t avoided_ns = compute_ns < KV_COMPUTE_NS_MAX ? compute_ns : KV_COMPUTE_NS_MAX;

	return kv_use_count(use, now_ns) * (double)(avoided_ns + 1) / (double)bytes; /* +1: who says 0 still has an order */
}
