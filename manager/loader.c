/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the loader: which chunk of which read goes to the engine next, and what its result means. Per
 * drive, reads wait in the order they were submitted and the oldest one gets its chunks out first, up to chunk_depth
 * chunks in the kernel: a lone object uses the whole depth, and under load the oldest object is finished first.
 *
 * A chunk stays in flight, and keeps its place in the depth and its pinned descriptor, until all its needed bytes
 * arrived or it failed; a short or interrupted attempt is continued at once, LOADER_RETRIES_MAX times without progress.
 */
#include "manager/loader_backend.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/size.h"
#include "manager/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 4096u            /* suits every drive; the catalog lays out everything in it */
#define CHUNK_BYTES_MAX (1u << 30) /* one read(2) ends near 2^31 bytes */
#define CHUNK_DEPTH_MAX 256u
#define READS_IN_FLIGHT_MAX 256u
#define POOL_THREADS_MAX 64u /* per drive */

/*
 * Defaults, found with tests/bench/bench_loader on a virtio drive (2 CPUs shared with other work, so medians of
 * interleaved rounds of 2 GiB, (lowest..highest) MiB/s, 6 MiB objects, 4 in flight, transparent huge pages):
 *
 *                        5 rounds            8 rounds            one object alone, ms
 *   256 KiB, depth  8    2709 (1865..2875)   -                   1.93
 *     1 MiB, depth  8    2918 (1864..3474)   2480 (1123..3528)   1.65
 *     1 MiB, depth 16    3187 (2438..3476)   2546 (2013..3585)   1.67
 *     2 MiB, depth  8    2906 (2515..3169)   2606 (1517..3539)   1.65
 *     2 MiB, depth 16    3326 (3012..3445)   2992 (1993..3567)   1.66
 *     4 MiB, depth 16    3237 (2758..3382)   -                   -
 *
 * Between rows of 1 MiB and more the spread is wider than the difference; 2 MiB at 16 was in front or close to it in
 * both runs, and a lone object is read no slower. Objects in flight: 2, 4 and 8 gave about the same bandwidth for 2 MiB
 * objects (3262, 3311, 3027), while a read's time grows with them (1.1, 2.3, 4.9 ms); 4 leaves a turn of the core loop
 * to spare. All of that holds for this drive; the kind of page matters more (4 KiB pages: 1242, huge ones: 3622).
 */
#define CHUNK_BYTES_DEFAULT (2u << 20)
#define CHUNK_DEPTH_DEFAULT 16u

struct loader_drive {
	dev_t device;
	struct loader_read *first, *last; /* in flight, oldest first */
	uint32_t reads;                   /* not yet reported to the caller */
	uint32_t chunks;                  /* with the engine */
	uint64_t bytes;                   /* arrived */
	int64_t busy_ns, busy_since_ns;   /* while reads are in flight; the time of the first of them */
};

struct loader {
	struct loader_status status;
	struct loader_backend *backend;
	struct file_table *files;
	uint8_t *drive_of; /* by file */
	struct loader_drive drive[LOADER_DRIVES_MAX];
	uint32_t drive_count;

	struct loader_chunk *chunk; /* all of them: chunk_depth for each drive */
	struct loader_chunks chunk_free;
	uint32_t chunks; /* with the engine, over all drives */
	uint32_t reads;
	struct loader_read *finished_first, *finished_last; /* `done` not yet called */
	int is_closing;

	void (*foreign)(void *context, uint64_t user_data, int result);
	void *foreign_context;
	void (*refused)(void *context, uint32_t file); /* NULL: nobody wants to know */
	void *refused_context;
};

void loader_note(struct loader_status *status, const char *format, ...)
{
	char text[sizeof(status->reason)];
	size_t used = strlen(status->reason);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments); /* cut where it is too long */
	va_end(arguments);
	if (strstr(status->reason, text) != NULL)
		return;
	(void)snprintf(status->reason + used, sizeof(status->reason) - used, "%s%s", used == 0 ? "" : "; ", text);
}

/* ---- reads: one list per drive while in flight, then the finished list ---- */

