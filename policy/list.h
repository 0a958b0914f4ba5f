/* SPDX-License-Identifier: Apache-2.0 */
/* Doubly linked lists of objects by index, newest first; an object is in one list at most. Private to policy/. */
#ifndef CNRE_POLICY_LIST_H
#define CNRE_POLICY_LIST_H

#include "policy/policy.h"

struct policy_link {
	uint32_t newer, older;       /* POLICY_NONE at the ends */
};

struct policy_list {
	uint32_t newest, oldest, count;
};

static inline void policy_list_init(struct policy_list *list)
{
	*list = (struct policy_list){.newest = POLICY_NONE, .oldest = POLICY_NONE};
}

static inline void policy_list_push(struct policy_list *list, struct policy_link *link, uint32_t object)
{
	link[object] = (struct policy_link){.newer = POLICY_NONE, .older = list->newest};
	if (list->newest != POLICY_NONE)
		link[list->newest].newer = object;
	else
		list->oldest = object;
	list->newest = object;
	list->count++;
}

static inline void policy_list_unlink(struct policy_list *list, struct policy_link *link, uint32_t object)
{
	struct policy_link gone = link[object];

	if (gone.newer != POLICY_NONE)
		link[gone.newer].older = gone.older;
	else
		list->newest = gone.older;
	if (gone.older != POLICY_NONE)
		link[gone.older].newer = gone.newer;
	else
		list->oldest = gone.newer;
	list->count--;
}

#endif
