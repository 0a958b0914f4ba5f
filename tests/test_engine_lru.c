/* SPDX-License-Identifier: Apache-2.0 */
/* engine/lru.c: the counts of Colibri's engine on its own traces, and the rule behind them. */
#include "engine/lru.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counts {
	uint64_t hits, misses;
};

static const char *vectors(void)
{
	const char *directory = getenv("CNRE_VECTORS");

	return directory ? directory : "../shared/vectors";
}

/* One trace line: call row layer expert:gate expert:gate ... */
static void replay_line(struct lru *lru, char *line, struct counts *counts)
{
	unsigned int layer, expert;
	int used = 0;

	cr_assert_eq(sscanf(line, "%*u %*u %u%n", &layer, &used), 1, "trace line: %s", line);
	for (char *at = line + used; sscanf(at, " %u:%*f%n", &expert, &used) == 1; at += used) {
		if (lru_access(lru, layer, expert).hit)
			counts->hits++;
		else
			counts->misses++;
	}
}

static struct counts replay(const char *model, uint32_t layers, uint32_t slots)
{
	struct counts counts = {0};
	struct lru lru;
	char path[512], line[1024];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s/route.trace", vectors(), model);
	file = fopen(path, "r");
	if (!file)
		cr_skip("no reference vectors in %s; CNRE_VECTORS names their directory", vectors());
	cr_assert_eq(lru_init(&lru, layers, slots), 0);
	while (fgets(line, sizeof line, file))
		replay_line(&lru, line, &counts);
	fclose(file);
	lru_done(&lru);
	return counts;
}

static void expect_counts(const char *model, uint32_t layers, const uint64_t expected[3][2])
{
	for (uint32_t i = 0; i < 3; i++) {
		struct counts counts = replay(model, layers, 4 * (i + 1));

		cr_expect_eq(counts.hits, expected[i][0], "%s capacity %u", model, 4 * (i + 1));
		cr_expect_eq(counts.misses, expected[i][1], "%s capacity %u", model, 4 * (i + 1));
	}
}

Test(engine_lru, olmoe_a_counts_as_in_the_engine_that_traced_it)
{
	expect_counts("olmoe-a", 4, (const uint64_t[3][2]){{64, 400}, {196, 268}, {326, 138}});
}

Test(engine_lru, olmoe_b_counts_as_in_the_engine_that_traced_it)
{
	expect_counts("olmoe-b", 6, (const uint64_t[3][2]){{77, 967}, {293, 751}, {485, 559}});
}

Test(engine_lru, the_expert_used_longest_ago_goes)
{
	struct lru lru;
	struct lru_access access;

	cr_assert_eq(lru_init(&lru, 1, 2), 0);
	lru_access(&lru, 0, 5);
	lru_access(&lru, 0, 6);
	cr_expect(lru_access(&lru, 0, 5).hit);
	access = lru_access(&lru, 0, 7);
	cr_expect_not(access.hit);
	cr_expect(access.evicted);
	cr_expect(lru_access(&lru, 0, 5).hit);
	cr_expect_not(lru_access(&lru, 0, 6).hit);
	lru_done(&lru);
}

Test(engine_lru, layers_do_not_share_slots)
{
	struct lru lru;

	cr_assert_eq(lru_init(&lru, 2, 1), 0);
	cr_expect_not(lru_access(&lru, 0, 3).hit);
	cr_expect_not(lru_access(&lru, 1, 3).hit);
	cr_expect(lru_access(&lru, 0, 3).hit);
	cr_expect_neq(lru_access(&lru, 0, 3).slot, lru_access(&lru, 1, 3).slot);
	lru_done(&lru);
}

Test(engine_lru, no_slots_is_einval_and_touches_nothing)
{
	struct lru lru = {.clock = 42};

	cr_expect_eq(lru_init(&lru, 0, 1), -EINVAL);
	cr_expect_eq(lru_init(&lru, 1, 0), -EINVAL);
	cr_expect_eq(lru.clock, 42);
}
