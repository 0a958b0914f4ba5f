/* SPDX-License-Identifier: Apache-2.0 */
/* The quantised format of an expert from the bytes of its parts, by the table that the engines share. */
#include "client/colibri/provider.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(colibri_format, .timeout = 20);

/* 512 rows of gate and up (the inner width), 256 of down (the hidden width): so gate is 512 x 256, and down 256 x 512. */
enum { INNER = 512, HIDDEN = 256 };

struct format_case {
	const char *name;
	uint16_t dtype, scale_dtype;
	uint64_t gate_bytes, gate_scale_bytes, down_bytes, down_scale_bytes;
	uint16_t block_columns;
	int ordinal;
	uint32_t group;
};

static const struct format_case cases[] = {
	{"f32", CNRE_F32, 0, 4 * 512 * 256, 0, 4 * 512 * 256, 0, 0, 0, 0},
	{"int8 row", CNRE_U8, CNRE_F32, 512 * 256, 4 * 512, 512 * 256, 4 * 256, 0, 1, 0},
	{"int4 row", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512, 256 * 256, 4 * 256, 0, 2, 0},
	{"int2 row", CNRE_U8, CNRE_F32, 512 * 64, 4 * 512, 256 * 128, 4 * 256, 0, 3, 0},
	{"int4 gs64", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512 * 4, 256 * 256, 4 * 256 * 8, 0, 4, 64},
	{"int4 gs128", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512 * 2, 256 * 256, 4 * 256 * 4, 128, 4, 128},
	{"int4 in groups of 48", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512 * 6, 256 * 256, 4 * 256 * 11, 48, 4, 48},
	{"int4 in groups of 192", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512 * 2, 256 * 256, 4 * 256 * 3, 192, 4, 192},
	{"int3 g64", CNRE_U8, CNRE_F32, 512 * 4 * 24, 4 * 512 * 4, 256 * 8 * 24, 4 * 256 * 8, 0, 5, 64},
	{"e8", CNRE_U8, CNRE_F32, 512 * 98, 4, 256 * 2 * 98, 4, 0, 6, 0},
	{"mxfp4", CNRE_U8, CNRE_F8_E8M0, 512 * 128, 512 * 8, 256 * 256, 256 * 16, 0, 7, 32},
	{"mxfp4, scales as bytes", CNRE_I8, CNRE_U8, 512 * 128, 512 * 8, 256 * 256, 256 * 16, 0, 7, 32},
	{"fp8", CNRE_F8_E4M3, CNRE_F32, 512 * 256, 4 * 4 * 2, 512 * 256, 4 * 2 * 4, 0, 8, 128},
};

static struct cnre_expert expert_of(const struct format_case *c)
{
	struct cnre_expert expert = {.layer = 3, .expert = 5, .flags = CNRE_WAS_RESIDENT};

	expert.part[CNRE_GATE] = (struct cnre_part){.bytes = c->gate_bytes, .rows = INNER, .dtype = c->dtype};
	expert.part[CNRE_GATE_SCALE] = (struct cnre_part){
		.bytes = c->gate_scale_bytes, .dtype = c->scale_dtype, .block_columns = c->block_columns};
	expert.part[CNRE_UP] = expert.part[CNRE_GATE];
	expert.part[CNRE_UP_SCALE] = expert.part[CNRE_GATE_SCALE];
	expert.part[CNRE_DOWN] = (struct cnre_part){.bytes = c->down_bytes, .rows = HIDDEN, .dtype = c->dtype};
	expert.part[CNRE_DOWN_SCALE] = (struct cnre_part){
		.bytes = c->down_scale_bytes, .dtype = c->scale_dtype, .block_columns = c->block_columns};
	return expert;
}

Test(colibri_format, every_format_of_the_table_is_told_by_its_bytes)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cnre_expert expert = expert_of(&cases[i]);
		struct cnre_colibri_view view;

		cr_assert_eq(cnre_colibri_describe(&expert, &view), 0, "%s", cases[i].name);
		cr_expect_eq(view.gate.format, cases[i].ordinal, "%s: %d", cases[i].name, view.gate.format);
		cr_expect_eq(view.down.format, cases[i].ordinal, "%s: %d", cases[i].name, view.down.format);
		cr_expect_eq(view.up.group, cases[i].group, "%s: %u", cases[i].name, view.up.group);
		cr_expect_eq(view.gate.rows, INNER);
		cr_expect_eq(view.gate.columns, HIDDEN);
		cr_expect_eq(view.down.rows, HIDDEN);
		cr_expect_eq(view.down.columns, INNER);
		cr_expect_eq(view.down.scale_bytes, cases[i].down_scale_bytes);
		cr_expect(view.layer == 3 && view.expert == 5 && view.was_resident);
	}
}

