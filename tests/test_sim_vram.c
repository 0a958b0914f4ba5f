/* SPDX-License-Identifier: Apache-2.0 */
/* VRAM in replays: traces whose hits by tier can be worked out by hand, the command line, and what is reported. */
#include "tools/sim/vram.h"

#include "tests/support/captured.h"
#include "tests/support/hand_trace.h"
#include "tests/support/sim_files.h"
#include "tools/sim/verbs.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sim_vram, .timeout = 60);

/* One device of so many objects, no limits but what is worth half as much again; objects are a byte. */
static struct sim_vram_setup room_for(uint64_t objects)
{
	struct sim_vram_setup setup = {.device_count = 1, .budget_bytes = {objects}, .limits = {.hysteresis = 0.5f}};

	tier_tuning_default(&setup.tuning);
	return setup;
}

static void open_hand(struct hand_trace *hand, uint32_t layers, uint32_t experts)
{
	hand_trace_open(hand, layers, experts, 2);
	for (uint32_t i = 0; i < layers; i++) {
		hand->manifest.layer[i].vram_bytes = 1;
		hand->manifest.layer[i].ram_hit_us = 100;
		hand->manifest.layer[i].upload_us = 10;
	}
}

static struct sim_counts replayed(const struct hand_trace *hand, uint64_t ram_objects, const struct sim_vram_setup *vram)
{
	struct sim_arm arm = {.policy = "lru", .capacity = {SIM_OBJECTS, ram_objects}, .hysteresis = -1, .vram = vram};

	return hand_trace_replay(hand, &arm);
}

static uint64_t tier_hits(const struct sim_counts *counts, const char *name)
{
	for (uint32_t i = 0; i < SIM_TIERS_MAX; i++)
		if (strcmp(counts->tier[i].name, name) == 0)
			return counts->tier[i].hits;
	return 0;
}

/*
 * 0 is read, and goes to the empty VRAM. 1 takes its place after its sixth use, when 0 had four: seven quarters of its uses
 * fade alike, so 5.90 is more than 1.5 times 3.86, and after the fifth 4.93 was not more than 1.5 times 3.88.
 */
Test(sim_vram, hits_by_tier_moves_and_costs_are_those_of_a_trace_by_hand)
{
	static const int looked_up[] = {0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0};
	struct sim_vram_setup vram = room_for(1);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 1, 4);
	for (uint32_t i = 0; i < sizeof looked_up / sizeof looked_up[0]; i++)
		HAND_ROW(&hand, i, 0, looked_up[i]);
	counts = replayed(&hand, 4, &vram);
	cr_expect_eq(counts.misses, 2);
	cr_expect_eq(counts.hits, 10);
	cr_expect_eq(counts.vram_hits, 4);
	cr_expect_eq(tier_hits(&counts, "vram"), 4);
	cr_expect_eq(tier_hits(&counts, "ram"), 6);
	cr_expect_eq(counts.promotions, 2);
	cr_expect_eq(counts.demotions, 1);
	cr_expect_eq(counts.upload_bytes, 2);
	cr_expect_float_eq(counts.ram_hit_us, 800, 1e-9, "a read expert is then in RAM, too");
	cr_expect_float_eq(counts.upload_us, 20, 1e-9);
	cr_expect_float_eq(counts.critical_us, 2000 + 820, 1e-9);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_vram, a_copy_there_serves_though_ram_has_lost_its_own)
{
	struct sim_vram_setup vram = room_for(1);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 1, 4);
	HAND_ROW(&hand, 0, 0, 0);
	HAND_ROW(&hand, 1, 0, 1); /* 0 leaves RAM */
	HAND_ROW(&hand, 2, 0, 0);
	HAND_ROW(&hand, 3, 0, 1); /* and was not read again, so 1 is there still */
	counts = replayed(&hand, 1, &vram);
	cr_expect_eq(counts.misses, 2);
	cr_expect_eq(counts.vram_hits, 1);
	cr_expect_eq(tier_hits(&counts, "ram"), 1);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

/* LRU has not heard of 0's second use, which VRAM served: so 0 leaves RAM for 2, and 1 is there still. */
Test(sim_vram, what_it_serves_is_no_use_of_ram)
{
	struct sim_vram_setup vram = room_for(1);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 1, 4);
	HAND_ROW(&hand, 0, 0, 0);
	HAND_ROW(&hand, 1, 0, 1);
	HAND_ROW(&hand, 2, 0, 0);
	HAND_ROW(&hand, 3, 0, 2);
	HAND_ROW(&hand, 4, 0, 1);
	counts = replayed(&hand, 2, &vram);
	cr_expect_eq(counts.misses, 3);
	cr_expect_eq(counts.vram_hits, 1);
	cr_expect_eq(tier_hits(&counts, "ram"), 1);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

