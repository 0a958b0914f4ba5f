/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See io.h. A read is cut where file, expert or load change, and each piece is counted once. Whether it was for a load, the
 * manager's own probes say: load_chunk comes before the read does, from the same thread or through the queue of its pool.
 */
#include "tools/inspect/io.h"

#include "tools/inspect/load_events.h"

#include <string.h>

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
	const struct load_entry *load = load_events_take(&io->loads, event);
	struct tally_client *client;

	if (event->kind != EVENT_LOAD_START || load == NULL)
		return;
	inspect->wants_refresh |= load->session != 0 && subject_session(&inspect->subject, load->session) == NULL;
	client = tally_client(&io->tally, load->session);
	if (client != NULL)
		client->loads++;
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

/* ---- time ---- */

/* Those that are new since the last time are told of wherever they read. */
void io_tick(struct inspect *inspect)
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

const struct inspect_verb inspect_io = {
	.name = "io",
	.summary = "bytes read from drives: for which expert, client and drive, and what is unexplained",
	.wants_reads = 1,
	.probes = probes,
	.open = io_open,
	.take = take,
	.tick = io_tick,
	.report = io_report,
	.print = io_print,
	.close = io_close,
};