/* The group that the checkpoint states is not overruled by another one that makes as many scales. */
Test(colibri_format, stated_group_decides)
{
	struct format_case c = {"", CNRE_U8, CNRE_F32, 512 * 128, 4 * 512 * 4, 256 * 256, 4 * 256 * 8, 128, 0, 0};
	struct cnre_expert expert = expert_of(&c);
	struct cnre_colibri_view view = {.layer = 77};

	cr_expect_eq(cnre_colibri_describe(&expert, &view), -ENOTSUP);
	cr_expect_eq(view.layer, 77, "output is untouched on failure");
}

Test(colibri_format, what_is_in_no_table_is_enotsup)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cnre_expert expert = expert_of(&cases[i]);
		struct cnre_colibri_view view;

		expert.part[CNRE_DOWN].bytes++;
		cr_expect_eq(cnre_colibri_describe(&expert, &view), -ENOTSUP, "%s", cases[i].name);
		expert = expert_of(&cases[i]);
		expert.part[CNRE_UP].bytes = 0;
		cr_expect_eq(cnre_colibri_describe(&expert, &view), -ENOTSUP, "%s: no up", cases[i].name);
	}
}

Test(colibri_format, half_floats_are_no_format_of_the_table)
{
	struct format_case c = {"", CNRE_BF16, 0, 2 * 512 * 256, 0, 2 * 512 * 256, 0, 0, 0, 0};
	struct cnre_expert expert = expert_of(&c);
	struct cnre_colibri_view view;

	cr_expect_eq(cnre_colibri_describe(&expert, &view), -ENOTSUP);
}

/* A matrix of 128 rows and 16384 columns has as many scales in int8 rows as in fp8 blocks. */
Test(colibri_format, int8_is_no_fp8_where_both_have_as_many_scales)
{
	struct format_case c = {"", CNRE_I8, CNRE_F32, 128 * 16384, 4 * 128, 128 * 16384, 4 * 16384, 0, 0, 0};
	struct cnre_expert expert = expert_of(&c);
	struct cnre_colibri_view view;

	expert.part[CNRE_GATE].rows = expert.part[CNRE_UP].rows = 128;
	expert.part[CNRE_DOWN].rows = 16384;
	cr_assert_eq(cnre_colibri_describe(&expert, &view), 0);
	cr_expect_eq(view.gate.format, 1);
	cr_expect_eq(view.down.format, 1);
}

/* Numbers that only a broken catalog has: 4 x 2^31 x (2^31 + 1) is 2^33 in 64 bits. */
Test(colibri_format, dimensions_beyond_all_bounds_do_not_wrap)
{
	struct format_case c = {"", CNRE_F32, 0, 1ull << 33, 0, 1ull << 33, 0, 0, 0, 0};
	struct cnre_expert expert = expert_of(&c);
	struct cnre_colibri_view view;

	expert.part[CNRE_GATE].rows = expert.part[CNRE_UP].rows = 1u << 31;
	expert.part[CNRE_DOWN].rows = (1u << 31) + 1;
	cr_expect_eq(cnre_colibri_describe(&expert, &view), -ENOTSUP);
}

Test(colibri_format, matrices_that_follow_each_other_are_one)
{
	static char bytes[64], scales[16];
	struct cnre_colibri_matrix a = {.data = bytes, .scales = scales, .data_bytes = 32, .scale_bytes = 8, .columns = 8, .format = 1};
	struct cnre_colibri_matrix b = a;

	b.data = bytes + 32;
	b.scales = scales + 8;
	cr_expect(cnre_colibri_are_one(&a, &b));
	b.scales = scales + 4;
	cr_expect_not(cnre_colibri_are_one(&a, &b));
	b.scales = scales + 8;
	b.data = bytes + 31;
	cr_expect_not(cnre_colibri_are_one(&a, &b));
}
