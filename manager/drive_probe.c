/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of our own: small ones of a place that failed, to see whether it is well again, and larger ones that give a drive
 * something to do while its speed is taken. They go through the loader, one at a time for each drive, into memory of our own:
 * one that hangs holds up nobody but its drive's next probe.
 */
#include "manager/drive_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/residency.h"
#include "manager/stall.h"

#include <stdlib.h>
#include <string.h>

static void submit_next_speed(struct drive_probe *probe);

static struct drive *drive_of(const struct drive_probe *probe)
{
	return &probe->manager->drives->drive[probe->drive];
}

static int is_probing(const struct drive *drive)
{
	return drive->probe.is_out || drive->reach.is_out;
}

static void free_memory(struct drive_probe *probe)
{
	if (!probe->is_out && probe->reads_left == 0) {
		free(probe->memory);
		probe->memory = NULL;
	}
}

/* ---- health ---- */

static uint32_t file_of_probe(const struct drive *drive)
{
	return drive->probe.of_file == DRIVE_ANY ? drive->bad_file : drive->probe.of_file;
}

static void health_read(struct drive_probe *probe, int status)
{
	struct manager *manager = probe->manager;
	struct drives *drives = manager->drives;
	uint32_t file = file_of_probe(drive_of(probe));
	struct health *health = probe->of_file == DRIVE_ANY ? &drive_of(probe)->health : &drives->file[file].health;
	int64_t out_ns;

	if (!health_probed(health, status, cnre_clock_now_ns(), &out_ns))
		return;
	if (probe->of_file != DRIVE_ANY)
		drives->degraded_files--;
	drive_count_degraded(manager);
	cnre_log(CNRE_LOG_NOTICE, "%s %.300s: it reads again, after %.1f s, and is used again",
		 probe->of_file == DRIVE_ANY ? "drive of" : "file", loader_file_path(manager->loader, file),
		 (double)out_ns / 1e9);
}

static void probe_done(struct loader_read *read, int status)
{
	struct drive_probe *probe = (struct drive_probe *)read;

	probe->is_out = 0;
	if (probe->is_of_health) {
		health_read(probe, status);
		free_memory(probe);
	} else {
		if (status < 0)
			probe->reads_left = 0; /* its speed stays unknown, and all are equal */
		submit_next_speed(probe);
	}
}

static int submit(struct drive_probe *probe, uint32_t file, uint64_t file_off, uint64_t bytes, int is_of_health)
{
	struct loader *loader = probe->manager->loader;

	if (!loader_has_room(loader, file))
		return 0;
	if (probe->memory == NULL && posix_memalign((void **)&probe->memory, MODEL_READ_ALIGNMENT, DRIVE_PROBE_BYTES) != 0) {
		probe->memory = NULL; /* no memory: it is tried again */
		return 0;
	}
	memset(&probe->read, 0, sizeof probe->read);
	probe->read.run_count = 1;
	probe->read.run[0] = (struct loader_run){
		.file = file, .file_off = file_off, .bytes = bytes, .needed_bytes = is_of_health ? 1 : bytes, .memory = probe->memory};
	probe->read.done = probe_done;
	probe->is_of_health = is_of_health;
	probe->is_out = 1;
	loader_submit(loader, &probe->read);
	return 1;
}

/* ---- speed ---- */

/* The largest shard that a drive holds: 1, or 0, it holds none that is large enough. */
static int find_largest(const struct manager *manager, uint32_t drive, uint32_t *ret_file, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	for (uint32_t m = 0; m < manager->model_count; m++) {
		const struct served_model *model = &manager->model[m];

		for (uint32_t i = 0; i < model->catalog->shard_count; i++) {
			const struct shard_files *files = &model->files_of_shard[i];

			for (uint32_t k = 0; k < files->count; k++) {
				if (drive_of_file(manager, files->file[k]) != drive ||
				    model->catalog->shard[i].bytes <= *ret_bytes)
					continue;
				*ret_file = files->file[k];
				*ret_bytes = model->catalog->shard[i].bytes;
			}
		}
	}
	return *ret_bytes >= MODEL_READ_ALIGNMENT;
}

static void end_measuring(struct drive_probe *probe)
{
	struct manager *manager = probe->manager;

	probe->reads_left = 0;
	probe->measured_ns = cnre_clock_now_ns();
	drive_sample(manager, probe->drive, 1);
	free_memory(probe);
	drive_weigh(manager);
}

/* Spread over the file: neighbours may lie in a drive's own cache. */
static void submit_next_speed(struct drive_probe *probe)
{
	uint64_t file_bytes, bytes, step, off;
	uint32_t file;

	if (probe->reads_left == 0 || cnre_clock_now_ns() - probe->begun_ns > DRIVE_PROBE_NS ||
	    !find_largest(probe->manager, probe->drive, &file, &file_bytes)) {
		end_measuring(probe);
		return;
	}
	bytes = cnre_size_align_down(file_bytes < DRIVE_PROBE_BYTES ? file_bytes : DRIVE_PROBE_BYTES, MODEL_READ_ALIGNMENT);
	step = (file_bytes - bytes) / DRIVE_PROBE_READS;
	off = cnre_size_align_down(step * (DRIVE_PROBE_READS - probe->reads_left), MODEL_READ_ALIGNMENT);
	if (submit(probe, file, off, bytes, 0))
		probe->reads_left--;
}

