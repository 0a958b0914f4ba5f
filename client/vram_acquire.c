/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre_acquire_vram: a hit in the memory of a device, or what the attach flags say instead: the copy in memory, or a wait. Who
 * waits here holds no lease, since nobody need know: what goes to a device is the manager's choice, which it makes from the
 * log, and from what is in memory.
 */
#include "client/acquire.h"
#include "client/vram.h"
#include "client/wait.h"

struct call {
	struct cnre *client;
	uint32_t layer, expert, object, ordinal;
	int is_patient;                   /* no copy in memory will do */
	int has_waited;                   /* and is in the log: what serves it in the end is not logged once more */
	uint64_t position;                /* in the log, where it is: no other call's */
	uint32_t device;                  /* of the log: the manager's number, 0 where no table is open */
	int64_t ask_deadline_ns, deadline_ns;
	struct cnre_expert *ret_expert;
};

static uint32_t log_argument(const struct call *call, uint32_t bits)
{
	return bits | CNRE_LOG_VRAM_WANTED | call->device << CNRE_LOG_DEVICE_SHIFT;
}

/* The position makes the lease's cookie unique, too. */
static void log_access(struct call *call, uint32_t bits)
{
	struct cnre *client = call->client;
	uint32_t visit = cnre_visit_begins(client, call->layer);
	uint64_t position = cnre_gauge_log(client, 1 + visit);

	if (visit)
		cnre_visit_log(client, call->layer, position++);
	cnre_access_log_put(client->log, position, CNRE_LOG_ACCESS, log_argument(call, bits), call->object);
	call->position = position;
}

static int take(struct call *call, struct cnre_vram_table *table, uint64_t address)
{
	struct cnre *client = call->client;
	uint64_t lease;
	int r;

	if (!call->has_waited)
		log_access(call, CNRE_LOG_HIT | CNRE_LOG_VRAM_HIT);
	r = cnre_vram_lease_name(client, table, call->object, call->position, &lease);
	if (r < 0) {
		(void)cnre_vram_lease_lower(client, table, call->object);
		return r;
	}
	cnre_view_fill(client, call->object, (const char *)(uintptr_t)address, call->ret_expert);
	call->ret_expert->lease = lease;
	call->ret_expert->layer = call->layer;
	call->ret_expert->expert = call->expert;
	call->ret_expert->index = 0;
	call->ret_expert->flags = CNRE_IN_VRAM | (call->has_waited ? 0 : CNRE_WAS_RESIDENT);
	CNRE_PROBE(lease_taken, client->session, call->object, call->layer, call->expert, lease);
	return 1;
}

/*
 * One look: 1 the lease is the caller's, and so is the use of the table; 0 it is not there, *ret_word: what was seen; or -errno.
 * The first look takes no lease: most experts are not there, and a lease that comes and goes only disturbs an eviction.
 */
static int look(struct call *call, struct cnre_vram_table *table, uint32_t *ret_word)
{
	const struct cnre_entry *entry = &table->directory->entry[call->object];
	uint64_t address;
	int r;

	*ret_word = cnre_ledger_load_state(entry);
	if (cnre_word_state(*ret_word) != CNRE_STATE_READY)
		return 0;
	r = cnre_vram_lease_raise(call->client, table, call->object);
	if (r < 0)
		return r;
	*ret_word = cnre_ledger_load_state(entry);
	if (cnre_word_state(*ret_word) == CNRE_STATE_READY)
		r = cnre_vram_arena_raise(call->client, table, call->object, &address);
	else
		r = 1;
	if (r == 0)
		return take(call, table, address);
	cnre_vram_lease_undo(call->client, table, call->object);
	return r > 0 || r == -EPIPE ? 0 : r; /* the exporter is gone, or about to be */
}

/* What is not in memory cannot go to a device: it is read ahead, and not waited for. */
static void ask_for_memory(const struct call *call)
{
	const struct cnre_entry *entry = &call->client->entry[call->object];

	/* [VW1] relaxed: a look; the manager looks again. */
	if (cnre_word_state(atomic_load_explicit(&entry->state, memory_order_relaxed)) == CNRE_STATE_ABSENT)
		cnre_post_one(call->client, CNRE_REQUEST_PREFETCH, call->layer, call->object);
}

/*
 * Once a slice: a want that is told once is worth little to a policy that compares rates, and who waits asks for nothing else
 * meanwhile. The ledger, which has the exact counts, knows nothing of it.
 */
static void want_again(void *context)
{
	struct call *call = context;

	log_access(call, 0);
	ask_for_memory(call);
}

static int wait_change(struct call *call, struct cnre_vram_table *table, uint32_t word, struct cnre_slice *slice)
{
	struct cnre_wait_word wait = {.word = &table->directory->entry[call->object].state, .expected = word};
	int64_t left_ns = cnre_clock_left_ns(call->deadline_ns);

	if (!call->has_waited) {
		call->has_waited = 1;
		want_again(call);
	}
	cnre_vram_arena_look(table, CNRE_VRAM_ARENAS_MAX);
	if (left_ns == 0)
		return cnre_connection_check(call->client) < 0 ? -EPIPE : -ETIMEDOUT;
	(void)cnre_wait_any(&wait, 1, cnre_slice_sleep_ns(slice, left_ns)); /* looked at again either way */
	return cnre_slice_look(call->client, slice, (struct cnre_access_repost){want_again, call});
}

