/* SPDX-License-Identifier: Apache-2.0 */
/* Rows written as a trace: binary, group or route text. What is written is read back as the same lookups. */
#ifndef CNRE_SIM_TRACE_WRITE_H
#define CNRE_SIM_TRACE_WRITE_H

#include "policy/record.h"
#include "tools/sim/trace.h"

#include <stdio.h>

#define SIM_WRITE_CLIENTS_MAX 65536u

/* What a client has had, so that a binary trace says where visits and sweeps begin. */
struct sim_write_client {
	uint32_t base, end;          /* tokens of its sweep; 0, 0: none yet */
	uint32_t layer, token;       /* of its latest row */
};

struct sim_writer {
	FILE *file;
	enum sim_format format;
	const struct sim_geometry *geometry;
	const struct record_header *header; /* of a binary trace: layers as the geometry's */
	struct sim_write_client *client;    /* [SIM_WRITE_CLIENTS_MAX] of a binary trace */
	uint64_t records;
	uint32_t call, index;        /* of the latest row; index within its call */
	uint64_t rows;
};

/* header: of a binary trace only. 0 or -errno. Errors of writing are the file's (ferror): ask when it is committed. */
int sim_writer_open(struct sim_writer *ret_writer, FILE *file, enum sim_format format, const struct sim_geometry *geometry,
		    const struct record_header *header);
/* Rows in their order; object[row->count]. */
void sim_writer_row(struct sim_writer *writer, const struct sim_row *row, const uint32_t *object);
void sim_writer_close(struct sim_writer *writer); /* the end of a binary trace is written here */

/*
 * 0, or -EINVAL with one line: the trace has what that format cannot say, such as batches, or prompts layer by layer.
 */
int sim_writer_check(const struct sim_trace *trace, enum sim_format format, char *message, size_t message_bytes);

#endif
