/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See io.h. A read is cut where file, expert or load change, and each piece is counted once. Whether it was for a load, the
 * manager's own probes say: load_chunk comes before the read does, from the same thread or through the queue of its pool.
 */
#include "tools/inspect/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define AHEAD_BYTES_LEAST (256u << 10)    /* twice the default of Linux */

static const struct inspect_probe probes[] = {
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_start", EVENT_LOAD_START, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_chunk", EVENT_LOAD_CHUNK, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_done", EVENT_LOAD_DONE, 0},
	{.name = NULL},
};

const char *io_file_name(const struct io *io, uint32_t file)
{
	const char *path = file < io->checkpoint.file_count ? io->checkpoint.file[file].path : "", *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

enum io_role io_role_of(const struct inspect *inspect, const struct tally_process *process)
{
	if (process->is_kernel)
		return IO_KERNEL;
	if (subject_is_manager(&inspect->subject, process->process))
		return IO_MANAGER;
	return subject_client_of(&inspect->subject, process->process) != NULL ? IO_ENGINE : IO_OTHER;
}

/* ---- loads ---- */

static void take_load(struct inspect *inspect, const struct event *event)
{
	struct io *io = inspect->state;
	const __u64 *argument = event->argument;
	struct tally_client *client;

	if (event->kind == EVENT_LOAD_START) {
		(void)load_table_start(&io->loads, (uint32_t)argument[0],
				       &(struct load_entry){.name = {(uint32_t)argument[1], (uint32_t)argument[2], (uint32_t)argument[3]},
							    .slab_bytes = argument[4],
							    .session = (uint32_t)argument[5],
							    .kind = (uint32_t)argument[6],
							    .start_ns = event->at_ns});
		client = tally_client(&io->tally, (uint32_t)argument[5]);
		inspect->wants_refresh |= argument[5] != 0 && subject_session(&inspect->subject, (uint32_t)argument[5]) == NULL;
		if (client != NULL)
			client->loads++;
	} else if (event->kind == EVENT_LOAD_CHUNK) {
		load_table_chunk(&io->loads, (uint32_t)argument[0],
				 &(struct load_chunk){.drive = (uint32_t)argument[1],
						      .device = file_extents_device((dev_t)argument[2]),
						      .inode = argument[3],
						      .file_off = argument[4],
						      .bytes = argument[5]});
	} else {
		(void)load_table_done(&io->loads, (uint32_t)argument[0],
				      &(struct load_entry){.status = (int32_t)argument[4], .done_ns = event->at_ns});
	}
}

static void add_load(struct io *io, const struct load_entry *load, uint64_t bytes)
{
	struct tally_client *client = tally_client(&io->tally, load->session);
	const struct model_catalog *catalog;
	int64_t object = -1;

	io->tally.kind_bytes[load->kind < 3 ? load->kind : 0] += bytes;
	if (client != NULL)
		client->bytes += bytes;
	if (load->name.model < io->checkpoint.model_count) {
		catalog = io->checkpoint.model[io->checkpoint.model[load->name.model].files_of].catalog;
		object = model_catalog_find(catalog, load->name.layer, load->name.expert);
	}
	if (object >= 0)
		io->expert[load->name.model][object].bytes += bytes;
	else
		io->tally.beyond += bytes;
}

/* ---- reads ---- */

/*
 * At once, not only in a report: somebody reads experts past the manager. But not before the manager was asked who it is: one that
 * was restarted a moment ago reads under another number.
 */
static void expose(const struct inspect *inspect, struct tally_process *process)
{
	const struct io *io = inspect->state;

	if (process->is_exposed || process->bytes[TALLY_SELF] == 0 || io_role_of(inspect, process) == IO_MANAGER)
		return;
	process->is_exposed = 1;
	(void)fprintf(stderr, "cnre-inspect: io: process %u (%s) reads experts by itself, past the manager: %s\n", process->process,
		      process->name, io->checkpoint.file[process->file].path);
}

/*
 * What the manager reads, and for no load. Through the page cache the kernel reads more than a load, or whoever reads a header,
 * has asked for.
 */
static enum tally_class unasked_class(const struct io *io, const struct event *event, struct tally_process *process,
				      const struct checkpoint_piece *piece)
{
	const struct checkpoint_file *file = &io->checkpoint.file[piece->file];
	const struct tally_piece judged = {.file = piece->file,
					   .file_off = piece->file_off,
					   .bytes = piece->bytes,
					   .kind = piece->kind,
					   .is_cached = (event->flags & EVENT_CACHED) != 0};
	int goes_on = process->chain.file == piece->file && process->chain.end == piece->file_off;
	enum tally_class class = tally_judge(&process->chain, &judged, io->ahead_bytes);

	if (class == TALLY_HEADER || class == TALLY_AHEAD)
		return class;
	if (judged.is_cached && ((class == TALLY_DENSE && goes_on) ||
				 load_table_is_near(&io->loads, file->place.device, file->place.inode, piece->file_off, io->ahead_bytes)))
		return TALLY_AHEAD;
	return io->has_own_reads ? TALLY_OWN : TALLY_UNKNOWN;
}

static void take_manager_piece(struct inspect *inspect, const struct event *event, struct tally_process *process,
			       struct checkpoint_piece *piece)
{
	struct io *io = inspect->state;
	const struct checkpoint_file *file = &io->checkpoint.file[piece->file];
	uint64_t reading;
	const struct load_entry *load =
		load_table_reader(&io->loads, file->place.device, file->place.inode, piece->file_off, &reading);

	if (load != NULL) {
		if (piece->bytes > reading)
			piece->bytes = reading;
		add_load(io, load, piece->bytes);
	}
	tally_add(&io->tally, process, load != NULL ? TALLY_LOAD : unasked_class(io, event, process, piece), event->argument[0],
		  file->place.inode, piece->bytes);
}

static int is_dense_at(const struct io *io, uint64_t device, uint64_t begin, uint64_t bytes, uint32_t file)
{
	struct checkpoint_piece next;

	if (bytes == 0)
		return 0;
	next = checkpoint_cut(&io->checkpoint, device, begin, bytes);
	return next.file == file && next.kind != RANGE_EXPERT;
}

static void take_other_piece(struct inspect *inspect, const struct event *event, struct tally_process *process,
			     const struct checkpoint_piece *piece, uint64_t begin, uint64_t left)
{
	struct io *io = inspect->state;
	const struct tally_piece judged = {
		.file = piece->file,
		.file_off = piece->file_off,
		.bytes = piece->bytes,
		.kind = piece->kind,
		.is_cached = (event->flags & EVENT_CACHED) != 0,
		.is_before_dense = is_dense_at(io, event->argument[0], begin + piece->bytes, left - piece->bytes, piece->file),
	};
	enum tally_class class = tally_judge(&process->chain, &judged, io->ahead_bytes);

	tally_add(&io->tally, process, class, event->argument[0], 0, piece->bytes);
	if (class != TALLY_SELF)
		return;
	process->file = piece->file;
	inspect->wants_refresh |= !process->is_exposed;
}

static void take_unknown(struct inspect *inspect, const struct event *event, struct tally_process *process, uint64_t begin, uint64_t bytes,
			 int is_manager)
{
	struct io *io = inspect->state;
	uint64_t device = event->argument[0], inode = event->argument[3];
	enum tally_class class = TALLY_UNKNOWN;

	if ((event->flags & EVENT_METADATA) != 0)
		class = TALLY_METADATA;
	else if (is_manager && known_files_is_kv(&io->files, device, begin))
		class = TALLY_KV;
	else if (inode != 0 && known_files_path(&io->files, event->process, device, inode)[0] != '\0')
		class = TALLY_FILE;
	tally_add(&io->tally, process, class, device, inode, bytes);
}

static void take_read(struct inspect *inspect, const struct event *event)
{
	struct io *io = inspect->state;
	uint64_t device = event->argument[0], begin = event->argument[1], left = event->argument[2];
	int is_kernel = (event->flags & EVENT_KERNEL) != 0, is_manager = subject_is_manager(&inspect->subject, event->process);
	int is_ours = is_manager || subject_client_of(&inspect->subject, event->process) != NULL;
	struct tally_process *process = NULL;

	if (!known_files_is_mounted(&io->files, device))
		return;
	while (left > 0) {
		struct checkpoint_piece piece = checkpoint_cut(&io->checkpoint, device, begin, left);

		/* What others read elsewhere on the same disk is nobody's business here. */
		if (process == NULL && (is_ours || piece.file != EXTENT_NO_FILE)) {
			process = tally_process(&io->tally, event->process, event->comm);
			if (process == NULL) {
				io->tally.beyond += left;
				return;
			}
			process->is_kernel = is_kernel;
			process->reads++;
			process->cached_bytes += (event->flags & EVENT_CACHED) != 0 ? left : 0;
		}
		if (piece.file != EXTENT_NO_FILE && (is_manager || is_kernel))
			take_manager_piece(inspect, event, process, &piece);
		else if (piece.file != EXTENT_NO_FILE)
			take_other_piece(inspect, event, process, &piece, begin, left);
		else if (is_ours)
			take_unknown(inspect, event, process, begin, piece.bytes, is_manager);
		begin += piece.bytes;
		left -= piece.bytes;
	}
}

static void take(struct inspect *inspect, const struct event *event)
{
	if (event->kind == EVENT_READ)
		take_read(inspect, event);
	else
		take_load(inspect, event);
}

/* ---- life ---- */

/* Those that are new since the last time are told of wherever they read. */
static void tick(struct inspect *inspect)
{
	struct io *io = inspect->state;
	const struct subject *subject = &inspect->subject;

	for (uint32_t i = 0; i < io->tally.process_count; i++)
		expose(inspect, &io->tally.process[i]);

	for (; io->watched_managers < subject->manager_count; io->watched_managers++)
		(void)programs_watch_process(inspect->programs, subject->manager[io->watched_managers]);
	for (; io->watched_clients < subject->client_count; io->watched_clients++)
		if (programs_watch_process(inspect->programs, subject->client[io->watched_clients].process) < 0)
			inspect_note(inspect, "more than %u processes were attached: of the last ones only reads on the checkpoint's drives are seen",
				     EVENT_PROCESSES_MAX);
}

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

static void close_io(struct inspect *inspect)
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

static int open_io(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
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
	tick(inspect);
	return 0;
}

const struct inspect_verb inspect_io = {
	.name = "io",
	.summary = "bytes read from drives: for which expert, client and drive, and what is unexplained",
	.wants_reads = 1,
	.probes = probes,
	.open = open_io,
	.take = take,
	.tick = tick,
	.report = io_report,
	.print = io_print,
	.close = close_io,
};
