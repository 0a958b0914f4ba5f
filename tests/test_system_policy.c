/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a real manager learns and tells: policies that change while clients run, layers, histories that outlive it, and
 * recordings that hold just what a client did.
 */
#include "cnre/cnre.h"
#include "policy/policy.h"
#include "policy/record.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_policy, .timeout = 180);

enum { LAYERS = 4, EXPERTS = 16, TOP_K = 4 }; /* what world_generate makes by itself */

static char *with_directory(const struct world *world, const char *name, char *path, size_t bytes)
{
	(void)snprintf(path, bytes, "%s/%s", world->directory, name);
	return path;
}

static struct cnre *attach(struct world *world)
{
	struct cnre_options options = {.size = sizeof options, .socket = world->socket, .timeout_ns = 20000000000};
	struct cnre *client = NULL;

	cr_assert_eq(cnre_attach(&client, world->model, &options), 0);
	return client;
}

/* One token: in each layer TOP_K experts, by a rule that moves on slowly. Returns how many of them were misses. */
static uint32_t run_token(struct cnre *client, uint32_t token)
{
	uint32_t misses = 0;

	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		uint32_t experts[TOP_K];
		struct cnre_batch *batch = NULL;

		for (uint32_t i = 0; i < TOP_K; i++)
			experts[i] = (token * (i + 1) / 3 + i * 5 + layer) % EXPERTS;
		for (uint32_t i = 1; i < TOP_K; i++) /* distinct */
			for (uint32_t j = 0; j < i; j++)
				if (experts[i] == experts[j]) {
					experts[i] = (experts[i] + 1) % EXPERTS;
					j = UINT32_MAX;
				}
		cr_assert_eq(cnre_batch_begin(client, layer, experts, TOP_K, 1, &batch), 0);
		for (uint32_t i = 0; i < TOP_K; i++) {
			struct cnre_expert expert;

			cr_assert_eq(cnre_batch_wait(batch, i, -1, &expert), 0);
			misses += (expert.flags & CNRE_WAS_RESIDENT) == 0;
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
		cnre_batch_end(batch);
	}
	return misses;
}

static int ctl(struct world *world, char *output, size_t bytes, const char *a, const char *b, const char *c, const char *d)
{
	const char *arguments[] = {"--socket", world->socket, a, b, c, d, NULL};

	return world_run("cnrectl", arguments, output, bytes);
}

static const char *policy_in_force(struct world *world, char *text, size_t bytes)
{
	char output[16384] = "";
	json_t *answer;

	cr_assert_eq(ctl(world, output, sizeof output, "status", "--json", NULL, NULL), 0);
	answer = json_loads(output, 0, NULL);
	(void)snprintf(text, bytes, "%s", json_string_value(json_object_get(answer, "policy")));
	json_decref(answer);
	return text;
}

struct successor {
	struct world *world;
	uint64_t killed;
};

static int another_serves(void *context)
{
	const struct successor *successor = context;
	uint64_t pid = world_status(successor->world, "pid");

	return pid != UINT64_MAX && pid != successor->killed;
}

Test(system_policy, every_policy_can_take_over_while_a_client_runs_and_stays_after_a_restart)
{
	struct world world;
	char name[32], text[512];
	struct cnre *client;
	uint32_t token = 0;
	uint64_t killed;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "4M", "--hugepages", "4k", "--keeper", "auto", NULL}));
	client = attach(&world);
	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		uint64_t resident = world_stat(&world, "resident_objects");

		cr_assert_eq(ctl(&world, text, sizeof text, "policy", policy_name_at(i), NULL, NULL), 0, "%s", text);
		cr_assert_str_eq(policy_in_force(&world, name, sizeof name), policy_name_at(i));
		cr_assert_eq(world_stat(&world, "resident_objects"), resident, "a change of policy evicts nothing");
		for (uint32_t t = 0; t < 20; t++)
			(void)run_token(client, token++);
	}
	cr_assert_neq(ctl(&world, text, sizeof text, "policy", "no-such-policy", NULL, NULL), 0);
	cr_assert_eq(ctl(&world, text, sizeof text, "policy", "fifo", NULL, NULL), 0);
	killed = world_status(&world, "pid");
	cr_assert_eq(kill((pid_t)killed, SIGKILL), 0);
	(void)run_token(client, token); /* waits for the successor, if it misses */
	cr_assert(world_wait_until(another_serves, &(struct successor){&world, killed}, 60));
	cr_assert_str_eq(policy_in_force(&world, name, sizeof name), "fifo");
	cnre_detach(client);
	world_close(&world);
}

