/* SPDX-License-Identifier: Apache-2.0 */
/* See engine.h. */
#include "engine/engine.h"

#include "engine/attach.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int engine_load_config(struct engine *engine, const struct options *options, char message[ENGINE_MESSAGE_BYTES])
{
	*engine = (struct engine){.options = options};
	return config_load(&engine->config, options->model, message);
}

static uint32_t allowed_cpus(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1; /* a huge machine: --threads */

	return count < (int)POOL_THREADS_MAX ? (uint32_t)count : POOL_THREADS_MAX;
}

static int open_compute(struct engine *engine, char *message)
{
	const struct options *options = engine->options;
	uint32_t threads = options->threads ? options->threads : allowed_cpus();
	int error;

	engine->compute.kernel = options->kernel ? kernel_find(options->kernel) : kernel_best();
	if (!engine->compute.kernel)
		return engine_fail(message, -ENOTSUP, "--kernel %.40s: unknown, or not for this CPU; leave it out",
				   options->kernel);
	error = pool_open(&engine->compute.pool, threads);
	if (error < 0)
		return engine_fail(message, error, "cannot start %u threads: %s; try fewer with --threads", threads,
				   strerror(-error));
	return 0;
}

/* One attachment for experts and prefixes: a process may have no second one. */
static int open_client(struct engine *engine, struct engine_size size, char *message)
{
	const struct options *options = engine->options;
	const struct attach_options attach = {
		.model = options->model,
		.socket = options->socket,
		.name = options->name,
		.reserve_bytes = options->reserve_bytes,
		.private_bytes = engine->weights.used_bytes + forward_bytes(&engine->config, size.positions) +
				 kv_cache_token_bytes(&engine->config) * size.positions * size.conversations,
		.is_without_experts = options->mode != CACHE_CNRE,
		.view = options->view,
	};

	if (options->mode != CACHE_CNRE && !options->kv)
		return 0;
	return attach_open(&engine->client, &engine->config, &attach, message);
}

static int open_source(struct engine *engine, char *message)
{
	const struct options *options = engine->options;

	switch (options->mode) {
	case CACHE_MMAP:
		return cache_mmap_open(&engine->source, &engine->config, &engine->shards, message);
	case CACHE_PRIVATE:
		return cache_private_open(&engine->source, &engine->config, &engine->shards, &options->private_size,
					  message);
	default:
		return cache_cnre_open(&engine->source, &engine->config, engine->client,
				       options->view ? MATRIX_ROWS16 : MATRIX_ROWS, message);
	}
}

/* Without prefixes time is lost, and no token: unless the options are wrong, the engine goes on, and says so. */
static int open_store(struct engine *engine, char *message)
{
	const struct options *options = engine->options;

	if (!options->kv)
		return 0;
	engine->kv_error =
		kv_store_open(&engine->store, engine->client, &engine->config, options->kv_namespace, options->salt);
	if (engine->kv_error != -EACCES && engine->kv_error != -EINVAL)
		return 0;
	return engine_fail(message, engine->kv_error,
			   "cannot open the store of prefixes: %s; take another --kv-namespace, or --kv none",
			   strerror(-engine->kv_error));
}

const struct kv_store *engine_store(const struct engine *engine)
{
	return engine->store.kv ? &engine->store : NULL;
}

/* One line of a routing trace, in the form Colibri's engines write. */
static void trace_route(void *context, uint64_t call, uint32_t row, uint32_t layer, const struct route *route,
			uint32_t top_k)
{
	FILE *trace = context;

	fprintf(trace, "%llu %u %u", (unsigned long long)call, row, layer);
	for (uint32_t i = 0; i < top_k; i++)
		fprintf(trace, " %u:%.4f", route->expert[i], (double)route->gate[i]);
	putc('\n', trace); /* errors are asked for once, when the trace is closed */
}

static int open_trace(struct engine *engine, char *message)
{
	const char *path = engine->options->route_trace;
	int error;

	if (!path)
		return 0;
	engine->trace = fopen(path, "we");
	if (!engine->trace) {
		error = -errno;
		return engine_fail(message, error, "cannot write --route-trace %.300s: %s", path, strerror(-error));
	}
	engine->forward.on_route = trace_route;
	engine->forward.route_context = engine->trace;
	return 0;
}

static int open_forward(struct engine *engine, struct engine_size size, char *message)
{
	int error;

	engine->forward = (struct forward){.compute = &engine->compute,
					   .config = &engine->config,
					   .weights = &engine->weights,
					   .source = engine->source};
	error = open_trace(engine, message);
	if (error < 0)
		return error;
	error = forward_init(&engine->forward, size.positions);
	if (error < 0)
		return engine_fail(message, error, "out of memory for %u positions; take fewer", size.positions);
	return 0;
}

int engine_open(struct engine *engine, struct engine_size size, char message[ENGINE_MESSAGE_BYTES])
{
	int error;

	if ((error = shard_open(&engine->shards, engine->options->model, message)) < 0 ||
	    (error = weights_load(&engine->weights, &engine->config, &engine->shards, message)) < 0 ||
	    (error = open_compute(engine, message)) < 0 || (error = open_client(engine, size, message)) < 0 ||
	    (error = open_source(engine, message)) < 0 || (error = open_store(engine, message)) < 0)
		return error;
	return open_forward(engine, size, message);
}

int engine_close_trace(struct engine *engine, char message[ENGINE_MESSAGE_BYTES])
{
	FILE *trace = engine->trace;
	int failed;

	if (!trace)
		return 0;
	engine->trace = NULL;
	failed = ferror(trace);
	failed |= fclose(trace);
	return failed ? engine_fail(message, -EIO, "cannot write all of --route-trace %.300s; is there room?",
				    engine->options->route_trace)
		      : 0;
}

void engine_close(struct engine *engine)
{
	char unused[ENGINE_MESSAGE_BYTES];

	forward_done(&engine->forward);
	kv_store_close(&engine->store);
	if (engine->source)
		engine->source->ops->close(engine->source);
	if (engine->client)
		cnre_detach(engine->client);
	pool_close(engine->compute.pool);
	weights_free(&engine->weights);
	shard_close(&engine->shards);
	(void)engine_close_trace(engine, unused); /* on failure only: what was written is a fragment anyway */
}
