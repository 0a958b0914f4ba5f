/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expert store of the DeepSeek engine under load, for TSan: loader threads look up, other threads take the views by
 * value and release them; more views are out than the reservation has, while the host evicts whatever it can and fails some
 * loads. Every view must hold its expert's bytes until its release, and in the end nothing may be held.
 *
 * usage: stress_colibri_store [LOOKUPS a thread]
 */
#include "client/colibri/expert_store.c"
#include "tests/support/attached.h"
#include "tests/support/v4_store.h"

#define LOADERS 16u
#define COMPUTERS 3u
#define QUEUE 24u /* views between them; the reservation is smaller */
#define LAYERS 4u

struct stress {
	ColiExpertStore *store;
	struct fake_host *host;
	unsigned lookups;
	pthread_mutex_t lock;             /* the queue */
	pthread_cond_t changed;
	ColiExpertView queue[QUEUE];
	unsigned queued, loading;
	_Atomic unsigned running, wrong, alone;
};

static unsigned next_random(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Every 200th load fails. Called by the loader's thread only. */
static int fail_some(void *context, uint32_t object)
{
	static unsigned loads;

	(void)context;
	(void)object;
	return ++loads % 200 == 0 ? -CNRE_LOAD_EIO : 0;
}

static void push(struct stress *stress, const ColiExpertView *view)
{
	(void)pthread_mutex_lock(&stress->lock);
	while (stress->queued == QUEUE)
		(void)pthread_cond_wait(&stress->changed, &stress->lock);
	stress->queue[stress->queued++] = *view;
	(void)pthread_cond_broadcast(&stress->changed);
	(void)pthread_mutex_unlock(&stress->lock);
}

/* 1, or 0 when no more will come. */
static int pop(struct stress *stress, ColiExpertView *ret_view)
{
	int got;

	(void)pthread_mutex_lock(&stress->lock);
	while (stress->queued == 0 && stress->loading > 0)
		(void)pthread_cond_wait(&stress->changed, &stress->lock);
	got = stress->queued > 0;
	if (got)
		*ret_view = stress->queue[--stress->queued];
	(void)pthread_cond_broadcast(&stress->changed);
	(void)pthread_mutex_unlock(&stress->lock);
	return got;
}

static void *run_loader(void *context)
{
	struct stress *stress = context;
	unsigned seed = (unsigned)(uintptr_t)pthread_self() | 1;

	for (unsigned i = 0; i < stress->lookups; i++) {
		int layer = (int)(next_random(&seed) % LAYERS), expert = (int)(next_random(&seed) % EXPERTS);
		ColiExpertView view;

		if (v4_lookup(stress->store, layer, expert, &view) != 0)
			atomic_fetch_add_explicit(&stress->wrong, 1, memory_order_relaxed);
		else
			push(stress, &view);
	}
	(void)pthread_mutex_lock(&stress->lock);
	stress->loading--;
	(void)pthread_cond_broadcast(&stress->changed);
	(void)pthread_mutex_unlock(&stress->lock);
	return NULL;
}

static int is_right(const ColiExpertView *view)
{
	const ColiTensorView *tensor[] = {&view->gate, &view->up, &view->down};
	uint32_t object = (uint32_t)view->key.layer * EXPERTS + (uint32_t)view->key.expert;

	for (unsigned i = 0; i < 3; i++) {
		const uint32_t *word = tensor[i]->data;

		if (tensor[i]->data_bytes != FAKE_HOST_PART_BYTES)
			return 0;
		for (unsigned k = 0; k < FAKE_HOST_PART_BYTES / sizeof *word; k++)
			if (word[k] != object)
				return 0;
	}
	return 1;
}

static void *run_computer(void *context)
{
	struct stress *stress = context;
	ColiExpertView view;

	while (pop(stress, &view)) {
		if (view.lease == stress->store->state)
			atomic_fetch_add_explicit(&stress->alone, 1, memory_order_relaxed);
		else if (!is_right(&view))
			atomic_fetch_add_explicit(&stress->wrong, 1, memory_order_relaxed);
		v4_release(stress->store, &view);
	}
	atomic_fetch_sub_explicit(&stress->running, 1, memory_order_relaxed);
	return NULL;
}

static void *run_evictor(void *context)
{
	struct stress *stress = context;
	unsigned seed = 4711;

	while (atomic_load_explicit(&stress->running, memory_order_relaxed) > 0)
		fake_host_evict_ready(stress->host, next_random(&seed) % (LAYERS * EXPERTS));
	return NULL;
}

static int open_stress(struct stress *stress)
{
	const struct fake_host_setup setup = {
		.layer_count = LAYERS, .expert_count = EXPERTS, .reserve_slabs = 8, .is_f32 = 1, .load = fail_some};
	const ColiDeepSeekV4ExpertStoreOptions options = {.model_dir = FAKE_HOST_MODEL};
	char message[256] = "";
	int r;

	stress->host = fake_host_start(&setup);
	(void)setenv("COLI_EXPERT_STORE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", fake_host_socket(stress->host), 1);
	(void)pthread_mutex_init(&stress->lock, NULL);
	(void)pthread_cond_init(&stress->changed, NULL);
	stress->loading = LOADERS;
	atomic_store_explicit(&stress->running, COMPUTERS, memory_order_relaxed);
	r = coli_expert_store_backend_open_selected(NULL, NULL, &options, &stress->store, message, sizeof message);
	if (r != 0)
		(void)fprintf(stderr, "stress_colibri_store: %s\n", message);
	return r;
}

int main(int argc, char **argv)
{
	struct stress stress = {.lookups = argc > 1 ? (unsigned)atoi(argv[1]) : 3000};
	void *(*const body[])(void *) = {run_loader, run_computer, run_evictor};
	pthread_t thread[LOADERS + COMPUTERS + 1];
	ColiExpertStoreStats numbers;
	unsigned bad;

	if (open_stress(&stress) != 0)
		return 1;
	for (unsigned i = 0; i < LOADERS + COMPUTERS + 1; i++)
		if (pthread_create(&thread[i], NULL, body[(i >= LOADERS) + (i == LOADERS + COMPUTERS)], &stress) != 0)
			return 1;
	for (unsigned i = 0; i < LOADERS + COMPUTERS + 1; i++)
		(void)pthread_join(thread[i], NULL);
	bad = atomic_load_explicit(&stress.wrong, memory_order_relaxed);
	stress.store->ops->stats(stress.store, &numbers);
	printf("requests %llu hits %llu misses %llu, %u read alone\n", (unsigned long long)numbers.requests,
	       (unsigned long long)numbers.hits, (unsigned long long)numbers.misses,
	       atomic_load_explicit(&stress.alone, memory_order_relaxed));
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		bad += fake_host_leases(stress.host, i);
	bad += atomic_load_explicit(&((struct v4_builtin *)stress.store->state)->leases, memory_order_relaxed);
	if (bad != 0)
		(void)fprintf(stderr, "stress_colibri_store: %u views were wrong or are still held\n", bad);
	stress.store->ops->destroy(stress.store);
	fake_host_stop(stress.host);
	return bad != 0;
}