static void read_whole(const char *path, unsigned char **ret_bytes, size_t *ret_count)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && fstat(fd, &status) == 0);
	*ret_count = (size_t)status.st_size;
	*ret_bytes = malloc(*ret_count);
	cr_assert_eq(read(fd, *ret_bytes, *ret_count), (ssize_t)*ret_count);
	(void)close(fd);
}

struct contents {
	uint64_t visits, accesses, misses, tokens, waits, records;
	int has_end;
};

static void read_trace(const char *path, struct record_header *ret_header, struct contents *ret_contents)
{
	unsigned char *bytes;
	struct record record;
	size_t count, at;
	long used;

	read_whole(path, &bytes, &count);
	used = record_get_header(bytes, count, ret_header);
	cr_assert_gt(used, 0);
	*ret_contents = (struct contents){0};
	for (at = (size_t)used; at < count; at += (size_t)used) {
		used = record_get(bytes + at, count - at, &record);
		cr_assert_gt(used, 0, "record %llu", (unsigned long long)ret_contents->records);
		cr_assert_not(ret_contents->has_end, "nothing comes behind the end");
		ret_contents->visits += record.kind == RECORD_VISIT;
		ret_contents->accesses += record.kind == RECORD_ACCESS;
		ret_contents->misses += record.kind == RECORD_ACCESS && record.b == 0;
		ret_contents->tokens += record.kind == RECORD_TOKEN ? record.a : 0;
		ret_contents->waits += record.kind == RECORD_WAIT;
		ret_contents->has_end = record.kind == RECORD_END;
		if (ret_contents->has_end)
			cr_assert_eq(record.a, ret_contents->records);
		ret_contents->records += record.kind != RECORD_END;
	}
	free(bytes);
}

Test(system_policy, a_recording_holds_every_visit_and_lookup_in_order_and_its_end)
{
	struct world world;
	struct record_header header;
	struct contents contents;
	char trace[128], text[512];
	struct cnre *client;
	uint32_t misses = 0;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "4M", "--hugepages", "4k", NULL}));
	with_directory(&world, "run.trace", trace, sizeof trace);
	client = attach(&world);
	for (uint32_t t = 0; t < 5; t++)
		(void)run_token(client, t);
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "record", trace, NULL), 0, "%s", text);
	cr_assert_neq(ctl(&world, text, sizeof text, "trace", "record", "/dev/null", NULL), 0, "one at a time");
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "status", NULL, NULL), 0, "%s", text);
	cr_assert_not_null(strstr(text, "written so far"), "%s", text);
	for (uint32_t t = 5; t < 105; t++)
		misses += run_token(client, t);
	cnre_detach(client); /* what it wrote is read to the end */
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "stop", NULL, NULL), 0, "%s", text);
	cr_assert_not_null(strstr(text, "over"), "%s", text);
	read_trace(trace, &header, &contents);
	cr_assert(contents.has_end);
	cr_assert_eq(contents.visits, 100 * LAYERS);
	cr_assert_eq(contents.accesses, 100 * LAYERS * TOP_K);
	cr_assert_eq(contents.misses, misses);
	cr_assert_gt(contents.waits, 0);
	cr_assert_eq(header.layer_count, LAYERS);
	cr_assert_eq(header.layer[0].experts, EXPERTS);
	cr_assert_str_eq(header.policy, "cost");
	cr_assert_gt(header.resident_count, 0);
	record_free_header(&header);
	cr_assert_neq(ctl(&world, text, sizeof text, "trace", "record", trace, NULL), 0, "never over another file");
	cr_assert_neq(ctl(&world, text, sizeof text, "trace", "stop", NULL, NULL), 0, "none is under way");
	world_close(&world);
}

/* Who lost the answer takes away an empty file, as one that was never used; so the header is not left for later. */
static int has_bytes(void *context)
{
	struct stat status;

	return stat(context, &status) == 0 && status.st_size > 0;
}

