/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier uses, from histories. */
#include "tools/sim/prior.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_prior, .timeout = 60);

static struct traces traces; /* layers 1 (5 experts) and 3 (8) */

static void load(void)
{
	traces_make(&traces);
	traces_add_text(&traces, "t", "0 1 4\n0 3 7\n1 1 2\n1 3 7\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
}

static int add(uint32_t *count, const char *name, const char *text, char message[512])
{
	char path[128];

	folder_write(&traces.folder, name, text, strlen(text));
	return sim_prior_add_usage(count, folder_path(&traces.folder, name, path, sizeof path), traces.geometry,
				   message, 512);
}

static void count_lookups(uint32_t *count, const struct sim_trace *trace)
{
	for (uint64_t i = 0; i < trace->access_count; i++)
		count[trace->object[i]]++;
}

Test(sim_prior, a_history_is_added_with_and_without_header)
{
	uint32_t count[13] = {0};
	char message[512] = "";

	load();
	cr_assert_eq(add(count, "a", "-1 5 16\n-2 1 3841822045\n0 0 9\n1 4 6\n3 7 30\n3 9 5\n", message), 0, "%s",
		     message);
	cr_assert_eq(add(count, "b.coli_usage", "1 4 1\n", message), 0, "%s", message);
	cr_assert_eq(add(count, "c.coli_usage", "", message), 0, "%s", message);
	cr_expect_eq(count[4], 7);
	cr_expect_eq(count[5 + 7], 30);
	cr_expect_eq(count[0], 0);
	traces_remove(&traces);
}

Test(sim_prior, another_models_history_and_damage_are_refused)
{
	uint32_t count[13] = {0}, i;
	char message[512] = "";

	load();
	cr_expect_eq(add(count, "a", "-1 3 16\n1 4 6\n", message), -EINVAL);
	cr_expect_not_null(strstr(message, "a history of another model"), "%s", message);
	cr_expect_eq(add(count, "a", "-1 5 7\n1 4 6\n", message), -EINVAL);
	cr_expect_eq(add(count, "a", "-1 4096 65536\n1 4 6\n", message), -EINVAL);
	cr_expect_eq(add(count, "a", "-1 5 16\n1 4\n", message), -EINVAL);
	cr_expect_not_null(strstr(message, "/a: "), "%s", message);
	cr_expect_eq(add(count, "a", "-1 5 16\n1 4 6\n9 0 1\n", message), -EINVAL);
	for (i = 0; i < 13; i++)
		cr_expect_eq(count[i], 0);
	traces_remove(&traces);
}

Test(sim_prior, a_history_is_told_from_a_trace)
{
	static const struct {
		const char *name, *text;
		int is_usage;
	} file[] = {{"u", "-1 4 16\n", 1},
		    {".coli_usage", "", 1},
		    {"coli_usage", "0 0 6\n", 1},
		    {"t2", "0 0 6\n", 0},
		    {"e", "", 0}};
	char path[128];
	size_t i;

	load();
	for (i = 0; i < sizeof file / sizeof file[0]; i++) {
		folder_write(&traces.folder, file[i].name, file[i].text, strlen(file[i].text));
		cr_expect_eq(sim_prior_is_usage(folder_path(&traces.folder, file[i].name, path, sizeof path)),
			     file[i].is_usage, "%s", file[i].name);
	}
	cr_expect_eq(sim_prior_is_usage("/absent"), -ENOENT);
	traces_remove(&traces);
}

/* The engine ran three times, with three capacities, and chose the same each time. */
Test(sim_prior, a_real_history_is_three_times_the_lookups_of_its_trace)
{
	const char *directory = getenv("CNRE_VECTORS");
	uint32_t *of_trace, *of_history, i, differ = 0;
	char path[128], message[512] = "";

	(void)snprintf(path, sizeof path, "%s/olmoe-a/route.trace",
		       directory != NULL ? directory : "../shared/vectors");
	if (access(path, R_OK) < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	traces_make(&traces);
	traces_add_path(&traces, path);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	of_trace = calloc(traces.geometry->object_count, sizeof *of_trace);
	of_history = calloc(traces.geometry->object_count, sizeof *of_history);
	count_lookups(of_trace, traces.trace);
	(void)snprintf(path, sizeof path, "%s/olmoe-a/coli_usage", directory != NULL ? directory : "../shared/vectors");
	cr_assert_eq(sim_prior_add_usage(of_history, path, traces.geometry, message, sizeof message), 0, "%s", message);
	for (i = 0; i < traces.geometry->object_count; i++)
		differ += 3 * of_trace[i] != of_history[i];
	cr_expect_eq(differ, 0, "%u of %u differ", differ, traces.geometry->object_count);
	free(of_trace);
	free(of_history);
	traces_remove(&traces);
}
