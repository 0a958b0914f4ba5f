/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of what is replayed and learned from; see study.h. */
#include "tools/sim/study.h"

#include "base/message.h"
#include "tools/sim/jobs.h"
#include "tools/sim/prior.h"
#include "tools/sim/progress.h"
#include "tools/sim/residents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- loading ---- */

/* By device and inode, so that neither a second name nor a link hides it. */
static int is_same_file(const struct sim_trace *a, const struct sim_trace *b)
{
	return a->device == b->device && a->inode == b->inode;
}

/* A copy, or the same in another format: as many rows with the same lookups. */
static int has_same_lookups(const struct sim_trace *a, const struct sim_trace *b)
{
	return a->row_count == b->row_count && a->access_count == b->access_count &&
	       memcmp(a->object, b->object, a->access_count * sizeof *a->object) == 0;
}

static int refuse_shared(const struct sim_study *study, char *message, size_t message_bytes)
{
	for (uint32_t i = 0; i < study->trace_count; i++)
		for (uint32_t k = study->trace_count; k < study->trace_count + study->train_count; k++) {
			const struct sim_trace *eval = &study->trace[i], *train = &study->trace[k];

			if (is_same_file(eval, train) || has_same_lookups(eval, train))
				return cnre_message(
					message, message_bytes, -EEXIST,
					"%.120s and %.120s are one %s: what was learned from cannot be evaluated on",
					train->path, eval->path, is_same_file(eval, train) ? "file" : "trace, copied");
		}
	return 0;
}

/* Those evaluated, then those learned from that are no histories: these are read once the geometry is known. */
static uint32_t list_traces(const struct sim_options *options, const char **path)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < options->trace.count; i++)
		path[count++] = options->trace.path[i];
	for (uint32_t i = 0; i < options->train.count; i++)
		if (sim_prior_is_usage(options->train.path[i]) != 1)
			path[count++] = options->train.path[i];
	return count;
}

static int load_traces(struct sim_study *study, char *message, size_t message_bytes)
{
	const struct sim_options *options = study->options;
	struct sim_progress progress = {.wanted = options->wants_progress};
	struct sim_load load = {.format = options->format,
				.phases = options->phases,
				.temporary = options->temporary,
				.experts = options->experts,
				.progress = sim_progress_bytes,
				.context = &progress};
	const char **path = calloc(options->trace.count + (size_t)options->train.count, sizeof *path);
	uint32_t count;
	int r;

	if (path == NULL)
		return cnre_message(message, message_bytes, -ENOMEM, "out of memory");
	count = list_traces(options, path);
	r = sim_traces_open(&study->trace, &study->geometry, path, count, &load, message, message_bytes);
	sim_progress_end(&progress);
	free(path);
	if (r < 0)
		return r;
	study->trace_count = options->trace.count;
	study->train_count = count - options->trace.count;
	return refuse_shared(study, message, message_bytes);
}

/* A binary trace that was converted from text says one byte, since it must say something. */
static int knows_bytes(const struct sim_geometry *geometry)
{
	for (uint32_t i = 0; i < geometry->layer_count; i++)
		if (geometry->resident_bytes[i] > 1)
			return 1;
	return 0;
}

/* Bytes of experts come from a manifest or from a binary trace; otherwise every expert would be one byte. */
static int check_bytes(const struct sim_study *study, char *message, size_t message_bytes)
{
	const struct sim_options *options = study->options;

	if (options->manifest != NULL || knows_bytes(study->geometry))
		return 0;
	if (options->vram.device_count > 0 && options->vram_percent == 0)
		return cnre_message(message, message_bytes, -EDOM,
				    "--vram: needs --manifest FILE, which says how many bytes an expert has, or a share such as 10%%");
	for (uint32_t i = 0; i < options->capacity_count; i++)
		if (options->capacity[i].capacity.unit == SIM_BYTES)
			return cnre_message(message, message_bytes, -EDOM,
					    "--budget: needs --manifest FILE, which says how many bytes an expert has");
	return 0;
}

