/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line of the replaying verbs; see options.h. An option is a line of the table and, unless it is of a common
 * kind, a function.
 */
#include "tools/sim/options.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"
#include "tools/sim/jobs.h"
#include "tools/sim/paths.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct parsing {
	struct sim_options *options;
	char *message;
	size_t message_bytes;
};

enum kind { FLAG, TEXT, NUMBER, REAL, OWN, WORDS };

struct option_row {
	const char *name, *argument, *summary;
	unsigned verbs;
	enum kind kind;
	size_t field_off;   /* FLAG int, TEXT const char *, NUMBER uint32_t, REAL double */
	double least, most; /* NUMBER, REAL */
	int (*take)(struct parsing *parsing, const struct option_row *row,
		    const char *text); /* OWN; WORDS: each of them */
};

static int refuse(const struct parsing *parsing, const struct option_row *row, const char *text, const char *expected)
{
	return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "--%s %.80s: %s", row->name, text,
			    expected);
}

/* ---- numbers ---- */

static int parse_u64(const char *text, uint64_t most, uint64_t *ret_value)
{
	uint64_t value;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || value > most)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

/* Up to a character of `ends`; *text moves there. */
static int parse_real(const char **text, const char *ends, double *ret_value)
{
	char *end;
	double value;

	if ((**text < '0' || **text > '9') && **text != '.')
		return -EINVAL;
	value = strtod(*text, &end);
	if (!isfinite(value) || (*end != '\0' && strchr(ends, *end) == NULL))
		return -EINVAL;
	*text = end;
	*ret_value = value;
	return 0;
}

static int take_number(struct parsing *parsing, const struct option_row *row, const char *text)
{
	uint64_t value;
	char expected[80];

	(void)snprintf(expected, sizeof expected, "expected a whole number from %.0f to %.0f", row->least, row->most);
	if (parse_u64(text, (uint64_t)row->most, &value) < 0 || (double)value < row->least)
		return refuse(parsing, row, text, expected);
	*(uint32_t *)((char *)parsing->options + row->field_off) = (uint32_t)value;
	return 0;
}

static int parse_between(const struct parsing *parsing, const struct option_row *row, const char *text, double *ret_value)
{
	const char *at = text;
	double value;
	char expected[80];

	(void)snprintf(expected, sizeof expected, "expected a number from %g to %g", row->least, row->most);
	if (parse_real(&at, "", &value) < 0 || value < row->least || value > row->most)
		return refuse(parsing, row, text, expected);
	*ret_value = value;
	return 0;
}

static int take_real(struct parsing *parsing, const struct option_row *row, const char *text)
{
	double value;
	int r = parse_between(parsing, row, text, &value);

	if (r == 0)
		*(double *)((char *)parsing->options + row->field_off) = value;
	return r;
}

/* A:B:… or A,B,…; how many, or -EINVAL. */
static int parse_reals(const char *text, char separator, double *value, uint32_t most)
{
	char ends[2] = {separator, '\0'};
	uint32_t count = 0;

	for (;;) {
		if (count == most || parse_real(&text, ends, &value[count]) < 0)
			return -EINVAL;
		count++;
		if (*text == '\0')
			return (int)count;
		text++;
	}
}

/* ---- words ---- */

struct word {
	const char *name;
	int value;
};

static int take_word(struct parsing *parsing, const struct option_row *row, const char *text, const struct word *words,
		     int *ret_value)
{
	char expected[128] = "known:";

	for (const struct word *word = words; word->name != NULL; word++) {
		size_t length = strlen(expected);

		if (strcmp(word->name, text) == 0) {
			*ret_value = word->value;
			return 0;
		}
		(void)snprintf(expected + length, sizeof expected - length, " %s", word->name);
	}
	return refuse(parsing, row, text, expected);
}

