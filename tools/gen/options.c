/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of cnre-gen; see options.h. */
#include "tools/gen/options.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"
#include "tools/gen/family.h"

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
	OPTION_MATRIX_FORMAT,
	OPTION_PREFIX,
	OPTION_SHARD_NAMES,
	OPTION_CONFIG,
	OPTION_UNALIGNED,
	OPTION_SCATTERED,
	OPTION_FORCE,
	OPTION_PROGRESS,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_NUMBER, /* OPTION_NUMBER + i: gen_numbers[i] */
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
	{"dense-layers", required_argument, NULL, OPTION_NUMBER + 7},
	{"mtp", required_argument, NULL, OPTION_NUMBER + 8},
	{"mtp-experts", required_argument, NULL, OPTION_NUMBER + 9},
	{"latent", required_argument, NULL, OPTION_NUMBER + 10},
	{"seed", required_argument, NULL, OPTION_SEED},
	{"expert-format", required_argument, NULL, OPTION_EXPERT_FORMAT},
	{"dense-format", required_argument, NULL, OPTION_DENSE_FORMAT},
	{"popularity", required_argument, NULL, OPTION_POPULARITY},
	{"shard-bytes", required_argument, NULL, OPTION_SHARD_BYTES},
	{"mixed-layer", required_argument, NULL, OPTION_MIXED_LAYER},
	{"matrix-format", required_argument, NULL, OPTION_MATRIX_FORMAT},
	{"prefix", required_argument, NULL, OPTION_PREFIX},
	{"shard-names", required_argument, NULL, OPTION_SHARD_NAMES},
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"scattered", no_argument, NULL, OPTION_SCATTERED},
	{"unaligned", no_argument, NULL, OPTION_UNALIGNED},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"progress", no_argument, NULL, OPTION_PROGRESS},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

/* What depends on the family is kept as it was said until all options are read. */
struct parsing {
	struct gen_options *options;
	char *message;
	const char *prefix;
	enum gen_format expert_format, dense_format; /* GEN_FORMATS: the family's */
	int shard_names, config;                     /* -1: the family's */
	uint32_t mixed_count, mixed_layer[MIXED_MAX];
	enum gen_format mixed_format[MIXED_MAX];
	int has_seed;
};

static int refuse(const struct parsing *parsing, const char *option, const char *text, const char *expected)
{
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s %.80s: %s", option, text, expected);
}

