/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-olmoe, the reference engine: a real OLMoE forward pass on the CPU whose experts come from the shared
 * manager, from an own cache, or from the page cache, so that the three can be compared, and so that an engine's
 * author has a small complete user of libcnre to read. It is not a chat program: prompts and results are token
 * ids, decoding is greedy.
 *
 * Reading order: forward.c, router.c, expert.c, then cache_cnre.c.
 */
#include "engine/clock.h"
#include "engine/forward.h"
#include "engine/options.h"
#include "engine/report.h"
#include "engine/stop.h"
#include "engine/tokens.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 128 + SIGINT };

struct engine {
	struct options options;
	struct config config;
	struct shard_set shards;
	struct weights weights;
	struct compute compute;
	struct expert_source *source;
	struct forward forward;
	FILE *trace;
	uint32_t *prompt, *generated;
	uint32_t prompt_count;
	uint64_t load_ns, prefill_ns, decode_ns;
	char message[ENGINE_MESSAGE_BYTES];
};

static uint32_t allowed_cpus(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1; /* a huge machine: --threads */

	return count < (int)POOL_THREADS_MAX ? (uint32_t)count : POOL_THREADS_MAX;
}

static int open_compute(struct engine *engine)
{
	const struct options *options = &engine->options;
	uint32_t threads = options->threads ? options->threads : allowed_cpus();
	int error;

	engine->compute.kernel = options->kernel ? kernel_find(options->kernel) : kernel_best();
	if (!engine->compute.kernel)
		return engine_fail(engine->message, -ENOTSUP,
				   "--kernel %.40s: unknown, or not for this CPU; leave it out", options->kernel);
	error = pool_open(&engine->compute.pool, threads);
	if (error < 0)
		return engine_fail(engine->message, error, "cannot start %u threads: %s; try fewer with --threads",
				   threads, strerror(-error));
	return 0;
}

static int open_prompt(struct engine *engine)
{
	const struct config *config = &engine->config;
	uint64_t positions;
	int error = tokens_load(engine->options.tokens, config->vocab, &engine->prompt, &engine->prompt_count,
				engine->message);

	if (error < 0)
		return error;
	positions = (uint64_t)engine->prompt_count + engine->options.steps;
	if (config->positions_max && positions > config->positions_max)
		return engine_fail(engine->message, -E2BIG,
				   "prompt and steps make %llu positions, the model has %u; take "
				   "fewer",
				   (unsigned long long)positions, config->positions_max);
	engine->generated = calloc(engine->options.steps, sizeof *engine->generated);
	return engine->generated ? 0 : engine_fail(engine->message, -ENOMEM, "out of memory for the tokens");
}