static int take_pool(struct parsing *parsing, const struct option_row *row, const char *text)
{
	static const struct word words[] = {
		{"layer", POLICY_POOL_LAYER}, {"global", POLICY_POOL_GLOBAL}, {"soft", POLICY_POOL_SOFT}, {NULL, 0}};
	int value, r = take_word(parsing, row, text, words, &value);

	if (r == 0)
		parsing->options->pool = (enum policy_pool)value;
	return r;
}

static int take_semantics(struct parsing *parsing, const struct option_row *row, const char *text)
{
	static const struct word words[] = {
		{"batch", SIM_BATCH}, {"access", SIM_ACCESS}, {"block64", SIM_BLOCK64}, {NULL, 0}};
	int value, r = take_word(parsing, row, text, words, &value);

	if (r == 0)
		parsing->options->semantics = (enum sim_semantics)value;
	return r;
}

static int take_phase(struct parsing *parsing, const struct option_row *row, const char *text)
{
	static const struct word words[] = {
		{"decode", SIM_PHASE_DECODE}, {"prefill", SIM_PHASE_PREFILL}, {"all", SIM_PHASE_ALL}, {NULL, 0}};
	int value, r = take_word(parsing, row, text, words, &value);

	if (r == 0)
		parsing->options->phases = (unsigned)value;
	return r;
}

static int take_format(struct parsing *parsing, const struct option_row *row, const char *text)
{
	if (sim_format_parse(text, &parsing->options->format) == 0)
		return 0;
	return refuse(parsing, row, text, "known: auto route replay csv group binary");
}

static int take_capacities(struct parsing *parsing, const struct option_row *row, const char *text)
{
	static const struct word words[] = {{"equal", 0}, {"train", 1}, {NULL, 0}};

	return take_word(parsing, row, text, words, &parsing->options->trains_capacities);
}

/* ---- lists ---- */

static int take_traces(struct parsing *parsing, const struct option_row *row, const char *text)
{
	(void)row;
	return sim_paths_add(&parsing->options->trace, text, "eval_", parsing->message, parsing->message_bytes);
}

static int take_train(struct parsing *parsing, const struct option_row *row, const char *text)
{
	(void)row;
	return sim_paths_add(&parsing->options->train, text, "train_", parsing->message, parsing->message_bytes);
}

static int refuse_policy(const struct parsing *parsing, const struct option_row *row, const char *name)
{
	char expected[256] = "no such policy; known:";

	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		size_t length = strlen(expected);

		(void)snprintf(expected + length, sizeof expected - length, " %s", policy_name_at(i));
	}
	(void)snprintf(expected + strlen(expected), sizeof expected - strlen(expected), " belady belady-bypass");
	return refuse(parsing, row, name, expected);
}

static int take_policies(struct parsing *parsing, const struct option_row *row, const char *text)
{
	struct sim_options *options = parsing->options;
	char *copy, *rest, *name;

	if (options->policy_text != NULL)
		return refuse(parsing, row, text, "policies are given twice: separate them by commas");
	copy = rest = strdup(text);
	options->policy_text = copy;
	if (copy == NULL)
		return -ENOMEM;
	while ((name = strsep(&rest, ",")) != NULL) {
		if (!sim_policy_is_known(name))
			return refuse_policy(parsing, row, name);
		if (options->policy_count == SIM_POLICIES_MAX)
			return refuse(parsing, row, text, "too many");
		for (uint32_t i = 0; i < options->policy_count; i++)
			if (strcmp(options->policy[i], name) == 0)
				return refuse(parsing, row, name, "named twice");
		options->policy[options->policy_count++] = name;
	}
	return 0;
}

static int take_one_policy(struct parsing *parsing, const struct option_row *row, const char *text)
{
	if (!sim_policy_is_known(text))
		return refuse_policy(parsing, row, text);
	*(const char **)((char *)parsing->options + row->field_off) = text;
	return 0;
}