/*
 * A move needs the bytes of two tokens. 1 may come at token 2, but that visit holds 0 itself; so it comes at token 3, and is
 * found there at token 4.
 */
Test(sim_vram, what_the_visit_holds_does_not_leave)
{
	struct sim_vram_setup vram = room_for(2);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 1, 4);
	hand.manifest.layer[0].vram_bytes = 2;
	vram.limits = (struct moves_limits){.bytes_per_token = 1};
	HAND_ROW(&hand, 0, 0, 0);
	HAND_ROW(&hand, 1, 0, 1);
	HAND_ROW(&hand, 2, 0, 1, 0);
	HAND_ROW(&hand, 3, 0, 1);
	HAND_ROW(&hand, 4, 0, 1);
	counts = replayed(&hand, 4, &vram);
	cr_expect_eq(counts.vram_hits, 2);
	cr_expect_eq(counts.promotions, 2);
	cr_expect_eq(counts.demotions, 1);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

/* RAM has one slot: of the two that were read, one was served and not placed, and there is nothing to upload it from. */
Test(sim_vram, what_ram_does_not_hold_is_not_uploaded)
{
	struct sim_vram_setup vram = room_for(4);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 1, 4);
	HAND_ROW(&hand, 0, 0, 0, 1);
	counts = replayed(&hand, 1, &vram);
	cr_expect_eq(counts.promotions, 1);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_vram, layers_whose_hits_in_ram_cost_nothing_are_not_promoted)
{
	struct sim_vram_setup vram = room_for(4);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 2, 4);
	hand.manifest.layer[0].ram_hit_us = 0;
	for (uint32_t token = 0; token < 3; token++) {
		HAND_ROW(&hand, token, 0, 0);
		HAND_ROW(&hand, token, 1, 0);
	}
	counts = replayed(&hand, 8, &vram);
	cr_expect_eq(counts.promotions, 1);
	cr_expect_eq(counts.layer[0].vram_hits, 0);
	cr_expect_eq(counts.layer[1].vram_hits, 2);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_vram, each_device_has_its_size_and_hits_there_are_not_remote)
{
	struct sim_vram_setup vram = room_for(2);
	struct hand_trace hand;
	struct sim_counts counts;

	vram.device_count = 2;
	vram.budget_bytes[1] = 3;
	open_hand(&hand, 1, 8);
	hand.manifest.layer[0].numa_node = 1;
	hand.manifest.layer[0].remote_hit_us = 7;
	for (uint32_t token = 0; token < 16; token++)
		HAND_ROW(&hand, token, 0, (int)(token % 8));
	counts = replayed(&hand, 8, &vram);
	cr_expect_eq(counts.promotions, 5);
	cr_expect_eq(counts.vram_hits, 5);
	cr_expect_float_eq(counts.critical_us, 8000 + 11 * 100 + 5 * 10 + 3 * 7, 1e-6);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_vram, bytes_are_granted_once_a_token_and_not_once_a_layer)
{
	struct sim_vram_setup vram = room_for(8);
	struct hand_trace hand;
	struct sim_counts counts;

	open_hand(&hand, 4, 16);
	hand_trace_fill(&hand, 300, 0, 0, 3);
	vram.limits = (struct moves_limits){0};
	policy_tuning_default(&vram.tuning); /* restless */
	counts = replayed(&hand, 64, &vram);
	cr_expect_gt(counts.upload_bytes, 600, "otherwise no limit is needed");
	sim_counts_close(&counts);
	vram.limits.bytes_per_token = 1;
	counts = replayed(&hand, 64, &vram);
	cr_expect_leq(counts.upload_bytes, counts.tokens + 1);
	cr_expect_gt(counts.upload_bytes, counts.tokens / 2);
	cr_expect_eq(counts.promotions - counts.demotions, 8, "it is full");
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_vram, it_changes_nothing_below_and_nothing_above_is_made_up)
{
	static const char *const policies[] = {"lru", "cost", "slru", "engine-lru"};
	struct sim_vram_setup vram = room_for(6), none = room_for(0);
	struct hand_trace hand;

	open_hand(&hand, 3, 16);
	hand_trace_fill(&hand, 200, 1, 50, 9);
	for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
		struct sim_arm arm = {.policy = policies[i], .capacity = {SIM_SLOTS_PER_LAYER, 16}, .hysteresis = -1};
		struct sim_counts plain = hand_trace_replay(&hand, &arm), with, without;

		arm.vram = &none;
		without = hand_trace_replay(&hand, &arm);
		arm.vram = &vram;
		with = hand_trace_replay(&hand, &arm);
		cr_expect_eq(with.misses, plain.misses, "%s: all of it is in RAM", policies[i]);
		cr_expect_eq(with.hits + with.misses, with.accesses);
		cr_expect_eq(tier_hits(&with, "vram") + tier_hits(&with, "ram"), with.hits);
		cr_expect_gt(with.vram_hits, with.accesses / 20);
		cr_expect_lt(with.ram_hit_us, without.ram_hit_us);
		cr_expect_eq(without.vram_hits, 0);
		cr_expect_eq(without.promotions, 0);
		cr_expect_float_eq(without.ram_hit_us, 100.0 * (double)without.accesses, 1e-6);
		cr_expect_float_eq(plain.ram_hit_us + plain.upload_us, 0, 1e-9);
		sim_counts_close(&plain);
		sim_counts_close(&with);
		sim_counts_close(&without);
	}
	hand_trace_close(&hand);
}

