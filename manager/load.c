/* SPDX-License-Identifier: Apache-2.0 */
/* One object from its slab to READY, or to its failure; its reads are in load_parts.c. Crash notes are in residency.h. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/probe.h"
#include "manager/digest.h"
#include "manager/metrics.h"
#include "manager/prepare.h"
#include "manager/probe.h"
#include "manager/vram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void load_free(struct load *load)
{
	struct residency *residency = load->manager->residency;

	residency->loads_active--;
	if (load->is_prefetch)
		residency->prefetches_active--;
	load->next_free = residency->free_load;
	residency->free_load = load;
	cnre_counter_set(&load->manager->counters->loads_in_flight, residency->loads_active);
}

/* The first read of it came to nothing, here or in a load that was given up. */
static void note_failover(struct load *load)
{
	int64_t ns = cnre_clock_now_ns() - load->begun_ns;

	if (load->error.attempts == 0)
		return;
	drive_failed_over(load->manager, ns);
	load_log_failover(load, ns);
}

void load_note_last(const struct load *load, int64_t ended_ns, int status)
{
	load->manager->residency->last_load[load->owner] = (struct last_load){
		.ended_ns = ended_ns,
		.drive = (uint16_t)load->part[0].drive,
		.attempts = load->error.attempts > UINT16_MAX ? UINT16_MAX : (uint16_t)load->error.attempts,
		.status = status,
	};
}

static void count_load(struct layer_count *layer, const struct load *load)
{
	layer->loads++;
	layer->bytes_loaded += slab_bytes_of(load->manager, load->owner);
	histogram_add(&layer->service, load->ended_ns - load->begun_ns);
}

