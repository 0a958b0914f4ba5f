/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of one run: each read by its format into the same stores, then the geometry they share; see trace.h. */
#include "tools/sim/trace.h"

#include "base/check.h"
#include "base/message.h"
#include "tools/sim/trace_geometry.h"
#include "tools/sim/trace_reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* `eval_03_coding.grp` is coding; a name of another form is its own category. */
static void name_category(const char *path, char category[64])
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path, *rest = name;
	size_t digits = 0;
	char *dot;

	if (strncmp(name, "eval_", 5) == 0)
		rest = name + 5;
	else if (strncmp(name, "train_", 6) == 0)
		rest = name + 6;
	while (rest != name && rest[digits] >= '0' && rest[digits] <= '9')
		digits++;
	if (digits > 0 && rest[digits] == '_' && rest[digits + 1] != '\0' && rest[digits + 1] != '.')
		name = rest + digits + 1;
	(void)snprintf(category, 64, "%s", name);
	dot = strrchr(category, '.');
	if (dot != NULL && dot != category)
		*dot = '\0';
}

static int identify(struct sim_reader *reader)
{
	struct sim_trace *trace = reader->trace;
	struct stat status;

	if ((size_t)snprintf(trace->path, sizeof trace->path, "%s", reader->path) >= sizeof trace->path)
		return sim_refuse_error(reader, -ENAMETOOLONG);
	if (fstat(reader->input.fd, &status) < 0)
		return sim_refuse_error(reader, -errno);
	trace->device = status.st_dev;
	trace->inode = status.st_ino;
	name_category(reader->path, trace->category);
	return 0;
}

static int read_format(struct sim_reader *reader)
{
	static int (*const readers[])(struct sim_reader *) = {
		[SIM_FORMAT_ROUTE] = sim_read_route,   [SIM_FORMAT_REPLAY] = sim_read_replay,
		[SIM_FORMAT_CSV] = sim_read_csv,       [SIM_FORMAT_GROUP] = sim_read_group,
		[SIM_FORMAT_BINARY] = sim_read_binary,
	};
	unsigned phases = reader->load->phases;
	int result = 0;

	if (reader->format == SIM_FORMAT_AUTO)
		result = sim_detect(reader);
	if (result < 0)
		return result;
	if (reader->format != SIM_FORMAT_CSV && phases != 0 && phases != SIM_PHASE_ALL)
		return sim_refuse(reader, "no phases are marked here, so none can be chosen: use --phase all");
	return readers[reader->format](reader);
}

static int read_file(struct sim_reader *reader)
{
	int result = sim_input_open(reader);

	if (result < 0)
		return result;
	result = identify(reader);
	if (result == 0)
		result = read_format(reader);
	if (result == 0 && reader->trace->row_count == 0)
		result = sim_refuse(reader, "no lookups: record again, or choose another phase");
	reader->trace->format = reader->format;
	reader->trace->token_count = reader->token_end;
	sim_input_close(&reader->input);
	return result;
}

/* What the next file starts from; buffers and stores stay. */
static void reset_reader(struct sim_reader *reader, const char *path, struct sim_trace *trace)
{
	reader->path = path;
	reader->trace = trace;
	reader->format = reader->load->format;
	reader->line = 0;
	reader->row_is_open = 0;
	reader->token_base = reader->token_end = reader->visits = 0;
	reader->widths_may_differ = reader->declared = 0;
	reader->top_k = 0;
	memset(reader->width_count, 0, sizeof reader->width_count);
	memset(reader->experts, 0, sizeof reader->experts);
	memset(reader->resident_bytes, 0, sizeof reader->resident_bytes);
	memset(reader->read_bytes, 0, sizeof reader->read_bytes);
}

static struct sim_reader *reader_close(struct sim_reader *reader)
{
	if (reader != NULL)
		free(reader->stamp);
	free(reader);
	return NULL;
}

static struct sim_reader *reader_open(const struct sim_load *load, struct sim_store store[SIM_STORES], char *message,
				      size_t message_bytes)
{
	struct sim_reader *reader = calloc(1, sizeof *reader);

	if (reader == NULL)
		return NULL;
	reader->load = load;
	reader->rows = &store[0];
	reader->objects = &store[1];
	reader->waits = &store[2];
	reader->message = message;
	reader->message_bytes = message_bytes;
	reader->stamp = calloc(SIM_EXPERTS_MAX, sizeof reader->stamp[0]);
	return reader->stamp == NULL ? reader_close(reader) : reader;
}

static int read_all(struct sim_trace *trace, const char *const *path, uint32_t paths, struct sim_reader *reader,
		    struct sim_merge *merge)
{
	int result = 0;
	uint32_t i;

