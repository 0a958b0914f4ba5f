/* SPDX-License-Identifier: Apache-2.0 */
/* `cnre-sim sweep`: policies at several sizes of the cache, all replays side by side on all CPUs. */
#include "tools/sim/sweep.h"

#include "tools/sim/say.h"
#include "tools/sim/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char verb[] = "sweep";

void sim_sweep_close(struct sim_sweep *sweep)
{
	for (uint32_t i = 0; i < sweep->count; i++) {
		if (sweep->arm != NULL)
			sim_study_arm_close(&sweep->arm[i]);
		if (sweep->result != NULL)
			sim_counts_close(&sweep->result[i].counts);
	}
	free(sweep->arm);
	free(sweep->result);
	*sweep = (struct sim_sweep){0};
}

static int open_arm(struct sim_sweep *sweep, const struct sim_study *study, uint32_t i)
{
	const struct sim_options *options = study->options;
	struct sim_result *result = &sweep->result[i];
	int r = sim_study_capacity(study, &options->capacity[i / options->policy_count], &result->capacity);

	if (r < 0)
		return r;
	result->policy = options->policy[i % options->policy_count];
	(void)snprintf(result->label, sizeof result->label, "%s", result->policy);
	return sim_study_arm_open(&sweep->arm[i], study, &study->manifest, result->policy, result->capacity,
				  SIM_START_GIVEN);
}

static int open_arms(struct sim_sweep *sweep, struct sim_study *study)
{
	const struct sim_options *options = study->options;
	int r = 0;

	sweep->count = options->policy_count * options->capacity_count; /* both are small */
	sweep->arm = calloc(sweep->count, sizeof *sweep->arm);
	sweep->result = calloc(sweep->count, sizeof *sweep->result);
	if (sweep->arm == NULL || sweep->result == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < sweep->count; i++) {
		r = open_arm(sweep, study, i);
		if (r == 0 && sim_policy_is_belady(sweep->result[i].policy))
			r = sim_study_foresee(study);
	}
	return r;
}

static int replay(struct sim_sweep *sweep, const struct sim_study *study)
{
	struct sim_counts *cells;
	int r = sim_study_replay(study, sweep->arm, sweep->count, &cells);

	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < sweep->count; i++)
		r = sim_study_sum(study, cells, i, &sweep->result[i].counts);
	sim_study_free_cells(cells, sweep->count * study->trace_count);
	return r;
}

int sim_sweep_open(struct sim_sweep *ret_sweep, struct sim_study *study)
{
	struct sim_sweep sweep = {0};
	int r = open_arms(&sweep, study);

	if (r == 0)
		r = replay(&sweep, study);
	if (r < 0) {
		sim_sweep_close(&sweep);
		return r;
	}
	*ret_sweep = sweep;
	return 0;
}

/* ---- output ---- */

/* Those of one size stand together. */
static json_t *size_json(const struct sim_sweep *sweep, uint32_t begin, uint32_t count)
{
	json_t *policies = json_object();

	for (uint32_t i = begin; i < begin + count; i++)
		json_object_set_new(policies, sweep->result[i].label, sim_report_counts(&sweep->result[i].counts));
	return json_pack("{s:o, s:o}", "capacity", sim_report_capacity(&sweep->result[begin].capacity), "policies",
			 policies);
}

static int print_json(const struct sim_sweep *sweep, const struct sim_study *study)
{
	json_t *sizes = json_array();

	for (uint32_t i = 0; i < sweep->count; i += study->options->policy_count)
		json_array_append_new(sizes, size_json(sweep, i, study->options->policy_count));
	return sim_report_print(stdout, json_pack("{s:o, s:o}", "traces", sim_report_traces(study), "sweep", sizes));
}

static void print_vram(const struct sim_sweep *sweep, uint32_t begin, uint32_t count)
{
	printf("\n");
	sim_report_vram_head(stdout);
	for (uint32_t i = begin; i < begin + count; i++)
		sim_report_vram_row(stdout, &sweep->result[i]);
}

static int print_lines(const struct sim_sweep *sweep, const struct sim_study *study)
{
	char size[32];

	if (study->options->as_csv)
		sim_report_csv_head(stdout);
	for (uint32_t i = 0; i < sweep->count; i++) {
		if (study->options->as_csv) {
			sim_report_csv_row(stdout, &sweep->result[i]);
			continue;
		}
		if (i % study->options->policy_count == 0) {
			printf("%s%s\n", i > 0 ? "\n" : "", sim_report_size(&sweep->result[i].capacity, size));
			sim_report_table_head(stdout);
		}
		sim_report_table_row(stdout, &sweep->result[i]);
		if (study->options->vram.device_count > 0 && (i + 1) % study->options->policy_count == 0)
			print_vram(sweep, i + 1 - study->options->policy_count, study->options->policy_count);
	}
	return fflush(stdout) == 0 ? 0 : -errno;
}

int sim_sweep(int argc, char **argv)
{
	struct sim_options options;
	struct sim_study study;
	struct sim_sweep sweep;
	int r, status = sim_begin(argc, argv, SIM_SWEEP, &options, &study);

	if (status >= 0)
		return status;
	r = sim_sweep_open(&sweep, &study);
	if (r == 0) {
		for (uint32_t i = 0; i < sweep.count; i++)
			sim_warn(verb, &sweep.arm[i]);
		r = (options.as_json ? print_json : print_lines)(&sweep, &study);
		sim_sweep_close(&sweep);
	}
	if (r == -EINVAL)
		status = sim_say(verb, SIM_USAGE, "a cache of one of these sizes would hold no object");
	else
		status = r < 0 ? sim_say_error(verb, r) : SIM_DONE;
	sim_end(&options, &study);
	return status;
}
