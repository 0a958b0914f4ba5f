/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider with containers of every engine that can call it: through its views, each matrix of each expert has the
 * bytes that lie in the files, and the format, group and dimensions that the engine would find there by itself.
 */
#include "client/colibri/provider.h"
#include "tests/support/container.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(colibri_families, .timeout = 240);

struct hooked {
	const char *options[20]; /* of cnre-gen */
	struct container container;
	uint32_t dense;
	const char *format;
	int number;              /* Colibri's, of the table of formats */
	uint32_t group;
};

static struct world world;

static struct cnre_colibri *open_shim(void)
{
	struct cnre_colibri_setup setup = {.model = world.model, .name = "engine-of-a-test", .is_chosen = 1};
	struct cnre_colibri *shim = NULL;
	char message[256] = "";
	int r;

	(void)setenv("COLI_CNRE_SOCKET", world.socket, 1);
	r = cnre_colibri_open(&shim, &setup, message, sizeof message);
	cr_assert_eq(r, 1, "%d: %s", r, message);
	return shim;
}

static void expect_matrix(const struct hooked *hooked, const struct cnre_colibri_matrix *matrix, const struct container_part *data,
			  const struct container_part *scales, uint32_t rows, uint32_t columns)
{
	cr_expect_eq(matrix->format, hooked->number, "%s: %d", hooked->format, matrix->format);
	cr_expect_eq(matrix->group, hooked->group, "%s: groups of %u", hooked->format, matrix->group);
	cr_expect(matrix->rows == rows && matrix->columns == columns, "%s: %u x %u", hooked->format, matrix->rows, matrix->columns);
	cr_assert_eq(matrix->data_bytes, data->bytes);
	cr_assert_eq(matrix->scale_bytes, scales->bytes);
	cr_expect_eq(memcmp(matrix->data, data->data, data->bytes), 0, "%s: other bytes", hooked->format);
	cr_expect(scales->bytes == 0 || memcmp(matrix->scales, scales->data, scales->bytes) == 0, "%s: other scales",
		  hooked->format);
}

static void expect_block(const struct hooked *hooked, struct cnre_colibri *shim, const struct truth *truth, uint32_t layer,
			 const int *id, int count)
{
	const char *const format[3] = {hooked->format, hooked->format, hooked->format};
	const struct container *of = &hooked->container;
	struct container_part part[CNRE_ROLES];
	struct cnre_colibri_block *block = NULL;
	char why[CONTAINER_WHY_BYTES] = "";

	cr_assert_eq(cnre_colibri_acquire(shim, (int)layer, id, count, 3, &block), 0, "%s: layer %u", hooked->format, layer);
	for (int i = 0; i < count; i++) {
		struct cnre_colibri_view view;

		cr_assert_eq(cnre_colibri_view(block, i, &view), 0);
		cr_assert(view.layer == layer && (int)view.expert == id[i]);
		cr_assert_eq(container_find(of, truth, layer, view.expert, format, part, why), 0, "%s", why);
		expect_matrix(hooked, &view.gate, &part[CNRE_GATE], &part[CNRE_GATE_SCALE], of->intermediate, of->width);
		expect_matrix(hooked, &view.up, &part[CNRE_UP], &part[CNRE_UP_SCALE], of->intermediate, of->width);
		expect_matrix(hooked, &view.down, &part[CNRE_DOWN], &part[CNRE_DOWN_SCALE], of->width, of->intermediate);
	}
	cnre_colibri_release(block);
}

/* The experts from the last to the first, in blocks as large as may be. */
static void expect_layer(const struct hooked *hooked, struct cnre_colibri *shim, const struct truth *truth, uint32_t layer)
{
	int most = (int)cnre_colibri_block_max(shim), left = (int)hooked->container.experts;
	int id[CNRE_COLIBRI_BLOCK_MAX];

	cr_assert(most > 0 && most <= (int)CNRE_COLIBRI_BLOCK_MAX);
	while (left > 0) {
		int count = 0;

		while (count < most && left > 0)
			id[count++] = --left;
		expect_block(hooked, shim, truth, layer, id, count);
	}
}

static void go(const struct hooked *hooked)
{
	struct cnre_colibri_block *block = NULL;
	struct cnre_colibri *shim;
	struct truth *truth;

	world_open(&world);
	world_generate(&world, hooked->options);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	shim = open_shim();
	if (hooked->dense > 0)
		cr_expect_lt(cnre_colibri_acquire(shim, 0, (const int[]){0}, 1, 1, &block), 0, "a dense layer");
	for (uint32_t layer = hooked->dense; layer < hooked->container.layers; layer++)
		expect_layer(hooked, shim, truth, layer);
	cnre_colibri_close(shim);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	truth_close(truth);
	world_close(&world);
}

#define SIZES "--layers", "3", "--experts", "6", "--dense-layers", "1"
#define WIDTHS "--hidden", "256", "--intermediate", "128"

Test(colibri_families, every_format_of_glm)
{
	static const struct {
		const char *format;
		int number;
		uint32_t group;
	} formats[] = {{"int4-row", 2, 0},	{"int4-gs64", 4, 64}, {"int4-gs128", 4, 128}, {"int8-row", 1, 0},
		       {"int2-row", 3, 0},	{"int3-g64", 5, 64},  {"iq3", 6, 0},	      {"fp8-block", 8, 128},
		       {"f32", 0, 0}};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		go(&(struct hooked){.options = {"--family", "glm", SIZES, "--hidden", "512", "--intermediate", "256", "--expert-format",
						formats[i].format},
				    .container = {CONTAINER_QS, "model.", 3, 6, 512, 256},
				    .dense = 1,
				    .format = formats[i].format,
				    .number = formats[i].number,
				    .group = formats[i].group});
}

Test(colibri_families, latent_experts_of_kimi)
{
	go(&(struct hooked){.options = {"--family", "kimi_k3", SIZES, "--hidden", "224", "--latent", "96", "--intermediate", "160"},
			    .container = {CONTAINER_PACKED, "language_model.model.", 3, 6, 96, 160},
			    .dense = 1,
			    .format = "mxfp4",
			    .number = 7,
			    .group = 32});
}

Test(colibri_families, slices_of_the_fused_tensors_of_inkling)
{
	static const char *const formats[] = {"int4-row", "int8-row"};

	for (int i = 0; i < 2; i++)
		go(&(struct hooked){.options = {"--family", "inkling", SIZES, WIDTHS, "--expert-format", formats[i]},
				    .container = {CONTAINER_FUSED, "model.", 3, 6, 256, 128},
				    .dense = 1,
				    .format = formats[i],
				    .number = i == 0 ? 2 : 1});
}

Test(colibri_families, merged_rows_of_olmoe)
{
	go(&(struct hooked){.options = {"--family", "olmoe", "--layers", "3", "--experts", "6", WIDTHS},
			    .container = {CONTAINER_MERGED, "model.", 3, 6, 256, 128},
			    .format = "int8-row",
			    .number = 1});
}

Test(colibri_families, groups_of_glm53)
{
	go(&(struct hooked){.options = {"--family", "glm53", SIZES, WIDTHS},
			    .container = {CONTAINER_QS, "model.language_model.", 3, 6, 256, 128},
			    .dense = 1,
			    .format = "int4-gs64",
			    .number = 4,
			    .group = 64});
}
