/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of replicas, what drives did, and whether they are well; see drive.h. */
#include "manager/drive_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "manager/metrics.h"
#include "manager/residency.h"
#include "manager/settings.h"
#include "manager/stall.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t drive_of_file(const struct manager *manager, uint32_t file)
{
	return loader_drive_of(manager->loader, file);
}

/* ---- who serves ---- */

static int is_banned(const struct drive_bans *bans, uint32_t file)
{
	for (uint32_t i = 0; bans != NULL && i < bans->file_count; i++)
		if (bans->file[i] == file)
			return 1;
	return 0;
}

static int is_passed_over(const struct drive_bans *bans, uint32_t replica, uint32_t count)
{
	uint32_t wanted = bans == NULL ? DRIVE_ANY : bans->only;

	if (wanted == DRIVE_ANY)
		return 0;
	return replica != (wanted < count ? wanted : count - 1);
}

/* The least that it could be given, a piece of REPLICA_STRIPE_BYTES_MIN, would hold up all that wait for the object. */
static int is_declared_slow(const struct drives *drives, const struct shard_files *files, uint32_t replica)
{
	double most = 0;

	for (uint32_t i = 0; i < files->count; i++)
		most = fmax(most, drives->declared[files->mirror[i]]);
	return drives->declared[files->mirror[replica]] * DRIVE_SPARE_PART < most;
}

/* seen: drives of the replicas before it. */
static enum replica_rank rank_of(const struct manager *manager, const struct shard_files *files, uint32_t replica,
				 const struct drive_bans *bans, uint32_t seen)
{
	const struct drives *drives = manager->drives;
	uint32_t file = files->file[replica], number = drive_of_file(manager, file);
	const struct drive *drive = &drives->drive[number];

	if (is_banned(bans, file) || is_passed_over(bans, replica, files->count))
		return REPLICA_OUT;
	if (stall_is_on(residency_stalls(manager), number))
		return REPLICA_HANGS;
	if (bans != NULL && (bans->drives >> number & 1) != 0)
		return REPLICA_FAILED;
	if (drive->health.is_degraded || drives->file[file].health.is_degraded)
		return REPLICA_DEGRADED;
	if ((seen >> number & 1) != 0)
		return REPLICA_SPARE;
	if (drives->declared_count > 0)
		return is_declared_slow(drives, files, replica) ? REPLICA_SPARE : REPLICA_GOOD;
	return drive->weight == 0 ? REPLICA_SPARE : REPLICA_GOOD;
}

static void fill_options(const struct manager *manager, const struct shard_files *files, const struct drive_bans *bans,
			 struct replica_options *ret_options)
{
	const struct drives *drives = manager->drives;
	uint32_t seen = 0;

	ret_options->count = files->count;
	for (uint32_t i = 0; i < files->count; i++) {
		uint32_t drive = drive_of_file(manager, files->file[i]);

		ret_options->option[i] = (struct replica_option){
			.file = files->file[i],
			.drive = drive,
			.rank = rank_of(manager, files, i, bans, seen),
			.weight = drives->declared_count > 0 ? drives->declared[files->mirror[i]] : drives->drive[drive].weight,
		};
		seen |= 1u << drive;
	}
}

int drive_split(const struct manager *manager, const struct served_model *model, uint32_t object,
		const struct model_plan *plan, const struct drive_bans *bans, struct replica_split *ret_split)
{
	const struct model_object *which = &model->catalog->object[object];
	struct replica_options options[MODEL_RUNS_MAX];

	for (uint32_t i = 0; i < plan->run_count; i++) {
		if (i > 0 && plan->run[i].shard == plan->run[i - 1].shard)
			options[i] = options[i - 1];
		else
			fill_options(manager, &model->files_of_shard[plan->run[i].shard], bans, &options[i]);
	}
	return replica_split(plan, options, replica_ticket(which->layer, which->expert), ret_split);
}

int drive_has_replicas(const struct manager *manager)
{
	return manager->drives->has_replicas;
}

