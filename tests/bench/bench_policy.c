/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that do what a routing trace says: each is a process of its own that attaches, and for every token and layer
 * begins a batch with the row's experts, waits for them in the row's order, touches each of their pages, and computes for a
 * stated time, spread over the experts. The first tokens warm up: they are replayed, and not counted. Then all begin
 * together. One line of JSON: what the manager counted meanwhile, and how long tokens took. policy.sh repeats it in turns.
 *
 * Engine i replays trace i modulo their number. Engines that share one begin at equal distances in it, so that none
 * repeats what another just did; a trace that ends begins anew.
 *
 * usage: bench_policy CNRECTL SOCKET MODEL ENGINES WARM_UP TOKENS COMPUTE_US TRACE...
 *        bench_policy slabs MODEL      how many experts it has, and what one takes in memory
 */
#include "base/clock.h"
#include "model/catalog.h"
#include "tools/sim/trace.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENGINES_MAX 64u
#define TOKENS_MAX 100000u
#define COMPUTE_US_MAX 1000000u
#define TIMEOUT_NS (60 * CNRE_NS_PER_S)
#define RESERVED_ROWS 2u             /* of the widest row: what an engine may hold at once */
#define PAGE_BYTES 4096u

struct bench {
	const char *cnrectl, *socket, *model;
	uint32_t engine_count, warm_up, token_count, compute_us, trace_count;
	struct sim_trace *trace;
	struct sim_geometry *geometry;
	uint32_t widest_row;
	int64_t *token_ns;           /* [engine_count * token_count], shared with the engines */
	int said_pipe[ENGINES_MAX][2]; /* each writes a byte when it is warm, and another when it is done; its death ends it */
	int go_pipe[2];              /* closed by the parent: begin, */
	int leave_pipe[2];           /* and: the manager was asked, detach */
	pid_t engine[ENGINES_MAX];
};

