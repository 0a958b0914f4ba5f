/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scrape shows, as numbers: filled by the core thread in one go (metrics_collect.c), made into text by the thread that
 * answers scrapers (metrics_text.c), which looks at nothing else of the manager. Every table is bounded, so a client that
 * invents names, or a model with thousands of layers, makes no more series than these.
 */
#ifndef CNRE_MANAGER_METRICS_SNAPSHOT_H
#define CNRE_MANAGER_METRICS_SNAPSHOT_H

#include "manager/layer_count.h"
#include "manager/manager.h"
#include "policy/curve.h"
#include "shm/vram.h"

#include <stdint.h>

#define METRICS_CLIENTS_MAX 32u      /* names, the first that came; all others are "(other)" together */
#define METRICS_LAYERS_MAX 256u      /* of all models; what is beyond is layer "other" of its model */
#define METRICS_LABEL_BYTES 128u     /* of a model's name; a longer one is cut */
#define METRICS_BUCKETS 16u          /* beside that of everything */
#define METRICS_LAYER_OTHER UINT32_MAX
#define METRICS_OTHER "(other)"

enum {
	METRICS_COUNTERS = 0
#define CNRE_COUNTER(name, kind, unit, sentence) +1
#include "shm/counters.def"
#undef CNRE_COUNTER
};

struct metrics_histogram {
	uint64_t bucket[METRICS_BUCKETS + 1]; /* not cumulated; the last: longer than all bounds */
	uint64_t sum_ns;
};

struct metrics_model {
	char name[METRICS_LABEL_BYTES], view[METRICS_LABEL_BYTES]; /* any bytes; no two models have both alike */
	uint64_t objects, resident_objects, resident_bytes, payload_bytes;
	uint64_t prefetches, prefetches_ended[PREFETCH_ENDS], prefetches_unused, rejections;
	struct curve_distances distances; /* of all its layers, between experts of one layer */
	struct metrics_histogram service, wait;
};

struct metrics_layer {
	uint32_t model, layer;            /* METRICS_LAYER_OTHER: all of this model that found no place */
	uint64_t experts, resident, capacity; /* capacity 0: the policy gives none */
	uint64_t accesses, hits, misses, joins, physical_misses, wait_ns, bytes_looked_up;
	uint64_t loads, service_ns, bytes_read, evictions;
};

struct metrics_client {
	char name[CNRE_NAME_BYTES];       /* UTF-8 */
	uint64_t sessions, leased;
	uint64_t accesses, hits, misses, joins, failures, wait_ns, bytes_looked_up;
};

enum metrics_drive_state { METRICS_DRIVE_OK, METRICS_DRIVE_DEGRADED, METRICS_DRIVE_HANGS, METRICS_DRIVE_STATES };

struct metrics_drive {
	uint64_t device;                  /* st_dev of its files */
	uint64_t bytes, reads, read_ns, in_flight, failovers;
	uint64_t errors[5];               /* by enum drive_error */
	double weight, speed;             /* 0: none, not known */
	enum metrics_drive_state state;
	struct metrics_histogram read;    /* of each of the reads */
};

struct metrics_vram {
	char uuid[48];
	uint64_t total_bytes, free_bytes, budget_bytes, charged_bytes, used_bytes;
	uint64_t experts, clients, uploads, upload_bytes, upload_ns, upload_errors, evictions, refused;
	uint64_t serves;                  /* 1, 0: lost */
};

struct metrics_snapshot {
	int64_t made_ns;                  /* 0: none was made */
	int64_t started_unix_ns;
	char policy[CNRE_NAME_BYTES];
	uint64_t counter[METRICS_COUNTERS]; /* in the order of cnre_counter_table */
	uint64_t read_before_bytes;       /* of drives, by dead incarnations */
	uint64_t backing_bytes[CNRE_BACKING_4K + 1];
	uint64_t kv_file_bytes;
	uint32_t model_count, layer_count, client_count, drive_count, vram_count;
	struct metrics_model model[MANAGER_MODELS_MAX];
	struct metrics_layer layer[METRICS_LAYERS_MAX + MANAGER_MODELS_MAX];
	struct metrics_client client[METRICS_CLIENTS_MAX + 1]; /* the last: all others */
	struct metrics_drive drive[LOADER_DRIVES_MAX];
	struct metrics_vram vram[CNRE_VRAM_DEVICES_MAX];
};

/* Upper bounds of the buckets, rising, in nanoseconds and as they are written. */
struct metrics_bound {
	int64_t ns;
	const char *le;
};
extern const struct metrics_bound metrics_bounds[METRICS_BUCKETS];
void metrics_observe(struct metrics_histogram *histogram, int64_t ns);

/*
 * metrics_text - the snapshot as text, with malloc
 *
 * @is_openmetrics   1: OpenMetrics 1.0; 0: the older text format of Prometheus (0.0.4), for who does not ask for it
 *
 * Returns the text, or NULL: out of memory.
 */
char *metrics_text(const struct metrics_snapshot *snapshot, int is_openmetrics, size_t *ret_bytes);

#endif
