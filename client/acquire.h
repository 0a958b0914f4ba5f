/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One expert in memory, from the lease to the view: what cnre_acquire is, and cnre_acquire_vram where the copy in memory will do.
 * Each of them compiles it for itself, so that the common one pays nothing for the other. `wanted` is what the access log says
 * beside hit or not: CNRE_LOG_VRAM_WANTED and the device, or 0.
 */
#ifndef CNRE_CLIENT_ACQUIRE_H
#define CNRE_CLIENT_ACQUIRE_H

#include "base/clock.h"
#include "base/crash.h"
#include "base/probe.h"
#include "client/access.h"
#include "client/connection.h"
#include "client/hot.h"
#include "shm/access_log.h"
#include "shm/ledger.h"
#include "shm/word.h"

struct acquire {
	struct cnre *client;
	struct cnre_access *access;
	uint32_t layer;
};

static void post_again(void *context)
{
	struct acquire *acquire = context;
	const struct cnre_entry *entry = &acquire->client->entry[acquire->access->object];

	if (cnre_access_needs_post(entry, cnre_ledger_load_state(entry)))
		cnre_post_one(acquire->client, CNRE_REQUEST_LOAD, acquire->layer, acquire->access->object);
}

/*
 * The lease is given back, so what was only asked for as a demand would be dropped with it (R7): asked for as a
 * prefetch it goes on, and a missed poll has started the load.
 */
static int give_up(struct acquire *acquire)
{
	const struct cnre_entry *entry = &acquire->client->entry[acquire->access->object];

	if (cnre_word_state(cnre_ledger_load_state(entry)) == CNRE_STATE_ABSENT)
		cnre_post_one(acquire->client, CNRE_REQUEST_PREFETCH, acquire->layer, acquire->access->object);
	CNRE_CRASH_POINT("acquire-giving-up");
	(void)cnre_lease_lower(acquire->client, acquire->access->object); /* it is up */
	return -ETIMEDOUT;
}

/* The wait has ended with r; 0: its bytes are at `base`. */
static int end_miss(struct acquire *acquire, struct cnre_access_name name, int r, const char *base, struct cnre_expert *ret_expert)
{
	struct cnre *client = acquire->client;

	if (r == -ETIMEDOUT)
		return give_up(acquire);
	if (r == -EPIPE)
		return cnre_access_fail(client, name.layer, acquire->access, r);
	if (r < 0) {
		(void)cnre_access_settle(client, name.layer,
					 acquire->access); /* a failed load has one miss and joins, too */
		return cnre_access_fail(client, name.layer, acquire->access, r);
	}
	return cnre_access_take(client, acquire->access, name,
				cnre_access_settle(client, name.layer, acquire->access) ? CNRE_JOINED : 0, base,
				ret_expert);
}

static int acquire_missing(struct acquire *acquire, struct cnre_access_name name, int64_t timeout_ns, uint32_t word,
			   struct cnre_expert *ret_expert)
{
	struct cnre *client = acquire->client;
	int64_t start_ns = cnre_clock_now_ns();
	int64_t deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	const char *base = NULL;
	uint64_t waited_ns;
	int r = cnre_access_judge(acquire->access, word); /* the first look, which remembers the generation */

	CNRE_PROBE(acquire_miss, client->session, acquire->access->object, name.layer, name.expert);
	cnre_access_add_misses(client, name.layer, 1);
	if (r == 0 && timeout_ns != 0 && cnre_access_needs_post(&client->entry[acquire->access->object], word))
		cnre_post_one(client, CNRE_REQUEST_LOAD, name.layer, acquire->access->object);
	CNRE_CRASH_POINT("acquire-posted");
	r = cnre_access_wait(client, acquire->access, deadline_ns, (struct cnre_access_repost){post_again, acquire});
	if (r == 0)
		r = cnre_view_resolve(client, acquire->access->object, cnre_clock_left_ns(deadline_ns), &base);
	waited_ns = cnre_access_add_wait(client, name.layer, start_ns);
	r = end_miss(acquire, name, r, base, ret_expert);
	CNRE_PROBE(acquire_done, client->session, acquire->access->object, name.layer, name.expert, waited_ns, (int32_t)r);
	return r;
}

/* A hit needs the manager only when the pool has grown since this process last asked. */
static int acquire_resident(struct cnre *client, const struct cnre_access *access, struct cnre_access_name name,
			    int64_t timeout_ns, struct cnre_expert *ret_expert)
{
	const char *base;
	int r = cnre_view_resolve(client, access->object, timeout_ns, &base);

	if (r < 0) {
		(void)cnre_lease_lower(client, access->object); /* it is up */
		return r;
	}
	return cnre_access_take(client, access, name, CNRE_WAS_RESIDENT, base, ret_expert);
}

/* `wanted` is 0 on the common path, and folded away there. */
static inline __attribute__((always_inline)) int cnre_acquire_in_memory(struct cnre *client, uint32_t layer, uint32_t expert, int64_t timeout_ns, uint32_t wanted,
					 struct cnre_expert *ret_expert)
{
	struct cnre_access access = {0};
	struct cnre_access_name name = {.layer = layer, .expert = expert};
	uint32_t word, visit;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_expert == NULL)
		return -EINVAL;
	r = cnre_client_find(client, layer, expert, &access.object);
	if (r < 0)
		return r;
	visit = cnre_visit_begins(client, layer);
	r = cnre_lease_raise(client, access.object, 1 + visit, &access.position);
	if (r < 0)
		return r;
	CNRE_CRASH_POINT("acquire-leased");
	word = cnre_ledger_load_state(&client->entry[access.object]);
	if (visit)
		cnre_visit_log(client, layer, access.position++);
	if (cnre_word_state(word) == CNRE_STATE_READY) {
		cnre_access_log_put(client->log, access.position, CNRE_LOG_ACCESS, CNRE_LOG_HIT | wanted, access.object);
		return acquire_resident(client, &access, name, timeout_ns, ret_expert);
	}
	cnre_access_log_put(client->log, access.position, CNRE_LOG_ACCESS, wanted, access.object);
	return acquire_missing(&(struct acquire){client, &access, layer}, name, timeout_ns, word, ret_expert);
}

#endif
