/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold acquires of the first experts of every layer by several threads, which is what a drive or several of them are read
 * for. Nothing of them may be resident. Prints one line of JSON with the bytes and the time from the first call to the last
 * answer; drives.sh repeats it and asks the manager which drive gave how much. With `layers` a layer begins when the one
 * before has come whole, as for an engine that decodes: then one late read holds up everything.
 *
 * usage: bench_drives SOCKET MODEL THREADS EXPERTS free|layers
 */
#include "base/clock.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 64u

struct bench {
	struct cnre *client;
	uint32_t layers, experts; /* of each layer */
	int in_layers;
	pthread_mutex_t lock;
	pthread_cond_t layer_came;
	uint32_t next, came;
	uint64_t bytes;
	uint32_t resident;
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_drives: %s: %s\n", what, strerror(-error));
	exit(1);
}

static int take(struct bench *bench, uint32_t *ret_object)
{
	int is_one;

	(void)pthread_mutex_lock(&bench->lock);
	while (bench->in_layers && bench->next / bench->experts > bench->came / bench->experts)
		(void)pthread_cond_wait(&bench->layer_came, &bench->lock);
	is_one = bench->next < bench->layers * bench->experts;
	*ret_object = bench->next;
	bench->next += (uint32_t)is_one;
	(void)pthread_mutex_unlock(&bench->lock);
	return is_one;
}

static void acquire_one(struct bench *bench, uint32_t layer, uint32_t index)
{
	struct cnre_expert expert;
	int r = cnre_acquire(bench->client, layer, index, -1, &expert);

	if (r < 0)
		fail("acquire", r);
	(void)pthread_mutex_lock(&bench->lock);
	bench->bytes += expert.bytes;
	bench->resident += (expert.flags & CNRE_WAS_RESIDENT) != 0;
	if (++bench->came % bench->experts == 0)
		(void)pthread_cond_broadcast(&bench->layer_came);
	(void)pthread_mutex_unlock(&bench->lock);
	r = cnre_release(bench->client, &expert);
	if (r < 0)
		fail("release", r);
}

/* Layer by layer, as an engine goes. */
static void *acquire_some(void *argument)
{
	struct bench *bench = argument;
	uint32_t object;

	while (take(bench, &object))
		acquire_one(bench, object / bench->experts, object % bench->experts);
	return NULL;
}

static void open_bench(struct bench *bench, char **argv)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = argv[1], .name = "bench_drives", .timeout_ns = -1};
	struct cnre_model_info model = {.size = sizeof model};
	int r = cnre_attach(&bench->client, argv[2], &options);

	if (r < 0)
		fail("attach", r);
	r = cnre_model(bench->client, &model);
	if (r < 0)
		fail("model", r);
	bench->layers = model.layer_count;
	bench->experts = (uint32_t)strtoul(argv[4], NULL, 10);
	if (bench->experts == 0 || bench->experts > model.expert_count)
		fail("EXPERTS: not a number of experts of a layer", -EINVAL);
	bench->in_layers = strcmp(argv[5], "layers") == 0;
	(void)pthread_mutex_init(&bench->lock, NULL);
	(void)pthread_cond_init(&bench->layer_came, NULL);
}

static int64_t run(struct bench *bench, uint32_t threads)
{
	pthread_t thread[THREADS_MAX];
	int64_t start_ns = cnre_clock_now_ns();

	for (uint32_t i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, acquire_some, bench) != 0)
			fail("thread", -EAGAIN);
	for (uint32_t i = 0; i < threads; i++)
		(void)pthread_join(thread[i], NULL);
	return cnre_clock_now_ns() - start_ns;
}

int main(int argc, char **argv)
{
	struct bench bench = {.next = 0};
	uint32_t threads = argc == 6 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	int64_t took_ns;

	if (threads == 0 || threads > THREADS_MAX) {
		fprintf(stderr, "usage: bench_drives SOCKET MODEL THREADS EXPERTS free|layers\n");
		return 2;
	}
	open_bench(&bench, argv);
	took_ns = run(&bench, threads);
	if (bench.resident > 0)
		fail("experts were resident already: reset the manager first", -EBUSY);
	printf("{\"objects\":%" PRIu32 ",\"bytes\":%" PRIu64 ",\"seconds\":%.6f,\"mb_s\":%.3f}\n",
	       bench.layers * bench.experts, bench.bytes, (double)took_ns / 1e9,
	       (double)bench.bytes * 1e3 / (double)took_ns);
	cnre_detach(bench.client);
	return 0;
}
