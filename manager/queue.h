/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits for a slab: for each client a list of demands and a list of prefetches, in order of arrival, plus one
 * common list for demands whose client has ended. An owner is in at most one list, so all links are made at the start
 * and the queue is bounded by the number of objects. Lists are rings around a sentinel: an owner leaves its list in O(1).
 */
#ifndef CNRE_MANAGER_QUEUE_H
#define CNRE_MANAGER_QUEUE_H

#include "shm/layout.h"

#include <stdint.h>

#define QUEUE_NONE UINT32_MAX
#define QUEUE_PREFETCHES_PER_CLIENT 128u          /* queued at once; more are refused */
#define QUEUE_DEMANDS_SPARE 64u                  /* demands beyond a client's reservation: some it gave up are queued still */
#define QUEUE_SLOTS (CNRE_SESSIONS_MAX + 1u)     /* one a session slot; the last is common */

struct queue;

int queue_open(struct queue **ret_queue, uint32_t owner_count);
struct queue *queue_close(struct queue *queue);

/* Who demands: its list, its session number (remembered from the first demand), and how much it may wait for (R15). */
struct queue_client {
	uint32_t slot, number, reserve_slabs;
};
/*
 * Demand: queues it, or lifts a queued prefetch. 1 queued or queued already, 0 refused: more than reserve_slabs and
 * QUEUE_DEMANDS_SPARE of this client wait. An owner is in one list whoever else wants it, so what another client waits
 * for behind it is bounded by that.
 */
int queue_push_demand(struct queue *queue, const struct queue_client *client, uint32_t owner);
/*
 * A demand whose load came to nothing through no fault of its own: the common list takes it again, whoever asked. The
 * starter is that of the load: 0 if it was a prefetch, whoever demanded the object some other time.
 */
void queue_push_again(struct queue *queue, uint32_t owner, uint32_t starter);
/* Prefetch: 1 queued or queued already, 0 refused (too many of this client). */
int queue_push_prefetch(struct queue *queue, uint32_t slot, uint32_t owner);

int queue_is_demand(const struct queue *queue, uint32_t owner); /* queued as a demand now */
int queue_has_demand(const struct queue *queue, uint32_t slot);
/* Demands of a client in order: QUEUE_NONE begins and ends. Valid until the queue changes. */
uint32_t queue_next_demand(const struct queue *queue, uint32_t slot, uint32_t previous);
/*
 * Slots in the order of their turns, whether they have demands or not: who was served longest ago is first. QUEUE_NONE begins
 * and ends. So whatever a client has to wait for, others that are served meanwhile come behind it.
 */
uint32_t queue_next_turn(const struct queue *queue, uint32_t previous);
void queue_served(struct queue *queue, uint32_t slot); /* it comes behind all others now */
uint32_t queue_starter(const struct queue *queue, uint32_t owner);
uint32_t queue_first_prefetch(struct queue *queue); /* round robin over clients; QUEUE_NONE: none */
void queue_remove(struct queue *queue, uint32_t owner);
/* Nobody holds a lease any more: 1 it was asked for as a prefetch meanwhile and is queued as that, 0 it is in no list. */
int queue_give_up_demand(struct queue *queue, uint32_t owner);

/* Drops a client's queued prefetches of owners first .. first + count - 1; how many. */
uint32_t queue_drop_prefetches(struct queue *queue, uint32_t slot, uint32_t first, uint32_t count);
/* A client ends: its demands move to the common list, its prefetches are dropped. O(what it had queued). */
void queue_forget_slot(struct queue *queue, uint32_t slot);

uint32_t queue_demand_count(const struct queue *queue);
uint32_t queue_prefetch_count(const struct queue *queue);
uint32_t queue_count(const struct queue *queue);

#endif
