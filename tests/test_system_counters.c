/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identities of shm/counters.def after known runs of a real manager, in total, by layer, by client and by drive; and the
 * same numbers counted here once more, from a recording and from what the library said, which the manager's code has no part
 * in. Everything that a test compares has come to rest: nothing is in flight and every client has detached or waits.
 */
#include "cnre/cnre.h"
#include "policy/record.h"
#include "tests/support/child.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_counters, .timeout = 240);

enum { LAYERS = 4, EXPERTS = 16, TOP_K = 4, OBJECTS = LAYERS * EXPERTS, CLIENTS = 2, SESSIONS_MAX = 16, TOKENS = 120 };
#define RESERVE (512u << 10)
#define TIMEOUT_NS 20000000000

/* Some 50 KiB an expert and 3 MiB all of them, of which about half find room. */
static const char *const shape[] = {"--hidden", "128", "--intermediate", "128", NULL};
#define HALF "--ram", "1800K", "--hugepages", "4k"

/* ---- what the manager says ---- */

static json_t *said(struct world *world, const char *verb)
{
	static char output[1 << 18];
	const char *arguments[] = {"--socket", world->socket, verb, "--json", NULL};
	json_t *answer;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s: %s", verb, output);
	answer = json_loads(output, 0, NULL);
	cr_assert_not_null(answer, "%s: %.100s", verb, output);
	return answer;
}

static void order(struct world *world, const char *a, const char *b, const char *c)
{
	const char *arguments[] = {"--socket", world->socket, a, b, c, NULL};
	char output[4096];

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s", output);
}

static uint64_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	cr_assert(json_is_integer(value), "no number %s", key);
	return (uint64_t)json_integer_value(value);
}

static const json_t *layers_of(const json_t *answer)
{
	return json_object_get(json_array_get(json_object_get(answer, "models"), 0), "layers");
}

static uint64_t sum(const json_t *list, const char *key)
{
	uint64_t all = 0;
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		all += number(one, key);
	return all;
}

static int is_still(void *context)
{
	struct world *world = context;

	return world_stat(world, "loads_in_flight") == 0 && world_stat(world, "loads_queued") == 0;
}

/* ---- the identities ---- */

static void expect_of_stats(const json_t *stats)
{
	cr_expect_eq(number(stats, "hits") + number(stats, "misses"), number(stats, "accesses"));
	cr_expect_leq(number(stats, "joins"), number(stats, "misses"));
	cr_expect_leq(number(stats, "failures"), number(stats, "accesses"));
	cr_expect_leq(number(stats, "vram_hits"), number(stats, "hits"));
	cr_expect_eq(number(stats, "bytes_loaded") - number(stats, "bytes_evicted"), number(stats, "resident_bytes"));
	cr_expect_eq(number(stats, "admissions"), number(stats, "loads"));
	cr_expect_eq(number(stats, "admissions"), number(stats, "evictions") + number(stats, "resident_objects"));
	cr_expect_eq(number(stats, "prefetches_issued"),
		     number(stats, "prefetches_used") + number(stats, "prefetches_late") + number(stats, "prefetches_wasted") +
			     number(stats, "prefetches_failed") + number(stats, "prefetches_unused"));
}

static void expect_of_layer(const json_t *layer)
{
	const json_t *prefetches = json_object_get(layer, "prefetches"), *reuse = json_object_get(layer, "reuse"), *bucket;
	uint64_t distances = number(reuse, "first_uses");
	size_t i;

	cr_expect_eq(number(layer, "hits") + number(layer, "misses"), number(layer, "accesses"));
	cr_expect_eq(number(layer, "misses") - number(layer, "joins"), number(layer, "physical_misses"));
	cr_expect_eq(number(layer, "adopted") + number(layer, "loads") - number(layer, "evictions"), number(layer, "ready"));
	cr_expect_eq(number(prefetches, "issued"), number(prefetches, "used") + number(prefetches, "late") +
							   number(prefetches, "wasted") + number(prefetches, "failed") +
							   number(prefetches, "unused"));
	json_array_foreach (json_object_get(reuse, "buckets"), i, bucket)
		distances += (uint64_t)json_integer_value(bucket);
	cr_expect_eq(distances, number(reuse, "accesses"), "each lookup has a distance, or is a first use");
}

