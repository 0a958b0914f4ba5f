/* SPDX-License-Identifier: Apache-2.0 */
/* Generated sessions: the same bytes for ever and for any number of threads, and the locality that presets promise. */
#include "tools/sim/generate.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_generate, .timeout = 240, .init = cr_redirect_stderr);

#define WORDS_MAX 40

/* Words apart by a space, after `generate --out` and the folder. */
static int generate(const struct folder *folder, const char *words)
{
	char text[512], *argv[WORDS_MAX] = {"generate", "--out", (char *)folder->path}, *at;
	int argc = 3;

	(void)snprintf(text, sizeof text, "%s", words);
	for (at = strtok(text, " "); at != NULL && argc < WORDS_MAX - 1; at = strtok(NULL, " "))
		argv[argc++] = at;
	argv[argc] = NULL;
	return sim_generate(argc, argv);
}

static uint64_t hash_file(const struct folder *folder, const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	char path[128];
	FILE *file = fopen(folder_path(folder, name, path, sizeof path), "r");
	int c;

	cr_assert_not_null(file, "%s", path);
	while ((c = getc(file)) != EOF)
		hash = (hash ^ (uint64_t)c) * 0x100000001b3ull;
	(void)fclose(file);
	return hash;
}

static const char *const small_files[] = {"train_00_coding.grp", "train_01_chat.grp", "eval_00_coding.grp",
					  "manifest.json"};

#define SMALL \
	"--preset switch --layers 6 --experts 32 --top-k 4 --tokens 150 --train-sessions 2 --eval-sessions 1 --seed 7 --to group "

/* They change only with the generator, and then traces made before and after are not the same data: say so in the log. */
Test(sim_generate, its_bytes_are_these)
{
	static const uint64_t pinned[] = {0xfb39b3b0cb117dd3ull, 0x8f08700adea91f87ull, 0xdc5752be02ed4a6eull,
					  0x2ac81b6746a3e654ull};
	struct folder folder;
	size_t i;

	folder_make(&folder);
	cr_assert_eq(generate(&folder, SMALL "--hot 3 --hot-boost 2"), 0);
	for (i = 0; i < 4; i++)
		cr_expect_eq(hash_file(&folder, small_files[i]), pinned[i], "%s: 0x%llxull", small_files[i],
			     (unsigned long long)hash_file(&folder, small_files[i]));
	folder_remove(&folder);
}

Test(sim_generate, any_number_of_threads_makes_the_same_files)
{
	struct folder one, many;
	size_t i;

	folder_make(&one);
	folder_make(&many);
	cr_assert_eq(generate(&one, SMALL "--threads 1"), 0);
	cr_assert_eq(generate(&many, SMALL "--threads 7"), 0);
	for (i = 0; i < 4; i++)
		cr_expect_eq(hash_file(&one, small_files[i]), hash_file(&many, small_files[i]), "%s", small_files[i]);
	folder_remove(&one);
	folder_remove(&many);
}

Test(sim_generate, seeds_splits_and_categories_differ)
{
	struct folder a, b;

	folder_make(&a);
	folder_make(&b);
	cr_assert_eq(generate(&a, SMALL), 0);
	cr_assert_eq(generate(&b, SMALL "--seed 8"), 0);
	cr_expect_neq(hash_file(&a, small_files[0]), hash_file(&b, small_files[0]));
	cr_expect_neq(hash_file(&a, small_files[0]), hash_file(&a, small_files[2]));
	cr_expect_eq(generate(&a, SMALL), 1, "files that are there are not replaced");
	cr_expect_eq(generate(&a, SMALL "--force --seed 8"), 0);
	cr_expect_eq(hash_file(&a, small_files[0]), hash_file(&b, small_files[0]));
	folder_remove(&a);
	folder_remove(&b);
}

/* ---- locality ---- */

struct reuse {
	uint64_t lookups, hits[6];
};

static void move_to_front(uint32_t *of_layer, uint32_t experts, uint32_t expert)
{
	uint32_t at;

	for (at = 0; at + 1 < experts && of_layer[at] != expert; at++)
		;
	memmove(of_layer + 1, of_layer, at * sizeof *of_layer);
	of_layer[0] = expert;
}

static void look_up(const uint32_t *of_layer, uint32_t experts, uint32_t expert, const uint32_t *capacity,
		    uint32_t capacities, struct reuse *reuse)
{
	uint32_t at, i;

	for (at = 0; at < experts && of_layer[at] != expert; at++)
		;
	for (i = 0; i < capacities; i++)
		reuse->hits[i] += at < experts && at < capacity[i];
	reuse->lookups++;
}

