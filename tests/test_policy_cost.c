/* SPDX-License-Identifier: Apache-2.0 */
/* The cost policy: rates against a reference in double precision, what decides in a tie, and whom it keeps. */
#include "policy/policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OBJECTS_MAX 4096u

struct shape {
	uint32_t layers, experts, slots;
	enum policy_pool pool;
	uint32_t floor;
	const char *name;            /* NULL: cost */
	const uint32_t *prior;
	const float *miss_us;
	const struct policy_tuning *tuning;
	const uint64_t *bytes;       /* NULL: 1 each */
};

static int make(struct policy **policy, const struct shape *shape)
{
	static uint32_t layer_of[OBJECTS_MAX];
	static uint64_t bytes_of[OBJECTS_MAX];
	struct policy_setup setup = {
		.object_count = shape->layers * shape->experts, .layer_count = shape->layers, .layer_of = layer_of,
		.bytes_of = shape->bytes != NULL ? shape->bytes : bytes_of, .budget_bytes = shape->slots,
		.pool = shape->pool, .floor_slots = shape->floor, .prior_of = shape->prior,
		.miss_us_of_layer = shape->miss_us, .tuning = shape->tuning};

	cr_assert_leq(setup.object_count, OBJECTS_MAX);
	for (uint32_t i = 0; i < setup.object_count; i++) {
		layer_of[i] = i / shape->experts;
		bytes_of[i] = 1;
	}
	return policy_create(policy, shape->name != NULL ? shape->name : "cost", &setup);
}

static struct policy *made(const struct shape *shape)
{
	struct policy *policy = NULL;

	cr_assert_eq(make(&policy, shape), 0);
	return policy;
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void expect_victims(struct policy *policy, const uint32_t *expected)
{
	policy_seek(policy, POLICY_NONE);
	for (; *expected != POLICY_NONE; expected++)
		cr_assert_eq(policy_next(policy), *expected, "victim %u is expected", *expected);
	cr_assert_eq(policy_next(policy), POLICY_NONE);
	cr_assert_eq(policy_next(policy), POLICY_NONE);
}
#define EXPECT_VICTIMS(policy, ...) expect_victims(policy, (const uint32_t[]){__VA_ARGS__, POLICY_NONE})

static void use(struct policy *policy, uint32_t layer, uint32_t object)
{
	policy_visit(policy, layer, 1);
	policy_access(policy, object);
}

/* ---- rates ---- */

Test(policy_cost, rates_fade_by_their_half_lives)
{
	static const float half_lives[] = {1, 16, 128, 0.5f, 1000};

	for (size_t i = 0; i < sizeof half_lives / sizeof half_lives[0]; i++) {
		struct policy_tuning tuning;
		struct policy *policy;
		double rate = 0, fade = exp2(-1.0 / half_lives[i]);
		uint64_t random = i + 1;

		policy_tuning_default(&tuning);
		tuning.half_life[1] = half_lives[i];
		tuning.rate_weight[0] = tuning.rate_weight[2] = 0;
		tuning.rate_weight[1] = 3;
		policy = made(&(struct shape){.layers = 1, .experts = 40, .slots = 8, .tuning = &tuning});
		for (int visit = 0; visit < 3000; visit++) {
			policy_visit(policy, 0, 1);
			rate *= fade;
			if (next_random(&random) % 100 < 7) {
				policy_access(policy, 33);
				rate += 1 - fade;
			}
			cr_assert_float_eq(policy_worth(policy, 33), 3 * rate, 3 * rate * 2e-5 + 1e-12);
		}
		cr_assert_eq(policy_worth(policy, 32), 0);
		policy_destroy(policy);
	}
}

Test(policy_cost, what_is_used_in_every_visit_has_the_rate_one)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 2, .slots = 1});

	for (int visit = 0; visit < 5000; visit++)
		use(policy, 0, 1);
	cr_assert_float_eq(policy_worth(policy, 1), 1 + 2 + 4, 1e-3);
	policy_destroy(policy);
}

Test(policy_cost, rates_end_at_nothing_and_not_in_denormals)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 2, .slots = 1});

	use(policy, 0, 1);
	for (int visit = 0; visit < 128 * 110; visit++)
		policy_visit(policy, 0, 1);
	cr_assert_eq(policy_worth(policy, 1), 0);
	policy_destroy(policy);
}

