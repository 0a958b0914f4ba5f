/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What KV prefixes cost their caller, as kv.sh measures it: one measurement a call, one line of JSON. Blocks have 64 tokens;
 * their payloads are gathered from rows that this program has, as an engine would.
 *
 *   match PID COUNT     COUNT matches of BLOCKS resident blocks; then again while the manager, PID, is stopped
 *   publish PID         BLOCKS blocks through stage, gather and commit until all are found, beside memcpy of the same bytes;
 *                       then the manager's part alone: what is staged already, from the commits on
 *   store SEED          publishes conversation SEED and waits until it is found
 *   load SEED WARM      matches conversation SEED and takes every block, beside its first one alone; WARM 1: other
 *                       blocks were there before and have gone, so that memory for these need not be made
 *   step PID CHUNKS     steps of fixed work, in chunks: without publishing, with a publish, and with the manager stopped
 *   calls PID COUNT     COUNT stages and commits; PID 0: only with the manager running, and each
 *                       waits until it is found
 *
 * usage: bench_kv SOCKET MODEL BLOCKS BYTES VERB ARGUMENT...
 */
#include "base/clock.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS (60 * CNRE_NS_PER_S)
#define PAUSE_NS 20000 /* between looks: shorter than copying a block takes */

enum {
	BLOCK_TOKENS = 64,
	BLOCKS_MAX = 1024,
	SHARED_ROW_BYTES = 64 << 10, /* of one layer in one block: what one memcpy of an engine gathers */
	STEPS_A_CHUNK = 64,
	STEP_BYTES = 16 << 20, /* read once by a step */
	STEP_PASSES = 1,
	AT_ONCE_MAX = 4,
};

