/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client library under load, for TSan: threads that acquire, batch and prefetch within a small reservation, while
 * the host evicts whatever it can, fails some loads, and pauses to be continued by a successor. Every view must hold its
 * object's bytes for as long as it is leased, and in the end nothing may be held. Both sides run in one process, since
 * TSan sees one only.
 *
 * usage: stress_client [ROUNDS]
 */
#include "tests/support/attached.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 6u
#define LAYERS 4u
#define BATCH 3u
#define EVICTIONS_PER_RESTART 5000u /* or attempts at one */

struct stress {
	struct cnre *client;
	struct fake_host *host;
	unsigned rounds, restarts;
	_Atomic unsigned running;
};

struct worker {
	struct stress *stress;
	unsigned seed;
	int result;
};

static unsigned next_random(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Every 50th load fails. Called by the loader's thread only. */
static int fail_some(void *context, uint32_t object)
{
	static unsigned loads;

	(void)context;
	(void)object;
	return ++loads % 50 == 0 ? -CNRE_LOAD_EIO : 0;
}

static int use(struct cnre *client, struct cnre_expert *view)
{
	struct cnre_expert copy = *view;

	if (!attached_is_right(view))
		return -EBADMSG;
	if (cnre_release(client, view) != 0)
		return -EINVAL;
	return cnre_release(client, &copy) == -EINVAL ? 0 : -ENOTRECOVERABLE;
}

/* Beyond the reservation, and a load that failed, are answers; everything else is a fault. */
static int acquire_one(struct worker *worker, uint32_t layer, uint32_t expert)
{
	struct cnre_expert view;
	int r = cnre_acquire(worker->stress->client, layer, expert, next_random(&worker->seed) % 4 == 0 ? 0 : -1,
			     &view);

	if (r == -ENOSPC || r == -EIO || r == -ETIMEDOUT)
		return 0;
	return r < 0 ? r : use(worker->stress->client, &view);
}

static int take_batch(struct worker *worker, struct cnre_batch *batch)
{
	struct cnre_expert view;

	for (uint32_t i = 0; i < BATCH; i++) {
		int r = cnre_batch_wait(batch, i, -1, &view);

		if (r == 0)
			r = use(worker->stress->client, &view);
		if (r < 0 && r != -EIO)
			return r;
		if (next_random(&worker->seed) % 8 == 0)
			break; /* the rest is given back by the end */
	}
	return 0;
}

static int batch_some(struct worker *worker, uint32_t layer)
{
	struct cnre *client = worker->stress->client;
	uint32_t experts[BATCH];
	struct cnre_batch *batch;
	int r;

	for (unsigned i = 0; i < BATCH; i++)
		experts[i] = next_random(&worker->seed) % EXPERTS;
	if (next_random(&worker->seed) % 4 == 0 && cnre_prefetch(client, layer, experts, BATCH) < 0)
		return -EINVAL;
	r = cnre_batch_begin(client, layer, experts, BATCH, 1, &batch);
	if (r < 0)
		return r;
	r = take_batch(worker, batch);
	return cnre_batch_end(batch) == 0 ? r : -EINVAL;
}

static void *run_worker(void *context)
{
	struct worker *worker = context;

	for (unsigned i = 0; i < worker->stress->rounds && worker->result == 0; i++) {
		uint32_t layer = next_random(&worker->seed) % LAYERS;

		if (next_random(&worker->seed) % 2 == 0)
			worker->result = batch_some(worker, layer);
		else
			worker->result = acquire_one(worker, layer, next_random(&worker->seed) % EXPERTS);
		cnre_token_end(worker->stress->client, 1);
	}
	atomic_fetch_sub_explicit(&worker->stress->running, 1, memory_order_relaxed);
	return NULL;
}

static void *run_evictor(void *context)
{
	struct stress *stress = context;
	unsigned seed = 4711;

	for (unsigned i = 1; atomic_load_explicit(&stress->running, memory_order_relaxed) > 0; i++) {
		fake_host_evict_ready(stress->host, next_random(&seed) % (LAYERS * EXPERTS));
		if (i % EVICTIONS_PER_RESTART == 0)
			fake_host_pause(stress->host);
		if (i % EVICTIONS_PER_RESTART != EVICTIONS_PER_RESTART / 10)
			continue;
		fake_host_restart(stress->host, next_random(&seed) % 2 == 0 ? FAKE_HOST_FORGETS : 0);
		stress->restarts++;
	}
	fake_host_restart(stress->host, 0); /* not left paused */
	return NULL;
}

int main(int argc, char **argv)
{
	struct fake_host_setup setup = {
		.layer_count = LAYERS, .expert_count = EXPERTS, .reserve_slabs = BATCH + 2, .load = fail_some};
	struct stress stress = {.rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000};
	struct worker worker[THREADS];
	pthread_t thread[THREADS], evictor;
	struct cnre_stats stats;
	int bad = 0;

	stress.host = attached_start(&setup, &stress.client);
	atomic_store_explicit(&stress.running, THREADS, memory_order_relaxed);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){.stress = &stress, .seed = i * 7919 + 1};
		bad |= pthread_create(&thread[i], NULL, run_worker, &worker[i]) != 0;
	}
	bad |= pthread_create(&evictor, NULL, run_evictor, &stress) != 0;
	if (bad)
		return 1;
	for (unsigned i = 0; i < THREADS; i++) {
		(void)pthread_join(thread[i], NULL);
		if (worker[i].result != 0)
			bad = fprintf(stderr, "stress_client: thread %u: %d\n", i, worker[i].result);
	}
	(void)pthread_join(evictor, NULL);
	stats = attached_stats(stress.client);
	printf("requests %llu hits %llu misses %llu joins %llu restarts %u\n", (unsigned long long)stats.requests,
	       (unsigned long long)stats.hits, (unsigned long long)stats.misses, (unsigned long long)stats.joins,
	       stress.restarts);
	cnre_detach(stress.client);
	if (stats.leased_bytes != 0 || fake_host_detaches(stress.host) != 1)
		bad = fprintf(stderr, "stress_client: something is still held\n");
	fake_host_stop(stress.host);
	return bad != 0;
}