struct replay {
	const struct bench *bench;
	const struct sim_trace *trace;
	struct cnre *client;
	uint64_t row;
	uint32_t *expert;            /* [widest_row] */
	struct cnre_expert *leased;  /* [widest_row] */
	uint64_t touched;            /* so that no touch is optimised away */
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_policy: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void *allocate(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (memory == NULL)
		fail("memory", -ENOMEM);
	return memory;
}

/* ---- one engine ---- */

static void begin_at_token(struct replay *replay, uint64_t token)
{
	while (replay->trace->row[replay->row].token < token && replay->row + 1 < replay->trace->row_count)
		replay->row++;
}

static void open_replay(struct replay *replay, const struct bench *bench, uint32_t engine)
{
	uint32_t sharers = (bench->engine_count + bench->trace_count - 1) / bench->trace_count;
	struct cnre_options options = {.size = sizeof options, .socket = bench->socket, .name = "bench_policy", .timeout_ns = TIMEOUT_NS};
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *catalog;
	int r = model_catalog_open(&catalog, bench->model, message);

	if (r < 0)
		fail(message, r);
	options.reserve_bytes = (uint64_t)RESERVED_ROWS * bench->widest_row * catalog->slab_bytes_max;
	catalog = model_catalog_close(catalog);
	*replay = (struct replay){.bench = bench, .trace = &bench->trace[engine % bench->trace_count]};
	begin_at_token(replay, replay->trace->token_count * (engine / bench->trace_count) / sharers);
	replay->expert = allocate(bench->widest_row, sizeof *replay->expert);
	replay->leased = allocate(bench->widest_row, sizeof *replay->leased);
	r = cnre_attach(&replay->client, bench->model, &options);
	if (r < 0)
		fail("attach", r);
}

static void close_replay(struct replay *replay)
{
	cnre_detach(replay->client);
	free(replay->expert);
	free(replay->leased);
}

static void touch(struct replay *replay, const struct cnre_expert *expert)
{
	for (uint32_t role = 0; role < CNRE_ROLES; role++) {
		const unsigned char *data = expert->part[role].data;

		for (uint64_t at = 0; at < expert->part[role].bytes; at += PAGE_BYTES)
			replay->touched += data[at];
	}
}

static void compute(int64_t ns)
{
	int64_t end_ns = cnre_clock_now_ns() + ns;

	while (ns > 0 && cnre_clock_now_ns() < end_ns)
		;
}

static void run_row(struct replay *replay, const struct sim_row *row)
{
	const struct sim_geometry *geometry = replay->bench->geometry;
	int64_t share_ns = (int64_t)replay->bench->compute_us * 1000 / row->count;
	struct cnre_batch *batch;
	int r;

	for (uint32_t i = 0; i < row->count; i++)
		replay->expert[i] = replay->trace->object[row->first + i] - geometry->first_object[row->layer];
	r = cnre_batch_begin(replay->client, geometry->number[row->layer], replay->expert, row->count, row->tokens, &batch);
	if (r < 0)
		fail("batch: is the checkpoint of the trace's layers and experts?", r);
	for (uint32_t i = 0; i < row->count; i++) {
		r = cnre_batch_wait(batch, i, TIMEOUT_NS, &replay->leased[i]);
		if (r < 0)
			fail("wait", r);
		touch(replay, &replay->leased[i]);
		compute(share_ns);
	}
	for (uint32_t i = 0; i < row->count; i++)
		(void)cnre_release(replay->client, &replay->leased[i]);
	(void)cnre_batch_end(batch);
}

static void run_token(struct replay *replay)
{
	const struct sim_trace *trace = replay->trace;
	uint32_t token = trace->row[replay->row].token;

	while (replay->row < trace->row_count && trace->row[replay->row].token == token)
		run_row(replay, &trace->row[replay->row++]);
	if (replay->row == trace->row_count)
		replay->row = 0;
	cnre_token_end(replay->client, 1);
}

/* Says a byte, and waits until the parent closes the other pipe. */
static void meet(int said, int others)
{
	char byte = 0;

	if (write(said, &byte, 1) != 1 || read(others, &byte, 1) != 0)
		fail("the other engines", -EPIPE);
}

static void run_engine(struct bench *bench, uint32_t engine)
{
	int64_t *token_ns = bench->token_ns + (size_t)engine * bench->token_count;
	int said = bench->said_pipe[engine][1];
	struct replay replay;

	(void)close(bench->go_pipe[1]);
	(void)close(bench->leave_pipe[1]);
	open_replay(&replay, bench, engine);
	for (uint32_t i = 0; i < bench->warm_up; i++)
		run_token(&replay);
	meet(said, bench->go_pipe[0]);
	for (uint32_t i = 0; i < bench->token_count; i++) {
		int64_t start_ns = cnre_clock_now_ns();

		run_token(&replay);
		token_ns[i] = cnre_clock_now_ns() - start_ns;
	}
	meet(said, bench->leave_pipe[0]);
	close_replay(&replay);
	exit(replay.touched == UINT64_MAX); /* it is not; this is its use */
}

/* ---- all of them ---- */

static void start_engines(struct bench *bench)
{
	pid_t parent = getpid();

	if (pipe(bench->go_pipe) < 0 || pipe(bench->leave_pipe) < 0)
		fail("pipe", -errno);
	for (uint32_t i = 0; i < bench->engine_count; i++) {
		if (pipe(bench->said_pipe[i]) < 0)
			fail("pipe", -errno);
		bench->engine[i] = fork();
		if (bench->engine[i] < 0)
			fail("fork", -errno);
		if (bench->engine[i] == 0) {
			if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
				_exit(1);
			run_engine(bench, i);
		}
		(void)close(bench->said_pipe[i][1]); /* no other engine holds it, so its end is seen */
	}
	(void)close(bench->go_pipe[0]);
	(void)close(bench->leave_pipe[0]);
}

/* Until each has said its byte. With us end those that wait for one that died. */
static void hear_all(const struct bench *bench)
{
	char byte;

	for (uint32_t i = 0; i < bench->engine_count; i++)
		if (read(bench->said_pipe[i][0], &byte, 1) != 1)
			fail("an engine ended early", -ECHILD);
}

static void finish_engines(const struct bench *bench)
{
	int status;

	for (uint32_t i = 0; i < bench->engine_count; i++)
		if (waitpid(bench->engine[i], &status, 0) < 0 || status != 0)
			fail("an engine failed", -ECHILD);
}

static json_t *ask_manager(const struct bench *bench)
{
	char command[8192];
	json_t *stats;
	FILE *pipe;

	(void)snprintf(command, sizeof command, "'%s' --socket '%s' stats --json", bench->cnrectl, bench->socket);
	pipe = popen(command, "re");
	stats = pipe == NULL ? NULL : json_loadf(pipe, 0, NULL);
	if (pipe == NULL || pclose(pipe) != 0 || stats == NULL)
		fail("cnrectl stats", -EIO);
	return stats;
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static void print_latency(const struct bench *bench)
{
	size_t count = (size_t)bench->engine_count * bench->token_count;

	qsort(bench->token_ns, count, sizeof *bench->token_ns, by_value);
	printf("\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"longest_ms\":%.3f", (double)bench->token_ns[count / 2] / 1e6,
	       (double)bench->token_ns[count - 1 - count / 100] / 1e6, (double)bench->token_ns[count - 1] / 1e6);
}

static void print(const struct bench *bench, const json_t *before, const json_t *after, int64_t wall_ns)
{
	static const char *const names[] = {"accesses", "misses", "joins", "loads", "bytes_read", "evictions", "log_lost"};

	printf("{\"tokens\":%" PRIu32 ",\"wall_s\":%.4f,\"felt_wait_s\":%.6f,\"resident_objects\":%lld,",
	       bench->engine_count * bench->token_count, (double)wall_ns / 1e9,
	       json_real_value(json_object_get(after, "felt_wait_s")) - json_real_value(json_object_get(before, "felt_wait_s")),
	       (long long)json_integer_value(json_object_get(after, "resident_objects")));
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		printf("\"%s\":%lld,", names[i],
		       (long long)(json_integer_value(json_object_get(after, names[i])) -
				   json_integer_value(json_object_get(before, names[i]))));
	print_latency(bench);
	puts("}");
}

static void measure(struct bench *bench)
{
	json_t *before, *after;
	int64_t start_ns, wall_ns;

	start_engines(bench);
	hear_all(bench);
	before = ask_manager(bench);
	start_ns = cnre_clock_now_ns();
	(void)close(bench->go_pipe[1]);
	hear_all(bench);
	wall_ns = cnre_clock_now_ns() - start_ns;
	after = ask_manager(bench); /* while all are attached: what a client did is counted again some time after it left */
	(void)close(bench->leave_pipe[1]);
	finish_engines(bench);
	print(bench, before, after, wall_ns);
	json_decref(before);
	json_decref(after);
}

/* ---- life ---- */

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most)
		fail(text, -ERANGE);
	return (uint32_t)value;
}

