/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least recently used, over one global pool: residents in a doubly linked list of indices, most recent first. It is the
 * baseline every other policy is measured against. An object counts as used when it is looked up and when it becomes
 * resident, so a miss that was placed is as recent as a hit.
 */
#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

struct link {
	uint32_t newer, older; /* POLICY_NONE at the ends; newer == own index: not resident */
};

struct lru {
	struct policy policy;
	uint32_t newest, oldest;
	uint32_t object_count;
	struct link link[];
};

static struct lru *lru_of(struct policy *policy)
{
	return (struct lru *)policy;
}

static int is_resident(const struct lru *lru, uint32_t object)
{
	return lru->link[object].newer != object;
}

static void push_newest(struct lru *lru, uint32_t object)
{
	lru->link[object] = (struct link){.newer = POLICY_NONE, .older = lru->newest};
	if (lru->newest != POLICY_NONE)
		lru->link[lru->newest].newer = object;
	else
		lru->oldest = object;
	lru->newest = object;
}

static void unlink_object(struct lru *lru, uint32_t object)
{
	struct link link = lru->link[object];

	if (link.newer != POLICY_NONE)
		lru->link[link.newer].older = link.older;
	else
		lru->newest = link.older;
	if (link.older != POLICY_NONE)
		lru->link[link.older].newer = link.newer;
	else
		lru->oldest = link.newer;
	lru->link[object].newer = object;
}

static int lru_create(struct policy **ret_policy, const struct policy_setup *setup)
{
	struct lru *lru = malloc(sizeof *lru + setup->object_count * sizeof lru->link[0]);

	if (lru == NULL)
		return -ENOMEM;
	lru->newest = lru->oldest = POLICY_NONE;
	lru->object_count = setup->object_count;
	for (uint32_t i = 0; i < setup->object_count; i++)
		lru->link[i].newer = i;
	*ret_policy = &lru->policy;
	return 0;
}

static void lru_destroy(struct policy *policy)
{
	free(policy);
}

static void lru_access(struct policy *policy, uint32_t object, int resident)
{
	struct lru *lru = lru_of(policy);

	(void)resident; /* the list knows better: a client may have looked before the latest change */
	CNRE_CHECK(object < lru->object_count);
	if (!is_resident(lru, object) || lru->newest == object)
		return;
	unlink_object(lru, object);
	push_newest(lru, object);
}

static void lru_add(struct policy *policy, uint32_t object)
{
	struct lru *lru = lru_of(policy);

	CNRE_CHECK(object < lru->object_count && !is_resident(lru, object));
	push_newest(lru, object);
}

static void lru_remove(struct policy *policy, uint32_t object)
{
	struct lru *lru = lru_of(policy);

	CNRE_CHECK(object < lru->object_count && is_resident(lru, object));
	unlink_object(lru, object);
}

static uint32_t lru_victim(const struct policy *policy, uint32_t previous)
{
	const struct lru *lru = (const struct lru *)policy;

	return previous == POLICY_NONE ? lru->oldest : lru->link[previous].newer;
}

const struct policy_ops policy_lru = {
	.name = "lru",
	.create = lru_create,
	.destroy = lru_destroy,
	.access = lru_access,
	.add = lru_add,
	.remove = lru_remove,
	.victim = lru_victim,
};
