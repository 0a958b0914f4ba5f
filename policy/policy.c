/* SPDX-License-Identifier: Apache-2.0 */
/* The list of policies and the calls through their tables; see policy.h. */
#include "policy/policy.h"

#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct policy_ops *const policies[] = {&policy_lru};

int policy_create(struct policy **ret_policy, const char *name, const struct policy_setup *setup)
{
	for (unsigned i = 0; i < CNRE_COUNT_OF(policies); i++) {
		int r;

		if (strcmp(policies[i]->name, name) != 0)
			continue;
		r = policies[i]->create(ret_policy, setup);
		if (r == 0)
			(*ret_policy)->ops = policies[i];
		return r;
	}
	return -ENOENT;
}

struct policy *policy_destroy(struct policy *policy)
{
	if (policy != NULL)
		policy->ops->destroy(policy);
	return NULL;
}

const char *policy_name(const struct policy *policy)
{
	return policy->ops->name;
}

const char *policy_name_at(unsigned index)
{
	return index < CNRE_COUNT_OF(policies) ? policies[index]->name : NULL;
}

void policy_visit(struct policy *policy, uint32_t layer, uint32_t token_count)
{
	if (policy->ops->visit != NULL)
		policy->ops->visit(policy, layer, token_count);
}

void policy_access(struct policy *policy, uint32_t object, int resident)
{
	policy->ops->access(policy, object, resident);
}

void policy_add(struct policy *policy, uint32_t object)
{
	policy->ops->add(policy, object);
}

void policy_remove(struct policy *policy, uint32_t object)
{
	policy->ops->remove(policy, object);
}

uint32_t policy_victim(const struct policy *policy, uint32_t previous)
{
	return policy->ops->victim(policy, previous);
}