static int learn(struct sim_study *study, char *message, size_t message_bytes)
{
	const struct sim_paths *paths = &study->options->train;
	int r = sim_train_open(&study->train, study->trace + study->trace_count, study->train_count, study->geometry);

	if (r < 0)
		return cnre_message(message, message_bytes, r, "--train: %s", strerror(-r));
	for (uint32_t i = 0; r == 0 && i < paths->count; i++)
		if (sim_prior_is_usage(paths->path[i]) == 1)
			r = sim_train_add_usage(&study->train, paths->path[i], study->geometry, message, message_bytes);
	return r;
}

static int load_rest(struct sim_study *study, char *message, size_t message_bytes)
{
	const struct sim_options *options = study->options;
	int r = sim_manifest_open(&study->manifest, options->manifest, study->geometry, options->read_gbps,
				  options->felt_fraction, options->miss_us, message, message_bytes);

	if (r == 0 && options->vram.device_count > 0)
		sim_manifest_uploads(&study->manifest, study->geometry, options->upload_gbps);
	if (r == 0 && options->seed_residents != NULL)
		r = sim_residents_open(&study->seed, &study->seed_count, options->seed_residents, study->geometry,
				       message, message_bytes);
	if (r == 0 && options->train.count > 0)
		r = learn(study, message, message_bytes);
	return r;
}

int sim_study_open(struct sim_study *ret_study, const struct sim_options *options, char *message, size_t message_bytes)
{
	struct sim_study study = {.options = options};
	int r = load_traces(&study, message, message_bytes);

	if (r == 0)
		r = check_bytes(&study, message, message_bytes);
	if (r == 0)
		r = load_rest(&study, message, message_bytes);
	if (r < 0) {
		sim_study_close(&study);
		return r;
	}
	*ret_study = study;
	return 0;
}

static void close_futures(struct sim_future *future, uint32_t count)
{
	for (uint32_t i = 0; future != NULL && i < count; i++)
		sim_future_close(&future[i]);
	free(future);
}

void sim_study_close(struct sim_study *study)
{
	close_futures(study->future, study->trace_count);
	close_futures(study->shuffled_future, study->trace_count);
	for (uint32_t i = 0; study->shuffled != NULL && i < study->trace_count; i++)
		sim_shuffled_close(&study->shuffled[i]);
	free(study->shuffled);
	sim_train_close(&study->train);
	free(study->seed);
	sim_manifest_close(&study->manifest);
	if (study->geometry != NULL)
		sim_traces_close(study->trace, study->trace_count + study->train_count, study->geometry);
	*study = (struct sim_study){0};
}

/* ---- futures and nulls ---- */

static int foresee(const struct sim_study *study, const struct sim_trace *trace, struct sim_future *ret_future)
{
	return sim_future_open(ret_future, trace, study->geometry, study->options->semantics != SIM_ACCESS,
			       study->options->temporary);
}

int sim_study_foresee(struct sim_study *study)
{
	int r = 0;

	if (study->future != NULL)
		return 0;
	study->future = calloc(study->trace_count, sizeof *study->future);
	if (study->future == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < study->trace_count; i++)
		r = foresee(study, &study->trace[i], &study->future[i]);
	return r;
}

int sim_study_shuffle(struct sim_study *study)
{
	int r = 0;

	if (study->shuffled != NULL)
		return 0;
	study->shuffled = calloc(study->trace_count, sizeof *study->shuffled);
	study->shuffled_future = calloc(study->trace_count, sizeof *study->shuffled_future);
	if (study->shuffled == NULL || study->shuffled_future == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < study->trace_count; i++) {
		r = sim_shuffled_open(&study->shuffled[i], &study->trace[i], study->geometry, study->options->seed + i,
				      study->options->temporary);
		if (r == 0)
			r = foresee(study, &study->shuffled[i].trace, &study->shuffled_future[i]);
	}
	return r;
}

/* ---- arms ---- */

static uint64_t smallest_bytes(const struct sim_study *study)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < study->geometry->layer_count; i++)
		if (study->manifest.layer[i].resident_bytes < least)
			least = study->manifest.layer[i].resident_bytes;
	return least;
}

int sim_study_capacity(const struct sim_study *study, const struct sim_capacity_option *option,
		       struct sim_capacity *ret_capacity)
{
	struct sim_capacity capacity = option->capacity;
	double all = study->geometry->object_count;

