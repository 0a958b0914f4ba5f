/* SPDX-License-Identifier: Apache-2.0 */
/* Which drive reads which bytes of an object: nothing twice, nothing left out, and as the weights say. */
#include "manager/replica.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <string.h>

TestSuite(manager_replica, .timeout = 60);

#define KIB 1024ull
#define MIB (1024 * KIB)

static struct replica_options same_for_all[LOADER_RUNS_MAX];

/* Runs of these sizes in one shard after another, with 100 bytes less needed than read. */
static struct model_plan plan_of(uint32_t count, const uint64_t *bytes)
{
	struct model_plan plan = {.run_count = count};
	uint64_t off = 0;

	for (uint32_t i = 0; i < count; i++) {
		plan.run[i] = (struct model_run){
			.shard = i, .file_off = 8192 + off, .bytes = bytes[i], .needed_bytes = bytes[i] - 100, .slab_off = off};
		off += bytes[i];
	}
	return plan;
}

static struct replica_options options_of(uint32_t count, const double *weight)
{
	struct replica_options options = {.count = count};

	for (uint32_t i = 0; i < count; i++)
		options.option[i] = (struct replica_option){.file = 10 * i, .drive = i, .weight = weight[i]};
	return options;
}

static const struct replica_options *for_all(struct replica_options options)
{
	for (uint32_t i = 0; i < LOADER_RUNS_MAX; i++)
		same_for_all[i] = options;
	return same_for_all;
}

static uint64_t bytes_on(const struct replica_split *split, uint32_t drive)
{
	for (uint32_t i = 0; i < split->part_count; i++)
		if (split->part[i].drive == drive)
			return split->part[i].bytes;
	return 0;
}

/* Every needed byte of every run exactly once, aligned, in its own file on its own drive. */
static void expect_covered(const struct model_plan *plan, const struct replica_options *options,
			   const struct replica_split *split)
{
	static unsigned char seen[LOADER_RUNS_MAX][16384]; /* a block of 4096 each */

	memset(seen, 0, sizeof seen);
	for (uint32_t p = 0; p < split->part_count; p++) {
		const struct replica_part *part = &split->part[p];
		uint64_t sum = 0;

		for (uint32_t i = 0; i < part->run_count; i++) {
			const struct replica_run *run = &part->run[i];
			const struct model_run *of = &plan->run[run->run];
			int found = 0;

			cr_assert_eq((run->off | run->bytes) % 4096, 0);
			cr_assert_leq(run->off + run->bytes, of->bytes);
			cr_assert(run->needed_bytes > 0 && run->needed_bytes <= run->bytes);
			cr_assert_eq(run->needed_bytes,
				     run->off + run->bytes > of->needed_bytes ? of->needed_bytes - run->off : run->bytes);
			for (uint32_t k = 0; k < options[run->run].count; k++)
				found |= options[run->run].option[k].file == run->file &&
					 options[run->run].option[k].drive == part->drive;
			cr_assert(found, "a file that is on another drive");
			for (uint64_t at = run->off; at < run->off + run->bytes; at += 4096)
				cr_assert_eq(seen[run->run][at / 4096]++, 0, "read twice");
			sum += run->bytes;
		}
		cr_assert_eq(sum, part->bytes);
	}
	for (uint32_t i = 0; i < plan->run_count; i++)
		for (uint64_t at = 0; at < plan->run[i].needed_bytes; at += 4096)
			cr_assert_eq(seen[i][at / 4096], 1, "run %u at %llu", i, (unsigned long long)at);
}

static struct replica_split split_of(const struct model_plan *plan, const struct replica_options *options, double ticket)
{
	struct replica_split split;

	cr_assert_eq(replica_split(plan, options, ticket, &split), 0);
	expect_covered(plan, options, &split);
	return split;
}

/* ---- small objects ---- */

/* Of the first eight experts of every layer, the part of each drive is within 5 points of its weight. */
static void expect_hot_set(uint32_t layers, uint32_t count, const double *weight)
{
	const struct model_plan plan = plan_of(1, (const uint64_t[]){1 * MIB});
	const struct replica_options *options = for_all(options_of(count, weight));
	uint32_t reads[LOADER_REPLICAS_MAX] = {0};
	double weights = 0;

	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t expert = 0; expert < 8; expert++) {
			struct replica_split split = split_of(&plan, options, replica_ticket(layer, expert));

			cr_assert_eq(split.part_count, 1, "it goes whole to one");
			reads[split.part[0].drive]++;
		}
	for (uint32_t i = 0; i < count; i++)
		weights += weight[i];
	for (uint32_t i = 0; i < count; i++) {
		double off = fabs(reads[i] / (8.0 * layers) - weight[i] / weights) * 100;

		cr_expect_leq(off, 5.001, "%u layers, drive %u of %u: %u reads, %.1f points off", layers, i, count, reads[i], off);
	}
}