static int parse_capacity(const char *text, enum sim_unit unit, struct sim_capacity_option *ret_capacity)
{
	struct sim_capacity_option capacity = {.capacity.unit = unit};
	const char *at = text;

	if (strchr(text, '%') != NULL && unit != SIM_SLOTS_PER_LAYER) {
		if (parse_real(&at, "%", &capacity.percent) < 0 || strcmp(at, "%") != 0 || capacity.percent <= 0 ||
		    capacity.percent > 100)
			return -EINVAL;
	} else if (unit == SIM_BYTES) {
		if (cnre_size_parse(text, &capacity.capacity.amount) < 0 || capacity.capacity.amount == 0)
			return -EINVAL;
	} else if (parse_u64(text, UINT32_MAX - 1, &capacity.capacity.amount) < 0 || capacity.capacity.amount == 0) {
		return -EINVAL;
	}
	*ret_capacity = capacity;
	return 0;
}

static int take_capacity(struct parsing *parsing, const struct option_row *row, const char *text)
{
	enum sim_unit unit = strcmp(row->name, "budget") == 0 ? SIM_BYTES
			     : row->name[0] == 'o'            ? SIM_OBJECTS
							      : SIM_SLOTS_PER_LAYER;
	struct sim_options *options = parsing->options;
	char *copy = strdup(text), *rest = copy, *one;
	int r = copy == NULL ? -ENOMEM : 0;

	if (r == 0 && options->capacity_count > 0)
		r = refuse(parsing, row, text, "the size of the cache is given twice");
	while (r == 0 && (one = strsep(&rest, ",")) != NULL) {
		if (options->capacity_count == SIM_CAPACITIES_MAX)
			r = refuse(parsing, row, text, "too many");
		else if (parse_capacity(one, unit, &options->capacity[options->capacity_count]) < 0)
			r = refuse(parsing, row, one,
				   unit == SIM_BYTES     ? "expected a size such as 120G, or 25%"
				   : unit == SIM_OBJECTS ? "expected a whole number above 0, or a share such as 25%"
							 : "expected a whole number above 0");
		else
			options->capacity_count++;
	}
	free(copy);
	return r;
}

static int take_scales(struct parsing *parsing, const struct option_row *row, const char *text)
{
	int count = parse_reals(text, ',', parsing->options->scale, SIM_SCALES_MAX);

	if (count < 0)
		return refuse(parsing, row, text, "expected factors such as 0.5,1,1.5");
	for (int i = 0; i < count; i++)
		if (parsing->options->scale[i] <= 0)
			return refuse(parsing, row, text, "expected factors above 0");
	parsing->options->scale_count = (uint32_t)count;
	return 0;
}

static int take_layers(struct parsing *parsing, const struct option_row *row, const char *text)
{
	double number[SIM_SENSITIVE_LAYERS_MAX];
	int count = parse_reals(text, ',', number, SIM_SENSITIVE_LAYERS_MAX);

	for (int i = 0; i < count; i++) {
		if (number[i] != floor(number[i]) || number[i] > UINT32_MAX)
			count = -EINVAL;
		else
			parsing->options->sensitive_layer[i] = (uint32_t)number[i];
	}
	if (count < 0)
		return refuse(parsing, row, text, "expected numbers of layers such as 3,40");
	parsing->options->sensitive_count = (uint32_t)count;
	return 0;
}

/* ---- tuning ---- */

static int take_slru_split(struct parsing *parsing, const struct option_row *row, const char *text)
{
	struct policy_tuning *tuning = &parsing->options->tuning;
	double share[POLICY_SEGMENTS_MAX];
	int count = parse_reals(text, ':', share, POLICY_SEGMENTS_MAX);

	for (int i = 0; i < count; i++)
		if (share[i] <= 0)
			count = -EINVAL;
	if (count < 0)
		return refuse(parsing, row, text, "expected at most eight shares above 0 such as 1:1:2");
	for (int i = 0; i < count; i++)
		tuning->slru_split[i] = (float)share[i];
	tuning->slru_segments = (uint32_t)count;
	return 0;
}

