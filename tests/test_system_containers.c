/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Round trips through every family's container: cnre-gen writes one, a real manager reads it, a client leases every
 * expert of every layer, and each part is compared byte by byte with what the test itself finds in the files. Three
 * descriptions of a container have to agree, each written from the formats and not from another: tools/gen, model, and
 * tests/support/container.c.
 */
#include "tests/support/container.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS_MAX 20
#define GENERATE_MAX 48
#define MIXED_MAX 3
#define NUMBER_BYTES 16
#define ACQUIRE_TIMEOUT_NS 60000000000

TestSuite(system_containers, .timeout = 300);

struct round_trip {
	const char *family, *model_family; /* as cnre-gen takes it, and as the manager calls it */
	struct container container;
	uint32_t dense, rows, row_experts; /* dense layers first, rows of experts after the last */
	const char *format[3];             /* of gate, up and down; all as the first where NULL */
	const char *row_format;            /* in those rows; NULL: as the layers */
	struct {
		uint32_t layer;
		const char *format;
	} mixed[MIXED_MAX];
	const char *hidden; /* for cnre-gen, where it is not the experts' width */
	const char *ram;
	const char *options[OPTIONS_MAX]; /* further ones */
};

static uint32_t experts_of(const struct round_trip *trip, uint32_t layer)
{
	if (layer >= trip->container.layers)
		return trip->row_experts != 0 ? trip->row_experts : trip->container.experts;
	return layer < trip->dense ? 0 : trip->container.experts;
}

static void choose_formats(const struct round_trip *trip, uint32_t layer, const char *format[3])
{
	for (int i = 0; i < 3; i++) {
		format[i] = trip->format[i] != NULL ? trip->format[i] : trip->format[0];
		if (layer >= trip->container.layers && trip->row_format != NULL)
			format[i] = trip->row_format;
		for (int m = 0; m < MIXED_MAX; m++)
			if (trip->mixed[m].format != NULL && trip->mixed[m].layer == layer)
				format[i] = trip->mixed[m].format;
	}
}

/* ---- one container ---- */

static void generate(struct world *world, const struct round_trip *trip)
{
	const struct container *container = &trip->container;
	const struct {
		const char *name;
		uint32_t value;
	} numbers[] = {{"--layers", container->layers},
		       {"--experts", container->experts},
		       {"--intermediate", container->intermediate},
		       {"--dense-layers", trip->dense},
		       {"--mtp", trip->rows},
		       {trip->hidden == NULL ? "--hidden" : "--latent", container->width}};
	static const char *const fixed[] = {"--top-k", "2", "--vocab", "64", "--seed", "11"};
	char text[sizeof numbers / sizeof numbers[0]][NUMBER_BYTES];
	const char *arguments[GENERATE_MAX];
	size_t count = 0;

	arguments[count++] = "--family";
	arguments[count++] = trip->family;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		if (numbers[i].value == 0)
			continue;
		(void)snprintf(text[i], NUMBER_BYTES, "%u", numbers[i].value);
		arguments[count++] = numbers[i].name;
		arguments[count++] = text[i];
	}
	if (trip->hidden != NULL) {
		arguments[count++] = "--hidden";
		arguments[count++] = trip->hidden;
	}
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		arguments[count++] = fixed[i];
	for (size_t i = 0; i < OPTIONS_MAX && trip->options[i] != NULL; i++)
		arguments[count++] = trip->options[i];
	arguments[count] = NULL;
	world_generate(world, arguments);
}

static void compare_one(const struct round_trip *trip, const struct truth *truth, struct cnre *client, uint32_t layer,
			uint32_t expert)
{
	struct container_part part[CNRE_ROLES];
	struct cnre_expert leased, described;
	char why[CONTAINER_WHY_BYTES] = "";
	const char *format[3];
	int r;

	choose_formats(trip, layer, format);
	cr_assert_eq(container_find(&trip->container, truth, layer, expert, format, part, why), 0, "%s: layer %u: %s",
		     trip->family, layer, why);
	r = cnre_acquire(client, layer, expert, ACQUIRE_TIMEOUT_NS, &leased);
	cr_assert_eq(r, 0, "%s: acquire %u/%u: %s", trip->family, layer, expert, strerror(-r));
	cr_assert_eq(container_compare(part, &leased, why), 0, "%s (%s): %u/%u: %s", trip->family, format[0], layer,
		     expert, why);
	cr_assert_eq(leased.bytes, container_expert_bytes(&trip->container, format));
	cr_assert_eq(cnre_release(client, &leased), 0);
	cr_assert_eq(cnre_describe(client, layer, expert, &described), 0);
	cr_assert_eq(container_compare(part, &described, why), 0, "described: %s", why);
}