/* Sums over layers, and what former managers had counted, are the totals. */
static void expect_of_layers(const json_t *answer, const json_t *stats)
{
	static const char *const summed[] = {"accesses", "hits",      "misses",    "joins",    "failures",
					     "loads",    "evictions", "bytes_read", "bytes_looked_up"};
	const json_t *layers = layers_of(answer), *before = json_object_get(answer, "before"), *layer;
	size_t i;

	cr_expect_eq(json_array_size(layers), LAYERS);
	json_array_foreach (layers, i, layer)
		expect_of_layer(layer);
	for (i = 0; i < sizeof summed / sizeof summed[0]; i++)
		cr_expect_eq(sum(layers, summed[i]) + number(before, summed[i]), number(stats, summed[i]), "%s: %llu and %llu",
			     summed[i], (unsigned long long)sum(layers, summed[i]),
			     (unsigned long long)number(stats, summed[i]));
	cr_expect_eq(sum(layers, "ready"), number(stats, "resident_objects"));
}

static void expect_of_drives(const json_t *drives, const json_t *stats)
{
	cr_expect_eq(sum(json_object_get(drives, "drives"), "bytes") + number(drives, "bytes_before"), number(stats, "bytes_read"));
}

static void expect_identities(struct world *world)
{
	json_t *layers, *drives, *stats;

	cr_assert(world_wait_until(is_still, world, 20));
	layers = said(world, "layers");
	drives = said(world, "drives");
	stats = said(world, "stats");
	expect_of_stats(stats);
	expect_of_layers(layers, stats);
	expect_of_drives(drives, stats);
	json_decref(layers);
	json_decref(drives);
	json_decref(stats);
}

/* ---- a known run ---- */

/* What this process saw of one client: by what the library told it of each expert. */
struct seen {
	uint64_t accesses, misses, joins;
};

static void run_token(struct cnre *client, uint32_t token, struct seen *seen)
{
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		uint32_t experts[TOP_K];
		struct cnre_batch *batch = NULL;

		for (uint32_t i = 0; i < TOP_K; i++) /* four apart, so distinct; the layer's window moves on slowly */
			experts[i] = (token / 3 + layer + 4 * i + token * i % 4) % EXPERTS;
		for (uint32_t i = 1; i < TOP_K; i++)
			for (uint32_t j = 0; j < i; j++)
				if (experts[i] == experts[j]) {
					experts[i] = (experts[i] + 1) % EXPERTS;
					j = UINT32_MAX;
				}
		cr_assert_eq(cnre_batch_begin(client, layer, experts, TOP_K, 1, &batch), 0);
		for (uint32_t i = 0; i < TOP_K; i++) {
			struct cnre_expert expert;

			cr_assert_eq(cnre_batch_wait(batch, i, TIMEOUT_NS, &expert), 0);
			seen->accesses++;
			seen->misses += (expert.flags & CNRE_WAS_RESIDENT) == 0;
			seen->joins += (expert.flags & CNRE_JOINED) != 0;
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
		cnre_batch_end(batch);
	}
}

/* The other client: a process of its own, which says what it saw, and stays until it is told to go. */
struct other {
	const struct world *world;
	struct seen *seen;      /* shared */
	int done, leave;        /* it writes to the one when it has run, and reads the other until it is closed */
	int leave_writer;
};

static int run_other(void *argument)
{
	const struct other *other = argument;
	struct cnre *client;
	char byte;

	(void)close(other->leave_writer);
	client = world_attach(other->world, RESERVE);
	for (uint32_t token = 0; token < TOKENS; token++)
		run_token(client, 2 * token, other->seen);
	(void)!write(other->done, "d", 1);
	(void)!read(other->leave, &byte, 1);
	cnre_detach(client);
	return 0;
}

/* ---- the same, counted from the recording ---- */

struct counted {
	uint64_t accesses[SESSIONS_MAX], misses[SESSIONS_MAX]; /* by session number */
	uint64_t accesses_of[LAYERS], misses_of[LAYERS], distinct_of[LAYERS], bytes_of[LAYERS];
	uint64_t distances_of[LAYERS], distance_sum_of[LAYERS];
	uint64_t lost;
	unsigned char is_known[OBJECTS];
	uint64_t last[OBJECTS];     /* number of its layer's latest access to it, from 1 */
};

