/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay; see replay.h. Nothing is allocated after it began: a set of a visit is a number in `mark`, and a new
 * visit needs no clearing.
 */
#include "tools/sim/replay.h"

#include "base/check.h"
#include "policy/felt.h"
#include "policy/tuner.h"
#include "tools/sim/arm.h"
#include "tools/sim/visit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64u            /* of SIM_BLOCK64 */
#define STEPS_MAX (1u << 26) /* a trace may claim any number of tokens, and there is a sum for each */

enum { IS_RESIDENT = 1, IS_SEEDED = 2 };

struct replay {
	const struct sim_arm *arm;
	const struct sim_model *model;
	const struct sim_trace *trace;
	struct policy *policy; /* or */
	struct belady *belady;
	struct moves *moves;  /* NULL: no limits but the policy's */
	struct sim_vram *vram; /* NULL: there is none */
	uint32_t step;        /* the token that has got its bytes to move, and 1 */
	struct tuner *tuner;  /* NULL: nothing tunes it */
	uint64_t next_wait;   /* of the trace */
	int bypasses;         /* belady-bypass */
	uint32_t *mark;       /* [object_count] the visit that holds it */
	unsigned char *flags; /* [object_count] */
	uint32_t visit;       /* number of this one; 0 marks nothing */
	uint32_t leased;      /* mark of those that may not go; 0: all may */
	uint64_t lookup;      /* number of the next one */
	uint32_t vram_hits;   /* of this visit */
	uint64_t used_bytes, budget_bytes;
	uint64_t *object_bytes;   /* [layer_count] */
	uint32_t *set;            /* [max experts] of the visit */
	uint32_t *missed;         /* [max experts] */
	struct felt_curve *curve; /* [layer_count] */
	double *step_us;          /* [step_count] < 0: no visit was of it */
	uint32_t step_count;
	struct sim_counts counts;
};

/* ---- a policy, or belady ---- */

static uint32_t layer_of(const struct replay *replay, uint32_t object)
{
	return replay->model->geometry->layer_of[object];
}

static const struct policy *book_of(const struct replay *replay)
{
	return replay->policy != NULL ? replay->policy : belady_book(replay->belady);
}

static void add(struct replay *replay, uint32_t object)
{
	if (replay->policy != NULL)
		policy_add(replay->policy, object);
	else
		belady_add(replay->belady, object);
	replay->flags[object] = IS_RESIDENT;
	replay->used_bytes += replay->object_bytes[layer_of(replay, object)];
}

static void evict(struct replay *replay, uint32_t object)
{
	if (replay->policy != NULL)
		policy_remove(replay->policy, object);
	else
		belady_remove(replay->belady, object);
	replay->flags[object] = 0;
	replay->used_bytes -= replay->object_bytes[layer_of(replay, object)];
	replay->counts.evictions++;
}

static uint32_t find_victim(struct replay *replay, uint32_t object)
{
	uint32_t victim;

	if (replay->belady != NULL)
		return belady_victim(replay->belady, object, replay->mark, replay->leased);
	policy_seek(replay->policy, object);
	do
		victim = policy_next(replay->policy);
	while (victim != POLICY_NONE && replay->leased != 0 && replay->mark[victim] == replay->leased);
	return victim;
}

/* Whether the object may be placed, and (POLICY_NONE: there is room) take the victim's place. */
static int may_place(const struct replay *replay, uint32_t object, uint32_t victim)
{
	uint64_t bytes = replay->model->manifest->layer[layer_of(replay, object)].resident_bytes;

	if (replay->moves != NULL && moves_ask(replay->moves, object, victim, bytes) != MOVES_ALLOWED)
		return 0;
	if (victim == POLICY_NONE)
		return 1;
	if (replay->belady != NULL)
		return !replay->bypasses || !belady_needs_later(replay->belady, object, victim);
	return replay->arm->hysteresis < 0 || policy_prefers(replay->policy, object, victim, replay->arm->hysteresis);
}

/* ---- one lookup, one placement ---- */