/* Totals that the manager tells, from the same formulas. */
static void compare_model(const struct round_trip *trip, struct cnre *client)
{
	struct cnre_model_info info = {.size = sizeof info};
	uint64_t total = 0, min = UINT64_MAX, max = 0, bytes;
	uint32_t objects = 0, most = 0, layers = trip->container.layers + trip->rows;
	const char *format[3];

	for (uint32_t layer = 0; layer < layers; layer++) {
		choose_formats(trip, layer, format);
		bytes = container_expert_bytes(&trip->container, format);
		if (experts_of(trip, layer) == 0)
			continue;
		objects += experts_of(trip, layer);
		most = most > experts_of(trip, layer) ? most : experts_of(trip, layer);
		total += bytes * experts_of(trip, layer);
		min = min < bytes ? min : bytes;
		max = max > bytes ? max : bytes;
	}
	cr_assert_eq(cnre_model(client, &info), 0);
	cr_expect_str_eq(info.family, trip->model_family);
	cr_expect_eq(info.layer_count, layers, "%s: %u layers, not %u", trip->family, info.layer_count, layers);
	cr_expect_eq(info.expert_count, most, "%s: %u experts, not %u", trip->family, info.expert_count, most);
	cr_expect_eq(info.object_count, objects);
	cr_expect_eq(info.total_bytes, total);
	cr_expect_eq(info.expert_bytes_min, min);
	cr_expect_eq(info.expert_bytes_max, max);
}

static void compare_all(const struct round_trip *trip, struct world *world)
{
	struct truth *truth = NULL;
	struct cnre *client = world_attach(world, 0);
	struct cnre_expert none;

	cr_assert_eq(truth_open(&truth, world->model), 0);
	for (uint32_t layer = 0; layer < trip->container.layers + trip->rows; layer++) {
		for (uint32_t expert = 0; expert < experts_of(trip, layer); expert++)
			compare_one(trip, truth, client, layer, expert);
		cr_expect_eq(cnre_describe(client, layer, experts_of(trip, layer), &none), -ENOENT,
			     "%s: layer %u has more than %u experts", trip->family, layer, experts_of(trip, layer));
	}
	compare_model(trip, client);
	truth_close(truth);
	cnre_detach(client);
}

/* What the manager said last. */
static const char *last_line(const struct world *world)
{
	static char line[1024];
	FILE *log = fopen(world->log, "r");

	line[0] = '\0';
	while (log != NULL && fgets(line, sizeof line, log) != NULL)
		;
	if (log != NULL)
		(void)fclose(log);
	return line;
}

static void serve_and_compare(struct world *world, const struct round_trip *trip)
{
	const char *const options[] = {"--ram", trip->ram != NULL ? trip->ram : "32M", NULL};
	int r = world_start(world, options);

	cr_assert_gt(r, 0, "%s: the manager refused the model: %s", trip->family, last_line(world));
	compare_all(trip, world);
}

static void verify_generated(const struct world *world)
{
	const char *const arguments[] = {"--verify", world->model, NULL};
	char output[512] = "";

	cr_assert_eq(world_run("cnre-gen", arguments, output, sizeof output), 0, "%s", output);
}

static void go(const struct round_trip *trip)
{
	struct world world;

	world_open(&world);
	generate(&world, trip);
	verify_generated(&world);
	serve_and_compare(&world, trip);
	world_close(&world);
}

/* ---- every family ---- */

#define QS(layers_, experts_, width_, intermediate_)                             \
	{                                                                        \
		CONTAINER_QS, "model.", layers_, experts_, width_, intermediate_ \
	}

Test(system_containers, olmoe_merged_rows_and_plain_matrices)
{
	const struct container merged = {CONTAINER_MERGED, "model.", 2, 4, 64, 32},
			       plain = {CONTAINER_PLAIN, "model.", 2, 4, 64, 32};

	go(&(struct round_trip){
		.family = "olmoe", .model_family = "olmoe", .container = merged, .format = {"int8-row"}});
	go(&(struct round_trip){.family = "olmoe",
				.model_family = "olmoe",
				.container = plain,
				.format = {"f16"},
				.options = {"--expert-format", "f16"}});
}

Test(system_containers, glm_in_every_format)
{
	static const char *const formats[] = {"int4-row", "int4-gs64", "int4-gs128", "int8-row", "int2-row", "int3-g64",
					      "iq3",      "fp8-block", "bf16",       "f16",      "f32"};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		go(&(struct round_trip){.family = "glm",
					.model_family = "glm",
					.container = QS(2, 2, 512, 256),
					.format = {formats[i]},
					.options = {"--expert-format", formats[i]}});
}