static int open_source(struct engine *engine)
{
	const struct options *options = &engine->options;
	const struct cnre_source_options cnre = {
		.model = options->model,
		.socket = options->socket,
		.name = options->name,
		.reserve_bytes = options->reserve_bytes,
		.private_bytes = engine->weights.used_bytes +
				 forward_bytes(&engine->config, engine->prompt_count + options->steps),
	};

	switch (options->mode) {
	case CACHE_MMAP:
		return cache_mmap_open(&engine->source, &engine->config, &engine->shards, engine->message);
	case CACHE_PRIVATE:
		return cache_private_open(&engine->source, &engine->config, &engine->shards, &options->private_size,
					  engine->message);
	default:
		return cache_cnre_open(&engine->source, &engine->config, &cnre, engine->message);
	}
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

static int open_forward(struct engine *engine)
{
	const char *path = engine->options.route_trace;
	int error;

	engine->forward = (struct forward){.compute = &engine->compute,
					   .config = &engine->config,
					   .weights = &engine->weights,
					   .source = engine->source};
	if (path) {
		engine->trace = fopen(path, "we");
		if (!engine->trace) {
			error = -errno;
			return engine_fail(engine->message, error, "cannot write --route-trace %.300s: %s", path,
					   strerror(-error));
		}
		engine->forward.on_route = trace_route;
		engine->forward.route_context = engine->trace;
	}
	error = forward_init(&engine->forward, engine->prompt_count + engine->options.steps);
	if (error < 0)
		return engine_fail(engine->message, error,
				   "out of memory for %u positions; take a shorter prompt or fewer "
				   "--steps",
				   engine->prompt_count + engine->options.steps);
	return 0;
}

static int open_engine(struct engine *engine)
{
	const char *model = engine->options.model;
	uint64_t start = clock_now_ns();
	int error;

	if ((error = config_load(&engine->config, model, engine->message)) < 0 || (error = open_prompt(engine)) < 0 ||
	    (error = shard_open(&engine->shards, model, engine->message)) < 0 ||
	    (error = weights_load(&engine->weights, &engine->config, &engine->shards, engine->message)) < 0 ||
	    (error = open_compute(engine)) < 0 || (error = open_source(engine)) < 0 ||
	    (error = open_forward(engine)) < 0)
		return error;
	engine->load_ns = clock_now_ns() - start;
	return 0;
}

static const char *advice(int error)
{
	switch (error) {
	case -EDOM:
		return "the router saw no number; the checkpoint's weights are broken";
	case -EBADMSG:
		return "an expert is not what config.json implies; check the checkpoint";
	case -ENODATA:
	case -EIO:
		return "an expert could not be read; check the shards and the drive";
	case -EPIPE:
		return "the manager has gone; run again";
	case -ETIMEDOUT:
		return "an expert did not arrive in time; check the drive and the manager's log";
	case -ENOSPC:
		return "one layer's experts exceed the reservation; raise --reserve";
	default:
		return "see cnre-olmoe(1)";
	}
}

static int generate(struct engine *engine)
{
	uint64_t start = clock_now_ns();
	uint32_t next = 0;

	for (uint32_t step = 0; step < engine->options.steps; step++) {
		const uint32_t *tokens = step == 0 ? engine->prompt : &engine->generated[step - 1];
		int error = forward_run(&engine->forward, tokens, step == 0 ? engine->prompt_count : 1, &next);

		if (error < 0 && stop_is_asked())
			return engine_fail(engine->message, -EINTR, "interrupted in step %u of %u", step + 1,
					   engine->options.steps);
		if (error < 0)
			return engine_fail(engine->message, error, "step %u of %u: %s: %s", step + 1,
					   engine->options.steps, strerror(-error), advice(error));
		engine->generated[step] = next;
		if (step == 0)
			engine->prefill_ns = clock_now_ns() - start;
		if (engine->options.progress)
			fprintf(stderr, "%u/%u: %u\n", step + 1, engine->options.steps, next);
	}
	engine->decode_ns = clock_now_ns() - start - engine->prefill_ns;
	return 0;
}

static int close_trace(struct engine *engine)
{
	FILE *trace = engine->trace;
	int failed;

	if (!trace)
		return 0;
	engine->trace = NULL;
	failed = ferror(trace);
	failed |= fclose(trace);
	return failed ? engine_fail(engine->message, -EIO, "cannot write all of --route-trace %.300s; is there room?",
				    engine->options.route_trace)
		      : 0;
}

static int report(struct engine *engine)
{
	struct report report = {
		.tokens = engine->generated,
		.steps = engine->options.steps,
		.prompt_tokens = engine->prompt_count,
		.threads = pool_thread_count(engine->compute.pool),
		.load_ns = engine->load_ns,
		.prefill_ns = engine->prefill_ns,
		.decode_ns = engine->decode_ns,
		.cache = engine->options.cache,
		.kernel = engine->compute.kernel->name,
	};
	int error = engine->source->ops->counters(engine->source, &report.counters);

	if (error < 0)
		return engine_fail(engine->message, error, "cannot read the cache's counters: %s", strerror(-error));
	error = report_print(&report, engine->options.json);
	return error < 0 ? engine_fail(engine->message, error, "cannot write the result to standard output") : 0;
}

static void close_engine(struct engine *engine)
{
	forward_done(&engine->forward);
	if (engine->source)
		engine->source->ops->close(engine->source);
	pool_close(engine->compute.pool);
	weights_free(&engine->weights);
	shard_close(&engine->shards);
	free(engine->prompt);
	free(engine->generated);
	(void)close_trace(engine); /* on failure only: what was written is a fragment anyway */
}

static int run(struct engine *engine)
{
	int error = open_engine(engine);

	stop_arm(); /* not before: what waits for a manager or reads the dense weights is ended by the signal itself */
	if (error == 0)
		error = generate(engine);
	if (error == 0)
		error = close_trace(engine);
	if (error == 0)
		error = report(engine);
	close_engine(engine);
	return error;
}

int main(int argc, char **argv)
{
	static struct engine engine;
	int error;

	if (options_parse(&engine.options, argc, argv, engine.message) < 0) {
		fprintf(stderr, "cnre-olmoe: %s\n", engine.message);
		return EXIT_USAGE;
	}
	if (engine.options.help || engine.options.version) {
		if (engine.options.help)
			fputs(options_help(), stdout);
		else
			puts("cnre-olmoe " CNRE_VERSION);
		return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
	}
	error = run(&engine);
	if (error < 0) {
		fprintf(stderr, "cnre-olmoe: %s\n", engine.message);
		return error == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILED;
	}
	return EXIT_DONE;
}