static void append_read(struct loader_read **first, struct loader_read **last, struct loader_read *read)
{
	read->next = NULL;
	if (*first == NULL)
		*first = read;
	else
		(*last)->next = read;
	*last = read;
}

/* At most reads_in_flight_max steps. */
static void remove_read(struct loader_drive *drive, struct loader_read *read)
{
	struct loader_read *before = NULL;

	for (struct loader_read *at = drive->first; at != read; at = at->next) {
		CNRE_CHECK(at != NULL);
		before = at;
	}
	if (before == NULL)
		drive->first = read->next;
	else
		before->next = read->next;
	if (drive->last == read)
		drive->last = before;
}

static uint64_t needed_from(const struct loader_run *run, uint64_t run_off)
{
	return run->needed_bytes > run_off ? run->needed_bytes - run_off : 0;
}

static int has_more(const struct loader_read *read)
{
	return read->status == 0 && read->next_run < read->run_count;
}

/* Moves on to the next run until something of it is needed. */
static void skip_unneeded(struct loader_read *read)
{
	while (read->next_run < read->run_count && needed_from(&read->run[read->next_run], read->next_off) == 0) {
		read->next_run++;
		read->next_off = 0;
	}
}

static void finish_if_over(struct loader *loader, struct loader_read *read)
{
	struct loader_drive *drive = &loader->drive[read->drive];

	if (has_more(read) || read->chunks_in_flight != 0)
		return;
	read->completed_ns = cnre_clock_now_ns();
	remove_read(drive, read);
	if (drive->first == NULL)
		drive->busy_ns += read->completed_ns - drive->busy_since_ns;
	append_read(&loader->finished_first, &loader->finished_last, read);
}

/* Of several failures the one that lies first in the read is reported, so that both engines report the same one. */
static void fail_read(struct loader_read *read, uint32_t run, uint64_t run_off, int status)
{
	uint64_t off = read->run[run].file_off + run_off;

	if (read->status != 0 && (read->failed_run < run || (read->failed_run == run && read->failed_off <= off)))
		return;
	read->status = status;
	read->failed_run = run;
	read->failed_off = off;
}

static int deliver(struct loader *loader)
{
	int count = 0;

	while (loader->finished_first != NULL) {
		struct loader_read *read = loader->finished_first;

		loader->finished_first = read->next;
		loader->drive[read->drive].reads--;
		loader->reads--;
		count++;
		read->done(read, read->status);
	}
	return count;
}

/* ---- chunks ---- */

static void fill_chunk(struct loader *loader, struct loader_chunk *chunk, struct loader_read *read)
{
	const struct loader_run *run = &read->run[read->next_run];
	uint64_t bytes = loader->status.chunk_bytes, needed;

	chunk->is_direct = file_is_direct(loader->files, run->file);
	chunk->is_prompt = file_is_prompt(loader->files, run->file);
	if (chunk->is_direct)
		bytes = cnre_size_align_up(bytes, ALIGNMENT);
	if (bytes > run->bytes - read->next_off)
		bytes = run->bytes - read->next_off;
	needed = needed_from(run, read->next_off);
	chunk->read = read;
	chunk->run = read->next_run;
	chunk->drive = read->drive;
	chunk->run_off = read->next_off;
	chunk->bytes = (uint32_t)bytes;
	chunk->needed = (uint32_t)(needed < bytes ? needed : bytes);
	chunk->got = 0;
	chunk->stalls = 0;
	chunk->file_off = run->file_off + read->next_off;
	chunk->memory = (char *)run->memory + read->next_off;
}

static void send_chunk(struct loader *loader, struct loader_chunk *chunk)
{
	struct loader_read *read = chunk->read;

	read->next_off += chunk->bytes;
	if (read->next_off == read->run[read->next_run].bytes) {
		read->next_run++;
		read->next_off = 0;
	}
	skip_unneeded(read);
	read->chunks_in_flight++;
	loader->drive[chunk->drive].chunks++;
	loader->chunks++;
	loader->backend->calls->issue(loader->backend, chunk);
}