Test(system_containers, glm_with_dense_layers_int8_rows_among_int4_and_an_mtp_row)
{
	go(&(struct round_trip){.family = "GLM-5.2",
				.model_family = "glm",
				.container = QS(6, 5, 128, 64),
				.dense = 2,
				.rows = 1,
				.format = {"int4-row"},
				.row_format = "int8-row",
				.mixed = {{3, "int8-row"}, {5, "int2-row"}},
				.options = {"--mixed-layer", "3:int8-row", "--mixed-layer", "5:int2-row", "--unaligned",
					    "--shard-bytes", "60K"}});
}

Test(system_containers, glm_with_another_format_for_one_matrix)
{
	go(&(struct round_trip){.family = "glm",
				.model_family = "glm",
				.container = QS(2, 3, 256, 128),
				.format = {"int4-row", "int3-g64", "int4-row"},
				.options = {"--matrix-format", "up:int3-g64"}});
}

/*
 * Widths that fill no byte, group or block. Groups of 48 and of 128 would give other numbers of scales: which group a row
 * has stands nowhere else.
 */
Test(system_containers, glm_with_rows_that_end_in_the_middle_of_a_byte_and_of_a_group)
{
	static const char *const formats[] = {"int4-row", "int4-gs64", "int2-row", "int3-g64", "fp8-block"};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		go(&(struct round_trip){.family = "glm",
					.model_family = "glm",
					.container = QS(1, 3, 199, 259),
					.format = {formats[i]},
					.options = {"--expert-format", formats[i]}});
}

/* 18,915,328 bytes an expert with int4 rows, 37,789,696 with int8 rows. */
Test(system_containers, glm_experts_of_the_real_size)
{
	const struct container container = QS(1, 1, 6144, 2048);
	static const char *const int4[3] = {"int4-row", "int4-row", "int4-row"}, *const int8[3] = {"int8-row",
												   "int8-row",
												   "int8-row"};

	cr_assert_eq(container_expert_bytes(&container, int4), 18915328);
	cr_assert_eq(container_expert_bytes(&container, int8), 37789696);
	go(&(struct round_trip){.family = "glm",
				.model_family = "glm",
				.container = QS(1, 2, 6144, 2048),
				.rows = 1,
				.format = {"int4-row"},
				.row_format = "int8-row",
				.ram = "320M"});
}

Test(system_containers, the_published_sizes_of_other_models_follow_from_the_same_formulas)
{
	static const struct {
		struct container container;
		const char *format;
		uint64_t bytes;
	} cases[] = {
		{QS(78, 256, 6144, 2048), "int4-gs64", 21233664},
		{QS(78, 256, 6144, 2048), "iq3", 14450700},
		{QS(45, 288, 4096, 2048), "int4-gs64", 14155776},
		{{CONTAINER_MERGED, "model.", 16, 64, 2048, 1024}, "int8-row", 6291456 + 16384},
		{{CONTAINER_FFN, "", 43, 256, 4096, 2048}, "fp4", 13369344},
		{{CONTAINER_SCALE_INV, "model.", 48, 256, 2560, 640}, "fp8-block", 4915200 + 3 * 4 * 20 * 5},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *const format[3] = {cases[i].format, cases[i].format, cases[i].format};

		cr_expect_eq(container_expert_bytes(&cases[i].container, format), cases[i].bytes, "case %zu", i);
	}
}

Test(system_containers, glm53_under_both_prefixes)
{
	static const char *const prefixes[] = {"model.language_model.", "model."}, *const configs[] = {"nested",
												       "flat"};

	for (int i = 0; i < 2; i++)
		go(&(struct round_trip){.family = "glm-5.3-flash",
					.model_family = "glm53",
					.container = {CONTAINER_QS, prefixes[i], 4, 6, 256, 128},
					.dense = 3,
					.rows = 1,
					.format = {"int4-gs64"},
					.options = {"--prefix", prefixes[i], "--config", configs[i]}});
}

Test(system_containers, kimi_with_a_latent_space_under_both_prefixes)
{
	static const char *const prefixes[] = {"language_model.model.", "model."}, *const configs[] = {"nested",
												       "flat"};

	for (int i = 0; i < 2; i++)
		go(&(struct round_trip){.family = "Kimi-K3",
					.model_family = "kimi_k3",
					.container = {CONTAINER_PACKED, prefixes[i], 3, 7, 96, 160},
					.dense = 1,
					.format = {"mxfp4"},
					.hidden = "224",
					.options = {"--prefix", prefixes[i], "--config", configs[i]}});
}

Test(system_containers, kimi_as_wide_as_the_model)
{
	go(&(struct round_trip){.family = "kimi",
				.model_family = "kimi_k3",
				.container = {CONTAINER_PACKED, "language_model.model.", 1, 3, 64, 32},
				.format = {"mxfp4"}});
}