static int take_bytes_per_token(struct parsing *parsing, const struct option_row *row, const char *text)
{
	if (cnre_size_parse(text, (uint64_t *)((char *)parsing->options + row->field_off)) < 0)
		return refuse(parsing, row, text, "expected a size such as 512M");
	return 0;
}

/* A size for each device, or the share of all experts that one device has room for. */
static int take_vram(struct parsing *parsing, const struct option_row *row, const char *text)
{
	struct sim_options *options = parsing->options;
	char *copy = strdup(text), *rest = copy, *one;
	const char *at = text;
	int r = copy == NULL ? -ENOMEM : 0;

	options->vram.device_count = 0;
	options->vram_percent = 0;
	if (r == 0 && strchr(text, '%') != NULL) {
		options->vram.device_count = 1;
		if (parse_real(&at, "%", &options->vram_percent) < 0 || strcmp(at, "%") != 0 || options->vram_percent <= 0 ||
		    options->vram_percent > 100)
			r = refuse(parsing, row, text, "expected sizes such as 24G or 24G,24G, or a share such as 10%");
		rest = NULL;
	}
	while (r == 0 && (one = strsep(&rest, ",")) != NULL) {
		if (options->vram.device_count == TIER_DEVICES_MAX)
			r = refuse(parsing, row, text, "too many devices");
		else if (cnre_size_parse(one, &options->vram.budget_bytes[options->vram.device_count++]) < 0)
			r = refuse(parsing, row, one, "expected sizes such as 24G or 24G,24G, or a share such as 10%");
	}
	free(copy);
	return r;
}

static int take_compressed(struct parsing *parsing, const struct option_row *row, const char *text)
{
	double value[2];

	if (parse_reals(text, ':', value, 2) != 2 || value[0] <= 1 || value[0] > 1000 || value[1] > 1e9)
		return refuse(parsing, row, text, "expected a ratio above 1 and the microseconds of a hit, such as 1.5:300");
	parsing->options->compressed_ratio = value[0];
	parsing->options->compressed_us = value[1];
	return 0;
}

/* Of cost: as many as POLICY_RATES, each above `least`. */
static int take_rates(struct parsing *parsing, const struct option_row *row, const char *text)
{
	int halves = strstr(row->name, "half-lives") != NULL;
	float *to = (float *)((char *)parsing->options + row->field_off);
	double value[POLICY_RATES];
	int count = parse_reals(text, ':', value, POLICY_RATES);

	for (int i = 0; i < count; i++)
		if (value[i] < 0 || (halves && value[i] == 0))
			count = -EINVAL;
	if (count != (int)POLICY_RATES)
		return refuse(parsing, row, text, "expected three numbers such as 1:16:128");
	for (uint32_t i = 0; i < POLICY_RATES; i++)
		to[i] = (float)value[i];
	return 0;
}

static int take_tuning(struct parsing *parsing, const struct option_row *row, const char *text)
{
	double value;
	int r = parse_between(parsing, row, text, &value);

	if (r < 0)
		return r;
	*(float *)((char *)parsing->options + row->field_off) = (float)value;
	return 0;
}

static int take_seed(struct parsing *parsing, const struct option_row *row, const char *text)
{
	if (parse_u64(text, UINT64_MAX, &parsing->options->seed) == 0)
		return 0;
	return refuse(parsing, row, text, "expected a whole number");
}

/* ---- the table ---- */

#define FIELD(name) offsetof(struct sim_options, name)
#define ANY SIM_ANY_VERB
#define MANY (SIM_SWEEP | SIM_PLOT)

/* A row a line. */
/* clang-format off */
#define WORDS_ROW(name, argument, verbs, take, summary) {name, argument, summary, verbs, WORDS, 0, 0, 0, take},
#define OWN_ROW(name, argument, verbs, take, summary) {name, argument, summary, verbs, OWN, 0, 0, 0, take},
#define FIELD_ROW(name, argument, field, take, summary) {name, argument, summary, ANY, OWN, FIELD(field), 0, 0, take},
#define POLICY_ROW(name, field, summary) {name, "NAME", summary, SIM_GATE, OWN, FIELD(field), 0, 0, take_one_policy},
#define TUNING_ROW(name, field, least, most, summary) \
	{name, "N", summary, ANY, OWN, FIELD(field), least, most, take_tuning},
