/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residents by how often they were used, and among equals by how long they have not been: for each order, a bucket for
 * each count that occurs, lowest first, and in it a list, oldest first. A use moves an object one bucket up, in constant
 * time. Private to policy/.
 */
#ifndef CNRE_POLICY_FREQUENCY_H
#define CNRE_POLICY_FREQUENCY_H

#include "policy/list.h"

#include <stdint.h>

struct policy_bucket {
	uint64_t count;
	struct policy_list list;     /* never empty while the bucket is in an order */
	uint32_t lower, higher;      /* buckets of the same order; POLICY_NONE at the ends; higher also chains free ones */
	uint32_t order;
};

struct policy_frequency {
	struct policy_bucket *bucket; /* [object_count]: each in use holds an object, so there are enough */
	uint32_t *bucket_of;         /* [object_count] of residents */
	struct policy_link *link;    /* [object_count] */
	uint32_t *lowest;            /* [order_count] bucket; POLICY_NONE: the order is empty */
	uint32_t free;
};

/* 0 or -ENOMEM; fini follows in any case. */
int policy_frequency_init(struct policy_frequency *frequency, uint32_t object_count, uint32_t order_count);
void policy_frequency_fini(struct policy_frequency *frequency);

/* The object joins as the newest of those used `count` times. Walks the buckets of lower count: newcomers have few. */
void policy_frequency_add(struct policy_frequency *frequency, uint32_t order, uint32_t object, uint64_t count);
void policy_frequency_remove(struct policy_frequency *frequency, uint32_t object);
/* One use more: the newest of those used as often. */
void policy_frequency_raise(struct policy_frequency *frequency, uint32_t object);

static inline uint64_t policy_frequency_of(const struct policy_frequency *frequency, uint32_t object)
{
	return frequency->bucket[frequency->bucket_of[object]].count;
}

static inline uint32_t policy_frequency_worst(const struct policy_frequency *frequency, uint32_t order)
{
	uint32_t lowest = frequency->lowest[order];

	return lowest == POLICY_NONE ? POLICY_NONE : frequency->bucket[lowest].list.oldest;
}

static inline uint32_t policy_frequency_after(const struct policy_frequency *frequency, uint32_t object)
{
	uint32_t newer = frequency->link[object].newer, higher = frequency->bucket[frequency->bucket_of[object]].higher;

	return newer != POLICY_NONE || higher == POLICY_NONE ? newer : frequency->bucket[higher].list.oldest;
}

#endif