	for (i = 0; result == 0 && i < paths; i++) {
		reset_reader(reader, path[i], &trace[i]);
		result = read_file(reader);
		if (result == 0)
			result = sim_merge_add(merge, reader);
	}
	return result;
}

/* From numbers in the checkpoint to those of the geometry, and from files to memory. */
static int map_all(struct sim_trace *trace, uint32_t count, struct sim_store store[SIM_STORES], struct sim_geometry *geometry)
{
	const struct sim_row *row;
	const uint32_t *object;
	const struct sim_wait *wait;
	uint32_t i;
	int result = sim_geometry_renumber(geometry, &store[0], &store[1]);

	for (i = 0; result == 0 && i < SIM_STORES && store[i].bytes > 0; i++) {
		result = sim_store_map(&store[i], &trace[0].mapping[i]);
		if (result == 0)
			trace[0].mapped_bytes[i] = store[i].bytes;
	}
	if (result < 0)
		return result;
	row = trace[0].mapping[0];
	object = trace[0].mapping[1];
	wait = trace[0].mapping[2];
	for (i = 0; i < count; i++) {
		trace[i].row = row;
		trace[i].object = object;
		trace[i].wait = wait;
		row += trace[i].row_count;
		object += trace[i].access_count;
		if (trace[i].wait_count > 0) /* none may be mapped at all */
			wait += trace[i].wait_count;
		sim_geometry_renumber_objects(geometry, trace[i].resident, trace[i].resident_count);
	}
	return 0;
}

static int load_all(struct sim_trace *trace, struct sim_geometry **ret_geometry, const char *const *path,
		    uint32_t paths, struct sim_reader *reader, struct sim_store store[SIM_STORES])
{
	struct sim_merge *merge = calloc(1, sizeof *merge);
	struct sim_geometry *geometry = NULL;
	int result = merge == NULL ? sim_refuse_error(reader, -ENOMEM) : read_all(trace, path, paths, reader, merge);

	if (result == 0)
		result = sim_merge_finish(merge, reader, &geometry);
	free(merge);
	if (result < 0)
		return result;
	result = map_all(trace, paths, store, geometry);
	if (result < 0) {
		sim_geometry_close(geometry);
		return cnre_message(reader->message, reader->message_bytes, result,
				    "temporary file in %s: %s: set TMPDIR to another "
				    "directory",
				    sim_store_directory(reader->load->temporary), strerror(-result));
	}
	*ret_geometry = geometry;
	return 0;
}

static void close_stores(struct sim_store *store, uint32_t count)
{
	while (count-- > 0)
		sim_store_close(&store[count]);
}

static int open_stores(struct sim_store store[SIM_STORES], const struct sim_load *load, char *message,
		       size_t message_bytes)
{
	for (uint32_t i = 0; i < SIM_STORES; i++) {
		int result = sim_store_open(&store[i], load->temporary);

		if (result == 0)
			continue;
		close_stores(store, i);
		return cnre_message(message, message_bytes, result,
				    "temporary file in %s: %s: set TMPDIR to another directory",
				    sim_store_directory(load->temporary), strerror(-result));
	}
	return 0;
}

int sim_traces_open(struct sim_trace **ret_trace, struct sim_geometry **ret_geometry, const char *const *path,
		    uint32_t paths, const struct sim_load *load, char *message, size_t message_bytes)
{
	struct sim_geometry *geometry = NULL;
	struct sim_reader *reader;
	struct sim_trace *trace;
	struct sim_store store[SIM_STORES];
	int result;

	if (paths == 0 || paths > SIM_FILES_MAX)
		return cnre_message(message, message_bytes, -EINVAL, "%u traces: give 1 to %u", paths, SIM_FILES_MAX);
	result = open_stores(store, load, message, message_bytes);
	if (result < 0)
		return result;
	trace = calloc(paths, sizeof *trace);
	reader = reader_open(load, store, message, message_bytes);
	if (trace == NULL || reader == NULL)
		result = cnre_message(message, message_bytes, -ENOMEM, "no memory for traces");
	else
		result = load_all(trace, &geometry, path, paths, reader, store);
	(void)reader_close(reader);
	close_stores(store, SIM_STORES);
	if (result < 0) {
		sim_traces_close(trace, paths, NULL);
		return result;
	}
	*ret_trace = trace;
	*ret_geometry = geometry;
	return 0;
}

void sim_traces_close(struct sim_trace *trace, uint32_t count, struct sim_geometry *geometry)
{
	uint32_t i;

	for (i = 0; trace != NULL && i < SIM_STORES; i++)
		if (trace[0].mapping[i] != NULL)
			(void)munmap(trace[0].mapping[i], (size_t)trace[0].mapped_bytes[i]);
	for (i = 0; trace != NULL && i < count; i++)
		free(trace[i].resident);
	free(trace);
	sim_geometry_close(geometry);
}