Test(manager_replica, the_hot_set_falls_on_the_drives_as_their_weights_say)
{
	static const double weights[][LOADER_REPLICAS_MAX] = {{1, 1},  {4, 1},	   {1, 4},	{3, 1},	      {200, 50}, {9, 1},
							      {7, 3},  {2, 1},	   {48, 46, 5}, {5, 4.9, 0.5}, {1, 1, 1}, {10, 5, 3, 2},
							      {1, 2, 3, 4, 5}};
	static const uint32_t layers[] = {2, 4, 8, 16, 27, 46, 75, 92};

	for (size_t w = 0; w < sizeof weights / sizeof weights[0]; w++) {
		uint32_t count = 0;

		while (count < LOADER_REPLICAS_MAX && weights[w][count] > 0)
			count++;
		for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
			expect_hot_set(layers[i], count, weights[w]);
	}
}

Test(manager_replica, an_object_goes_where_it_went_before)
{
	const struct model_plan plan = plan_of(2, (const uint64_t[]){5 * MIB, 3 * MIB});
	const struct replica_options *options = for_all(options_of(2, (const double[]){2, 1}));
	struct replica_split first = split_of(&plan, options, 0.3), second = split_of(&plan, options, 0.3);

	cr_expect_eq(first.part_count, second.part_count);
	for (uint32_t i = 0; i < first.part_count; i++) {
		cr_expect_eq(first.part[i].drive, second.part[i].drive);
		cr_expect_eq(first.part[i].bytes, second.part[i].bytes);
	}
}

Test(manager_replica, a_shard_without_replica_is_read_where_it_is)
{
	const struct model_plan plan = plan_of(2, (const uint64_t[]){64 * KIB, 64 * KIB});
	struct replica_options options[2] = {options_of(2, (const double[]){1, 1}), options_of(1, (const double[]){1})};
	struct replica_split split;

	options[1].option[0].drive = 7;
	split = split_of(&plan, options, 0.9);
	cr_expect_eq(bytes_on(&split, 7), 64 * KIB);
	cr_expect_eq(bytes_on(&split, 1), 64 * KIB);
}

/* ---- large objects ---- */

Test(manager_replica, a_large_object_is_cut_by_the_weights)
{
	const struct model_plan plan = plan_of(3, (const uint64_t[]){8 * MIB, 4 * KIB, 8 * MIB});
	const struct replica_options *options = for_all(options_of(2, (const double[]){200, 50}));
	uint64_t total = 16 * MIB + 4 * KIB;

	for (double ticket = 0; ticket < 1; ticket += 0.07) {
		struct replica_split split = split_of(&plan, options, ticket);

		cr_assert_eq(split.part_count, 2);
		cr_expect_leq(fabs((double)bytes_on(&split, 0) / (double)total - 0.8), 0.001);
	}
}

Test(manager_replica, the_drives_take_turns_in_who_reads_the_beginning)
{
	const struct model_plan plan = plan_of(1, (const uint64_t[]){8 * MIB});
	const struct replica_options *options = for_all(options_of(2, (const double[]){1, 1}));
	int begins[2] = {0};

	for (int i = 0; i < 100; i++) {
		struct replica_split split = split_of(&plan, options, i / 100.0);

		for (uint32_t p = 0; p < split.part_count; p++)
			if (split.part[p].run[0].off == 0)
				begins[split.part[p].drive]++;
	}
	cr_expect_eq(begins[0], 50);
	cr_expect_eq(begins[1], 50);
}

/* A share of 0.4 MiB is no stripe: it gets a whole one in two objects of five. */
Test(manager_replica, a_share_below_a_stripe_is_a_stripe_now_and_then)
{
	const struct model_plan plan = plan_of(1, (const uint64_t[]){5 * MIB});
	const struct replica_options *options = for_all(options_of(2, (const double[]){92, 8}));
	uint64_t bytes = 0;
	int reads = 0;

	for (uint32_t i = 0; i < 1024; i++) {
		struct replica_split split = split_of(&plan, options, replica_ticket(i / 64, i % 64));
		uint64_t light = bytes_on(&split, 1);

		cr_assert(light == 0 || light >= REPLICA_STRIPE_BYTES_MIN);
		reads += light > 0;
		bytes += light;
	}
	cr_expect_lt(reads, 512);
	cr_expect_leq(fabs((double)bytes / (1024.0 * 5 * MIB) - 0.08), 0.01);
}

