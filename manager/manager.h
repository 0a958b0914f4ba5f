/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's parts and where they meet. Everything here belongs to the core thread: no locks. Only worker.c,
 * bell_thread.c, loader_pool.c, pressure_watch.c and metrics_server.c have other threads, and those touch nothing of this.
 */
#ifndef CNRE_MANAGER_MANAGER_H
#define CNRE_MANAGER_MANAGER_H

#include "manager/budget.h"
#include "manager/loader.h"
#include "manager/measure.h"
#include "manager/pressure.h"
#include "manager/watchdog.h"
#include "model/catalog.h"
#include "shm/counters.h"
#include "shm/segment.h"

#include <stdint.h>

#define MANAGER_MODELS_MAX 16u

struct bell;
struct fences;
struct kv_store;
struct layer_counts;
struct digest_table;
struct drives;
struct feed;
struct listener;
struct loop;
struct metrics;
struct mirrors;
struct pool;
struct prepare;
struct residency;
struct scrub;
struct session_table;
struct settings;
struct store;
struct survey;
struct use_import;
struct vram;
struct warm;
struct worker;

/*
 * The loader's numbers of the files with one shard's bytes: the primary first, then copies as they are proven (mirror.h), at any
 * time. None moves and none goes.
 */
struct shard_files {
	uint32_t count;
	uint32_t file[LOADER_REPLICAS_MAX];
	uint8_t mirror[LOADER_REPLICAS_MAX]; /* 0 the primary, else which --mirror, counted from 1 */
};

/* A checkpoint that is served: its catalog, and the two segments that clients map. */
struct served_model {
	struct model_catalog *catalog;
	struct cnre_segment catalog_segment, directory_segment;
	struct cnre_directory *directory;
	uint32_t number;                  /* index among the served models */
	uint32_t first_layer;             /* layer i of this model is layer first_layer + i in the policy */
	uint32_t first_owner;             /* object i of this model is owner first_owner + i in pool, policy, residency */
	struct shard_files *files_of_shard; /* [catalog->shard_count]; of a view: the checkpoint's */
	struct served_model *checkpoint;  /* of a view (model/view.h): the model whose bytes it is made of, which stands before it */
};

struct manager {
	const struct settings *settings;
	int64_t client_policy_ns;         /* when a client last changed the policy; 0: never */
	int64_t control_due_ns;           /* no request of the control plane is read before then */
	struct budget budget;             /* as decided at the start, with its terms */
	struct cnre_segment page_segment, counters_segment, state_segment;
	struct cnre_page *page;
	struct cnre_counters *counters;
	struct cnre_state_table *state;
	struct served_model model[MANAGER_MODELS_MAX];
	uint32_t model_count, owner_count;
	uint32_t loads_max;               /* objects on their way at once, over all drives (R16) */
	uint32_t drives_most;             /* that loads are counted for: those of the checkpoint, and one for each mirror */
	uint32_t loads_most;              /* the same at the first budget; a smaller one lowers loads_max */
	uint64_t window_bytes;            /* the largest slab of any model: the unit of reservations */
	uint64_t slab_bytes_total;        /* all objects of all models */
	struct pool *pool;
	struct loader *loader;
	uint32_t buffered_drives;         /* bit by drive: that it refuses O_DIRECT was said */
	struct drives *drives;            /* which of them serve, and how they do */
	struct feed *feed;                /* who learns from what clients did */
	struct layer_counts *layer_counts; /* what is counted by layer; NULL: nothing is */
	struct residency *residency;
	struct session_table *sessions;
	struct survey *survey;
	struct worker *worker;            /* what is done in milliseconds, whatever drives do */
	struct prepare *prepare;          /* where workers make prepared objects; NULL: no view is served */
	struct worker *writer;            /* one thread: files of histories and traces, on drives that may hang */
	struct digest_table *digests;     /* NULL: nothing is verified */
	int verifies_loads;               /* every load is hashed and compared */
	int64_t read_timeout_ns;          /* a drive must answer in it; 0: it may take for ever */
	struct scrub *scrub;              /* NULL: off */
	struct use_import *use_import;    /* histories from engines */
	struct warm *warm;                /* what is loaded before anybody asks for it */
	uint64_t log_words;               /* of all access logs, since the start */
	int64_t log_heard_ns, log_due_ns; /* the last time there were any; the next look */
	uint32_t log_turn;                /* with whom the next turn begins */
	int log_has_more;                 /* somebody wrote more than its share of a turn */
	struct bell *bell;
	struct loop *loop;
	struct listener *listener;
	struct store *store;              /* where descriptors go that must outlive us */
	struct fences *fences;            /* late reads of dead incarnations */
	struct kv_store *kv;              /* NULL: KV prefixes are not kept */
	struct vram *vram;                /* NULL: no GPU is used, and none was asked for */
	struct mirrors *mirrors;          /* NULL: none */
	struct metrics *metrics;          /* NULL: off */
	char *const *argv;                /* to start a keeper, or the next manager */
	int adopted;                      /* this incarnation took over from another */
	int is_adopting;                  /* what is told about now is stored already */
	uint32_t clients_max;
	struct measure measure;
	struct pressure pressure;
	struct watchdog watchdog;
	int64_t started_ns;
	int stopping;                     /* a signal or the idle exit asked for the end */
};

#endif
