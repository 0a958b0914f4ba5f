/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of cnre-sim generate; see generate.h. */
#include "tools/sim/generate.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPERT_BYTES_DEFAULT (18ull << 20)
#define EXPERT_BYTES_MAX (1ull << 40)

enum {
	OPTION_PRESET = 256,
	OPTION_OUT,
	OPTION_TO,
	OPTION_SEED,
	OPTION_EXPERT_BYTES,
	OPTION_FORCE,
	OPTION_HELP,
	OPTION_WHOLE = 512, /* + i: wholes[i] */
	OPTION_REAL = 768
}; /* + i: reals[i] */

#define OF(field) offsetof(struct sim_generation, field)

static const struct whole {
	const char *name;
	size_t offset;
	uint32_t min, max;
} wholes[] = {
	{"tokens", OF(tokens), 1, SIM_TOKENS_MAX},
	{"train-sessions", OF(train_sessions), 0, SIM_SESSIONS_MAX},
	{"eval-sessions", OF(eval_sessions), 0, SIM_SESSIONS_MAX},
	{"threads", OF(threads), 1, SIM_THREADS_MAX},
	{"layers", OF(setup.layers), 1, SIM_SYNTHETIC_LAYERS_MAX},
	{"experts", OF(setup.experts), 1, SIM_SYNTHETIC_EXPERTS_MAX},
	{"top-k", OF(setup.top_k), 1, SIM_SYNTHETIC_TOP_K_MAX},
	{"ramp-layers", OF(setup.ramp_layers), 0, SIM_SYNTHETIC_LAYERS_MAX},
	{"hot", OF(setup.hot), 0, SIM_SYNTHETIC_EXPERTS_MAX},
	{"vocab", OF(setup.vocab), 1, SIM_SYNTHETIC_VOCAB_MAX},
	{"switch-every", OF(setup.switch_every), 0, SIM_TOKENS_MAX},
};

static const struct real {
	const char *name;
	size_t offset;
	double min, max;
} reals[] = {
	{"base-sigma", OF(setup.base_sigma), 0, 1000},
	{"depth-ramp", OF(setup.depth_ramp), 0, 1},
	{"hot-boost", OF(setup.hot_boost), 0, 1000},
	{"category-sigma", OF(setup.category_sigma), 0, 1000},
	{"session-sigma", OF(setup.session_sigma), 0, 1000},
	{"drift-sigma", OF(setup.drift_sigma), 0, 1000},
	{"drift-tau", OF(setup.drift_tau), .01, 1e6},
	{"token-sigma", OF(setup.token_sigma), 0, 1000},
	{"zipf", OF(setup.zipf), 0, 10},
	{"noise", OF(setup.noise), 0, 1000},
};

static const struct option named[] = {
	{"preset", required_argument, NULL, OPTION_PRESET},
	{"out", required_argument, NULL, OPTION_OUT},
	{"to", required_argument, NULL, OPTION_TO},
	{"seed", required_argument, NULL, OPTION_SEED},
	{"expert-bytes", required_argument, NULL, OPTION_EXPERT_BYTES},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"help", no_argument, NULL, OPTION_HELP},
};

#define OPTIONS (CNRE_COUNT_OF(named) + CNRE_COUNT_OF(wholes) + CNRE_COUNT_OF(reals))

static void fill_table(struct option table[OPTIONS + 1])
{
	size_t i, count = CNRE_COUNT_OF(named);

	memcpy(table, named, sizeof named);
	for (i = 0; i < CNRE_COUNT_OF(wholes); i++)
		table[count++] = (struct option){wholes[i].name, required_argument, NULL, OPTION_WHOLE + (int)i};
	for (i = 0; i < CNRE_COUNT_OF(reals); i++)
		table[count++] = (struct option){reals[i].name, required_argument, NULL, OPTION_REAL + (int)i};
	table[count] = (struct option){NULL, 0, NULL, 0};
}

struct parsing {
	struct sim_generation *generation;
	char *message;
	size_t message_bytes;
	int seeks_preset; /* the first pass: others change what the preset says, wherever they stand */
};

static int refuse(const struct parsing *parsing, const char *option, const char *text, const char *expected)
{
	return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "--%s %.80s: %s", option, text,
			    expected);
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

static int take_whole(const struct parsing *parsing, const struct whole *whole, const char *text)
{
	uint64_t value = 0;
	char expected[64];

	(void)snprintf(expected, sizeof expected, "expected a whole number from %u to %u", whole->min, whole->max);
	if (parse_u64(text, &value) < 0 || value < whole->min || value > whole->max)
		return refuse(parsing, whole->name, text, expected);
	*(uint32_t *)((char *)parsing->generation + whole->offset) = (uint32_t)value;
	return 0;
}

