/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An expert store of Colibri's DeepSeek V4 engine that takes its experts from CNRE: `make colibri COLIBRI_SRC=DIR`. It is
 * compiled against the headers of that tree, since the engine's table of operations has neither size nor version, and
 * linked into the engine, where it registers itself as `cnre` (COLI_EXPERT_STORE=cnre, or COLI_CACHE=cnre).
 *
 * It stands in front of the engine's own store, in place: that one is opened first, and keeps its object and its state,
 * and only its table of operations is exchanged for a copy with ours in it. For two reasons. The engine's helpers of
 * telemetry take the state of whatever store there is for the built-in one and lock a mutex in it, so another state would
 * be corrupted. And opening the built-in store also decides about the engine's dense weights. Operations that ours does
 * not know stay the built-in ones, which see a store that is whole, and empty.
 *
 * A lookup fails only where the engine's own store fails too. Nothing is ever refused because memory is short:
 *   - within the reservation of this process a lookup is a lease, and waits for what other processes hold;
 *   - beyond it, it gets a private copy, made through one lease that is kept free for that and given back at once. To
 *     wait for a release here would be a deadlock: the engine releases in the order of experts, and loader threads arrive
 *     in any order;
 *   - where CNRE cannot give an expert at all, the built-in store reads it.
 * Leases belong to the process: any thread may release what another looked up, from a copy of the view.
 */
#include "client/colibri/provider.h"

#include <deepseek_v4_internal.h>
#include <errno.h>
#include <expert_store.h>
#include <expert_store_registry.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a header that is not the one we know would break without a word. Types and missing names the compiler sees. */
#define FOLLOWS(before, after) (offsetof(ColiExpertStoreOps, before) < offsetof(ColiExpertStoreOps, after))
_Static_assert(offsetof(ColiExpertStoreOps, lookup) == 0 && FOLLOWS(lookup, release) && FOLLOWS(release, prefetch) &&
		       FOLLOWS(prefetch, stats) && FOLLOWS(stats, destroy),
	       "this tree's ExpertStore operations are in another order: see client/colibri/expert_store.c");
_Static_assert(offsetof(ColiExpertStore, ops) == 0 && offsetof(ColiExpertStore, state) == sizeof(void *),
	       "this tree's ExpertStore object begins otherwise: see client/colibri/expert_store.c");
_Static_assert(sizeof((ColiTensorView){0}.rows) == 8 && sizeof((ColiTensorView){0}.data_bytes) == 8 &&
		       sizeof((ColiTensorView){0}.block_rows) == 4,
	       "this tree's tensor views have fields of other sizes: see client/colibri/expert_store.c");
_Static_assert(sizeof((ColiExpertStoreStats){0}.requests) == 8,
	       "this tree's statistics have fields of another size: see client/colibri/expert_store.c");

#define LANES_DEFAULT 9u                  /* the engine's V4_LOADER_LANES: lookups at once */
#define LANES_MAX 16u
#define TOP_K_MAX 16u                     /* views that a token holds beside them */
#define LEASES_MAX 256u                   /* lookups not released: far more than lanes and views */
#define NOTES_MAX 8u                      /* lines that one store says */

struct lease {
	struct cnre_expert expert;        /* lease 0: a copy */
	void *copy;                       /* NULL: a lease */
	struct lease *next;               /* while free */
	int is_out;
};

struct backend {
	ColiExpertStoreOps ops;           /* what the store points to */
	const ColiExpertStoreOps *base;   /* the built-in store's */
	struct cnre_colibri *shim;
	struct cnre *client;
	pthread_mutex_t lock;             /* what follows */
	pthread_cond_t returned;
	struct lease *free;
	uint32_t held, held_max;          /* by lookups; the reservation has one more */
	uint32_t out;
	uint32_t notes;
	int is_copying;                   /* that one is in use */
	struct lease lease[LEASES_MAX];
};

static struct backend *backend_of(const ColiExpertStore *store)
{
	return (struct backend *)((char *)(uintptr_t)store->ops - offsetof(struct backend, ops));
}

