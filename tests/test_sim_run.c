/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs run and sweep as programs see them: JSON, exit statuses, fair arms. */
#include "tools/sim/verbs.h"

#include "policy/record.h"
#include "tests/support/captured.h"
#include "tests/support/sim_files.h"
#include "tools/sim/convert.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_run, .timeout = 60);

#define LINE_BYTES 1024

/* %s of the format is the folder, as often as it stands there (four times at most). */
static struct captured in_folder(const struct folder *folder, int (*verb)(int, char **), const char *format)
{
	char line[LINE_BYTES];

	(void)snprintf(line, sizeof line, format, folder->path, folder->path, folder->path, folder->path);
	return captured_run(verb, line);
}

static json_t *json_in_folder(const struct folder *folder, int (*verb)(int, char **), const char *format)
{
	struct captured captured = in_folder(folder, verb, format);
	json_t *object;

	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	object = json_loads(captured.out, 0, NULL);
	cr_assert_not_null(object, "no JSON: %s", captured.out);
	captured_free(&captured);
	return object;
}

static double number(const json_t *object, const char *policy, const char *name)
{
	const json_t *value = json_object_get(json_object_get(json_object_get(object, "policies"), policy), name);

	cr_assert(json_is_number(value), "%s: no %s", policy, name);
	return json_number_value(value);
}

Test(sim_run, json_has_the_names_that_outside_programs_read)
{
	struct folder folder;
	json_t *object;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	object =
		json_in_folder(&folder, sim_run, "run --trace %s/a.grp --policy lru,belady --slots-per-layer 2 --json");
	cr_expect_eq(number(object, "lru", "accesses"), 4);
	cr_expect_eq(number(object, "lru", "hits"), 1);
	cr_expect_eq(number(object, "lru", "misses"), 3);
	cr_expect_eq(number(object, "lru", "evictions"), 1);
	cr_expect_float_eq(number(object, "lru", "felt_wait_s"), 0.003, 1e-12);
	cr_expect_eq(number(object, "belady", "misses"), 3);
	json_decref(object);
	folder_remove(&folder);
}

Test(sim_run, a_manifest_gives_bytes_and_felt_times)
{
	static const char manifest[] =
		"{\"layers\": {\"0\": {\"resident_bytes\": 1024, \"read_bytes\": 2048, \"felt_miss_us\": 500, "
		"\"max_experts\": 3}}}";
	struct folder folder;
	json_t *object;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	folder_write(&folder, "m.json", manifest, sizeof manifest - 1);
	object = json_in_folder(
		&folder, sim_run,
		"run --trace %s/a.grp --manifest %s/m.json --policy lru --budget 2K --pool layer --json");
	cr_expect_float_eq(number(object, "lru", "felt_wait_s"), 0.0015, 1e-12);
	cr_expect_eq(number(object, "lru", "read_bytes"), 3 * 2048);
	cr_expect_eq(number(object, "lru", "avoided_bytes"), 2048);
	json_decref(object);
	folder_remove(&folder);
}

Test(sim_run, wrong_command_lines_are_exit_status_2_and_say_what_to_do)
{
	static const struct {
		const char *line, *says;
	} wrong[] = {
		{"run --policy lru --objects 4", "--trace"},
		{"run --trace %s/a.grp --objects 4", "--policy"},
		{"run --trace %s/a.grp --policy lru", "--slots-per-layer"},
		{"run --trace %s/a.grp --policy lru --objects 4 --polcy lru", "nearest is --policy"},
		{"run --trace %s/a.grp --policy nothing --objects 4", "known: lru"},
		{"run --trace %s/a.grp --policy lru --objects 0", "--objects"},
		{"run --trace %s/a.grp --policy lru --budget 4K", "--manifest"},
		{"run --trace %s/a.grp --policy lru --objects 4 --pool none", "layer global soft"},
		{"run --trace %s/a.grp --policy lru --objects 2,4", "sweep"},
		{"run --trace %s/a.grp --policy lru --objects 4 --preload", "--train"},
		{"run --trace %s/a.grp --policy lru --objects 4 --minimum-gain 1", "no such option"},
		{"run --trace %s/a.grp --train %s/a.grp --policy lru --objects 4", "one file"},
	};
	struct folder folder;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct captured captured = in_folder(&folder, sim_run, wrong[i].line);

		cr_expect_eq(captured.status, SIM_USAGE, "%s: %d", wrong[i].line, captured.status);
		cr_expect_not_null(strstr(captured.error, wrong[i].says), "%s: %s", wrong[i].line, captured.error);
		cr_expect_eq(strlen(captured.out), 0);
		captured_free(&captured);
	}
	folder_remove(&folder);
}

