/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One layer's selection at once: everything is asked for at begin, then taken in the caller's order (wait) or as it
 * arrives (next). Batches are kept for reuse, so a steady stream of them allocates nothing.
 */
#include "client/batch.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/probe.h"
#include "client/admission.h"
#include "client/connection.h"
#include "client/hot.h"
#include "client/wait.h"
#include "shm/access_log.h"
#include "shm/futex.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_CAPACITY_MIN 16u
#define NO_INDEX UINT32_MAX

/* ---- making and keeping ---- */

static struct cnre_batch *take_spare(struct cnre *client, uint32_t count)
{
	struct cnre_batch *found = NULL;

	(void)pthread_mutex_lock(&client->admission);
	for (struct cnre_batch **link = &client->spare; *link != NULL; link = &(*link)->next) {
		if ((*link)->capacity < count)
			continue;
		found = *link;
		*link = found->next;
		client->spare_count--;
		break;
	}
	(void)pthread_mutex_unlock(&client->admission);
	return found;
}

static void keep_spare(struct cnre_batch *batch)
{
	struct cnre *client = batch->client;

	(void)pthread_mutex_lock(&client->admission);
	if (client->spare_count < CNRE_SPARE_BATCHES_MAX) {
		batch->next = client->spare;
		client->spare = batch;
		client->spare_count++;
		batch = NULL;
	}
	(void)pthread_mutex_unlock(&client->admission);
	free(batch);
}

static size_t seen_words(const struct cnre *client)
{
	return client->catalog->expert_count / 64 + 1;
}

/* Bounded by CNRE_BATCH_EXPERTS_MAX and CNRE_OBJECTS_MAX: the sizes cannot overflow. */
static struct cnre_batch *new_batch(const struct cnre *client, uint32_t capacity)
{
	struct cnre_batch *batch =
		malloc(sizeof *batch + capacity * sizeof batch->access[0] + seen_words(client) * sizeof(uint64_t));

	if (batch == NULL)
		return NULL;
	batch->capacity = capacity;
	batch->seen = (uint64_t *)&batch->access[capacity];
	return batch;
}

static int make_batch(struct cnre *client, uint32_t count, struct cnre_batch **ret_batch)
{
	struct cnre_batch *batch = take_spare(client, count);

	if (batch == NULL)
		batch = new_batch(client, count < BATCH_CAPACITY_MIN ? BATCH_CAPACITY_MIN : count);
	if (batch == NULL)
		return -ENOMEM;
	batch->client = client;
	batch->next = NULL;
	batch->count = count;
	batch->distinct = 0;
	/* [B1] relaxed: nobody else knows the batch yet. */
	atomic_store_explicit(&batch->admitted, 0, memory_order_relaxed);
	*ret_batch = batch;
	return 0;
}

static int fill_batch(struct cnre_batch *batch, const uint32_t *experts)
{
	memset(batch->seen, 0, seen_words(batch->client) * sizeof batch->seen[0]);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct cnre_access *access = &batch->access[i];
		int r;

		*access = (struct cnre_access){.object = 0};
		r = cnre_client_find(batch->client, batch->layer, experts[i], &access->object);
		if (r < 0)
			return r;
		access->repeated = (uint16_t)(batch->seen[experts[i] / 64] >> experts[i] % 64 & 1);
		batch->seen[experts[i] / 64] |= 1ull << experts[i] % 64;
		batch->distinct += !access->repeated;
	}
	if (batch->distinct > batch->client->reserve_slabs ||
	    (batch->client->cookies.slot != NULL && batch->count > batch->client->cookies.mask))
		return -ENOSPC;
	return 0;
}

int cnre_batch_begin(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint32_t token_count,
		     struct cnre_batch **ret_batch)
{
	struct cnre_batch *batch;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_batch == NULL || (experts == NULL && count > 0) || count > CNRE_BATCH_EXPERTS_MAX)
		return -EINVAL;
	if (layer >= client->layer_count)
		return -ENOENT;
	r = make_batch(client, count, &batch);
	if (r < 0)
		return r;
	batch->layer = layer;
	batch->token_count = token_count > 0 ? token_count : 1;
	r = fill_batch(batch, experts);
	if (r < 0) {
		keep_spare(batch);
		return r;
	}
	cnre_admission_enter(batch);
	*ret_batch = batch;
	return 0;
}