static int look_up(struct replay *replay, uint32_t object)
{
	int in_vram = replay->vram != NULL && sim_vram_look_up(replay->vram, object);

	if (replay->policy != NULL && !in_vram) /* as in the manager: it was no use of what RAM holds */
		policy_access(replay->policy, object);
	else if (replay->belady != NULL)
		belady_access(replay->belady, object, replay->lookup);
	replay->lookup++;
	replay->vram_hits += in_vram != 0;
	replay->counts.seed_hits += (replay->flags[object] & IS_SEEDED) != 0;
	return in_vram || replay->flags[object] != 0;
}

static int has_room(const struct replay *replay, uint32_t object)
{
	uint64_t bytes = replay->object_bytes[layer_of(replay, object)];

	return bytes <= replay->budget_bytes && replay->used_bytes <= replay->budget_bytes - bytes &&
	       !policy_must_replace(book_of(replay), object);
}

static int fits_at_all(const struct replay *replay, uint32_t object)
{
	return replay->object_bytes[layer_of(replay, object)] <= replay->budget_bytes && !replay->arm->frozen;
}

static void count_admission(struct replay *replay, uint32_t object, uint32_t victim)
{
	const struct sim_layer_cost *cost = &replay->model->manifest->layer[layer_of(replay, object)];

	if (replay->moves != NULL)
		moves_done(replay->moves, object, victim, cost->resident_bytes);
	replay->counts.admissions++;
	replay->counts.migration_bytes += cost->resident_bytes;
	replay->counts.critical_us += cost->migration_us;
}

static void place(struct replay *replay, uint32_t object)
{
	uint32_t victim = POLICY_NONE;

	if (!fits_at_all(replay, object)) {
		replay->counts.bypasses++;
		return;
	}
	if (has_room(replay, object) && !may_place(replay, object, POLICY_NONE)) {
		replay->counts.rejections++;
		return;
	}
	while (!has_room(replay, object)) {
		victim = find_victim(replay, object);
		if (victim == POLICY_NONE) {
			replay->counts.bypasses++;
			return;
		}
		if (!may_place(replay, object, victim)) {
			replay->counts.rejections++;
			return;
		}
		evict(replay, victim);
	}
	add(replay, object);
	count_admission(replay, object, victim);
}

/* ---- one visit, by semantics; each returns its lookups and misses ---- */

struct outcome {
	uint32_t lookups, misses;
};

/* 1: the first time in this visit. */
static int is_new(struct replay *replay, uint32_t object)
{
	if (replay->mark[object] == replay->visit)
		return 0;
	replay->mark[object] = replay->visit;
	return 1;
}

static struct outcome visit_batch(struct replay *replay, const struct sim_visit *visit)
{
	struct outcome outcome = {0};

	for (uint64_t i = visit->first_row; i < visit->end_row; i++) {
		const struct sim_row *row = &replay->trace->row[i];

		for (uint32_t k = 0; k < row->count; k++) {
			uint32_t object = replay->trace->object[row->first + k];

			if (!is_new(replay, object))
				continue;
			outcome.lookups++;
			if (!look_up(replay, object))
				replay->missed[outcome.misses++] = object;
		}
	}
	replay->leased = replay->visit;
	for (uint32_t i = 0; i < outcome.misses; i++)
		place(replay, replay->missed[i]);
	return outcome;
}

static struct outcome visit_access(struct replay *replay, const struct sim_visit *visit)
{
	struct outcome outcome = {0};

	for (uint64_t i = visit->first_row; i < visit->end_row; i++) {
		const struct sim_row *row = &replay->trace->row[i];

		for (uint32_t k = 0; k < row->count; k++) {
			uint32_t object = replay->trace->object[row->first + k];

			outcome.lookups++;
			if (!look_up(replay, object)) {
				outcome.misses++;
				place(replay, object);
			}
		}
	}
	return outcome;
}

static uint32_t collect_union(struct replay *replay, const struct sim_visit *visit)
{
	uint32_t count = 0;

	for (uint64_t i = visit->first_row; i < visit->end_row; i++) {
		const struct sim_row *row = &replay->trace->row[i];

		for (uint32_t k = 0; k < row->count; k++)
			if (is_new(replay, replay->trace->object[row->first + k]))
				replay->set[count++] = replay->trace->object[row->first + k];
	}
	return count;
}

/*
 * The engine's working set holds a block; what it swaps into its list are the last misses, as many as there are slots.
 */