Test(policy_cost, a_union_and_repeated_lookups_credit_an_expert_once)
{
	struct shape shape = {.layers = 1, .experts = 8, .slots = 4};
	struct policy *one = made(&shape), *many = made(&shape);

	use(one, 0, 3);
	policy_visit(many, 0, 512);
	for (int i = 0; i < 100; i++)
		policy_access(many, 3);
	cr_assert_gt(policy_worth(one, 3), 0);
	cr_assert_eq(policy_worth(one, 3), policy_worth(many, 3));
	policy_destroy(one);
	policy_destroy(many);
}

Test(policy_cost, rates_of_one_layer_do_not_fade_while_another_runs)
{
	struct policy *policy = made(&(struct shape){.layers = 2, .experts = 8, .slots = 4});
	double worth;

	use(policy, 0, 3);
	worth = policy_worth(policy, 3);
	for (int i = 0; i < 100; i++)
		use(policy, 1, 9);
	cr_assert_eq(policy_worth(policy, 3), worth);
	policy_destroy(policy);
}

/* ---- the order ---- */

Test(policy_cost, the_less_used_goes_first_whoever_came_last)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 4});

	for (int i = 0; i < 10; i++) {
		policy_visit(policy, 0, 1);
		policy_access(policy, 0);
		if (i % 2 == 0)
			policy_access(policy, 1);
	}
	for (uint32_t object = 0; object < 3; object++)
		policy_add(policy, object);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 2, 1, 0);
	policy_remove(policy, 2);
	EXPECT_VICTIMS(policy, 1, 0);
	policy_destroy(policy);
}

Test(policy_cost, in_a_tie_the_longer_idle_goes_first_then_the_lower_number)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 8});

	policy_visit(policy, 0, 1);
	policy_add(policy, 5);
	policy_add(policy, 6);
	policy_visit(policy, 0, 1);
	policy_add(policy, 2);
	policy_add(policy, 1);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 5, 6, 1, 2);
	policy_destroy(policy);
}

Test(policy_cost, in_a_tie_between_layers_the_one_that_ran_last_gives)
{
	struct policy *policy = made(&(struct shape){.layers = 3, .experts = 2, .slots = 6});

	for (uint32_t layer = 0; layer < 3; layer++)
		policy_add(policy, layer * 2);
	policy_visit(policy, 0, 1);
	policy_visit(policy, 2, 1);
	policy_visit(policy, 1, 1);
	EXPECT_VICTIMS(policy, 2, 4, 0);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 0, 2, 4);
	policy_destroy(policy);
}

Test(policy_cost, what_is_too_young_goes_after_all_others)
{
	struct policy_tuning tuning;
	struct policy *policy;

	policy_tuning_default(&tuning);
	tuning.min_age_visits = 2;
	policy = made(&(struct shape){.layers = 2, .experts = 4, .slots = 8, .tuning = &tuning});
	policy_visit(policy, 0, 1);
	policy_visit(policy, 1, 1);
	policy_add(policy, 0);
	policy_add(policy, 4);
	for (int i = 0; i < 2; i++) {
		use(policy, 0, 0);
		use(policy, 1, 4);
	}
	policy_add(policy, 1); /* worth nothing, but young */
	policy_add(policy, 2);
	EXPECT_VICTIMS(policy, 4, 0, 1, 2);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 0, 4, 1, 2);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 1, 2, 0, 4);
	policy_remove(policy, 1); /* removed while young, and back: young again */
	policy_add(policy, 1);
	policy_remove(policy, 1);
	policy_add(policy, 1);
	EXPECT_VICTIMS(policy, 2, 0, 4, 1);
	policy_destroy(policy);
}

Test(policy_cost, without_a_least_age_the_newest_may_go_at_once)
{
	struct policy_tuning tuning;
	struct policy *policy;

	policy_tuning_default(&tuning);
	tuning.min_age_visits = 0;
	policy = made(&(struct shape){.layers = 1, .experts = 4, .slots = 4, .tuning = &tuning});
	use(policy, 0, 3);
	policy_add(policy, 3);
	policy_add(policy, 1);
	EXPECT_VICTIMS(policy, 1, 3);
	policy_destroy(policy);
}