/* LRU of each layer at all capacities at once. by_row: a whole row is looked up before any of it moves. */
static void measure(const struct traces *traces, uint32_t index, const uint32_t *capacity, uint32_t capacities,
		    int by_row, uint32_t *stack, struct reuse *reuse)
{
	const struct sim_trace *trace = &traces->trace[index];
	const struct sim_row *row;
	uint32_t i, experts, *of_layer;
	const uint32_t *object;

	for (row = trace->row; row < trace->row + trace->row_count; row++) {
		of_layer = stack + traces->geometry->first_object[row->layer];
		experts = traces->geometry->experts[row->layer];
		object = trace->object + row->first;
		for (i = 0; i < row->count; i++) {
			look_up(of_layer, experts, object[i], capacity, capacities, reuse);
			if (!by_row)
				move_to_front(of_layer, experts, object[i]);
		}
		for (i = 0; i < row->count && by_row; i++)
			move_to_front(of_layer, experts, object[i]);
	}
}

static struct reuse measure_all(const char *words, const char *const *name, uint32_t names, const uint32_t *capacity,
				uint32_t capacities, int by_row)
{
	struct reuse reuse = {0};
	struct traces traces;
	uint32_t *stack, i;
	char path[128];

	traces_make(&traces);
	cr_assert_eq(generate(&traces.folder, words), 0);
	for (i = 0; i < names; i++)
		traces_add_path(&traces, folder_path(&traces.folder, name[i], path, sizeof path));
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	stack = malloc(traces.geometry->object_count * sizeof *stack);
	memset(stack, 0xff, traces.geometry->object_count * sizeof *stack);
	for (i = 0; i < names; i++)
		measure(&traces, i, capacity, capacities, by_row, stack, &reuse);
	free(stack);
	traces_remove(&traces);
	return reuse;
}

static void expect_hits(const struct reuse *reuse, const double *expected, uint32_t count, double tolerance)
{
	double ratio;
	uint32_t i;

	for (i = 0; i < count; i++) {
		ratio = (double)reuse->hits[i] / (double)reuse->lookups;
		cr_expect_float_eq(ratio, expected[i], tolerance, "%u: %.3f, not %.3f", i, ratio, expected[i]);
	}
}

/* Hits of LRU by slots a layer, each lookup by itself, as the preset was fitted. */
Test(sim_generate, glm_a_has_the_locality_that_it_was_fitted_to)
{
	static const char *const name[] = {"eval_00_coding.trace", "eval_01_chat.trace", "eval_02_reasoning.trace"};
	static const uint32_t capacity[] = {13, 19, 25, 32, 47};
	static const double expected[] = {.30, .39, .45, .50, .59};
	struct reuse reuse = measure_all("--preset glm_a --tokens 240 --train-sessions 0 --eval-sessions 3 --seed 11",
					 name, 3, capacity, 5, 0);

	expect_hits(&reuse, expected, 5, .03);
}

/* Each expert is as likely as any other, so whichever c of N are there, c/N of a row's lookups hit; but first uses miss. */
Test(sim_generate, uniform_has_no_locality_at_all)
{
	static const char *const name[] = {"train_00_coding.trace"};
	static const uint32_t capacity[] = {13, 32, 64, 96};
	static const double expected[] = {13 / 128., 32 / 128., 64 / 128., 96 / 128.};
	struct reuse reuse = measure_all(
		"--preset uniform --layers 4 --experts 128 --tokens 4000 --train-sessions 1 --eval-sessions 0", name, 1,
		capacity, 4, 1);

	expect_hits(&reuse, expected, 4, .008);
}

Test(sim_generate, wrong_options_are_usage)
{
	static const char *const wrong[] = {
		"--preset glm", "--layers 0",   "--layers 1025",    "--experts 4 --top-k 5",
		"--noise -1",   "--noise nan",  "--zipf x",         "--seed -1",
		"--to csv",     "--tokens",     "--expert-bytes 0", "--train-sessions 0 --eval-sessions 0",
		"stray",        "--threads 65",
	};
	struct folder folder;
	char *none[] = {"generate", NULL};
	size_t i;

	folder_make(&folder);
	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect_eq(generate(&folder, wrong[i]), 2, "%s", wrong[i]);
	cr_expect_eq(sim_generate(1, none), 2);
	folder_remove(&folder);
	cr_expect_eq(access(folder.path, F_OK), -1, "nothing was made");
}