static uint32_t visit_block(struct replay *replay, const uint32_t *set, uint32_t count, uint32_t capacity)
{
	uint32_t misses = 0, kept;

	for (uint32_t i = 0; i < count; i++)
		if (!look_up(replay, set[i]))
			replay->missed[misses++] = set[i];
	kept = misses < capacity ? misses : capacity;
	replay->counts.bypasses += misses - kept;
	for (uint32_t i = 0; i < kept; i++)
		place(replay, replay->missed[misses - 1 - i]);
	return misses;
}

static struct outcome visit_block64(struct replay *replay, const struct sim_visit *visit)
{
	struct outcome outcome = {.lookups = collect_union(replay, visit)};
	struct policy_layer state;

	policy_get_layer(book_of(replay), visit->layer, &state);
	for (uint32_t i = 0; i < outcome.lookups; i += BLOCK) {
		uint32_t left = outcome.lookups - i;

		outcome.misses += visit_block(replay, &replay->set[i], left < BLOCK ? left : BLOCK, state.capacity);
	}
	return outcome;
}

/* ---- what it costs ---- */

static void count_visit(struct replay *replay, const struct sim_visit *visit, struct outcome outcome)
{
	const struct sim_layer_cost *cost = &replay->model->manifest->layer[visit->layer];
	struct sim_counts *counts = &replay->counts;
	struct sim_layer_counts *layer = &counts->layer[visit->layer];
	double felt_us = felt_wait_us(&replay->curve[visit->layer], outcome.misses);
	uint32_t hits = outcome.lookups - outcome.misses;

	layer->visits++;
	layer->accesses += outcome.lookups;
	layer->misses += outcome.misses;
	layer->vram_hits += replay->vram_hits;
	layer->felt_us += felt_us;
	counts->visits++;
	counts->read_bytes += outcome.misses * cost->read_bytes;
	counts->avoided_bytes += hits * cost->read_bytes;
	counts->felt_us += felt_us;
	if (replay->arm->compressed != NULL && replay->arm->compressed[visit->layer])
		counts->critical_us += hits * replay->arm->compressed_us;
	if (cost->numa_node > 0)
		counts->critical_us += (hits - replay->vram_hits) * cost->remote_hit_us; /* the engine runs on node 0 */
	if (replay->vram != NULL)
		counts->ram_hit_us += (outcome.lookups - replay->vram_hits) * cost->ram_hit_us;
	if (replay->step_us[visit->token] < 0)
		replay->step_us[visit->token] = 0;
	replay->step_us[visit->token] += felt_us;
}

/* What the manager had learnt of the visit before, it had learnt when this one began. */
static void tune(struct replay *replay, const struct sim_visit *visit)
{
	const struct sim_trace *trace = replay->trace;
	uint32_t call = trace->row[visit->first_row].call;

	for (; replay->next_wait < trace->wait_count && trace->wait[replay->next_wait].call <= call; replay->next_wait++) {
		const struct sim_wait *wait = &trace->wait[replay->next_wait];

		if (wait->call == call)
			tuner_visit(replay->tuner, replay->policy, visit->layer, wait->misses, wait->wait_us);
	}
}

static void begin_visit(struct replay *replay, const struct sim_visit *visit)
{
	if (replay->tuner != NULL)
		tune(replay, visit);
	if (replay->step != visit->token + 1) {
		replay->step = visit->token + 1;
		if (replay->moves != NULL)
			moves_tokens(replay->moves, visit->tokens);
		if (replay->vram != NULL)
			sim_vram_tokens(replay->vram, visit->tokens);
	}
	if (replay->moves != NULL)
		moves_pass(replay->moves);
	if (++replay->visit == 0) { /* wrapped: old marks would look new */
		memset(replay->mark, 0, replay->model->geometry->object_count * sizeof *replay->mark);
		replay->visit = 1;
	}
	replay->leased = 0;
	replay->vram_hits = 0;
	if (replay->vram != NULL)
		sim_vram_visit(replay->vram, visit->layer, visit->tokens);
	if (replay->policy != NULL)
		policy_visit(replay->policy, visit->layer, visit->tokens);
	else
		belady_visit(replay->belady, visit->layer, visit->tokens);
}

