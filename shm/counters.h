/* SPDX-License-Identifier: Apache-2.0 */
/* The counters segment, made from counters.def. One writer (the manager's core thread), any readers, no lock. */
#ifndef CNRE_SHM_COUNTERS_H
#define CNRE_SHM_COUNTERS_H

#include "shm/layout.h"

struct cnre_counters {
	struct cnre_segment_header header;
#define CNRE_COUNTER(name, kind, unit, sentence) _Atomic uint64_t name;
#include "shm/counters.def"
#undef CNRE_COUNTER
};

enum cnre_counter_kind { CNRE_COUNTER_KIND_COUNTER, CNRE_COUNTER_KIND_GAUGE };

struct cnre_counter_description {
	const char *name;
	enum cnre_counter_kind kind;
	const char *unit;
	const char *sentence;
	size_t offset;                    /* of its word in struct cnre_counters */
};
extern const struct cnre_counter_description cnre_counter_table[];
extern const size_t cnre_counter_count;

/* Writer: adds to a counter that only this thread writes. */
static inline void cnre_counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
	/* [T1] relaxed: one writer, so a plain load is our own last store. */
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

	/* [T2] relaxed: a statistic carries nothing else. */
	atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

static inline void cnre_counter_set(_Atomic uint64_t *counter, uint64_t value)
{
	/* [T3] relaxed: as [T2]. */
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline uint64_t cnre_counter_get(const _Atomic uint64_t *counter)
{
	/* [T4] relaxed: as [T2]; consistent per counter, not between counters. */
	return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