/* ---- admission ---- */

static uint32_t raise_leases(struct cnre_batch *batch)
{
	uint32_t raised = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		raised += CNRE_LEDGER_LEASES(cnre_ledger_add(&batch->client->ledger[batch->access[i].object])) == 0;
		CNRE_CRASH_POINT("batch-raising");
	}
	return raised;
}

/* The first look at every state, with its word of the log. The number of misses. */
static uint32_t look_at_states(struct cnre_batch *batch, uint64_t position)
{
	struct cnre *client = batch->client;
	uint32_t missed = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct cnre_access *access = &batch->access[i];
		uint32_t word = cnre_ledger_load_state(&client->entry[access->object]);

		access->position = position + i;
		access->missed = cnre_word_state(word) != CNRE_STATE_READY;
		missed += access->missed;
		(void)cnre_access_judge(access, word); /* remembers the generation; a first look never fails */
		cnre_access_log_put(client->log, access->position, CNRE_LOG_ACCESS, !access->missed, access->object);
	}
	return missed;
}

void cnre_batch_post(void *context)
{
	struct cnre_batch *batch = context;
	struct cnre *client = batch->client;
	struct cnre_post post;

	cnre_post_begin(&post, client, CNRE_REQUEST_LOAD, batch->layer, batch->token_count);
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct cnre_access *access = &batch->access[i];
		const struct cnre_entry *entry = &client->entry[access->object];

		if (access->missed && !access->repeated && cnre_access_needs_post(entry, cnre_ledger_load_state(entry)))
			cnre_post_add(&post, access->object);
	}
	(void)cnre_post_end(&post); /* demands that found no slot are in the ledger */
}

/*
 * Crash note: killed after any step: the leases raised so far and the posted requests are in the channel, which ends
 * with this process; nobody repairs anything.
 */
void cnre_batch_admit(struct cnre_batch *batch, uint64_t position)
{
	struct cnre *client = batch->client;
	uint32_t shared = batch->distinct - raise_leases(batch);
	uint32_t missed;

	/* [B2] relaxed: statistics; see [A1]. */
	atomic_store_explicit(&client->last_layer, batch->layer, memory_order_relaxed);
	cnre_access_log_put(client->log, position, CNRE_LOG_VISIT, batch->token_count, batch->layer);
	missed = look_at_states(batch, position + 1);
	CNRE_CRASH_POINT("batch-looked");
	if (missed > 0) {
		cnre_access_add_misses(client, batch->layer, missed);
		cnre_batch_post(batch);
		CNRE_CRASH_POINT("batch-posted");
	}
	/* Leased by this client already, so counted once. The caller runs the queue on: no answer to the mark here. */
	cnre_gauge_give_locked(client, shared);
}

/* ---- taking ---- */

static uint32_t expert_at(const struct cnre_batch *batch, uint32_t index)
{
	return batch->access[index].object - batch->client->layer[batch->layer].first_object;
}

