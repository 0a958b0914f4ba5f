/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement in VRAM; see tier.h. Who is worth what, and in which order they stand, is `cost`'s business, in a pool of all
 * layers; what may move is that of moves.c. Here: candidates, devices, and which victims make a move possible.
 */
#include "policy/tier.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tier {
	struct policy *policy;       /* residents: who is on any device */
	struct moves *moves;
	float hysteresis;            /* here and not in moves.c, where 0 means that anybody may take anybody's place */
	int (*can_upload)(void *context, uint32_t object);
	int (*can_leave)(void *context, uint32_t object);
	void *context;
	uint32_t object_count, device_count;
	struct tier_device device[TIER_DEVICES_MAX];
	uint64_t *bytes_of;          /* [object_count] charged */
	unsigned char *device_of;    /* [object_count] NOWHERE: in none */
	unsigned char *is_candidate; /* [object_count] stands in candidate[] */
	uint32_t candidate[TIER_CANDIDATES_MAX]; /* a ring, oldest first */
	uint32_t first_candidate, candidate_count;
};
#define NOWHERE 0xffu

/* ---- creation ---- */

void tier_limits_default(struct moves_limits *ret_limits)
{
	*ret_limits = (struct moves_limits){
		.hysteresis = 1,     /* twice as much: who is demoted may have to be read from a drive again */
		.min_age_visits = 4,
		.bytes_per_token = 256u << 20, /* 13 ms of a bus at 20 GB/s: a fill is spread, and steady moves are far below it */
	};
}

void tier_tuning_default(struct policy_tuning *ret_tuning)
{
	policy_tuning_default(ret_tuning);
	/* What was used just now is likely to be used again soon, and not often enough to pay for an upload. */
	ret_tuning->rate_weight[0] = 0;
	ret_tuning->rate_weight[1] = 0;
}

/* Each layer's mean charge, on the scale of the mean of all: a hit in RAM costs an upload. */
static void fill_gains(const struct tier_setup *setup, float *gain_us)
{
	double all_bytes = 0;

	for (uint32_t i = 0; i < setup->object_count; i++)
		all_bytes += (double)setup->charged_bytes_of[i];
	for (uint32_t begin = 0, end; begin < setup->object_count; begin = end) {
		double bytes = 0;

		for (end = begin; end < setup->object_count && setup->layer_of[end] == setup->layer_of[begin]; end++)
			bytes += (double)setup->charged_bytes_of[end];
		gain_us[setup->layer_of[begin]] = (float)(bytes / (end - begin) * setup->object_count / all_bytes);
	}
}

/* The young stand last in cost's order, so the first young victim says that all who follow are young, too. */
static int create_policy(struct tier *tier, const struct tier_setup *setup, const struct moves_limits *limits)
{
	struct policy_tuning tuning;
	struct policy_setup made = {
		.object_count = setup->object_count,
		.layer_count = setup->layer_count,
		.layer_of = setup->layer_of,
		.bytes_of = setup->charged_bytes_of,
		.budget_bytes = UINT64_MAX, /* it is asked for an order only: what fits on a device is counted here */
		.pool = POLICY_POOL_GLOBAL,
		.floor_slots = setup->top_k,
		.prior_of = setup->prior_of,
		.miss_us_of_layer = setup->gain_us_of_layer,
		.tuning = &tuning,
	};
	float *gain_us = NULL;
	int r;

	if (setup->tuning != NULL)
		tuning = *setup->tuning;
	else
		tier_tuning_default(&tuning);
	tuning.min_age_visits = limits->min_age_visits;
	if (made.miss_us_of_layer == NULL) {
		gain_us = calloc(setup->layer_count, sizeof *gain_us);
		if (gain_us == NULL)
			return -ENOMEM;
		fill_gains(setup, gain_us);
		made.miss_us_of_layer = gain_us;
	}
	r = policy_create(&tier->policy, "cost", &made);
	free(gain_us);
	return r;
}

static int check_setup(const struct tier_setup *setup)
{
	if (setup->object_count == 0 || setup->layer_count == 0 || setup->device_count == 0 ||
	    setup->device_count > TIER_DEVICES_MAX || setup->can_upload == NULL || setup->can_leave == NULL)
		return -EINVAL;
	for (uint32_t i = 0; i < setup->object_count; i++)
		if (setup->layer_of[i] >= setup->layer_count || setup->charged_bytes_of[i] == 0 ||
		    (i > 0 && setup->layer_of[i] < setup->layer_of[i - 1]))
			return -EINVAL;
	return 0;
}

