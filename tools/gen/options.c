/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of cnre-gen; see options.h. */
#include "tools/gen/options.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES_DEFAULT (4ull << 30)
#define MIXED_MAX 64

enum {
	OPTION_FAMILY = 256,
	OPTION_OUT,
	OPTION_VERIFY,
	OPTION_SEED,
	OPTION_EXPERT_FORMAT,
	OPTION_DENSE_FORMAT,
	OPTION_POPULARITY,
	OPTION_SHARD_BYTES,
	OPTION_MIXED_LAYER,
	OPTION_UNALIGNED,
	OPTION_FORCE,
	OPTION_PROGRESS,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_NUMBER, /* OPTION_NUMBER + i: numbers[i] */
};

struct number { /* a whole number of the model */
	const char *name;
	size_t field_off;
	uint32_t max;
	int required;
};

static const struct number numbers[] = {
	{"layers", offsetof(struct gen_model, layers), GEN_LAYERS_MAX, 1},
	{"experts", offsetof(struct gen_model, experts), GEN_EXPERTS_MAX, 1},
	{"top-k", offsetof(struct gen_model, top_k), GEN_EXPERTS_MAX, 1},
	{"hidden", offsetof(struct gen_model, hidden), GEN_EXTENT_MAX, 1},
	{"intermediate", offsetof(struct gen_model, intermediate), GEN_EXTENT_MAX, 1},
	{"vocab", offsetof(struct gen_model, vocab), GEN_VOCAB_MAX, 1},
	{"heads", offsetof(struct gen_model, heads), GEN_EXTENT_MAX, 0},
};

static const struct option options_table[] = {
	{"family", required_argument, NULL, OPTION_FAMILY},
	{"out", required_argument, NULL, OPTION_OUT},
	{"verify", required_argument, NULL, OPTION_VERIFY},
	{"layers", required_argument, NULL, OPTION_NUMBER + 0},
	{"experts", required_argument, NULL, OPTION_NUMBER + 1},
	{"top-k", required_argument, NULL, OPTION_NUMBER + 2},
	{"hidden", required_argument, NULL, OPTION_NUMBER + 3},
	{"intermediate", required_argument, NULL, OPTION_NUMBER + 4},
	{"vocab", required_argument, NULL, OPTION_NUMBER + 5},
	{"heads", required_argument, NULL, OPTION_NUMBER + 6},
	{"seed", required_argument, NULL, OPTION_SEED},
	{"expert-format", required_argument, NULL, OPTION_EXPERT_FORMAT},
	{"dense-format", required_argument, NULL, OPTION_DENSE_FORMAT},
	{"popularity", required_argument, NULL, OPTION_POPULARITY},
	{"shard-bytes", required_argument, NULL, OPTION_SHARD_BYTES},
	{"mixed-layer", required_argument, NULL, OPTION_MIXED_LAYER},
	{"unaligned", no_argument, NULL, OPTION_UNALIGNED},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"progress", no_argument, NULL, OPTION_PROGRESS},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

struct parsing {
	struct gen_options *options;
	char *message;
	enum gen_format expert_format;
	uint32_t mixed_count, mixed_layer[MIXED_MAX];
	enum gen_format mixed_format[MIXED_MAX];
	int has_family, has_seed;
};

static int refuse(const struct parsing *parsing, const char *option, const char *text, const char *expected)
{
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s %.80s: %s", option, text, expected);
}

static int parse_u64(const char *text, uint64_t *ret_value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret_value = strtoull(text, &end, 10);
	return errno != 0 || *end != '\0' ? -EINVAL : 0;
}

static int take_number(const struct parsing *parsing, const struct number *number, const char *text)
{
	uint64_t value = 0;
	char expected[64];

	(void)snprintf(expected, sizeof expected, "expected a whole number from 1 to %u", number->max);
	if (parse_u64(text, &value) < 0 || value < 1 || value > number->max)
		return refuse(parsing, number->name, text, expected);
	*(uint32_t *)((char *)&parsing->options->model + number->field_off) = (uint32_t)value;
	return 0;
}

/* LAYER:FORMAT */
static int take_mixed_layer(struct parsing *parsing, const char *text)
{
	static const char expected[] = "expected LAYER:FORMAT, such as 3:bf16";
	uint64_t layer = 0;
	char number[8];
	const char *colon = strchr(text, ':');

	if (colon == NULL || (size_t)(colon - text) >= sizeof number)
		return refuse(parsing, "mixed-layer", text, expected);
	(void)snprintf(number, sizeof number, "%.*s", (int)(colon - text), text);
	if (parse_u64(number, &layer) < 0 || layer >= GEN_LAYERS_MAX || parsing->mixed_count == MIXED_MAX ||
	    gen_format_parse(colon + 1, &parsing->mixed_format[parsing->mixed_count]) < 0)
		return refuse(parsing, "mixed-layer", text, expected);
	parsing->mixed_layer[parsing->mixed_count++] = (uint32_t)layer;
	return 0;
}

