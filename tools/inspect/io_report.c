/* SPDX-License-Identifier: Apache-2.0 */
/* What io has counted, as JSON; see io.h. Totals are of the manager and the engines; others are told apart. */
#include "tools/inspect/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static const char *const role_name[] = {[IO_MANAGER] = "manager", [IO_ENGINE] = "engine", [IO_KERNEL] = "kernel", [IO_OTHER] = "other"};

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

struct line {                             /* of a list that is sorted and cut */
	uint64_t bytes;
	json_t *json;
};

struct lines {
	struct line *line;
	size_t count, room;
};

static void add_line(struct lines *lines, uint64_t bytes, json_t *json)
{
	if (lines->count == lines->room) {
		size_t room = lines->room == 0 ? 64 : lines->room * 2;
		struct line *grown = reallocarray(lines->line, room, sizeof *grown);

		if (grown == NULL) {
			json_decref(json);
			return;
		}
		lines->line = grown;
		lines->room = room;
	}
	lines->line[lines->count++] = (struct line){.bytes = bytes, .json = json};
}

static int compare(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	return (left->bytes < right->bytes) - (left->bytes > right->bytes);
}

/* The largest `most`, and frees the rest. */
static json_t *finish(struct lines *lines, uint32_t most)
{
	json_t *list = json_array();

	if (lines->count > 1)
		qsort(lines->line, lines->count, sizeof lines->line[0], compare);
	for (size_t i = 0; i < lines->count; i++) {
		if (i < most)
			(void)json_array_append(list, lines->line[i].json);
		json_decref(lines->line[i].json);
	}
	free(lines->line);
	return list;
}

static json_t *experts_of(const struct inspect *inspect)
{
	const struct io *io = inspect->state;
	struct lines lines = {.count = 0};

	for (uint32_t m = 0; m < io->checkpoint.model_count; m++) {
		const struct model_catalog *catalog = io->checkpoint.model[io->checkpoint.model[m].files_of].catalog;

		for (uint32_t i = 0; i < catalog->object_count; i++)
			if (io->expert[m][i].bytes > 0)
				add_line(&lines, io->expert[m][i].bytes,
					 json_pack("{s:s, s:I, s:I, s:I}", "model", inspect->subject.model[m], "layer",
						   (json_int_t)catalog->object[i].layer, "expert", (json_int_t)catalog->object[i].expert, "bytes",
						   (json_int_t)io->expert[m][i].bytes));
	}
	return finish(&lines, inspect->options.top);
}

static json_t *layers_of(const struct inspect *inspect)
{
	const struct io *io = inspect->state;
	json_t *list = json_array();

	for (uint32_t m = 0; m < io->checkpoint.model_count; m++) {
		const struct model_catalog *catalog = io->checkpoint.model[io->checkpoint.model[m].files_of].catalog;

		for (uint32_t k = 0; k < catalog->layer_count; k++) {
			const struct model_layer *layer = &catalog->layer[k];
			uint64_t bytes = 0;

			for (uint32_t i = 0; i < layer->expert_count; i++)
				bytes += io->expert[m][layer->first_object + i].bytes;
			if (bytes > 0)
				(void)json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "model", inspect->subject.model[m], "layer",
									    (json_int_t)k, "bytes", (json_int_t)bytes));
		}
	}
	return list;
}

static json_t *clients_of(const struct inspect *inspect)
{
	const struct io *io = inspect->state;
	struct lines lines = {.count = 0};

	for (uint32_t i = 0; i < io->tally.client_count; i++) {
		const struct tally_client *from = &io->tally.client[i];
		const struct subject_client *client = subject_session(&inspect->subject, from->session);
		const char *name = from->session == 0 ? "nobody: warming, or for the leases of an adopted session" : client != NULL ? client->name : "";

		add_line(&lines, from->bytes,
			 json_pack("{s:I, s:I, s:s, s:I, s:I}", "session", (json_int_t)from->session, "pid",
				   (json_int_t)(from->session != 0 && client != NULL ? client->process : 0), "name", name, "bytes",
				   (json_int_t)from->bytes, "loads", (json_int_t)from->loads));
	}
	return finish(&lines, UINT32_MAX);
}

static json_t *classes_of(const uint64_t bytes[TALLY_CLASSES])
{
	json_t *json = json_object();

	for (uint32_t i = 0; i < TALLY_CLASSES; i++)
		(void)json_object_set_new(json, tally_class_name[i], number(bytes[i]));
	return json;
}

static uint64_t sum_of(const uint64_t bytes[TALLY_CLASSES])
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < TALLY_CLASSES; i++)
		sum += bytes[i];
	return sum;
}

static json_t *drives_of(const struct inspect *inspect)
{
	const struct io *io = inspect->state;
	struct lines lines = {.count = 0};

	for (uint32_t i = 0; i < io->tally.drive_count; i++) {
		const struct tally_drive *drive = &io->tally.drive[i];
		dev_t device = file_extents_number(drive->device);
		char name[32];

		(void)snprintf(name, sizeof name, "%u:%u", major(device), minor(device));
		add_line(&lines, sum_of(drive->bytes),
			 json_pack("{s:s, s:I, s:o}", "device", name, "bytes", (json_int_t)sum_of(drive->bytes), "by", classes_of(drive->bytes)));
	}
	return finish(&lines, UINT32_MAX);
}

/* What a thread of the kernel read for a load is the manager's: the read was throttled, and begun for it later. */
static int is_counted(const struct inspect *inspect, const struct tally_process *process)
{
	enum io_role role = io_role_of(inspect, process);

	return role == IO_MANAGER || role == IO_ENGINE || (role == IO_KERNEL && process->bytes[TALLY_LOAD] > 0);
}