struct bench {
	struct cnre *client;
	struct cnre_kv *kv;
	size_t blocks;
	uint64_t bytes;
	char *rows; /* of `blocks` blocks */
	int32_t *tokens;
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_kv: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void open_kv(struct bench *bench, const char *salt)
{
	struct cnre_kv_identity identity = {.size = sizeof identity,
					    .representation = "bench",
					    .salt = salt,
					    .block_tokens = BLOCK_TOKENS,
					    .block_bytes_max = bench->bytes};
	int r = cnre_kv_open(bench->client, NULL, &identity, &bench->kv);

	if (r < 0)
		fail("open", r);
}

static void pause_shortly(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static double us_between(int64_t start_ns, int64_t end_ns)
{
	return (double)(end_ns - start_ns) / 1e3;
}

/* ---- samples ---- */

struct samples {
	double *value;
	size_t count, room;
};

static void add(struct samples *samples, double value)
{
	if (samples->count == samples->room) {
		samples->room = samples->room == 0 ? 1024 : 2 * samples->room;
		samples->value = realloc(samples->value, samples->room * sizeof *samples->value);
		if (samples->value == NULL)
			fail("memory", -ENOMEM);
	}
	samples->value[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* "NAME_p50":..,"NAME_p99":..,"NAME_max":.., and frees them. */
static void print(const char *name, struct samples *samples)
{
	if (samples->count == 0)
		fail(name, -ENODATA);
	qsort(samples->value, samples->count, sizeof *samples->value, compare);
	printf("\"%s_p50\":%.3f,\"%s_p99\":%.3f,\"%s_max\":%.3f,", name, samples->value[samples->count / 2], name,
	       samples->value[samples->count * 99 / 100], name, samples->value[samples->count - 1]);
	free(samples->value);
	*samples = (struct samples){0};
}

/* ---- conversations ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	return x;
}

static void speak(struct bench *bench, uint64_t seed)
{
	for (size_t i = 0; i < bench->blocks * BLOCK_TOKENS; i++)
		bench->tokens[i] = (int32_t)(mix((seed << 32) + i + 1) & 0x7fffffff);
}

/* One that no other call speaks. */
static void speak_anew(struct bench *bench)
{
	static uint64_t count;

	speak(bench, mix((uint64_t)cnre_clock_now_ns()) + count++);
}

/* Rows of layers, of which each has its part of the block. */
static void gather(void *buffer, const char *rows, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += SHARED_ROW_BYTES)
		memcpy((char *)buffer + off, rows + off,
		       bytes - off < SHARED_ROW_BYTES ? bytes - off : SHARED_ROW_BYTES);
}

static void await(const struct bench *bench, const int32_t *tokens, size_t count)
{
	int64_t end_ns = cnre_clock_deadline_ns(LIMIT_NS);

	while (cnre_kv_route(bench->kv, tokens, count, NULL, 0, NULL, 0) < (int)count) {
		if (cnre_clock_now_ns() > end_ns)
			fail("a block is not found", -ETIMEDOUT);
		pause_shortly();
	}
}

static void *stage(struct cnre_kv_chain *chain, const int32_t *tokens, uint64_t bytes)
{
	int64_t end_ns = cnre_clock_deadline_ns(LIMIT_NS);
	void *buffer;
	int r;

	while ((r = cnre_kv_stage(chain, tokens, BLOCK_TOKENS, NULL, 0, bytes, &buffer)) == -EAGAIN &&
	       cnre_clock_now_ns() < end_ns)
		pause_shortly();
	if (r != 0)
		fail("stage", r < 0 ? r : -EEXIST);
	return buffer;
}

static void commit(struct cnre_kv_chain *chain)
{
	int r = cnre_kv_commit(chain, 1000000, 0);

	if (r < 0)
		fail("commit", r);
}

static struct cnre_kv_chain *match(const struct bench *bench, size_t count, int wanted)
{
	struct cnre_kv_chain *chain;
	int r = cnre_kv_match(bench->kv, bench->tokens, count, NULL, 0, &chain);

	if (r != wanted)
		fail("match", r < 0 ? r : -ENOENT);
	return chain;
}

/* All blocks of the conversation, several in flight, until the last one is found. */
static void publish_all(const struct bench *bench)
{
	size_t count = bench->blocks * BLOCK_TOKENS;
	struct cnre_kv_chain *chain = match(bench, count, 0);

	for (size_t i = 0; i < bench->blocks; i++) {
		gather(stage(chain, bench->tokens + i * BLOCK_TOKENS, bench->bytes), bench->rows + i * bench->bytes,
		       bench->bytes);
		commit(chain);
	}
	cnre_kv_release(chain);
	await(bench, bench->tokens, count);
}

/* ---- match ---- */

static void match_often(const struct bench *bench, long count, const char *name)
{
	size_t tokens = bench->blocks * BLOCK_TOKENS;
	struct samples samples = {0};

	for (long i = 0; i < count; i++) {
		int64_t start_ns = cnre_clock_now_ns();
		struct cnre_kv_chain *chain = match(bench, tokens, (int)tokens);

		add(&samples, us_between(start_ns, cnre_clock_now_ns()));
		cnre_kv_release(chain);
	}
	print(name, &samples);
}

static void send_signal(pid_t pid, int number)
{
	if (kill(pid, number) < 0)
		fail("kill", -errno);
}

static void bench_match(struct bench *bench, char **argv)
{
	pid_t pid = (pid_t)strtol(argv[0], NULL, 10);
	long count = strtol(argv[1], NULL, 10);

	speak_anew(bench);
	publish_all(bench);
	match_often(bench, count, "match_us");
	if (pid > 0) {
		send_signal(pid, SIGSTOP);
		match_often(bench, count, "stopped_match_us");
		send_signal(pid, SIGCONT);
	}
}

/* ---- publish ---- */

/*
 * A rate by the clock, and one by the time that the processor worked for it: where other programs run too, the second is what
 * tells how much there is to do.
 */
struct watch {
	clockid_t clock;
	int64_t start_ns, start_cpu_ns;
};

struct rate {
	double mib, cpu_mib; /* a second */
};

static int64_t read_clock(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now) < 0)
		fail("clock", -errno);
	return now.tv_sec * CNRE_NS_PER_S + now.tv_nsec;
}

static struct watch start_watch(clockid_t clock)
{
	return (struct watch){.clock = clock, .start_ns = cnre_clock_now_ns(), .start_cpu_ns = read_clock(clock)};
}

static struct rate read_watch(const struct watch *watch, uint64_t bytes)
{
	double mib = (double)bytes / (1 << 20);

