/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of owners that wait; see queue.h. */
#include "manager/queue.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

/* DEMAND_FIRST: a demand that was asked for as a prefetch too; in a list of demands. */
enum queued { NOT_QUEUED, QUEUED_DEMAND, QUEUED_DEMAND_FIRST, QUEUED_PREFETCH };

struct link {
	uint32_t next, previous;
};

/* Links: first all owners, then a demand sentinel and a prefetch sentinel for every slot. */
struct queue {
	uint32_t owner_count;
	uint32_t demand_count, prefetch_count;
	uint32_t prefetch_slot; /* where the round over clients goes on */
	uint32_t *starter;      /* [owner_count] */
	uint16_t *slot_of;      /* [owner_count] in whose list it is */
	unsigned char *queued;  /* [owner_count] enum queued */
	uint32_t demands_of[QUEUE_SLOTS], prefetches_of[QUEUE_SLOTS];
	struct link turn[QUEUE_SLOTS + 1]; /* of slots; the last is the sentinel */
	struct link link[];
};

static uint32_t demands(const struct queue *queue, uint32_t slot)
{
	return queue->owner_count + 2 * slot;
}

static uint32_t prefetches(const struct queue *queue, uint32_t slot)
{
	return queue->owner_count + 2 * slot + 1;
}

static int is_empty(const struct queue *queue, uint32_t sentinel)
{
	return queue->link[sentinel].next == sentinel;
}

static void append(struct queue *queue, uint32_t sentinel, uint32_t owner)
{
	uint32_t last = queue->link[sentinel].previous;

	queue->link[owner] = (struct link){.next = sentinel, .previous = last};
	queue->link[last].next = owner;
	queue->link[sentinel].previous = owner;
}

static void take_out(struct queue *queue, uint32_t owner)
{
	struct link link = queue->link[owner];

	queue->link[link.previous].next = link.next;
	queue->link[link.next].previous = link.previous;
}

int queue_open(struct queue **ret_queue, uint32_t owner_count)
{
	uint32_t link_count = owner_count + 2 * QUEUE_SLOTS;
	struct queue *queue = calloc(1, sizeof *queue + link_count * sizeof queue->link[0]);

	if (queue == NULL)
		return -ENOMEM;
	queue->owner_count = owner_count;
	queue->starter = calloc(owner_count, sizeof *queue->starter);
	queue->queued = calloc(owner_count, 1);
	queue->slot_of = calloc(owner_count, sizeof *queue->slot_of);
	if (queue->starter == NULL || queue->queued == NULL || queue->slot_of == NULL) {
		queue_close(queue);
		return -ENOMEM;
	}
	for (uint32_t i = owner_count; i < link_count; i++)
		queue->link[i] = (struct link){.next = i, .previous = i};
	for (uint32_t i = 0; i <= QUEUE_SLOTS; i++)
		queue->turn[i] = (struct link){.next = (i + 1) % (QUEUE_SLOTS + 1),
					       .previous = (i + QUEUE_SLOTS) % (QUEUE_SLOTS + 1)};
	*ret_queue = queue;
	return 0;
}

struct queue *queue_close(struct queue *queue)
{
	if (queue != NULL) {
		free(queue->starter);
		free(queue->slot_of);
		free(queue->queued);
		free(queue);
	}
	return NULL;
}

static int is_demand(const struct queue *queue, uint32_t owner)
{
	return queue->queued[owner] == QUEUED_DEMAND || queue->queued[owner] == QUEUED_DEMAND_FIRST;
}

static void add_demand(struct queue *queue, uint32_t slot, uint32_t owner)
{
	append(queue, demands(queue, slot), owner);
	queue->queued[owner] = QUEUED_DEMAND;
	queue->slot_of[owner] = (uint16_t)slot;
	queue->demands_of[slot]++;
	queue->demand_count++;
}

int queue_push_demand(struct queue *queue, const struct queue_client *client, uint32_t owner)
{
	CNRE_CHECK(owner < queue->owner_count && client->slot < QUEUE_SLOTS);
	if (is_demand(queue, owner))
		return 1;
	if (queue->demands_of[client->slot] >= (uint64_t)client->reserve_slabs + QUEUE_DEMANDS_SPARE)
		return 0;
	if (queue->queued[owner] == QUEUED_PREFETCH)
		queue_remove(queue, owner);
	add_demand(queue, client->slot, owner);
	queue->starter[owner] = client->number;
	return 1;
}

void queue_push_again(struct queue *queue, uint32_t owner, uint32_t starter)
{
	CNRE_CHECK(owner < queue->owner_count && queue->queued[owner] == NOT_QUEUED);
	add_demand(queue, CNRE_SESSIONS_MAX, owner);
	queue->starter[owner] = starter;
}

