/* SPDX-License-Identifier: Apache-2.0 */
/* What can begin, begins: demand in turn over clients, then prefetch; and nobody waits for a drive without bound. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "manager/probe.h"
#include "manager/reservation.h"

#include <errno.h>

int pump_may_load(const struct manager *manager)
{
	const struct residency *residency = manager->residency;

	return residency->free_load != NULL && residency->loads_active + residency->pin_count < manager->loads_max;
}

static int is_involved(const struct replica_split *split, uint32_t drive)
{
	for (uint32_t i = 0; i < split->part_count; i++)
		if (split->part[i].drive == drive)
			return 1;
	return 0;
}

/*
 * A place stays free for every drive that has nothing in flight, and one beside all loads that need a certain drive: one that
 * hangs cannot take them all (R16).
 */
static int leaves_places(const struct manager *manager, const struct replica_split *split)
{
	const struct residency *residency = manager->residency;
	uint32_t idle = 0, count = loader_drives(manager->loader);
	int finds_idle = 0;

	for (uint32_t i = 0; i < count; i++) {
		idle += residency->loads_of_drive[i] == 0;
		if (!is_involved(split, i))
			continue;
		finds_idle |= residency->loads_of_drive[i] == 0;
		if (count > 1 && manager->loads_max > 1 && residency->loads_of_drive[i] + 1 >= manager->loads_max)
			return 0;
	}
	return finds_idle || manager->loads_max - residency->loads_active - residency->pin_count > idle;
}

/* Whether an object can be read now: DRIVE_HANGS where no drive that has it answers. After may_load. */
enum drive_answer { DRIVE_BUSY, DRIVE_READY, DRIVE_HANGS };

static enum drive_answer ask_drives(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);
	struct replica_split split;
	struct model_plan plan;

	model_plan(model->catalog, owner - model->first_owner, &plan);
	if (drive_split(manager, model, owner - model->first_owner, &plan, NULL, &split) < 0)
		return DRIVE_HANGS;
	return load_has_room(manager, &split) && leaves_places(manager, &split) ? DRIVE_READY : DRIVE_BUSY;
}

/* One demand of one client: 1 begun, 0 nothing can begin now, -ENOSPC no slab. Drops on its way what nobody wants any more. */
static int pump_slot(struct manager *manager, uint32_t slot)
{
	struct queue *queue = manager->residency->queue;
	uint32_t owner, next, starter;
	enum drive_answer answer;
	int r;

	for (owner = queue_next_demand(queue, slot, QUEUE_NONE); owner != QUEUE_NONE; owner = next) {
		next = queue_next_demand(queue, slot, owner);
		if (!is_leased(manager, owner)) { /* R7; who gave up waiting may have asked for a prefetch instead */
			manager->residency->moved_ns[owner] = 0;
			if (!queue_give_up_demand(queue, owner))
				cnre_counter_add(&manager->counters->loads_dropped, 1);
			continue;
		}
		answer = ask_drives(manager, owner);
		manager->residency->held_demands += answer == DRIVE_HANGS;
		if (answer != DRIVE_READY)
			continue;
		starter = queue_starter(queue, owner);
		r = load_begin(manager, owner, starter, LOAD_OF_DEMAND);
		if (r < 0) {
			probe_reject(manager, owner, PROBE_NO_ROOM);
			return r;
		}
		queue_remove(queue, owner);
		queue_served(queue, slot);
		return 1;
	}
	return 0;
}

/* One demand of each client that has some: 1 something has begun, 0 nothing can, -ENOSPC no slab. */
static int pump_round(struct manager *manager)
{
	struct queue *queue = manager->residency->queue;
	uint32_t slot = queue_next_turn(queue, QUEUE_NONE);
	int progress = 0;

	manager->residency->held_demands = 0;
	/* Who is served goes behind all others, so after so many steps each has been looked at once. */
	for (uint32_t i = 0; i < QUEUE_SLOTS && pump_may_load(manager); i++) {
		uint32_t next = queue_next_turn(queue, slot);
		int r = queue_has_demand(queue, slot) ? pump_slot(manager, slot) : 0;

		if (r < 0)
			return r;
		progress |= r;
		slot = next;
	}
	return progress;
}

/*
 * Demand, one object a client and round (R34), who was served longest ago first: so clients take turns on each drive, however
 * many places are free, and whatever the others wait for. 0 all that can has begun, -ENOSPC starved.
 */
static int pump_demand(struct manager *manager)
{
	int r = 1;

	while (r > 0 && pump_may_load(manager) && queue_demand_count(manager->residency->queue) > 0)
		r = pump_round(manager);
	return r < 0 ? r : 0;
}