/* What is decoded only, where a trace tells it from its prompt: of the formats a CSV does, and others refuse to be asked. */
static unsigned phases_of(const char *path)
{
	size_t length = strlen(path);

	return length > 4 && strcmp(path + length - 4, ".csv") == 0 ? SIM_PHASE_DECODE : SIM_PHASE_ALL;
}

static void open_bench(struct bench *bench, int argc, char **argv)
{
	struct sim_load load = {.phases = phases_of(argv[8])};
	char message[1024];
	size_t bytes;
	int r;

	*bench = (struct bench){.cnrectl = argv[1], .socket = argv[2], .model = argv[3], .trace_count = (uint32_t)argc - 8};
	bench->engine_count = number(argv[4], 1, ENGINES_MAX);
	bench->warm_up = number(argv[5], 0, TOKENS_MAX);
	bench->token_count = number(argv[6], 1, TOKENS_MAX);
	bench->compute_us = number(argv[7], 0, COMPUTE_US_MAX);
	r = sim_traces_open(&bench->trace, &bench->geometry, (const char *const *)argv + 8, bench->trace_count, &load, message,
			    sizeof message);
	if (r < 0)
		fail(message, r);
	for (uint32_t i = 0; i < bench->trace_count; i++)
		for (uint64_t row = 0; row < bench->trace[i].row_count; row++)
			if (bench->widest_row < bench->trace[i].row[row].count)
				bench->widest_row = bench->trace[i].row[row].count;
	bytes = (size_t)bench->engine_count * bench->token_count * sizeof *bench->token_ns;
	bench->token_ns = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bench->widest_row == 0 || bench->token_ns == MAP_FAILED)
		fail("an empty trace, or no memory", -ENOMEM);
}

static void print_slabs(const char *model)
{
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *catalog;
	int r = model_catalog_open(&catalog, model, message);

	if (r < 0)
		fail(message, r);
	printf("{\"objects\":%" PRIu32 ",\"slab_bytes\":%" PRIu64 "}\n", catalog->object_count, catalog->slab_bytes_max);
	catalog = model_catalog_close(catalog);
}

int main(int argc, char **argv)
{
	struct bench bench;

	if (argc == 3 && strcmp(argv[1], "slabs") == 0) {
		print_slabs(argv[2]);
		return 0;
	}
	if (argc < 9) {
		fprintf(stderr, "usage: bench_policy CNRECTL SOCKET MODEL ENGINES WARM_UP TOKENS COMPUTE_US TRACE...\n"
				"       bench_policy slabs MODEL\n");
		return 2;
	}
	open_bench(&bench, argc, argv);
	measure(&bench);
	sim_traces_close(bench.trace, bench.trace_count, bench.geometry);
	return 0;
}
