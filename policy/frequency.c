/* SPDX-License-Identifier: Apache-2.0 */
/* Orders by count of uses, in buckets, as in "An O(1) algorithm for implementing the LFU cache eviction scheme". */
#include "policy/frequency.h"

#include <errno.h>
#include <stdlib.h>

int policy_frequency_init(struct policy_frequency *frequency, uint32_t object_count, uint32_t order_count)
{
	frequency->bucket = calloc(object_count, sizeof *frequency->bucket);
	frequency->bucket_of = calloc(object_count, sizeof *frequency->bucket_of);
	frequency->link = calloc(object_count, sizeof *frequency->link);
	frequency->lowest = calloc(order_count, sizeof *frequency->lowest);
	if (frequency->bucket == NULL || frequency->bucket_of == NULL || frequency->link == NULL ||
	    frequency->lowest == NULL)
		return -ENOMEM;
	for (uint32_t order = 0; order < order_count; order++)
		frequency->lowest[order] = POLICY_NONE;
	for (uint32_t i = 0; i < object_count; i++)
		frequency->bucket[i].higher = i + 1 < object_count ? i + 1 : POLICY_NONE;
	return 0;
}

void policy_frequency_fini(struct policy_frequency *frequency)
{
	free(frequency->bucket);
	free(frequency->bucket_of);
	free(frequency->link);
	free(frequency->lowest);
}

/* These two become neighbours; POLICY_NONE: the end of the order. */
static void tie(struct policy_frequency *frequency, uint32_t order, uint32_t lower, uint32_t higher)
{
	if (lower != POLICY_NONE)
		frequency->bucket[lower].higher = higher;
	else
		frequency->lowest[order] = higher;
	if (higher != POLICY_NONE)
		frequency->bucket[higher].lower = lower;
}

/* A bucket between two that are neighbours. */
static uint32_t open_bucket(struct policy_frequency *frequency, uint32_t order, uint32_t lower, uint32_t higher)
{
	uint32_t bucket = frequency->free;

	frequency->free = frequency->bucket[bucket].higher;
	frequency->bucket[bucket].order = order;
	policy_list_init(&frequency->bucket[bucket].list);
	tie(frequency, order, lower, bucket);
	tie(frequency, order, bucket, higher);
	return bucket;
}

static void close_bucket(struct policy_frequency *frequency, uint32_t bucket)
{
	struct policy_bucket *gone = &frequency->bucket[bucket];

	tie(frequency, gone->order, gone->lower, gone->higher);
	gone->higher = frequency->free;
	frequency->free = bucket;
}

static void put(struct policy_frequency *frequency, uint32_t bucket, uint32_t object)
{
	frequency->bucket_of[object] = bucket;
	policy_list_push(&frequency->bucket[bucket].list, frequency->link, object);
}

void policy_frequency_add(struct policy_frequency *frequency, uint32_t order, uint32_t object, uint64_t count)
{
	uint32_t lower = POLICY_NONE, bucket = frequency->lowest[order];

	while (bucket != POLICY_NONE && frequency->bucket[bucket].count < count) {
		lower = bucket;
		bucket = frequency->bucket[bucket].higher;
	}
	if (bucket == POLICY_NONE || frequency->bucket[bucket].count != count) {
		bucket = open_bucket(frequency, order, lower, bucket);
		frequency->bucket[bucket].count = count;
	}
	put(frequency, bucket, object);
}

void policy_frequency_remove(struct policy_frequency *frequency, uint32_t object)
{
	uint32_t bucket = frequency->bucket_of[object];

	policy_list_unlink(&frequency->bucket[bucket].list, frequency->link, object);
	if (frequency->bucket[bucket].list.count == 0)
		close_bucket(frequency, bucket);
}

void policy_frequency_raise(struct policy_frequency *frequency, uint32_t object)
{
	uint32_t bucket = frequency->bucket_of[object], higher = frequency->bucket[bucket].higher;
	uint64_t count = frequency->bucket[bucket].count + 1;

	if (higher == POLICY_NONE || frequency->bucket[higher].count != count) {
		if (frequency->bucket[bucket].list.count == 1) {
			frequency->bucket[bucket].count = count;
			return;
		}
		higher = open_bucket(frequency, frequency->bucket[bucket].order, bucket, higher);
		frequency->bucket[higher].count = count;
	}
	policy_frequency_remove(frequency, object);
	put(frequency, higher, object);
}