/* One of a list of names. */
static int refuse_name(const struct parsing *parsing, const char *option, const char *text, const char *list)
{
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s %.80s: known: %s", option, text, list);
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

static int take_number(const struct parsing *parsing, const struct gen_number *number, const char *text)
{
	uint64_t value = 0;
	char expected[64];

	(void)snprintf(expected, sizeof expected, "expected a whole number from %u to %u", number->min, number->max);
	if (parse_u64(text, &value) < 0 || value < number->min || value > number->max)
		return refuse(parsing, number->name, text, expected);
	*gen_number_field(&parsing->options->model, number) = (uint32_t)value;
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

/* MATRIX:FORMAT */
static int take_matrix_format(const struct parsing *parsing, const char *text)
{
	static const char *const matrices[GEN_MATRICES] = {"gate:", "up:", "down:"};
	enum gen_format format = GEN_FORMATS;
	uint32_t i;

	for (i = 0; i < GEN_MATRICES; i++)
		if (strncmp(text, matrices[i], strlen(matrices[i])) == 0 &&
		    gen_format_parse(text + strlen(matrices[i]), &format) == 0) {
			parsing->options->model.matrix_format[i] = (uint8_t)format;
			return 0;
		}
	return refuse(parsing, "matrix-format", text, "expected MATRIX:FORMAT, such as down:int8-row");
}

static int take_format(const struct parsing *parsing, const char *option, uint32_t formats, const char *text,
		       enum gen_format *ret_format)
{
	char list[256];

	if (gen_format_parse(text, ret_format) == 0)
		return 0;
	return refuse_name(parsing, option, text, gen_format_list(formats, list, sizeof list));
}

static int take_family(const struct parsing *parsing, const char *text)
{
	char list[256];

	parsing->options->model.family = gen_family_find(text);
	if (parsing->options->model.family != NULL)
		return 0;
	return refuse_name(parsing, "family", text, gen_family_list(list, sizeof list));
}

static int take_directory(const struct parsing *parsing, int verify, const char *text)
{
	parsing->options->verify = verify;
	parsing->options->directory = text;
	return *text != '\0' ? 0 : refuse(parsing, verify ? "verify" : "out", text, "expected a directory");
}

static int take_shard_bytes(const struct parsing *parsing, const char *text)
{
	uint64_t *bytes = &parsing->options->model.shard_bytes;

	if (cnre_size_parse(text, bytes) == 0 && *bytes > 0 && *bytes <= INT64_MAX)
		return 0;
	return refuse(parsing, "shard-bytes", text, "expected a size such as 512M");
}

static int take_seed(struct parsing *parsing, const char *text)
{
	parsing->has_seed = 1;
	if (parse_u64(text, &parsing->options->model.seed) == 0 && parsing->options->model.seed <= INT64_MAX)
		return 0;
	return refuse(parsing, "seed", text, "expected a whole number below 2^63");
}

static int take_choice(struct parsing *parsing, int option, const char *text)
{
	enum gen_shard_names names = GEN_NAMES_HF;
	enum gen_config config = GEN_CONFIG_NESTED;

	switch (option) {
	case OPTION_POPULARITY:
		return gen_popularity_parse(text, &parsing->options->model.popularity) == 0
			       ? 0
			       : refuse_name(parsing, "popularity", text, "uniform glm olmoe");
	case OPTION_SHARD_NAMES:
		if (gen_shard_names_parse(text, &names) < 0)
			return refuse_name(parsing, "shard-names", text, "hf converter");
		parsing->shard_names = (int)names;
		return 0;
	default: /* OPTION_CONFIG */
		if (gen_config_parse(text, &config) < 0)
			return refuse_name(parsing, "config", text, "nested flat");
		parsing->config = (int)config;
		return 0;
	}
}

static int take_value(struct parsing *parsing, int option, const char *text)
{
	switch (option) {
	case OPTION_FAMILY:
		return take_family(parsing, text);
	case OPTION_OUT:
	case OPTION_VERIFY:
		return take_directory(parsing, option == OPTION_VERIFY, text);
	case OPTION_SEED:
		return take_seed(parsing, text);
	case OPTION_EXPERT_FORMAT:
		return take_format(parsing, "expert-format", GEN_FORMAT_BIT(GEN_FORMATS) - 1, text,
				   &parsing->expert_format);
	case OPTION_DENSE_FORMAT:
		return take_format(parsing, "dense-format", GEN_PLAIN, text, &parsing->dense_format);
	case OPTION_SHARD_BYTES:
		return take_shard_bytes(parsing, text);
	case OPTION_PREFIX:
		parsing->prefix = text;
		return 0;
	case OPTION_MATRIX_FORMAT:
		return take_matrix_format(parsing, text);
	case OPTION_MIXED_LAYER:
		return take_mixed_layer(parsing, text);
	default:
		return take_choice(parsing, option, text);
	}
}

static int take_option(struct parsing *parsing, int option, const char *text)
{
	struct gen_options *options = parsing->options;

	switch (option) {
	case OPTION_UNALIGNED:
		options->model.unaligned = 1;
		return 0;
	case OPTION_SCATTERED:
		options->model.scattered = 1;
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
			return take_number(parsing, &gen_numbers[option - OPTION_NUMBER], text);
		return take_value(parsing, option, text);
	}
}

static int check_required(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	const char *missing = NULL;
	size_t i;

	for (i = 0; i < GEN_NUMBERS && missing == NULL; i++)
		if (gen_numbers[i].required && *gen_number_field(model, &gen_numbers[i]) == 0)
			missing = gen_numbers[i].name;
	if (missing == NULL && !parsing->has_seed)
		missing = "seed";
	if (missing == NULL && model->family == NULL)
		missing = "family";
	if (missing == NULL && parsing->options->directory == NULL)
		missing = "out";
	if (missing == NULL)
		return 0;
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s is missing", missing);
}

static int refuse_family(const struct parsing *parsing, const char *option)
{
	return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL, "--%s means nothing for %s: leave it out",
			    option, parsing->options->model.family->name);
}

/* Options that this family has nothing for. */
static int check_takes(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	uint32_t takes = model->family->takes;
	size_t i;

	for (i = 0; i < GEN_NUMBERS; i++)
		if (gen_numbers[i].needs != 0 && (takes & gen_numbers[i].needs) == 0 &&
		    *gen_number_field(model, &gen_numbers[i]) != 0)
			return refuse_family(parsing, gen_numbers[i].name);
	if (parsing->config >= 0 && (takes & GEN_TAKES_CONFIG) == 0)
		return refuse_family(parsing, "config");
	for (i = 0; i < GEN_MATRICES; i++)
		if (model->matrix_format[i] != GEN_FORMATS && (takes & GEN_TAKES_MATRIX_FORMAT) == 0)
			return refuse_family(parsing, "matrix-format");
	return 0;
}

static int choose_prefix(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	const char *const *known = model->family->prefixes;
	char list[128] = "";
	size_t used = 0;

	model->prefix = parsing->prefix == NULL ? known[0] : gen_family_prefix(model->family, parsing->prefix);
	if (model->prefix != NULL)
		return 0;
	for (; *known != NULL && used < sizeof list; known++)
		used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\"", used == 0 ? "" : " ", *known);
	return refuse_name(parsing, "prefix", parsing->prefix, list);
}

