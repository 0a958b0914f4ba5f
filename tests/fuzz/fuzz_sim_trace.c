/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace from a stranger, in any format: the first byte says as which it is read. What is accepted must be what trace.h
 * promises: rows of distinct objects of their layer that follow one another; what is refused has its one line.
 */
#include "tools/sim/trace.h"

#include "base/check.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check_row(const struct sim_geometry *geometry, const struct sim_trace *trace, const struct sim_row *row)
{
	uint32_t i, k;

	CNRE_CHECK(row->count > 0 && row->count <= SIM_ROW_EXPERTS_MAX && row->layer < geometry->layer_count);
	CNRE_CHECK(row->tokens > 0 && row->token < trace->token_count);
	for (i = 0; i < row->count; i++) {
		CNRE_CHECK(trace->object[row->first + i] < geometry->object_count);
		CNRE_CHECK(geometry->layer_of[trace->object[row->first + i]] == row->layer);
		for (k = 0; k < i && k < 64; k++)
			CNRE_CHECK(trace->object[row->first + i] != trace->object[row->first + k]);
	}
}

static void check_promises(const struct sim_geometry *geometry, const struct sim_trace *trace)
{
	uint64_t i, next = 0;

	CNRE_CHECK(geometry->first_object[geometry->layer_count] == geometry->object_count);
	CNRE_CHECK(trace->row_count > 0 && geometry->top_k > 0);
	for (i = 0; i < trace->row_count; i++) {
		CNRE_CHECK(trace->row[i].first == next);
		check_row(geometry, trace, &trace->row[i]);
		if (i > 0 && trace->row[i].call == trace->row[i - 1].call)
			CNRE_CHECK(trace->row[i].layer == trace->row[i - 1].layer);
		next += trace->row[i].count;
	}
	CNRE_CHECK(next == trace->access_count);
	for (i = 0; i < trace->resident_count; i++)
		CNRE_CHECK(trace->resident[i] < geometry->object_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
	struct sim_load load = {.temporary = "/dev/shm"};
	struct sim_geometry *geometry = NULL;
	struct sim_trace *trace = NULL;
	char message[512] = "", name[64];
	const char *path = name;
	int fd, result;

	if (count == 0)
		return -1;
	load.format = (enum sim_format)(bytes[0] % (SIM_FORMAT_BINARY + 1));
	load.experts = bytes[0] >= 128 ? 64 : 0;
	fd = memfd_create("trace", MFD_CLOEXEC);
	CNRE_CHECK(fd >= 0 && write(fd, bytes + 1, count - 1) == (ssize_t)(count - 1));
	(void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	result = sim_traces_open(&trace, &geometry, &path, 1, &load, message, sizeof message);
	CNRE_CHECK((result == 0) == (trace != NULL) &&
		   (result == 0 || (message[0] != '\0' && strchr(message, '\n') == NULL)));
	if (result == 0) {
		check_promises(geometry, trace);
		sim_traces_close(trace, 1, geometry);
	}
	(void)close(fd);
	return 0;
}