Test(policy_cost, of_two_equally_used_the_smaller_stays)
{
	static const uint64_t bytes[] = {2000000, 1000000, 2000000, 2000000};
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 4, .slots = 8000000, .bytes = bytes});

	policy_visit(policy, 0, 1);
	for (uint32_t object = 0; object < 3; object++) {
		policy_access(policy, object);
		policy_add(policy, object);
	}
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 0, 2, 1);
	cr_assert_float_eq(policy_worth(policy, 1), 2 * policy_worth(policy, 0), 1e-12);
	policy_destroy(policy);
}

Test(policy_cost, the_layer_whose_misses_cost_more_keeps_more)
{
	static const float miss_us[] = {100, 300};
	struct policy *policy = made(&(struct shape){.layers = 2, .experts = 2, .slots = 4, .miss_us = miss_us});

	for (uint32_t layer = 0; layer < 2; layer++) {
		use(policy, layer, layer * 2);
		policy_add(policy, layer * 2);
	}
	for (uint32_t layer = 0; layer < 2; layer++)
		policy_visit(policy, layer, 1);
	EXPECT_VICTIMS(policy, 0, 2);
	cr_assert_float_eq(policy_worth(policy, 2), 3 * policy_worth(policy, 0), 1e-4);
	policy_set_miss_us(policy, 0, 1000);
	EXPECT_VICTIMS(policy, 2, 0);
	policy_set_miss_us(policy, 0, NAN); /* no news */
	policy_set_miss_us(policy, 0, -1);
	policy_set_miss_us(policy, 1, INFINITY);
	EXPECT_VICTIMS(policy, 2, 0);
	policy_set_miss_us(policy, 1, 0);
	cr_assert_eq(policy_worth(policy, 2), 0);
	EXPECT_VICTIMS(policy, 2, 0);
	policy_destroy(policy);
}

Test(policy_cost, costs_that_are_no_costs_are_einval)
{
	static const float wrong[] = {NAN, INFINITY, -1};
	struct policy *policy = NULL;

	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(make(&policy, &(struct shape){.layers = 1, .experts = 2, .slots = 4, .miss_us = &wrong[i]}),
			     -EINVAL);
	cr_assert_null(policy);
}

Test(policy_cost, hysteresis_asks_for_so_much_more)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 4, .slots = 4});

	for (int i = 0; i < 8; i++) {
		policy_visit(policy, 0, 1);
		policy_access(policy, 0);
		if (i != 3)
			policy_access(policy, 1);
	}
	cr_assert(policy_prefers(policy, 0, 1, 0));
	cr_assert_not(policy_prefers(policy, 1, 0, 0));
	cr_assert_not(policy_prefers(policy, 0, 0, 0));
	cr_assert_not(policy_prefers(policy, 0, 1, 0.25f));
	policy_destroy(policy);
}

/* ---- the history ---- */

Test(policy_cost, a_skewed_history_keeps_what_it_names)
{
	static const uint32_t history[] = {10, 1000, 20, 900, 5, 5, 5, 5};
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 8, .prior = history, .floor = 2});
	double visits = 1950 / 2.0;

	for (uint32_t object = 0; object < 4; object++)
		policy_add(policy, object);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 0, 2, 3, 1);
	cr_assert_float_eq(policy_worth(policy, 3), 900 / visits * visits / (visits + 64), 1e-6);
	cr_assert_float_eq(policy_worth(policy, 1), visits / (visits + 64), 1e-6, "no rate is more than one");
	policy_destroy(policy);
}

/* Goal: counts that are even but for chance are no knowledge. Method: 64 experts drawn evenly 2000 times, many times. */
Test(policy_cost, an_even_history_is_not_believed)
{
	uint64_t random = 5;

	for (int run = 0; run < 20; run++) {
		uint32_t history[64] = {0}, believed = 0;
		struct policy *policy;

		for (int i = 0; i < 2000; i++)
			history[next_random(&random) % 64]++;
		policy = made(&(struct shape){.layers = 1, .experts = 64, .slots = 8, .prior = history, .floor = 8});
		for (uint32_t object = 0; object < 64; object++)
			believed += policy_worth(policy, object) > 0;
		cr_assert_eq(believed, 0);
		policy_destroy(policy);
	}
}

