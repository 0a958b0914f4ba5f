/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reads of one load: one for each drive that is involved, and, where one fails, all of them again from other replicas
 * into the same slab, once none is out any more. The object is LOADING all the time: nobody sees an error while a replica
 * is left. Ends, since each attempt that fails bans the file whose bytes did not come, or tries the next replica alone.
 *
 * Crash note: killed between two attempts, the entry is LOADING and its slab may still be written to, as after the first.
 */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/probe.h"
#include "manager/health.h"

#include <errno.h>
#include <string.h>

static void part_done(struct loader_read *read, int status);

int load_has_room(const struct manager *manager, const struct replica_split *split)
{
	for (uint32_t i = 0; i < split->part_count; i++)
		if (!loader_has_room(manager->loader, split->part[i].run[0].file))
			return 0;
	return 1;
}

static void fill_part(const struct load *load, const struct replica_part *from, struct load_part *part)
{
	part->drive = from->drive;
	part->bytes = from->bytes;
	part->is_late = 0;
	memset(&part->read, 0, sizeof part->read);
	part->read.run_count = from->run_count;
	part->read.done = part_done;
	for (uint32_t i = 0; i < from->run_count; i++) {
		const struct replica_run *run = &from->run[i];
		const struct model_run *planned = &load->plan.run[run->run];

		part->read.run[i] = (struct loader_run){
			.file = run->file,
			.file_off = planned->file_off + run->off,
			.bytes = run->bytes,
			.needed_bytes = run->needed_bytes,
			.memory = load->slab + planned->slab_off + run->off,
		};
	}
}

static void probe_chunks(const struct load *load, const struct load_part *part)
{
	const struct loader *loader = load->manager->loader;

	for (uint32_t i = 0; i < part->read.run_count && CNRE_PROBE_ATTACHED(load_chunk); i++) {
		const struct loader_run *run = &part->read.run[i];

		CNRE_PROBE(load_chunk, load->number, part->drive, loader_file_device(loader, run->file),
			   loader_file_inode(loader, run->file), run->file_off, run->bytes);
	}
}

static void submit_part(struct load *load, struct load_part *part)
{
	struct residency *residency = load->manager->residency;

	residency->loads_of_drive[part->drive]++;
	residency->bytes_of_drive[part->drive] += part->bytes;
	part->patience_ns = drive_patience_ns(load->manager, part->drive, residency->bytes_of_drive[part->drive]);
	part->is_out = 1;
	probe_chunks(load, part);
	loader_submit(load->manager->loader, &part->read);
}

void load_submit(struct load *load, const struct replica_split *split)
{
	load->is_reading = 1;
	load->status = 0;
	load->part_count = load->parts_out = split->part_count;
	for (uint32_t i = 0; i < split->part_count; i++)
		fill_part(load, &split->part[i], &load->part[i]);
	for (uint32_t i = 0; i < split->part_count; i++)
		submit_part(load, &load->part[i]);
}

/* ---- another replica ---- */

static uint32_t most_replicas(const struct load *load, const struct served_model *model)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < load->plan.run_count; i++)
		if (model->files_of_shard[load->plan.run[i].shard].count > most)
			most = model->files_of_shard[load->plan.run[i].shard].count;
	return most;
}

/* Reading one replica alone shows whose bytes are wrong. 0: each was tried. */
static int wish_next(struct load *load, const struct served_model *model)
{
	uint32_t count = most_replicas(load, model);

	for (uint32_t replica = 0; replica < count; replica++) {
		if ((load->tried >> replica & 1) != 0)
			continue;
		load->tried |= 1u << replica;
		load->bans.only = replica;
		return 1;
	}
	return 0;
}

static int split_again(struct load *load, struct replica_split *ret_split)
{
	struct manager *manager = load->manager;
	const struct served_model *model = model_of(manager, load->owner);
	int r;

	do
		r = drive_split(manager, model, load->owner - model->first_owner, &load->plan, &load->bans, ret_split);
	while (r < 0 && load->bans.only != DRIVE_ANY && wish_next(load, model));
	return r;
}

static void begin_waiting(struct load *load)
{
	load->manager->residency->loads_waiting += !load->is_waiting;
	load->is_waiting = 1;
}

static void end_waiting(struct load *load)
{
	load->manager->residency->loads_waiting -= (uint32_t)load->is_waiting;
	load->is_waiting = 0;
}

/* A replica whose drive does not answer is waited for as a demand would. */
static int may_wait(const struct load *load)
{
	int64_t timeout_ns = load->manager->read_timeout_ns;

	return timeout_ns == 0 || cnre_clock_now_ns() - load->ended_ns < timeout_ns;
}