/* A second name of the same bytes is the same file. */
Test(sim_run, a_trace_is_not_evaluated_that_was_learned_from_under_any_name)
{
	struct folder folder;
	char path[2][256];

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	for (int soft = 0; soft < 2; soft++) {
		struct captured captured;

		(void)folder_path(&folder, "a.grp", path[0], sizeof path[0]);
		(void)folder_path(&folder, soft ? "soft.grp" : "hard.grp", path[1], sizeof path[1]);
		cr_assert_eq(soft ? symlink(path[0], path[1]) : link(path[0], path[1]), 0);
		captured = in_folder(&folder, sim_run,
				     soft ? "run --trace %s/a.grp --train %s/soft.grp --policy lru --objects 4"
					  : "run --trace %s/a.grp --train %s/hard.grp --policy lru --objects 4");
		cr_expect_eq(captured.status, SIM_USAGE);
		cr_expect_not_null(strstr(captured.error, "one file"), "%s", captured.error);
		captured_free(&captured);
	}
	folder_remove(&folder);
}

Test(sim_run, a_copy_of_what_was_learned_from_is_not_evaluated_and_what_only_resembles_it_is)
{
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	folder_write(&folder, "other.grp", "0 0 0 1\n1 0 0 1\n", 16);
	captured = in_folder(&folder, sim_convert, "convert --trace %s/a.grp --out %s/copy.trace");
	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	captured_free(&captured);
	captured = in_folder(&folder, sim_run, "run --trace %s/a.grp --train %s/copy.trace --policy lru --objects 4");
	cr_expect_eq(captured.status, SIM_USAGE);
	cr_expect_not_null(strstr(captured.error, "copied"), "%s", captured.error);
	captured_free(&captured);
	captured = in_folder(&folder, sim_run, "run --trace %s/a.grp --train %s/other.grp --policy lru --objects 4");
	cr_expect_eq(captured.status, SIM_DONE, "%s", captured.error);
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_run, a_file_that_is_no_trace_or_not_there_is_exit_status_1)
{
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 x\n", 8);
	captured = in_folder(&folder, sim_run, "run --trace %s/a.grp --policy lru --objects 4");
	cr_expect_eq(captured.status, SIM_FAILED);
	captured_free(&captured);
	captured = in_folder(&folder, sim_run, "run --trace %s/none.grp --policy lru --objects 4");
	cr_expect_eq(captured.status, SIM_FAILED);
	cr_expect_not_null(strstr(captured.error, "No such file"), "%s", captured.error);
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_run, a_pool_below_one_token_cycle_is_warned_about_for_lru_and_not_for_cost)
{
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 60, 4, 0, 0, 1);
	captured =
		in_folder(&folder, sim_run, "run --trace %s/a.grp --policy lru,cost --objects 15 --pool global --json");
	cr_expect_eq(captured.status, SIM_DONE);
	cr_expect_not_null(strstr(captured.error, "run: lru: warning"), "%s", captured.error);
	cr_expect_null(strstr(captured.error, "run: cost: warning"), "%s", captured.error);
	captured_free(&captured);
	folder_remove(&folder);
}

/*
 * Goal: a hot set that held in training and does not hold now must not be sold as the policy's merit or fault: seeded
 * is compared with seeded, cold with cold. Method: train on hot experts 0.., evaluate on uniform routing; four arms.
 * The difference between the starts is larger than any between the policies, and is told apart from it.
 */
