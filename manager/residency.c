/* SPDX-License-Identifier: Apache-2.0 */
/* States of objects: load, publish, fail, evict; see residency.h. Queues are in queue.c. */
#include "manager/residency.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "manager/digest.h"
#include "manager/fence.h"
#include "manager/loader.h"
#include "manager/pool.h"
#include "manager/queue.h"
#include "manager/reservation.h"
#include "manager/session.h"
#include "policy/policy.h"
#include "shm/futex.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One object on its way from the drive. As many as reads in flight may be (R16): a slab is taken only with one of these. */
struct load {
	struct loader_read read; /* first: `done` gets its address */
	struct worker_job job;
	struct model_plan plan;
	struct manager *manager;
	struct load *next_free;
	char *slab; /* its address: a worker may not ask the pool */
	const struct model_shape *shape;
	uint64_t digest; /* where is_hashed, once the worker is done */
	uint64_t place;
	uint32_t owner;
	int is_prefetch, is_hashed;
};

struct residency {
	struct policy *policy;
	struct queue *queue;
	struct load *load; /* as many as the first budget allows in flight */
	struct load *free_load;
	uint32_t loads_active, prefetches_active;
	uint32_t next_slot; /* where the round over clients goes on (R34) */
	uint64_t budget_bytes, used_bytes;
	uint64_t held_to_bytes;      /* below the budget: memory costs more than planned (measure.h) */
	uint32_t *resident_of_model; /* [model_count] */
	unsigned char *prefetched;   /* [owner_count] 1: loaded or on its way by prefetch and not yet looked up */
	int64_t starved_ns;          /* not 0: a demand found no room at that time */
	int64_t enforce_ns;          /* not before then: a look at who is in the way */
	int trimming;
	struct load *pin; /* lent to the object that is pinned, or NULL */
	struct cnre_log_limit error_limit;
};

/* ---- owners ---- */

static struct served_model *model_of(struct manager *manager, uint32_t owner)
{
	uint32_t i = manager->model_count - 1;

	CNRE_CHECK(owner < manager->owner_count);
	while (manager->model[i].first_owner > owner)
		i--;
	return &manager->model[i];
}

static struct cnre_entry *entry_of(struct manager *manager, uint32_t owner)
{
	struct served_model *model = model_of(manager, owner);

	return &model->directory->entry[owner - model->first_owner];
}

static uint64_t slab_bytes_of(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);
	const struct model_catalog *catalog = model->catalog;

	return catalog->shape[catalog->object[owner - model->first_owner].shape].slab_bytes;
}

static int is_leased(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);

	return session_any_lease(manager->sessions, model, owner - model->first_owner);
}

/* ---- the state word ---- */

static uint32_t word_of(const struct cnre_entry *entry)
{
	/* [D1] relaxed: the core thread is the only writer, so this is its own last store. */
	return atomic_load_explicit(&entry->state, memory_order_relaxed);
}

/* Stores a state out of LOADING or EVICTING and wakes everybody who sleeps on it, without condition (R6). */
static void settle(struct cnre_entry *entry, uint32_t generation, enum cnre_load_error error, enum cnre_state state)
{
	/* [D2] release, pairs with [L2] in shm/ledger.h: READY carries the bytes of the slab, its place and the load's statistics. */
	atomic_store_explicit(&entry->state, cnre_word_pack(generation, error, state), memory_order_release);
	CNRE_CRASH_POINT("state-stored");
	(void)cnre_futex_wake_all(&entry->state);
}

/* Order of a load (R2): place, LOADING, submit. ABSENT -> LOADING needs no wake: who sleeps on ABSENT waits for more. */
static void mark_loading(struct cnre_entry *entry, uint64_t place, uint32_t starter)
{
	/* [D3] relaxed: carried to readers by READY ([D2]). */
	atomic_store_explicit(&entry->starter, starter, memory_order_relaxed);
	/* [D4] relaxed: as [D3]; a reader uses a place only after it saw READY under its own lease. */
	atomic_store_explicit(&entry->place, place, memory_order_relaxed);
	CNRE_CRASH_POINT("load-placed");
	/* [D5] release, pairs with [L2] in shm/ledger.h: after a restart LOADING implies a valid place. */
	atomic_store_explicit(&entry->state,
			      cnre_word_pack(cnre_word_generation(word_of(entry)), CNRE_LOAD_OK, CNRE_STATE_LOADING),
			      memory_order_release);
}