static int take_real(const struct parsing *parsing, const struct real *real, const char *text)
{
	char expected[64], *end;
	double value = strtod(text, &end);

	(void)snprintf(expected, sizeof expected, "expected a number from %g to %g", real->min, real->max);
	if (end == text || *end != '\0' || !isfinite(value) || value < real->min || value > real->max)
		return refuse(parsing, real->name, text, expected);
	*(double *)((char *)parsing->generation + real->offset) = value;
	return 0;
}

static int take_format(const struct parsing *parsing, const char *text)
{
	enum sim_format format = SIM_FORMAT_AUTO;

	if (sim_format_parse(text, &format) < 0 || (format != SIM_FORMAT_BINARY && format != SIM_FORMAT_GROUP))
		return refuse(parsing, "to", text, "known: binary group");
	parsing->generation->to = format;
	return 0;
}

static int take_expert_bytes(const struct parsing *parsing, const char *text)
{
	uint64_t *bytes = &parsing->generation->expert_bytes;

	if (cnre_size_parse(text, bytes) < 0 || *bytes == 0 || *bytes > EXPERT_BYTES_MAX)
		return refuse(parsing, "expert-bytes", text, "expected a size such as 18M, at most 1T");
	return 0;
}

static int take_option(const struct parsing *parsing, int option, const char *text)
{
	struct sim_generation *generation = parsing->generation;

	if (parsing->seeks_preset != (option == OPTION_PRESET))
		return 0;
	if (option >= OPTION_REAL)
		return take_real(parsing, &reals[option - OPTION_REAL], text);
	if (option >= OPTION_WHOLE)
		return take_whole(parsing, &wholes[option - OPTION_WHOLE], text);
	switch (option) {
	case OPTION_PRESET:
		return sim_synthetic_preset(text, &generation->setup) == 0
			       ? 0
			       : refuse(parsing, "preset", text, "known: glm_a glm_b hot switch olmoe k3 uniform");
	case OPTION_OUT:
		generation->directory = text;
		return *text != '\0' ? 0 : refuse(parsing, "out", text, "expected a directory");
	case OPTION_TO:
		return take_format(parsing, text);
	case OPTION_SEED:
		return parse_u64(text, &generation->setup.seed) == 0
			       ? 0
			       : refuse(parsing, "seed", text, "expected a whole number");
	case OPTION_EXPERT_BYTES:
		return take_expert_bytes(parsing, text);
	case OPTION_FORCE:
		generation->force = 1;
		return 0;
	default:
		generation->wants_help = 1;
		return 0;
	}
}

static int pass(int argc, char **argv, struct parsing *parsing)
{
	struct option table[OPTIONS + 1];
	int option, result = 0;

	fill_table(table);
	opterr = 0;
	optind = 0; /* glibc: begin anew */
	while (result == 0 && (option = getopt_long(argc, argv, ":", table, NULL)) != -1) {
		if (option == '?' || option == ':')
			return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "%.80s: %s",
					    argv[optind - 1], option == '?' ? "unknown option" : "needs a value");
		result = take_option(parsing, option, optarg);
	}
	if (result == 0 && optind < argc)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "%.80s: unexpected argument",
				    argv[optind]);
	return result;
}

static int check(const struct parsing *parsing)
{
	const struct sim_generation *generation = parsing->generation;
	const struct sim_synthetic_setup *setup = &generation->setup;

	if (generation->directory == NULL)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "--out is missing");
	if (setup->top_k > setup->experts || setup->hot > setup->experts)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "--experts %u: fewer than --%s",
				    setup->experts, setup->top_k > setup->experts ? "top-k" : "hot");
	if (generation->train_sessions + generation->eval_sessions == 0)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL,
				    "--train-sessions 0 --eval-sessions 0: nothing to make");
	return 0;
}

int sim_generation_parse(int argc, char **argv, struct sim_generation *ret_generation, char *message,
			 size_t message_bytes)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	struct sim_generation generation = {.tokens = 240,
					    .train_sessions = 8,
					    .eval_sessions = 5,
					    .expert_bytes = EXPERT_BYTES_DEFAULT,
					    .to = SIM_FORMAT_BINARY};
	struct parsing parsing = {
		.generation = &generation, .message = message, .message_bytes = message_bytes, .seeks_preset = 1};
	int result;

	sim_synthetic_default(&generation.setup);
	generation.threads = processors < 1 ? 1 : processors > SIM_THREADS_MAX ? SIM_THREADS_MAX : (uint32_t)processors;
	result = pass(argc, argv, &parsing);
	if (generation.setup.seed == 0)
		generation.setup.seed = 1;
	parsing.seeks_preset = 0;
	if (result == 0)
		result = pass(argc, argv, &parsing);
	if (result == 0 && !generation.wants_help)
		result = check(&parsing);
	if (result == 0)
		*ret_generation = generation;
	return result;
}
