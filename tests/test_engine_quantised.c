/* SPDX-License-Identifier: Apache-2.0 */
/* engine/quantised.c: blocks of 16 with a scale each. */
#include "engine/quantised.h"

#include "cnre/cnre.h"

#include <criterion/criterion.h>
#include <math.h>

static struct quantised quantised;

Test(engine_quantised, only_int8_rows_of_whole_blocks_take_it)
{
	cr_expect(quantised_applies(&(struct matrix){.columns = 16, .dtype = CNRE_I8}));
	cr_expect(quantised_applies(&(struct matrix){.columns = QUANTISED_COLUMNS_MAX, .dtype = CNRE_I8}));
	cr_expect_not(quantised_applies(&(struct matrix){.columns = 24, .dtype = CNRE_I8}));
	cr_expect_not(quantised_applies(&(struct matrix){.columns = QUANTISED_COLUMNS_MAX + 16, .dtype = CNRE_I8}));
	cr_expect_not(quantised_applies(&(struct matrix){.columns = 16, .dtype = CNRE_BF16}));
}

Test(engine_quantised, the_largest_of_each_block_becomes_127)
{
	float x[32];

	for (int i = 0; i < 32; i++)
		x[i] = (float)(i % 16) * (i < 16 ? 1.0f : -0.001f);
	quantised_make(&quantised, x, 32);
	cr_expect_eq(quantised.value[15], 127);
	cr_expect_eq(quantised.value[31], -127);
	for (int i = 0; i < 32; i++) {
		float scale = quantised.scale[i / 4];

		cr_expect(fabsf(quantised.value[i] * scale - x[i]) <= scale * 0.5001f, "element %d", i);
	}
}

Test(engine_quantised, zeros_stay_zero_and_the_tail_is_cleared)
{
	float x[16] = {0};

	for (int i = 0; i < 64; i++)
		quantised.value[i] = 1;
	quantised_make(&quantised, x, 16);
	for (int i = 0; i < 64; i++)
		cr_expect_eq(quantised.value[i], 0, "element %d", i);
	cr_expect(isfinite(quantised.scale[0]));
	cr_expect_eq(quantised.scale[4], 0);
}

Test(engine_quantised, halves_round_to_even)
{
	float x[16] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f};

	quantised_make(&quantised, x, 16);
	cr_expect_eq(quantised.value[1], 0);
	cr_expect_eq(quantised.value[2], 2);
	cr_expect_eq(quantised.value[3], 2);
	cr_expect_eq(quantised.value[4], 0);
	cr_expect_eq(quantised.value[5], -2);
}
