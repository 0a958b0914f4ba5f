/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cnre-sim gate`: whether a candidate is better enough than a baseline to be used, on traces that nothing was learned
 * from, from the same initial residents, and under other felt times than the assumed ones. Exit status 0: it is, 1: it
 * is not, and why, 2: usage.
 */
#include "tools/sim/say.h"
#include "tools/sim/verbs.h"
#include "tools/sim/verdict.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Felt times under which both are judged: those of one layer, or of all, times a factor. */
struct setting {
	double scale;
	uint32_t layer; /* of the geometry; POLICY_NONE: all */
};

struct gate {
	const struct sim_options *options;
	struct sim_study *study;
	struct sim_capacity capacity;
	uint32_t category_count, setting_count;
	struct verdict_category *category; /* [trace_count] at most */
	uint32_t *category_of;             /* [trace_count] */
	struct setting *setting;
	uint32_t failed_count;
	json_t *settings, *reasons;
};

static const char verb[] = "gate";

/* ---- settings ---- */

static int find_layer(const struct sim_geometry *geometry, uint32_t number, uint32_t *ret_layer)
{
	for (uint32_t i = 0; i < geometry->layer_count; i++)
		if (geometry->number[i] == number) {
			*ret_layer = i;
			return 0;
		}
	return -ENOENT;
}

/* All layers times each factor; then each sensitive layer alone times each factor that changes it. */
static int fill_settings(struct gate *gate)
{
	const struct sim_options *options = gate->options;
	uint32_t layer = POLICY_NONE;

	gate->setting = calloc((options->sensitive_count + 1) * (size_t)options->scale_count, sizeof *gate->setting);
	if (gate->setting == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i <= options->sensitive_count; i++) {
		if (i > 0 && find_layer(gate->study->geometry, options->sensitive_layer[i - 1], &layer) < 0)
			return -ENOENT;
		for (uint32_t k = 0; k < options->scale_count; k++)
			if (i == 0 || options->scale[k] != 1)
				gate->setting[gate->setting_count++] = (struct setting){options->scale[k], layer};
	}
	return 0;
}

static const char *setting_name(const struct gate *gate, const struct setting *setting, char text[64])
{
	if (setting->layer == POLICY_NONE)
		(void)snprintf(text, 64, "felt times x %g", setting->scale);
	else
		(void)snprintf(text, 64, "felt times of layer %u x %g", gate->study->geometry->number[setting->layer],
			       setting->scale);
	return text;
}

static int scale_manifest(struct sim_manifest *ret_manifest, const struct gate *gate, const struct setting *setting)
{
	uint32_t layers = gate->study->geometry->layer_count;
	struct sim_layer_cost *layer = calloc(layers, sizeof *layer);

	if (layer == NULL)
		return -ENOMEM;
	memcpy(layer, gate->study->manifest.layer, layers * sizeof *layer);
	for (uint32_t i = 0; i < layers; i++)
		if (setting->layer == POLICY_NONE || setting->layer == i) {
			layer[i].felt_miss_us *= setting->scale;
			layer[i].page_cache_us *= setting->scale;
		}
	*ret_manifest = (struct sim_manifest){.layer = layer, .token_us = gate->study->manifest.token_us};
	return 0;
}

/* ---- categories ---- */

static int fill_categories(struct gate *gate)
{
	const struct sim_study *study = gate->study;

	gate->category = calloc(study->trace_count, sizeof *gate->category);
	gate->category_of = calloc(study->trace_count, sizeof *gate->category_of);
	if (gate->category == NULL || gate->category_of == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < study->trace_count; i++) {
		uint32_t k = 0;

		while (k < gate->category_count && strcmp(gate->category[k].name, study->trace[i].category) != 0)
			k++;
		if (k == gate->category_count)
			(void)snprintf(gate->category[gate->category_count++].name, sizeof gate->category[k].name, "%s",
				       study->trace[i].category);
		gate->category_of[i] = k;
	}
	return 0;
}

static void sum_categories(struct gate *gate, const struct sim_counts *cells)
{
	uint32_t traces = gate->study->trace_count;

	for (uint32_t i = 0; i < gate->category_count; i++) {
		gate->category[i].baseline_us = gate->category[i].candidate_us = 0;
		gate->category[i].tokens = 0;
	}
	for (uint32_t i = 0; i < traces; i++) {
		struct verdict_category *category = &gate->category[gate->category_of[i]];

		category->baseline_us += cells[i].felt_us;
		category->candidate_us += cells[traces + i].felt_us;
		category->tokens += cells[i].tokens;
	}
}

/* ---- verdicts ---- */

static void add_reason(struct gate *gate, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_reason(struct gate *gate, const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	json_array_append_new(gate->reasons, json_string(text));
}

static void judge(struct gate *gate, const struct verdict *verdict, const char *name)
{
	const struct sim_options *options = gate->options;

	gate->failed_count += !verdict->passed;
	if (verdict->passed)
		return; /* and no reason against it */
	if (verdict->gain < options->minimum_gain)
		add_reason(gate, "%s: mean felt wait falls by %.2f %%, and %.2f %% are asked for", name,
			   100 * verdict->gain, 100 * options->minimum_gain);
	for (uint32_t i = 0; i < gate->category_count; i++) {
		double regression = verdict_regression(&gate->category[i]);

		if (regression > options->maximum_regression)
			add_reason(gate, "%s: %s waits %.2f %% more, and %.2f %% are allowed", name,
				   gate->category[i].name, 100 * regression, 100 * options->maximum_regression);
	}
}

/* JSON has no infinity. */
static json_t *real_or_null(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static void note_setting(struct gate *gate, const struct setting *setting, const struct verdict *verdict)
{
	json_t *categories = json_object();

	for (uint32_t i = 0; i < gate->category_count; i++) {
		const struct verdict_category *category = &gate->category[i];

		json_object_set_new(categories, category->name,
				    json_pack("{s:f, s:f, s:I, s:o}", "baseline_felt_wait_s",
					      category->baseline_us / 1e6, "candidate_felt_wait_s",
					      category->candidate_us / 1e6, "tokens", (json_int_t)category->tokens,
					      "regression", real_or_null(verdict_regression(category))));
	}
	json_array_append_new(
		gate->settings,
		json_pack("{s:f, s:o, s:b, s:o, s:o}", "scale", setting->scale, "layer",
			  setting->layer == POLICY_NONE ? json_null()
							: json_integer(gate->study->geometry->number[setting->layer]),
			  "passed", verdict->passed, "gain", real_or_null(verdict->gain), "categories", categories));
}

static void print_setting(const struct gate *gate, const struct verdict *verdict, const char *name)
{
	printf("%s: %s, mean felt wait %+.2f %%\n", name, verdict->passed ? "passes" : "fails", -100 * verdict->gain);
	for (uint32_t i = 0; i < gate->category_count; i++) {
		const struct verdict_category *category = &gate->category[i];

		printf("  %-24s %12.0f %12.0f us a token %+8.2f %%\n", category->name,
		       category->baseline_us / (double)category->tokens,
		       category->candidate_us / (double)category->tokens, 100 * verdict_regression(category));
	}
}

static int replay_setting(struct gate *gate, const struct setting *setting)
{
	const struct sim_options *options = gate->options;
	struct sim_manifest manifest = {0};
	struct sim_study_arm arm[2] = {0};
	struct sim_counts *cells = NULL;
	enum sim_start start = options->train.count > 0 && !options->is_cold ? SIM_START_PRELOADED : SIM_START_GIVEN;
	int r = scale_manifest(&manifest, gate, setting);

	if (r == 0)
		r = sim_study_arm_open(&arm[0], gate->study, &manifest, options->baseline, gate->capacity, start);
	if (r == 0)
		r = sim_study_arm_open(&arm[1], gate->study, &manifest, options->candidate, gate->capacity, start);
	if (r == 0)
		r = sim_study_replay(gate->study, arm, 2, &cells);
	if (r == 0)
		sum_categories(gate, cells);
	if (r == 0 && setting == gate->setting) /* once */
		sim_warn(verb, &arm[0]), sim_warn(verb, &arm[1]);
	sim_study_free_cells(cells, 2 * gate->study->trace_count);
	sim_study_arm_close(&arm[0]);
	sim_study_arm_close(&arm[1]);
	free(manifest.layer);
	return r;
}

static int judge_settings(struct gate *gate)
{
	const struct verdict_rules rules = {gate->options->minimum_gain, gate->options->maximum_regression};
	char name[64];

	for (uint32_t i = 0; i < gate->setting_count; i++) {
		struct verdict verdict;
		int r = replay_setting(gate, &gate->setting[i]);

		if (r < 0)
			return r;
		verdict = verdict_of(gate->category, gate->category_count, &rules);
		judge(gate, &verdict, setting_name(gate, &gate->setting[i], name));
		note_setting(gate, &gate->setting[i], &verdict);
		if (!gate->options->as_json)
			print_setting(gate, &verdict, name);
	}
	return 0;
}

/* ---- output ---- */

static int print_json(const struct gate *gate)
{
	return sim_report_print(
		stdout, json_pack("{s:b, s:s, s:s, s:f, s:f, s:O, s:O}", "passed", gate->failed_count == 0, "baseline",
				  gate->options->baseline, "candidate", gate->options->candidate, "minimum_gain",
				  gate->options->minimum_gain, "maximum_regression", gate->options->maximum_regression,
				  "reasons", gate->reasons, "settings", gate->settings));
}

static int print_reasons(const struct gate *gate)
{
	printf("%s %s %s\n", gate->options->candidate,
	       gate->failed_count == 0 ? "passes against" : "does not pass against", gate->options->baseline);
	for (size_t i = 0; i < json_array_size(gate->reasons); i++)
		printf("  %s\n", json_string_value(json_array_get(gate->reasons, i)));
	return fflush(stdout) == 0 ? 0 : -errno;
}

/* ---- the verb ---- */

static int open_gate(struct gate *gate)
{
	int r = sim_study_capacity(gate->study, &gate->options->capacity[0], &gate->capacity);

	gate->settings = json_array();
	gate->reasons = json_array();
	if (r == 0)
		r = gate->settings == NULL || gate->reasons == NULL ? -ENOMEM : fill_settings(gate);
	if (r == 0)
		r = fill_categories(gate);
	if (r == 0 && (sim_policy_is_belady(gate->options->baseline) || sim_policy_is_belady(gate->options->candidate)))
		r = sim_study_foresee(gate->study);
	return r;
}

static void close_gate(struct gate *gate)
{
	free(gate->category);
	free(gate->category_of);
	free(gate->setting);
	json_decref(gate->settings);
	json_decref(gate->reasons);
}

static int execute(struct gate *gate)
{
	int r = open_gate(gate);

	if (r == -ENOENT)
		return sim_say(verb, SIM_USAGE,
			       "--sensitivity-layers: no layer of that number has experts in these traces");
	if (r == -EINVAL)
		return sim_say(verb, SIM_USAGE, "the cache would hold no object");
	for (uint32_t i = 0; r == 0 && i < gate->study->trace_count; i++)
		if (gate->study->trace[i].token_count == 0)
			return sim_say(verb, SIM_FAILED, "%.200s: no tokens", gate->study->trace[i].path);
	if (r == 0)
		r = judge_settings(gate);
	if (r == 0)
		r = (gate->options->as_json ? print_json : print_reasons)(gate);
	if (r < 0)
		return sim_say_error(verb, r);
	return gate->failed_count == 0 ? SIM_DONE : SIM_FAILED;
}

int sim_gate(int argc, char **argv)
{
	struct sim_options options;
	struct sim_study study;
	struct gate gate = {.options = &options, .study = &study};
	int status = sim_begin(argc, argv, SIM_GATE, &options, &study);

	if (status >= 0)
		return status;
	status = execute(&gate);
	close_gate(&gate);
	sim_end(&options, &study);
	return status;
}