	return (struct rate){.mib = mib * 1e9 / (double)(cnre_clock_now_ns() - watch->start_ns),
			     .cpu_mib = mib * 1e9 / (double)(read_clock(watch->clock) - watch->start_cpu_ns + 1)};
}

/* Into memory of its own, of as many bytes, that the same copies went to before: no page is made on the way. */
static struct rate time_memcpy(const struct bench *bench)
{
	char *to = malloc(bench->blocks * bench->bytes);
	struct watch watch;
	struct rate rate;

	if (to == NULL)
		fail("memory", -ENOMEM);
	for (int pass = 0; pass < 2; pass++) {
		watch = start_watch(CLOCK_THREAD_CPUTIME_ID);
		gather(to, bench->rows, bench->blocks * bench->bytes);
		__asm__ volatile("" : : "r"(to) : "memory"); /* somebody could read it */
	}
	rate = read_watch(&watch, bench->blocks * bench->bytes);
	free(to);
	return rate;
}

static struct rate time_publish(struct bench *bench)
{
	struct watch watch;

	speak_anew(bench);
	watch = start_watch(CLOCK_THREAD_CPUTIME_ID);
	publish_all(bench);
	return read_watch(&watch, bench->blocks * bench->bytes);
}

/* First blocks of as many conversations, so that all can be staged before the first is handed over. */
static struct rate time_manager(struct bench *bench, clockid_t manager)
{
	struct cnre_kv_chain *chain[AT_ONCE_MAX];
	size_t at_once = bench->blocks < AT_ONCE_MAX ? bench->blocks : AT_ONCE_MAX;
	struct watch watch;