/* One prefetch whose drive is not busy: 0 begun, or why not. */
static enum probe_reason begin_prefetch(struct manager *manager, uint32_t owner, enum drive_answer answer)
{
	if (answer == DRIVE_HANGS)
		return PROBE_DRIVE_HANGS;
	if (!evict_pays(manager, owner)) {
		object_reject(manager, owner);
		return PROBE_NOT_PREFERRED;
	}
	return load_begin(manager, owner, 0, LOAD_OF_PREFETCH) < 0 ? PROBE_NO_ROOM : PROBE_NOT_REJECTED;
}

/*
 * Prefetch: only when no demand waits but for drives that do not answer, and never more than half of the loads that may
 * be in flight. Those for such drives are dropped: the next visit asks anew. So are those for which somebody would have to
 * go whom the policy holds to be worth more: a guess does not cost a demand its hit.
 */
static void pump_prefetch(struct manager *manager)
{
	struct residency *residency = manager->residency;
	uint32_t owner, refusals = 0;

	while (refusals < RESIDENCY_REFUSALS_PER_TURN && pump_may_load(manager) &&
	       residency->prefetches_active < (manager->loads_max + 1) / 2 &&
	       queue_demand_count(residency->queue) <= residency->held_demands &&
	       (owner = queue_first_prefetch(residency->queue)) != QUEUE_NONE) {
		enum drive_answer answer = ask_drives(manager, owner);
		enum probe_reason reason;

		if (answer == DRIVE_BUSY)
			return;
		queue_remove(residency->queue, owner);
		reason = begin_prefetch(manager, owner, answer);
		if (reason == PROBE_NOT_REJECTED)
			continue;
		probe_reject(manager, owner, reason);
		cnre_counter_add(&manager->counters->prefetches_dropped, 1);
		refusals++;
	}
	if (refusals == RESIDENCY_REFUSALS_PER_TURN)
		residency->refused_ns = cnre_clock_now_ns();
}

/* Loads that failed by time-out and whose reads are still out: nobody waits for them any more. */
static uint32_t late_loads(const struct residency *residency)
{
	uint32_t late = 0;

	for (uint32_t i = 0; i < residency->load_count && residency->stalls.reads > 0; i++)
		late += residency->load[i].is_reading && residency->load[i].is_late;
	return late;
}

/*
 * Loads that nobody asked for: none while another is queued or on its way, but for what waits for a drive that does not
 * answer; a quarter of the places; and where there are several, one stays free for who comes.
 */
static int is_idle(const struct manager *manager, uint32_t own)
{
	const struct residency *residency = manager->residency;

	return residency->starved_ns == 0 && queue_prefetch_count(residency->queue) == 0 &&
	       queue_demand_count(residency->queue) <= residency->held_demands &&
	       residency->loads_active <= late_loads(residency) + own && own < (manager->loads_max + 3) / 4 &&
	       pump_may_load(manager) && (manager->loads_max == 1 || residency->loads_active + 1 < manager->loads_max);
}

int pump_idle(struct manager *manager, uint32_t owner, uint32_t own)
{
	int r;

	if (!is_idle(manager, own))
		return 0;
	switch (ask_drives(manager, owner)) {
	case DRIVE_BUSY:
		return 0;
	case DRIVE_HANGS:
		probe_reject(manager, owner, PROBE_DRIVE_HANGS);
		return -EIO;
	case DRIVE_READY:
		break;
	}
	r = evict_find_room(manager, owner);
	if (r == 0)
		r = load_begin(manager, owner, 0, LOAD_OF_NOBODY) == 0 ? 1 : -ENOSPC;
	if (r < 0)
		probe_reject(manager, owner, r == -EBUSY ? PROBE_NOT_PREFERRED : PROBE_NO_ROOM);
	return r;
}

/* ---- drives that do not answer ---- */

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t due_ns_of(const struct manager *manager, int64_t since_ns)
{
	int64_t awake_since_ns = manager->residency->awake_since_ns;

	return (since_ns > awake_since_ns ? since_ns : awake_since_ns) + manager->read_timeout_ns;
}

/* While another replica may be asked, reads are given up sooner. 0: never. */
static int64_t patience_ns(const struct manager *manager)
{
	int64_t timeout_ns = manager->read_timeout_ns;

	if (!drive_has_replicas(manager))
		return timeout_ns;
	return timeout_ns > 0 && timeout_ns < DRIVE_STALL_MIN_NS ? timeout_ns : DRIVE_STALL_MIN_NS;
}