/* An engine has no place for the reason of a failed lookup but its standard error. */
static void note(struct backend *backend, ColiExpertKey key, int error, const char *consequence)
{
	uint32_t number;

	(void)pthread_mutex_lock(&backend->lock);
	number = backend->notes < NOTES_MAX ? ++backend->notes : NOTES_MAX + 1;
	(void)pthread_mutex_unlock(&backend->lock);
	if (number <= NOTES_MAX)
		(void)fprintf(stderr, "cnre: lookup of layer %d expert %d: %s%s%s\n", key.layer, key.expert,
			      cnre_colibri_explain(error), consequence, number == NOTES_MAX ? " (no more of these)" : "");
}

/* ---- leases of this process ---- */

/*
 * A lease where the reservation has one left, else the right to make a copy. The wait is for other copies in the making,
 * or for a release where LEASES_MAX are out, which only an engine that never releases can bring about.
 */
static struct lease *take_lease(struct backend *backend, int *ret_is_copy)
{
	struct lease *lease;

	(void)pthread_mutex_lock(&backend->lock);
	while (backend->free == NULL || (backend->held == backend->held_max && backend->is_copying))
		(void)pthread_cond_wait(&backend->returned, &backend->lock);
	*ret_is_copy = backend->held == backend->held_max;
	if (*ret_is_copy)
		backend->is_copying = 1;
	else
		backend->held++;
	lease = backend->free;
	backend->free = lease->next;
	backend->out++;
	lease->is_out = 1;
	(void)pthread_mutex_unlock(&backend->lock);
	return lease;
}

static void put_lease(struct backend *backend, struct lease *lease, int was_held)
{
	(void)pthread_mutex_lock(&backend->lock);
	lease->next = backend->free;
	backend->free = lease;
	backend->held -= (uint32_t)was_held;
	backend->out--;
	(void)pthread_cond_broadcast(&backend->returned);
	(void)pthread_mutex_unlock(&backend->lock);
}

static void end_copying(struct backend *backend)
{
	(void)pthread_mutex_lock(&backend->lock);
	backend->is_copying = 0;
	(void)pthread_cond_broadcast(&backend->returned);
	(void)pthread_mutex_unlock(&backend->lock);
}

/* The parts as they were leased, each at a multiple of 64 and with 64 bytes behind it, as CNRE gives them. */
static uint64_t room_of(uint64_t bytes)
{
	return (bytes + 63) / 64 * 64 + 64;
}

static int copy_parts(struct lease *lease)
{
	uint64_t bytes = 0, at = 0;

	for (unsigned role = 0; role < CNRE_ROLES; role++)
		bytes += room_of(lease->expert.part[role].bytes);
	lease->copy = aligned_alloc(64, bytes);
	if (lease->copy == NULL)
		return -ENOMEM;
	for (unsigned role = 0; role < CNRE_ROLES; role++) {
		struct cnre_part *part = &lease->expert.part[role];

		if (part->bytes == 0)
			continue;
		memcpy((char *)lease->copy + at, part->data, part->bytes);
		part->data = (char *)lease->copy + at;
		at += room_of(part->bytes);
	}
	return 0;
}

static int fill_copy(struct backend *backend, ColiExpertKey key, struct lease *lease)
{
	int r = cnre_acquire(backend->client, (uint32_t)key.layer, (uint32_t)key.expert, -1, &lease->expert);

	if (r == 0) {
		r = copy_parts(lease);
		(void)cnre_release(backend->client, &lease->expert); /* ours, and clears lease->expert.lease */
	}
	end_copying(backend);
	return r;
}

/* A lease, or beyond the reservation a copy; nothing is kept on failure. */
static int get(struct backend *backend, ColiExpertKey key, struct lease **ret_lease)
{
	int is_copy, r;
	struct lease *lease = take_lease(backend, &is_copy);

	lease->copy = NULL;
	if (is_copy)
		r = fill_copy(backend, key, lease);
	else
		r = cnre_acquire(backend->client, (uint32_t)key.layer, (uint32_t)key.expert, -1, &lease->expert);
	if (r == 0) {
		*ret_lease = lease;
		return 0;
	}
	lease->is_out = 0;
	put_lease(backend, lease, !is_copy);
	return r;
}