int64_t drive_patience_ns(const struct manager *manager, uint32_t drive, uint64_t bytes)
{
	double speed = manager->drives->drive[drive].speed;
	double expected_ns = (double)bytes * 1e9 / (speed > 0 ? speed : DRIVE_SPEED_UNKNOWN) * DRIVE_STALL_FACTOR;
	double most_ns = manager->read_timeout_ns > 0 ? (double)manager->read_timeout_ns : (double)INT64_MAX / 4;

	if (expected_ns < (double)DRIVE_STALL_MIN_NS)
		expected_ns = (double)DRIVE_STALL_MIN_NS;
	return (int64_t)(expected_ns < most_ns ? expected_ns : most_ns);
}

/* ---- what they did ---- */

static enum drive_error kind_of(int status)
{
	switch (status) {
	case -EBADMSG:
		return DRIVE_ERROR_SHORT;
	case -ENOENT:
	case -ESTALE:
	case -ENXIO:
	case -ENODEV:
		return DRIVE_ERROR_GONE;
	case -ETIMEDOUT:
		return DRIVE_ERROR_TIMEOUT;
	default:
		return DRIVE_ERROR_IO;
	}
}

void drive_count_degraded(struct manager *manager)
{
	const struct drives *drives = manager->drives;
	uint64_t count = drives->degraded_files;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++)
		count += drives->drive[i].health.is_degraded != 0;
	cnre_counter_set(&manager->counters->replicas_degraded, count);
}

static void say_degraded(struct manager *manager, const char *what, uint32_t file, const struct health *health)
{
	cnre_log(CNRE_LOG_WARNING,
		 "%s %.300s: degraded: %s: other replicas are read while one is good, and it is tried again in %.0f s: check %s",
		 what, loader_file_path(manager->loader, file), health_words(health->reason),
		 (double)health->backoff_ns / 1e9,
		 health_kind_of(health->reason) == HEALTH_OF_DRIVE ? "the drive and its cable" : "the file");
	drive_count_degraded(manager);
}

static void blame_drive(struct manager *manager, uint32_t number, uint32_t file, int status, int64_t now_ns)
{
	struct drive *drive = &manager->drives->drive[number];

	drive->bad_file = file;
	if (!drive->is_replicated || health_kind_of(status) != HEALTH_OF_DRIVE)
		return;
	if (!health_failed(&drive->health, status, now_ns))
		return;
	loader_let_go(manager->loader, number);
	say_degraded(manager, "drive of", file, &drive->health);
}

static void note_degraded_file(struct manager *manager, uint32_t number, uint32_t file)
{
	struct drives *drives = manager->drives;
	const struct drive_file *known = &drives->file[file];

	drives->degraded_files++;
	if (!drives->drive[number].health.is_degraded) /* else that was said */
		say_degraded(manager, "file", file, &known->health);
	drive_count_degraded(manager);
}

/* Only what lies elsewhere too is worth the trouble. */
static void blame_file(struct manager *manager, uint32_t number, uint32_t file, int status, int64_t now_ns)
{
	struct drives *drives = manager->drives;

	if (health_kind_of(status) == HEALTH_OF_OTHERS)
		return;
	if (drives->drive[number].is_replicated && health_failed(&drives->file[file].health, status, now_ns))
		note_degraded_file(manager, number, file);
}

void drive_read_done(struct manager *manager, uint32_t number, const struct loader_read *read, int status)
{
	struct drives *drives = manager->drives;
	struct drive *drive = &drives->drive[number];
	uint32_t file = read->run[read->failed_run].file;
	int64_t now_ns = read->completed_ns;

	drive->bytes += read->bytes_read;
	drive->reads++;
	drive->read_ns += read->completed_ns - read->submitted_ns;
	histogram_add(&drive->read_times, read->completed_ns - read->submitted_ns);
	metrics_read_done(manager, number, read->completed_ns - read->submitted_ns);
	if (status == -ECANCELED)
		return;
	if (status < 0) {
		drive->errors[kind_of(status)]++;
		drives->file[file].bad_off = read->failed_off;
		blame_drive(manager, number, file, status, now_ns);
		blame_file(manager, number, file, status, now_ns);
		return;
	}
	health_succeeded(&drive->health);
	for (uint32_t i = 0; i < read->run_count; i++)
		health_succeeded(&drives->file[read->run[i].file].health);
}