static void publish(struct load *load)
{
	struct manager *manager = load->manager;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	object_count(manager, load->owner, 1);
	cnre_counter_add(&manager->counters->loads, 1);
	cnre_counter_add(&manager->counters->admissions, 1);
	cnre_counter_add(&manager->counters->bytes_loaded, slab_bytes_of(manager, load->owner));
	cnre_counter_add(&manager->counters->service_ns, (uint64_t)(load->ended_ns - load->begun_ns));
	count_load(layer_count_of(manager, load->owner), load);
	metrics_load_done(manager, load->owner, load->ended_ns - load->begun_ns);
	object_note_attempt(entry, load, load->ended_ns);
	load_note_last(load, load->ended_ns, 0);
	CNRE_CRASH_POINT("publish-counted");
	object_settle(entry, cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_READY);
	CNRE_CRASH_POINT("publish-ready");
	probe_publish(load);
	vram_arrived(manager, load->owner);
	note_failover(load);
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

void load_fail(struct load *load, int status)
{
	struct manager *manager = load->manager;

	probe_load_done(load, load->ended_ns, status);
	object_note_attempt(entry_of(manager, load->owner), load, load->ended_ns);
	load_note_last(load, load->ended_ns, status);
	object_judge_prefetch(manager, load->owner, PREFETCH_FAILED);
	policy_remove(manager->residency->policy, load->owner);
	object_discharge(manager, load->owner);
	object_fail(manager, load->owner, error_class(status));
	CNRE_CRASH_POINT("fail-absent");
	pool_give(manager->pool, load->place);
	load_free(load);
}

/* On a worker thread. */
static void hash_slab(struct load *load)
{
	int64_t begun_ns = CNRE_PROBE_ATTACHED(load_verify) ? cnre_clock_now_ns() : 0;

	load->digest = digest_compute(load->slab, load->shape, &load->plan);
	if (begun_ns != 0)
		CNRE_PROBE(load_verify, load->number, (uint64_t)(cnre_clock_now_ns() - begun_ns));
}

/* On a worker thread. */
static void prepare_slab(struct worker_job *job)
{
	struct load *load = (struct load *)((char *)job - offsetof(struct load, job));

	for (uint32_t i = 0; i < load->plan.move_count; i++) {
		const struct model_move *move = &load->plan.move[i];

		memmove(load->slab + move->to_off, load->slab + move->from_off, move->bytes);
	}
	if (load->catalog->view != NULL)
		prepare_object(load->manager->prepare, load->catalog, load->object, &load->plan, load->slab);
	if (load->is_hashed)
		hash_slab(load);
}

static void slab_prepared(struct worker_job *job)
{
	struct load *load = (struct load *)((char *)job - offsetof(struct load, job));
	struct manager *manager = load->manager;
	uint64_t expected;

	if (manager->stopping) {
		load_free(load); /* loader and drives may be gone, and who waits for it learns from its socket that we are */
		return;
	}
	if (load->is_hashed && digest_check(manager->digests, load->owner, load->digest, &expected) < 0) {
		cnre_counter_add(&manager->counters->digest_errors, 1);
		load_log_mismatch(load, expected);
		if (load_read_other(load) < 0)
			load_fail(load, -EBADMSG);
		return;
	}
	manager->residency->suspect[load->owner] = 0;
	load_prove(load);
	publish(load);
}

void load_arrived(struct load *load)
{
	probe_load_done(load, load->ended_ns, 0);
	if (load->plan.move_count == 0 && load->catalog->view == NULL && !load->is_hashed)
		publish(load);
	else
		worker_submit(load->manager->worker, &load->job);
}

static void fill(struct load *load, uint32_t owner, uint64_t place, enum load_kind kind)
{
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;
	const struct served_model *model = model_of(manager, owner);

	load->is_late = load->is_waiting = 0;
	load->bans = (struct drive_bans){.only = DRIVE_ANY};
	load->tried = load->wrong_count = 0;
	load->error = (struct load_error){.attempts = residency->moved_ns[owner] != 0};
	load->begun_ns = residency->moved_ns[owner] != 0 ? residency->moved_ns[owner] : cnre_clock_now_ns();
	load->ended_ns = load->begun_ns;
	load->bytes_read = 0;
	residency->moved_ns[owner] = 0;
	load->owner = owner;
	load->place = place;
	load->slab = pool_address(manager->pool, place);
	load->number = ++residency->loads_begun;
	load->kind = kind;
	load->is_prefetch = kind == LOAD_OF_PREFETCH;
	load->is_hashed = manager->verifies_loads || residency->suspect[owner];
	load->catalog = model->catalog;
	load->object = owner - model->first_owner;
	load->shape = &model->catalog->shape[model->catalog->object[load->object].shape];
	model_plan(model->catalog, load->object, &load->plan);
}

int load_begin(struct manager *manager, uint32_t owner, uint32_t starter, enum load_kind kind)
{
	struct residency *residency = manager->residency;
	const struct served_model *model = model_of(manager, owner);
	struct load *load = residency->free_load;
	struct replica_split split;
	uint64_t place;
	int r = evict_take_slab(manager, owner, &place);

	if (r < 0)
		return r;
	CNRE_CRASH_POINT("load-slab-taken");
	residency->free_load = load->next_free;
	residency->loads_active++;
	fill(load, owner, place, kind);
	residency->prefetches_active += (uint32_t)load->is_prefetch;
	probe_admit(load);
	r = drive_split(manager, model, owner - model->first_owner, &load->plan, &load->bans, &split);
	CNRE_CHECK(r == 0); /* the drives were asked in this turn */
	object_charge(manager, owner);
	/* Now and not when its bytes are there: then the order would be that of the drives, and no replay could follow it. */
	policy_add(residency->policy, owner);
	object_mark_loading(entry_of(manager, owner), place, starter);
	cnre_counter_set(&manager->counters->loads_in_flight, residency->loads_active);
	if (load->is_prefetch)
		object_prefetch(manager, owner);
	CNRE_CRASH_POINT("load-loading");
	probe_load_start(load, starter);
	load_submit(load, &split);
	CNRE_CRASH_POINT("load-submitted");
	return 0;
}

int load_open_all(struct manager *manager, uint32_t loads_max)
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
		for (uint32_t k = 0; k < REPLICA_PARTS_MAX; k++)
			load->part[k].load = load;
		load->next_free = residency->free_load;
		residency->free_load = load;
	}
	return 0;
}
