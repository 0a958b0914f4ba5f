/* SPDX-License-Identifier: Apache-2.0 */
/* A registry and a built-in store; see v4_store.h. */
#include "tests/support/v4_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKENDS_MAX 8u

static struct {
	const char *name;
	ColiExpertStoreBackendOpenFn open;
} backends[BACKENDS_MAX];
static unsigned backend_count;

_Atomic int v4_builtins_open, v4_builtin_opens_fail;

int coli_expert_store_backend_register(const char *name, ColiExpertStoreBackendOpenFn open_fn)
{
	unsigned at = 0;

	while (at < backend_count && strcmp(backends[at].name, name) != 0)
		at++;
	if (at == BACKENDS_MAX)
		return -1;
	backends[at].name = name;
	backends[at].open = open_fn;
	backend_count += at == backend_count;
	return 0;
}

ColiExpertStoreBackendOpenFn coli_expert_store_backend_lookup(const char *name)
{
	for (unsigned i = 0; i < backend_count; i++)
		if (strcmp(backends[i].name, name) == 0)
			return backends[i].open;
	return NULL;
}

int coli_expert_store_backend_open_selected(ColiV4Engine *engine, const ColiDeepSeekV4Config *config,
					    const ColiDeepSeekV4ExpertStoreOptions *options, ColiExpertStore **output,
					    char *error, size_t error_size)
{
	const char *name = getenv("COLI_EXPERT_STORE");
	ColiExpertStoreBackendOpenFn open = coli_expert_store_backend_lookup(name != NULL ? name : "auto");

	if (open != NULL)
		return open(engine, config, options, output, error, error_size);
	(void)snprintf(error, error_size, "no backend %s", name);
	return -1;
}

/* ---- the built-in store ---- */

static const unsigned char zeros[64];

static int lookup(ColiExpertStore *store, ColiExpertKey key, ColiExpertView *view)
{
	struct v4_builtin *state = store->state;

	atomic_fetch_add_explicit(&state->lookups, 1, memory_order_relaxed);
	memset(view, 0, sizeof *view);
	view->key = key; /* even when it fails, as nobody may rely on */
	if (atomic_load_explicit(&state->fails, memory_order_relaxed) > 0) {
		atomic_fetch_sub_explicit(&state->fails, 1, memory_order_relaxed);
		return -1;
	}
	view->gate.data = view->up.data = view->down.data = zeros;
	view->lease = state;
	atomic_fetch_add_explicit(&state->leases, 1, memory_order_relaxed);
	return 0;
}

static void release(ColiExpertStore *store, ColiExpertView *view)
{
	struct v4_builtin *state = store->state;

	if (view->lease == state)
		atomic_fetch_sub_explicit(&state->leases, 1, memory_order_relaxed);
	memset(view, 0, sizeof *view);
}

static int prefetch(ColiExpertStore *store, const ColiExpertKey *keys, size_t count)
{
	(void)store;
	(void)keys;
	(void)count;
	return 0;
}

static void stats(const ColiExpertStore *store, ColiExpertStoreStats *ret_stats)
{
	(void)store;
	memset(ret_stats, 0, sizeof *ret_stats);
}

static int emap(const ColiExpertStore *store, char *hex, size_t bytes, void *ret_telemetry)
{
	(void)hex;
	(void)bytes;
	(void)ret_telemetry;
	return v4_helper_looks(store);
}

static void destroy(ColiExpertStore *store)
{
	free(store->state);
	free(store);
	atomic_fetch_sub_explicit(&v4_builtins_open, 1, memory_order_relaxed);
}

static const ColiExpertStoreOps operations = {lookup, release, prefetch, stats, emap, destroy};

static int open_builtin(ColiV4Engine *engine, const ColiDeepSeekV4Config *config,
			const ColiDeepSeekV4ExpertStoreOptions *options, ColiExpertStore **output, char *error,
			size_t error_size)
{
	ColiExpertStore *store = calloc(1, sizeof *store);
	struct v4_builtin *state = calloc(1, sizeof *state);

	(void)engine;
	(void)config;
	(void)options;
	if (store == NULL || state == NULL || atomic_load_explicit(&v4_builtin_opens_fail, memory_order_relaxed) > 0) {
		atomic_fetch_sub_explicit(&v4_builtin_opens_fail, 1, memory_order_relaxed);
		(void)snprintf(error, error_size, "the built-in store has no room");
		free(store);
		free(state);
		return -1;
	}
	state->magic = V4_BUILTIN_MAGIC;
	store->ops = &operations;
	store->state = state;
	atomic_fetch_add_explicit(&v4_builtins_open, 1, memory_order_relaxed);
	*output = store;
	return 0;
}

__attribute__((constructor)) static void register_builtin(void)
{
	(void)coli_expert_store_backend_register("auto", open_builtin);
}

/* ---- as the engine uses a store ---- */

int v4_helper_looks(const ColiExpertStore *store)
{
	struct v4_builtin *state = store->state;

	if (state == NULL || state->magic != V4_BUILTIN_MAGIC)
		return -1;
	atomic_fetch_add_explicit(&state->emaps, 1, memory_order_relaxed);
	return 0;
}

int v4_lookup(ColiExpertStore *store, int layer, int expert, ColiExpertView *view)
{
	int r = store->ops->lookup(store, (ColiExpertKey){layer, expert}, view);

	if (r != 0)
		memset(view, 0, sizeof *view);
	return r;
}

void v4_release(ColiExpertStore *store, ColiExpertView *view)
{
	store->ops->release(store, view);
	memset(view, 0, sizeof *view);
}