static void replay_rows(struct replay *replay)
{
	for (uint64_t row = 0; row < replay->trace->row_count;) {
		struct sim_visit visit = sim_visit_at(replay->trace, row);
		struct outcome outcome;

		begin_visit(replay, &visit);
		if (replay->arm->semantics == SIM_BATCH)
			outcome = visit_batch(replay, &visit);
		else if (replay->arm->semantics == SIM_ACCESS)
			outcome = visit_access(replay, &visit);
		else
			outcome = visit_block64(replay, &visit);
		count_visit(replay, &visit, outcome);
		if (replay->vram != NULL)
			sim_vram_move(replay->vram, replay->flags, replay->mark, replay->visit, &replay->counts);
		row = visit.end_row;
	}
}

/* ---- seeds ---- */

struct seeds {
	const uint32_t *object;
	uint32_t count;
};

static struct seeds seeds_of(const struct replay *replay)
{
	if (replay->arm->seed_count == 0 && replay->arm->takes_recorded)
		return (struct seeds){replay->trace->resident, replay->trace->resident_count};
	return (struct seeds){replay->arm->seed, replay->arm->seed_count};
}

/* Of more seeds than fit the last ones stay, as if they had been read in turn; they are told in their order. */
static void choose_seeds(const struct replay *replay, struct seeds seeds, uint32_t *room, unsigned char *chosen)
{
	uint64_t used_bytes = 0;

	for (uint32_t i = seeds.count; i-- > 0;) {
		uint32_t object = seeds.object[i], layer = layer_of(replay, object);
		uint64_t bytes = replay->object_bytes[layer];

		chosen[i] = room[layer] > 0 && replay->mark[object] == 0 && bytes <= replay->budget_bytes - used_bytes;
		if (!chosen[i])
			continue;
		replay->mark[object] = 1; /* seen; cleared below */
		room[layer]--;
		used_bytes += bytes;
	}
	for (uint32_t i = 0; i < seeds.count; i++)
		replay->mark[seeds.object[i]] = 0;
}

static void add_seed(struct replay *replay, uint32_t object)
{
	add(replay, object);
	replay->flags[object] |= IS_SEEDED;
	replay->counts.seeds++;
	replay->counts.startup_bytes += replay->model->manifest->layer[layer_of(replay, object)].read_bytes;
}

static int add_seeds(struct replay *replay)
{
	const struct sim_geometry *geometry = replay->model->geometry;
	uint32_t *room = calloc(geometry->layer_count, sizeof *room);
	struct seeds seeds = seeds_of(replay);
	unsigned char *chosen = calloc(seeds.count + (size_t)1, 1);

	if (room == NULL || chosen == NULL) {
		free(room);
		free(chosen);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < geometry->layer_count; i++) {
		struct policy_layer state;

		policy_get_layer(book_of(replay), i, &state);
		room[i] = state.capacity; /* POLICY_NONE: more than a layer has */
	}
	choose_seeds(replay, seeds, room, chosen);
	for (uint32_t i = 0; i < seeds.count; i++)
		if (chosen[i])
			add_seed(replay, seeds.object[i]);
	free(room);
	free(chosen);
	return 0;
}

/* ---- life ---- */

static uint32_t most_experts(const struct sim_geometry *geometry)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < geometry->layer_count; i++)
		if (most < geometry->experts[i])
			most = geometry->experts[i];
	return most;
}

static uint32_t count_steps(const struct sim_trace *trace)
{
	uint32_t steps = 0;

	for (uint64_t i = 0; i < trace->row_count; i++)
		if (steps <= trace->row[i].token)
			steps = trace->row[i].token + 1;
	return steps;
}

static int open_arrays(struct replay *replay)
{
	const struct sim_geometry *geometry = replay->model->geometry;
	uint32_t experts = most_experts(geometry);

	replay->step_count = count_steps(replay->trace);
	if (replay->step_count > STEPS_MAX)
		return -EFBIG;
	replay->mark = calloc(geometry->object_count, sizeof *replay->mark);
	replay->flags = calloc(geometry->object_count, 1);
	replay->object_bytes = calloc(geometry->layer_count, sizeof *replay->object_bytes);
	replay->curve = calloc(geometry->layer_count, sizeof *replay->curve);
	replay->set = calloc(experts, sizeof *replay->set);
	replay->missed = calloc(experts, sizeof *replay->missed);
	replay->step_us = calloc(replay->step_count + (size_t)1, sizeof *replay->step_us);
	if (replay->mark == NULL || replay->flags == NULL || replay->object_bytes == NULL || replay->curve == NULL ||
	    replay->set == NULL || replay->missed == NULL || replay->step_us == NULL)
		return -ENOMEM;
	return sim_counts_open(&replay->counts, geometry);
}