Test(policy_cost, a_history_that_does_not_hold_is_dropped_and_believed_again_when_it_does)
{
	static const uint32_t history[] = {500, 500, 500, 500, 1, 1, 1, 1};
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 8, .prior = history, .floor = 1});
	int visit;

	policy_visit(policy, 0, 1);
	cr_assert_gt(policy_worth(policy, 0), 0);
	for (visit = 0; visit < 200 && policy_worth(policy, 0) > 0; visit++)
		use(policy, 0, 4 + (uint32_t)visit % 4);
	cr_assert(visit > 1 && visit < 20, "after %d visits", visit);
	for (visit = 0; visit < 500 && policy_worth(policy, 3) == 0; visit++)
		use(policy, 0, (uint32_t)visit % 3);
	cr_assert(visit > 1 && visit < 200, "after %d visits", visit);
	policy_destroy(policy);
}

Test(policy_cost, a_history_is_dropped_for_a_whole_layer_at_its_next_visit)
{
	static const uint32_t history[] = {500, 500, 500, 500, 1, 1, 1, 1};
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 8, .prior = history, .floor = 1});

	policy_visit(policy, 0, 1);
	for (uint32_t object = 7; object >= 4; object--)
		policy_access(policy, object);
	policy_access(policy, 0);
	cr_assert_gt(policy_worth(policy, 1), 0.2);
	cr_assert_gt(policy_worth(policy, 0), policy_worth(policy, 1) + 0.5, "a use more, and the history as all others");
	policy_visit(policy, 0, 1);
	cr_assert_eq(policy_worth(policy, 1), 0);
	policy_destroy(policy);
}

Test(policy_cost, an_empty_history_is_none)
{
	static const uint32_t history[8] = {0};
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = 8, .slots = 8, .prior = history});

	use(policy, 0, 1);
	cr_assert_eq(policy_worth(policy, 0), 0);
	cr_assert_gt(policy_worth(policy, 1), 0);
	policy_destroy(policy);
}

/* ---- what it is good for ---- */

struct store {
	struct policy *policy;
	uint32_t slots, used, misses;
};

/* One batch: all are looked up, then what misses is placed, and no member gives way. */
static void run_batch(struct store *store, uint32_t layer, const uint32_t *object, uint32_t count)
{
	uint32_t missed[16], miss_count = 0;

	policy_visit(store->policy, layer, 1);
	for (uint32_t i = 0; i < count; i++) {
		policy_access(store->policy, object[i]);
		if (!policy_is_resident(store->policy, object[i]))
			missed[miss_count++] = object[i];
	}
	store->misses += miss_count;
	for (uint32_t i = 0; i < miss_count; i++) {
		if (store->used == store->slots || policy_must_replace(store->policy, missed[i])) {
			uint32_t victim, leased = 1;

			policy_seek(store->policy, missed[i]);
			while (leased) {
				victim = policy_next(store->policy);
				leased = 0;
				for (uint32_t k = 0; k < count; k++)
					leased |= object[k] == victim;
			}
			if (victim == POLICY_NONE)
				continue;
			policy_remove(store->policy, victim);
			store->used--;
		}
		policy_add(store->policy, missed[i]);
		store->used++;
	}
}

/* Goal: a pool below one token's cycle hits, where LRU never does. Method: 8 layers use the same 4 experts every token. */
static uint32_t cyclic_misses(const char *name, enum policy_pool pool, uint32_t min_age_visits)
{
	struct store store = {.slots = 16};
	struct policy_tuning tuning;

	policy_tuning_default(&tuning);
	tuning.min_age_visits = min_age_visits;
	store.policy = made(&(struct shape){
		.layers = 8, .experts = 8, .slots = store.slots, .pool = pool, .name = name, .tuning = &tuning});
	for (uint32_t token = 0; token < 100; token++) {
		for (uint32_t layer = 0; layer < 8; layer++) {
			uint32_t first = layer * 8;

			run_batch(&store, layer, (const uint32_t[]){first, first + 1, first + 2, first + 3}, 4);
		}
	}
	policy_destroy(store.policy);
	return store.misses;
}