/* Other objects of the layer that were used since this one was. */
static uint64_t others_since(const struct counted *counted, uint32_t object)
{
	uint32_t first = object / EXPERTS * EXPERTS;
	uint64_t others = 0;

	for (uint32_t i = first; i < first + EXPERTS; i++)
		others += counted->is_known[i] && counted->last[i] > counted->last[object];
	return others;
}

static void count_access(const struct record_header *header, const struct record *record, struct counted *counted)
{
	uint32_t object = (uint32_t)record->a, layer = object / EXPERTS;

	cr_assert(object < OBJECTS && record->client < SESSIONS_MAX);
	counted->accesses[record->client]++;
	counted->misses[record->client] += record->b == 0;
	counted->accesses_of[layer]++;
	counted->misses_of[layer] += record->b == 0;
	counted->bytes_of[layer] += header->layer[layer].read_bytes;
	if (counted->is_known[object]) {
		counted->distances_of[layer]++;
		counted->distance_sum_of[layer] += others_since(counted, object);
	}
	counted->distinct_of[layer] += !counted->is_known[object];
	counted->is_known[object] = 1;
	counted->last[object] = counted->accesses_of[layer];
}

static void count_recording(const char *path, struct counted *counted)
{
	struct record_header header;
	struct record record = {.kind = RECORD_LOST};
	unsigned char *bytes;
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long used;
	size_t at;

	cr_assert(fd >= 0 && fstat(fd, &status) == 0);
	bytes = malloc((size_t)status.st_size);
	cr_assert_eq(read(fd, bytes, (size_t)status.st_size), status.st_size);
	(void)close(fd);
	used = record_get_header(bytes, (size_t)status.st_size, &header);
	cr_assert_gt(used, 0);
	*counted = (struct counted){.lost = 0};
	for (at = (size_t)used; at < (size_t)status.st_size; at += (size_t)used) {
		used = record_get(bytes + at, (size_t)status.st_size - at, &record);
		cr_assert_gt(used, 0);
		if (record.kind == RECORD_ACCESS)
			count_access(&header, &record, counted);
		counted->lost += record.kind == RECORD_LOST;
	}
	cr_assert_eq(record.kind, RECORD_END);
	record_free_header(&header);
	free(bytes);
}

static void compare_clients(const json_t *clients, const struct counted *counted, const struct seen *seen, pid_t other)
{
	const json_t *list = json_object_get(clients, "clients"), *client;
	size_t i;

	cr_assert_eq(json_array_size(list), CLIENTS);
	json_array_foreach (list, i, client) {
		uint64_t session = number(client, "session");
		const struct seen *its = &seen[number(client, "pid") == (uint64_t)other];

		cr_assert(session >= 1 && session <= CLIENTS, "the first of this manager");
		cr_expect_eq(number(client, "accesses"), counted->accesses[session]);
		cr_expect_eq(number(client, "misses"), counted->misses[session]);
		cr_expect_eq(number(client, "hits") + number(client, "misses"), number(client, "accesses"));
		cr_expect_eq(counted->accesses[session], its->accesses, "and as the library told the test");
		cr_expect_eq(counted->misses[session], its->misses);
		cr_expect_eq(number(client, "joins"), its->joins);
		cr_expect_eq(number(client, "log_lost"), 0);
		cr_expect(json_is_real(json_object_get(client, "heard_s")));
		cr_expect_leq(json_number_value(json_object_get(client, "felt_p50_s")),
			      json_number_value(json_object_get(client, "felt_p99_s")));
	}
}

static void compare_layers(const json_t *layers, const struct counted *counted)
{
	const json_t *layer;
	size_t i;

	json_array_foreach (layers_of(layers), i, layer) {
		const json_t *reuse = json_object_get(layer, "reuse");

		cr_expect_eq(number(layer, "accesses"), counted->accesses_of[i]);
		cr_expect_eq(number(layer, "misses"), counted->misses_of[i], "layer %zu: %llu, recorded %llu", i,
			     (unsigned long long)number(layer, "misses"), (unsigned long long)counted->misses_of[i]);
		cr_expect_eq(number(layer, "bytes_looked_up"), counted->bytes_of[i]);
		cr_expect_eq(number(reuse, "first_uses"), counted->distinct_of[i], "distinct experts");
		cr_expect_eq(number(reuse, "accesses") - number(reuse, "first_uses"), counted->distances_of[i]);
		cr_expect_eq(number(reuse, "sum"), counted->distance_sum_of[i]);
	}
}