/* 0: sent, or the read has failed; -EAGAIN: no descriptor to be had until a chunk in flight gives its own back. */
static int send_next(struct loader *loader, struct loader_read *read)
{
	struct loader_chunk *chunk;
	uint32_t slot;
	int fd, r = file_pin(loader->files, read->run[read->next_run].file, &slot, &fd);

	if (r < 0) {
		if ((r == -EAGAIN || r == -EMFILE || r == -ENFILE) && loader->chunks != 0)
			return -EAGAIN;
		fail_read(read, read->next_run, read->next_off, r);
		finish_if_over(loader, read);
		return 0;
	}
	chunk = loader_chunks_take(&loader->chunk_free);
	CNRE_CHECK(chunk != NULL);
	fill_chunk(loader, chunk, read);
	chunk->slot = slot;
	chunk->fd = fd;
	send_chunk(loader, chunk);
	return 0;
}

static void pump(struct loader *loader, struct loader_drive *drive)
{
	struct loader_read *read = drive->first, *next;

	for (; read != NULL; read = next) {
		next = read->next;
		while (has_more(read)) {
			if (drive->chunks == loader->status.chunk_depth || send_next(loader, read) < 0)
				return;
		}
	}
}

static void return_chunk(struct loader *loader, struct loader_chunk *chunk)
{
	struct loader_read *read = chunk->read;

	file_unpin(loader->files, chunk->slot);
	loader->drive[chunk->drive].chunks--;
	loader->chunks--;
	read->chunks_in_flight--;
	loader_chunks_add(&loader->chunk_free, chunk);
	finish_if_over(loader, read);
}

static void fail_chunk(struct loader *loader, struct loader_chunk *chunk, int status)
{
	fail_read(chunk->read, chunk->run, chunk->run_off + chunk->got, status);
	return_chunk(loader, chunk);
}

/* The rest of a chunk once more; `status` is what the read fails with when that has been tried too often. */
static void continue_chunk(struct loader *loader, struct loader_chunk *chunk, int status)
{
	if (loader->is_closing) {
		fail_chunk(loader, chunk, -ECANCELED);
		return;
	}
	if (chunk->stalls++ == LOADER_RETRIES_MAX) {
		fail_chunk(loader, chunk, status);
		return;
	}
	chunk->read->retries++;
	loader->backend->calls->issue(loader->backend, chunk);
}

static void take_bytes(struct loader *loader, struct loader_chunk *chunk, uint32_t bytes)
{
	struct loader_read *read = chunk->read;
	uint32_t total = chunk->got + bytes;

	read->bytes_read += bytes;
	loader->drive[chunk->drive].bytes += bytes;
	if (total >= chunk->needed) {
		read->run_got[chunk->run] += total;
		return_chunk(loader, chunk);
		return;
	}
	/* A direct read can only go on at a block; the tail of a file that became too short makes no progress then. */
	if (chunk->is_direct)
		total = (uint32_t)cnre_size_align_down(total, ALIGNMENT);
	if (total > chunk->got)
		chunk->stalls = 0;
	chunk->got = total;
	continue_chunk(loader, chunk, -EBADMSG);
}

/* All chunks that are in flight for it learn of it one after the other; it is told once. */
static int leave_direct(struct loader *loader, uint32_t file)
{
	int was_direct = file_is_direct(loader->files, file), r = file_make_buffered(loader->files, file);

	if (r == 0 && was_direct && loader->refused != NULL)
		loader->refused(loader->refused_context, file);
	return r;
}

/* The kernel's word about one attempt; the file system's promise about O_DIRECT may turn out wrong only here. */
static void complete_chunk(void *context, struct loader_chunk *chunk, int result)
{
	struct loader *loader = context;

	if (result > 0 && (uint32_t)result <= chunk->bytes - chunk->got) {
		take_bytes(loader, chunk, (uint32_t)result);
	} else if (result == -EINTR || result == -EAGAIN) {
		continue_chunk(loader, chunk, result);
	} else if ((result == -EINVAL || result == -EOPNOTSUPP) && chunk->is_direct) {
		chunk->is_direct = chunk->is_prompt = 0;
		result = leave_direct(loader, chunk->read->run[chunk->run].file);
		if (result == 0)
			continue_chunk(loader, chunk, -EINVAL);
		else
			fail_chunk(loader, chunk, result);
	} else {
		fail_chunk(loader, chunk, result == 0 ? -EBADMSG : result > 0 ? -EIO : result);
	}
}

