/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl drives: what each drive holds, how well it is, what it did, and what part of the reads it gets. */
#include "base/clock.h"
#include "manager/drive_inner.h"
#include "manager/feed.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "manager/stall.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define DEVICE_LINE_BYTES 256

/* Of all models together, and of one drive. */
struct coverage {
	double bytes, used_bytes; /* of expert payload; times uses */
};

static double seconds(int64_t ns)
{
	return (double)ns / 1e9;
}

/* "nvme0n1p1", from the kernel's own words about a device; 0: it has none, as a network's or a tmpfs. */
static int read_device_name(uint64_t device, char name[DEVICE_LINE_BYTES])
{
	char path[64], line[DEVICE_LINE_BYTES];
	FILE *file;
	int found = 0;

	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/uevent", major(device), minor(device));
	file = fopen(path, "re");
	while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
		found = sscanf(line, "DEVNAME=%255s", name) == 1;
	if (file != NULL)
		(void)fclose(file);
	return found;
}

static int is_on(const struct manager *manager, const struct shard_files *files, uint32_t drive)
{
	for (uint32_t i = 0; i < files->count; i++)
		if (drive_of_file(manager, files->file[i]) == drive)
			return 1;
	return 0;
}

/* By shard of a model: one look at its objects, of which there are many more than shards. */
static void add_objects(const struct served_model *model, const uint32_t *uses, struct coverage *of_shard)
{
	const struct model_catalog *catalog = model->catalog;

	for (uint32_t i = 0; i < catalog->object_count; i++) {
		const struct model_object *object = &catalog->object[i];

		for (uint32_t role = 0; role < MODEL_ROLES; role++) {
			double bytes = (double)catalog->shape[object->shape].part[role].bytes;

			of_shard[object->piece[role].shard].bytes += bytes;
			of_shard[object->piece[role].shard].used_bytes += bytes * uses[model->first_owner + i];
		}
	}
}

/* Of each drive, and in the last place of everything. Zeros where there is no memory: then nothing is said of it. */
static void sum_up(struct manager *manager, struct coverage ret_coverage[LOADER_DRIVES_MAX + 1])
{
	const uint32_t *uses = feed_uses(manager);

	for (uint32_t m = 0; m < manager->model_count; m++) {
		const struct served_model *model = &manager->model[m];
		struct coverage *of_shard = calloc(model->catalog->shard_count, sizeof *of_shard);

		if (of_shard == NULL)
			return;
		add_objects(model, uses, of_shard);
		for (uint32_t shard = 0; shard < model->catalog->shard_count; shard++)
			for (uint32_t drive = 0; drive <= LOADER_DRIVES_MAX; drive++) {
				if (drive < LOADER_DRIVES_MAX && !is_on(manager, &model->files_of_shard[shard], drive))
					continue;
				ret_coverage[drive].bytes += of_shard[shard].bytes;
				ret_coverage[drive].used_bytes += of_shard[shard].used_bytes;
			}
		free(of_shard);
	}
}

struct holding { /* what a drive holds */
	uint32_t primaries, mirrors, degraded;
	uint32_t file; /* one of them */
};

static struct holding holding_of(const struct manager *manager, uint32_t drive)
{
	struct holding holding = {.file = DRIVE_ANY};

	for (uint32_t m = 0; m < manager->model_count; m++) {
		/* The shards of a view are its checkpoint's. */
		for (uint32_t s = 0; manager->model[m].checkpoint == NULL && s < manager->model[m].catalog->shard_count; s++) {
			const struct shard_files *files = &manager->model[m].files_of_shard[s];

			for (uint32_t i = 0; i < files->count; i++) {
				if (drive_of_file(manager, files->file[i]) != drive)
					continue;
				holding.primaries += i == 0;
				holding.mirrors += i > 0;
				holding.degraded += manager->drives->file[files->file[i]].health.is_degraded != 0;
				if (holding.file == DRIVE_ANY)
					holding.file = files->file[i];
			}
		}
	}
	return holding;
}

static json_t *report_directory(const struct manager *manager, uint32_t file)
{
	char path[512] = "";
	char *slash;

	if (file != DRIVE_ANY)
		(void)snprintf(path, sizeof path, "%s", loader_file_path(manager->loader, file));
	slash = strrchr(path, '/');
	if (slash != NULL)
		*slash = '\0';
	return report_text(path);
}

