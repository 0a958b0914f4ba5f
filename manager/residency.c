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
#include "manager/stall.h"
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
	int is_reading;      /* with the loader, whose slab it is until `done` */
	int is_late;         /* it failed by time-out, and its read is still out */
	uint32_t drive;      /* in whose queue it counts */
	uint32_t late_drive; /* where is_late: the one that does not answer */
};

struct residency {
	struct policy *policy;
	struct queue *queue;
	struct load *load; /* as many as the first budget allows in flight */
	uint32_t load_count;
	struct load *free_load;
	uint32_t loads_active, prefetches_active;
	uint32_t drive_count, loads_of_drive[LOADER_DRIVES_MAX];
	struct stalls stalls;
	uint32_t held_demands;  /* queued for drives that do not answer, at the last look */
	int64_t *demanded_ns;   /* [owner_count] when it was queued as a demand */
	int64_t expire_ns;      /* nothing is over its time before then */
	int64_t awake_since_ns; /* time in which this process could not run counts against no drive */
	uint32_t next_slot;     /* where the round over clients goes on (R34) */
	uint64_t budget_bytes, used_bytes;
	/* Below the budget: memory costs more than planned (measure.h), or is missed elsewhere (pressure.h). */
	uint64_t held_to_bytes[RESIDENCY_HOLDS];
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

static void note_attempt(struct cnre_entry *entry, const struct loader_read *read, int64_t ended_ns)
{
	/* [D6] relaxed: only this thread writes it. */
	uint32_t sequence = atomic_load_explicit(&entry->load_sequence, memory_order_relaxed);

	/* [D7] relaxed: carried by [D2]. */
	atomic_store_explicit(&entry->load_sequence, sequence + 1, memory_order_relaxed);
	/* [D8] relaxed: as [D7]. */
	atomic_store_explicit(&entry->read_bytes, (uint32_t)read->bytes_read, memory_order_relaxed);
	/* [D9] relaxed: as [D7]. */
	atomic_store_explicit(&entry->service_ns, (uint64_t)(ended_ns - read->submitted_ns), memory_order_relaxed);
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

static uint64_t held_to_bytes(const struct residency *residency)
{
	uint64_t least_bytes = UINT64_MAX;

	for (int who = 0; who < RESIDENCY_HOLDS; who++)
		if (residency->held_to_bytes[who] < least_bytes)
			least_bytes = residency->held_to_bytes[who];
	return least_bytes;
}

static void end_holds(struct residency *residency)
{
	for (int who = 0; who < RESIDENCY_HOLDS; who++)
		residency->held_to_bytes[who] = UINT64_MAX;
}

/* What may be resident: the budget, or what it is held to; but what R15 promises to clients can always be resident. */
static uint64_t target_bytes(const struct manager *manager)
{
	const struct residency *residency = manager->residency;
	struct pool_status status;
	uint64_t promised_bytes, held_bytes = held_to_bytes(residency);

	if (held_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	pool_get_status(manager->pool, &status);
	promised_bytes = status.guaranteed * manager->window_bytes;
	if (promised_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	return held_bytes > promised_bytes ? held_bytes : promised_bytes;
}

/* Evicts the first of the policy's victims for an object that can go. 0, or -EBUSY: all are leased or on their way. */
static int evict_first(struct manager *manager, uint32_t object)
{
	struct policy *policy = manager->residency->policy;
	uint32_t owner;

	policy_seek(policy, object);
	while ((owner = policy_next(policy)) != POLICY_NONE)
		if (residency_evict(manager, owner) == 0)
			return 0;
	return -EBUSY;
}

/*
 * Makes room for an object, or (POLICY_NONE) for a smaller budget. Where its pool has nobody who can go, anybody goes:
 * what R15 promises to clients is more than a policy's wish.
 */
static int evict_one(struct manager *manager, uint32_t object)
{
	int r = evict_first(manager, object);

	return r == 0 || object == POLICY_NONE ? r : evict_first(manager, POLICY_NONE);
}

/* Evicts in policy order until at most `bytes` are in use. 0, or -EBUSY. */
static int shrink_to(struct manager *manager, uint64_t bytes, uint32_t object)
{
	while (manager->residency->used_bytes > bytes)
		if (evict_one(manager, object) < 0)
			return -EBUSY;
	return 0;
}

/* A slab for an object: within the budget, by policy order, and as a last resort by emptying a window (R15). */
static int take_slab(struct manager *manager, uint32_t owner, uint64_t *ret_place)
{
	uint64_t bytes = slab_bytes_of(manager, owner), target = target_bytes(manager);

	if (policy_must_replace(manager->residency->policy, owner))
		(void)evict_first(manager, owner); /* a layer whose objects are all leased is over its capacity for a while */
	if (bytes > target || shrink_to(manager, target - bytes, owner) < 0)
		return -ENOSPC;
	for (uint32_t tries = 0; tries < RESIDENCY_VICTIM_TRIES; tries++) {
		if (pool_take(manager->pool, bytes, owner, ret_place) == 0)
			return 0;
		if (evict_one(manager, owner) < 0)
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
	residency->loads_of_drive[load->drive]--;
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

	count_resident(manager, load->owner, 1);
	cnre_counter_add(&manager->counters->loads, 1);
	cnre_counter_add(&manager->counters->bytes_loaded, slab_bytes_of(manager, load->owner));
	cnre_counter_add(&manager->counters->service_ns, (uint64_t)(load->read.completed_ns - load->read.submitted_ns));
	note_attempt(entry, &load->read, load->read.completed_ns);
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
static void fail_entry(struct manager *manager, struct cnre_entry *entry, enum cnre_load_error error)
{
	cnre_counter_add(&manager->counters->load_errors, 1);
	settle(entry, cnre_word_generation(word_of(entry)) + 1, error, CNRE_STATE_ABSENT);
}

static void fail(struct load *load, int status)
{
	struct manager *manager = load->manager;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	note_attempt(entry, &load->read, load->read.completed_ns);
	manager->residency->prefetched[load->owner] = 0;
	policy_remove(manager->residency->policy, load->owner);
	discharge(manager, load->owner);
	fail_entry(manager, entry, error_class(status));
	CNRE_CRASH_POINT("fail-absent");
	pool_give(manager->pool, load->place);
	load_free(load);
}

/* The run whose bytes did not come: the first of those that are not complete. */
static uint32_t late_run(const struct load *load)
{
	const struct loader_read *read = &load->read;
	uint32_t run = 0;

	while (run + 1 < read->run_count && read->run_got[run] >= read->run[run].needed_bytes)
		run++;
	return run;
}

static const char *shard_path(const struct load *load, uint32_t run)
{
	const struct served_model *model = model_of(load->manager, load->owner);

	return model->catalog->shard[load->plan.run[run].shard].path;
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

/*
 * R16: a read that its drive did not answer in time. Its object fails now; its slab belongs to the kernel until the read
 * is over, and a successor must know that (R21): it is remembered before the entry changes. 0 or -ENOSPC: not now.
 * Crash note: killed between the two, the entry is LOADING and its slab in quarantine, which adoption knows already.
 */
static int expire_read(struct load *load, int64_t now_ns)
{
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;
	struct cnre_entry *entry = entry_of(manager, load->owner);
	uint32_t run = late_run(load);
	int r = fence_remember(manager, load->place, slab_bytes_of(manager, load->owner));

	if (r < 0)
		return r;
	note_attempt(entry, &load->read, now_ns);
	policy_remove(residency->policy, load->owner); /* its slab stays charged; it may be loaded again beside it */
	fail_entry(manager, entry, CNRE_LOAD_ETIMEDOUT);
	cnre_counter_add(&manager->counters->loads_timed_out, 1);
	residency->prefetched[load->owner] = 0;
	residency->prefetches_active -= (uint32_t)load->is_prefetch;
	load->is_prefetch = 0;
	load->is_late = 1;
	load->late_drive = loader_drive_of(manager->loader, load->read.run[run].file);
	stall_begin(&residency->stalls, load->late_drive, shard_path(load, run), load->read.submitted_ns);
	return 0;
}

/* The late read is over, whatever it brought: nobody waits for it, and its slab is room again. */
static void end_late(struct load *load)
{
	struct manager *manager = load->manager;

	fence_forget(manager, load->place);
	discharge(manager, load->owner);
	pool_give(manager->pool, load->place);
	stall_end(&manager->residency->stalls, load->late_drive);
	load_free(load);
}

static void read_done(struct loader_read *read, int status)
{
	struct load *load = (struct load *)read;

	load->is_reading = 0;
	CNRE_CRASH_POINT("load-arrived");
	cnre_counter_add(&load->manager->counters->bytes_read, read->bytes_read);
	cnre_counter_add(&load->manager->counters->read_retries, read->retries);
	if (load->is_late) {
		end_late(load);
	} else if (status == -ECANCELED && load->manager->stopping) {
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
	load->is_late = 0;
	load->is_reading = 1;
	load->owner = owner;
	load->place = place;
	load->is_prefetch = is_prefetch;
	load->is_hashed = manager->verifies_loads;
	load->shape = &model->catalog->shape[model->catalog->object[owner - model->first_owner].shape];
	model_plan(model->catalog, owner - model->first_owner, &load->plan);
	fill_read(load, model);
	load->drive = loader_drive_of(manager->loader, load->read.run[0].file);
	residency->loads_of_drive[load->drive]++;
	charge(manager, owner);
	/* Now and not when its bytes are there: then the order would be that of the drives, and no replay could follow it. */
	policy_add(residency->policy, owner);
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
		if (!queue_is_demand(residency->queue, owner))
			residency->demanded_ns[owner] = cnre_clock_now_ns();
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

	policy_visit(manager->residency->policy, model->first_layer + layer, token_count);
	/* A prefetch that is still queued when its layer begins comes too late. */
	dropped = queue_drop_prefetches(manager->residency->queue, session->slot,
					model->first_owner + model->catalog->layer[layer].first_object,
					model->catalog->layer[layer].expert_count);
	cnre_counter_add(&manager->counters->prefetches_dropped, dropped);
}

void residency_access(struct manager *manager, uint32_t owner)
{
	struct residency *residency = manager->residency;

	policy_access(residency->policy, owner);
	if (residency->prefetched[owner]) {
		residency->prefetched[owner] = 0;
		cnre_counter_add(&manager->counters->prefetches_used, 1);
	}
}

void residency_forget_session(struct manager *manager, uint32_t slot)
{
	queue_forget_slot(manager->residency->queue, slot);
}

/* A place for one more load, and a slab beside what clients reserve: a smaller budget has fewer (R16). */
static int may_load(const struct manager *manager)
{
	const struct residency *residency = manager->residency;

	return residency->free_load != NULL && residency->loads_active + (residency->pin != NULL) < manager->loads_max;
}

/* A place stays free for every drive that has nothing in flight: one that hangs cannot take them all (R16). */
static int leaves_places(const struct manager *manager, uint32_t drive)
{
	const struct residency *residency = manager->residency;
	uint32_t idle = 0;

	if (residency->loads_of_drive[drive] == 0)
		return 1;
	for (uint32_t i = 0; i < residency->drive_count; i++)
		idle += residency->loads_of_drive[i] == 0;
	return manager->loads_max - residency->loads_active - (residency->pin != NULL) > idle;
}

/* Whether an object can be read now: DRIVE_HANGS where one of its drives does not answer. After may_load. */
enum drive_answer { DRIVE_BUSY, DRIVE_READY, DRIVE_HANGS };

static enum drive_answer ask_drives(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);
	const struct residency *residency = manager->residency;
	struct model_plan plan;
	uint32_t file;

	model_plan(model->catalog, owner - model->first_owner, &plan);
	for (uint32_t i = 0; i < plan.run_count && residency->stalls.reads > 0; i++) {
		file = model->file_of_shard[plan.run[i].shard];
		if (stall_is_on(&residency->stalls, loader_drive_of(manager->loader, file)))
			return DRIVE_HANGS;
	}
	file = model->file_of_shard[plan.run[0].shard]; /* whose drive counts it */
	if (!loader_has_room(manager->loader, file) || !leaves_places(manager, loader_drive_of(manager->loader, file)))
		return DRIVE_BUSY;
	return DRIVE_READY;
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
			if (!queue_give_up_demand(queue, owner))
				cnre_counter_add(&manager->counters->loads_dropped, 1);
			continue;
		}
		answer = ask_drives(manager, owner);
		manager->residency->held_demands += answer == DRIVE_HANGS;
		if (answer != DRIVE_READY)
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
		residency->held_demands = 0;
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

/*
 * Prefetch: only when no demand waits but for drives that do not answer, and never more than half of the loads that may
 * be in flight. Those for such drives are dropped: the next visit asks anew.
 */
static void pump_prefetch(struct manager *manager)
{
	struct residency *residency = manager->residency;
	uint32_t owner;

	while (may_load(manager) && residency->prefetches_active < (manager->loads_max + 1) / 2 &&
	       queue_demand_count(residency->queue) <= residency->held_demands &&
	       (owner = queue_first_prefetch(residency->queue)) != QUEUE_NONE) {
		enum drive_answer answer = ask_drives(manager, owner);

		if (answer == DRIVE_BUSY)
			return;
		queue_remove(residency->queue, owner);
		if (answer == DRIVE_HANGS || begin_load(manager, owner, 0, 1) < 0)
			cnre_counter_add(&manager->counters->prefetches_dropped, 1);
	}
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

/* -ENOSPC: more slabs would be in quarantine than the state segment has room for: then they fail later. */
static int64_t expire_reads(struct manager *manager, int64_t now_ns)
{
	int64_t next_ns = now_ns + manager->read_timeout_ns;

	for (uint32_t i = 0; i < manager->residency->load_count; i++) {
		struct load *load = &manager->residency->load[i];
		int64_t due_ns = due_ns_of(manager, load->read.submitted_ns);

		if (!load->is_reading || load->is_late)
			continue;
		if (due_ns > now_ns)
			next_ns = earlier(next_ns, due_ns);
		else if (expire_read(load, now_ns) < 0)
			next_ns = earlier(next_ns, now_ns + RESIDENCY_EXPIRE_RETRY_NS);
	}
	return next_ns;
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
		if (ask_drives(manager, owner) != DRIVE_HANGS)
			continue;
		if (due_ns > now_ns) {
			next_ns = earlier(next_ns, due_ns);
			continue;
		}
		queue_remove(residency->queue, owner);
		fail_entry(manager, entry_of(manager, owner), CNRE_LOAD_ETIMEDOUT);
		cnre_counter_add(&manager->counters->loads_timed_out, 1);
	}
	return next_ns;
}

/* Nobody waits for a drive without bound: a read for its time, a demand behind it for the same once more. */
static void expire(struct manager *manager)
{
	struct residency *residency = manager->residency;
	int64_t now_ns;

	if (manager->read_timeout_ns == 0 || residency->loads_active + queue_demand_count(residency->queue) == 0)
		return;
	now_ns = cnre_clock_now_ns();
	if (now_ns < residency->expire_ns)
		return;
	if (now_ns - residency->expire_ns > RESIDENCY_OVERSLEPT_NS)
		residency->awake_since_ns = now_ns;
	residency->expire_ns = expire_reads(manager, now_ns);
	for (uint32_t slot = 0; slot < QUEUE_SLOTS && residency->stalls.reads > 0; slot++)
		residency->expire_ns = earlier(residency->expire_ns, expire_demands_of(manager, slot, now_ns));
}

const struct stalls *residency_stalls(const struct manager *manager)
{
	return &manager->residency->stalls;
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
		residency->trimming = shrink_to(manager, target_bytes(manager), POLICY_NONE) < 0 || pool_trim(manager->pool) > 0;
	residency->starved_ns = 0;
	expire(manager);
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

	if (manager->read_timeout_ns != 0 && residency->loads_active + queue_demand_count(residency->queue) > 0)
		deadline_ns = residency->expire_ns;
	if (residency->starved_ns != 0)
		return earlier(deadline_ns, residency->starved_ns + RESIDENCY_STARVED_RETRY_NS);
	/* Releases ring no bell, so what waits for them looks again by itself. */
	return residency->trimming ? earlier(deadline_ns, cnre_clock_now_ns() + 10 * CNRE_NS_PER_MS) : deadline_ns;
}

/* ---- budget ---- */

int residency_set_budget(struct manager *manager, uint64_t budget_bytes)
{
	struct residency *residency = manager->residency;
	int r = pool_check_budget(manager->pool, budget_bytes);

	if (r < 0)
		return r;
	(void)shrink_to(manager, budget_bytes, POLICY_NONE); /* by policy; what is leased follows in residency_pump */
	r = pool_set_budget(manager->pool, budget_bytes);
	if (r < 0)
		return r;
	residency->budget_bytes = budget_bytes;
	policy_set_budget(residency->policy, budget_bytes);
	end_holds(residency);
	residency->trimming = r > 0 || residency->used_bytes > budget_bytes;
	cnre_counter_set(&manager->counters->budget_bytes, budget_bytes);
	cnre_counter_set(&manager->page->budget_bytes, budget_bytes);
	manager->state->budget_bytes = budget_bytes;
	return residency->trimming;
}

void residency_hold_to(struct manager *manager, enum residency_hold who, uint64_t bytes)
{
	struct residency *residency = manager->residency;
	uint64_t target;
	int r;

	residency->held_to_bytes[who] = bytes;
	target = target_bytes(manager);
	(void)shrink_to(manager, target, POLICY_NONE);
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

/*
 * A load is counted before its READY and an eviction after its ABSENT: whoever was killed in between had counted bytes as
 * loaded that are not resident. They count as evicted, so that loaded - evicted is what is resident.
 */
static void balance_bytes(struct manager *manager)
{
	struct cnre_counters *counters = manager->counters;
	uint64_t loaded_bytes = cnre_counter_get(&counters->bytes_loaded), used_bytes = manager->residency->used_bytes;

	if (loaded_bytes >= used_bytes && loaded_bytes - used_bytes > cnre_counter_get(&counters->bytes_evicted))
		cnre_counter_set(&counters->bytes_evicted, loaded_bytes - used_bytes);
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
	if (r == 0)
		balance_bytes(manager);
	return r;
}

/* ---- life ---- */

static int create_policy(struct manager *manager, const char *name, uint64_t budget_bytes)
{
	uint32_t *layer_of = calloc(manager->owner_count, sizeof *layer_of);
	uint64_t *bytes_of = calloc(manager->owner_count, sizeof *bytes_of);
	struct policy_setup setup = {.object_count = manager->owner_count,
				     .layer_of = layer_of,
				     .bytes_of = bytes_of,
				     .budget_bytes = budget_bytes};
	int r = -ENOMEM;

	if (layer_of == NULL || bytes_of == NULL)
		goto done;
	for (uint32_t i = 0; i < manager->model_count; i++) {
		struct served_model *model = &manager->model[i];

		model->first_layer = setup.layer_count;
		setup.layer_count += model->catalog->layer_count;
		for (uint32_t object = 0; object < model->catalog->object_count; object++) {
			layer_of[model->first_owner + object] = model->first_layer + model->catalog->object[object].layer;
			bytes_of[model->first_owner + object] = slab_bytes_of(manager, model->first_owner + object);
		}
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
	residency->load_count = loads_max;
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
	end_holds(residency);
	residency->error_limit.burst = 20;
	residency->prefetched = calloc(manager->owner_count, 1);
	residency->resident_of_model = calloc(manager->model_count, sizeof *residency->resident_of_model);
	residency->demanded_ns = calloc(manager->owner_count, sizeof *residency->demanded_ns);
	if (residency->prefetched == NULL || residency->resident_of_model == NULL || residency->demanded_ns == NULL)
		goto fail;
	residency->drive_count = loader_drives(manager->loader);
	r = queue_open(&residency->queue, manager->owner_count);
	if (r < 0)
		goto fail;
	r = create_loads(manager, loads_max);
	if (r < 0)
		goto fail;
	r = create_policy(manager, name, budget_bytes);
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
	free(residency->demanded_ns);
	free(residency);
	manager->residency = NULL;
}