static void fill_costs(struct replay *replay)
{
	for (uint32_t i = 0; i < replay->model->geometry->layer_count; i++) {
		const struct sim_layer_cost *cost = &replay->model->manifest->layer[i];

		replay->object_bytes[i] = sim_arm_object_bytes(replay->arm, replay->model, i);
		replay->curve[i] = sim_felt_curve(cost);
	}
	for (uint32_t i = 0; i < replay->step_count; i++)
		replay->step_us[i] = -1;
}

static int open_replay(struct replay *replay, const struct sim_future *future)
{
	struct sim_arm_setup made;
	int r = open_arrays(replay);

	if (r == 0)
		r = sim_arm_setup_open(&made, replay->arm, replay->model);
	if (r < 0)
		return r;
	replay->budget_bytes = made.setup.budget_bytes;
	fill_costs(replay);
	if (sim_policy_is_belady(replay->arm->policy)) {
		CNRE_CHECK(future != NULL);
		replay->bypasses = sim_policy_bypasses(replay->arm->policy);
		r = belady_create(&replay->belady, &made.setup, future);
	} else {
		r = policy_create(&replay->policy, replay->arm->policy, &made.setup);
	}
	sim_arm_setup_close(&made);
	if (r == 0 && replay->policy != NULL && replay->arm->moves != NULL)
		r = moves_create(&replay->moves, replay->policy, replay->model->geometry->object_count, replay->arm->moves);
	if (r == 0 && replay->policy != NULL && replay->arm->tunes)
		r = tuner_create(&replay->tuner, replay->model->geometry->layer_count);
	if (r == 0 && replay->arm->vram != NULL)
		r = sim_vram_open(&replay->vram, replay->arm->vram, replay->model->geometry, replay->model->manifest,
				  replay->arm->prior_of);
	return r == 0 ? add_seeds(replay) : r;
}

static void close_replay(struct replay *replay)
{
	(void)tuner_destroy(replay->tuner);
	(void)moves_destroy(replay->moves);
	(void)sim_vram_close(replay->vram);
	(void)policy_destroy(replay->policy);
	(void)belady_destroy(replay->belady);
	free(replay->mark);
	free(replay->flags);
	free(replay->object_bytes);
	free(replay->curve);
	free(replay->set);
	free(replay->missed);
	free(replay->step_us);
	sim_counts_close(&replay->counts);
}

static void keep_steps(struct replay *replay)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < replay->step_count; i++)
		if (replay->step_us[i] >= 0)
			replay->step_us[kept++] = replay->step_us[i];
	replay->counts.step_us = replay->step_us;
	replay->counts.step_count = kept;
	replay->step_us = NULL;
}

static void sum_up(struct replay *replay)
{
	const struct sim_manifest *manifest = replay->model->manifest;
	struct sim_counts *counts = &replay->counts;

	for (uint32_t i = 0; i < counts->layer_count; i++) {
		struct sim_layer_counts *layer = &counts->layer[i];
		struct policy_layer state;

		policy_get_layer(book_of(replay), i, &state);
		layer->capacity = state.capacity;
		layer->resident = state.resident;
		counts->accesses += layer->accesses;
		counts->misses += layer->misses;
		counts->vram_hits += layer->vram_hits;
	}
	counts->hits = counts->accesses - counts->misses;
	counts->tokens = replay->trace->token_count;
	counts->critical_us += counts->ram_hit_us + counts->upload_us + counts->felt_us + (double)counts->tokens * manifest->token_us;
	sim_counts_tiers(counts, manifest, replay->arm->compressed);
	keep_steps(replay);
}

int sim_replay(const struct sim_arm *arm, const struct sim_model *model, const struct sim_trace *trace,
	       const struct sim_future *future, struct sim_counts *ret_counts)
{
	struct replay replay = {.arm = arm, .model = model, .trace = trace};
	int r = open_replay(&replay, future);

	if (r == 0) {
		replay_rows(&replay);
		sum_up(&replay);
		*ret_counts = replay.counts;
		replay.counts = (struct sim_counts){0};
	}
	close_replay(&replay);
	return r;
}