static void pass_foreign(void *context, uint64_t user_data, int result)
{
	struct loader *loader = context;

	if (loader->foreign != NULL && !loader->is_closing)
		loader->foreign(loader->foreign_context, user_data, result);
}

static void reap_engine(struct loader *loader)
{
	const struct loader_report report = {.context = loader, .chunk_done = complete_chunk, .foreign = pass_foreign};

	loader->backend->calls->reap(loader->backend, &report);
}

/* ---- opening and closing ---- */

static uint32_t chosen(uint32_t asked, uint32_t otherwise, uint32_t most)
{
	uint32_t value = asked != 0 ? asked : otherwise;

	return value < most ? value : most;
}

static int open_engine(struct loader *loader, const struct loader_setup *setup)
{
	uint32_t threads = chosen(setup->pool_threads, loader->status.chunk_depth, POOL_THREADS_MAX);
	int r = -ENOSYS;

	if (setup->engine != LOADER_ENGINE_POOL) {
		r = loader_uring_open(&loader->backend, &loader->status, file_table_slots(loader->files));
		if (r == 0 || setup->engine == LOADER_ENGINE_URING)
			return r;
	} else {
		loader_note(&loader->status, "io_uring: not wanted by the configuration");
	}
	return loader_pool_open(&loader->backend, &loader->status, threads);
}

static void slot_changed(void *context, uint32_t slot, int fd)
{
	struct loader *loader = context;

	if (loader->backend != NULL)
		loader->backend->calls->slot_changed(loader->backend, slot, fd);
}

static int make_tables(struct loader *loader)
{
	uint32_t count = loader->status.chunk_depth * LOADER_DRIVES_MAX;

	loader->drive_of = calloc(LOADER_FILES_MAX, sizeof(*loader->drive_of));
	loader->chunk = calloc(count, sizeof(*loader->chunk));
	if (loader->drive_of == NULL || loader->chunk == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		loader_chunks_add(&loader->chunk_free, &loader->chunk[i]);
	return 0;
}

static void free_loader(struct loader *loader)
{
	loader->files = file_table_close(loader->files); /* before the engine, which is told of each */
	if (loader->backend != NULL)
		loader->backend->calls->close(loader->backend);
	free(loader->chunk);
	free(loader->drive_of);
	free(loader);
}

int loader_open(struct loader **ret_loader, const struct loader_setup *setup)
{
	struct loader *loader = calloc(1, sizeof(*loader));
	struct file_table_setup files = {
		.files_max = LOADER_FILES_MAX,
		.open_max = setup->open_files_max,
		.force_buffered = setup->force_buffered,
		.slot_changed = slot_changed,
		.context = loader,
	};
	int r;

	if (loader == NULL)
		return -ENOMEM;
	loader->status.chunk_bytes = chosen(setup->chunk_bytes, CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX);
	loader->status.chunk_depth = chosen(setup->chunk_depth, CHUNK_DEPTH_DEFAULT, CHUNK_DEPTH_MAX);
	loader->status.reads_in_flight_max =
		chosen(setup->reads_in_flight_max, LOADER_READS_IN_FLIGHT_DEFAULT, READS_IN_FLIGHT_MAX);
	r = make_tables(loader);
	if (r == 0)
		r = file_table_open(&loader->files, &files);
	if (r == 0)
		r = open_engine(loader, setup);
	loader->refused = setup->force_buffered ? NULL : setup->refused;
	loader->refused_context = setup->refused_context;
	if (r < 0) {
		free_loader(loader);
		return r;
	}
	*ret_loader = loader;
	return 0;
}

/* What has not been asked of the kernel yet never will be. */
static void cancel_unsent(struct loader *loader, struct loader_drive *drive)
{
	struct loader_read *read = drive->first, *next;

	for (; read != NULL; read = next) {
		next = read->next;
		if (has_more(read))
			fail_read(read, read->next_run, read->next_off, -ECANCELED);
		finish_if_over(loader, read);
	}
}

int loader_drain(struct loader *loader, int64_t timeout_ns)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(timeout_ns);

	loader->is_closing = 1;
	for (uint32_t i = 0; i < loader->drive_count; i++)
		cancel_unsent(loader, &loader->drive[i]);
	while (loader->chunks != 0) {
		if (cnre_clock_left_ns(deadline_ns) == 0)
			return -ETIMEDOUT;
		loader->backend->calls->flush(loader->backend);
		loader->backend->calls->wait(loader->backend);
		reap_engine(loader);
	}
	return 0;
}