static void give(struct backend *backend, struct lease *lease)
{
	int was_held = lease->copy == NULL;

	if (was_held)
		(void)cnre_release(backend->client, &lease->expert); /* ours, or we are a forked child */
	free(lease->copy);
	lease->copy = NULL;
	put_lease(backend, lease, was_held);
}

/* NULL: not one of ours, but the built-in store's. */
static struct lease *lease_of(struct backend *backend, const ColiExpertView *view)
{
	uintptr_t first = (uintptr_t)backend->lease, at = (uintptr_t)view->lease;

	return at >= first && at < first + sizeof backend->lease ? view->lease : NULL;
}

/* 1: the view is this lease's, which from now on nobody else can give back. */
static int claim(struct backend *backend, struct lease *lease, const ColiExpertView *view)
{
	int is_ours;

	(void)pthread_mutex_lock(&backend->lock);
	is_ours = lease->is_out && lease->expert.layer == (uint32_t)view->key.layer &&
		  lease->expert.expert == (uint32_t)view->key.expert;
	if (is_ours)
		lease->is_out = 0;
	(void)pthread_mutex_unlock(&backend->lock);
	return is_ours;
}

/* ---- views ---- */

/*
 * By the ordinals of the format table. Which of them the engine computes with is its own affair: it looks at the view and
 * refuses; version after version its experts have been FP4.
 */
static const struct tensor_format {
	ColiTensorFormat format;
	ColiScaleFormat scale;
	uint32_t block_rows;              /* 0: there is no such format of a tensor */
} tensor_formats[] = {
	{COLI_TENSOR_F32, COLI_SCALE_NONE, 1},
	{COLI_TENSOR_Q8_ROW, COLI_SCALE_F32, 1},
	{COLI_TENSOR_Q4_ROW, COLI_SCALE_F32, 1},
	{COLI_TENSOR_Q2_ROW, COLI_SCALE_F32, 1},
	{COLI_TENSOR_INT4_BLOCK, COLI_SCALE_F32, 1},
	{COLI_TENSOR_F32, COLI_SCALE_NONE, 0},
	{COLI_TENSOR_F32, COLI_SCALE_NONE, 0},
	{COLI_TENSOR_FP4_NATIVE_BLOCK, COLI_SCALE_UE8M0, 1},
	{COLI_TENSOR_FP8_E4M3_BLOCK, COLI_SCALE_F32, 128},
};

static int fill_tensor(ColiTensorView *tensor, const struct cnre_colibri_matrix *matrix)
{
	const struct tensor_format *format = &tensor_formats[matrix->format];

	if (format->block_rows == 0)
		return -ENOTSUP;
	*tensor = (ColiTensorView){
		.format = format->format,
		.scale_format = format->scale,
		.data = matrix->data,
		.scales = matrix->scales,
		.data_bytes = matrix->data_bytes,
		.scale_bytes = matrix->scale_bytes,
		.rows = matrix->rows,
		.columns = matrix->columns,
		.block_rows = format->block_rows,
		.block_columns = matrix->group != 0 ? matrix->group : matrix->columns,
	};
	return 0;
}

static int fill_view(ColiExpertView *view, ColiExpertKey key, const struct cnre_expert *expert)
{
	struct cnre_colibri_view matrices;
	int r = cnre_colibri_describe(expert, &matrices);

	if (r == 0)
		r = fill_tensor(&view->gate, &matrices.gate);
	if (r == 0)
		r = fill_tensor(&view->up, &matrices.up);
	if (r == 0)
		r = fill_tensor(&view->down, &matrices.down);
	view->key = key;
	return r;
}

/* ---- the operations ---- */

static int look_up_builtin(struct backend *backend, ColiExpertStore *store, ColiExpertKey key, ColiExpertView *view)
{
	int r = backend->base->lookup(store, key, view);

	if (r != 0)
		memset(view, 0, sizeof *view);
	return r;
}