void drive_probe_speed(struct manager *manager, uint32_t number)
{
	struct drive_probe *probe = &manager->drives->drive[number].probe;

	if (probe->reads_left > 0 || is_probing(drive_of(probe)))
		return;
	probe->reads_left = DRIVE_PROBE_READS;
	probe->begun_ns = cnre_clock_now_ns();
	submit_next_speed(probe);
}

/* ---- time ---- */

/* Whose turn it is: DRIVE_ANY the drive itself, or a file on it. 0: nobody's. */
static int find_due(const struct manager *manager, uint32_t number, int64_t now_ns, uint32_t *ret_of_file)
{
	const struct drives *drives = manager->drives;
	const struct drive *drive = &drives->drive[number];

	*ret_of_file = DRIVE_ANY;
	if (stall_is_on(residency_stalls(manager), number))
		return 0; /* it will be heard of when it answers */
	if (drive->health.is_degraded)
		return now_ns >= drive->health.probe_ns;
	for (uint32_t file = 0; file < drives->file_end && drives->degraded_files > 0; file++) {
		const struct health *health = &drives->file[file].health;

		*ret_of_file = file;
		if (health->is_degraded && now_ns >= health->probe_ns && drive_of_file(manager, file) == number)
			return 1;
	}
	return 0;
}

static uint64_t off_of_probe(const struct drives *drives, uint32_t file)
{
	return cnre_size_align_down(drives->file[file].bad_off, MODEL_READ_ALIGNMENT);
}

static void put_off(struct drives *drives, struct drive *drive)
{
	struct health *health = drive->probe.of_file == DRIVE_ANY ? &drive->health : &drives->file[drive->probe.of_file].health;

	health->probe_ns = cnre_clock_deadline_ns(HEALTH_PROBE_FIRST_NS);
}

/* By a thread first: see drive_reach.c. */
static void probe_health(struct manager *manager, uint32_t number, uint32_t of_file)
{
	struct drives *drives = manager->drives;
	struct drive *drive = &drives->drive[number];
	uint32_t file = of_file == DRIVE_ANY ? drive->bad_file : of_file;

	drive->probe.of_file = of_file;
	if (drive_reach_begin(manager, number, loader_file_path(manager->loader, file), off_of_probe(drives, file)) < 0)
		put_off(drives, drive); /* no thread for it now */
}

void drive_probe_reached(struct manager *manager, uint32_t number, int result)
{
	struct drives *drives = manager->drives;
	struct drive *drive = &drives->drive[number];
	uint32_t file = file_of_probe(drive);

	if (result < 0) {
		health_read(&drive->probe, result);
		return;
	}
	loader_let_go(manager->loader, number); /* a file system that was mounted again is another one behind an old descriptor */
	if (!submit(&drive->probe, file, off_of_probe(drives, file), MODEL_READ_ALIGNMENT, 1))
		put_off(drives, drive); /* no room there now */
}

/* A spare gets nothing to do by which its speed would be known. */
static int wants_speed(const struct manager *manager, const struct drive *drive, int64_t now_ns)
{
	return manager->drives->declared_count == 0 && drive->is_replicated && !drive->health.is_degraded &&
	       (drive->weight == 0 || drive->speed == 0) && now_ns - drive->probe.measured_ns > DRIVE_PROBE_AGAIN_NS;
}

void drive_probe_tick(struct manager *manager, int64_t now_ns)
{
	struct drives *drives = manager->drives;

	for (uint32_t i = 0; i < loader_drives(manager->loader) && drives->has_replicas; i++) {
		struct drive *drive = &drives->drive[i];
		uint32_t of_file;

		if (is_probing(drive))
			continue;
		if (drive->probe.reads_left > 0)
			submit_next_speed(&drive->probe); /* there was no room for it */
		else if (find_due(manager, i, now_ns, &of_file))
			probe_health(manager, i, of_file);
		else if (wants_speed(manager, drive, now_ns))
			drive_probe_speed(manager, i);
	}
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t drive_probe_deadline_ns(const struct manager *manager)
{
	const struct drives *drives = manager->drives;
	int64_t deadline_ns = CNRE_NEVER;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		const struct drive *drive = &drives->drive[i];

		if (drive->health.is_degraded && !is_probing(drive) && !stall_is_on(residency_stalls(manager), i))
			deadline_ns = earlier(deadline_ns, drive->health.probe_ns);
	}
	for (uint32_t file = 0; file < drives->file_end && drives->degraded_files > 0; file++) {
		uint32_t number = drive_of_file(manager, file);
		const struct drive *drive = &drives->drive[number];

		if (drives->file[file].health.is_degraded && !drive->health.is_degraded && !is_probing(drive) &&
		    !stall_is_on(residency_stalls(manager), number))
			deadline_ns = earlier(deadline_ns, drives->file[file].health.probe_ns);
	}
	return deadline_ns;
}

void drive_probe_close(struct drive *drive)
{
	free(drive->probe.memory);
	drive->probe.memory = NULL;
}
