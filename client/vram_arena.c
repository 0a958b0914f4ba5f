/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas of a table in this process. One is opened at the first hit in it and closed when the manager wants to free it, or with
 * the table; in between its word counts the leases in it, and nothing is closed that has one. Opening is safe because the
 * opener holds a lease of an entry there, which the manager does not move out under it (tests/model/arena.pml).
 */
#include "client/vram.h"

#include "base/clock.h"
#include "shm/word.h"

#define ARENA_ID(word) ((uint32_t)((word) >> 32))
#define ARENA_LEASES(word) ((uint32_t)(word))
#define ARENA_WORD(id, leases) ((uint64_t)(id) << 32 | (leases))

/* ---- the word ---- */

/* One lease more of an arena that is open as `id`. 1, or 0: it is not. */
static int raise_open(struct cnre_vram_arena_use *use, uint32_t id)
{
	/* [VA4] relaxed: a first guess for the exchange. */
	uint64_t word = atomic_load_explicit(&use->word, memory_order_relaxed);

	while (ARENA_ID(word) == id && id != 0)
		/* [VA1] acquire, pairs with [VA5]: its address. */
		if (atomic_compare_exchange_weak_explicit(&use->word, &word, word + 1, memory_order_acquire, memory_order_relaxed))
			return 1;
	return 0;
}

/* 1: it was open and unleased, and is nobody's now but the caller's. */
static int take_unleased(struct cnre_vram_arena_use *use)
{
	/* [VA6] relaxed: a first guess for the exchange. */
	uint64_t word = atomic_load_explicit(&use->word, memory_order_relaxed);

	/* [VA3] acquire, pairs with [VA2]: whoever used it is done. */
	return ARENA_ID(word) != 0 && ARENA_LEASES(word) == 0 &&
	       atomic_compare_exchange_strong_explicit(&use->word, &word, 0, memory_order_acquire, memory_order_relaxed);
}

static int is_open(const struct cnre_vram_arena_use *use)
{
	/* [VA7] relaxed: a look; opened and closed under the table's lock. */
	return ARENA_ID(atomic_load_explicit(&use->word, memory_order_relaxed)) != 0;
}

/* ---- opening and closing; table's lock held ---- */

static int close_unleased(struct cnre_vram_table *table, uint32_t arena)
{
	struct cnre_vram_arena_use *use = &table->arena[arena];

	if (!take_unleased(use))
		return 0;
	/* A context that failed has it mapped until this process ends, and so has one whose process is ending: the bit stays. */
	if (gpu_import_close_arena(table->import, table->directory->token, use->address) == 0)
		cnre_vram_unmark_open(table->ledger, arena);
	return 1;
}

static int open_arena(struct cnre_vram_table *table, uint32_t arena)
{
	const struct cnre_vram_arena *shared = &table->directory->arena[arena];
	struct cnre_vram_arena_use *use = &table->arena[arena];
	int r;

	cnre_vram_mark_open(table->ledger, arena);
	r = gpu_import_arena(table->import, shared->handle, table->directory->token, shared->local, &use->address);
	if (r < 0) {
		cnre_vram_unmark_open(table->ledger, arena);
		return r;
	}
	use->bytes = shared->bytes;
	/* [VA5] release, pairs with [VA1]: its address. */
	atomic_store_explicit(&use->word, ARENA_WORD(shared->id, 1), memory_order_release);
	return 0;
}

static void remember(struct cnre_vram_table *table, int error)
{
	if (error == -EPIPE)
		(void)cnre_vram_table_is_dead(table); /* a look; who still lives is tried again later */
	/* [VA8] relaxed: a hint of when to try again; written under the table's lock. */
	atomic_store_explicit(&table->error, error, memory_order_relaxed);
	/* [VA9] relaxed: as [VA8]. */
	atomic_store_explicit(&table->retry_ns, cnre_clock_now_ns() + CNRE_VRAM_ASK_AGAIN_NS, memory_order_relaxed);
}

/* Why none is opened now, or 0. */
static int remembered(const struct cnre_vram_table *table)
{
	/* [VA10] relaxed: as [VA8]. */
	int error = atomic_load_explicit(&table->error, memory_order_relaxed);

	/* [VA11] relaxed: as [VA8]. */
	return error != 0 && cnre_clock_now_ns() < atomic_load_explicit(&table->retry_ns, memory_order_relaxed) ? error : 0;
}