static int lookup(ColiExpertStore *store, ColiExpertKey key, ColiExpertView *view)
{
	struct backend *backend = backend_of(store);
	struct lease *lease = NULL;
	int r;

	if (view == NULL)
		return -1;
	memset(view, 0, sizeof *view);
	if (key.layer < 0 || key.expert < 0)
		return -1;
	r = get(backend, key, &lease);
	if (r < 0) {
		note(backend, key, r, "; the engine reads it by itself");
		return look_up_builtin(backend, store, key, view);
	}
	(void)fill_view(view, key, &lease->expert); /* of a format that was checked at open */
	view->lease = lease;
	return 0;
}

static void release(ColiExpertStore *store, ColiExpertView *view)
{
	struct backend *backend = backend_of(store);
	struct lease *lease;

	if (view == NULL)
		return;
	lease = view->lease == NULL ? NULL : lease_of(backend, view);
	if (lease == NULL && view->lease != NULL)
		backend->base->release(store, view);
	else if (lease != NULL && claim(backend, lease, view))
		give(backend, lease);
	memset(view, 0, sizeof *view);
}

/* Keys of one layer that stand together go together. */
static int prefetch(ColiExpertStore *store, const ColiExpertKey *keys, size_t count)
{
	struct backend *backend = backend_of(store);
	int id[CNRE_COLIBRI_BLOCK_MAX];
	int accepted = 0;

	if (keys == NULL)
		return 0;
	for (size_t i = 0; i < count;) {
		int layer = keys[i].layer, run = 0;

		while (i < count && keys[i].layer == layer && run < (int)CNRE_COLIBRI_BLOCK_MAX)
			id[run++] = keys[i++].expert;
		accepted += cnre_colibri_prefetch(backend->shim, layer, id, run);
	}
	return accepted;
}

static void stats(const ColiExpertStore *store, ColiExpertStoreStats *ret_stats)
{
	struct cnre_colibri_stats stats;

	if (ret_stats == NULL)
		return;
	memset(ret_stats, 0, sizeof *ret_stats);
	if (cnre_colibri_stats(backend_of(store)->shim, &stats) < 0)
		return; /* a forked child did nothing */
	ret_stats->requests = stats.requests;
	ret_stats->hits = stats.hits;
	ret_stats->misses = stats.misses;
	ret_stats->prefetched = stats.prefetched;
	ret_stats->prefetch_hits = stats.prefetch_hits;
	ret_stats->bytes_read = stats.bytes_read;
	ret_stats->resident_bytes = stats.resident_bytes;
	ret_stats->capacity_bytes = stats.capacity_bytes;
}

static void free_backend(struct backend *backend)
{
	cnre_colibri_close(backend->shim);
	(void)pthread_cond_destroy(&backend->returned);
	(void)pthread_mutex_destroy(&backend->lock);
	free(backend);
}

/* With leases out, which the contract forbids, they and what they name stay until the process ends. */
static void destroy(ColiExpertStore *store)
{
	struct backend *backend = backend_of(store);
	uint32_t out;

	(void)pthread_mutex_lock(&backend->lock);
	out = backend->out;
	(void)pthread_mutex_unlock(&backend->lock);
	store->ops = backend->base;
	store->ops->destroy(store);
	if (out == 0)
		free_backend(backend);
	else
		(void)fprintf(stderr, "cnre: destroy: %u experts are still leased: release them first\n", out);
}

void cnre_colibri_register_store(void);

/* ---- opening ---- */

/* V4_LOADER_LANES as the engine reads it. */
static uint32_t lanes(void)
{
	const char *text = getenv("V4_LOADER_LANES");
	int count = text == NULL || text[0] == '\0' ? (int)LANES_DEFAULT : atoi(text);

	if (count < 1)
		return 1;
	return count > (int)LANES_MAX ? LANES_MAX : (uint32_t)count;
}