/* 1 leased; 0 not there: look again, at a successor's table where the exporter turned out to be gone; or -errno. */
static int look_once(struct call *call, struct cnre_slice *slice)
{
	struct cnre_vram_table *table;
	uint32_t word;
	int r = cnre_vram_table_get(call->client, call->ordinal, call->is_patient, call->ask_deadline_ns, &table);

	if (r < 0)
		return r;
	call->device = table->device;
	r = look(call, table, &word);
	if (r == 0 && call->is_patient && cnre_vram_table_is_current(call->client, table))
		r = wait_change(call, table, word, slice);
	else if (r == 0)
		cnre_vram_arena_look(table, CNRE_VRAM_LOOKS);
	if (r != 1)
		cnre_vram_table_unref(call->client, table, 1);
	return r;
}

/* What a hit runs: no clock, and nobody is asked. 1: leased. */
static int look_now(struct call *call)
{
	struct cnre_vram_table *table = cnre_vram_table_find(call->client, call->ordinal);
	uint32_t word;
	int r = 0;

	if (table == NULL)
		return 0;
	call->device = table->device;
	if (cnre_vram_table_is_current(call->client, table) && !cnre_vram_table_is_lost(table))
		r = look(call, table, &word) == 1; /* what failed fails again below */
	if (r == 0)
		cnre_vram_table_unref(call->client, table, 1);
	return r;
}

/* It waits for this tier only: its time is counted, and it is no miss of the other one. */
static int acquire_patiently(struct call *call)
{
	int64_t start_ns = cnre_clock_now_ns();
	struct cnre_slice slice;
	int r;

	cnre_slice_begin(call->client, &slice);
	do
		r = look_once(call, &slice);
	while (r == 0);
	if (call->has_waited)
		cnre_access_add_wait(call->client, call->layer, start_ns);
	return r == 1 ? 0 : r == -ENXIO ? -ENODEV : r;
}

/* Whatever keeps this tier from serving it, memory does; but for what is the caller's own doing. */
static int acquire_or_memory(struct call *call, int64_t timeout_ns)
{
	int r = call->client->vram->is_wanted ? look_once(call, NULL) : 0;

	if (r == 1)
		return 0;
	if (r == -ENXIO || r == -ENOSPC)
		return r == -ENXIO ? -ENODEV : r;
	return cnre_acquire_in_memory(call->client, call->layer, call->expert, timeout_ns, log_argument(call, 0), call->ret_expert);
}

static int acquire(struct call *call, int64_t timeout_ns)
{
	if (!call->is_patient)
		return acquire_or_memory(call, timeout_ns);
	return call->client->vram->is_wanted ? acquire_patiently(call) : -ENODEV;
}

/*
 * Beyond the reservation, but some of it is with streams, which give it back by themselves: no caller could do more than wait
 * for them. Not for ever, since one may hang.
 */
static int acquire_with_room(struct call *call, int64_t timeout_ns)
{
	int64_t room_ns = timeout_ns >= 0 && timeout_ns < CNRE_POINTS_ROOM_NS ? timeout_ns : CNRE_POINTS_ROOM_NS;
	int64_t deadline_ns = 0;
	int r = acquire(call, timeout_ns);

	while (r == -ENOSPC) {
		deadline_ns = deadline_ns == 0 ? cnre_clock_deadline_ns(room_ns) : deadline_ns;
		if (!cnre_points_wait_one(&call->client->vram->points, deadline_ns))
			break;
		r = acquire(call, timeout_ns);
	}
	return r;
}

int cnre_acquire_vram(struct cnre *client, uint32_t layer, uint32_t expert, int device, int64_t timeout_ns,
		      struct cnre_expert *ret_expert)
{
	struct call call = {.client = client, .layer = layer, .expert = expert, .ordinal = (uint32_t)device, .ret_expert = ret_expert};
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_expert == NULL)
		return -EINVAL;
	r = cnre_client_find(client, layer, expert, &call.object);
	if (r < 0)
		return r;
	if (client->vram == NULL || device < 0 || call.ordinal >= CNRE_VRAM_DEVICES_MAX)
		return -ENODEV;
	call.is_patient = !client->vram->may_use_ram;
	/* [VW2] relaxed: for a release on a stream of it; a word that every hit would write has no line of its own. */
	if (atomic_load_explicit(&client->vram->device[device].is_wanted, memory_order_relaxed) == 0)
		/* [VW3] relaxed: as [VW2]. */
		atomic_store_explicit(&client->vram->device[device].is_wanted, 1, memory_order_relaxed);
	if (client->vram->is_wanted && look_now(&call))
		return 0;
	/* A table that is new to this process takes an answer of the manager: as for a segment of the pool, even a poll waits so
	 * long, and who can do without it no longer. */
	call.ask_deadline_ns = cnre_clock_deadline_ns(!call.is_patient || (timeout_ns >= 0 && timeout_ns < CNRE_ANSWER_MIN_NS) ? CNRE_ANSWER_MIN_NS : timeout_ns);
	call.deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	return acquire_with_room(&call, timeout_ns);
}