static int open_tier(struct tier *tier, const struct tier_setup *setup)
{
	struct moves_limits limits;
	int r;

	if (setup->limits != NULL)
		limits = *setup->limits;
	else
		tier_limits_default(&limits);
	tier->bytes_of = calloc(setup->object_count, sizeof *tier->bytes_of);
	tier->device_of = malloc(setup->object_count);
	tier->is_candidate = calloc(setup->object_count, 1);
	if (tier->bytes_of == NULL || tier->device_of == NULL || tier->is_candidate == NULL)
		return -ENOMEM;
	memcpy(tier->bytes_of, setup->charged_bytes_of, setup->object_count * sizeof *tier->bytes_of);
	memset(tier->device_of, NOWHERE, setup->object_count);
	r = create_policy(tier, setup, &limits);
	tier->hysteresis = limits.hysteresis;
	return r < 0 ? r : moves_create(&tier->moves, tier->policy, setup->object_count, &limits);
}

int tier_create(struct tier **ret_tier, const struct tier_setup *setup)
{
	struct tier *tier;
	int r = check_setup(setup);

	if (r < 0)
		return r;
	tier = calloc(1, sizeof *tier);
	if (tier == NULL)
		return -ENOMEM;
	tier->can_upload = setup->can_upload;
	tier->can_leave = setup->can_leave;
	tier->context = setup->context;
	tier->object_count = setup->object_count;
	tier->device_count = setup->device_count;
	r = open_tier(tier, setup);
	if (r < 0) {
		(void)tier_destroy(tier);
		return r;
	}
	*ret_tier = tier;
	return 0;
}

struct tier *tier_destroy(struct tier *tier)
{
	if (tier == NULL)
		return NULL;
	(void)moves_destroy(tier->moves);
	(void)policy_destroy(tier->policy);
	free(tier->bytes_of);
	free(tier->device_of);
	free(tier->is_candidate);
	free(tier);
	return NULL;
}

/* ---- candidates ---- */

static uint32_t *candidate_at(struct tier *tier, uint32_t i)
{
	return &tier->candidate[(tier->first_candidate + i) % TIER_CANDIDATES_MAX];
}

static void forget_oldest(struct tier *tier)
{
	tier->is_candidate[*candidate_at(tier, 0)] = 0;
	tier->first_candidate = (tier->first_candidate + 1) % TIER_CANDIDATES_MAX;
	tier->candidate_count--;
}

static void propose(struct tier *tier, uint32_t object)
{
	if (tier->device_of[object] != NOWHERE || tier->is_candidate[object])
		return;
	if (tier->candidate_count == TIER_CANDIDATES_MAX)
		forget_oldest(tier);
	*candidate_at(tier, tier->candidate_count++) = object;
	tier->is_candidate[object] = 1;
}

static void forget_all(struct tier *tier)
{
	while (tier->candidate_count > 0)
		forget_oldest(tier);
}

static int fits_somewhere(const struct tier *tier, uint64_t bytes)
{
	for (uint32_t i = 0; i < tier->device_count; i++)
		if (bytes <= tier->device[i].budget_bytes)
			return 1;
	return 0;
}

/* What makes no move possible, whatever room there is. */
static int is_out(const struct tier *tier, uint32_t object)
{
	return tier->device_of[object] != NOWHERE || !(tier_worth(tier, object) > 0) ||
	       !fits_somewhere(tier, tier->bytes_of[object]) ||
	       moves_ask(tier->moves, object, POLICY_NONE, 0) == MOVES_TOO_SOON ||
	       !tier->can_upload(tier->context, object);
}

/* The one that is worth most, of equals the first; POLICY_NONE: there is none. Those who are out are forgotten. */
static uint32_t best_candidate(struct tier *tier)
{
	uint32_t best = POLICY_NONE, kept = 0;

	for (uint32_t i = 0; i < tier->candidate_count; i++) {
		uint32_t object = *candidate_at(tier, i);

		if (is_out(tier, object)) {
			tier->is_candidate[object] = 0;
			continue;
		}
		*candidate_at(tier, kept++) = object;
		if (best == POLICY_NONE || tier_worth(tier, object) > tier_worth(tier, best))
			best = object;
	}
	tier->candidate_count = kept;
	return best;
}

