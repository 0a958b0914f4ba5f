/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy file provides; private to policy/. Adding a policy: one file with these functions, one line in policy.c. */
#ifndef CNRE_POLICY_OPS_H
#define CNRE_POLICY_OPS_H

#include "policy/policy.h"

struct policy_ops {
	const char *name;
	int (*create)(struct policy **ret_policy, const struct policy_setup *setup); /* fills all but ops */
	void (*destroy)(struct policy *policy);
	void (*visit)(struct policy *policy, uint32_t layer, uint32_t token_count); /* NULL: takes no notice */
	void (*access)(struct policy *policy, uint32_t object, int resident);
	void (*add)(struct policy *policy, uint32_t object);
	void (*remove)(struct policy *policy, uint32_t object);
	uint32_t (*victim)(const struct policy *policy, uint32_t previous);
};

/* First member of every policy's own struct. */
struct policy {
	const struct policy_ops *ops;
};

extern const struct policy_ops policy_lru;

#endif
