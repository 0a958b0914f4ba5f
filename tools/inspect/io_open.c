/* SPDX-License-Identifier: Apache-2.0 */
/* What io knows before the first read, and its end; see io.h. */
#include "tools/inspect/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define AHEAD_BYTES_LEAST (256u << 10)    /* twice the default of Linux */

static void learn_ahead(struct io *io, uint64_t device)
{
	dev_t number = file_extents_number(device);
	unsigned long long kilobytes = 0;
	char path[96];
	FILE *file;

	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/queue/read_ahead_kb", major(number), minor(number));
	file = fopen(path, "re");
	if (file == NULL)
		return;
	/* Doubled for whoever says that it reads in order. */
	if (fscanf(file, "%llu", &kilobytes) == 1 && kilobytes < (1u << 20) && kilobytes * 2048 > io->ahead_bytes)
		io->ahead_bytes = kilobytes * 2048;
	(void)fclose(file);
}

static void watch_devices(struct inspect *inspect)
{
	struct io *io = inspect->state;

	for (uint32_t i = 0; i < io->checkpoint.file_count; i++) {
		const struct checkpoint_file *file = &io->checkpoint.file[i];

		if (file->status != 0)
			inspect_note(inspect, "%.120s: where it lies on its drive is not known (%s): reads of it stay unexplained", file->path,
				     file->status == -ENOTBLK	  ? "its file system has no block device of its own"
				     : file->status == -EOPNOTSUPP ? "its file system does not say"
								   : strerror(-file->status));
		if (file->place.device == 0 || file->status == -ENOTBLK)
			continue;
		learn_ahead(io, file->place.device);
		if (programs_watch_device(inspect->programs, file->place.device) < 0)
			inspect_note(inspect, "more than %u drives: of the others only known processes' reads are seen", EVENT_DEVICES_MAX);
	}
}

void io_close(struct inspect *inspect)
{
	struct io *io = inspect->state;

	for (uint32_t i = 0; i < CHECKPOINT_MODELS_MAX; i++)
		free(io->expert[i]);
	checkpoint_close(&io->checkpoint);
	known_files_close(&io->files);
	load_table_close(&io->loads);
	tally_close(&io->tally);
	free(io);
	inspect->state = NULL;
}

/* Copies are sampled and their drives tried; a scrub reads everything in time. */
static int has_own_reads(const json_t *status)
{
	const json_t *line;
	size_t i;

	if (json_array_size(json_object_get(status, "mirrors")) > 0)
		return 1;
	json_array_foreach (json_object_get(status, "settings"), i, line) {
		const char *name = json_string_value(json_object_get(line, "name")), *value = json_string_value(json_object_get(line, "value"));

		if (name != NULL && value != NULL && strcmp(name, "scrub") == 0)
			return strcmp(value, "off") != 0;
	}
	return 0;
}

static int open_experts(struct io *io)
{
	for (uint32_t i = 0; i < io->checkpoint.model_count; i++) {
		const struct model_catalog *catalog = io->checkpoint.model[io->checkpoint.model[i].files_of].catalog;

		io->expert[i] = calloc(catalog->object_count, sizeof io->expert[i][0]);
		if (io->expert[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

int io_open(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
{
	const json_t *disk = json_object_get(json_object_get(inspect->subject.status, "kv"), "disk");
	struct io *io = inspect->state = calloc(1, sizeof *io);
	int r;

	(void)snprintf(message, INSPECT_MESSAGE_BYTES, "out of memory");
	if (io == NULL)
		return -ENOMEM;
	io->ahead_bytes = AHEAD_BYTES_LEAST;
	io->has_own_reads = has_own_reads(inspect->subject.status);
	r = tally_open(&io->tally);
	if (r == 0)
		r = load_table_open(&io->loads);
	if (r == 0)
		r = known_files_open(&io->files, json_string_value(json_object_get(disk, "directory")));
	if (r == 0)
		r = checkpoint_open(&io->checkpoint, inspect->subject.status, message);
	if (r == 0)
		r = open_experts(io);
	if (r < 0)
		return r;
	watch_devices(inspect);
	io_tick(inspect);
	return 0;
}