/* ---- the command line ---- */

/* A verb on the trace of `make`, with its manifest. */
static struct captured in_folder(const struct folder *folder, const char *verb, const char *options)
{
	char line[1024];

	(void)snprintf(line, sizeof line, "%s --trace %s/a.grp --manifest %s/m.json --policy lru,cost --objects 10 %s", verb,
		       folder->path, folder->path, options);
	return captured_run(verb[0] == 's' ? sim_sweep : sim_run, line);
}

static void make(struct folder *folder)
{
	static const char manifest[] = "{\"layers\": {\"0\": {\"resident_bytes\": 1000, \"vram_bytes\": 2000, \"felt_miss_us\": 500}}}";
	char trace[4000] = "";

	for (unsigned i = 0; i < 200; i++)
		(void)snprintf(trace + strlen(trace), sizeof trace - strlen(trace), "%u 0 %u %u\n", i, i * i % 7, 7 + i % 3);
	folder_make(folder);
	folder_write(folder, "a.grp", trace, strlen(trace));
	folder_write(folder, "m.json", manifest, sizeof manifest - 1);
}

Test(sim_vram, json_has_the_names_that_outside_programs_read)
{
	struct folder folder;
	struct captured captured;
	json_t *object, *cost;

	make(&folder);
	captured = in_folder(&folder, "run", "--vram 6000 --upload-gbps 2 --json");
	cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
	object = json_loads(captured.out, 0, NULL);
	cost = json_object_get(json_object_get(object, "policies"), "cost");
	cr_assert_not_null(cost);
#define WHOLE(name) json_integer_value(json_object_get(cost, name))
	cr_expect_gt(json_integer_value(json_object_get(json_object_get(cost, "tier_hits"), "vram")), 100);
	cr_expect_eq(WHOLE("promotions") - WHOLE("demotions"), 3);
	cr_expect_eq(WHOLE("upload_bytes"), 2000 * WHOLE("promotions"));
	cr_expect_float_eq(json_number_value(json_object_get(cost, "upload_bytes_per_token")),
			   (double)WHOLE("upload_bytes") / (double)WHOLE("tokens"), 1e-9);
	cr_expect_float_eq(json_number_value(json_object_get(cost, "upload_s")), 1e-6 * (double)WHOLE("promotions"), 1e-9,
			   "2000 bytes at 2 GB/s are a microsecond");
	cr_expect_float_eq(json_number_value(json_object_get(cost, "ram_hit_s")),
			   1e-6 * (double)(WHOLE("accesses") - json_integer_value(json_object_get(
									json_object_get(cost, "tier_hits"), "vram"))),
			   1e-9);
	json_decref(object);
	captured_free(&captured);
	captured = in_folder(&folder, "run", "--vram 50% --json"); /* of ten experts as they are charged */
	object = json_loads(captured.out, 0, NULL);
	cost = json_object_get(json_object_get(object, "policies"), "cost");
	cr_expect_eq(WHOLE("promotions") - WHOLE("demotions"), 5);
	cr_expect_eq(json_integer_value(json_array_get(json_object_get(json_object_get(cost, "layers"), "vram_hits"), 0)),
		     json_integer_value(json_object_get(json_object_get(cost, "tier_hits"), "vram")));
	json_decref(object);
	captured_free(&captured);
	folder_remove(&folder);
}