Test(sim_run, a_trained_hot_set_that_does_not_hold_costs_at_most_3_percent_against_lru_of_the_same_start)
{
	struct folder folder;
	json_t *object;

	folder_make(&folder);
	sim_files_write(&folder, "train.grp", 300, 4, 0, 0, 1);
	sim_files_write(&folder, "eval.grp", 300, 0, 0, 0, 2);
	object = json_in_folder(
		&folder, sim_run,
		"run --trace %s/eval.grp --train %s/train.grp --policy lru,cost,lfu --objects 25%% --arms --json");
	for (unsigned preloaded = 0; preloaded < 2; preloaded++) {
		const char *cost = preloaded ? "cost/preloaded" : "cost/cold",
			   *lru = preloaded ? "lru/preloaded" : "lru/cold";

		cr_expect_leq(number(object, cost, "felt_wait_s"), 1.03 * number(object, lru, "felt_wait_s"),
			      "%s: %f, %f", cost, number(object, cost, "felt_wait_s"),
			      number(object, lru, "felt_wait_s"));
	}
	cr_expect_eq(number(object, "lru/cold", "seed_hits"), 0);
	cr_expect_eq(number(object, "lru/cold", "startup_bytes"), 0);
	cr_expect_gt(number(object, "lru/preloaded", "seed_hits"), 0);
	cr_expect_eq(number(object, "lru/preloaded", "startup_bytes"), 32);
	cr_expect_eq(number(object, "cost/preloaded", "startup_bytes"), 32);
	cr_expect_eq(number(object, "static/preloaded", "seed_hits"), number(object, "static/preloaded", "hits"));
	cr_expect_eq(number(object, "static/preloaded", "admissions"), 0);
	json_decref(object);
	folder_remove(&folder);
}

Test(sim_run, the_null_keeps_no_order_so_lru_gains_less_there)
{
	struct folder folder;
	json_t *object, *headroom, *lru;

	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 300, 4, 0, 8, 1); /* hot experts that wander: order is all there is */
	object = json_in_folder(&folder, sim_run, "run --trace %s/a.grp --policy lru,cost --objects 32 --null --json");
	headroom = json_object_get(object, "headroom");
	lru = json_object_get(headroom, "lru");
	cr_expect_gt(json_number_value(json_object_get(lru, "null_misses")),
		     1.2 * json_number_value(json_object_get(lru, "misses")));
	cr_expect_eq(json_number_value(json_object_get(lru, "misses")), number(object, "lru", "misses"));
	cr_expect_not_null(
		json_object_get(json_object_get(json_object_get(headroom, "policies"), "cost"), "gap_closed"));
	json_decref(object);
	folder_remove(&folder);
}

Test(sim_run, several_traces_each_begin_from_the_same_start_and_are_summed)
{
	struct folder folder;
	json_t *one, *two;

	folder_make(&folder);
	sim_files_write(&folder, "eval_01_a.grp", 50, 1, 0, 0, 1);
	folder_write(&folder, "ignored.json", "{}", 2);
	one = json_in_folder(&folder, sim_run, "run --trace %s/eval_01_a.grp --policy lru --objects 16 --json");
	sim_files_write(&folder, "eval_02_b.grp", 50, 1, 0, 0, 1); /* the same again */
	two = json_in_folder(&folder, sim_run, "run --trace %s --policy lru --objects 16 --json");
	cr_expect_eq(number(two, "lru", "accesses"), 2 * number(one, "lru", "accesses"));
	cr_expect_eq(number(two, "lru", "misses"), 2 * number(one, "lru", "misses"));
	json_decref(one);
	json_decref(two);
	folder_remove(&folder);
}

/* ---- sweep ---- */

Test(sim_run, a_sweep_is_the_same_for_any_number_of_threads_and_agrees_with_run)
{
	static const char *const lines[] = {
		"sweep --trace %s --policy lru,cost,slru,belady --objects 8,16,32,64 --threads 1 --json",
		"sweep --trace %s --policy lru,cost,slru,belady --objects 8,16,32,64 --threads 2 --json",
		"sweep --trace %s --policy lru,cost,slru,belady --objects 8,16,32,64 --threads 7 --json",
	};
	struct captured captured[3];
	struct folder folder;
	json_t *sweep, *size, *run;

	folder_make(&folder);
	sim_files_write(&folder, "eval_01_a.grp", 100, 2, 0, 5, 1);
	sim_files_write(&folder, "eval_02_b.grp", 80, 1, 7, 0, 2);
	for (unsigned i = 0; i < 3; i++) {
		captured[i] = in_folder(&folder, sim_sweep, lines[i]);
		cr_assert_eq(captured[i].status, SIM_DONE, "%s", captured[i].error);
		cr_expect_str_eq(captured[i].out, captured[0].out);
	}
	sweep = json_loads(captured[0].out, 0, NULL);
	size = json_array_get(json_object_get(sweep, "sweep"), 2);
	run = json_in_folder(&folder, sim_run, "run --trace %s --policy lru,cost,slru,belady --objects 32 --json");
	cr_expect(json_equal(json_object_get(size, "policies"), json_object_get(run, "policies")));
	for (unsigned i = 0; i < 3; i++)
		captured_free(&captured[i]);
	json_decref(sweep);
	json_decref(run);
	folder_remove(&folder);
}

