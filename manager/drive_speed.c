/* SPDX-License-Identifier: Apache-2.0 */
/* How fast drives are, and the weights that follow; see drive.h. */
#include "manager/drive_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/feed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- which shards lie on the same drives ---- */

static uint32_t drives_of_shard(const struct manager *manager, const struct shard_files *files)
{
	uint32_t drives = 0;

	for (uint32_t i = 0; i < files->count; i++)
		drives |= 1u << drive_of_file(manager, files->file[i]);
	return drives;
}

/* Beyond the bound they count with the last one: the weights are less well balanced then. */
static void add_to_group(struct drives *drives, uint32_t mask, double bytes)
{
	uint32_t i = 0;

	while (i < drives->group_count && drives->group[i].drives != mask)
		i++;
	if (i == drives->group_count && i < REPLICA_GROUPS_MAX)
		drives->group[drives->group_count++] = (struct replica_group){.drives = mask};
	if (i == REPLICA_GROUPS_MAX)
		i--;
	drives->group[i].bytes += bytes;
}

/* By use: what nobody asks for loads no drive. One use more for each, since nobody has asked for anything at first. */
static void add_model(struct manager *manager, const struct served_model *model, const uint32_t *uses)
{
	const struct model_catalog *catalog = model->catalog;

	for (uint32_t i = 0; i < catalog->object_count; i++) {
		const struct model_object *object = &catalog->object[i];
		const struct model_shape *shape = &catalog->shape[object->shape];
		double times = 1.0 + (uses != NULL ? uses[model->first_owner + i] : 0);

		for (uint32_t role = 0; role < MODEL_ROLES; role++)
			if (shape->part[role].bytes > 0)
				add_to_group(manager->drives,
					     drives_of_shard(manager, &model->files_of_shard[object->piece[role].shard]),
					     (double)shape->part[role].bytes * times);
	}
}

void drive_look_at_groups(struct manager *manager)
{
	const uint32_t *uses = manager->feed != NULL ? feed_uses(manager) : NULL;

	manager->drives->group_count = 0;
	for (uint32_t m = 0; m < manager->model_count; m++)
		add_model(manager, &manager->model[m], uses);
}

/* ---- speeds ---- */

void drive_measure_unknown(struct manager *manager)
{
	struct drives *drives = manager->drives;

	for (uint32_t i = 0; i < loader_drives(manager->loader) && drives->declared_count == 0; i++)
		if (drives->drive[i].is_replicated && drives->drive[i].speed == 0)
			drive_probe_speed(manager, i);
}

static double part_of_sample(const struct drive *drive, int64_t busy_ns, int is_probe, int64_t now_ns)
{
	int64_t window_ns = now_ns - drive->sample_begun_ns;

	if (drive->speed == 0 || is_probe)
		return drive->speed == 0 ? 1 : DRIVE_SAMPLE_PART;
	return (double)busy_ns >= DRIVE_SAMPLE_BUSY * (double)window_ns ? DRIVE_SAMPLE_PART : DRIVE_SAMPLE_IDLE_PART;
}

static void begin_sample(struct drive *drive, const struct loader_drive_status *status, int64_t now_ns)
{
	drive->sampled_bytes = status->bytes;
	drive->sampled_ns = status->busy_ns;
	drive->sample_begun_ns = now_ns;
}

/* What arrived in the time in which reads were out: with little to do a drive is no slower for it. */
void drive_sample(struct manager *manager, uint32_t number, int is_probe)
{
	struct drive *drive = &manager->drives->drive[number];
	int64_t busy_ns, now_ns = cnre_clock_now_ns();
	struct loader_drive_status status;
	uint64_t bytes;

	loader_get_drive(manager->loader, number, &status);
	bytes = status.bytes - drive->sampled_bytes;
	busy_ns = status.busy_ns - drive->sampled_ns;
	if (bytes == 0 || busy_ns <= 0) {
		begin_sample(drive, &status, now_ns); /* the time of a pause is no part of a sample */
		return;
	}
	/* Shards may be small: a probe of them measures how long a read takes to begin, and the first reads will tell more. */
	if (bytes < (is_probe ? DRIVE_PROBE_BYTES : DRIVE_SAMPLE_BYTES) || (!is_probe && busy_ns < DRIVE_SAMPLE_NS))
		return;
	drive->speed += part_of_sample(drive, busy_ns, is_probe, now_ns) * ((double)bytes * 1e9 / (double)busy_ns - drive->speed);
	begin_sample(drive, &status, now_ns);
}