Test(sim_vram, the_same_command_gives_the_same_output_whatever_the_threads)
{
	static const char *const commands[] = {
		"--vram 6000 --threads 1", "--vram 6000 --threads 4", "--vram 6000 --csv --threads 1",
		"--vram 6000 --csv --threads 4"};
	struct captured captured[4];
	struct folder folder;

	make(&folder);
	for (size_t i = 0; i < 4; i++) {
		captured[i] = in_folder(&folder, "run", commands[i]);
		cr_assert_eq(captured[i].status, SIM_DONE, "%s", captured[i].error);
	}
	cr_expect_str_eq(captured[0].out, captured[1].out);
	cr_expect_str_eq(captured[2].out, captured[3].out);
	cr_expect_not_null(strstr(captured[0].out, "MiB a token"));
	cr_expect_not_null(strstr(captured[2].out, ",vram_hits,promotions,demotions,upload_bytes,ram_hit_s,upload_s\n"));
	for (size_t i = 0; i < 4; i++)
		captured_free(&captured[i]);
	captured[0] = in_folder(&folder, "sweep", "--vram 6000");
	cr_assert_eq(captured[0].status, SIM_DONE, "%s", captured[0].error);
	cr_expect_not_null(strstr(captured[0].out, "MiB a token"));
	captured_free(&captured[0]);
	captured[0] = in_folder(&folder, "run", "");
	cr_expect_null(strstr(captured[0].out, "MiB a token"), "without VRAM nothing is said of it");
	captured_free(&captured[0]);
	folder_remove(&folder);
}

/* All options reach the tier: each changes what it should. */
Test(sim_vram, options_limit_the_moves)
{
	static const struct {
		const char *options;
		int fewer; /* promotions than without any limit */
	} cases[] = {{"--vram-min-age 0", 0}, {"--vram-hysteresis 1000000", 1}, {"--vram-min-age 100000", 1},
		     {"--vram-min-interval 100000", 1}, {"--vram-bytes-per-token 10", 1}, {"--vram-rate-weights 0:0:1", 1},
		     {"--vram-half-lives 100000:100000:100000", 1}};
	json_int_t unlimited = 0;
	struct folder folder;

	make(&folder);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char options[512];
		struct captured captured;
		json_int_t promotions;
		json_t *object;

		/* The last one given counts. */
		(void)snprintf(options, sizeof options,
			       "--vram 6000 --json --vram-hysteresis 0 --vram-min-age 0 --vram-bytes-per-token 0 "
			       "--vram-rate-weights 1:2:4 %s",
			       cases[i].options);
		captured = in_folder(&folder, "run", options);
		cr_assert_eq(captured.status, SIM_DONE, "%s", captured.error);
		object = json_loads(captured.out, 0, NULL);
		promotions = json_integer_value(json_object_get(
			json_object_get(json_object_get(object, "policies"), "lru"), "promotions"));
		if (i == 0)
			unlimited = promotions;
		cr_expect(cases[i].fewer ? promotions < unlimited : promotions > 20, "%s: %lld", cases[i].options,
			  (long long)promotions);
		json_decref(object);
		captured_free(&captured);
	}
	folder_remove(&folder);
}

Test(sim_vram, devices_and_shares_are_taken_and_nonsense_is_refused)
{
	static const struct {
		const char *options, *error; /* NULL: taken */
	} cases[] = {
		{"--vram 4000,2000", NULL},
		{"--vram 50%", NULL},
		{"--vram 0", NULL},
		{"--vram 4000,", "expected sizes such as 24G"},
		{"--vram lots", "expected sizes such as 24G"},
		{"--vram 101%", "or a share such as 10%"},
		{"--vram 0%", "or a share such as 10%"},
		{"--vram 10%%,10%", "or a share such as 10%"},
		{"--vram 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "too many devices"},
		{"--vram 4000 --upload-gbps 0", "--upload-gbps"},
		{"--vram 4000 --vram-bytes-per-token some", "--vram-bytes-per-token"},
		{"--vram 4000 --vram-rate-weights 1:2", "expected three numbers"},
	};
	struct folder folder;

	make(&folder);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct captured captured = in_folder(&folder, "run", cases[i].options);

		cr_expect_eq(captured.status, cases[i].error == NULL ? SIM_DONE : SIM_USAGE, "%s: %s", cases[i].options,
			     captured.error);
		if (cases[i].error != NULL)
			cr_expect_not_null(strstr(captured.error, cases[i].error), "%s: %s", cases[i].options, captured.error);
		captured_free(&captured);
	}
	folder_remove(&folder);
}

Test(sim_vram, bytes_need_somebody_who_says_what_an_expert_has)
{
	static const char *const sizes[] = {"1M", "30%"};
	struct folder folder;

	make(&folder);
	for (int i = 0; i < 2; i++) {
		struct captured captured;
		char line[256];

		(void)snprintf(line, sizeof line, "run --trace %s/a.grp --policy lru --objects 5 --vram %s", folder.path, sizes[i]);
		captured = captured_run(sim_run, line);
		cr_expect_eq(captured.status, i == 0 ? SIM_USAGE : SIM_DONE, "%s", captured.error);
		if (i == 0)
			cr_expect_not_null(strstr(captured.error, "--vram: needs --manifest"), "%s", captured.error);
		captured_free(&captured);
	}
	folder_remove(&folder);
}