static void note_attempt(struct cnre_entry *entry, const struct loader_read *read)
{
	/* [D6] relaxed: only this thread writes it. */
	uint32_t sequence = atomic_load_explicit(&entry->load_sequence, memory_order_relaxed);

	/* [D7] relaxed: carried by [D2]. */
	atomic_store_explicit(&entry->load_sequence, sequence + 1, memory_order_relaxed);
	/* [D8] relaxed: as [D7]. */
	atomic_store_explicit(&entry->read_bytes, (uint32_t)read->bytes_read, memory_order_relaxed);
	/* [D9] relaxed: as [D7]. */
	atomic_store_explicit(&entry->service_ns, (uint64_t)(read->completed_ns - read->submitted_ns),
			      memory_order_relaxed);
}

/* ---- residents ---- */

static void charge(struct manager *manager, uint32_t owner)
{
	struct residency *residency = manager->residency;

	residency->used_bytes += slab_bytes_of(manager, owner);
	cnre_counter_set(&manager->counters->resident_bytes, residency->used_bytes);
	cnre_counter_set(&manager->page->resident_bytes, residency->used_bytes);
}

static void discharge(struct manager *manager, uint32_t owner)
{
	struct residency *residency = manager->residency;
	uint64_t bytes = slab_bytes_of(manager, owner);

	CNRE_CHECK(residency->used_bytes >= bytes);
	residency->used_bytes -= bytes;
	cnre_counter_set(&manager->counters->resident_bytes, residency->used_bytes);
	cnre_counter_set(&manager->page->resident_bytes, residency->used_bytes);
}

static void count_resident(struct manager *manager, uint32_t owner, int change)
{
	struct residency *residency = manager->residency;
	_Atomic uint64_t *objects = &manager->counters->resident_objects;

	residency->resident_of_model[model_of(manager, owner)->number] += (uint32_t)change;
	cnre_counter_set(objects, cnre_counter_get(objects) + (uint64_t)(int64_t)change);
}

static int is_pinned(const struct manager *manager, uint32_t owner)
{
	const struct load *pin = manager->residency->pin;

	return pin != NULL && pin->owner == owner;
}

static uint64_t place_of(const struct cnre_entry *entry)
{
	/* [D10] relaxed: only this thread writes it. */
	return atomic_load_explicit(&entry->place, memory_order_relaxed);
}

/*
 * R1: first the ledgers without touching the state, so that hot leased objects stay READY; then EVICTING, all ledgers
 * again in one step of this thread, and ABSENT with a new generation or READY again.
 * Crash note: killed after EVICTING: no reader starts on it; adoption scans and decides. Killed after ABSENT: sleepers
 * miss their wake; adoption wakes every word.
 */
