/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-olmoe, the reference engine: a real OLMoE forward pass on the CPU whose experts come from the shared
 * manager, from an own cache, or from the page cache, so that the three can be compared, and so that an engine's
 * author has a small complete user of libcnre to read. It is not a chat program: prompts and results are token
 * ids, decoding is greedy.
 *
 * Reading order: conversation.c, forward.c, router.c, expert.c, then cache_cnre.c, kv_prefix.c and serve.c.
 */
#include "engine/advice.h"
#include "engine/clock.h"
#include "engine/conversation.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/report.h"
#include "engine/serve.h"
#include "engine/stop.h"
#include "engine/tokens.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 128 + SIGINT };

struct program {
	struct options options;
	struct engine engine;
	struct conversation conversation;
	struct server server;
	uint32_t *prompt;
	uint32_t prompt_count, done_count; /* tokens generated */
	uint64_t load_ns;
	char message[ENGINE_MESSAGE_BYTES];
};

static int open_engine(struct program *program, struct engine_size size, uint64_t start_ns)
{
	struct engine *engine = &program->engine;
	int error = engine_open(engine, size, program->message);

	program->load_ns = clock_now_ns() - start_ns;
	if (error == 0 && engine->kv_error < 0)
		fprintf(stderr, "cnre-olmoe: --kv cnre: no prefixes from this manager: %s; going on without\n",
			engine->kv_error == -ENOTSUP ? "it keeps none: start it with --kv-ram (CNRE_KV_RAM, if an engine starts it)"
						     : strerror(-engine->kv_error));
	stop_arm(); /* not before: what waits for a manager or reads the dense weights is ended by the signal itself */
	return error;
}

/* ---- one run ---- */

static int open_prompt(struct program *program)
{
	const struct config *config = &program->engine.config;
	uint64_t positions;
	int error = tokens_load(program->options.tokens, config->vocab, &program->prompt, &program->prompt_count,
				program->message);

	if (error < 0)
		return error;
	positions = (uint64_t)program->prompt_count + program->options.steps;
	if (config->positions_max && positions > config->positions_max)
		return engine_fail(program->message, -E2BIG,
				   "prompt and steps make %llu positions, the model has %u; take fewer",
				   (unsigned long long)positions, config->positions_max);
	return 0;
}

static void on_token(void *context, uint32_t token)
{
	struct program *program = context;

	program->done_count++;
	if (program->options.progress)
		fprintf(stderr, "%u/%u: %u\n", program->done_count, program->options.steps, token);
}

static int generate(struct program *program, struct turn_result *ret_result)
{
	const uint32_t steps = program->options.steps;
	const struct turn turn = {.tokens = program->prompt,
				  .count = program->prompt_count,
				  .steps = steps,
				  .on_token = on_token,
				  .context = program};
	int error = conversation_run(&program->conversation, &program->engine.forward, &turn, ret_result);

	if (error < 0 && stop_is_asked())
		return engine_fail(program->message, -EINTR, "interrupted in step %u of %u", program->done_count + 1,
				   steps);
	if (error < 0)
		return engine_fail(program->message, error, "step %u of %u: %s: %s", program->done_count + 1, steps,
				   strerror(-error), advice_for(error));
	return 0;
}

static int report(struct program *program, const struct turn_result *result)
{
	struct engine *engine = &program->engine;
	struct report report = {
		.tokens = result->tokens,
		.steps = program->options.steps,
		.prompt_tokens = program->prompt_count,
		.threads = pool_thread_count(engine->compute.pool),
		.load_ns = program->load_ns,
		.prefill_ns = result->first_ns,
		.decode_ns = result->total_ns - result->first_ns,
		.cache = program->options.cache,
		.kernel = engine->compute.kernel->name,
		.kv = engine_store(engine) ? "cnre" : "none",
		.turn = result,
	};
	int error = engine->source->ops->counters(engine->source, &report.counters);

	if (error < 0)
		return engine_fail(program->message, error, "cannot read the cache's counters: %s", strerror(-error));
	error = report_print(&report, program->options.json);
	return error < 0 ? engine_fail(program->message, error, "cannot write the result to standard output") : 0;
}