Test(system_policy, a_recording_is_begun_in_its_file_at_once_and_whole_when_the_manager_is_told_to_end)
{
	struct world world;
	struct record_header header;
	struct contents contents;
	char trace[128], text[512];
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "4M", "--hugepages", "4k", NULL}));
	with_directory(&world, "ended.trace", trace, sizeof trace);
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "record", trace, NULL), 0, "%s", text);
	cr_assert(world_wait_until(has_bytes, trace, 20));
	client = attach(&world);
	for (uint32_t t = 0; t < 20; t++)
		(void)run_token(client, t);
	(void)world_stop(&world, SIGTERM);
	cnre_detach(client);
	read_trace(trace, &header, &contents);
	cr_assert(contents.has_end);
	cr_assert_eq(contents.accesses, 20 * LAYERS * TOP_K);
	record_free_header(&header);
	world_close(&world);
}

Test(system_policy, a_recording_ends_by_itself_at_its_size_and_takes_no_pipe)
{
	struct world world;
	struct record_header header;
	struct contents contents;
	char trace[128], pipe[128], text[512];
	const char *arguments[] = {"--socket", world.socket, "trace", "record", trace, "--max", "2K", NULL};
	struct cnre *client;
	struct stat status;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "4M", "--hugepages", "4k", NULL}));
	with_directory(&world, "pipe", pipe, sizeof pipe);
	with_directory(&world, "short.trace", trace, sizeof trace);
	cr_assert_eq(world_run("cnrectl", arguments, text, sizeof text), 0, "%s", text);
	client = attach(&world);
	for (uint32_t t = 0; t < 100; t++)
		(void)run_token(client, t);
	cnre_detach(client);
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "status", NULL, NULL), 0);
	cr_assert_not_null(strstr(text, "as large as was asked for"), "%s", text);
	cr_assert_eq(ctl(&world, text, sizeof text, "trace", "stop", NULL, NULL), 0, "it is over and whole: %s", text);
	cr_assert_eq(stat(trace, &status), 0);
	cr_assert_leq(status.st_size, 2048);
	read_trace(trace, &header, &contents);
	cr_assert(contents.has_end);
	record_free_header(&header);
	world_close(&world);
}

Test(system_policy, layers_add_up_to_what_clients_looked_up)
{
	struct world world;
	char output[65536];
	uint64_t accesses = 0, misses = 0, resident = 0;
	struct cnre *client;
	json_t *answer, *layer;
	uint32_t missed = 0;
	size_t index;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "4M", "--hugepages", "4k", NULL}));
	client = attach(&world);
	for (uint32_t t = 0; t < 200; t++)
		missed += run_token(client, t);
	cnre_detach(client);
	cr_assert_eq(ctl(&world, output, sizeof output, "layers", "--json", NULL, NULL), 0);
	answer = json_loads(output, 0, NULL);
	json_array_foreach (json_object_get(json_array_get(json_object_get(answer, "models"), 0), "layers"), index, layer) {
		accesses += (uint64_t)json_integer_value(json_object_get(layer, "accesses"));
		misses += (uint64_t)json_integer_value(json_object_get(layer, "misses"));
		resident += (uint64_t)json_integer_value(json_object_get(layer, "resident"));
		cr_assert_gt(json_real_value(json_object_get(layer, "felt_wait_s")), 0);
	}
	cr_assert_eq(index, LAYERS);
	cr_assert_eq(accesses, 200 * LAYERS * TOP_K);
	cr_assert_eq(misses, missed);
	cr_assert_eq(resident, world_stat(&world, "resident_objects"));
	json_decref(answer);
	cr_assert_eq(ctl(&world, output, sizeof output, "layers", NULL, NULL, NULL), 0, "for people, too");
	world_close(&world);
}

