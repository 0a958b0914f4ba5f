/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client keeps leased, against the quota that the manager wrote into the directory. An entry counts once, however
 * many chains of this process have it: that is what it pins. The counts are this process's own, so that a lease that was
 * raised for a look, or given back twice, cannot disturb them.
 */
#include "client/kv.h"

int cnre_kv_pin(struct cnre_kv_space *space, uint32_t index, uint64_t bytes)
{
	int r = 0;

	(void)pthread_mutex_lock(&space->lock);
	if (space->pins[index] == 0) {
		/* [KV22] relaxed: a limit; whoever read it just before it moved is within twice of it, which the manager allows. */
		uint64_t most = atomic_load_explicit(&space->directory->pin_bytes_max, memory_order_relaxed);

		if (bytes > most || space->pinned_bytes > most - bytes) {
			r = -ENOSPC;
		} else {
			space->pinned_bytes += bytes;
			space->pinned_count++;
		}
	}
	if (r == 0)
		space->pins[index]++;
	(void)pthread_mutex_unlock(&space->lock);
	return r;
}

/* The lease is down before its bytes are counted back: the manager never sees more leased than the quota. */
void cnre_kv_unpin_item(struct cnre_kv_space *space, const struct cnre_kv_item *item)
{
	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_drop(space, item->entry);
	if (--space->pins[item->entry] == 0) {
		space->pinned_bytes -= item->bytes;
		space->pinned_count--;
	}
	(void)pthread_mutex_unlock(&space->lock);
}