#define FLAG_ROW(name, verbs, field, summary) {name, NULL, summary, verbs, FLAG, FIELD(field), 0, 0, NULL},
#define TEXT_ROW(name, argument, verbs, field, summary) \
	{name, argument, summary, verbs, TEXT, FIELD(field), 0, 0, NULL},
#define NUMBER_ROW(name, verbs, field, least, most, summary) \
	{name, "N", summary, verbs, NUMBER, FIELD(field), least, most, NULL},
#define REAL_ROW(name, verbs, field, least, most, summary) \
	{name, "N", summary, verbs, REAL, FIELD(field), least, most, NULL},

static const struct option_row table[] = {
	WORDS_ROW("trace", "FILE|DIR...", ANY, take_traces, "what is replayed")
	WORDS_ROW("eval", "FILE|DIR...", ANY, take_traces, "the same")
	WORDS_ROW("train", "FILE|DIR...", ANY, take_train, "what priors, preloads and capacities are learned from")
	OWN_ROW("policy", "NAME[,NAME...]", SIM_RUN | MANY, take_policies, "policies to replay")
	POLICY_ROW("baseline", baseline, "what must be beaten; default lru")
	POLICY_ROW("candidate", candidate, "what must beat it; default cost")
	OWN_ROW("slots-per-layer", "N", ANY, take_capacity, "objects that fit in each layer's pool")
	OWN_ROW("objects", "N|P%", ANY, take_capacity, "objects that fit in all")
	OWN_ROW("budget", "SIZE|P%", ANY, take_capacity, "bytes that fit in all; of a --manifest or a recorded trace")
	TEXT_ROW("manifest", "FILE|DIR", ANY, manifest, "bytes and costs of each layer's experts")
	OWN_ROW("pool", "layer|global|soft", ANY, take_pool, "from whom room is taken; default: the policy's own")
	OWN_ROW("semantics", "batch|access|block64", ANY, take_semantics, "what is looked up before what is placed; default batch")
	TEXT_ROW("seed-residents", "FILE|LIST", ANY, seed_residents, "resident before the first access")
	FLAG_ROW("preload", SIM_RUN | MANY, preloads, "the most used of --train are resident before the first access")
	FLAG_ROW("cold", SIM_GATE, is_cold, "nothing is preloaded from --train")
	FLAG_ROW("arms", SIM_RUN, shows_arms, "each policy cold and preloaded, and the preload alone")
	FLAG_ROW("null", SIM_RUN, shows_null, "also on a shuffled trace, beside lru and belady")
	OWN_ROW("capacities", "equal|train", ANY, take_capacities, "of layer pools")
	OWN_ROW("phase", "decode|prefill|all", ANY, take_phase, "of traces that mark phases")
	OWN_ROW("format", "NAME", ANY, take_format, "of the traces; default: by their first line")
	NUMBER_ROW("experts", ANY, experts, 1, SIM_EXPERTS_MAX, "of a layer, where the traces do not tell")
	REAL_ROW("miss-us", ANY, miss_us, 0, 1e9, "felt microseconds a miss, without a manifest; default 1000")
	REAL_ROW("read-gbps", ANY, read_gbps, 1e-6, 1e6, "bandwidth, for a manifest without felt times; default 3")
	REAL_ROW("felt-fraction", ANY, felt_fraction, 0, 1, "share of reading that is felt, likewise; default 1")
	REAL_ROW("minimum-gain", SIM_GATE, minimum_gain, 0, 1, "mean felt wait must fall by that share; default 0.1")
	REAL_ROW("maximum-regression", SIM_GATE, maximum_regression, 0, 1e6, "nor may a category's rise by more; default 0.03")
	OWN_ROW("felt-scales", "N,N...", SIM_GATE, take_scales, "with every felt time times each of these; default 0.5,1,1.5")
	OWN_ROW("sensitivity-layers", "N,N...", SIM_GATE, take_layers, "and with one of these layers alone")
	OWN_ROW("slru-split", "A:B:...", ANY, take_slru_split, "shares of slru's segments, lowest first")
	TUNING_ROW("window-share", tuning.window_share, 0, 1, "of tinylfu")
	TUNING_ROW("protected-share", tuning.protected_share, 0, 1, "of tinylfu")
	TUNING_ROW("pin-share", tuning.pin_share, 0, 1, "of lru+pin")
	FIELD_ROW("half-lives", "A:B:C", tuning.half_life, take_rates, "of cost, in visits of a layer")
	FIELD_ROW("rate-weights", "A:B:C", tuning.rate_weight, take_rates, "of cost")
	TUNING_ROW("prior-weight", tuning.prior_weight, 0, 1e6, "of cost")
	TUNING_ROW("soft-ceiling", tuning.soft_ceiling, 1, 1e6, "of a soft pool, times the equal share")
	REAL_ROW("hysteresis", ANY, hysteresis, 0, 1e6, "a miss is placed if worth that much more than its victim")
	NUMBER_ROW("min-age", ANY, moves.min_age_visits, 0, 1e9, "visits of its layer that a victim has been resident")
	NUMBER_ROW("min-interval", ANY, moves.min_interval_visits, 0, 1e9, "visits between two placements of one object")
	NUMBER_ROW("moves-per-visit", ANY, moves.moves_per_pass, 0, 1e9, "placements in one visit at most")
	FIELD_ROW("bytes-per-token", "SIZE", moves.bytes_per_token, take_bytes_per_token, "placed a token at most, on average")
	OWN_ROW("vram", "SIZE[,SIZE...]|P%", ANY, take_vram, "of each device; experts are promoted there from RAM")
	REAL_ROW("upload-gbps", ANY, upload_gbps, 1e-6, 1e6, "bandwidth to VRAM, for layers whose manifest does not say; default 20")
	REAL_ROW("vram-hysteresis", ANY, vram_hysteresis, 0, 1e6, "an expert is promoted if worth that much more than its victim")
	NUMBER_ROW("vram-min-age", ANY, vram.limits.min_age_visits, 0, 1e9, "visits of its layer that one stays in VRAM")
	NUMBER_ROW("vram-min-interval", ANY, vram.limits.min_interval_visits, 0, 1e9, "visits from its last move until its promotion")
	FIELD_ROW("vram-bytes-per-token", "SIZE", vram.limits.bytes_per_token, take_bytes_per_token, "uploaded a token at most, on average; 0: any")
	TUNING_ROW("vram-prior-weight", vram.tuning.prior_weight, 0, 1e6, "of worth in VRAM")
	FIELD_ROW("vram-half-lives", "A:B:C", vram.tuning.half_life, take_rates, "of worth in VRAM, in visits of a layer")
	FIELD_ROW("vram-rate-weights", "A:B:C", vram.tuning.rate_weight, take_rates, "of worth in VRAM")
	OWN_ROW("compressed", "RATIO:US", ANY, take_compressed, "layers may be held so much smaller, a hit then costs US; needs --train, --budget")
	NUMBER_ROW("threads", ANY, threads, 1, SIM_JOB_THREADS_MAX, "default: as many as there are CPUs")
	OWN_ROW("seed", "N", ANY, take_seed, "of what is drawn at random")
	TEXT_ROW("temporary", "DIR", ANY, temporary, "for files as large as the traces; default TMPDIR or /tmp")
	TEXT_ROW("out", "DIR", SIM_PLOT, out, "where the pictures go, made if it is not there; default the current one")
	FLAG_ROW("progress", ANY, wants_progress, "on standard error, even if that is no terminal")
	FLAG_ROW("json", SIM_RUN | SIM_SWEEP | SIM_GATE, as_json, "one JSON object")
	FLAG_ROW("csv", SIM_RUN | SIM_SWEEP, as_csv, "comma-separated lines")
	FLAG_ROW("help", ANY, wants_help, "these lines")
};
/* clang-format on */