Test(policy_cost, a_pool_below_one_token_cycle_hits)
{
	cr_assert_eq(cyclic_misses("lru", POLICY_POOL_GLOBAL, 1), 3200);
	/* The best: twelve of 32 stay, and four slots are passed from layer to layer. */
	cr_assert_eq(cyclic_misses("cost", POLICY_POOL_GLOBAL, 0), 2012);
	cr_assert_eq(cyclic_misses("cost", POLICY_POOL_SOFT, 0), 2012);
	/* The young are spared, wherever they are, and take it from those that have stayed. */
	cr_assert_leq(cyclic_misses("cost", POLICY_POOL_GLOBAL, 1), 2500);
	cr_assert_leq(cyclic_misses("cost", POLICY_POOL_SOFT, 1), 2500);
}

Test(policy_cost, a_sweep_of_strangers_does_not_take_what_is_used_all_the_time)
{
	struct store lru = {.slots = 10}, cost = {.slots = 10};
	uint64_t random = 3;

	lru.policy = made(&(struct shape){.layers = 1, .experts = 200, .slots = 10, .name = "lru"});
	cost.policy = made(&(struct shape){.layers = 1, .experts = 200, .slots = 10});
	for (uint32_t token = 0; token < 2000; token++) {
		/* one of eight that come back, and five strangers */
		uint32_t batch[6] = {next_random(&random) % 8};

		for (uint32_t i = 1; i < 6; i++)
			batch[i] = 8 + (token * 5 + i) % 192;
		run_batch(&lru, 0, batch, 6);
		run_batch(&cost, 0, batch, 6);
	}
	cr_assert_lt(cost.misses + 500, lru.misses, "%u of %u", cost.misses, lru.misses);
	policy_destroy(lru.policy);
	policy_destroy(cost.policy);
}

/* ---- the same in every process, however victims are sought ---- */

/*
 * Goal: seeks that look only at what changed find what a look at everything finds. Method: twins get the same calls. One
 * is asked for the room of an object; the other for its whole order, of which the test takes out who may not give.
 */
static void expect_twins_agree(const struct shape *shape)
{
	struct policy *twin[2] = {made(shape), made(shape)};
	uint32_t objects = shape->layers * shape->experts, used = 0;
	uint64_t random = 11;

	for (int step = 0; step < 6000; step++) {
		uint32_t object = next_random(&random) % objects, layer = object / shape->experts, what = next_random(&random) % 16;
		struct policy_layer state;

		for (int i = 0; i < 2 && what < 4; i++)
			policy_visit(twin[i], layer, 1);
		for (int i = 0; i < 2 && what >= 4 && what < 10; i++)
			policy_access(twin[i], object);
		for (int i = 0; i < 2 && what == 10; i++)
			policy_set_miss_us(twin[i], layer, (float)(step % 7 + 1));
		if (what <= 10 || policy_is_resident(twin[0], object))
			continue;
		policy_get_layer(twin[0], layer, &state);
		if (used == shape->slots || policy_must_replace(twin[0], object)) {
			uint32_t named = 0, own_only = policy_must_replace(twin[0], object), wanted = what % 3 + 1, last = POLICY_NONE;

			policy_seek(twin[0], object);
			policy_seek(twin[1], POLICY_NONE);
			for (uint32_t victim; named < wanted; named++) {
				for (;;) {
					uint32_t other;

					victim = policy_next(twin[1]);
					if (victim == POLICY_NONE)
						break;
					other = victim / shape->experts;
					policy_get_layer(twin[1], other, &state);
					if (other == layer || (!own_only && state.resident > state.floor))
						break;
				}
				cr_assert_eq(policy_next(twin[0]), victim, "step %d", step);
				if (victim == POLICY_NONE)
					break;
				last = victim;
			}
			if (last == POLICY_NONE || step % 5 == 0) /* all are leased, and the object is not placed */
				continue;
			for (int i = 0; i < 2; i++)
				policy_remove(twin[i], last);
			used--;
		}
		for (int i = 0; i < 2; i++)
			policy_add(twin[i], object);
		used++;
	}
	for (uint32_t i = 0; i < objects; i++)
		cr_assert_eq(policy_worth(twin[0], i), policy_worth(twin[1], i));
	policy_destroy(twin[0]);
	policy_destroy(twin[1]);
}