int residency_evict(void *context, uint32_t owner)
{
	struct manager *manager = context;
	struct cnre_entry *entry = entry_of(manager, owner);
	uint32_t word = word_of(entry), generation = cnre_word_generation(word);

	if (cnre_word_state(word) != CNRE_STATE_READY || is_pinned(manager, owner) || is_leased(manager, owner))
		return -EBUSY;
	cnre_ledger_store_evicting(entry, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	CNRE_CRASH_POINT("evict-evicting");
	if (is_leased(manager, owner)) {
		settle(entry, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
		cnre_counter_add(&manager->counters->evictions_refused, 1);
		return -EBUSY;
	}
	settle(entry, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	CNRE_CRASH_POINT("evict-absent");
	policy_remove(manager->residency->policy, owner);
	manager->residency->prefetched[owner] = 0;
	discharge(manager, owner);
	count_resident(manager, owner, -1);
	pool_give(manager->pool, place_of(entry));
	CNRE_CRASH_POINT("evict-given");
	cnre_counter_add(&manager->counters->evictions, 1);
	cnre_counter_add(&manager->counters->bytes_evicted, slab_bytes_of(manager, owner));
	return 0;
}

int residency_is_busy(void *context, uint32_t owner)
{
	struct manager *manager = context;

	if (owner == FENCE_OWNER)
		return 1; /* late reads may land in it */
	return cnre_word_state(word_of(entry_of(manager, owner))) != CNRE_STATE_READY || is_pinned(manager, owner) ||
	       is_leased(manager, owner);
}

/* What may be resident: the budget, or what it is held to; but what R15 promises to clients can always be resident. */
static uint64_t target_bytes(const struct manager *manager)
{
	const struct residency *residency = manager->residency;
	struct pool_status status;
	uint64_t promised_bytes;

	if (residency->held_to_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	pool_get_status(manager->pool, &status);
	promised_bytes = status.guaranteed * manager->window_bytes;
	if (promised_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	return residency->held_to_bytes > promised_bytes ? residency->held_to_bytes : promised_bytes;
}

/* Evicts the first object in policy order that can go. 0, or -EBUSY: every resident is leased or on its way. */
static int evict_one(struct manager *manager)
{
	struct policy *policy = manager->residency->policy;
	uint32_t owner = POLICY_NONE;

	while ((owner = policy_victim(policy, owner)) != POLICY_NONE)
		if (residency_evict(manager, owner) == 0)
			return 0;
	return -EBUSY;
}

/* Evicts in policy order until at most `bytes` are in use. 0, or -EBUSY. */
static int shrink_to(struct manager *manager, uint64_t bytes)
{
	while (manager->residency->used_bytes > bytes)
		if (evict_one(manager) < 0)
			return -EBUSY;
	return 0;
}

/* A slab for an object: within the budget, by policy order, and as a last resort by emptying a window (R15). */
static int take_slab(struct manager *manager, uint32_t owner, uint64_t *ret_place)
{
	uint64_t bytes = slab_bytes_of(manager, owner), target = target_bytes(manager);

	if (bytes > target || shrink_to(manager, target - bytes) < 0)
		return -ENOSPC;
	for (uint32_t tries = 0; tries < RESIDENCY_VICTIM_TRIES; tries++) {
		if (pool_take(manager->pool, bytes, owner, ret_place) == 0)
			return 0;
		if (evict_one(manager) < 0)
			break;
	}
	if (pool_make_room(manager->pool, bytes) < 0)
		return -ENOSPC;
	return pool_take(manager->pool, bytes, owner, ret_place);
}

/* ---- loads ---- */

static void load_free(struct load *load)
{
	struct residency *residency = load->manager->residency;

	residency->loads_active--;
	if (load->is_prefetch)
		residency->prefetches_active--;
	load->next_free = residency->free_load;
	residency->free_load = load;
	cnre_counter_set(&load->manager->counters->loads_in_flight, residency->loads_active);
}

static void publish(struct load *load)
{
	struct manager *manager = load->manager;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	policy_add(manager->residency->policy, load->owner);
	count_resident(manager, load->owner, 1);
	cnre_counter_add(&manager->counters->loads, 1);
	cnre_counter_add(&manager->counters->bytes_loaded, slab_bytes_of(manager, load->owner));
	cnre_counter_add(&manager->counters->service_ns, (uint64_t)(load->read.completed_ns - load->read.submitted_ns));
	note_attempt(entry, &load->read);
	CNRE_CRASH_POINT("publish-counted");
	settle(entry, cnre_word_generation(word_of(entry)), CNRE_LOAD_OK, CNRE_STATE_READY);
	CNRE_CRASH_POINT("publish-ready");
	load_free(load);
}

static enum cnre_load_error error_class(int status)
{
	switch (status) {
	case -EBADMSG:
		return CNRE_LOAD_EBADMSG;
	case -ETIMEDOUT:
		return CNRE_LOAD_ETIMEDOUT;
	case -ENOSPC:
	case -ENOMEM:
		return CNRE_LOAD_ENOSPC;
	default:
		return CNRE_LOAD_EIO;
	}
}

static void log_failure(struct load *load, int status)
{
	struct manager *manager = load->manager;
	const struct served_model *model = model_of(manager, load->owner);
	const struct model_object *object = &model->catalog->object[load->owner - model->first_owner];
	const struct model_shard *shard = &model->catalog->shard[load->plan.run[load->read.failed_run].shard];

	if (!cnre_log_allowed(&manager->residency->error_limit, cnre_clock_now_ns()))
		return;
	cnre_log(
		CNRE_LOG_ERROR,
		"load: %s layer %u expert %u: %s: %s at byte %llu: check the drive and the file; the next request reads again",
		model->catalog->name, object->layer, object->expert, shard->path, strerror(-status),
		(unsigned long long)load->read.failed_off);
}

static void log_mismatch(struct load *load, uint64_t expected)
{
	struct manager *manager = load->manager;
	const struct served_model *model = model_of(manager, load->owner);
	const struct model_object *object = &model->catalog->object[load->owner - model->first_owner];
	const char *path = digest_path(manager->digests);

	if (!cnre_log_allowed(&manager->residency->error_limit, cnre_clock_now_ns()))
		return;
	cnre_log(
		CNRE_LOG_ERROR,
		"load: %s layer %u expert %u: %.300s: digest %016llx, known is %016llx: compare the shard with its source; the next "
		"request reads again; if the shard is right, stop the manager%s%.300s and start it again",
		model->catalog->name, object->layer, object->expert,
		model->catalog->shard[load->plan.run[0].shard].path, (unsigned long long)load->digest,
		(unsigned long long)expected, path[0] != '\0' ? ", remove " : "", path);
}

/* R8: a failed load is ABSENT with a new generation and an error class; nothing is cached, all waiters are woken. */
static void fail(struct load *load, int status)
{
	struct manager *manager = load->manager;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	note_attempt(entry, &load->read);
	cnre_counter_add(&manager->counters->load_errors, 1);
	manager->residency->prefetched[load->owner] = 0;
	discharge(manager, load->owner);
	settle(entry, cnre_word_generation(word_of(entry)) + 1, error_class(status), CNRE_STATE_ABSENT);
	CNRE_CRASH_POINT("fail-absent");
	pool_give(manager->pool, load->place);
	load_free(load);
}

/* On a worker thread. */
static void prepare_slab(struct worker_job *job)
{
	struct load *load = (struct load *)((char *)job - offsetof(struct load, job));

	for (uint32_t i = 0; i < load->plan.move_count; i++) {
		const struct model_move *move = &load->plan.move[i];

		memmove(load->slab + move->to_off, load->slab + move->from_off, move->bytes);
	}
	if (load->is_hashed)
		load->digest = digest_compute(load->slab, load->shape, &load->plan);
}

static void slab_prepared(struct worker_job *job)
{
	struct load *load = (struct load *)((char *)job - offsetof(struct load, job));
	struct manager *manager = load->manager;
	uint64_t expected;

	if (load->is_hashed && digest_check(manager->digests, load->owner, load->digest, &expected) < 0) {
		cnre_counter_add(&manager->counters->digest_errors, 1);
		log_mismatch(load, expected);
		fail(load, -EBADMSG);
		return;
	}
	publish(load);
}

static void read_done(struct loader_read *read, int status)
{
	struct load *load = (struct load *)read;

	CNRE_CRASH_POINT("load-arrived");
	cnre_counter_add(&load->manager->counters->bytes_read, read->bytes_read);
	cnre_counter_add(&load->manager->counters->read_retries, read->retries);
	if (status == -ECANCELED && load->manager->stopping) {
		load_free(
			load); /* LOADING for good: who waits learns from its socket that we are gone, and blames no drive */
	} else if (status < 0) {
		log_failure(load, status);
		fail(load, status);
	} else if (load->plan.move_count == 0 && !load->is_hashed) {
		publish(load);
	} else {
		worker_submit(load->manager->worker, &load->job);
	}
}

static void fill_read(struct load *load, const struct served_model *model)
{
	load->slab = pool_address(load->manager->pool, load->place);
	memset(&load->read, 0, sizeof load->read);
	load->read.run_count = load->plan.run_count;
	load->read.done = read_done;
	for (uint32_t i = 0; i < load->plan.run_count; i++) {
		const struct model_run *run = &load->plan.run[i];

		load->read.run[i] = (struct loader_run){
			.file = model->file_of_shard[run->shard],
			.file_off = run->file_off,
			.bytes = run->bytes,
			.needed_bytes = run->needed_bytes,
			.memory = load->slab + run->slab_off,
		};
	}
}

/* Begins the load of an ABSENT object: 0, or -ENOSPC when no slab can be had now. */
static int begin_load(struct manager *manager, uint32_t owner, uint32_t starter, int is_prefetch)
{
	struct residency *residency = manager->residency;
	struct served_model *model = model_of(manager, owner);
	struct load *load = residency->free_load;
	uint64_t place;
	int r = take_slab(manager, owner, &place);

	if (r < 0)
		return r;
	CNRE_CRASH_POINT("load-slab-taken");
	residency->free_load = load->next_free;
	residency->loads_active++;
	residency->prefetches_active += (uint32_t)is_prefetch;
	load->owner = owner;
	load->place = place;
	load->is_prefetch = is_prefetch;
	load->is_hashed = manager->verifies_loads;
	load->shape = &model->catalog->shape[model->catalog->object[owner - model->first_owner].shape];
	model_plan(model->catalog, owner - model->first_owner, &load->plan);
	fill_read(load, model);
	charge(manager, owner);
	mark_loading(entry_of(manager, owner), place, starter);
	cnre_counter_set(&manager->counters->loads_in_flight, residency->loads_active);
	residency->prefetched[owner] = (unsigned char)is_prefetch;
	if (is_prefetch)
		cnre_counter_add(&manager->counters->prefetches_issued, 1);
	CNRE_CRASH_POINT("load-loading");
	loader_submit(manager->loader, &load->read);
	CNRE_CRASH_POINT("load-submitted");
	return 0;
}

/* ---- requests ---- */

/* Takes the queued demands of a client out that nobody holds a lease for any more (R7); how many. */
static uint32_t drop_unleased(struct manager *manager, uint32_t slot)
{
	struct queue *queue = manager->residency->queue;
	uint32_t owner = queue_next_demand(queue, slot, QUEUE_NONE), dropped = 0;

	while (owner != QUEUE_NONE) {
		uint32_t next = queue_next_demand(queue, slot, owner);

		if (!is_leased(manager, owner)) {
			queue_remove(queue, owner);
			dropped++;
		}
		owner = next;
	}
	cnre_counter_add(&manager->counters->loads_dropped, dropped);
	return dropped;
}

int residency_request(struct manager *manager, struct session *session, uint32_t owner, enum residency_kind kind)
{
	const struct queue_client client = {
		.slot = session->slot, .number = session->number, .reserve_slabs = session->reserve_slabs};
	struct residency *residency = manager->residency;
	struct cnre_entry *entry = entry_of(manager, owner);
	int accepted = 1;

	if (cnre_word_state(word_of(entry)) != CNRE_STATE_ABSENT)
		return 1; /* resident, or on its way: the asker sleeps on the word and joins */
	if (kind == RESIDENCY_DEMAND) {
		accepted = queue_push_demand(residency->queue, &client, owner);
		/* What the client gave up waiting for may still fill its list, while a drive hangs: an honest demand has room. */
		if (!accepted && drop_unleased(manager, session->slot) > 0)
			accepted = queue_push_demand(residency->queue, &client, owner);
	} else if (queue_prefetch_count(residency->queue) >= RESIDENCY_PREFETCH_QUEUE_MAX ||
		   !queue_push_prefetch(residency->queue, session->slot, owner))
		cnre_counter_add(&manager->counters->prefetches_dropped, 1);
	cnre_counter_set(&manager->counters->loads_queued, queue_count(residency->queue));
	return accepted;
}

void residency_visit(struct manager *manager, struct session *session, uint32_t layer, uint32_t token_count)
{
	struct served_model *model = session->model;
	uint32_t dropped;

	policy_visit(manager->residency->policy, layer, token_count);
	/* A prefetch that is still queued when its layer begins comes too late. */
	dropped = queue_drop_prefetches(manager->residency->queue, session->slot,
					model->first_owner + model->catalog->layer[layer].first_object,
					model->catalog->layer[layer].expert_count);
	cnre_counter_add(&manager->counters->prefetches_dropped, dropped);
}

void residency_access(struct manager *manager, uint32_t owner, int hit)
{
	struct residency *residency = manager->residency;

	policy_access(residency->policy, owner, hit);
	if (residency->prefetched[owner]) {
		residency->prefetched[owner] = 0;
		cnre_counter_add(&manager->counters->prefetches_used, 1);
	}
}

void residency_forget_session(struct manager *manager, uint32_t slot)
{
	queue_forget_slot(manager->residency->queue, slot);
}

static int drive_has_room(struct manager *manager, uint32_t owner)
{
	struct served_model *model = model_of(manager, owner);
	struct model_plan plan;

	model_plan(model->catalog, owner - model->first_owner, &plan);
	return loader_has_room(manager->loader, model->file_of_shard[plan.run[0].shard]);
}

/* A place for one more load, and a slab beside what clients reserve: a smaller budget has fewer (R16). */
static int may_load(const struct manager *manager)
{
	const struct residency *residency = manager->residency;

	return residency->free_load != NULL && residency->loads_active + (residency->pin != NULL) < manager->loads_max;
}

/* One demand of one client: 1 begun, 0 nothing can begin now, -ENOSPC no slab. Drops on its way what nobody wants any more. */
static int pump_slot(struct manager *manager, uint32_t slot)
{
	struct queue *queue = manager->residency->queue;
	uint32_t owner, next, starter;
	int r;

	for (owner = queue_next_demand(queue, slot, QUEUE_NONE); owner != QUEUE_NONE; owner = next) {
		next = queue_next_demand(queue, slot, owner);
		if (!is_leased(manager, owner)) { /* R7; who gave up waiting may have asked for a prefetch instead */
			if (!queue_give_up_demand(queue, owner))
				cnre_counter_add(&manager->counters->loads_dropped, 1);
			continue;
		}
		if (!drive_has_room(manager, owner))
			continue;
		starter = queue_starter(queue, owner);
		r = begin_load(manager, owner, starter, 0);
		if (r < 0)
			return r;
		queue_remove(queue, owner);
		return 1;
	}
	return 0;
}

/* Demand, one object a client and round (R34). 0 all that can has begun, -ENOSPC starved. */
static int pump_demand(struct manager *manager)
{
	struct residency *residency = manager->residency;
	int progress = 1;

	while (progress && may_load(manager) && queue_demand_count(residency->queue) > 0) {
		progress = 0;
		for (uint32_t i = 0; i < QUEUE_SLOTS && may_load(manager); i++) {
			uint32_t slot = (residency->next_slot + i) % QUEUE_SLOTS;
			int r;

			if (!queue_has_demand(residency->queue, slot))
				continue;
			r = pump_slot(manager, slot);
			if (r < 0)
				return r;
			progress |= r;
			if (!may_load(manager))
				residency->next_slot = (slot + 1) % QUEUE_SLOTS;
		}
	}
	return 0;
}

/* Prefetch: only when no demand waits, and never more than half of the loads that may be in flight. */
static void pump_prefetch(struct manager *manager)
{
	struct residency *residency = manager->residency;
	uint32_t owner;

	while (may_load(manager) && residency->prefetches_active < (manager->loads_max + 1) / 2 &&
	       queue_demand_count(residency->queue) == 0 &&
	       (owner = queue_first_prefetch(residency->queue)) != QUEUE_NONE) {
		if (!drive_has_room(manager, owner))
			return;
		queue_remove(residency->queue, owner);
		if (begin_load(manager, owner, 0, 1) < 0)
			cnre_counter_add(&manager->counters->prefetches_dropped, 1);
	}
}

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
		residency->trimming = shrink_to(manager, target_bytes(manager)) < 0 || pool_trim(manager->pool) > 0;
	residency->starved_ns = 0;
	if (pump_demand(manager) < 0)
		starve(manager);
	else
		pump_prefetch(manager);
	cnre_counter_set(&manager->counters->loads_queued, queue_count(residency->queue));
}

int64_t residency_deadline_ns(const struct manager *manager)
{
	const struct residency *residency = manager->residency;

	if (residency->starved_ns != 0)
		return residency->starved_ns + RESIDENCY_STARVED_RETRY_NS;
	/* Releases ring no bell, so what waits for them looks again by itself. */
	return residency->trimming ? cnre_clock_now_ns() + 10 * CNRE_NS_PER_MS : CNRE_NEVER;
}

/* ---- budget ---- */

int residency_set_budget(struct manager *manager, uint64_t budget_bytes)
{
	struct residency *residency = manager->residency;
	int r = pool_check_budget(manager->pool, budget_bytes);

	if (r < 0)
		return r;
	(void)shrink_to(manager, budget_bytes); /* by policy; what is leased follows in residency_pump */
	r = pool_set_budget(manager->pool, budget_bytes);
	if (r < 0)
		return r;
	residency->budget_bytes = budget_bytes;
	residency->held_to_bytes = UINT64_MAX;
	residency->trimming = r > 0 || residency->used_bytes > budget_bytes;
	cnre_counter_set(&manager->counters->budget_bytes, budget_bytes);
	cnre_counter_set(&manager->page->budget_bytes, budget_bytes);
	manager->state->budget_bytes = budget_bytes;
	return residency->trimming;
}

void residency_hold_to(struct manager *manager, uint64_t bytes)
{
	struct residency *residency = manager->residency;
	uint64_t target;
	int r;

	residency->held_to_bytes = bytes;
	target = target_bytes(manager);
	(void)shrink_to(manager, target);
	/* Refused where whole segments cannot go without breaking the guarantee: then their memory stays, and lends less. */
	r = pool_set_budget(manager->pool, target);
	if (r >= 0)
		residency->trimming = r;
	residency->trimming |= residency->used_bytes > target;
}

void residency_evict_all(struct manager *manager, uint32_t *ret_evicted, uint32_t *ret_kept)
{
	*ret_evicted = *ret_kept = 0;
	for (uint32_t owner = 0; owner < manager->owner_count; owner++) {
		enum cnre_state state = cnre_word_state(word_of(entry_of(manager, owner)));

		if (state == CNRE_STATE_ABSENT)
			continue;
		if (residency_evict(manager, owner) == 0)
			(*ret_evicted)++;
		else
			(*ret_kept)++;
	}
}

/* ---- the scrub ---- */

int residency_pin(struct manager *manager, uint32_t owner, struct residency_pin *ret_pin)
{
	struct residency *residency = manager->residency;
	const struct served_model *model = model_of(manager, owner);
	const struct cnre_entry *entry = entry_of(manager, owner);
	struct load *load = residency->free_load;

	CNRE_CHECK(residency->pin == NULL);
	if (cnre_word_state(word_of(entry)) != CNRE_STATE_READY)
		return -ENOENT;
	if (!may_load(manager))
		return -EAGAIN;
	residency->free_load = load->next_free;
	residency->pin = load;
	load->owner = owner;
	*ret_pin = (struct residency_pin){
		.catalog = model->catalog,
		.object = owner - model->first_owner,
		.generation = cnre_word_generation(word_of(entry)),
		.slab = pool_address(manager->pool, place_of(entry)),
	};
	return 0;
}

void residency_unpin(struct manager *manager)
{
	struct residency *residency = manager->residency;

	CNRE_CHECK(residency->pin != NULL);
	residency->pin->next_free = residency->free_load;
	residency->free_load = residency->pin;
	residency->pin = NULL;
}

int residency_is_ready(struct manager *manager, uint32_t owner, uint32_t generation)
{
	uint32_t word = word_of(entry_of(manager, owner));

	return cnre_word_state(word) == CNRE_STATE_READY && cnre_word_generation(word) == generation;
}

uint32_t residency_objects(const struct manager *manager, const struct served_model *model)
{
	return manager->residency->resident_of_model[model->number];
}

uint32_t residency_queued(const struct manager *manager)
{
	return queue_count(manager->residency->queue);
}

const char *residency_policy_name(const struct manager *manager)
{
	return policy_name(manager->residency->policy);
}

/* ---- adoption ---- */

static int adopt_resident(struct manager *manager, uint32_t owner)
{
	int r = pool_claim(manager->pool, place_of(entry_of(manager, owner)), slab_bytes_of(manager, owner), owner);

	if (r < 0)
		return r;
	charge(manager, owner);
	policy_add(manager->residency->policy, owner);
	count_resident(manager, owner, 1);
	return 0;
}

/*
 * R21: the slab is in quarantine, in the state segment, before its entry changes. Crash note: killed between the two,
 * the entry is LOADING and its slab quarantined; the next adoption finds both and only changes the entry.
 */
static int adopt_loading(struct manager *manager, uint32_t owner)
{
	struct cnre_entry *entry = entry_of(manager, owner);
	uint64_t place = place_of(entry), bytes = slab_bytes_of(manager, owner);
	int r = 0;

	if (!fence_has(manager, place)) {
		r = pool_claim(manager->pool, place, bytes, FENCE_OWNER);
		if (r == 0)
			r = fence_quarantine(manager, place, bytes, manager->state->serving_epoch);
	}
	if (r == 0)
		settle(entry, cnre_word_generation(word_of(entry)), CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	return r;
}

static int adopt_evicting(struct manager *manager, uint32_t owner)
{
	struct cnre_entry *entry = entry_of(manager, owner);
	uint32_t generation = cnre_word_generation(word_of(entry));

	if (!is_leased(manager, owner)) {
		settle(entry, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
		cnre_counter_add(&manager->counters->evictions, 1);
		cnre_counter_add(&manager->counters->bytes_evicted, slab_bytes_of(manager, owner));
		return 0;
	}
	settle(entry, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
	return adopt_resident(manager, owner);
}

int residency_adopt(struct manager *manager)
{
	int r = 0;

	for (uint32_t owner = 0; owner < manager->owner_count && r == 0; owner++) {
		switch (cnre_word_state(word_of(entry_of(manager, owner)))) {
		case CNRE_STATE_READY:
			r = adopt_resident(manager, owner);
			break;
		case CNRE_STATE_LOADING:
			r = adopt_loading(manager, owner);
			break;
		case CNRE_STATE_EVICTING:
			r = adopt_evicting(manager, owner);
			break;
		default:
			break;
		}
	}
	return r;
}

/* ---- life ---- */

static int create_policy(struct manager *manager, const char *name)
{
	uint32_t *layer_of = calloc(manager->owner_count, sizeof *layer_of);
	uint64_t *bytes_of = calloc(manager->owner_count, sizeof *bytes_of);
	struct policy_setup setup = {.object_count = manager->owner_count, .layer_of = layer_of, .bytes_of = bytes_of};
	int r = -ENOMEM;

	if (layer_of == NULL || bytes_of == NULL)
		goto done;
	for (uint32_t owner = 0; owner < manager->owner_count; owner++) {
		const struct served_model *model = model_of(manager, owner);

		layer_of[owner] = model->catalog->object[owner - model->first_owner].layer;
		bytes_of[owner] = slab_bytes_of(manager, owner);
		if (layer_of[owner] >= setup.layer_count)
			setup.layer_count = layer_of[owner] + 1;
	}
	r = policy_create(&manager->residency->policy, name, &setup);
done:
	free(layer_of);
	free(bytes_of);
	return r;
}

static int create_loads(struct manager *manager, uint32_t loads_max)
{
	struct residency *residency = manager->residency;

	residency->load = calloc(loads_max, sizeof *residency->load);
	if (residency->load == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < loads_max; i++) {
		struct load *load = &residency->load[i];

		load->manager = manager;
		load->job = (struct worker_job){.run = prepare_slab, .done = slab_prepared};
		load->next_free = residency->free_load;
		residency->free_load = load;
	}
	return 0;
}

int residency_open(struct manager *manager, const char *name, uint32_t loads_max, uint64_t budget_bytes)
{
	struct residency *residency = calloc(1, sizeof *residency);
	int r = -ENOMEM;

	if (residency == NULL)
		return r;
	manager->residency = residency;
	residency->budget_bytes = budget_bytes;
	residency->held_to_bytes = UINT64_MAX;
	residency->error_limit.burst = 20;
	residency->prefetched = calloc(manager->owner_count, 1);
	residency->resident_of_model = calloc(manager->model_count, sizeof *residency->resident_of_model);
	if (residency->prefetched == NULL || residency->resident_of_model == NULL)
		goto fail;
	r = queue_open(&residency->queue, manager->owner_count);
	if (r < 0)
		goto fail;
	r = create_loads(manager, loads_max);
	if (r < 0)
		goto fail;
	r = create_policy(manager, name);
	if (r < 0)
		goto fail;
	cnre_counter_set(&manager->counters->budget_bytes, budget_bytes);
	cnre_counter_set(&manager->page->budget_bytes, budget_bytes);
	manager->state->budget_bytes = budget_bytes;
	/* Levels that a former incarnation may have left; adoption counts them up again. */
	cnre_counter_set(&manager->counters->resident_bytes, 0);
	cnre_counter_set(&manager->counters->resident_objects, 0);
	cnre_counter_set(&manager->counters->loads_in_flight, 0);
	return 0;

fail:
	residency_close(manager);
	return r;
}

void residency_close(struct manager *manager)
{
	struct residency *residency = manager->residency;

	if (residency == NULL)
		return;
	policy_destroy(residency->policy);
	queue_close(residency->queue);
	free(residency->load);
	free(residency->resident_of_model);
	free(residency->prefetched);
	free(residency);
	manager->residency = NULL;
}