static void choose_formats(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	const struct gen_family *family = model->family;
	uint32_t i;

	model->dense_format = parsing->dense_format != GEN_FORMATS ? parsing->dense_format
								   : (enum gen_format)family->dense_format;
	for (i = 0; i < gen_model_rows(model) && i < GEN_LAYERS_MAX; i++) {
		model->expert_format[i] = (uint8_t)parsing->expert_format;
		if (parsing->expert_format == GEN_FORMATS)
			model->expert_format[i] = family->default_format;
		if (i >= model->layers && family->mtp_format != GEN_FORMATS)
			model->expert_format[i] = family->mtp_format;
	}
}

static int mix_layers(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	uint32_t i, layer;

	for (i = 0; i < parsing->mixed_count; i++) {
		layer = parsing->mixed_layer[i];
		if (layer >= gen_model_rows(model))
			return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL,
					    "--mixed-layer %u: the model has %u layers%s", layer, gen_model_rows(model),
					    model->mtp > 0 ? " with its MTP rows" : "");
		if (gen_model_experts(model, layer) == 0)
			return cnre_message(parsing->message, GEN_MESSAGE_BYTES, -EINVAL,
					    "--mixed-layer %u: that layer is dense", layer);
		model->expert_format[layer] = (uint8_t)parsing->mixed_format[i];
	}
	return 0;
}

static int finish_model(const struct parsing *parsing)
{
	struct gen_model *model = &parsing->options->model;
	int result = check_required(parsing);

	if (result == 0)
		result = check_takes(parsing);
	if (result == 0)
		result = choose_prefix(parsing);
	if (result < 0)
		return result;
	if (model->heads == 0)
		model->heads = gen_model_default_heads(model->hidden);
	model->shard_names =
		(enum gen_shard_names)(parsing->shard_names >= 0 ? parsing->shard_names : model->family->shard_names);
	model->config = (enum gen_config)(parsing->config >= 0 ? parsing->config : model->family->config);
	choose_formats(parsing);
	result = mix_layers(parsing);
	return result < 0 ? result : gen_model_check(model, parsing->message);
}

int gen_options_parse(int argc, char **argv, struct gen_options *ret_options, char message[GEN_MESSAGE_BYTES])
{
	struct gen_options options = {.model = {.shard_bytes = SHARD_BYTES_DEFAULT,
						.matrix_format = {GEN_FORMATS, GEN_FORMATS, GEN_FORMATS}}};
	struct parsing parsing = {.options = &options,
				  .message = message,
				  .expert_format = GEN_FORMATS,
				  .dense_format = GEN_FORMATS,
				  .shard_names = -1,
				  .config = -1};
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
