/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of all formats stand on: a file seen through a bounded buffer, lines and numbers of hostile text, the
 * row that is being put together, and refusals that name file, place, reason and remedy. Private to trace*.c, read_*.c.
 */
#ifndef CNRE_SIM_TRACE_READER_H
#define CNRE_SIM_TRACE_READER_H

#include "tools/sim/trace.h"
#include "tools/sim/trace_store.h"

#include <stddef.h>
#include <stdint.h>

#define SIM_LINE_BYTES_MAX (128u << 10)  /* a route row of SIM_ROW_EXPERTS_MAX experts fits */
#define SIM_HEADER_BYTES_MAX (128u << 20) /* of a binary trace; its residents are most of it */

struct sim_text {                    /* what is left of a line */
	const char *at, *end;
};

struct sim_input {
	int fd;
	uint64_t file_bytes, read_bytes; /* when it was opened; into the buffer so far */
	int64_t progress_ns;         /* when the last was told */
	unsigned char *buffer;
	size_t room, at, end;
};

struct sim_reader {
	const char *path;
	const struct sim_load *load;
	enum sim_format format;
	struct sim_input input;
	uint64_t line;               /* number of the latest, from 1 */
	struct sim_store *waits;
	struct sim_store *rows, *objects; /* objects as layer number << 16 | expert until the geometry is known */
	struct sim_trace *trace;     /* its counts grow */
	struct sim_row row;          /* open while it has a layer */
	int row_is_open;
	uint32_t expert[SIM_ROW_EXPERTS_MAX];
	uint64_t row_serial, *stamp; /* [SIM_EXPERTS_MAX] serial of the latest row that had the expert */
	uint32_t token_base, token_end; /* first token of the sweep; one after the highest of all */
	uint32_t visits;
	int widths_may_differ;
	uint64_t width_count[SIM_ROW_EXPERTS_MAX + 1];
	uint32_t top_k;              /* of the header, or of every row; 0: unknown */
	int declared;                /* `experts` is from a header */
	uint32_t experts[SIM_LAYERS_MAX]; /* largest number + 1; 0: no such layer */
	uint64_t resident_bytes[SIM_LAYERS_MAX], read_bytes[SIM_LAYERS_MAX]; /* declared, or 0 */
	char *message;
	size_t message_bytes;
};

/* FILE:LINE: reason: remedy. -EINVAL. In a binary trace the place is a byte. */
int sim_refuse(struct sim_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
int sim_refuse_error(struct sim_reader *reader, int error); /* FILE: text of the error; returns it */

/* ---- input: trace_input.c ---- */
int sim_input_open(struct sim_reader *reader);           /* reader->path; 0 or an error with its message */
void sim_input_close(struct sim_input *input);
int sim_input_fill(struct sim_reader *reader);           /* reads on; bytes got, 0 at the end or if the buffer is full */
/* Any line, without its end and a carriage return before that. As sim_next_line. */
int sim_any_line(struct sim_reader *reader, struct sim_text *ret_line);
/* The next line that is not blank and no # comment, without its end. 1, 0 at the end of the file, or a refusal. */
int sim_next_line(struct sim_reader *reader, struct sim_text *ret_line);
/* A plain decimal number, spaces before it skipped. 0, or -EINVAL: there is none, or it is above max. */
int sim_text_number(struct sim_text *text, uint32_t max, uint32_t *ret_number);
int sim_text_take(struct sim_text *text, char c);        /* 1: it was next, and is taken */
int sim_text_is_done(struct sim_text *text);             /* only spaces follow */
int sim_text_decimal(struct sim_text *text);             /* skips a number such as -0.25e-3; 0 or -EINVAL */

/* ---- rows: trace_rows.c ---- */
int sim_visit_begin(struct sim_reader *reader);          /* the next rows share a call; 0 or a refusal */
void sim_sweep_begin(struct sim_reader *reader);         /* the next tokens are new ones */
/* Row `index` of the sweep. 0 or a refusal. */
int sim_row_begin(struct sim_reader *reader, uint32_t layer, uint32_t index, uint32_t client, uint32_t tokens);
int sim_row_add(struct sim_reader *reader, uint32_t expert); /* 0, -EEXIST (it has it), -E2BIG (full), or a refusal, -EINVAL */
int sim_row_take(struct sim_reader *reader, uint32_t expert); /* as sim_row_add; duplicates and full rows are refusals */
int sim_wait_add(struct sim_reader *reader, uint64_t misses, uint64_t wait_us); /* of the visit that begins next; 0 or a refusal */
int sim_row_end(struct sim_reader *reader);              /* stores it; 0 or a refusal. Nothing where no row is open */

/* ---- formats ---- */
int sim_detect(struct sim_reader *reader);               /* sets reader->format by the first line; 0 or a refusal */
int sim_read_route(struct sim_reader *reader);
int sim_read_replay(struct sim_reader *reader);
int sim_read_csv(struct sim_reader *reader);
int sim_read_group(struct sim_reader *reader);
int sim_read_binary(struct sim_reader *reader);

#endif
