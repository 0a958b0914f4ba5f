/* SPDX-License-Identifier: Apache-2.0 */
/* engine/expert_table.c: how an expert's parts become reads. */
#include "engine/expert_table.h"

#include "cnre/cnre.h"

#include <criterion/criterion.h>

static void set_part(struct expert_place *place, uint32_t role, uint32_t shard, uint64_t off, uint64_t bytes)
{
	place->part[role].shard = shard;
	place->part[role].file_off = off;
	place->part[role].bytes = bytes;
	place->bytes += bytes;
}

/* Every part lies whole inside one run, at the file's own offset inside its block. */
static void expect_covered(const struct expert_place *place, const struct expert_plan *plan)
{
	for (uint32_t role = 0; role < EXPERT_PARTS; role++) {
		uint32_t covering = 0;

		if (place->part[role].bytes == 0)
			continue;
		for (uint32_t i = 0; i < plan->run_count; i++) {
			const struct expert_run *run = &plan->run[i];

			covering +=
				run->shard == place->part[role].shard && run->file_off <= place->part[role].file_off &&
				place->part[role].file_off + place->part[role].bytes <=
					run->file_off + run->needed_bytes &&
				plan->part_off[role] - run->buffer_off == place->part[role].file_off - run->file_off;
		}
		cr_expect_geq(covering, 1, "part %u", role);
	}
	for (uint32_t i = 0; i < plan->run_count; i++) {
		cr_expect_eq(plan->run[i].file_off % EXPERT_READ_ALIGNMENT, 0);
		cr_expect_eq(plan->run[i].bytes % EXPERT_READ_ALIGNMENT, 0);
		cr_expect_eq(plan->run[i].buffer_off % EXPERT_READ_ALIGNMENT, 0);
		cr_expect_leq(plan->run[i].needed_bytes, plan->run[i].bytes);
	}
}

Test(engine_expert_table, adjacent_parts_are_one_read)
{
	struct expert_place place = {0};
	struct expert_plan plan;

	set_part(&place, CNRE_GATE, 0, 5000, 3000);
	set_part(&place, CNRE_UP, 0, 8000, 3000);
	set_part(&place, CNRE_DOWN, 0, 11000, 3000);
	set_part(&place, CNRE_GATE_SCALE, 0, 14000, 40);
	set_part(&place, CNRE_UP_SCALE, 0, 14040, 40);
	set_part(&place, CNRE_DOWN_SCALE, 0, 14080, 40);
	expert_plan_make(&place, &plan);
	cr_expect_eq(plan.run_count, 1);
	cr_expect_eq(plan.run[0].file_off, 4096);
	cr_expect_eq(plan.run[0].needed_bytes, 14120 - 4096);
	expect_covered(&place, &plan);
}

Test(engine_expert_table, file_order_need_not_be_role_order)
{
	struct expert_place place = {0};
	struct expert_plan plan;

	set_part(&place, CNRE_GATE, 0, 3000, 1000);
	set_part(&place, CNRE_UP, 0, 2000, 1000);
	set_part(&place, CNRE_DOWN, 0, 1000, 1000);
	expert_plan_make(&place, &plan);
	cr_expect_eq(plan.run_count, 1);
	expect_covered(&place, &plan);
}

Test(engine_expert_table, gaps_and_other_shards_are_reads_of_their_own)
{
	struct expert_place place = {0};
	struct expert_plan plan;

	set_part(&place, CNRE_GATE, 0, 0, 1000);
	set_part(&place, CNRE_UP, 0, 1001, 1000);
	set_part(&place, CNRE_DOWN, 1, 2001, 1000);
	expert_plan_make(&place, &plan);
	cr_expect_eq(plan.run_count, 3);
	expect_covered(&place, &plan);
	cr_expect_eq(plan.buffer_bytes, 3 * EXPERT_READ_ALIGNMENT);
}