void sim_options_describe(FILE *out, enum sim_verb verb)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++) {
		char option[64];

		if (!(table[i].verbs & verb))
			continue;
		(void)snprintf(option, sizeof option, "--%s %s", table[i].name,
			       table[i].argument != NULL ? table[i].argument : "");
		fprintf(out, "  %-34s %s\n", option, table[i].summary);
	}
}

/* ---- names ---- */

#define NAME_BYTES 32u

/* Letters to add, drop or change (Levenshtein); of the first NAME_BYTES. */
static unsigned distance(const char *a, size_t a_bytes, const char *b)
{
	unsigned row[NAME_BYTES + 1], b_bytes = (unsigned)strnlen(b, NAME_BYTES);

	for (unsigned i = 0; i <= b_bytes; i++)
		row[i] = i;
	for (size_t k = 0; k < a_bytes && k < NAME_BYTES; k++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)k + 1;
		for (unsigned i = 1; i <= b_bytes; i++) {
			unsigned changed = diagonal + (a[k] != b[i - 1]);

			diagonal = row[i];
			row[i] = (row[i] < row[i - 1] ? row[i] : row[i - 1]) + 1;
			if (row[i] > changed)
				row[i] = changed;
		}
	}
	return row[b_bytes];
}

static int refuse_name(const struct parsing *parsing, const char *argument, size_t name_bytes)
{
	unsigned verb = parsing->options->verb;
	const struct option_row *nearest = NULL;

	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++)
		if ((table[i].verbs & verb) &&
		    (nearest == NULL || distance(argument + 2, name_bytes, table[i].name) <
						distance(argument + 2, name_bytes, nearest->name)))
			nearest = &table[i];
	return cnre_message(parsing->message, parsing->message_bytes, -EINVAL,
			    "%.80s: no such option; the nearest is --%s", argument, nearest->name);
}