struct loader *loader_close(struct loader *loader)
{
	if (loader == NULL)
		return NULL;
	(void)loader_drain(loader, -1);
	(void)deliver(loader);
	CNRE_CHECK(loader->reads == 0);
	free_loader(loader);
	return NULL;
}

/* ---- files and memory ---- */

static int find_drive(struct loader *loader, dev_t device, uint32_t *ret_drive)
{
	int r;

	for (uint32_t i = 0; i < loader->drive_count; i++) {
		if (loader->drive[i].device != device)
			continue;
		*ret_drive = i;
		return 0;
	}
	if (loader->drive_count == LOADER_DRIVES_MAX)
		return -ENOSPC;
	r = loader->backend->calls->add_drive(loader->backend, loader->drive_count);
	if (r < 0)
		return r;
	loader->drive[loader->drive_count].device = device;
	*ret_drive = loader->drive_count++;
	return 0;
}

/*
 * On FUSE not by io_uring: what comes back short it fills up by itself, and where the server bypasses the page cache it reads
 * the same place once more instead of the rest (6.18): wrong bytes, a full count, and no error.
 */
int loader_add_file(struct loader *loader, const char *path, uint64_t expected_bytes)
{
	uint32_t drive;
	int r, file = file_add(loader->files, path, expected_bytes);

	if (file < 0)
		return file;
	r = find_drive(loader, file_device(loader->files, (uint32_t)file), &drive);
	if (r < 0)
		return r; /* the file stays in the table without a number that anyone knows */
	loader->drive_of[file] = (uint8_t)drive;
	if (loader->status.uring && file_is_fuse(loader->files, (uint32_t)file))
		return -EOPNOTSUPP;
	if (!file_is_direct(loader->files, (uint32_t)file) && loader->refused != NULL)
		loader->refused(loader->refused_context, (uint32_t)file);
	return file;
}

const char *loader_file_advice(int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return "it lies on FUSE: start the manager with --io pool";
	case -ENOSPC:
		return "the files lie on more drives, or are more, than one manager reads: name fewer, or start a second manager";
	default:
		return "check the file and its permissions";
	}
}

int loader_file_is_direct(const struct loader *loader, uint32_t file)
{
	return file_is_direct(loader->files, file);
}

int loader_add_memory(struct loader *loader, void *base, uint64_t bytes, uint32_t segment)
{
	return loader->backend->calls->add_memory(loader->backend, base, bytes, segment);
}

void loader_remove_memory(struct loader *loader, uint32_t segment)
{
	loader->backend->calls->remove_memory(loader->backend, segment);
}

/* ---- reads ---- */

uint32_t loader_drives(const struct loader *loader)
{
	return loader->drive_count;
}

uint32_t loader_drive_of(const struct loader *loader, uint32_t file)
{
	CNRE_CHECK(file < LOADER_FILES_MAX);
	return loader->drive_of[file];
}

void loader_get_drive(const struct loader *loader, uint32_t drive, struct loader_drive_status *ret_status)
{
	const struct loader_drive *from = &loader->drive[drive];
	int64_t busy_ns = from->busy_ns;

	CNRE_CHECK(drive < loader->drive_count);
	if (from->first != NULL)
		busy_ns += cnre_clock_now_ns() - from->busy_since_ns;
	*ret_status = (struct loader_drive_status){.device = from->device,
						   .reads = from->reads,
						   .chunks = from->chunks,
						   .bytes = from->bytes,
						   .busy_ns = busy_ns};
}