/* Sum of the third column of the one history in a folder. */
static uint64_t history_sum(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	uint64_t sum = 0;

	cr_assert_not_null(directory);
	while ((entry = readdir(directory)) != NULL) {
		char path[512];
		long long layer, expert, count;
		FILE *file;
		size_t length = strlen(entry->d_name);

		if (length < 11 || strcmp(entry->d_name + length - 11, ".coli_usage") != 0)
			continue;
		(void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		file = fopen(path, "re");
		cr_assert_not_null(file);
		while (fscanf(file, "%lld %lld %lld", &layer, &expert, &count) == 3)
			sum += layer >= 0 ? (uint64_t)count : 0;
		(void)fclose(file);
	}
	(void)closedir(directory);
	return sum;
}

Test(system_policy, the_history_of_uses_outlives_managers_and_is_added_to)
{
	struct world world;
	char folder[128];
	const char *options[] = {"--ram", "4M", "--hugepages", "4k", "--usage", folder, NULL};

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(mkdir(with_directory(&world, "usage", folder, sizeof folder), 0777), 0);
	for (uint32_t run = 1; run <= 2; run++) {
		struct cnre *client;

		cr_assert(world_start(&world, options));
		client = attach(&world);
		for (uint32_t t = 0; t < 50; t++)
			(void)run_token(client, t);
		cnre_detach(client);
		(void)world_stop(&world, SIGTERM);
		cr_assert_eq(history_sum(folder), run * 50 * LAYERS * TOP_K);
	}
	world_close(&world);
}

/* ---- speculation ---- */

enum { HOT = 10, TOKENS = 150 };

/* Uneven, and with the sequence fixed: the square of an even draw among the HOT first experts; `number` tells draws apart. */
static uint32_t draw(uint32_t token, uint32_t layer, uint32_t number)
{
	uint32_t x = token * 2654435761u ^ layer * 40503u ^ number * 97u;

	x = (x ^ x >> 15) * 2246822519u;
	x = (x ^ x >> 13) % (HOT * HOT);
	return x / HOT * (x / HOT + 1) / HOT;
}

static void choose(uint32_t token, uint32_t layer, uint32_t experts[TOP_K])
{
	uint32_t count = 0;

	for (uint32_t number = 0; count < TOP_K; number++) {
		uint32_t expert = number < 64 ? draw(token, layer, number) : number % HOT, i;

		for (i = 0; i < count && experts[i] != expert; i++)
			;
		if (i == count)
			experts[count++] = expert;
	}
}

/* Bytes read for the same lookups, with what `wrong` of ten predictions name an expert that nobody uses. */
static uint64_t bytes_read_with(const char *policy, int predicts, uint32_t wrong)
{
	struct world world;
	struct cnre *client;
	uint64_t bytes;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert(world_start(&world, (const char *[]){"--ram", "512K", "--hugepages", "4k", "--policy", policy, NULL}));
	client = attach(&world);
	for (uint32_t token = 0; token < TOKENS; token++) {
		for (uint32_t layer = 0; layer < LAYERS; layer++) {
			uint32_t experts[TOP_K], next[TOP_K];
			struct cnre_batch *batch = NULL;
			struct cnre_expert expert;

			choose(token, layer, experts);
			choose(layer + 1 == LAYERS ? token + 1 : token, (layer + 1) % LAYERS, next);
			for (uint32_t i = 0; i < TOP_K; i++)
				if ((token * TOP_K + i) % 10 < wrong)
					next[i] = HOT + (token + i) % (EXPERTS - HOT);
			cr_assert_eq(cnre_batch_begin(client, layer, experts, TOP_K, 1, &batch), 0);
			for (uint32_t i = 0; i < TOP_K; i++) {
				cr_assert_eq(cnre_batch_wait(batch, i, -1, &expert), 0);
				cr_assert_eq(cnre_release(client, &expert), 0);
			}
			cnre_batch_end(batch);
			if (predicts)
				(void)cnre_prefetch(client, (layer + 1) % LAYERS, next, TOP_K);
		}
	}
	cnre_detach(client);
	bytes = world_stat(&world, "bytes_read");
	world_close(&world);
	return bytes;
}

/* B7: predictions that are wrong three times in ten may not cost more than 5 % of bytes. */
Test(system_policy, wrong_predictions_do_not_evict_what_is_worth_more)
{
	uint64_t without = bytes_read_with("cost", 0, 0), with = bytes_read_with("cost", 1, 3);

	cr_assert_leq(with, without + without / 20, "%llu bytes with predictions, %llu without", (unsigned long long)with,
		      (unsigned long long)without);
}