	if (option->percent > 0) {
		if (capacity.unit == SIM_BYTES) {
			all = 0;
			for (uint32_t i = 0; i < study->geometry->layer_count; i++)
				all += (double)study->geometry->experts[i] *
				       (double)study->manifest.layer[i].resident_bytes;
		}
		capacity.amount = (uint64_t)(all * option->percent / 100);
	}
	if (capacity.amount == 0 || (capacity.unit == SIM_BYTES && capacity.amount < smallest_bytes(study)))
		return -EINVAL;
	*ret_capacity = capacity;
	return 0;
}

static int fill_marginals(struct sim_study_arm *arm, const struct sim_study *study)
{
	uint32_t layers = study->geometry->layer_count;
	double sum_us = 0;
	int r;

	if (study->options->manifest == NULL)
		return 0; /* all layers alike */
	arm->miss_us = calloc(layers, sizeof *arm->miss_us);
	if (arm->miss_us == NULL)
		return -ENOMEM;
	r = sim_train_marginals(study->train.use_count != NULL ? &study->train : NULL, &arm->arm, &arm->model,
				arm->miss_us);
	for (uint32_t i = 0; i < layers; i++)
		sum_us += (double)arm->miss_us[i];
	if (!(sum_us > 0))
		return r; /* no miss costs anything, and all layers are alike again */
	for (uint32_t i = 0; i < layers; i++) /* of the mean, which is what a tuner goes on with */
		arm->miss_us[i] = (float)((double)arm->miss_us[i] * layers / sum_us);
	arm->arm.miss_us_of_layer = arm->miss_us;
	return r;
}

/* Which layers are held compressed, and how many slots that gives each. */
static int fill_compressed(struct sim_study_arm *arm, const struct sim_study *study)
{
	int r;

	arm->compressed = calloc(study->geometry->layer_count, sizeof *arm->compressed);
	if (arm->compressed == NULL)
		return -ENOMEM;
	r = sim_train_represent(&study->train, &arm->arm, &arm->model, arm->capacity, arm->compressed);
	arm->arm.compressed = arm->compressed; /* only now: the points are made of plain sizes */
	return r;
}

static int fill_capacity(struct sim_study_arm *arm, const struct sim_study *study)
{
	const struct sim_options *options = study->options;
	int r;

	if ((!options->trains_capacities && options->compressed_ratio == 0) || strcmp(arm->arm.policy, "engine-lru") == 0)
		return 0;
	arm->capacity = calloc(study->geometry->layer_count, sizeof *arm->capacity);
	if (arm->capacity == NULL)
		return -ENOMEM;
	if (options->compressed_ratio > 0)
		r = fill_compressed(arm, study);
	else
		r = sim_train_capacities(&study->train, &arm->arm, &arm->model, arm->capacity);
	arm->arm.capacity_of_layer = arm->capacity;
	return r;
}

static int has_limits(const struct moves_limits *moves)
{
	return moves->min_age_visits > 0 || moves->min_interval_visits > 0 || moves->bytes_per_token > 0 ||
	       moves->moves_per_pass > 0;
}

static void fill_vram(struct sim_study_arm *arm, const struct sim_study *study)
{
	const struct sim_options *options = study->options;
	double bytes = 0;

	if (options->vram.device_count == 0)
		return;
	arm->vram = options->vram;
	arm->vram.limits.hysteresis = (float)options->vram_hysteresis;
	for (uint32_t i = 0; i < study->geometry->layer_count; i++)
		bytes += (double)study->geometry->experts[i] * (double)study->manifest.layer[i].vram_bytes;
	if (options->vram_percent > 0)
		arm->vram.budget_bytes[0] = (uint64_t)(bytes * options->vram_percent / 100);
	if (!study->train.prior_holds)
		arm->vram.tuning.prior_weight = 0;
	arm->arm.vram = &arm->vram;
}

static void fill_start(struct sim_arm *arm, const struct sim_study *study, enum sim_start start)
{
	if (start == SIM_START_COLD)
		return;
	if (study->options->seed_residents != NULL) {
		arm->seed = study->seed;
		arm->seed_count = study->seed_count;
	} else if (start == SIM_START_PRELOADED || study->options->preloads) {
		arm->seed = study->train.ranked;
		arm->seed_count = study->train.ranked_count;
	} else {
		arm->takes_recorded = 1;
	}
}