const char *loader_file_path(const struct loader *loader, uint32_t file)
{
	return file_path(loader->files, file);
}

uint64_t loader_file_device(const struct loader *loader, uint32_t file)
{
	return file_device(loader->files, file);
}

uint64_t loader_file_inode(const struct loader *loader, uint32_t file)
{
	return file_inode(loader->files, file);
}

void loader_let_go(struct loader *loader, uint32_t drive)
{
	CNRE_CHECK(drive < loader->drive_count);
	file_close_idle(loader->files, loader->drive[drive].device);
}

int64_t loader_oldest_ns(const struct loader *loader, uint32_t file)
{
	const struct loader_read *oldest = loader->drive[loader_drive_of(loader, file)].first;

	return oldest != NULL ? oldest->submitted_ns : CNRE_NEVER;
}

int loader_has_room(const struct loader *loader, uint32_t file)
{
	return !loader->is_closing &&
	       loader->drive[loader_drive_of(loader, file)].reads < loader->status.reads_in_flight_max;
}

/* The catalog was checked when it was made: a run that breaks these is a fault of this program. */
static void check_run(const struct loader *loader, const struct loader_run *run)
{
	(void)file_device(loader->files, run->file); /* checks the number */
	CNRE_CHECK((run->file_off | run->bytes | (uintptr_t)run->memory) % ALIGNMENT == 0);
	CNRE_CHECK(run->needed_bytes <= run->bytes && run->bytes <= INT64_MAX &&
		   run->file_off <= INT64_MAX - run->bytes);
}

void loader_submit(struct loader *loader, struct loader_read *read)
{
	struct loader_drive *drive;

	CNRE_CHECK(read->run_count >= 1 && read->run_count <= LOADER_RUNS_MAX && read->done != NULL);
	CNRE_CHECK(loader_has_room(loader, read->run[0].file));
	for (uint32_t i = 0; i < read->run_count; i++)
		check_run(loader, &read->run[i]);
	read->bytes_read = read->next_off = 0;
	read->retries = read->chunks_in_flight = read->next_run = 0;
	read->status = 0;
	memset(read->run_got, 0, sizeof(read->run_got));
	read->drive = loader_drive_of(loader, read->run[0].file);
	read->submitted_ns = cnre_clock_now_ns();

	drive = &loader->drive[read->drive];
	if (drive->first == NULL)
		drive->busy_since_ns = read->submitted_ns;
	append_read(&drive->first, &drive->last, read);
	drive->reads++;
	loader->reads++;
	skip_unneeded(read);
	finish_if_over(loader, read);
	pump(loader, drive);
	if (loader->finished_first != NULL)
		loader->backend->calls->nudge(loader->backend); /* over already, and the core is about to sleep */
}

void loader_flush(struct loader *loader)
{
	loader->backend->calls->flush(loader->backend);
}

int loader_reap(struct loader *loader)
{
	reap_engine(loader);
	for (uint32_t i = 0; i < loader->drive_count; i++)
		pump(loader, &loader->drive[i]); /* all: one may have waited for another's descriptor */
	return deliver(loader);
}

uint32_t loader_in_flight(const struct loader *loader)
{
	return loader->reads;
}

/* ---- events and status ---- */

int loader_event_fd(struct loader *loader)
{
	return loader->backend->calls->event_fd(loader->backend);
}

struct io_uring *loader_ring(struct loader *loader)
{
	return loader->backend->ring;
}

void loader_set_foreign(struct loader *loader, void (*foreign)(void *context, uint64_t user_data, int result),
			void *context)
{
	loader->foreign = foreign;
	loader->foreign_context = context;
}

void loader_get_status(const struct loader *loader, struct loader_status *ret_status)
{
	struct file_counts counts = file_table_counts(loader->files);

	*ret_status = loader->status;
	ret_status->files_direct = counts.direct;
	ret_status->files_buffered = counts.buffered;
	ret_status->files_open = counts.open;
	ret_status->drives = loader->drive_count;
}

int loader_hold(struct loader *loader, int fd)
{
	return loader->backend->calls->hold(loader->backend, fd);
}