static int run_once(struct program *program, uint64_t start_ns)
{
	struct engine *engine = &program->engine;
	struct engine_size size = {.conversations = 1};
	struct turn_result result;
	int error = open_prompt(program);

	if (error < 0)
		return error;
	size.positions = program->prompt_count + program->options.steps;
	error = open_engine(program, size, start_ns);
	if (error < 0)
		return error;
	if (conversation_init(&program->conversation, engine_store(engine), size.positions) < 0)
		return engine_fail(program->message, -ENOMEM, "out of memory for the tokens");
	error = generate(program, &result);
	if (error == 0)
		error = engine_close_trace(engine, program->message);
	return error < 0 ? error : report(program, &result);
}

/* ---- serving ---- */

static int size_server(struct program *program, struct engine_size *ret_size)
{
	const uint32_t limit = program->engine.config.positions_max, given = program->options.positions;
	struct engine_size size = {.positions = given ? given : OPTIONS_POSITIONS_DEFAULT,
				   .conversations = program->options.conversations ? program->options.conversations
										   : OPTIONS_CONVERSATIONS_DEFAULT};

	if (limit && given > limit)
		return engine_fail(program->message, -E2BIG, "--positions %u: the model has %u; take fewer", given,
				   limit);
	if (limit && size.positions > limit)
		size.positions = limit;
	*ret_size = size;
	return 0;
}

/* Whoever started the engine waits for the line that says where to connect. */
static int serve_socket(struct program *program)
{
	const char *path = program->options.listen;
	int listener, error = serve_listen(path, &listener, program->message);

	if (error < 0)
		return error;
	if (printf("ready: %s\n", path) < 0 || fflush(stdout) != 0)
		error = engine_fail(program->message, -EIO, "cannot write to standard output");
	if (error == 0)
		error = serve_run(&program->server, listener);
	(void)unlink(path); /* ours: nobody else binds a path that answers */
	(void)close(listener);
	return error;
}

static int run_server(struct program *program, uint64_t start_ns)
{
	struct engine *engine = &program->engine;
	struct engine_size size;
	int error = size_server(program, &size);

	if (error == 0)
		error = open_engine(program, size, start_ns);
	if (error < 0)
		return error;
	if (server_init(&program->server, &engine->forward, engine_store(engine),
			&(struct server_bounds){size.conversations, size.positions}) < 0)
		return engine_fail(program->message, -ENOMEM, "out of memory for %u positions; take fewer",
				   size.positions);
	program->server.name = program->options.name;
	(void)engine_fail(program->message, 0, "serving ended early");
	error = program->options.listen ? serve_socket(program) : serve_run(&program->server, -1);
	if (error == -EINTR)
		return engine_fail(program->message, error, "interrupted");
	return error < 0 ? error : engine_close_trace(engine, program->message);
}

/* ---- the program ---- */

static int run(struct program *program)
{
	const uint64_t start_ns = clock_now_ns();
	int error = engine_load_config(&program->engine, &program->options, program->message);

	if (error == 0)
		error = program->options.serve ? run_server(program, start_ns) : run_once(program, start_ns);
	server_done(&program->server);
	conversation_done(&program->conversation);
	engine_close(&program->engine);
	free(program->prompt);
	return error;
}

int main(int argc, char **argv)
{
	static struct program program;
	int error;

	if (options_parse(&program.options, argc, argv, program.message) < 0) {
		fprintf(stderr, "cnre-olmoe: %s\n", program.message);
		return EXIT_USAGE;
	}
	if (program.options.help || program.options.version) {
		if (program.options.help)
			fputs(options_help(), stdout);
		else
			puts("cnre-olmoe " CNRE_VERSION);
		return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
	}
	error = run(&program);
	if (error < 0) {
		fprintf(stderr, "cnre-olmoe: %s\n", program.message);
		return error == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILED;
	}
	return EXIT_DONE;
}