Test(system_counters, after_a_known_run_every_identity_holds_and_the_recording_says_the_same)
{
	struct seen *seen = mmap(NULL, CLIENTS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int done[2], leave[2];
	struct other other = {.seen = &seen[1]};
	struct counted counted;
	struct cnre *client;
	json_t *clients, *layers;
	struct world world;
	char trace[128], byte;
	pid_t child;

	cr_assert_neq(seen, MAP_FAILED);
	cr_assert(pipe2(done, O_CLOEXEC) == 0 && pipe2(leave, O_CLOEXEC) == 0);
	world_open(&world);
	world_generate(&world, shape);
	cr_assert(world_start(&world, (const char *[]){HALF, NULL}));
	(void)snprintf(trace, sizeof trace, "%s/run.trace", world.directory);
	order(&world, "trace", "record", trace);
	other.world = &world;
	other.done = done[1];
	other.leave = leave[0];
	other.leave_writer = leave[1];
	child = child_start(run_other, &other);
	client = world_attach(&world, RESERVE);
	for (uint32_t token = 0; token < TOKENS; token++)
		run_token(client, token, &seen[0]);
	cr_assert_eq(read(done[0], &byte, 1), 1);
	expect_identities(&world);
	clients = said(&world, "clients");
	(void)close(leave[1]);
	cr_assert_eq(child_wait(child), 0);
	cnre_detach(client); /* what both wrote is read to the end */
	layers = said(&world, "layers");
	order(&world, "trace", "stop", NULL);
	count_recording(trace, &counted);
	cr_assert_eq(counted.lost, 0);
	compare_clients(clients, &counted, seen, child);
	compare_layers(layers, &counted);
	cr_expect_eq(world_stat(&world, "accesses"), seen[0].accesses + seen[1].accesses);
	cr_expect_eq(world_stat(&world, "misses"), seen[0].misses + seen[1].misses);
	cr_expect_eq(world_stat(&world, "accesses"), CLIENTS * TOKENS * LAYERS * TOP_K);
	cr_expect_gt(world_stat(&world, "evictions"), 0, "the test shows less than it should");
	cr_expect_gt(world_stat(&world, "hits"), 0);
	expect_identities(&world);
	json_decref(clients);
	json_decref(layers);
	world_close(&world);
}

/* ---- what becomes of prefetches ---- */

static int is_resident(struct cnre *client, uint32_t layer, uint32_t expert)
{
	uint8_t tier = CNRE_ABSENT;

	cr_assert_eq(cnre_resident(client, layer, &expert, 1, &tier), 0);
	return tier == CNRE_RAM;
}

struct awaited {
	struct cnre *client;
	uint32_t layer, expert;
};

static int has_come(void *context)
{
	const struct awaited *awaited = context;

	return is_resident(awaited->client, awaited->layer, awaited->expert);
}

static void prefetch(struct cnre *client, uint32_t layer, uint32_t expert)
{
	cr_assert_eq(cnre_prefetch(client, layer, &expert, 1), 1);
	cr_assert(world_wait_until(has_come, &(struct awaited){client, layer, expert}, 20));
}

static void look_up(struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert leased;

	cr_assert_eq(cnre_acquire(client, layer, expert, TIMEOUT_NS, &leased), 0);
	cr_assert_eq(cnre_release(client, &leased), 0);
}

/*
 * Goal: each way in which a prefetch ends is counted, once. Method: a used, a wasted and an open one by hand; then the manager
 * is killed, and its successor does not know what became of the open one.
 */
Test(system_counters, every_prefetch_ends_in_one_way_and_a_restart_loses_none)
{
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, shape);
	cr_assert(world_start(&world, (const char *[]){HALF, "--keeper", "auto", NULL}));
	client = world_attach(&world, RESERVE);
	prefetch(client, 0, 1);
	cr_expect_eq(world_stat(&world, "prefetches_unused"), 1);
	order(&world, "reset", NULL, NULL);
	cr_expect_eq(world_stat(&world, "prefetches_wasted"), 1);
	prefetch(client, 1, 2);
	prefetch(client, 1, 3);
	look_up(client, 1, 2);
	look_up(client, 1, 2);
	look_up(client, 2, 5); /* the manager reads the log before it begins this */
	cr_expect_eq(world_stat(&world, "prefetches_used"), 1, "once, however often it is used");
	cr_expect_eq(world_stat(&world, "prefetches_unused"), 1);
	cr_expect_eq(world_stat(&world, "prefetches_issued"), 3);
	expect_identities(&world);
	world_kill_manager(&world);
	look_up(client, 2, 6); /* waits for the successor, if it misses */
	cr_expect_eq(world_stat(&world, "prefetches_failed"), 1);
	cr_expect_eq(world_stat(&world, "prefetches_unused"), 0);
	cr_expect_eq(world_stat(&world, "prefetches_used"), 1);
	cr_expect_gt(world_stat(&world, "bytes_looked_up"), 0);
	expect_identities(&world);
	cnre_detach(client);
	expect_identities(&world);
	world_kill_manager(&world);
	cr_expect_gt(world_stat(&world, "bytes_looked_up"), 0, "of a session that has ended");
	expect_identities(&world);
	world_close(&world);
}