static void forget(struct tier *tier, uint32_t object)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < tier->candidate_count; i++)
		if (*candidate_at(tier, i) != object)
			*candidate_at(tier, kept++) = *candidate_at(tier, i);
	tier->candidate_count = kept;
	tier->is_candidate[object] = 0;
}

/* ---- what happens ---- */

void tier_visit(struct tier *tier, uint32_t layer, uint32_t token_count)
{
	policy_visit(tier->policy, layer, token_count);
}

void tier_access(struct tier *tier, uint32_t object)
{
	policy_access(tier->policy, object);
	propose(tier, object);
}

void tier_tokens(struct tier *tier, uint32_t tokens)
{
	moves_tokens(tier->moves, tokens);
}

void tier_added(struct tier *tier, uint32_t object, uint32_t device)
{
	CNRE_CHECK(object < tier->object_count && device < tier->device_count && tier->device_of[object] == NOWHERE);
	tier->device_of[object] = (unsigned char)device;
	tier->device[device].used_bytes += tier->bytes_of[object];
	tier->device[device].object_count++;
	policy_add(tier->policy, object);
	moves_done(tier->moves, object, POLICY_NONE, tier->bytes_of[object]);
}

void tier_removed(struct tier *tier, uint32_t object)
{
	struct tier_device *device;

	CNRE_CHECK(object < tier->object_count && tier->device_of[object] != NOWHERE);
	device = &tier->device[tier->device_of[object]];
	device->used_bytes -= tier->bytes_of[object];
	device->object_count--;
	tier->device_of[object] = NOWHERE;
	policy_remove(tier->policy, object);
	moves_gone(tier->moves, object);
}

void tier_lost(struct tier *tier, uint32_t device)
{
	CNRE_CHECK(device < tier->device_count);
	for (uint32_t i = 0; i < tier->object_count; i++)
		if (tier->device_of[i] == device)
			tier_removed(tier, i);
	tier->device[device].budget_bytes = 0;
}

void tier_set_budget(struct tier *tier, uint32_t device, uint64_t budget_bytes)
{
	CNRE_CHECK(device < tier->device_count);
	tier->device[device].budget_bytes = budget_bytes;
}

void tier_set_gain(struct tier *tier, uint32_t layer, float gain_us)
{
	policy_set_miss_us(tier->policy, layer, gain_us);
}

/* ---- decisions ---- */

void tier_pass(struct tier *tier)
{
	moves_pass(tier->moves);
}

static uint64_t free_bytes(const struct tier_device *device)
{
	return device->used_bytes < device->budget_bytes ? device->budget_bytes - device->used_bytes : 0;
}

static uint32_t roomiest(const struct tier *tier, uint64_t bytes)
{
	uint32_t best = TIER_NO_DEVICE;

	for (uint32_t i = 0; i < tier->device_count; i++)
		if (free_bytes(&tier->device[i]) >= bytes &&
		    (best == TIER_NO_DEVICE || free_bytes(&tier->device[i]) > free_bytes(&tier->device[best])))
			best = i;
	return best;
}

/*
 * The worst of a device that is over its budget, as many as need to go, or as a move has room for. Neither worth nor age
 * protects them. All residents are looked at, at most: those of other devices may stand before them.
 */
static int relieve(struct tier *tier, uint32_t index, struct tier_move *ret_move)
{
	const struct tier_device *device = &tier->device[index];
	uint64_t left_bytes = device->used_bytes;
	uint32_t object;

	*ret_move = (struct tier_move){.object = POLICY_NONE, .device = index};
	policy_seek(tier->policy, POLICY_NONE);
	while (left_bytes > device->budget_bytes && ret_move->victim_count < TIER_VICTIMS_MAX &&
	       (object = policy_next(tier->policy)) != POLICY_NONE) {
		if (tier->device_of[object] != index || !tier->can_leave(tier->context, object))
			continue;
		ret_move->victim[ret_move->victim_count++] = object;
		left_bytes -= tier->bytes_of[object];
	}
	return ret_move->victim_count > 0;
}

