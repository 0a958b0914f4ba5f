/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colibri's own files through a real manager: what an engine traced is counted as an independent reader counts it, and the
 * history that is written is what an engine reads, line by line, by a reader that is written from the format alone.
 */
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_histories, .timeout = 120);

enum { LAYERS_MAX = 8, EXPERTS_MAX = 32 };

struct counts {
	unsigned layers, experts;
	unsigned long long of[LAYERS_MAX][EXPERTS_MAX];
};

static struct world world;
static char history[192];

/* ---- independent readers ---- */

static const char *vectors(void)
{
	const char *directory = getenv("CNRE_VECTORS");

	return directory != NULL ? directory : "../shared/vectors";
}

/* `<call> <row> <layer> <eid>:<gate> ...`, a line for each row: by words, and not by lines as the manager does. */
static void count_trace(const char *path, struct counts *counts)
{
	static char line[4096];
	FILE *file = fopen(path, "re");

	cr_assert_not_null(file, "%s", path);
	while (fgets(line, sizeof line, file) != NULL) {
		char *word = strtok(line, " \n");
		unsigned layer = 0;

		for (int place = 0; word != NULL; place++, word = strtok(NULL, " \n")) {
			if (place == 2)
				layer = (unsigned)strtoul(word, NULL, 10);
			if (place < 3)
				continue;
			cr_assert_not_null(strchr(word, ':'), "%s", word);
			cr_assert(layer < counts->layers && strtoul(word, NULL, 10) < counts->experts);
			counts->of[layer][strtoul(word, NULL, 10)]++;
		}
	}
	(void)fclose(file);
}

/* FNV-1a of 32 bits, as engines sign their histories. */
static unsigned sign(const char *name)
{
	unsigned hash = 2166136261u;

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash;
}

/* Strictly: both headers first, then counters that are not zero, each expert once, three integers a line, a line end. */
static void read_history(const char *path, const char *engine, struct counts *counts)
{
	char line[128], again[128];
	FILE *file = fopen(path, "re");
	int number = 0;

	cr_assert_not_null(file, "%s", path);
	while (fgets(line, sizeof line, file) != NULL) {
		long long a, b, c;

		number++;
		cr_assert_eq(sscanf(line, "%lld %lld %lld", &a, &b, &c), 3, "line %d: %s", number, line);
		(void)snprintf(again, sizeof again, "%lld %lld %lld\n", a, b, c);
		cr_assert_str_eq(line, again, "line %d", number);
		if (number == 1) {
			cr_assert(a == -1 && b == counts->layers && c == counts->experts, "%s", line);
		} else if (number == 2) {
			cr_assert(a == -2 && b == 1 && c == sign(engine), "%s, not %u", line, sign(engine));
		} else {
			cr_assert(a >= 0 && a < counts->layers && b >= 0 && b < counts->experts && c > 0 && c <= 4294967295, "%s",
				  line);
			cr_assert_eq(counts->of[a][b], 0, "line %d: an expert twice", number);
			counts->of[a][b] = (unsigned long long)c;
		}
	}
	cr_assert(feof(file) && number >= 2, "%d lines", number);
	(void)fclose(file);
}

/* ---- through a manager ---- */

static void ctl(const char *a, const char *b, const char *c)
{
	char output[1024] = "";

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, a, b, c, NULL}, output, sizeof output), 0,
		     "cnrectl %s %s: %s", a, b, output);
}

static void begin(const char *vector)
{
	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/%s", vectors(), vector);
	(void)snprintf(history, sizeof history, "%s/history", world.directory);
	if (access(world.model, R_OK) == 0) {
		cr_assert_gt(world_start(&world, (const char *const[]){"--hugepages", "4k", NULL}), 0);
		return;
	}
	world_close(&world);
	cr_skip("no reference vectors at %s (set CNRE_VECTORS)", world.model);
}

static void expect_equal(const struct counts *got, const struct counts *wanted, unsigned times)
{
	for (unsigned layer = 0; layer < wanted->layers; layer++)
		for (unsigned expert = 0; expert < wanted->experts; expert++)
			cr_expect_eq(got->of[layer][expert], times * wanted->of[layer][expert], "%u/%u: %llu", layer, expert,
				     got->of[layer][expert]);
}

static void import_trace(const char *vector, const char *engine, unsigned layers, unsigned experts)
{
	struct counts traced = {.layers = layers, .experts = experts}, told = traced, twice = traced;
	char trace[512];

	begin(vector);
	(void)snprintf(trace, sizeof trace, "%s/%s/route.trace", vectors(), vector);
	count_trace(trace, &traced);
	ctl("usage", "import", trace);
	ctl("usage", "export", history);
	read_history(history, engine, &told);
	expect_equal(&told, &traced, 1);
	ctl("usage", "import", history); /* what was written is read again */
	ctl("usage", "export", history);
	read_history(history, engine, &twice);
	expect_equal(&twice, &traced, 2);
	world_close(&world);
}

Test(system_histories, trace_of_glm_is_counted_and_written_as_its_engine_would)
{
	import_trace("glm-tiny", "glm_moe_dsa", 6, 16);
}

Test(system_histories, trace_of_olmoe_is_counted_and_written_as_its_engine_would)
{
	import_trace("olmoe-a", "olmoe", 4, 16);
}

Test(system_histories, trace_of_another_olmoe_is_counted_and_written_as_its_engine_would)
{
	import_trace("olmoe-b", "olmoe", 6, 24);
}

/* The engine's own file beside its own trace: three runs alike, one for each capacity of its cache. */
Test(system_histories, history_of_an_engine_is_three_times_the_trace_of_its_run)
{
	struct counts traced = {.layers = 4, .experts = 16}, told = traced;
	char path[512];

	begin("olmoe-a");
	(void)snprintf(path, sizeof path, "%s/olmoe-a/route.trace", vectors());
	count_trace(path, &traced);
	(void)snprintf(path, sizeof path, "%s/olmoe-a/coli_usage", vectors());
	ctl("usage", "import", path);
	ctl("usage", "export", history);
	read_history(history, "olmoe", &told);
	expect_equal(&told, &traced, 3);
	world_close(&world);
}
