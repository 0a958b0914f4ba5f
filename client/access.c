/* SPDX-License-Identifier: Apache-2.0 */
/* How an access ends, and what it is counted as; see access.h. Waiting is in wait.c. */
#include "client/access.h"

#include "base/clock.h"
#include "base/probe.h"
#include "client/hot.h"
#include "shm/word.h"

int cnre_access_judge(struct cnre_access *access, uint32_t word)
{
	uint32_t now = CNRE_ATTEMPT_SEEN | cnre_word_generation(word);
	uint32_t first = 0;
	int r;

	switch (cnre_word_state(word)) {
	case CNRE_STATE_READY:
		return 1;
	case CNRE_STATE_ABSENT:
	case CNRE_STATE_LOADING:
		break;
	default:
		return 0; /* EVICTING: soon ABSENT, or READY again when the manager has seen our lease */
	}
	/* [J1] relaxed: set once; whoever was first saw a generation of the time our lease was up. */
	if (atomic_compare_exchange_strong_explicit(&access->attempt, &first, now, memory_order_relaxed,
						    memory_order_relaxed) ||
	    first == now)
		return 0;
	r = cnre_word_errno(word);
	return r == -ETIMEDOUT ? -EIO : r; /* the drive's time-out; -ETIMEDOUT is the caller's own */
}

int cnre_access_needs_post(const struct cnre_entry *entry, uint32_t word)
{
	if (cnre_word_state(word) == CNRE_STATE_ABSENT)
		return 1;
	/* [J2] relaxed: a hint. It raises a prefetch to a demand; a stale value is looked at again. */
	return cnre_word_state(word) == CNRE_STATE_LOADING &&
	       atomic_load_explicit(&entry->starter, memory_order_relaxed) == 0;
}

/* Of all accesses of this process that ended with one load that its session began, the first claims to be its miss. */
static int claims_load(struct cnre *client, uint32_t object)
{
	const struct cnre_entry *entry = &client->entry[object];
	/* [J3] relaxed: written before READY, which was seen; after a failure perhaps a newer attempt's. */
	uint32_t sequence = atomic_load_explicit(&entry->load_sequence, memory_order_relaxed);
	uint32_t claimed;

	/* [J4] relaxed: as [J3]. */
	if (atomic_load_explicit(&entry->starter, memory_order_relaxed) != client->session)
		return 0;
	/* [J5] relaxed: the exchange decides. */
	claimed = atomic_load_explicit(&client->claim[object], memory_order_relaxed);
	/* [J6] relaxed: only who is counted depends on it. */
	return claimed != sequence &&
	       atomic_compare_exchange_strong_explicit(&client->claim[object], &claimed, sequence, memory_order_relaxed,
						       memory_order_relaxed);
}

int cnre_access_settle(struct cnre *client, uint32_t layer, const struct cnre_access *access)
{
	const struct cnre_entry *entry = &client->entry[access->object];

	if (!claims_load(client, access->object)) {
		cnre_tally_add(&client->tally.joins, 1);
		cnre_tally_add(&client->account[layer].joins, 1);
		CNRE_PROBE(acquire_join, client->session, access->object, layer, access->object - client->layer[layer].first_object);
		return 1;
	}
	/* [J7] relaxed: as [J3]. */
	cnre_tally_add(&client->tally.bytes_read, atomic_load_explicit(&entry->read_bytes, memory_order_relaxed));
	/* [J8] relaxed: as [J3]. */
	cnre_tally_add(&client->tally.service_ns, atomic_load_explicit(&entry->service_ns, memory_order_relaxed));
	return 0;
}

int cnre_access_fail(struct cnre *client, uint32_t layer, const struct cnre_access *access, int r)
{
	cnre_tally_add(&client->tally.failures, 1);
	cnre_tally_add(&client->account[layer].failures, 1);
	(void)cnre_lease_lower(client, access->object); /* it is up: raised by this access */
	return r;
}

uint64_t cnre_access_add_wait(struct cnre *client, uint32_t layer, int64_t start_ns)
{
	uint64_t elapsed_ns = (uint64_t)(cnre_clock_now_ns() - start_ns);

	cnre_tally_add(&client->tally.wait_ns, elapsed_ns);
	cnre_tally_add(&client->account[layer].wait_ns, elapsed_ns);
	return elapsed_ns;
}

void cnre_access_add_misses(struct cnre *client, uint32_t layer, uint32_t count)
{
	cnre_tally_add(&client->tally.misses, count);
	cnre_tally_add(&client->account[layer].misses, count);
}