static const struct option_row *find_row(unsigned verb, const char *name, size_t name_bytes)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(table); i++)
		if ((table[i].verbs & verb) && strlen(table[i].name) == name_bytes &&
		    memcmp(table[i].name, name, name_bytes) == 0)
			return &table[i];
	return NULL;
}

/* ---- the line ---- */

static int take_value(struct parsing *parsing, const struct option_row *row, const char *text)
{
	switch (row->kind) {
	case TEXT:
		*(const char **)((char *)parsing->options + row->field_off) = text;
		return *text != '\0' ? 0 : refuse(parsing, row, text, "expected a name");
	case NUMBER:
		return take_number(parsing, row, text);
	case REAL:
		return take_real(parsing, row, text);
	default:
		return row->take(parsing, row, text);
	}
}

/* The option at argv[*index] and what belongs to it. */
static int take_option(struct parsing *parsing, char **argv, int *index)
{
	const char *argument = argv[*index], *equals = strchr(argument, '=');
	size_t name_bytes = equals != NULL ? (size_t)(equals - argument) - 2 : strlen(argument + 2);
	const struct option_row *row = find_row(parsing->options->verb, argument + 2, name_bytes);
	const char *text = equals != NULL ? equals + 1 : NULL;
	int r;

	if (row == NULL)
		return refuse_name(parsing, argument, name_bytes);
	if (row->kind == FLAG) {
		*(int *)((char *)parsing->options + row->field_off) = 1;
		return text == NULL ? 0 : refuse(parsing, row, text, "takes no value");
	}
	if (text == NULL && argv[*index + 1] != NULL && strncmp(argv[*index + 1], "--", 2) != 0)
		text = argv[++*index];
	if (text == NULL)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "--%s: needs %s", row->name,
				    row->argument);
	r = take_value(parsing, row, text);
	while (r == 0 && row->kind == WORDS && argv[*index + 1] != NULL && argv[*index + 1][0] != '-')
		r = take_value(parsing, row, argv[++*index]);
	return r;
}