/* Another thread may have opened it; another use of the place may still be open, if it is not leased. */
static int raise_closed(struct cnre_vram_table *table, uint32_t arena, uint32_t id)
{
	struct cnre_vram_arena_use *use = &table->arena[arena];
	int r = 0;

	(void)pthread_mutex_lock(&table->lock);
	if (!raise_open(use, id)) {
		(void)close_unleased(table, arena);
		r = is_open(use) || id == 0 ? -EBADMSG : remembered(table);
		if (r == 0)
			r = open_arena(table, arena);
		if (r < 0 && r != -EBADMSG)
			remember(table, r);
	}
	(void)pthread_mutex_unlock(&table->lock);
	return r;
}

/* Not below none: a lease that was released twice took another thread's, which may not have come here yet (R5). */
static void lower(struct cnre_vram_arena_use *use)
{
	/* [VA18] relaxed: a first guess for the exchange. */
	uint64_t word = atomic_load_explicit(&use->word, memory_order_relaxed);

	while (ARENA_LEASES(word) != 0)
		/* [VA2] release, pairs with [VA3]: what was read there is read. */
		if (atomic_compare_exchange_weak_explicit(&use->word, &word, word - 1, memory_order_release, memory_order_relaxed))
			return;
}

/* ---- leases ---- */

int cnre_vram_arena_raise(struct cnre *client, struct cnre_vram_table *table, uint32_t object, uint64_t *ret_address)
{
	/* [VA12] relaxed: written before LOADING; the READY that was seen under the lease carries it (R2). */
	uint64_t place = atomic_load_explicit(&table->directory->entry[object].place, memory_order_relaxed);
	uint64_t object_bytes = client->shape[client->object[object].shape].slab_bytes;
	uint32_t arena = cnre_place_segment(place), id;
	uint64_t off = cnre_place_offset(place);
	struct cnre_vram_arena_use *use;
	int r = 0;

	if (arena >= CNRE_VRAM_ARENAS_MAX)
		return -EBADMSG;
	use = &table->arena[arena];
	id = table->directory->arena[arena].id;
	if (!raise_open(use, id))
		r = raise_closed(table, arena, id);
	if (r < 0)
		return r;
	if (off > use->bytes || object_bytes > use->bytes - off) {
		lower(use);
		return -EBADMSG;
	}
	/* [VA13] relaxed: it does not move while it is leased, so all who lease it write the same. */
	atomic_store_explicit(&table->home[object], (uint8_t)arena, memory_order_relaxed);
	*ret_address = use->address + off;
	return 0;
}

uint32_t cnre_vram_arena_of(const struct cnre_vram_table *table, uint32_t object)
{
	/* [VA14] relaxed: as [VA13]; not asked of the entry, which a device that was lost has left already. */
	return atomic_load_explicit(&table->home[object], memory_order_relaxed);
}

void cnre_vram_arena_lower(struct cnre_vram_table *table, uint32_t arena)
{
	lower(&table->arena[arena]);
	cnre_vram_arena_look(table, CNRE_VRAM_LOOKS);
}

/* ---- letting the manager have them back ---- */

static int is_unwanted(const struct cnre_vram_table *table, uint32_t arena)
{
	const struct cnre_vram_arena *shared = &table->directory->arena[arena];

	/* [VA15] relaxed: a wish of the manager's, which looks at the ledger for the answer. */
	return is_open(&table->arena[arena]) && atomic_load_explicit(&shared->state, memory_order_relaxed) != CNRE_ARENA_LIVE;
}

void cnre_vram_arena_look(struct cnre_vram_table *table, uint32_t count)
{
	/* [VA16] relaxed: whose turn it is; two threads that look at the same one lose a turn. */
	uint32_t first = atomic_load_explicit(&table->look, memory_order_relaxed);

	/* [VA17] relaxed: as [VA16]. */
	atomic_store_explicit(&table->look, (first + count) % CNRE_VRAM_ARENAS_MAX, memory_order_relaxed);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t arena = (first + i) % CNRE_VRAM_ARENAS_MAX;

		if (!is_unwanted(table, arena) || pthread_mutex_trylock(&table->lock) != 0)
			continue;
		(void)close_unleased(table, arena);
		(void)pthread_mutex_unlock(&table->lock);
	}
}

void cnre_vram_arena_close_all(struct cnre_vram_table *table)
{
	(void)pthread_mutex_lock(&table->lock);
	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		(void)close_unleased(table, i);
	(void)pthread_mutex_unlock(&table->lock);
}