/* Goal: a lookup that meets the read counts the prefetch as late, and one that comes after it as used. Method: large experts. */
Test(system_counters, a_lookup_that_joins_a_prefetch_makes_it_late)
{
	static const char *const large[] = {"--layers", "1",    "--experts",      "4",    "--top-k", "2",
					    "--hidden", "1024", "--intermediate", "8192", NULL};
	struct world world;
	struct cnre *client;
	uint64_t joined = 0;

	world_open(&world);
	world_generate(&world, large);
	cr_assert(world_start(&world, (const char *[]){"--reads-in-flight", "1", NULL}));
	client = world_attach(&world, 0);
	for (uint32_t i = 0; i < 4; i++) {
		struct cnre_expert leased;
		uint8_t tier = CNRE_ABSENT;

		cr_assert_eq(cnre_prefetch(client, 0, &i, 1), 1);
		while (tier == CNRE_ABSENT)
			cr_assert_eq(cnre_resident(client, 0, &i, 1, &tier), 0);
		cr_assert_eq(cnre_acquire(client, 0, i, TIMEOUT_NS, &leased), 0);
		joined += (leased.flags & CNRE_JOINED) != 0;
		cr_assert_eq(cnre_release(client, &leased), 0);
	}
	cnre_detach(client);
	cr_assert_geq(joined, 1, "a read of 24 MiB takes longer than to ask for it");
	cr_expect_eq(world_stat(&world, "prefetches_late"), joined);
	cr_expect_eq(world_stat(&world, "prefetches_used"), 4 - joined);
	cr_expect_eq(world_stat(&world, "prefetches_issued"), 4);
	world_close(&world);
}

/* Goal: what the policy does not let in is counted. Method: residents that were used often, and guesses that never were. */
Test(system_counters, a_prefetch_that_displaces_nobody_is_a_rejection)
{
	enum { HOT = 10 }; /* of each layer: more than find room */
	uint32_t cold[EXPERTS - HOT];
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, shape);
	cr_assert(world_start(&world, (const char *[]){HALF, NULL}));
	client = world_attach(&world, RESERVE);
	for (uint32_t i = 0; i < EXPERTS - HOT; i++)
		cold[i] = HOT + i;
	for (uint32_t token = 0; token < TOKENS; token++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			look_up(client, layer, token % HOT);
	cr_assert_gt(world_stat(&world, "evictions"), 0, "it is full");
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		(void)cnre_prefetch(client, layer, cold, EXPERTS - HOT);
	cr_assert(world_wait_until(is_still, &world, 20)); /* what is queued goes with its client */
	cr_expect_gt(world_stat(&world, "rejections"), 0);
	cr_expect_leq(world_stat(&world, "rejections"), world_stat(&world, "prefetches_dropped"));
	cnre_detach(client);
	expect_identities(&world);
	world_close(&world);
}