/* 0: it reads, or waits; or -errno of drive_split: no replica is left. */
static int read_again(struct load *load)
{
	struct replica_split split;
	int r = split_again(load, &split);

	if (r == -EAGAIN && may_wait(load)) {
		begin_waiting(load);
		return 0;
	}
	if (r == 0 && load_has_room(load->manager, &split)) {
		end_waiting(load);
		load_submit(load, &split);
	} else if (r == 0) {
		begin_waiting(load);
	} else {
		end_waiting(load);
	}
	return r;
}

void load_retry_waiting(struct manager *manager)
{
	struct residency *residency = manager->residency;

	for (uint32_t i = 0; i < residency->load_count && residency->loads_waiting > 0; i++) {
		struct load *load = &residency->load[i];

		if (!load->is_waiting || read_again(load) == 0)
			continue;
		load_log_failure(load, load->error.status);
		load_fail(load, load->error.status);
	}
}

/* Where more than one drive gave some, nobody can tell whose are wrong. */
static void blame_for_mismatch(struct load *load, const struct served_model *model)
{
	const struct loader_read *read = &load->part[0].read;

	if (load->part_count > 1)
		return;
	for (uint32_t i = 0; i < read->run_count; i++) {
		const struct shard_files *files = &model->files_of_shard[load->plan.run[i].shard];

		for (uint32_t k = 0; k < files->count; k++)
			if (files->file[k] == read->run[i].file)
				load->tried |= 1u << k;
		if (i > 0 && read->run[i].file == read->run[i - 1].file)
			continue;
		drive_mismatched(load->manager, read->run[i].file);
		if (load->wrong_count < LOADER_REPLICAS_MAX)
			load->wrong_file[load->wrong_count++] = read->run[i].file;
	}
}

void load_prove(const struct load *load)
{
	for (uint32_t i = 0; load->is_hashed && i < load->wrong_count; i++)
		drive_proven_wrong(load->manager, load->wrong_file[i]);
}

int load_read_other(struct load *load)
{
	const struct served_model *model = model_of(load->manager, load->owner);

	blame_for_mismatch(load, model);
	load->error = (struct load_error){
		.status = -EBADMSG, .file = load->part[0].read.run[0].file, .attempts = load->error.attempts + 1};
	if (most_replicas(load, model) < 2 || !wish_next(load, model))
		return -EBADMSG;
	drive_left(load->manager, load->part[0].drive);
	return read_again(load) < 0 ? -EBADMSG : 0;
}

/* ---- what came ---- */

static void note_error(struct load *load, const struct load_part *part, int status)
{
	const struct loader_read *read = &part->read;
	uint32_t file = read->run[read->failed_run].file;
	struct drive_bans *bans = &load->bans;

	if (load->status == 0) {
		load->status = status;
		load->error = (struct load_error){
			.status = status, .file = file, .off = read->failed_off, .attempts = load->error.attempts + 1};
	}
	if (bans->file_count < DRIVE_BANS_MAX)
		bans->file[bans->file_count++] = file;
	if (health_kind_of(status) == HEALTH_OF_DRIVE)
		bans->drives |= 1u << part->drive;
}

/* Nothing of the load is out any more. */
static void gathered(struct load *load)
{
	load->is_reading = 0;
	if (load->is_late) {
		load_end_late(load);
	} else if (load->status < 0 && load->manager->stopping) {
		load_free(load); /* LOADING for good: a successor reads it again, or who waits learns from its socket that we are gone */
	} else if (load->status == 0) {
		load_arrived(load);
	} else if (read_again(load) == 0) {
		drive_left(load->manager, loader_drive_of(load->manager->loader, load->error.file));
	} else {
		load_log_failure(load, load->status);
		load_fail(load, load->status);
	}
}

static void part_done(struct loader_read *read, int status)
{
	struct load_part *part = (struct load_part *)read;
	struct load *load = part->load;
	struct manager *manager = load->manager;
	struct residency *residency = manager->residency;

	CNRE_CRASH_POINT("load-arrived");
	part->is_out = 0;
	load->parts_out--;
	load->bytes_read += read->bytes_read;
	if (read->completed_ns > load->ended_ns)
		load->ended_ns = read->completed_ns;
	residency->loads_of_drive[part->drive]--;
	residency->bytes_of_drive[part->drive] -= part->bytes;
	cnre_counter_add(&manager->counters->bytes_read, read->bytes_read);
	layer_count_of(manager, load->owner)->bytes_read += read->bytes_read;
	cnre_counter_add(&manager->counters->read_retries, read->retries);
	if (part->is_late)
		stall_end(&residency->stalls, part->drive);
	drive_read_done(manager, part->drive, read, status);
	if (status < 0)
		note_error(load, part, status);
	if (load->parts_out == 0)
		gathered(load);
}