Test(manager_replica, any_sizes_and_weights_cover_every_byte_once)
{
	uint32_t random = 1;

	for (int i = 0; i < 3000; i++) {
		uint64_t bytes[MODEL_RUNS_MAX];
		double weight[LOADER_REPLICAS_MAX];
		struct replica_options options[MODEL_RUNS_MAX];
		struct model_plan plan;
		uint32_t runs = 1 + i % MODEL_RUNS_MAX;

		for (uint32_t k = 0; k < MODEL_RUNS_MAX; k++) {
			random = random * 1664525u + 1013904223u;
			bytes[k] = 4096 * (1 + (random >> 8) % 4000);
		}
		for (uint32_t k = 0; k < LOADER_REPLICAS_MAX; k++) {
			random = random * 1664525u + 1013904223u;
			weight[k] = 1 + (random >> 8) % 100;
		}
		for (uint32_t k = 0; k < runs; k++) {
			random = random * 1664525u + 1013904223u;
			options[k] = options_of(1 + (random >> 8) % LOADER_REPLICAS_MAX, weight);
		}
		plan = plan_of(runs, bytes);
		(void)split_of(&plan, options, (random >> 8) / 16777216.0);
	}
}

/* ---- who is not well ---- */

static struct replica_options ranked(enum replica_rank a, enum replica_rank b, enum replica_rank c)
{
	struct replica_options options = options_of(3, (const double[]){1, 1, 1});

	options.option[0].rank = a;
	options.option[1].rank = b;
	options.option[2].rank = c;
	return options;
}

static uint32_t only_drive(enum replica_rank a, enum replica_rank b, enum replica_rank c)
{
	const struct model_plan plan = plan_of(1, (const uint64_t[]){8 * MIB});
	uint32_t drive = 99;

	for (double ticket = 0; ticket < 1; ticket += 0.1) {
		struct replica_split split = split_of(&plan, for_all(ranked(a, b, c)), ticket);

		cr_assert_eq(split.part_count, 1);
		drive = split.part[0].drive;
	}
	return drive;
}

Test(manager_replica, a_slow_drive_gets_nothing_unless_the_others_fail)
{
	cr_expect_eq(only_drive(REPLICA_SPARE, REPLICA_GOOD, REPLICA_SPARE), 1);
	cr_expect_eq(only_drive(REPLICA_DEGRADED, REPLICA_SPARE, REPLICA_FAILED), 1);
	cr_expect_eq(only_drive(REPLICA_HANGS, REPLICA_OUT, REPLICA_DEGRADED), 2);
	cr_expect_eq(only_drive(REPLICA_OUT, REPLICA_HANGS, REPLICA_FAILED), 2);
}

Test(manager_replica, where_nothing_is_left_the_reason_is_told_and_the_output_untouched)
{
	const struct model_plan plan = plan_of(1, (const uint64_t[]){8 * MIB});
	struct replica_split split = {.part_count = 77};

	cr_expect_eq(replica_split(&plan, for_all(ranked(REPLICA_OUT, REPLICA_HANGS, REPLICA_OUT)), 0.5, &split), -EAGAIN);
	cr_expect_eq(replica_split(&plan, for_all(ranked(REPLICA_OUT, REPLICA_OUT, REPLICA_OUT)), 0.5, &split), -EIO);
	cr_expect_eq(split.part_count, 77);
}

/* ---- balance ---- */

static double share(const struct replica_group *group, const double *weight, uint32_t drive)
{
	double sum = 0;

	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++)
		sum += (group->drives >> i & 1) != 0 ? weight[i] : 0;
	return (group->drives >> drive & 1) != 0 ? weight[drive] / sum : 0;
}

Test(manager_replica, where_every_shard_is_everywhere_weights_are_speeds)
{
	const struct replica_group group = {.drives = 3, .bytes = 1000};
	const double speed[LOADER_DRIVES_MAX] = {200, 50};
	double weight[LOADER_DRIVES_MAX];

	replica_balance(&group, 1, speed, weight);
	cr_expect_leq(fabs(share(&group, weight, 0) - 0.8), 0.001);
}

/* Half as much again of the mirrored shards goes to the mirror of a part of them, as far as it may lean. */
Test(manager_replica, a_mirror_of_a_part_is_leaned_on_for_that_part)
{
	const struct replica_group group[] = {{.drives = 1, .bytes = 300}, {.drives = 3, .bytes = 700}};
	const double speed[LOADER_DRIVES_MAX] = {100, 100};
	double weight[LOADER_DRIVES_MAX], load;

	replica_balance(group, 2, speed, weight);
	load = 700 * share(&group[1], weight, 1);
	cr_expect_leq(fabs(load - 500), 5, "the mirror reads %.0f of 1000", load);
}

Test(manager_replica, a_drive_of_no_speed_has_no_weight)
{
	const struct replica_group group = {.drives = 7, .bytes = 1000};
	const double speed[LOADER_DRIVES_MAX] = {200, 50, 0};
	double weight[LOADER_DRIVES_MAX];

	replica_balance(&group, 1, speed, weight);
	cr_expect_eq(weight[2], 0);
	cr_expect_leq(fabs(share(&group, weight, 0) - 0.8), 0.001);
}