Test(system_containers, inkling_slices_of_fused_tensors)
{
	static const char *const formats[] = {"int4-row", "int8-row", "bf16", "f16", "f32"};
	static const char *const configs[] = {"nested", "flat"};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		go(&(struct round_trip){.family = "inkling",
					.model_family = "inkling",
					.container = {CONTAINER_FUSED, "model.", 3, 5, 128, 96},
					.dense = 1,
					.format = {formats[i]},
					.mixed = {{2, i == 0 ? "int8-row" : NULL}},
					.options = {"--expert-format", formats[i], "--config", configs[i % 2],
						    i == 0 ? "--mixed-layer" : NULL, "2:int8-row"}});
}

Test(system_containers, qwen36_merged_rows_in_every_format)
{
	static const char *const formats[] = {"int4-gs64", "int4-row", "int4-gs128", "int8-row"};
	static const char *const configs[] = {"flat", "nested"};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		go(&(struct round_trip){.family = "qwen3.6",
					.model_family = "qwen36",
					.container = {CONTAINER_MERGED, "model.", 2, 4, 256, 128},
					.format = {formats[i]},
					.options = {"--expert-format", formats[i], "--config", configs[i % 2]}});
}

Test(system_containers, qwen36_int8_rows_of_down_behind_int4_ones)
{
	go(&(struct round_trip){.family = "qwen36",
				.model_family = "qwen36",
				.container = {CONTAINER_MERGED, "model.", 2, 4, 256, 128},
				.format = {"int4-gs64", "int4-gs64", "int8-row"},
				.options = {"--matrix-format", "down:int8-row"}});
}

Test(system_containers, qwen38_blocks_with_both_kinds_of_scales_and_plain)
{
	static const char *const formats[] = {"fp8-block", "fp8-block-bf16", "bf16"};
	static const char *const prefixes[] = {"model.language_model.", "model."}, *const configs[] = {"nested",
												       "flat"};

	for (int i = 0; i < 3; i++)
		go(&(struct round_trip){.family = "qwen3.8",
					.model_family = "qwen38",
					.container = {CONTAINER_SCALE_INV, prefixes[i % 2], 2, 5, 320, 160},
					.format = {formats[i]},
					.options = {"--expert-format", formats[i], "--prefix", prefixes[i % 2],
						    "--config", configs[i % 2]}});
}

Test(system_containers, deepseek_v4_with_drafts)
{
	go(&(struct round_trip){.family = "deepseek-v4",
				.model_family = "deepseek_v4",
				.container = {CONTAINER_FFN, "", 3, 6, 128, 96},
				.rows = 2,
				.format = {"fp4"}});
}

/* As after pruning: 132 experts, their six tensors anywhere in any shard. */
Test(system_containers, deepseek_v4_scattered_over_shards)
{
	go(&(struct round_trip){.family = "dsv4",
				.model_family = "deepseek_v4",
				.container = {CONTAINER_FFN, "", 2, 132, 64, 32},
				.rows = 1,
				.format = {"fp4"},
				.options = {"--scattered", "--shard-bytes", "100K"}});
}

Test(system_containers, deepseek_v41_with_drafts_of_fewer_experts)
{
	static const char *const configs[] = {"nested", "flat"};

	for (int i = 0; i < 2; i++)
		go(&(struct round_trip){.family = "deepseek_v4.1",
					.model_family = "deepseek_v41",
					.container = {CONTAINER_FFN, "", 2, 8, 160, 96},
					.rows = 3,
					.row_experts = 3,
					.format = {"fp4"},
					.options = {"--mtp-experts", "3", "--config", configs[i]}});
}

Test(system_containers, mimo_with_a_list_of_dense_layers)
{
	go(&(struct round_trip){.family = "mimo-v2.6",
				.model_family = "mimo",
				.container = {CONTAINER_SCALE, "model.", 3, 6, 128, 96},
				.dense = 1,
				.format = {"mxfp4"}});
}

/* ---- containers that were made for the real engines ---- */

static void compare_vector(const char *name, const struct round_trip *trip)
{
	const char *directory = getenv("CNRE_VECTORS");
	struct world world;

	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/%s", directory != NULL ? directory : "../shared/vectors",
		       name);
	if (access(world.model, R_OK) != 0) {
		world_close(&world);
		cr_skip("no %s", name);
	}
	serve_and_compare(&world, trip);
	world_close(&world);
}

Test(system_containers, the_glm_vector_part_by_part)
{
	compare_vector("glm-tiny", &(struct round_trip){.family = "glm-tiny",
							.model_family = "glm",
							.container = QS(6, 16, 128, 64),
							.dense = 2,
							.format = {"int4-row"}});
}

Test(system_containers, the_deepseek_vector_part_by_part)
{
	compare_vector("deepseek-v4-tiny", &(struct round_trip){.family = "deepseek-v4-tiny",
								.model_family = "deepseek_v4",
								.container = {CONTAINER_FFN, "", 3, 8, 128, 128},
								.format = {"fp4"}});
}