/* Exactly one caller has an index at a time. */
static int claim(struct cnre_access *access)
{
	uint32_t unclaimed = 0;

	/* [B3] acquire, pairs with [B4]: what the caller before saw. */
	return atomic_compare_exchange_strong_explicit(&access->taken, &unclaimed, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static void unclaim(struct cnre_access *access)
{
	/* [B4] release, pairs with [B3]: what this caller saw. */
	atomic_store_explicit(&access->taken, 0, memory_order_release);
}

static int is_claimed(const struct cnre_access *access)
{
	/* [B5] relaxed: a look; [B3] decides. */
	return atomic_load_explicit(&access->taken, memory_order_relaxed) != 0;
}

static void name_failed(struct cnre_batch *batch, uint32_t index, struct cnre_expert *ret_expert)
{
	ret_expert->lease = 0;
	ret_expert->layer = batch->layer;
	ret_expert->expert = expert_at(batch, index);
	ret_expert->index = index;
}

/*
 * The access of this index, which the caller claims, has ended with r (0: READY): to the caller, or back. -ETIMEDOUT: it
 * is not claimed any more and its lease is up, as it was.
 */
static int hand_out(struct cnre_batch *batch, uint32_t index, int r, int64_t timeout_ns, struct cnre_expert *ret_expert)
{
	struct cnre *client = batch->client;
	struct cnre_access *access = &batch->access[index];
	struct cnre_access_name name = {.layer = batch->layer, .expert = expert_at(batch, index), .index = index};
	uint32_t flags = CNRE_WAS_RESIDENT;
	const char *base = NULL;

	CNRE_CRASH_POINT("batch-handing-out");
	if (r == 0)
		r = cnre_view_resolve(client, access->object, timeout_ns, &base);
	if (r == -ETIMEDOUT) {
		unclaim(access);
		return r;
	}
	if (access->missed && r != -EPIPE)
		flags = cnre_access_settle(client, batch->layer, access) ? CNRE_JOINED : 0;
	if (r < 0)
		r = cnre_access_fail(client, batch->layer, access, r);
	else
		r = cnre_access_take(client, access, name, flags, base, ret_expert);
	if (r < 0)
		name_failed(batch, index, ret_expert);
	return r;
}

static int check_batch(const struct cnre_batch *batch, const struct cnre_expert *ret_expert)
{
	int r;

	if (batch == NULL)
		return -EINVAL;
	r = cnre_client_check(batch->client);
	return r < 0 || ret_expert != NULL ? r : -EINVAL;
}

/* READY at the first look, admitted: no clock, no wait. */
static int is_ready_now(struct cnre_batch *batch, const struct cnre_access *access)
{
	/* [B6] acquire, pairs with [D1]: the accesses of the batch. */
	return atomic_load_explicit(&batch->admitted, memory_order_acquire) != 0 &&
	       cnre_word_state(cnre_ledger_load_state(&batch->client->entry[access->object])) == CNRE_STATE_READY;
}

/* The end of a wait that a probe saw begin; index NO_INDEX: it ended with none of them. */
static void probe_done(const struct cnre_batch *batch, uint32_t index, uint64_t waited_ns, int r)
{
	uint32_t object = index == NO_INDEX ? NO_INDEX : batch->access[index].object;

	CNRE_PROBE(acquire_done, batch->client->session, object, batch->layer, index == NO_INDEX ? NO_INDEX : expert_at(batch, index),
		   waited_ns, (int32_t)r);
}

int cnre_batch_wait(struct cnre_batch *batch, uint32_t index, int64_t timeout_ns, struct cnre_expert *ret_expert)
{
	struct cnre_access *access;
	int64_t start_ns, deadline_ns;
	uint64_t waited_ns;
	int r = check_batch(batch, ret_expert);

	if (r < 0)
		return r;
	if (index >= batch->count || !claim(&batch->access[index]))
		return -EINVAL;
	access = &batch->access[index];
	if (is_ready_now(batch, access))
		return hand_out(batch, index, 0, timeout_ns, ret_expert);
	start_ns = cnre_clock_now_ns();
	deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	CNRE_PROBE(acquire_miss, batch->client->session, access->object, batch->layer, expert_at(batch, index));
	r = cnre_admission_wait(batch, deadline_ns);
	if (r == 0)
		r = cnre_access_wait(batch->client, access, deadline_ns,
				     (struct cnre_access_repost){cnre_batch_post, batch});
	waited_ns = cnre_access_add_wait(batch->client, batch->layer, start_ns);
	r = hand_out(batch, index, r, cnre_clock_left_ns(deadline_ns), ret_expert);
	probe_done(batch, index, waited_ns, r);
	return r;
}

/*
 * Looks at every index that nobody has: 1 and its index when one ended (*ret_status: how), else 0 and the words to
 * sleep on; *ret_count 0: nothing is left.
 */
static int find_ended(struct cnre_batch *batch, int gone, struct cnre_wait_word *words, uint32_t *ret_count,
		      uint32_t *ret_index, int *ret_status, int *ret_unasked)
{
	*ret_count = 0;
	*ret_unasked = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct cnre_access *access = &batch->access[i];
		const struct cnre_entry *entry = &batch->client->entry[access->object];
		uint32_t word;
		int was_seen, r;

		if (is_claimed(access))
			continue;
		word = cnre_ledger_load_state(entry);
		was_seen = cnre_access_is_seen(access);
		r = cnre_access_judge(access, word);
		/* It was EVICTING at the first look and went: nobody has been asked for it yet. */
		if (!was_seen && cnre_access_is_seen(access))
			*ret_unasked = 1;
		if (r == 0 && gone < 0)
			r = gone;
		if (r != 0 && claim(access)) {
			*ret_index = i;
			*ret_status = r < 0 ? r : 0;
			return 1;
		}
		if (*ret_count < CNRE_WAIT_WORDS_MAX)
			words[*ret_count] = (struct cnre_wait_word){.word = &entry->state, .expected = word};
		(*ret_count)++;
	}
	return 0;
}

/* Whichever comes first is waited for, so nobody knows yet which one. */
static void probe_miss(const struct cnre_batch *batch, int *is_waiting)
{
	if (!*is_waiting)
		CNRE_PROBE(acquire_miss, batch->client->session, NO_INDEX, batch->layer, NO_INDEX);
	*is_waiting = 1;
}

/* 1 one ended, 0 nothing is left, -ETIMEDOUT. *is_waiting becomes 1 when it waits. */
static int wait_next(struct cnre_batch *batch, int64_t deadline_ns, uint32_t *ret_index, int *ret_status, int *is_waiting)
{
	struct cnre_wait_word words[CNRE_WAIT_WORDS_MAX];
	int gone = cnre_connection_is_gone(batch->client) ? -EPIPE : 0;
	struct cnre_slice slice;
	int may_spin = 1;
	uint32_t count;

	cnre_slice_begin(batch->client, &slice);
	for (;;) {
		int64_t left_ns;
		int unasked;
		int found = find_ended(batch, gone, words, &count, ret_index, ret_status, &unasked);

		if (unasked)
			cnre_batch_post(batch);
		if (found)
			return 1;
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (count == 0)
			return 0;
		if (left_ns == 0 && cnre_connection_check(batch->client) == 0)
			return -ETIMEDOUT;
		if (left_ns == 0) {
			gone = -EPIPE;
			continue;
		}
		probe_miss(batch, is_waiting);
		if (may_spin &&
		    cnre_wait_spin(batch->client, words, count < CNRE_WAIT_WORDS_MAX ? count : CNRE_WAIT_WORDS_MAX))
			continue;
		may_spin = 0;
		/* Looked at again either way. */
		(void)cnre_wait_any(words, count, cnre_slice_sleep_ns(&slice, left_ns));
		gone = cnre_slice_look(batch->client, &slice, (struct cnre_access_repost){cnre_batch_post, batch});
	}
}

int cnre_batch_next(struct cnre_batch *batch, int64_t timeout_ns, struct cnre_expert *ret_expert)
{
	int64_t start_ns, deadline_ns;
	uint32_t index = 0, was_admitted;
	uint64_t waited_ns = 0;
	int status = 0, is_waiting = 0;
	int r = check_batch(batch, ret_expert);

	if (r < 0)
		return r;
	/* [B8] relaxed: only whether the wait below is felt; [D2] carries the rest. */
	was_admitted = atomic_load_explicit(&batch->admitted, memory_order_relaxed);
	start_ns = cnre_clock_now_ns();
	deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	if (!was_admitted)
		probe_miss(batch, &is_waiting);
	r = cnre_admission_wait(batch, deadline_ns);
	if (r == 0)
		r = wait_next(batch, deadline_ns, &index, &status, &is_waiting);
	if (r < 0 || !was_admitted || (r == 1 && batch->access[index].missed))
		waited_ns = cnre_access_add_wait(batch->client, batch->layer, start_ns);
	if (r == 1)
		status = hand_out(batch, index, status, cnre_clock_left_ns(deadline_ns), ret_expert);
	if (is_waiting)
		probe_done(batch, r == 1 ? index : NO_INDEX, waited_ns, r == 1 ? status : r);
	return r == 1 && status < 0 ? status : r;
}

int cnre_batch_end(struct cnre_batch *batch)
{
	int r;

	if (batch == NULL)
		return 0;
	r = cnre_client_check(batch->client);
	if (r < 0)
		return r;
	cnre_admission_leave(batch);
	/* [B7] acquire, pairs with [D1]: the accesses; 0 now means never, it is out of the queue. */
	if (atomic_load_explicit(&batch->admitted, memory_order_acquire) != 0)
		for (uint32_t i = 0; i < batch->count; i++)
			if (!is_claimed(&batch->access[i])) {
				CNRE_CRASH_POINT("batch-ending");
				(void)cnre_lease_lower(batch->client, batch->access[i].object); /* it is up */
			}
	keep_spare(batch);
	return 0;
}
