/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that do not come back (R16). A read cannot be taken back: its slab belongs to the kernel until it is over, and a
 * successor must know that (R21), so the slab is remembered in the state segment before the entry changes. Then, where other
 * drives have all of the object, it is ABSENT with the same generation, as after an adoption: who waits sees no failure, and
 * the demand is queued again for another slab (R2: in its own slab late bytes could land at any time). Else it fails.
 *
 * Crash note: killed after fence_remember, the entry is LOADING and its slab in quarantine, which adoption knows already;
 * killed after the entry changed, the ledgers still say who wants the object (R7).
 */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "manager/fence.h"
#include "manager/probe.h"

#include <errno.h>

#define LATE_MOVES_TIMEOUTS 2 /* times --read-timeout from its first read on, and a demand is moved no more */

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/*
 * Whether all that is out on these drives can be had from others, which serve no worse than `worst`. A demand that drives
 * which hang by turns pass on to each other comes to its end, too.
 */
static int can_move(const struct load *load, uint32_t drives, enum replica_rank worst, int64_t now_ns)
{
	struct manager *manager = load->manager;
	const struct served_model *model = model_of(manager, load->owner);
	struct drive_bans bans = load->bans;
	int64_t since_ns = later(load->begun_ns, manager->residency->awake_since_ns);
	struct replica_split split;

	if (manager->read_timeout_ns > 0 && (now_ns - since_ns) / LATE_MOVES_TIMEOUTS >= manager->read_timeout_ns)
		return 0;
	bans.drives |= drives;
	bans.only = DRIVE_ANY;
	return drive_split(manager, model, load->owner - model->first_owner, &load->plan, &bans, &split) == 0 &&
	       split.rank <= worst;
}

/* The drives whose parts are out beyond the first time, in which another replica is asked, and beyond the last. */
struct overdue {
	uint32_t first, last;
	int64_t next_ns;
};

/* Time in which this process could not run counts against no drive. */
static void look_at_part(const struct load *load, const struct load_part *part, int64_t now_ns, struct overdue *overdue)
{
	const struct manager *manager = load->manager;
	int64_t since_ns = later(part->read.submitted_ns, manager->residency->awake_since_ns);
	int64_t last_ns = manager->read_timeout_ns > 0 ? since_ns + manager->read_timeout_ns : CNRE_NEVER;
	int64_t first_ns = since_ns + part->patience_ns;

	if (load->is_late || !drive_has_replicas(manager))
		first_ns = last_ns;
	if (last_ns <= now_ns)
		overdue->last |= 1u << part->drive;
	else
		overdue->next_ns = earlier(overdue->next_ns, first_ns > now_ns ? earlier(first_ns, last_ns) : last_ns);
	if (first_ns <= now_ns)
		overdue->first |= 1u << part->drive;
}

/*
 * Of whom nothing more is expected. Before the last time only if all that are late can be done without: two drives that
 * are both late could stand in for each other, but not for both.
 */
static uint32_t overdue_drives(const struct load *load, int64_t now_ns, int64_t *ret_next_ns)
{
	struct overdue overdue = {.next_ns = CNRE_NEVER};

	for (uint32_t i = 0; i < load->part_count; i++)
		if (load->part[i].is_out && !load->part[i].is_late)
			look_at_part(load, &load->part[i], now_ns, &overdue);
	*ret_next_ns = overdue.next_ns;
	if (load->is_late || overdue.first == 0 || !can_move(load, overdue.first | overdue.last, REPLICA_SPARE, now_ns))
		return overdue.last;
	return overdue.first | overdue.last;
}

static void begin_stall(struct load *load, struct load_part *part)
{
	struct manager *manager = load->manager;
	const struct loader_run *late;
	uint32_t run = 0;

	while (run + 1 < part->read.run_count && part->read.run_got[run] >= part->read.run[run].needed_bytes)
		run++; /* to the first whose bytes did not come */
	late = &part->read.run[run];
	part->is_late = 1;
	stall_begin(&manager->residency->stalls, part->drive, loader_file_path(manager->loader, late->file),
		    part->read.submitted_ns);
	drive_stalled(manager, part->drive, late->file, late->file_off);
}

/* Nobody's attempt failed: the generation stays (R8), and who waits sleeps on. */
static void move(struct load *load, int64_t now_ns)
{
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	object_settle(entry, cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	if (!is_leased(manager, load->owner))
		return; /* a prefetch, or who wanted it has gone */
	residency->moved_ns[load->owner] = load->begun_ns;
	residency->demanded_ns[load->owner] = now_ns;
	queue_push_again(residency->queue, load->owner, object_starter(entry));
}

static void fail_late(struct load *load, int64_t now_ns)
{
	struct manager *manager = load->manager;

	object_note_attempt(entry_of(manager, load->owner), load, now_ns);
	load_note_last(load, now_ns, -ETIMEDOUT);
	object_fail(manager, load->owner, CNRE_LOAD_ETIMEDOUT);
	cnre_counter_add(&manager->counters->loads_timed_out, 1);
}

/* 0, or -ENOSPC: more slabs would be in quarantine than the state segment has room for: then it is given up later. */
static int give_up(struct load *load, uint32_t drives, int64_t now_ns)
{
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;
	int r = fence_remember(manager, load->place, slab_bytes_of(manager, load->owner));

	if (r < 0)
		return r;
	pool_pass(manager->pool, load->place, FENCE_OWNER); /* the object may get another slab; nobody can evict this one */
	policy_remove(residency->policy, load->owner); /* its slab stays charged; it may be loaded again beside it */
	object_judge_prefetch(manager, load->owner, PREFETCH_FAILED);
	residency->prefetches_active -= (uint32_t)load->is_prefetch;
	load->is_prefetch = 0;
	if (can_move(load, drives, REPLICA_DEGRADED, now_ns)) /* one that failed lately is better than an error */
		move(load, now_ns);
	else
		fail_late(load, now_ns);
	load->is_late = 1;
	probe_load_done(load, now_ns, -ETIMEDOUT);
	return 0;
}

int64_t load_expire(struct load *load, int64_t now_ns)
{
	int64_t next_ns;
	uint32_t drives = overdue_drives(load, now_ns, &next_ns);

	if (drives == 0)
		return next_ns;
	if (!load->is_late && give_up(load, drives, now_ns) < 0)
		return earlier(next_ns, now_ns + RESIDENCY_EXPIRE_RETRY_NS);
	for (uint32_t i = 0; i < load->part_count; i++) {
		struct load_part *part = &load->part[i];

		if (!part->is_out || part->is_late || (drives >> part->drive & 1) == 0)
			continue;
		drive_left(load->manager, part->drive);
		begin_stall(load, part);
	}
	return next_ns;
}

void load_end_late(struct load *load)
{
	struct manager *manager = load->manager;

	fence_forget(manager, load->place);
	object_discharge(manager, load->owner);
	pool_give(manager->pool, load->place);
	load_free(load);
}