static int check_views(struct cnre *client, const struct cnre_model_info *info)
{
	for (uint32_t layer = 0; layer < info->layer_count; layer++) {
		struct cnre_expert expert;
		ColiExpertView view = {0};
		int r = cnre_describe(client, layer, 0, &expert);

		if (r == 0)
			r = fill_view(&view, (ColiExpertKey){(int)layer, 0}, &expert);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

static int open_client(struct backend *backend, const char *model, char *error, size_t error_bytes)
{
	struct cnre_colibri_setup setup = {
		.model = model, .lease_count = lanes() + TOP_K_MAX + 1, .is_chosen = 1};
	struct cnre_model_info info = {.size = sizeof info};
	int r = cnre_colibri_open(&backend->shim, &setup, error, error_bytes);

	if (r < 0)
		return r;
	backend->client = cnre_colibri_client(backend->shim);
	r = cnre_model(backend->client, &info);
	if (r == 0)
		r = check_views(backend->client, &info);
	if (r < 0 && error != NULL && error_bytes > 0)
		(void)snprintf(error, error_bytes, "cnre: use %s: %s", model, cnre_colibri_explain(r));
	if (r == 0)
		backend->held_max = info.reserve_objects > 0 ? info.reserve_objects - 1 : 0;
	return r;
}

static int make_backend(const char *model, struct backend **ret_backend, char *error, size_t error_bytes)
{
	struct backend *backend = calloc(1, sizeof *backend);
	int r;

	if (backend == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < LEASES_MAX; i++) {
		backend->lease[i].next = backend->free;
		backend->free = &backend->lease[i];
	}
	(void)pthread_mutex_init(&backend->lock, NULL); /* these do not fail on Linux */
	(void)pthread_cond_init(&backend->returned, NULL);
	r = open_client(backend, model, error, error_bytes);
	if (r < 0)
		free_backend(backend);
	else
		*ret_backend = backend;
	return r;
}

static int refuse(char *error, size_t error_bytes, const char *reason)
{
	if (error != NULL && error_bytes > 0)
		(void)snprintf(error, error_bytes, "cnre: open: %s", reason);
	return -1;
}

/* Operations of this tree that we do not know stay the built-in store's. */
static void take_over(struct backend *backend, ColiExpertStore *store)
{
	backend->base = store->ops;
	backend->ops = *store->ops;
	backend->ops.lookup = lookup;
	backend->ops.release = release;
	backend->ops.prefetch = prefetch;
	backend->ops.stats = stats;
	backend->ops.destroy = destroy;
	store->ops = &backend->ops;
}

static int open_store(ColiV4Engine *engine, const ColiDeepSeekV4Config *config,
		      const ColiDeepSeekV4ExpertStoreOptions *options, ColiExpertStore **ret_store, char *error,
		      size_t error_bytes)
{
	ColiExpertStoreBackendOpenFn open_builtin = coli_expert_store_backend_lookup("auto");
	struct backend *backend;
	ColiExpertStore *store = NULL;
	int r;

	if (options == NULL || options->model_dir == NULL || ret_store == NULL)
		return refuse(error, error_bytes, "no model directory is given");
	if (open_builtin == NULL)
		return refuse(error, error_bytes, "this engine has no store named auto, in front of which ours stands");
	r = make_backend(options->model_dir, &backend, error, error_bytes);
	if (r < 0)
		return r == -ENOMEM ? refuse(error, error_bytes, "out of memory") : -1;
	r = open_builtin(engine, config, options, &store, error, error_bytes);
	if (r != 0 || store == NULL || store->ops == NULL) {
		free_backend(backend);
		return r != 0 ? r : refuse(error, error_bytes, "the built-in store opened, but is none");
	}
	take_over(backend, store);
	*ret_store = store;
	return 0;
}

/*
 * Before main, as the registry wants it. The registry reads only its own switch: COLI_CACHE=cnre, which all engines
 * understand, is that switch set, where it is not set to something else.
 */
__attribute__((constructor)) void cnre_colibri_register_store(void)
{
	const char *cache = getenv("COLI_CACHE"), *chosen = getenv("COLI_EXPERT_STORE");

	(void)coli_expert_store_backend_register("cnre", open_store); /* a full registry: choosing it says so */
	if (cache != NULL && strcmp(cache, "cnre") == 0 && (chosen == NULL || chosen[0] == '\0'))
		(void)setenv("COLI_EXPERT_STORE", "cnre", 1);
}