int queue_push_prefetch(struct queue *queue, uint32_t slot, uint32_t owner)
{
	CNRE_CHECK(owner < queue->owner_count && slot < QUEUE_SLOTS);
	if (is_demand(queue, owner))
		queue->queued[owner] = QUEUED_DEMAND_FIRST;
	if (queue->queued[owner] != NOT_QUEUED)
		return 1;
	if (queue->prefetches_of[slot] >= QUEUE_PREFETCHES_PER_CLIENT)
		return 0;
	append(queue, prefetches(queue, slot), owner);
	queue->queued[owner] = QUEUED_PREFETCH;
	queue->slot_of[owner] = (uint16_t)slot;
	queue->prefetches_of[slot]++;
	queue->prefetch_count++;
	return 1;
}

int queue_is_demand(const struct queue *queue, uint32_t owner)
{
	CNRE_CHECK(owner < queue->owner_count);
	return is_demand(queue, owner);
}

int queue_has_demand(const struct queue *queue, uint32_t slot)
{
	return !is_empty(queue, demands(queue, slot));
}

uint32_t queue_next_demand(const struct queue *queue, uint32_t slot, uint32_t previous)
{
	uint32_t next = queue->link[previous == QUEUE_NONE ? demands(queue, slot) : previous].next;

	return next < queue->owner_count ? next : QUEUE_NONE;
}

uint32_t queue_next_turn(const struct queue *queue, uint32_t previous)
{
	uint32_t next = queue->turn[previous == QUEUE_NONE ? QUEUE_SLOTS : previous].next;

	return next < QUEUE_SLOTS ? next : QUEUE_NONE;
}

void queue_served(struct queue *queue, uint32_t slot)
{
	struct link link;
	uint32_t last;

	CNRE_CHECK(slot < QUEUE_SLOTS);
	link = queue->turn[slot];
	queue->turn[link.previous].next = link.next;
	queue->turn[link.next].previous = link.previous;
	last = queue->turn[QUEUE_SLOTS].previous;
	queue->turn[slot] = (struct link){.next = QUEUE_SLOTS, .previous = last};
	queue->turn[last].next = slot;
	queue->turn[QUEUE_SLOTS].previous = slot;
}

uint32_t queue_starter(const struct queue *queue, uint32_t owner)
{
	return queue->starter[owner];
}

uint32_t queue_first_prefetch(struct queue *queue)
{
	if (queue->prefetch_count == 0)
		return QUEUE_NONE;
	for (uint32_t i = 0; i < QUEUE_SLOTS; i++) {
		uint32_t slot = (queue->prefetch_slot + i) % QUEUE_SLOTS;

		if (!is_empty(queue, prefetches(queue, slot))) {
			queue->prefetch_slot = (slot + 1) % QUEUE_SLOTS;
			return queue->link[prefetches(queue, slot)].next;
		}
	}
	return QUEUE_NONE;
}

void queue_remove(struct queue *queue, uint32_t owner)
{
	CNRE_CHECK(queue->queued[owner] != NOT_QUEUED);
	take_out(queue, owner);
	if (is_demand(queue, owner)) {
		queue->demand_count--;
		queue->demands_of[queue->slot_of[owner]]--;
	} else {
		queue->prefetch_count--;
		queue->prefetches_of[queue->slot_of[owner]]--;
	}
	queue->queued[owner] = NOT_QUEUED;
}

int queue_give_up_demand(struct queue *queue, uint32_t owner)
{
	uint32_t slot = queue->slot_of[owner];
	int is_wanted = queue->queued[owner] == QUEUED_DEMAND_FIRST;

	CNRE_CHECK(is_demand(queue, owner));
	queue_remove(queue, owner);
	return is_wanted && queue_push_prefetch(queue, slot, owner);
}

uint32_t queue_drop_prefetches(struct queue *queue, uint32_t slot, uint32_t first, uint32_t count)
{
	uint32_t sentinel = prefetches(queue, slot), dropped = 0;
	uint32_t owner = queue->link[sentinel].next;

	while (owner != sentinel) {
		uint32_t next = queue->link[owner].next;

		if (owner - first < count) {
			queue_remove(queue, owner);
			dropped++;
		}
		owner = next;
	}
	return dropped;
}

void queue_forget_slot(struct queue *queue, uint32_t slot)
{
	CNRE_CHECK(slot < CNRE_SESSIONS_MAX);
	while (!is_empty(queue, demands(queue, slot))) {
		uint32_t owner = queue->link[demands(queue, slot)].next;

		queue_remove(queue, owner);
		add_demand(queue, CNRE_SESSIONS_MAX, owner);
	}
	while (!is_empty(queue, prefetches(queue, slot)))
		queue_remove(queue, queue->link[prefetches(queue, slot)].next);
}

uint32_t queue_demand_count(const struct queue *queue)
{
	return queue->demand_count;
}

uint32_t queue_prefetch_count(const struct queue *queue)
{
	return queue->prefetch_count;
}

uint32_t queue_count(const struct queue *queue)
{
	return queue->demand_count + queue->prefetch_count;
}
