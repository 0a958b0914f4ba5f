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

enum sim_format {
	SIM_FORMAT_AUTO, SIM_FORMAT_ROUTE,   /* call row layer eid:gate … */
	SIM_FORMAT_REPLAY,                   /* layer expert */
	SIM_FORMAT_CSV,                      /* BigMoeOnEdge: turn,phase,step,layer,slot,expert,… */
	SIM_FORMAT_GROUP,                    /* token layer expert … */
	SIM_FORMAT_BINARY                    /* policy/record.h */
};
enum sim_phase { SIM_PHASE_DECODE = 1, SIM_PHASE_PREFILL = 2, SIM_PHASE_ALL = 3 };

/* The experts of one token in one layer, or of a whole batch where the trace knows no tokens (binary). */
struct sim_row {
	uint64_t first;              /* of sim_trace.object */
	uint32_t count;
	uint32_t layer;              /* index into sim_geometry */
	uint32_t tokens;             /* it stands for */
	uint32_t client;
	uint32_t token;              /* which token, from 0: rows of one token share it. Layer sweeps, where calls are known */
	uint32_t call;               /* rows of one visit share it and the layer, and follow one another */
};

/* Same for every trace of a run. Layers that have experts, by ascending checkpoint number. */
struct sim_geometry {
	uint32_t layer_count, object_count, top_k;
	uint32_t number[SIM_LAYERS_MAX];     /* in the checkpoint */
	uint32_t experts[SIM_LAYERS_MAX];
	uint32_t first_object[SIM_LAYERS_MAX + 1];
	uint32_t *layer_of;                  /* [object_count] */
};

struct sim_trace {
	char path[SIM_PATH_BYTES];
	char category[64];           /* from the name: `eval_03_coding.grp` is coding; otherwise the name itself */
	dev_t device;
	ino_t inode;
	enum sim_format format;
	uint64_t row_count, access_count, token_count;
	struct sim_row *row;
	uint32_t *object;            /* [access_count] numbers of the geometry */
	/* Binary traces: what the manager knew. */
	uint64_t budget_bytes;
	uint32_t resident_count, *resident;
	uint64_t mapped_bytes;       /* private to trace.c from here on */
	void *mapping;
};

struct sim_load {
	enum sim_format format;
	unsigned phases;             /* enum sim_phase bits */
	const char *temporary;       /* directory of the unlinked file; NULL: TMPDIR or /tmp */
	uint32_t experts;            /* where the trace does not tell; 0: its largest number + 1 */
	void (*progress)(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes); /* NULL */
	void *context;
};

/*
 * sim_traces_open - loads files of one model and finds the geometry they share
 *
 * @message   receives one line, with file:line, on failure
 *
 * Returns: 0, -EINVAL (text that is no trace, gaps and duplicates in rows, mixed geometry), or the error of reading.
 */
int sim_traces_open(struct sim_trace **ret_trace, struct sim_geometry **ret_geometry, const char *const *path, uint32_t paths,
		    const struct sim_load *load, char *message, size_t message_bytes);
void sim_traces_close(struct sim_trace *trace, uint32_t count, struct sim_geometry *geometry);

#endif
