/* SPDX-License-Identifier: Apache-2.0 */
/* The gate as a program: passes, fails with reasons, and tells a wrong command line from both. */
#include "tools/sim/verbs.h"

#include "tests/support/captured.h"
#include "tests/support/sim_files.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

TestSuite(sim_gate, .timeout = 60);

static struct captured gate(const struct folder *folder, const char *format)
{
	char line[1024];

	(void)snprintf(line, sizeof line, format, folder->path, folder->path);
	return captured_run(sim_gate, line);
}

static void expect(const struct folder *folder, const char *format, int status, const char *says)
{
	struct captured captured = gate(folder, format);

	cr_expect_eq(captured.status, status, "%s: %d: %s%s", format, captured.status, captured.out, captured.error);
	cr_expect_not_null(strstr(status == SIM_USAGE ? captured.error : captured.out, says), "%s: %s%s", format,
			   captured.out, captured.error);
	captured_free(&captured);
}

static void make_folder(struct folder *folder)
{
	folder_make(folder);
	sim_files_write(folder, "eval_01_skewed.grp", 200, 3, 0, 0, 1);
	sim_files_write(folder, "eval_02_uniform.grp", 200, 0, 0, 0, 2);
	sim_files_write(folder, "train_01_skewed.grp", 200, 3, 0, 0, 3);
}

Test(sim_gate, passes_where_the_candidate_is_better_by_enough_and_fails_with_reasons_where_not)
{
	struct folder folder;

	make_folder(&folder);
	/* Nothing beats the optimum, and it beats all. */
	expect(&folder, "gate --baseline lru --candidate belady --eval %s --objects 32", SIM_DONE,
	       "belady passes against lru");
	expect(&folder, "gate --baseline belady --candidate lru --eval %s --objects 32", SIM_FAILED, "skewed waits");
	expect(&folder, "gate --baseline lru --candidate lru --eval %s --objects 32", SIM_FAILED, "falls by 0.00 %");
	expect(&folder, "gate --baseline lru --candidate lru --eval %s --objects 32 --minimum-gain 0", SIM_DONE,
	       "lru passes");
	folder_remove(&folder);
}

Test(sim_gate, wrong_command_lines_are_exit_status_2)
{
	struct folder folder;

	make_folder(&folder);
	expect(&folder, "gate --baseline none --eval %s --objects 32", SIM_USAGE, "no such policy");
	expect(&folder, "gate --eval %s", SIM_USAGE, "--slots-per-layer");
	expect(&folder, "gate --objects 32", SIM_USAGE, "--trace");
	expect(&folder, "gate --eval %s --objects 32 --sensitivity-layers 77", SIM_USAGE, "no layer of that number");
	expect(&folder, "gate --eval %s --objects 32 --felt-scales 0", SIM_USAGE, "above 0");
	expect(&folder, "gate --eval %s --train %s/eval_01_skewed.grp --objects 32", SIM_USAGE, "one file");
	folder_remove(&folder);
}

static double baseline_wait(const json_t *object, unsigned setting)
{
	const json_t *categories =
		json_object_get(json_array_get(json_object_get(object, "settings"), setting), "categories");

	return json_number_value(json_object_get(json_object_get(categories, "skewed"), "baseline_felt_wait_s"));
}

Test(sim_gate, both_begin_with_the_most_used_of_the_train_traces)
{
	struct folder folder;
	struct captured with, cold;
	json_t *a, *b;

	make_folder(&folder);
	with = gate(&folder, "gate --candidate lru --eval %s --train %s --objects 32 --json");
	cold = gate(&folder, "gate --candidate lru --eval %s --train %s --objects 32 --cold --json");
	a = json_loads(with.out, 0, NULL);
	b = json_loads(cold.out, 0, NULL);
	cr_assert(a != NULL && b != NULL, "%s%s", with.error, cold.error);
	for (unsigned i = 0; i < 2; i++) {
		const json_t *categories =
			json_object_get(json_array_get(json_object_get(i == 0 ? a : b, "settings"), 0), "categories");
		cr_expect_eq(json_object_size(categories), 2);
		cr_expect_eq(baseline_wait(i == 0 ? a : b, 0),
			     json_number_value(
				     json_object_get(json_object_get(categories, "skewed"), "candidate_felt_wait_s")));
	}
	cr_expect_lt(baseline_wait(a, 0), baseline_wait(b, 0));
	json_decref(a);
	json_decref(b);
	captured_free(&with);
	captured_free(&cold);
	folder_remove(&folder);
}

/* Three factors for all layers, and for one layer alone the two that are not 1. */
Test(sim_gate, every_setting_is_judged_and_one_that_fails_is_enough)
{
	struct folder folder;
	struct captured captured;
	json_t *object;

	make_folder(&folder);
	captured = gate(&folder,
			"gate --baseline lru --candidate belady --eval %s --objects 32 --sensitivity-layers 2 --json");
	object = json_loads(captured.out, 0, NULL);
	cr_assert_not_null(object);
	cr_expect_eq(json_array_size(json_object_get(object, "settings")), 5);
	cr_expect(json_is_true(json_object_get(object, "passed")));
	cr_expect_eq(json_array_size(json_object_get(object, "reasons")), 0);
	cr_expect_float_eq(baseline_wait(object, 0), 0.5 * baseline_wait(object, 1), 1e-9);
	cr_expect_float_eq(baseline_wait(object, 2), 1.5 * baseline_wait(object, 1), 1e-9);
	cr_expect_lt(baseline_wait(object, 3), baseline_wait(object, 1)); /* a layer of four at a half */
	cr_expect_gt(baseline_wait(object, 3), baseline_wait(object, 0));
	json_decref(object);
	captured_free(&captured);
	folder_remove(&folder);
}