int sim_study_arm_open(struct sim_study_arm *ret_arm, const struct sim_study *study,
		       const struct sim_manifest *manifest, const char *policy, struct sim_capacity capacity,
		       enum sim_start start)
{
	const struct sim_options *options = study->options;
	struct sim_study_arm *arm = ret_arm;
	int r;

	*arm = (struct sim_study_arm){
		.arm = {.policy = policy,
			.capacity = capacity,
			.tunes = options->manifest == NULL, /* otherwise it says what misses cost */
			.pool = options->pool,
			.semantics = options->semantics,
			.prior_of = study->train.use_count,
			.moves = has_limits(&options->moves) ? &options->moves : NULL,
			.compressed_ratio = options->compressed_ratio,
			.compressed_us = options->compressed_us,
			.hysteresis = (float)options->hysteresis},
		.model = {.geometry = study->geometry, .manifest = manifest},
		.tuning = options->tuning,
	};
	if (!study->train.prior_holds)
		arm->tuning.prior_weight = 0;
	arm->arm.tuning = &arm->tuning;
	fill_vram(arm, study);
	fill_start(&arm->arm, study, start);
	r = fill_marginals(arm, study);
	if (r == 0)
		r = fill_capacity(arm, study);
	if (r < 0)
		sim_study_arm_close(arm);
	return r;
}

void sim_study_arm_close(struct sim_study_arm *arm)
{
	free(arm->capacity);
	free(arm->compressed);
	free(arm->miss_us);
	*arm = (struct sim_study_arm){0};
}

/* ---- replays ---- */

struct grid {
	const struct sim_study *study;
	const struct sim_study_arm *arm;
	struct sim_counts *cell;
	struct sim_progress progress;
};

static int replay_cell(void *context, uint32_t job)
{
	struct grid *grid = context;
	const struct sim_study *study = grid->study;
	const struct sim_study_arm *arm = &grid->arm[job / study->trace_count];
	uint32_t i = job % study->trace_count;
	const struct sim_trace *trace = arm->on_null ? &study->shuffled[i].trace : &study->trace[i];
	const struct sim_future *future = arm->on_null ? study->shuffled_future : study->future;

	return sim_replay(&arm->arm, &arm->model, trace, future != NULL ? &future[i] : NULL, &grid->cell[job]);
}

static void show_progress(void *context, uint32_t done, uint32_t count)
{
	struct grid *grid = context;

	sim_progress_count(&grid->progress, "replays", done, count);
}

int sim_study_replay(const struct sim_study *study, const struct sim_study_arm *arm, uint32_t arms,
		     struct sim_counts **ret_cells)
{
	struct grid grid = {.study = study, .arm = arm, .progress = {.wanted = study->options->wants_progress}};
	struct sim_jobs jobs = {
		.threads = study->options->threads, .run = replay_cell, .progress = show_progress, .context = &grid};
	int r;

	if (__builtin_mul_overflow(arms, study->trace_count, &jobs.count))
		return -EOVERFLOW;
	grid.cell = calloc(jobs.count, sizeof *grid.cell);
	if (grid.cell == NULL)
		return -ENOMEM;
	r = sim_jobs_run(&jobs);
	sim_progress_end(&grid.progress);
	if (r < 0) {
		sim_study_free_cells(grid.cell, jobs.count);
		return r;
	}
	*ret_cells = grid.cell;
	return 0;
}

void sim_study_free_cells(struct sim_counts *cells, uint32_t count)
{
	for (uint32_t i = 0; cells != NULL && i < count; i++)
		sim_counts_close(&cells[i]);
	free(cells);
}

int sim_study_sum(const struct sim_study *study, const struct sim_counts *cells, uint32_t arm,
		  struct sim_counts *ret_counts)
{
	struct sim_counts counts;
	int r = sim_counts_open(&counts, study->geometry);

	for (uint32_t i = 0; r == 0 && i < study->trace_count; i++)
		r = sim_counts_add(&counts, &cells[(size_t)arm * study->trace_count + i]);
	if (r < 0) {
		sim_counts_close(&counts);
		return r;
	}
	sim_counts_finish(&counts);
	*ret_counts = counts;
	return 0;
}