static json_t *report_errors(const struct drive *drive)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "io", (json_int_t)drive->errors[DRIVE_ERROR_IO], "short",
			 (json_int_t)drive->errors[DRIVE_ERROR_SHORT], "gone", (json_int_t)drive->errors[DRIVE_ERROR_GONE],
			 "digest", (json_int_t)drive->errors[DRIVE_ERROR_DIGEST], "timeout",
			 (json_int_t)drive->errors[DRIVE_ERROR_TIMEOUT]);
}

static json_t *part_of(double part, double whole)
{
	return whole > 0 ? json_real(part / whole) : json_null();
}

/* As declared for the first of its files that is replicated; 0: none is. */
static double declared_of(const struct manager *manager, uint32_t drive)
{
	for (uint32_t m = 0; m < manager->model_count; m++)
		for (uint32_t s = 0; s < manager->model[m].catalog->shard_count; s++) {
			const struct shard_files *files = &manager->model[m].files_of_shard[s];

			for (uint32_t i = 0; files->count > 1 && i < files->count; i++)
				if (drive_of_file(manager, files->file[i]) == drive)
					return manager->drives->declared[files->mirror[i]];
		}
	return 0;
}

/* A part of 1; 0: it only stands by. */
static double weight_of(const struct manager *manager, uint32_t number)
{
	double own, most = 0, sum = 0;

	if (manager->drives->declared_count == 0)
		return manager->drives->drive[number].weight;
	own = declared_of(manager, number);
	for (uint32_t i = 0; i < loader_drives(manager->loader); i++)
		most = fmax(most, declared_of(manager, i));
	if (own * DRIVE_SPARE_PART < most)
		return 0;
	for (uint32_t i = 0; i < loader_drives(manager->loader); i++)
		if (declared_of(manager, i) * DRIVE_SPARE_PART >= most)
			sum += declared_of(manager, i);
	return sum > 0 ? own / sum : 0;
}

/* And since when, in seconds; null: since the start. */
static const char *state_of(const struct manager *manager, uint32_t number, json_t **ret_for)
{
	const struct drive *drive = &manager->drives->drive[number];
	const struct stall *stall = &residency_stalls(manager)->drive[number];
	int64_t since_ns = stall->reads > 0 ? stall->since_ns : drive->health.since_ns;

	*ret_for = since_ns == 0 ? json_null() : json_real(seconds(cnre_clock_now_ns() - since_ns));
	if (stall->reads > 0)
		return "hangs";
	if (drive->health.is_degraded)
		return "degraded";
	return drive->is_replicated && weight_of(manager, number) == 0 ? "spare" : "ok";
}

#define CHECK_DRIVE "check the drive and its cable; it is taken back by itself when it reads again"
#define CHECK_FILES \
	"the log names them: compare each with the other copies; one repaired in place is taken back by itself, one that was " \
	"replaced when the manager is restarted"

/* Null: there is nothing to do. */
static json_t *advice_of(const char *state, const struct holding *holding)
{
	if (strcmp(state, "degraded") == 0 || strcmp(state, "hangs") == 0)
		return json_string(CHECK_DRIVE);
	return holding->degraded > 0 ? json_string(CHECK_FILES) : json_null();
}

static void add_place(const struct manager *manager, uint32_t number, const struct loader_drive_status *status, json_t *json)
{
	struct holding holding = holding_of(manager, number);
	char device[32], name[DEVICE_LINE_BYTES];

	(void)snprintf(device, sizeof device, "%u:%u", major(status->device), minor(status->device));
	(void)json_object_set_new(json, "device", json_string(device));
	(void)json_object_set_new(json, "name", read_device_name(status->device, name) ? report_text(name) : json_null());
	(void)json_object_set_new(json, "directory", report_directory(manager, holding.file));
	(void)json_object_set_new(json, "role",
				  json_string(holding.mirrors == 0     ? "primary"
					      : holding.primaries == 0 ? "mirror"
								       : "both"));
	(void)json_object_set_new(json, "files", json_integer(holding.primaries + holding.mirrors));
	(void)json_object_set_new(json, "files_degraded", json_integer(holding.degraded));
	(void)json_object_set_new(json, "do",
				  advice_of(json_string_value(json_object_get(json, "state")), &holding));
}

