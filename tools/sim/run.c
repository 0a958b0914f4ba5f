/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cnre-sim run`: policies side by side, from the same start. Also the arms that make a comparison fair, and the null.
 */
#include "tools/sim/say.h"
#include "tools/sim/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_MAX (2 * SIM_POLICIES_MAX + 1)

struct run {
	const struct sim_options *options;
	struct sim_study *study;
	struct sim_capacity capacity;
	uint32_t count;
	struct sim_study_arm arm[RESULTS_MAX];
	struct sim_result result[RESULTS_MAX];
};

static const char verb[] = "run";

/* ---- arms ---- */

static int add_arm(struct run *run, const char *policy, enum sim_start start, const char *suffix)
{
	struct sim_result *result = &run->result[run->count];
	int r = sim_study_arm_open(&run->arm[run->count], run->study, &run->study->manifest, policy, run->capacity,
				   start);

	if (r < 0)
		return r;
	(void)snprintf(result->label, sizeof result->label, "%s%s", policy, suffix);
	result->policy = policy;
	result->capacity = run->capacity;
	run->count++;
	return 0;
}

/* The preload alone, which never changes. Which policy keeps the book says nothing. */
static int add_static_arm(struct run *run)
{
	int r = add_arm(run, "lru", SIM_START_PRELOADED, "");

	if (r < 0)
		return r;
	(void)snprintf(run->result[run->count - 1].label, SIM_LABEL_BYTES, "static/preloaded");
	run->arm[run->count - 1].arm.frozen = 1;
	return 0;
}

static int add_arms(struct run *run)
{
	const struct sim_options *options = run->options;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < options->policy_count; i++) {
		if (!options->shows_arms) {
			r = add_arm(run, options->policy[i], SIM_START_GIVEN, "");
			continue;
		}
		r = add_arm(run, options->policy[i], SIM_START_COLD, "/cold");
		if (r == 0)
			r = add_arm(run, options->policy[i], SIM_START_PRELOADED, "/preloaded");
	}
	return r == 0 && options->shows_arms ? add_static_arm(run) : r;
}

static int needs_future(const struct run *run)
{
	for (uint32_t i = 0; i < run->count; i++)
		if (sim_policy_is_belady(run->arm[i].arm.policy))
			return 1;
	return 0;
}

static int replay(struct run *run)
{
	struct sim_counts *cells;
	int r = needs_future(run) ? sim_study_foresee(run->study) : 0;

	if (r == 0)
		r = sim_study_replay(run->study, run->arm, run->count, &cells);
	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < run->count; i++)
		r = sim_study_sum(run->study, cells, i, &run->result[i].counts);
	sim_study_free_cells(cells, run->count * run->study->trace_count);
	return r;
}

static void close_run(struct run *run)
{
	for (uint32_t i = 0; i < run->count; i++) {
		sim_study_arm_close(&run->arm[i]);
		sim_counts_close(&run->result[i].counts);
	}
	run->count = 0;
}

static int open_run(struct run *run, const struct sim_options *options, struct sim_study *study)
{
	int r;

	run->options = options;
	run->study = study;
	r = sim_study_capacity(study, &options->capacity[0], &run->capacity);
	return r == 0 ? add_arms(run) : r;
}

/* ---- headroom: belady and lru beside each policy, on the traces and on their nulls ---- */

struct headroom {
	uint64_t lru[2], belady[2]; /* misses: real, null */
	uint64_t policy[SIM_POLICIES_MAX][2];
};

static uint64_t *misses_at(struct headroom *headroom, uint32_t i, int null)
{
	return i == 0 ? &headroom->lru[null] : i == 1 ? &headroom->belady[null] : &headroom->policy[i - 2][null];
}

static int measure(struct headroom *headroom, struct run *scratch, const struct run *run, int null)
{
	int r = open_run(scratch, run->options, run->study);

	for (uint32_t i = 0; i < scratch->count; i++)
		scratch->arm[i].on_null = null;
	if (r == 0)
		r = replay(scratch);
	for (uint32_t i = 0; r == 0 && i < scratch->count; i++)
		*misses_at(headroom, i, null) = scratch->result[i].counts.misses;
	return r;
}

static int measure_headroom(const struct run *run, struct headroom *ret_headroom)
{
	struct sim_options options = *run->options;
	struct run *scratch = calloc(1, sizeof *scratch), view = {.options = &options, .study = run->study};
	int r = scratch == NULL ? -ENOMEM : sim_study_shuffle(run->study);

	options.policy_count = 0;
	options.shows_arms = 0;
	options.policy[options.policy_count++] = "lru";
	options.policy[options.policy_count++] = "belady";
	for (uint32_t i = 0; i < run->options->policy_count && options.policy_count < SIM_POLICIES_MAX; i++)
		options.policy[options.policy_count++] = run->options->policy[i];
	for (int null = 0; r == 0 && null < 2; null++) {
		r = measure(ret_headroom, scratch, &view, null);
		close_run(scratch);
	}
	free(scratch);
	return r;
}

/* Of what lies between lru and belady. */
static double gap_closed(uint64_t lru, uint64_t belady, uint64_t policy)
{
	return lru == belady ? 0 : ((double)lru - (double)policy) / ((double)lru - (double)belady);
}

static json_t *headroom_json(const struct headroom *headroom, const struct sim_options *options)
{
	json_t *policies = json_object();

	for (uint32_t i = 0; i < options->policy_count && i < SIM_POLICIES_MAX - 2; i++)
		json_object_set_new(
			policies, options->policy[i],
			json_pack("{s:I, s:I, s:f, s:f}", "misses", (json_int_t)headroom->policy[i][0], "null_misses",
				  (json_int_t)headroom->policy[i][1], "gap_closed",
				  gap_closed(headroom->lru[0], headroom->belady[0], headroom->policy[i][0]),
				  "null_gap_closed",
				  gap_closed(headroom->lru[1], headroom->belady[1], headroom->policy[i][1])));
	return json_pack("{s:{s:I, s:I}, s:{s:I, s:I}, s:o}", "lru", "misses", (json_int_t)headroom->lru[0],
			 "null_misses", (json_int_t)headroom->lru[1], "belady", "misses",
			 (json_int_t)headroom->belady[0], "null_misses", (json_int_t)headroom->belady[1], "policies",
			 policies);
}

static void print_headroom(const struct headroom *headroom, const struct sim_options *options)
{
	printf("\n%-22s %12s %12s %12s %12s\n", "headroom", "misses", "gap closed", "null misses", "gap closed");
	printf("%-22s %12llu %12s %12llu\n", "lru", (unsigned long long)headroom->lru[0], "",
	       (unsigned long long)headroom->lru[1]);
	printf("%-22s %12llu %12s %12llu\n", "belady", (unsigned long long)headroom->belady[0], "",
	       (unsigned long long)headroom->belady[1]);
	for (uint32_t i = 0; i < options->policy_count && i < SIM_POLICIES_MAX - 2; i++)
		printf("%-22s %12llu %12.3f %12llu %12.3f\n", options->policy[i],
		       (unsigned long long)headroom->policy[i][0],
		       gap_closed(headroom->lru[0], headroom->belady[0], headroom->policy[i][0]),
		       (unsigned long long)headroom->policy[i][1],
		       gap_closed(headroom->lru[1], headroom->belady[1], headroom->policy[i][1]));
}

/* ---- output ---- */

static int print_json(const struct run *run, const struct headroom *headroom)
{
	static const char *const semantics[] = {
		[SIM_BATCH] = "batch", [SIM_ACCESS] = "access", [SIM_BLOCK64] = "block64"};
	json_t *policies = json_object(), *object;

	for (uint32_t i = 0; i < run->count; i++)
		json_object_set_new(policies, run->result[i].label, sim_report_counts(&run->result[i].counts));
	object = json_pack("{s:o, s:s, s:o, s:{s:I, s:I, s:I}, s:o}", "traces", sim_report_traces(run->study),
			   "semantics", semantics[run->options->semantics], "capacity",
			   sim_report_capacity(&run->capacity), "geometry", "layers",
			   (json_int_t)run->study->geometry->layer_count, "objects",
			   (json_int_t)run->study->geometry->object_count, "top_k",
			   (json_int_t)run->study->geometry->top_k, "policies", policies);
	if (run->study->train.use_count != NULL)
		json_object_set_new(object, "prior",
				    json_pack("{s:b, s:f, s:f}", "holds", run->study->train.prior_holds, "log_loss",
					      run->study->train.log_loss, "uniform_log_loss",
					      run->study->train.uniform_log_loss));
	if (headroom != NULL)
		json_object_set_new(object, "headroom", headroom_json(headroom, run->options));
	return sim_report_print(stdout, object);
}

/* A .coli_usage has no order that could examine it. */
static void print_history(const struct sim_train *train)
{
	if (train->uniform_log_loss == 0 && train->prior_holds)
		printf("history: used as it is\n");
	else
		printf("history: %.3f nats a use, %.3f without: %s\n", train->log_loss, train->uniform_log_loss,
		       train->prior_holds ? "used" : "no better than chance, so no prior");
}

static int print_lines(const struct run *run, const struct headroom *headroom)
{
	const struct sim_train *train = &run->study->train;
	char size[32];

	if (run->options->as_csv)
		sim_report_csv_head(stdout);
	else
		printf("%s; %u objects in %u layers, top-%u\n", sim_report_size(&run->capacity, size),
		       run->study->geometry->object_count, run->study->geometry->layer_count,
		       run->study->geometry->top_k);
	if (!run->options->as_csv && train->use_count != NULL)
		print_history(train);
	if (!run->options->as_csv)
		sim_report_table_head(stdout);
	for (uint32_t i = 0; i < run->count; i++)
		(run->options->as_csv ? sim_report_csv_row : sim_report_table_row)(stdout, &run->result[i]);
	if (!run->options->as_csv && run->options->vram.device_count > 0) {
		printf("\n");
		sim_report_vram_head(stdout);
		for (uint32_t i = 0; i < run->count; i++)
			sim_report_vram_row(stdout, &run->result[i]);
	}
	if (headroom != NULL)
		print_headroom(headroom, run->options);
	return fflush(stdout) == 0 ? 0 : -errno;
}

/* ---- the verb ---- */

static int execute(struct run *run, const struct sim_options *options, struct sim_study *study)
{
	struct headroom headroom = {0};
	int r = open_run(run, options, study);

	if (r == -EINVAL)
		return sim_say(verb, SIM_USAGE, "the cache would hold no object");
	for (uint32_t i = 0; r == 0 && i < run->count; i++)
		sim_warn(verb, &run->arm[i]);
	if (r == 0)
		r = replay(run);
	if (r == 0 && options->shows_null)
		r = measure_headroom(run, &headroom);
	if (r == 0)
		r = (options->as_json ? print_json : print_lines)(run, options->shows_null ? &headroom : NULL);
	return r < 0 ? sim_say_error(verb, r) : SIM_DONE;
}

int sim_run(int argc, char **argv)
{
	struct sim_options options;
	struct sim_study study;
	struct run *run;
	int status = sim_begin(argc, argv, SIM_RUN, &options, &study);

	if (status >= 0)
		return status;
	run = calloc(1, sizeof *run);
	if (run == NULL) {
		status = sim_say_error(verb, -ENOMEM);
	} else {
		status = execute(run, &options, &study);
		close_run(run);
		free(run);
	}
	sim_end(&options, &study);
	return status;
}
