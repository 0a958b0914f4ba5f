/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered access log of one client (R35): a ring of single 64-bit words that the client overwrites without asking
 * and the manager reads when it looks at the channel. Positions are the client's own; each word carries its lap, so
 * the reader finds fresh words without any shared head, and counts what it came too late for. Exact counts come from
 * the ledger, never from here.
 */
#ifndef CNRE_SHM_ACCESS_LOG_H
#define CNRE_SHM_ACCESS_LOG_H

#include "shm/word.h"

/* The log of a channel, in this process. The offset is fixed by the layout, so a hostile header cannot move it. */
_Atomic uint64_t *cnre_access_log_of(struct cnre_channel *channel);

/* Client: writes the word of one position that this thread has reserved. */
static inline void cnre_access_log_put(_Atomic uint64_t *log, uint64_t position, enum cnre_log_kind kind, uint32_t argument,
			 uint32_t value)
{
	uint64_t word = cnre_log_pack(position, kind, argument, value);

	/* [A1] relaxed: the word publishes only itself. */
	atomic_store_explicit(&log[position % CNRE_LOG_ENTRIES], word, memory_order_relaxed);
}

/* Reader's state. Zeroed at attach. */
struct cnre_access_log_reader {
	uint64_t position;
	uint64_t lost_count;
};

/*
 * Manager: the next word in order. Returns 1 (*ret_entry: unchecked input), or 0 when there is none yet. Words that were
 * overwritten before they were read are added to lost_count. A wrong lap of a hostile client loses its own words only.
 */
int cnre_access_log_next(const _Atomic uint64_t *log, struct cnre_access_log_reader *reader, uint64_t *ret_entry);

/*
 * Manager: sets a reader to where the client writes now, after a restart that lost the position. What was not read by
 * the former manager is passed over.
 */
void cnre_access_log_resume(const _Atomic uint64_t *log, struct cnre_access_log_reader *reader);

#endif