static int take_value(struct parsing *parsing, int option, const char *text)
{
	struct gen_options *options = parsing->options;

	switch (option) {
	case OPTION_FAMILY:
		parsing->has_family = 1;
		options->model.family = "olmoe";
		return strcmp(text, "olmoe") == 0 ? 0 : refuse(parsing, "family", text, "known: olmoe");
	case OPTION_OUT:
	case OPTION_VERIFY:
		options->verify = option == OPTION_VERIFY;
		options->directory = text;
		return *text != '\0' ? 0 : refuse(parsing, "out", text, "expected a directory");
	case OPTION_SEED:
		parsing->has_seed = 1;
		return parse_u64(text, &options->model.seed) == 0 && options->model.seed <= INT64_MAX
			       ? 0
			       : refuse(parsing, "seed", text, "expected a whole number below 2^63");
	case OPTION_EXPERT_FORMAT:
		return gen_format_parse(text, &parsing->expert_format) == 0
			       ? 0
			       : refuse(parsing, "expert-format", text, "known: int8-row bf16 f16 f32");
	case OPTION_DENSE_FORMAT:
		return gen_format_parse(text, &options->model.dense_format) == 0
			       ? 0
			       : refuse(parsing, "dense-format", text, "known: bf16 f16 f32");
	case OPTION_POPULARITY:
		return gen_popularity_parse(text, &options->model.popularity) == 0
			       ? 0
			       : refuse(parsing, "popularity", text, "known: uniform glm olmoe");
	case OPTION_SHARD_BYTES:
		return cnre_size_parse(text, &options->model.shard_bytes) == 0 && options->model.shard_bytes > 0 &&
				       options->model.shard_bytes <= INT64_MAX
			       ? 0
			       : refuse(parsing, "shard-bytes", text, "expected a size such as 512M");
	default:
		return take_mixed_layer(parsing, text);
	}
}

static int take_option(struct parsing *parsing, int option, const char *text)
{
	struct gen_options *options = parsing->options;

	switch (option) {
	case OPTION_UNALIGNED:
		options->model.unaligned = 1;
		return 0;
	case OPTION_FORCE:
		options->force = 1;
		return 0;
	case OPTION_PROGRESS:
		options->progress = 1;
		return 0;
	case OPTION_HELP:
		options->wants_help = 1;
		return 0;
	case OPTION_VERSION:
		options->wants_version = 1;
		return 0;
	default:
		if (option >= OPTION_NUMBER)
			return take_number(parsing, &numbers[option - OPTION_NUMBER], text);
		return take_value(parsing, option, text);
	}
}

static int check_required(const struct parsing *parsing)
{
	const struct gen_model *model = &parsing->options->model;
	const char *missing = NULL;
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(numbers) && missing == NULL; i++)
		if (numbers[i].required && *(const uint32_t *)((const char *)model + numbers[i].field_off) == 0)
			missing = numbers[i].name;
	if (missing == NULL && !parsing->has_seed)
		missing = "seed";
	if (missing == NULL && !parsing->has_family)
		missing = "family";
	if (missing == NULL && parsing->options->directory == NULL)
		missing = "out";
	if (missing == NULL)
		return 0;
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s is missing", missing);
}

static int finish_model(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	uint32_t i;
	int result = check_required(parsing);

	if (result < 0)
		return result;
	if (model->heads == 0)
		model->heads = gen_model_default_heads(model->hidden);
	for (i = 0; i < model->layers; i++)
		model->expert_format[i] = (uint8_t)parsing->expert_format;
	for (i = 0; i < parsing->mixed_count; i++) {
		if (parsing->mixed_layer[i] >= model->layers)
			return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL,
					    "--mixed-layer %u: the model has %u layers", parsing->mixed_layer[i],
					    model->layers);
		model->expert_format[parsing->mixed_layer[i]] = (uint8_t)parsing->mixed_format[i];
	}
	return gen_model_check(model, parsing->message);
}

int gen_options_parse(int argc, char **argv, struct gen_options *ret_options, char message[GEN_MESSAGE_BYTES])
{
	struct gen_options options = {.model = {.shard_bytes = SHARD_BYTES_DEFAULT, .dense_format = GEN_F32}};
	struct parsing parsing = {.options = &options, .message = message, .expert_format = GEN_INT8_ROW};
	int option, result = 0;

	opterr = 0;
	while (result == 0 && (option = getopt_long(argc, argv, ":", options_table, NULL)) != -1) {
		if (option == '?' || option == ':')
			return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "%.80s: %s", argv[optind - 1],
					    option == '?' ? "unknown option" : "needs a value");
		result = take_option(&parsing, option, optarg);
	}
	if (result == 0 && optind < argc)
		result = cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "%.80s: unexpected argument", argv[optind]);
	if (result == 0 && !options.wants_help && !options.wants_version && !options.verify)
		result = finish_model(&parsing);
	if (result == 0)
		*ret_options = options;
	return result;
}