void drive_stalled(struct manager *manager, uint32_t number, uint32_t file, uint64_t off)
{
	struct drive *drive = &manager->drives->drive[number];

	drive->errors[DRIVE_ERROR_TIMEOUT]++;
	drive->bad_file = file;
	manager->drives->file[file].bad_off = off;
	if (drive->is_replicated && health_degrade(&drive->health, -ETIMEDOUT, cnre_clock_now_ns()))
		drive_count_degraded(manager); /* the stall itself is logged by stall.c */
}

void drive_mismatched(struct manager *manager, uint32_t file)
{
	manager->drives->drive[drive_of_file(manager, file)].errors[DRIVE_ERROR_DIGEST]++;
}

/* Its other reads succeed, which says nothing of the bytes; so it is counted apart, and for good. */
void drive_proven_wrong(struct manager *manager, uint32_t file)
{
	struct drive_file *known = &manager->drives->file[file];

	if (known->proven_wrong < HEALTH_ERRORS_MAX)
		known->proven_wrong++;
	if (known->proven_wrong == HEALTH_ERRORS_MAX && health_degrade(&known->health, -EBADMSG, cnre_clock_now_ns()))
		note_degraded_file(manager, drive_of_file(manager, file), file);
}

void drive_left(struct manager *manager, uint32_t number)
{
	manager->drives->drive[number].left++;
}

void drive_failed_over(struct manager *manager, int64_t ns)
{
	struct drives *drives = manager->drives;

	drives->failovers++;
	drives->failover_last_ns = ns;
	if (ns > drives->failover_most_ns)
		drives->failover_most_ns = ns;
	cnre_counter_add(&manager->counters->failovers, 1);
	cnre_counter_add(&manager->counters->failover_ns, (uint64_t)ns);
}

/* ---- which files there are ---- */

static uint32_t count_files(const struct manager *manager)
{
	uint32_t count = 0;

	for (uint32_t m = 0; m < manager->model_count; m++)
		for (uint32_t i = 0; i < manager->model[m].catalog->shard_count; i++)
			count += manager->model[m].files_of_shard[i].count;
	return count;
}

static void look_at_shard(struct manager *manager, const struct shard_files *files)
{
	struct drives *drives = manager->drives;

	for (uint32_t i = 0; i < files->count; i++) {
		uint32_t file = files->file[i];

		if (file >= drives->file_end)
			drives->file_end = file + 1;
		if (files->count < 2)
			continue;
		drives->has_replicas = 1;
		drives->drive[drive_of_file(manager, file)].is_replicated = 1;
	}
}

void drive_files_changed(struct manager *manager)
{
	struct drives *drives = manager->drives;

	drives->files = count_files(manager);
	for (uint32_t m = 0; m < manager->model_count; m++)
		for (uint32_t i = 0; i < manager->model[m].catalog->shard_count; i++)
			look_at_shard(manager, &manager->model[m].files_of_shard[i]);
	if (!drives->has_replicas)
		return;
	drive_look_at_groups(manager);
	drive_measure_unknown(manager);
	drive_weigh(manager);
}

/* ---- time ---- */

void drive_tick(struct manager *manager, int64_t now_ns)
{
	struct drives *drives = manager->drives;

	drive_probe_tick(manager, now_ns);
	if (now_ns < drives->look_ns)
		return;
	drives->look_ns = now_ns + DRIVE_TICK_NS;
	if (count_files(manager) != drives->files)
		drive_files_changed(manager);
	for (uint32_t i = 0; i < loader_drives(manager->loader); i++)
		drive_sample(manager, i, 0);
	if (!drives->has_replicas)
		return;
	if (now_ns >= drives->uses_ns) {
		drives->uses_ns = now_ns + DRIVE_USES_NS;
		drive_look_at_groups(manager);
	}
	drive_weigh(manager);
}