/* Who would go, by device, until one of them has room. */
struct clearing {
	struct tier_move move[TIER_DEVICES_MAX];
	uint64_t freed_bytes[TIER_DEVICES_MAX];
};

/* 1: with this victim its device has room for so many bytes. */
static int clear(const struct tier *tier, struct clearing *clearing, uint32_t victim, uint64_t bytes)
{
	uint32_t index = tier->device_of[victim];
	struct tier_move *move = &clearing->move[index];

	if (bytes > tier->device[index].budget_bytes || move->victim_count == TIER_VICTIMS_MAX)
		return 0;
	move->victim[move->victim_count++] = victim;
	clearing->freed_bytes[index] += tier->bytes_of[victim];
	return tier->device[index].used_bytes - clearing->freed_bytes[index] <= tier->device[index].budget_bytes - bytes;
}

/* Worst first: the first who is worth too much, or too young, ends it. */
static int replace(struct tier *tier, uint32_t object, struct tier_move *ret_move)
{
	struct clearing clearing = {0};
	uint32_t victim;

	policy_seek(tier->policy, object);
	for (uint32_t tries = 0; tries < TIER_VICTIM_TRIES && (victim = policy_next(tier->policy)) != POLICY_NONE; tries++) {
		if (moves_ask(tier->moves, object, victim, 0) == MOVES_TOO_YOUNG ||
		    !policy_prefers(tier->policy, object, victim, tier->hysteresis))
			return 0;
		if (!tier->can_leave(tier->context, victim) || !clear(tier, &clearing, victim, tier->bytes_of[object]))
			continue;
		*ret_move = clearing.move[tier->device_of[victim]];
		ret_move->object = object;
		ret_move->device = tier->device_of[victim];
		return 1;
	}
	return 0;
}

static int promote(struct tier *tier, struct tier_move *ret_move)
{
	uint32_t object = best_candidate(tier), device;

	if (object == POLICY_NONE ||
	    moves_ask(tier->moves, object, POLICY_NONE, tier->bytes_of[object]) != MOVES_ALLOWED)
		return 0; /* bytes, or moves of this pass, are spent */
	device = roomiest(tier, tier->bytes_of[object]);
	if (device != TIER_NO_DEVICE) {
		*ret_move = (struct tier_move){.object = object, .device = device};
	} else if (!replace(tier, object, ret_move)) {
		forget_all(tier); /* they are worth less, so they do not pay either */
		return 0;
	}
	forget(tier, object);
	return 1;
}

int tier_next(struct tier *tier, struct tier_move *ret_move)
{
	for (uint32_t i = 0; i < tier->device_count; i++)
		if (tier->device[i].used_bytes > tier->device[i].budget_bytes && relieve(tier, i, ret_move))
			return 1;
	return promote(tier, ret_move);
}

/* ---- for people ---- */

void tier_get_device(const struct tier *tier, uint32_t device, struct tier_device *ret_device)
{
	CNRE_CHECK(device < tier->device_count);
	*ret_device = tier->device[device];
}

uint32_t tier_device_of(const struct tier *tier, uint32_t object)
{
	CNRE_CHECK(object < tier->object_count);
	return tier->device_of[object] == NOWHERE ? TIER_NO_DEVICE : tier->device_of[object];
}

double tier_worth(const struct tier *tier, uint32_t object)
{
	return policy_worth(tier->policy, object);
}

uint32_t tier_describe(const struct tier *tier, uint32_t object, struct policy_fact ret_fact[TIER_FACTS_MAX])
{
	uint32_t count = policy_describe(tier->policy, object, ret_fact), worst;

	for (uint32_t i = 0; i < count; i++)
		if (strcmp(ret_fact[i].name, "miss_us") == 0)
			ret_fact[i].name = "gain_us";
	policy_seek(tier->policy, POLICY_NONE);
	worst = policy_next(tier->policy);
	ret_fact[count++] = (struct policy_fact){"worth", tier_worth(tier, object)};
	ret_fact[count++] = (struct policy_fact){"least_worth", worst == POLICY_NONE ? 0 : tier_worth(tier, worst)};
	ret_fact[count++] = (struct policy_fact){"charged_bytes", (double)tier->bytes_of[object]};
	ret_fact[count++] = (struct policy_fact){"is_candidate", tier->is_candidate[object]};
	return count;
}
