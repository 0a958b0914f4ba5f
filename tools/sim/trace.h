/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trace as every replay wants it: rows of experts, read and checked once, whatever format the file has. Rows and
 * experts lie in memory backed by an unlinked temporary file, so that a trace may be larger than memory; the kernel keeps
 * what is used. Read-only once loaded: any number of threads may replay it.
 */
#ifndef CNRE_SIM_TRACE_H
#define CNRE_SIM_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_LAYERS_MAX 4096u
#define SIM_EXPERTS_MAX 65536u
#define SIM_ROW_EXPERTS_MAX 4096u
#define SIM_PATH_BYTES 4096u
#define SIM_STORES 3u                /* files of rows, objects and waits */
#define SIM_OBJECTS_MAX (1u << 24)
#define SIM_FILES_MAX 4096u          /* of one run */

enum sim_format {
	SIM_FORMAT_AUTO, SIM_FORMAT_ROUTE,   /* call row layer eid:gate … */
	SIM_FORMAT_REPLAY,                   /* layer expert */
	SIM_FORMAT_CSV,                      /* BigMoeOnEdge: turn,phase,step,layer,slot,expert,… */
	SIM_FORMAT_GROUP,                    /* token layer expert … */
	SIM_FORMAT_BINARY                    /* policy/record.h */
};
enum sim_phase { SIM_PHASE_DECODE = 1, SIM_PHASE_PREFILL = 2, SIM_PHASE_ALL = 3 };

/*
 * The distinct experts of one token in one layer, or of a whole batch where the trace knows no tokens (binary).
 *
 * Tokens. Calls of ROUTE_TRACE count visits of layers, not tokens: a sweep begins where the layer does not increase from
 * one call to the next, and a token is (sweep, row). So are the prompt's rows of a CSV (sweep, step). A replay trace and a
 * binary one begin a token where the layer of (the client's) visits does not increase. Group lines say it themselves.
 */
struct sim_row {
	uint64_t first;              /* of sim_trace.object */
	uint32_t count;
	uint32_t layer;              /* index into sim_geometry */
	uint32_t tokens;             /* it stands for */
	uint32_t client;
	uint32_t token;              /* which token, from 0: rows of one token share it; see above */
	uint32_t call;               /* rows of one visit share it and the layer, and follow one another */
};

/* A binary trace's: what the visit of a layer before visit `call`, of the same layer and client, had waited for. */
struct sim_wait {
	uint32_t call;
	uint32_t misses;             /* physical ones */
	uint32_t wait_us;
	uint32_t reserved;
};

/* Same for every trace of a run. Layers that have experts, by ascending checkpoint number. */
struct sim_geometry {
	uint32_t layer_count, object_count, top_k;
	uint32_t number[SIM_LAYERS_MAX];     /* in the checkpoint */
	uint32_t experts[SIM_LAYERS_MAX];
	uint32_t first_object[SIM_LAYERS_MAX + 1];
	uint64_t resident_bytes[SIM_LAYERS_MAX], read_bytes[SIM_LAYERS_MAX]; /* of one expert, by a binary header; or 0 */
	uint32_t *layer_of;                  /* [object_count] */
};

struct sim_trace {
	char path[SIM_PATH_BYTES];
	char category[64];           /* from the name: `eval_03_coding.grp` is coding; otherwise the name itself */
	dev_t device;
	ino_t inode;
	enum sim_format format;
	uint64_t row_count, access_count, token_count;
	const struct sim_row *row;
	const struct sim_wait *wait; /* [wait_count] by call */
	uint64_t wait_count;
	const uint32_t *object;      /* [access_count] numbers of the geometry */
	/* Binary traces: what the manager knew. */
	uint64_t budget_bytes;
	uint32_t resident_count, *resident;
	uint64_t lost;               /* words that it did not get to see */
	/* Private to trace.c. The first trace holds the memory of all: rows, then objects. */
	void *mapping[SIM_STORES];
	uint64_t mapped_bytes[SIM_STORES];
};

struct sim_load {
	enum sim_format format;
	unsigned phases;             /* enum sim_phase bits; 0 or all: whatever there is. Only a CSV marks phases */
	const char *temporary;       /* directory of the unlinked file; NULL: TMPDIR or /tmp */
	uint32_t experts;            /* where the trace does not tell; 0: its largest number + 1 */
	void (*progress)(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes); /* NULL; at most 10 a second */
	void *context;
};

/*
 * sim_traces_open - loads files of one model and finds the geometry they share
 *
 * @message   receives one line, with file:line, on failure
 *
 * Returns: 0, -EINVAL (text that is no trace, gaps and duplicates in rows, mixed geometry), -ENOSPC or -EFBIG (no room for
 *          the temporary file), or the error of reading. Outputs are set on success only.
 */
int sim_traces_open(struct sim_trace **ret_trace, struct sim_geometry **ret_geometry, const char *const *path, uint32_t paths,
		    const struct sim_load *load, char *message, size_t message_bytes);

/* "route", "replay", "csv", "group", "binary", "auto"; and back: 0 or -EINVAL. */
const char *sim_format_name(enum sim_format format);
int sim_format_parse(const char *name, enum sim_format *ret_format);
void sim_traces_close(struct sim_trace *trace, uint32_t count, struct sim_geometry *geometry);

#endif
