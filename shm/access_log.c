/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of access-log words; see access_log.h. All accesses are relaxed: a word is whole or not there, and it
 * carries nothing but itself. */
#include "shm/access_log.h"

#include "shm/word.h"

_Atomic uint64_t *cnre_access_log_of(struct cnre_channel *channel)
{
	return (_Atomic uint64_t *)((char *)channel + CNRE_CHANNEL_LOG_OFF);
}

/* Laps that the word of a position is ahead of it: 0 fresh, 0x8000 or more: older, not written yet. */
static uint16_t laps_ahead(uint64_t entry, uint64_t position)
{
	return (uint16_t)(cnre_log_lap(entry) - (uint16_t)(position / CNRE_LOG_ENTRIES + 1));
}

static int is_overwritten(const _Atomic uint64_t *log, uint64_t position)
{
	/* [A3] relaxed: input, loaded once; see [A1]. */
	uint64_t entry = atomic_load_explicit(&log[position % CNRE_LOG_ENTRIES], memory_order_relaxed);
	uint16_t ahead = laps_ahead(entry, position);

	return ahead > 0 && ahead < 0x8000;
}

/*
 * The writer lapped us by `ahead`: the oldest word that may still be there lies one ring behind the newest that we have
 * seen, and what has been overwritten since is a run from there on, whose end is found by halving.
 */
static void skip_overwritten(const _Atomic uint64_t *log, struct cnre_access_log_reader *reader, uint16_t ahead)
{
	uint64_t base = reader->position + (uint64_t)(ahead - 1) * CNRE_LOG_ENTRIES;
	uint64_t gone = 0,
		 kept = CNRE_LOG_ENTRIES; /* base + gone is overwritten, base + kept is the newest lap itself */

	while (kept - gone > 1) {
		uint64_t middle = gone + (kept - gone) / 2;

		if (is_overwritten(log, base + middle))
			gone = middle;
		else
			kept = middle;
	}
	reader->lost_count += base + kept - reader->position;
	reader->position = base + kept;
}

int cnre_access_log_next(const _Atomic uint64_t *log, struct cnre_access_log_reader *reader, uint64_t *ret_entry)
{
	/* Twice at most: a client that laps us again in between is read at the next look. */
	for (int attempt = 0; attempt < 2; attempt++) {
		/* [A2] relaxed: input, loaded once; see [A1]. */
		uint64_t entry = atomic_load_explicit(&log[reader->position % CNRE_LOG_ENTRIES], memory_order_relaxed);
		uint16_t ahead = laps_ahead(entry, reader->position);

		if (ahead == 0) {
			reader->position++;
			*ret_entry = entry;
			return 1;
		}
		if (ahead >= 0x8000)
			return 0; /* an older lap: not written yet */
		skip_overwritten(log, reader, ahead);
	}
	return 0;
}

void cnre_access_log_resume(const _Atomic uint64_t *log, struct cnre_access_log_reader *reader)
{
	/* [A4] relaxed: input; a hostile log only misplaces its own reader. */
	uint32_t lap = cnre_log_lap(atomic_load_explicit(&log[0], memory_order_relaxed));
	uint64_t index = 0;

	*reader = (struct cnre_access_log_reader){0};
	if (lap == 0)
		return; /* nothing was written yet, or 65,536 laps were: then the first look counts the loss */
	/* [A5] relaxed: as [A4]. */
	while (index < CNRE_LOG_ENTRIES && cnre_log_lap(atomic_load_explicit(&log[index], memory_order_relaxed)) == lap)
		index++;
	reader->position = (uint64_t)(lap - 1) * CNRE_LOG_ENTRIES + index;
}
