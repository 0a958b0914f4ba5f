/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry that the files of a run share, found file by file. Private to trace.c. */
#ifndef CNRE_SIM_TRACE_GEOMETRY_H
#define CNRE_SIM_TRACE_GEOMETRY_H

#include "tools/sim/trace_reader.h"

struct sim_merge {
	const char *first;           /* file; NULL: none yet */
	const char *declared_by;     /* the first whose header says how many experts there are */
	const char *exact_by;        /* the first whose rows are top-k wide */
	uint32_t top_k;              /* of exact_by */
	uint32_t experts[SIM_LAYERS_MAX];
	uint64_t resident_bytes[SIM_LAYERS_MAX], read_bytes[SIM_LAYERS_MAX]; /* of declared_by */
	uint64_t width_count[SIM_ROW_EXPERTS_MAX + 1]; /* of all files, for where no file says top-k */
};

/* The file that was just read. 0, or a refusal that names both files. */
int sim_merge_add(struct sim_merge *merge, struct sim_reader *reader);
int sim_merge_finish(const struct sim_merge *merge, struct sim_reader *reader, struct sim_geometry **ret_geometry);
void sim_geometry_close(struct sim_geometry *geometry);

int sim_geometry_renumber(const struct sim_geometry *geometry, struct sim_store *rows, struct sim_store *objects);
void sim_geometry_renumber_objects(const struct sim_geometry *geometry, uint32_t *object, uint32_t count);

#endif
