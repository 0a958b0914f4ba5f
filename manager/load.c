/* SPDX-License-Identifier: Apache-2.0 */
/* One object from the drive to READY, or to its failure. Crash notes are in residency.h. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "manager/digest.h"
#include "manager/fence.h"
#include "manager/prepare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

	object_count(manager, load->owner, 1);
	cnre_counter_add(&manager->counters->loads, 1);
	cnre_counter_add(&manager->counters->bytes_loaded, slab_bytes_of(manager, load->owner));
	cnre_counter_add(&manager->counters->service_ns, (uint64_t)(load->read.completed_ns - load->read.submitted_ns));
	object_note_attempt(entry, &load->read, load->read.completed_ns);
	CNRE_CRASH_POINT("publish-counted");
	object_settle(entry, cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_READY);
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

static void fail(struct load *load, int status)
{
	struct manager *manager = load->manager;
	struct cnre_entry *entry = entry_of(manager, load->owner);

	object_note_attempt(entry, &load->read, load->read.completed_ns);
	manager->residency->prefetched[load->owner] = 0;
	policy_remove(manager->residency->policy, load->owner);
	object_discharge(manager, load->owner);
	object_fail(manager, entry, error_class(status));
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
	if (load->catalog->view != NULL)
		prepare_object(load->manager->prepare, load->catalog, load->object, &load->plan, load->slab);
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
int load_expire(struct load *load, int64_t now_ns)
{
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;
	struct cnre_entry *entry = entry_of(manager, load->owner);
	uint32_t run = late_run(load);
	int r = fence_remember(manager, load->place, slab_bytes_of(manager, load->owner));

	if (r < 0)
		return r;
	object_note_attempt(entry, &load->read, now_ns);
	policy_remove(residency->policy, load->owner); /* its slab stays charged; it may be loaded again beside it */
	object_fail(manager, entry, CNRE_LOAD_ETIMEDOUT);
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
	object_discharge(manager, load->owner);
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
	} else if (load->plan.move_count == 0 && load->catalog->view == NULL && !load->is_hashed) {
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
			.file = model->files_of_shard[run->shard].file[0],
			.file_off = run->file_off,
			.bytes = run->bytes,
			.needed_bytes = run->needed_bytes,
			.memory = load->slab + run->slab_off,
		};
	}
}

int load_begin(struct manager *manager, uint32_t owner, uint32_t starter, int is_prefetch)
{
	struct residency *residency = manager->residency;
	struct served_model *model = model_of(manager, owner);
	struct load *load = residency->free_load;
	uint64_t place;
	int r = evict_take_slab(manager, owner, &place);

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
	load->catalog = model->catalog;
	load->object = owner - model->first_owner;
	load->shape = &model->catalog->shape[model->catalog->object[load->object].shape];
	model_plan(model->catalog, load->object, &load->plan);
	fill_read(load, model);
	load->drive = loader_drive_of(manager->loader, load->read.run[0].file);
	residency->loads_of_drive[load->drive]++;
	object_charge(manager, owner);
	/* Now and not when its bytes are there: then the order would be that of the drives, and no replay could follow it. */
	policy_add(residency->policy, owner);
	object_mark_loading(entry_of(manager, owner), place, starter);
	cnre_counter_set(&manager->counters->loads_in_flight, residency->loads_active);
	residency->prefetched[owner] = (unsigned char)is_prefetch;
	if (is_prefetch)
		cnre_counter_add(&manager->counters->prefetches_issued, 1);
	CNRE_CRASH_POINT("load-loading");
	loader_submit(manager->loader, &load->read);
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
		load->next_free = residency->free_load;
		residency->free_load = load;
	}
	return 0;
}