static int64_t expire_reads(struct manager *manager, int64_t now_ns)
{
	int64_t next_ns = now_ns + patience_ns(manager);

	for (uint32_t i = 0; i < manager->residency->load_count; i++) {
		struct load *load = &manager->residency->load[i];

		if (load->is_reading)
			next_ns = earlier(next_ns, load_expire(load, now_ns));
	}
	return next_ns;
}

/* In a pool of very few places: reads that nobody waits for any more have them all. */
static int all_places_hang(const struct manager *manager)
{
	const struct residency *residency = manager->residency;

	return !pump_may_load(manager) && residency->pin_count == 0 && late_loads(residency) == residency->loads_active;
}

/* A demand that its drive did not even take in that time: it fails as a read would have. */
static int64_t expire_demands_of(struct manager *manager, uint32_t slot, int64_t now_ns)
{
	struct residency *residency = manager->residency;
	int64_t next_ns = CNRE_NEVER;
	uint32_t owner, next;

	for (owner = queue_next_demand(residency->queue, slot, QUEUE_NONE); owner != QUEUE_NONE; owner = next) {
		int64_t due_ns = due_ns_of(manager, residency->demanded_ns[owner]);

		next = queue_next_demand(residency->queue, slot, owner);
		if (!all_places_hang(manager) && ask_drives(manager, owner) != DRIVE_HANGS)
			continue;
		if (due_ns > now_ns) {
			next_ns = earlier(next_ns, due_ns);
			continue;
		}
		queue_remove(residency->queue, owner);
		residency->moved_ns[owner] = 0;
		probe_reject(manager, owner, PROBE_DRIVE_HANGS);
		object_fail(manager, owner, CNRE_LOAD_ETIMEDOUT);
		cnre_counter_add(&manager->counters->loads_timed_out, 1);
	}
	return next_ns;
}

/* Nobody waits for a drive without bound: a read for its time, a demand behind it for the same once more. */
static void expire(struct manager *manager)
{
	struct residency *residency = manager->residency;
	int64_t now_ns;

	if (patience_ns(manager) == 0 || residency->loads_active + queue_demand_count(residency->queue) == 0)
		return;
	now_ns = cnre_clock_now_ns();
	if (now_ns < residency->expire_ns)
		return;
	if (now_ns - residency->expire_ns > RESIDENCY_OVERSLEPT_NS)
		residency->awake_since_ns = now_ns;
	residency->expire_ns = expire_reads(manager, now_ns);
	for (uint32_t slot = 0; slot < QUEUE_SLOTS && residency->stalls.reads > 0 && manager->read_timeout_ns > 0; slot++)
		residency->expire_ns = earlier(residency->expire_ns, expire_demands_of(manager, slot, now_ns));
}

/* ---- the turn ---- */

/* No room although R15 promises it: a guarantee that could not grow when it was asked for, or leases that nobody granted. */
static void starve(struct manager *manager)
{
	struct residency *residency = manager->residency;
	int64_t now_ns = cnre_clock_now_ns();

	residency->starved_ns = now_ns;
	if (now_ns < residency->enforce_ns)
		return;
	residency->enforce_ns = now_ns + RESIDENCY_ENFORCE_NS;
	reservation_apply(manager);
	reservation_enforce(manager);
}

void residency_pump(struct manager *manager)
{
	struct residency *residency = manager->residency;

	if (residency->trimming)
		residency->trimming = evict_down_to(manager, evict_target_bytes(manager), POLICY_NONE) < 0 ||
				      pool_trim(manager->pool) > 0;
	residency->starved_ns = residency->refused_ns = 0;
	expire(manager);
	load_retry_waiting(manager);
	if (pump_demand(manager) < 0)
		starve(manager);
	else
		pump_prefetch(manager);
	cnre_counter_set(&manager->counters->loads_queued, queue_count(residency->queue));
}

int64_t residency_deadline_ns(const struct manager *manager)
{
	const struct residency *residency = manager->residency;
	int64_t deadline_ns = CNRE_NEVER;

	if (patience_ns(manager) != 0 && residency->loads_active + queue_demand_count(residency->queue) > 0)
		deadline_ns = residency->expire_ns;
	if (residency->refused_ns != 0)
		deadline_ns = earlier(deadline_ns, residency->refused_ns + RESIDENCY_REFUSALS_NS);
	if (residency->starved_ns != 0)
		return earlier(deadline_ns, residency->starved_ns + RESIDENCY_STARVED_RETRY_NS);
	/* Releases ring no bell, so what waits for them looks again by itself. */
	return residency->trimming ? earlier(deadline_ns, cnre_clock_now_ns() + 10 * CNRE_NS_PER_MS) : deadline_ns;
}