	speak_anew(bench);
	for (size_t i = 0; i < at_once; i++) {
		const int32_t *tokens = bench->tokens + i * BLOCK_TOKENS;
		int r = cnre_kv_match(bench->kv, tokens, BLOCK_TOKENS, NULL, 0, &chain[i]);

		if (r != 0)
			fail("match", r < 0 ? r : -EEXIST);
		gather(stage(chain[i], tokens, bench->bytes), bench->rows + i * bench->bytes, bench->bytes);
	}
	watch = start_watch(manager);
	for (size_t i = 0; i < at_once; i++) {
		commit(chain[i]);
		cnre_kv_release(chain[i]);
	}
	await(bench, bench->tokens + (at_once - 1) * BLOCK_TOKENS, BLOCK_TOKENS);
	return read_watch(&watch, at_once * bench->bytes);
}

static void forget(const struct bench *bench)
{
	int r = cnre_kv_invalidate(bench->kv);

	if (r < 0)
		fail("invalidate", r);
}

static void print_rate(const char *name, struct rate rate)
{
	printf("\"%s_mib\":%.1f,\"%s_cpu_mib\":%.1f,", name, rate.mib, name, rate.cpu_mib);
}

/* First without any memory made, then where it is there already, as after the first blocks that had to go. */
static void bench_publish(struct bench *bench, char **argv)
{
	clockid_t manager;

	if (clock_getcpuclockid((pid_t)strtol(argv[0], NULL, 10), &manager) != 0)
		fail("no such manager", -ESRCH);
	print_rate("new", time_publish(bench));
	forget(bench);
	print_rate("publish", time_publish(bench));
	print_rate("memcpy", time_memcpy(bench));
	forget(bench);
	(void)time_manager(bench, manager);
	print_rate("manager", time_manager(bench, manager));
}

/* ---- files ---- */

static void bench_store(struct bench *bench, char **argv)
{
	speak(bench, strtoul(argv[0], NULL, 10));
	publish_all(bench);
}

static void take_block(const struct bench *bench, const struct cnre_kv_chain *chain, size_t index)
{
	const void *data;
	uint64_t bytes;
	int r = cnre_kv_block(chain, index, LIMIT_NS, &data, &bytes);

	if (r != BLOCK_TOKENS || bytes != bench->bytes)
		fail("block", r < 0 ? r : -EBADMSG);
	/* A step over every page: what came must be what was gathered. */
	for (uint64_t off = 0; off < bytes; off += 4096)
		if (((const char *)data)[off] != bench->rows[index * bytes + off])
			fail("a block's bytes are others", -EBADMSG);
}

/* Blocks of another identity come and go. */
static void make_memory(const struct bench *bench)
{
	struct bench other = *bench;

	open_kv(&other, "other");
	speak_anew(&other);
	publish_all(&other);
	forget(&other);
	cnre_kv_close(other.kv);
}

static void bench_load(struct bench *bench, char **argv)
{
	size_t count = bench->blocks * BLOCK_TOKENS;
	struct cnre_kv_chain *chain;
	struct watch watch;
	double first_us;

	if (strtoul(argv[1], NULL, 10) != 0)
		make_memory(bench);
	speak(bench, strtoul(argv[0], NULL, 10));
	await(bench, bench->tokens, count);
	watch = start_watch(CLOCK_THREAD_CPUTIME_ID);
	chain = match(bench, count, (int)count);
	take_block(bench, chain, 0);
	first_us = us_between(watch.start_ns, cnre_clock_now_ns());
	for (size_t i = 1; i < bench->blocks; i++)
		take_block(bench, chain, i);
	printf("\"load_mib\":%.1f,\"load_first_us\":%.1f,", read_watch(&watch, bench->blocks * bench->bytes).mib,
	       first_us);
	cnre_kv_release(chain);
}

/* ---- steps ---- */

struct calls {
	struct samples stage_us, commit_us, both_us;
	long full; /* no room: nothing was handed over */
};

/* One block at the end of a conversation of its own; what is inside the calls. */
static void publish_one(struct bench *bench, uint64_t bytes, struct calls *calls)
{
	struct cnre_kv_chain *chain;
	int64_t at_ns[4];
	void *buffer;
	int r;

	speak_anew(bench);
	r = cnre_kv_match(bench->kv, bench->tokens, BLOCK_TOKENS, NULL, 0, &chain);
	if (r != 0)
		fail("match", r < 0 ? r : -EEXIST);
	at_ns[0] = cnre_clock_now_ns();
	r = cnre_kv_stage(chain, bench->tokens, BLOCK_TOKENS, NULL, 0, bytes, &buffer);
	at_ns[1] = cnre_clock_now_ns();
	if (r == 0) {
		gather(buffer, bench->rows, bytes);
		at_ns[2] = cnre_clock_now_ns();
		commit(chain);
		at_ns[3] = cnre_clock_now_ns();
		add(&calls->commit_us, us_between(at_ns[2], at_ns[3]));
		add(&calls->both_us, us_between(at_ns[0], at_ns[1]) + us_between(at_ns[2], at_ns[3]));
	} else if (r == -EAGAIN) {
		calls->full++;
	} else {
		fail("stage", r < 0 ? r : -EEXIST);
	}
	add(&calls->stage_us, us_between(at_ns[0], at_ns[1]));
	cnre_kv_release(chain);
}

static void print_calls(const char *name, struct calls *calls)
{
	char text[64];

	(void)snprintf(text, sizeof text, "%s_stage_us", name);
	print(text, &calls->stage_us);
	if (calls->commit_us.count > 0) {
		(void)snprintf(text, sizeof text, "%s_commit_us", name);
		print(text, &calls->commit_us);
		(void)snprintf(text, sizeof text, "%s_both_us", name);
		print(text, &calls->both_us);
	}
	printf("\"%s_full\":%ld,", name, calls->full);
}

/* About what one token of a small model does: weights go by, and are multiplied. */
static float work(const float *weights)
{
	float sum[16] = {0};

	for (int pass = 0; pass < STEP_PASSES; pass++)
		for (size_t i = 0; i < STEP_BYTES / sizeof *weights; i += 16)
			for (size_t j = 0; j < 16; j++)
				sum[j] += weights[i + j] * 0.5f;
	return sum[0] + sum[7];
}

static volatile float kept_result; /* so that the work is done */

static void run_chunk(const float *weights, struct samples *steps)
{
	for (int i = 0; i < STEPS_A_CHUNK; i++) {
		int64_t start_ns = cnre_clock_now_ns();

		kept_result = work(weights);
		add(steps, us_between(start_ns, cnre_clock_now_ns()));
	}
}

/* The three in turn, so that what else runs on the machine is shared by them. */
static void bench_step(struct bench *bench, char **argv)
{
	pid_t pid = (pid_t)strtol(argv[0], NULL, 10);
	long chunks = strtol(argv[1], NULL, 10);
	float *weights = calloc(1, STEP_BYTES);
	struct samples alone = {0}, beside = {0}, stopped = {0};
	struct calls running_calls = {0}, stopped_calls = {0};

	if (weights == NULL)
		fail("memory", -ENOMEM);
	memset(weights, 1, STEP_BYTES);
	for (long i = 0; i < chunks; i++) {
		run_chunk(weights, &alone);
		publish_one(bench, bench->bytes, &running_calls);
		run_chunk(weights, &beside);
		send_signal(pid, SIGSTOP);
		publish_one(bench, bench->bytes, &stopped_calls);
		run_chunk(weights, &stopped);
		send_signal(pid, SIGCONT);
		run_chunk(weights, &(struct samples){0});
	}
	print("step_us", &alone);
	print("beside_us", &beside);
	print("stopped_us", &stopped);
	print_calls("running", &running_calls);
	print_calls("stopped", &stopped_calls);
	free(weights);
}

static void bench_calls(struct bench *bench, char **argv)
{
	pid_t pid = (pid_t)strtol(argv[0], NULL, 10);
	long count = strtol(argv[1], NULL, 10);
	struct calls calls = {0};

	for (long i = 0; i < count; i++) {
		publish_one(bench, bench->bytes, &calls);
		if (pid <= 0)
			await(bench, bench->tokens, BLOCK_TOKENS);
	}
	print_calls("running", &calls);
	if (pid <= 0)
		return;
	calls = (struct calls){0};
	send_signal(pid, SIGSTOP);
	for (long i = 0; i < count; i++)
		publish_one(bench, bench->bytes, &calls);
	send_signal(pid, SIGCONT);
	print_calls("stopped", &calls);
}

/* ---- main ---- */

static void open_bench(struct bench *bench, char **argv)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = argv[1],
				       .name = "bench_kv",
				       .reserve_bytes = 1,
				       .timeout_ns = LIMIT_NS};
	int r;

	bench->blocks = strtoul(argv[3], NULL, 10);
	bench->bytes = strtoul(argv[4], NULL, 10);
	if (bench->blocks == 0 || bench->blocks > BLOCKS_MAX || bench->bytes == 0)
		fail("blocks", -EINVAL);
	bench->rows = malloc(bench->blocks * bench->bytes);
	bench->tokens = calloc(bench->blocks * BLOCK_TOKENS, sizeof *bench->tokens);
	if (bench->rows == NULL || bench->tokens == NULL)
		fail("memory", -ENOMEM);
	for (uint64_t i = 0; i < bench->blocks * bench->bytes / 8; i++)
		((uint64_t *)bench->rows)[i] = i * 0x9e3779b97f4a7c15ull;
	r = cnre_attach(&bench->client, argv[2], &options);
	if (r < 0)
		fail("attach", r);
	open_kv(bench, NULL);
}

static void run_verb(struct bench *bench, int argc, char **argv)
{
	if (argc == 8 && strcmp(argv[5], "match") == 0)
		bench_match(bench, argv + 6);
	else if (argc == 7 && strcmp(argv[5], "publish") == 0)
		bench_publish(bench, argv + 6);
	else if (argc == 7 && strcmp(argv[5], "store") == 0)
		bench_store(bench, argv + 6);
	else if (argc == 8 && strcmp(argv[5], "load") == 0)
		bench_load(bench, argv + 6);
	else if (argc == 8 && strcmp(argv[5], "step") == 0)
		bench_step(bench, argv + 6);
	else if (argc == 8 && strcmp(argv[5], "calls") == 0)
		bench_calls(bench, argv + 6);
	else
		fail("usage", -EINVAL);
}

int main(int argc, char **argv)
{
	struct bench bench = {0};

	if (argc < 6)
		fail("usage", -EINVAL);
	open_bench(&bench, argv);
	printf("{");
	run_verb(&bench, argc, argv);
	printf("\"bytes\":%llu}\n", (unsigned long long)bench.bytes);
	cnre_kv_close(bench.kv);
	cnre_detach(bench.client);
	free(bench.rows);
	free(bench.tokens);
	return 0;
}