static enum drive_weights what_is_known(const struct manager *manager)
{
	enum drive_weights known = DRIVE_WEIGHTS_MEASURED;

	for (uint32_t i = 0; i < loader_drives(manager->loader); i++) {
		const struct drive *drive = &manager->drives->drive[i];

		if (!drive->is_replicated || drive->speed > 0)
			continue;
		if (drive->probe.reads_left == 0 && !drive->probe.is_out)
			return DRIVE_WEIGHTS_EQUAL;
		known = DRIVE_WEIGHTS_MEASURING;
	}
	return known;
}

static double fastest(const struct drives *drives)
{
	double most = 0;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++)
		if (drives->drive[i].is_replicated)
			most = fmax(most, drives->drive[i].speed);
	return most;
}

/* ---- weights ---- */

static int has_changed(const struct drives *drives, const double weight[LOADER_DRIVES_MAX])
{
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		double before = drives->drive[i].weight;

		if ((before == 0) != (weight[i] == 0) || fabs(weight[i] - before) > before * DRIVE_CHANGE_MIN)
			return 1;
	}
	return 0;
}

/* In parts of their sum, so that a look at which changed means the same at any speed. */
static void scale(double weight[LOADER_DRIVES_MAX])
{
	double sum = 0;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++)
		sum += weight[i];
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX && sum > 0; i++)
		weight[i] /= sum;
}

/* A drive is called by a file that lies on it. */
static const char *path_on(const struct manager *manager, uint32_t number)
{
	for (uint32_t m = 0; m < manager->model_count; m++)
		for (uint32_t s = 0; s < manager->model[m].catalog->shard_count; s++) {
			const struct shard_files *files = &manager->model[m].files_of_shard[s];

			for (uint32_t i = 0; i < files->count; i++)
				if (drive_of_file(manager, files->file[i]) == number)
					return loader_file_path(manager->loader, files->file[i]);
		}
	return "";
}

static void say_weights(const struct manager *manager)
{
	const struct drives *drives = manager->drives;
	char text[900] = "";

	for (uint32_t i = 0; i < loader_drives(manager->loader); i++) {
		size_t used = strlen(text);

		if (drives->drive[i].is_replicated)
			(void)snprintf(text + used, sizeof text - used, "%sof %.120s %.0f MB/s (%.0f %%)", used > 0 ? ", " : "",
				       path_on(manager, i), drives->drive[i].speed / 1e6, drives->drive[i].weight * 100);
	}
	cnre_log(CNRE_LOG_INFO, "drives with replicas: %s", text);
}

static void put_in_force(struct manager *manager, enum drive_weights kind, const double weight[LOADER_DRIVES_MAX])
{
	struct drives *drives = manager->drives;
	int is_first = drives->weights != kind;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		struct drive *drive = &drives->drive[i];

		is_first |= kind == DRIVE_WEIGHTS_MEASURED && drive->is_replicated && (drive->weight == 0) != (weight[i] == 0);
		drive->weight = weight[i];
	}
	drives->weights = kind;
	if (is_first && kind == DRIVE_WEIGHTS_MEASURED)
		say_weights(manager); /* at first, and where a drive becomes a spare or ceases to be one */
}

void drive_weigh(struct manager *manager)
{
	struct drives *drives = manager->drives;
	double speed[LOADER_DRIVES_MAX] = {0}, weight[LOADER_DRIVES_MAX], most = fastest(drives);
	enum drive_weights known = what_is_known(manager);

	if (drives->declared_count > 0)
		return;
	for (uint32_t i = 0; i < loader_drives(manager->loader); i++) {
		const struct drive *drive = &drives->drive[i];

		if (known == DRIVE_WEIGHTS_EQUAL)
			speed[i] = 1;
		else if (!drive->is_replicated)
			speed[i] = most; /* it is weighed against none */
		else
			speed[i] = drive->speed * DRIVE_SPARE_PART < most ? 0 : drive->speed;
	}
	replica_balance(drives->group, drives->group_count, speed, weight);
	scale(weight);
	if (drives->weights != known || has_changed(drives, weight))
		put_in_force(manager, known, weight);
}