static json_t *processes_of(const struct inspect *inspect, uint64_t ret_total[TALLY_CLASSES], uint64_t *ret_cached)
{
	const struct io *io = inspect->state;
	struct lines lines = {.count = 0};

	for (uint32_t i = 0; i < io->tally.process_count; i++) {
		struct tally_process *process = &io->tally.process[i];
		const struct subject_client *client = subject_client_of(&inspect->subject, process->process);

		/* It was restarted, and read before it was known to be the manager. */
		if (io_role_of(inspect, process) == IO_MANAGER) {
			process->bytes[io->has_own_reads ? TALLY_OWN : TALLY_UNKNOWN] += process->bytes[TALLY_SELF];
			process->bytes[TALLY_SELF] = 0;
		}
		if (is_counted(inspect, process)) {
			for (uint32_t k = 0; k < TALLY_CLASSES; k++)
				ret_total[k] += process->bytes[k];
			*ret_cached += process->cached_bytes;
		}
		add_line(&lines, sum_of(process->bytes),
			 json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:o}", "pid", (json_int_t)process->process, "name", process->name,
				   "role", role_name[io_role_of(inspect, process)], "session", (json_int_t)(client != NULL ? client->session : 0),
				   "bytes", (json_int_t)sum_of(process->bytes), "cached_bytes", (json_int_t)process->cached_bytes, "self_bytes",
				   (json_int_t)process->bytes[TALLY_SELF], "self_file", io_file_name(io, process->file), "by",
				   classes_of(process->bytes)));
	}
	return finish(&lines, UINT32_MAX);
}

/* Of a checkpoint's file the path is known, whoever has closed it. */
static const char *path_of(struct io *io, const struct tally_unexplained *from)
{
	uint32_t file = checkpoint_file_of(&io->checkpoint, from->device, from->inode);

	if (from->inode == 0)
		return "";
	return file != EXTENT_NO_FILE ? io->checkpoint.file[file].path : known_files_path(&io->files, from->process, from->device, from->inode);
}

static json_t *unexplained_of(struct inspect *inspect)
{
	struct io *io = inspect->state;
	struct lines lines = {.count = 0};

	for (uint32_t i = 0; i < io->tally.unexplained_count; i++) {
		const struct tally_unexplained *from = &io->tally.unexplained[i];
		const struct tally_process *process = tally_process(&io->tally, from->process, "");
		dev_t device = file_extents_number(from->device);
		char name[32];

		if (process == NULL || !is_counted(inspect, process))
			continue;
		(void)snprintf(name, sizeof name, "%u:%u", major(device), minor(device));
		add_line(&lines, from->bytes,
			 json_pack("{s:I, s:s, s:s, s:s, s:s, s:I}", "pid", (json_int_t)from->process, "name", process->name, "what",
				   tally_class_name[from->class], "device", name, "file",
				   path_of(io, from), "bytes",
				   (json_int_t)from->bytes));
	}
	return finish(&lines, inspect->options.top);
}

static void set_totals(json_t *report, const struct io *io, const uint64_t total[TALLY_CLASSES], uint64_t cached, uint64_t lost)
{
	uint64_t all = sum_of(total) + lost, attributed = 0;

	for (uint32_t i = 0; i < TALLY_CLASSES; i++)
		attributed += tally_is_attributed(i) ? total[i] : 0;
	(void)json_object_set_new(report, "total_bytes", number(all));
	(void)json_object_set_new(report, "attributed_bytes", number(attributed));
	(void)json_object_set_new(report, "attributed_share", all > 0 ? json_real((double)attributed / (double)all) : json_null());
	(void)json_object_set_new(report, "self_bytes", number(total[TALLY_SELF]));
	(void)json_object_set_new(report, "unexplained_bytes", number(all - attributed - total[TALLY_SELF]));
	(void)json_object_set_new(report, "cached_bytes", number(cached));
	(void)json_object_set_new(report, "beyond_bytes", number(io->tally.beyond));
	(void)json_object_set_new(report, "by", classes_of(total));
	(void)json_object_set_new(report, "kinds",
				  json_pack("{s:I, s:I, s:I}", "demand", (json_int_t)io->tally.kind_bytes[LOAD_DEMAND], "prefetch",
					    (json_int_t)io->tally.kind_bytes[LOAD_PREFETCH], "warm", (json_int_t)io->tally.kind_bytes[LOAD_WARM]));
}

json_t *io_report(struct inspect *inspect)
{
	const struct io *io = inspect->state;
	json_t *report = inspect_report_new(inspect);
	uint64_t total[TALLY_CLASSES] = {0}, cached = 0, lost[EVENT_LOST_KINDS];
	json_t *processes = processes_of(inspect, total, &cached);

	programs_lost(inspect->programs, lost);
	/* Nobody knows whose the lost ones were, so they count as unexplained. */
	set_totals(report, io, total, cached, lost[EVENT_LOST_READ_BYTES]);
	(void)json_object_set_new(report, "processes", processes);
	(void)json_object_set_new(report, "unexplained", unexplained_of(inspect));
	(void)json_object_set_new(report, "clients", clients_of(inspect));
	(void)json_object_set_new(report, "drives", drives_of(inspect));
	(void)json_object_set_new(report, "layers", layers_of(inspect));
	(void)json_object_set_new(report, "experts", experts_of(inspect));
	return report;
}