Test(sim_run, csv_has_a_line_for_each_policy_and_size)
{
	struct folder folder;
	struct captured captured;
	unsigned lines = 0;

	folder_make(&folder);
	sim_files_write(&folder, "a.grp", 20, 2, 0, 0, 1);
	captured = in_folder(&folder, sim_sweep,
			     "sweep --trace %s/a.grp --policy lru,fifo --slots-per-layer 4,8,16 --csv");
	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	for (const char *at = captured.out; *at != '\0'; at++)
		lines += *at == '\n';
	cr_expect_eq(lines, 1 + 6);
	cr_expect_not_null(strstr(captured.out, "\nfifo,slots_per_layer,16,320,"), "%s", captured.out);
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_run, a_budget_needs_the_bytes_of_experts_and_room_for_one)
{
	static const char manifest[] = "{\"layers\": {\"0\": {\"resident_bytes\": 1000}}}";
	static const struct {
		const char *format, *says;
		int status;
	} cases[] = {
		{"run --trace %s/a.grp --policy lru --budget 50%%", "needs --manifest", SIM_USAGE},
		{"run --trace %s/a.trace --policy lru --budget 50%%", "needs --manifest", SIM_USAGE},
		{"run --trace %s/a.grp --manifest %s/m.json --policy lru --budget 999", "would hold no object", SIM_USAGE},
		{"run --trace %s/a.grp --manifest %s/m.json --policy lru --budget 1000", "", SIM_DONE},
	};
	struct folder folder;
	struct captured captured;

	folder_make(&folder);
	folder_write(&folder, "a.grp", "0 0 0 1\n1 0 0 2\n", 16);
	folder_write(&folder, "m.json", manifest, sizeof manifest - 1);
	captured = in_folder(&folder, sim_convert, "convert --trace %s/a.grp --out %s/a.trace");
	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	captured_free(&captured);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		captured = in_folder(&folder, sim_run, cases[i].format);
		cr_expect_eq(captured.status, cases[i].status, "case %u: %s", i, captured.error);
		cr_expect_not_null(strstr(captured.error, cases[i].says), "case %u: %s", i, captured.error);
		captured_free(&captured);
	}
	folder_remove(&folder);
}

/* One visit of one lookup, and after it so many records that the manager could not keep. */
static void write_recording(const struct folder *folder, const char *name, uint64_t lost)
{
	struct record_layer layer = {.experts = 4, .resident_bytes = 10, .read_bytes = 10};
	const struct record_header header = {.layer_count = 1, .layer = &layer, .top_k = 1, .policy = "lru"};
	const struct record visit = {.kind = RECORD_VISIT, .b = 1}, access = {.kind = RECORD_ACCESS, .a = 2},
			    loss = {.kind = RECORD_LOST, .a = lost}, end = {.kind = RECORD_END, .a = lost > 0 ? 3 : 2};
	unsigned char *bytes, text[256];
	size_t size;

	cr_assert_eq(record_put_header(&header, &bytes, &size), 0);
	cr_assert_lt(size, sizeof text / 2);
	memcpy(text, bytes, size);
	free(bytes);
	size += record_put(text + size, &visit);
	size += record_put(text + size, &access);
	if (lost > 0)
		size += record_put(text + size, &loss);
	size += record_put(text + size, &end);
	folder_write(folder, name, text, size);
}

Test(sim_run, a_recording_with_holes_is_replayed_with_a_warning_and_one_without_is_not)
{
	struct folder folder;
	struct captured captured;
	json_t *object;

	folder_make(&folder);
	write_recording(&folder, "holes.trace", 9);
	write_recording(&folder, "whole.trace", 0);
	captured = in_folder(&folder, sim_run, "run --trace %s/holes.trace --policy lru --objects 4");
	cr_expect_eq(captured.status, SIM_DONE, "%s", captured.error);
	cr_expect_not_null(strstr(captured.error, "warning: 9 records were lost"), "%s", captured.error);
	captured_free(&captured);
	captured = in_folder(&folder, sim_run, "run --trace %s/whole.trace --policy lru --objects 4");
	cr_expect_str_eq(captured.error, "");
	captured_free(&captured);
	object = json_in_folder(&folder, sim_run, "run --trace %s/holes.trace --policy lru --objects 4 --json");
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(json_object_get(object, "traces"), 0), "lost")), 9);
	json_decref(object);
	folder_remove(&folder);
}
