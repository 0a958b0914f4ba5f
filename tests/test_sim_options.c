/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the replaying verbs: what is taken, what is refused and how. */
#include "tools/sim/options.h"

#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 32

/* %s: a folder with one trace, a.grp. The words of options point into `line`, which stays. */
static int parse(const struct folder *folder, enum sim_verb verb, const char *format, struct sim_options *options,
		 char message[SIM_MESSAGE_BYTES])
{
	static char line[1024];
	char *rest = line, *argv[WORDS_MAX + 1] = {NULL};
	int argc = 0;

	(void)snprintf(line, sizeof line, format, folder->path, folder->path);
	while (rest != NULL && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, " ");
	message[0] = '\0';
	return sim_options_parse(argc, argv, verb, options, message, SIM_MESSAGE_BYTES);
}

static void make(struct folder *folder)
{
	folder_make(folder);
	folder_write(folder, "a.grp", "0 0 0\n", 6);
	folder_write(folder, "b.grp", "0 0 0\n", 6);
}

Test(sim_options, words_after_an_option_of_files_are_files_until_the_next_option)
{
	struct folder folder;
	struct sim_options options;
	char message[SIM_MESSAGE_BYTES];

	make(&folder);
	cr_assert_eq(parse(&folder, SIM_RUN, "run --trace %s/a.grp %s/b.grp --policy lru,cost --objects 25%%", &options,
			   message),
		     0, "%s", message);
	cr_expect_eq(options.trace.count, 2);
	cr_expect_eq(options.policy_count, 2);
	cr_expect_str_eq(options.policy[1], "cost");
	cr_expect_eq(options.capacity[0].percent, 25);
	cr_expect_eq(options.capacity[0].capacity.unit, SIM_OBJECTS);
	sim_options_close(&options);
	folder_remove(&folder);
}

Test(sim_options, values_may_follow_an_equals_sign_and_sizes_have_suffixes)
{
	struct folder folder;
	struct sim_options options;
	char message[SIM_MESSAGE_BYTES];

	make(&folder);
	cr_assert_eq(parse(&folder, SIM_SWEEP, "sweep --trace=%s/a.grp --policy=slru --slru-split=1:1:2 --budget=4K,1G",
			   &options, message),
		     0, "%s", message);
	cr_expect_eq(options.capacity_count, 2);
	cr_expect_eq(options.capacity[1].capacity.amount, 1u << 30);
	cr_expect_eq(options.tuning.slru_segments, 3);
	cr_expect_float_eq(options.tuning.slru_split[2], 2, 1e-6);
	sim_options_close(&options);
	folder_remove(&folder);
}

Test(sim_options, what_is_wrong_is_refused_with_what_is_right_and_output_untouched)
{
	static const struct {
		const char *line, *says;
	} wrong[] = {
		{"run --trace %s/a.grp --policy lru --objets 4", "nearest is --objects"},
		{"run --trace %s/a.grp --policy lru --objects 4 --slots-per-layer 4", "twice"},
		{"run --trace %s/a.grp --policy lru --objects -4", "above 0"},
		{"run --trace %s/a.grp --policy lru --objects 4x", "above 0"},
		{"run --trace %s/a.grp --policy lru --objects 101%%", "share"},
		{"run --trace %s/a.grp --policy lru --budget 4Q", "120G"},
		{"run --trace %s/a.grp --policy lru,lru --objects 4", "twice"},
		{"run --trace %s/a.grp --policy lru, --objects 4", "no such policy"},
		{"run --trace %s/a.grp --policy slru --slru-split 1:0 --objects 4", "shares above 0"},
		{"run --trace %s/a.grp --policy slru --slru-split 1:1:1:1:1:1:1:1:1 --objects 4", "at most eight"},
		{"run --trace %s/a.grp --policy cost --half-lives 1:2 --objects 4", "three numbers"},
		{"run --trace %s/a.grp --policy cost --half-lives 1:2:inf --objects 4", "three numbers"},
		{"run --trace %s/a.grp --policy cost --prior-weight nan --objects 4", "from 0 to 1e+06"},
		{"run --trace %s/a.grp --policy lru --objects 4 --threads 0", "from 1"},
		{"run --trace %s/a.grp --policy lru --objects 4 --json=1", "takes no value"},
		{"run --trace %s/a.grp --policy lru --objects 4 --seed", "--seed"},
		{"run word --trace %s/a.grp --policy lru --objects 4", "expected an option"},
		{"run --trace %s/a.grp --policy lru --objects 4 --arms", "--seed-residents"},
		{"run --trace %s/a.grp --policy --objects 4", "--policy: needs NAME"},
		{"run --trace %s/a.grp --policy lru --policy cost --objects 4", "by commas"},
		{"run --trace %s/a.grp --train %s/a.grp --policy lru --preload --seed-residents 0:1 --objects 4", "give one of them"},
		{"run --trace --policy lru --objects 4", "--trace: needs FILE"},
		{"run --trace %s/a.grp --policy lru --objects 4 --json --csv", "one of them"},
		{"run --trace %s/a.grp --policy lru --objects 4 --null --csv", "second table"},
	};
	struct folder folder;
	char message[SIM_MESSAGE_BYTES];

	make(&folder);
	for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct sim_options options = {.seed = 77};

		cr_expect_eq(parse(&folder, SIM_RUN, wrong[i].line, &options, message), -EINVAL, "%s", wrong[i].line);
		cr_expect_not_null(strstr(message, wrong[i].says), "%s: %s", wrong[i].line, message);
		cr_expect_eq(options.seed, 77);
	}
	folder_remove(&folder);
}

Test(sim_options, of_a_folder_the_files_of_the_split_are_taken_in_order)
{
	struct folder folder;
	struct sim_options options;
	char message[SIM_MESSAGE_BYTES];

	folder_make(&folder);
	folder_write(&folder, "eval_02_b.grp", "0 0 0\n", 6);
	folder_write(&folder, "eval_01_a.grp", "0 0 0\n", 6);
	folder_write(&folder, "train_01_a.grp", "0 0 0\n", 6);
	folder_write(&folder, "eval.grp", "0 0 0\n", 6);
	folder_write(&folder, "manifest.json", "{}", 2);
	cr_assert_eq(parse(&folder, SIM_GATE, "gate --eval %s --train %s --objects 4", &options, message), 0, "%s",
		     message);
	cr_assert_eq(options.trace.count, 2);
	cr_expect_not_null(strstr(options.trace.path[0], "/eval_01_a.grp"));
	cr_expect_not_null(strstr(options.trace.path[1], "/eval_02_b.grp"));
	cr_assert_eq(options.train.count, 1);
	cr_expect_not_null(strstr(options.train.path[0], "/train_01_a.grp"));
	sim_options_close(&options);
	folder_remove(&folder);
}

Test(sim_options, an_empty_folder_is_enoent)
{
	struct folder folder;
	struct sim_options options;
	char message[SIM_MESSAGE_BYTES];

	folder_make(&folder);
	folder_write(&folder, "manifest.json", "{}", 2);
	cr_expect_eq(parse(&folder, SIM_GATE, "gate --eval %s --objects 4", &options, message), -ENOENT);
	cr_expect_not_null(strstr(message, "no trace files"), "%s", message);
	folder_remove(&folder);
}