int64_t drive_deadline_ns(const struct manager *manager)
{
	return drive_probe_deadline_ns(manager);
}

/* ---- life ---- */

int drive_parse_weights(const char *text, double ret_weight[LOADER_REPLICAS_MAX], uint32_t *ret_count)
{
	double weight[LOADER_REPLICAS_MAX];
	uint32_t count = 0;

	for (;;) {
		char *end;

		if (count == LOADER_REPLICAS_MAX || *text < '0' || *text > '9') /* no sign, no "inf" */
			return -EINVAL;
		weight[count] = strtod(text, &end);
		if (!(weight[count] > 0 && weight[count] <= 1e12))
			return -EINVAL;
		count++;
		if (*end == '\0')
			break;
		if (*end != ':' && *end != ',')
			return -EINVAL;
		text = end + 1;
	}
	memcpy(ret_weight, weight, count * sizeof weight[0]);
	*ret_count = count;
	return 0;
}

int drive_check_weights(const char *text, uint32_t replicas, char *message, size_t message_bytes)
{
	double weight[LOADER_REPLICAS_MAX];
	uint32_t count;

	if (text == NULL)
		return 0;
	if (drive_parse_weights(text, weight, &count) < 0) {
		(void)snprintf(message, message_bytes,
			       "--drive-weights %.100s: write positive numbers, of the primary first, then of the mirrors in their order, "
			       "for example 4:1; at most %u",
			       text, LOADER_REPLICAS_MAX);
		return -EINVAL;
	}
	if (replicas == 0 || replicas == count)
		return 0;
	(void)snprintf(message, message_bytes,
		       "--drive-weights %.100s: %u weights, but %u for the primary and its mirrors: write one for each", text,
		       count, replicas);
	return -EINVAL;
}

static int take_weights(struct drives *drives, const char *weights, uint32_t replicas, char *message, size_t message_bytes)
{
	int r = drive_check_weights(weights, replicas, message, message_bytes);

	if (r < 0 || weights == NULL)
		return r;
	drives->weights = DRIVE_WEIGHTS_DECLARED;
	return drive_parse_weights(weights, drives->declared, &drives->declared_count);
}

int drive_open_all(struct manager *manager, const char *weights, char *message, size_t message_bytes)
{
	struct drives *drives = calloc(1, sizeof *drives);
	int r = -ENOMEM;

	if (drives != NULL)
		drives->file = calloc(LOADER_FILES_MAX, sizeof *drives->file);
	if (drives == NULL || drives->file == NULL)
		(void)snprintf(message, message_bytes, "cannot remember the drives: %s", strerror(ENOMEM));
	else
		r = take_weights(drives, weights, manager->settings != NULL ? 1 + manager->settings->mirror.count : 0, message,
				 message_bytes);
	if (r < 0) {
		if (drives != NULL)
			free(drives->file);
		free(drives);
		return r;
	}
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) { /* no weight: until they are weighed the primary serves alone */
		drives->drive[i].probe.manager = manager;
		drives->drive[i].probe.drive = i;
	}
	drives->bytes_before = cnre_counter_get(&manager->counters->bytes_read);
	cnre_counter_set(&manager->counters->replicas_degraded, 0); /* a level that a former incarnation left */
	manager->drives = drives;
	drive_files_changed(manager);
	return 0;
}

void drive_close_all(struct manager *manager)
{
	struct drives *drives = manager->drives;
	int hangs = 0;

	if (drives == NULL)
		return;
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		drive_probe_close(&drives->drive[i]);
		hangs |= drive_reach_close(&drives->drive[i].reach) < 0;
	}
	manager->drives = NULL;
	if (hangs)
		return; /* what the thread has stays, and goes with the process */
	free(drives->file);
	free(drives);
}