Test(policy_cost, seeks_that_look_at_changes_only_find_the_same)
{
	static const enum policy_pool pools[] = {POLICY_POOL_GLOBAL, POLICY_POOL_SOFT, POLICY_POOL_LAYER};
	struct policy_tuning tuning;

	policy_tuning_default(&tuning);
	for (uint32_t age = 0; age < 4; age++) {
		for (size_t i = 0; i < 3; i++) {
			tuning.min_age_visits = age;
			expect_twins_agree(&(struct shape){.layers = 7, .experts = 45, .slots = 100, .pool = pools[i],
							   .floor = 9, .tuning = &tuning});
			expect_twins_agree(&(struct shape){.layers = 13, .experts = 3, .slots = 20, .pool = pools[i],
							   .floor = 1, .tuning = &tuning});
			expect_twins_agree(&(struct shape){.layers = 9, .experts = 10, .slots = 40, .pool = pools[i],
							   .floor = 2, .name = "lru"});
		}
	}
}

/* The order names the same object before and after, and yet it is another: young. */
Test(policy_cost, what_goes_and_comes_back_is_compared_anew)
{
	struct policy *policy = made(&(struct shape){.layers = 9, .experts = 1, .slots = 2, .pool = POLICY_POOL_GLOBAL});

	policy_add(policy, 0);
	policy_add(policy, 1);
	policy_visit(policy, 1, 1);
	policy_visit(policy, 0, 1);
	policy_seek(policy, 8);
	cr_assert_eq(policy_next(policy), 0, "its layer ran last");
	policy_remove(policy, 0);
	policy_add(policy, 0);
	policy_seek(policy, 8);
	cr_assert_eq(policy_next(policy), 1);
	policy_destroy(policy);
}

Test(policy_cost, the_whole_order_is_by_worth_and_names_everybody_once)
{
	struct policy *policy = made(&(struct shape){.layers = 3, .experts = 77, .slots = 231});
	uint32_t seen[231] = {0}, before = POLICY_NONE;
	uint64_t random = 7;

	for (int i = 0; i < 3000; i++) {
		uint32_t object = next_random(&random) % 231;

		policy_visit(policy, object / 77, 1);
		for (uint32_t k = 0; k < 5; k++)
			policy_access(policy, object / 77 * 77 + (object + k * k) % 77);
		if (i < 500 && !policy_is_resident(policy, object))
			policy_add(policy, object);
	}
	policy_seek(policy, POLICY_NONE);
	for (uint32_t object = policy_next(policy); object != POLICY_NONE; object = policy_next(policy)) {
		cr_assert_eq(seen[object]++, 0);
		cr_assert(before == POLICY_NONE || policy_worth(policy, before) <= policy_worth(policy, object));
		before = object;
	}
	for (uint32_t object = 0; object < 231; object++)
		cr_assert_eq((int)seen[object], policy_is_resident(policy, object));
	policy_destroy(policy);
}

/* ---- the whole order ---- */

static double walk_s(struct policy *policy, uint32_t objects)
{
	struct timespec begin, end;
	uint32_t named = 0;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	policy_seek(policy, POLICY_NONE);
	while (policy_next(policy) != POLICY_NONE)
		named++;
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	cr_assert_eq(named, objects);
	return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
}

static double least_walk_s(uint32_t experts)
{
	struct policy *policy = made(&(struct shape){.layers = 1, .experts = experts, .slots = experts});
	uint64_t random = 1;
	double least = INFINITY;

	for (uint32_t i = 0; i < experts; i++)
		policy_add(policy, i);
	for (uint32_t i = 0; i < 2 * experts; i++)
		use(policy, 0, next_random(&random) % experts);
	for (int i = 0; i < 5; i++)
		least = fmin(least, walk_s(policy, experts));
	(void)policy_destroy(policy);
	return least;
}

/* Eight times the objects are some ten times the work; with a look at all for each it was 64 times. */
Test(policy_cost, passing_over_everybody_is_no_look_at_all_for_each)
{
	cr_assert_lt(least_walk_s(4096), 30 * least_walk_s(512));
}
