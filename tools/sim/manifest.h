/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an expert of each layer costs: bytes, reads and felt time. From a JSON file as Colibri's simulator takes it, from a
 * checkpoint, or alike for all.
 */
#ifndef CNRE_SIM_MANIFEST_H
#define CNRE_SIM_MANIFEST_H

#include "tools/sim/trace.h"

#define SIM_MANIFEST_BYTES_MAX (16u << 20)

/* One expert of one layer. */
struct sim_layer_cost {
	uint64_t resident_bytes, read_bytes;
	double felt_miss_us;         /* slope of felt wait over misses; default: read_bytes at the read bandwidth */
	double hidden_us;            /* computation that hides a visit's first reads; default 0 */
	uint32_t max_experts;        /* that may be resident; default: all */
	double page_cache;           /* 0..1: share of misses that the page cache serves; default 0 */
	double page_cache_us;        /* what such a miss costs instead */
	int32_t numa_node;           /* -1: not said */
	double remote_hit_us;        /* what a hit costs from another node; default 0 */
	double migration_us;         /* to move one expert in from the tier below; default 0 */
	char tier[16];               /* "ram" unless said */
	uint64_t vram_bytes;         /* what a GPU's driver charges for one; default: resident_bytes */
	double ram_hit_us;           /* what serving it from RAM costs more than from VRAM, after a read too */
	double upload_us;            /* to copy one there; of these two the default: vram_bytes at sim_manifest_uploads' bandwidth */
};

struct sim_manifest {
	struct sim_layer_cost *layer; /* [geometry->layer_count] */
	double token_us;              /* computation of a token that never waits; default 0 */
};

/*
 * sim_manifest_open - what the layers of a geometry cost
 *
 * @path       NULL: the bytes of the trace's own header, or 1, and a miss costs default_miss_us. A directory: the bytes of
 *             that checkpoint. A file: {"layers": {"3": {"resident_bytes": N, "read_bytes": N, …}}, "token_us": N}; only
 *             resident_bytes must be there, read_bytes are as many unless said. Layers beyond the geometry's are checked too
 * @read_gbps  1e9 bytes a second; with felt_fraction what a miss costs where felt_miss_us is not said
 *
 * Returns: 0; -EINVAL with one line (unknown key, missing layer, number out of range); or the error of reading.
 */
int sim_manifest_open(struct sim_manifest *ret_manifest, const char *path, const struct sim_geometry *geometry,
		      double read_gbps, double felt_fraction, double default_miss_us, char *message, size_t message_bytes);
/* As that does for a directory. */
int sim_manifest_from_model(struct sim_manifest *ret_manifest, const char *directory, const struct sim_geometry *geometry,
			    double read_gbps, double felt_fraction, char *message, size_t message_bytes);
/* For layers that do not say what VRAM saves and uploads cost: 1e9 bytes a second. Without it they cost nothing. */
void sim_manifest_uploads(struct sim_manifest *manifest, const struct sim_geometry *geometry, double upload_gbps);
void sim_manifest_close(struct sim_manifest *manifest);

#endif