static void set_defaults(struct sim_options *options, enum sim_verb verb)
{
	*options = (struct sim_options){
		.verb = verb,
		.baseline = "lru",
		.candidate = "cost",
		.minimum_gain = 0.10,
		.maximum_regression = 0.03,
		.scale = {0.5, 1, 1.5},
		.scale_count = 3,
		.phases = SIM_PHASE_ALL,
		.hysteresis = -1,
		.read_gbps = 3,
		.felt_fraction = 1,
		.miss_us = 1000,
		.upload_gbps = 20,
		.seed = 1,
		.out = ".",
	};
	policy_tuning_default(&options->tuning);
	tier_limits_default(&options->vram.limits);
	tier_tuning_default(&options->vram.tuning);
	options->vram_hysteresis = (double)options->vram.limits.hysteresis;
}

static int is_in_bytes(const struct sim_options *options)
{
	for (uint32_t i = 0; i < options->capacity_count; i++)
		if (options->capacity[i].capacity.unit != SIM_BYTES)
			return 0;
	return options->capacity_count > 0;
}

static int check_together(const struct parsing *parsing)
{
	const struct sim_options *options = parsing->options;
	const char *wrong = NULL;

	if (options->trace.count == 0)
		wrong = "no trace: give --trace FILE";
	else if (options->policy_count == 0 && options->verb != SIM_GATE)
		wrong = "no policy: give --policy NAME[,NAME...]";
	else if (options->capacity_count == 0 && options->verb != SIM_PLOT)
		wrong = "no size of the cache: give --slots-per-layer N, --objects N or --budget SIZE";
	else if (options->capacity_count > 1 && !(options->verb & MANY))
		wrong = "several sizes of the cache: sweep takes them";
	else if (options->train.count == 0 && (options->preloads || options->trains_capacities))
		wrong = "--preload and --capacities train: need --train FILE";
	else if (options->compressed_ratio > 0 && (options->train.count == 0 || !is_in_bytes(options)))
		wrong = "--compressed: needs --train, whose curves choose the layers, and --budget, whose bytes they save";
	else if (options->compressed_ratio > 0 && options->trains_capacities)
		wrong = "--compressed and --capacities train: the first chooses capacities by itself: give one of them";
	else if (options->preloads && options->seed_residents != NULL)
		wrong = "--preload and --seed-residents: both say what is resident at the start: give one of them";
	else if (options->shows_arms && options->train.count == 0 && options->seed_residents == NULL)
		wrong = "--arms: needs --seed-residents or --train, which say what is preloaded";
	else if (options->as_json && options->as_csv)
		wrong = "--json and --csv: give one of them";
	else if (options->as_csv && options->shows_null)
		wrong = "--null: is a second table: --json has both, --csv does not";
	if (wrong != NULL)
		return cnre_message(parsing->message, parsing->message_bytes, -EINVAL, "%s", wrong);
	return 0;
}

int sim_options_parse(int argc, char **argv, enum sim_verb verb, struct sim_options *ret_options, char *message,
		      size_t message_bytes)
{
	struct sim_options options;
	struct parsing parsing = {.options = &options, .message = message, .message_bytes = message_bytes};
	int r = 0;

	set_defaults(&options, verb);
	for (int i = 1; r == 0 && i < argc; i++) {
		if (strncmp(argv[i], "--", 2) != 0)
			r = cnre_message(message, message_bytes, -EINVAL, "%.80s: expected an option", argv[i]);
		else
			r = take_option(&parsing, argv, &i);
	}
	if (r == 0 && !options.wants_help)
		r = check_together(&parsing);
	if (r < 0) {
		sim_options_close(&options);
		return r;
	}
	*ret_options = options;
	return 0;
}

void sim_options_close(struct sim_options *options)
{
	sim_paths_close(&options->trace);
	sim_paths_close(&options->train);
	free(options->policy_text);
	options->policy_text = NULL;
}