static json_t *report_drive(struct manager *manager, uint32_t number, const struct coverage *coverage, uint64_t bytes)
{
	const struct drive *drive = &manager->drives->drive[number];
	const struct coverage *all = &coverage[LOADER_DRIVES_MAX];
	struct loader_drive_status status;
	const char *state;
	json_t *state_for, *json;

	loader_get_drive(manager->loader, number, &status);
	state = state_of(manager, number, &state_for);
	json = json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:I, s:f, s:o, s:I, s:I, s:o, s:I, s:o, s:o}", "state", state, "state_s",
			 state_for, "reason",
			 drive->health.is_degraded ? json_string(health_words(drive->health.reason)) : json_null(), "weight",
			 drive->is_replicated ? json_real(weight_of(manager, number)) : json_null(), "bytes", (json_int_t)drive->bytes,
			 "share", part_of((double)drive->bytes, (double)bytes), "reads", (json_int_t)drive->reads, "read_s",
			 seconds(drive->read_ns), "bandwidth", drive->speed > 0 ? json_real(drive->speed) : json_null(),
			 "in_flight", (json_int_t)status.reads, "chunks", (json_int_t)status.chunks, "errors",
			 report_errors(drive), "failovers", (json_int_t)drive->left, "coverage",
			 part_of(coverage[number].bytes, all->bytes), "coverage_used",
			 part_of(coverage[number].used_bytes, all->used_bytes));
	report_quantiles(json, "read", &drive->read_times);
	if (json != NULL)
		add_place(manager, number, &status, json);
	return json;
}

/* Weights as they are declared are of the primary and of mirrors, not of drives. */
static json_t *report_declared(const struct drives *drives)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < drives->declared_count; i++)
		(void)json_array_append_new(list, json_real(drives->declared[i]));
	return list;
}

json_t *report_drives(struct manager *manager)
{
	static const char *const weights[] = {[DRIVE_WEIGHTS_EQUAL] = "equal",
					      [DRIVE_WEIGHTS_MEASURING] = "measuring",
					      [DRIVE_WEIGHTS_MEASURED] = "measured",
					      [DRIVE_WEIGHTS_DECLARED] = "declared"};
	const struct drives *drives = manager->drives;
	uint64_t total = cnre_counter_get(&manager->counters->bytes_read), bytes = total - drives->bytes_before;
	struct coverage coverage[LOADER_DRIVES_MAX + 1] = {0};
	json_t *list = json_array();

	sum_up(manager, coverage);
	for (uint32_t i = 0; i < loader_drives(manager->loader); i++)
		(void)json_array_append_new(list, report_drive(manager, i, coverage, bytes));
	return json_pack("{s:I, s:I, s:b, s:s, s:o, s:I, s:o, s:o, s:o}", "bytes_read", (json_int_t)total, "bytes_before",
			 (json_int_t)drives->bytes_before, "replicated", drives->has_replicas, "weights",
			 weights[drives->weights], "declared", report_declared(drives), "failovers",
			 (json_int_t)drives->failovers, "failover_last_s",
			 drives->failovers > 0 ? json_real(seconds(drives->failover_last_ns)) : json_null(), "failover_most_s",
			 drives->failovers > 0 ? json_real(seconds(drives->failover_most_ns)) : json_null(), "drives", list);
}

/* Each drive, and what of a drive that is well cannot be read. */
void report_drives_degraded(const struct manager *manager, void (*add)(json_t *list, const char *what, const char *advice),
			    json_t *list)
{
	const struct drives *drives = manager->drives;
	char what[512];

	for (uint32_t i = 0; i < loader_drives(manager->loader); i++) {
		const struct health *health = &drives->drive[i].health;

		if (!health->is_degraded || residency_stalls(manager)->drive[i].reads > 0) /* that is told of already */
			continue;
		(void)snprintf(what, sizeof what, "the drive of %.300s is not read while another replica is good: %s",
			       loader_file_path(manager->loader, drives->drive[i].bad_file), health_words(health->reason));
		add(list, what, CHECK_DRIVE ": cnrectl drives");
	}
	if (drives->degraded_files == 0)
		return;
	(void)snprintf(what, sizeof what, "%u files are not read while another replica is good", drives->degraded_files);
	add(list, what, CHECK_FILES);
}
