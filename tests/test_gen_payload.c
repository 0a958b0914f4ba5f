/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of tensors: the same in any piece, the same for ever, and never what is no number. */
#include "tools/gen/payload.h"

#include "tools/gen/layout.h"
#include "tools/gen/options.h"

#include <criterion/criterion.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 48
#define SIZES "--layers 2 --experts 2 --top-k 1 --hidden 256 --intermediate 256 --vocab 64 --seed 1 --out x "

static struct gen_options options;
static struct gen_layout layout;
static struct gen_payload payload;

TestSuite(gen_payload, .timeout = 60);

static void lay_out(const char *more)
{
	static char line[1024];
	char message[GEN_MESSAGE_BYTES] = "", *rest = line, *argv[WORDS_MAX + 1] = {NULL};
	int argc = 0;

	(void)snprintf(line, sizeof line, "cnre-gen " SIZES "%s", more);
	while (rest != NULL && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, " ");
	optind = 0;
	cr_assert_eq(gen_options_parse(argc, argv, &options, message), 0, "%s", message);
	cr_assert_eq(gen_layout_open(&layout, &options.model), 0);
	gen_payload_open(&payload, &options.model);
}

static unsigned char *bytes_of(const struct gen_tensor *tensor)
{
	unsigned char *bytes = malloc(tensor->bytes);

	cr_assert_not_null(bytes);
	gen_payload_fill(&payload, tensor, 0, tensor->bytes, bytes);
	return bytes;
}

static uint64_t hash_of(const struct gen_tensor *tensor)
{
	unsigned char *bytes = bytes_of(tensor);
	uint64_t hash = 0xcbf29ce484222325ull;

	for (uint64_t i = 0; i < tensor->bytes; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	free(bytes);
	return hash;
}

/*
 * A checkpoint that was made years ago still verifies, or PAYLOAD_VERSION in tools/gen/stamp.c goes up. Only tensors that
 * come out of integers: others depend on the last digit of the C library's functions.
 */
Test(gen_payload, bytes_are_those_of_the_first_version)
{
	static const struct {
		const char *options;
		uint32_t tensor;
		uint64_t hash;
	} cases[] = {
		{"--family olmoe", 0, 0xc09c0e3469d26acbull},       {"--family glm", 2, 0x7349bc5e7d0a9431ull},     {"--family glm --expert-format iq3", 0, 0xa0de553a28e0b94aull},
		{"--family kimi_k3", 1, 0xd2ee0f23edbec2cfull},     {"--family inkling", 0, 0x8c8672cfc3bf1b6bull}, {"--family qwen38", 1, 0xcfd39e77914e473cull},
		{"--family deepseek_v4", 4, 0x3242120f9dde0448ull},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		lay_out(cases[i].options);
		cr_expect_eq(hash_of(&layout.tensor[cases[i].tensor]), cases[i].hash, "%s: 0x%016llx", cases[i].options,
			     (unsigned long long)hash_of(&layout.tensor[cases[i].tensor]));
		gen_layout_done(&layout);
	}
}

Test(gen_payload, any_piece_has_the_bytes_that_the_whole_has_there)
{
	static const char *const cases[] = {"--family glm --expert-format iq3",
					    "--family glm --expert-format f16",
					    "--family qwen38 --expert-format fp8-block-bf16",
					    "--family inkling --expert-format int8-row",
					    "--family kimi_k3",
					    "--family olmoe"};
	unsigned char *whole, *piece;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		lay_out(cases[i]);
		for (uint32_t t = 0; t < 6; t++) {
			const struct gen_tensor *tensor = &layout.tensor[t];
			uint64_t unit = gen_payload_unit(tensor), at = tensor->bytes / 2 / unit * unit;

			whole = bytes_of(tensor);
			piece = malloc(tensor->bytes);
			gen_payload_fill(&payload, tensor, at, tensor->bytes - at, piece);
			cr_expect_eq(memcmp(piece, whole + at, tensor->bytes - at), 0, "%s: tensor %u", cases[i], t);
			free(piece);
			free(whole);
		}
		gen_layout_done(&layout);
	}
}

static void expect_floats(const struct gen_tensor *tensor, const unsigned char *bytes)
{
	float value;

	for (uint64_t i = 0; i < tensor->bytes; i += sizeof value) {
		memcpy(&value, bytes + i, sizeof value);
		cr_assert(isfinite(value) && value > 0 && value < 10, "%g", (double)value);
	}
}

Test(gen_payload, scales_are_finite_and_small_and_weights_are_numbers)
{
	unsigned char *bytes;

	lay_out("--family glm --expert-format int4-gs64");
	bytes = bytes_of(&layout.tensor[3]);
	expect_floats(&layout.tensor[3], bytes);
	free(bytes);
	gen_layout_done(&layout);
	lay_out("--family qwen38");
	bytes = bytes_of(&layout.tensor[0]);
	for (uint64_t i = 0; i < layout.tensor[0].bytes; i++)
		cr_assert_neq(bytes[i] & 0x7f, 0x7f, "byte %llu is NaN", (unsigned long long)i);
	free(bytes);
	gen_layout_done(&layout);
	lay_out("--family deepseek_v4");
	bytes = bytes_of(&layout.tensor[0]);
	for (uint64_t i = 0; i < layout.tensor[0].bytes; i++)
		cr_assert(bytes[i] >= 100 && bytes[i] <= 127, "2^%d", bytes[i] - 127);
	free(bytes);
	gen_layout_done(&layout);
}
