/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every policy owes, whatever its order is. Random worlds (layers of different sizes, empty ones too, objects of
 * different sizes) and random calls; a model knows who is resident, and so who may go.
 */
#include "policy/policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(policy_every, .timeout = 300);

#define LAYERS_MAX 9u
#define OBJECTS_MAX 160u
#define WORLDS 40u
#define STEPS 1500u

struct world {
	uint64_t seed;
	uint32_t objects, layers;
	uint32_t layer_of[OBJECTS_MAX], prior_of[OBJECTS_MAX];
	uint64_t bytes_of[OBJECTS_MAX], all_bytes, budget_bytes;
	float miss_us[LAYERS_MAX];
};

/* Two policies live through the same, but the second one is asked less often. */
struct life {
	struct world world;
	struct policy *policy, *twin;
	unsigned char resident[OBJECTS_MAX];
	uint32_t resident_of[LAYERS_MAX];
};

static uint32_t draw(struct world *world, uint32_t below)
{
	world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((world->seed >> 33) % below);
}

static void make_world(struct world *world, uint32_t seed)
{
	memset(world, 0, sizeof *world);
	world->seed = seed * 7919u + 1;
	world->layers = 1 + draw(world, LAYERS_MAX);
	for (uint32_t layer = 0; layer < world->layers; layer++) {
		uint32_t count = draw(world, 5) == 0 ? 0 : 1 + draw(world, OBJECTS_MAX / LAYERS_MAX);

		world->miss_us[layer] = (float)(1 + draw(world, 5));
		for (uint32_t i = 0; i < count; i++) {
			world->layer_of[world->objects] = layer;
			world->prior_of[world->objects] = draw(world, 6);
			world->bytes_of[world->objects] = 1 + draw(world, 4) + layer;
			world->all_bytes += world->bytes_of[world->objects++];
		}
	}
	if (world->objects == 0) {
		world->objects = 1;
		world->bytes_of[0] = world->all_bytes = 1;
	}
	world->budget_bytes = world->all_bytes * (10 + draw(world, 60)) / 100;
}

static int create(struct policy **ret_policy, const struct world *world, const char *name, enum policy_pool pool)
{
	struct policy_setup setup = {
		.object_count = world->objects,
		.layer_count = world->layers,
		.layer_of = world->layer_of,
		.bytes_of = world->bytes_of,
		.budget_bytes = world->budget_bytes,
		.pool = pool,
		.floor_slots = (uint32_t)(world->seed >> 40) % 4,
		.prior_of = world->seed >> 50 & 1 ? world->prior_of : NULL,
		.miss_us_of_layer = world->seed >> 51 & 1 ? world->miss_us : NULL,
	};

	return policy_create(ret_policy, name, &setup);
}

/* ---- what must hold ---- */

/* All victims; their number. More than there are objects: a ring. */
static uint32_t list_victims(struct policy *policy, const struct world *world, uint32_t sought, uint32_t *ret_victim)
{
	uint32_t count = 0;

	policy_seek(policy, sought);
	for (;;) {
		uint32_t victim = policy_next(policy);

		if (victim == POLICY_NONE)
			return count;
		cr_assert(count < world->objects && victim < world->objects);
		ret_victim[count++] = victim;
	}
}

static int may_go(const struct life *life, uint32_t object, uint32_t sought)
{
	uint32_t layer = life->world.layer_of[object], own;
	struct policy_layer own_state, state;

	if (!life->resident[object] || object == sought)
		return 0;
	if (sought == POLICY_NONE)
		return 1;
	own = life->world.layer_of[sought];
	policy_get_layer(life->policy, own, &own_state);
	policy_get_layer(life->policy, layer, &state);
	if (own_state.capacity != POLICY_NONE && life->resident_of[own] >= own_state.capacity)
		return layer == own;
	return layer == own || life->resident_of[layer] > state.floor;
}

static void expect_exactly_those_that_may_go(const struct life *life, uint32_t sought, const uint32_t *victim,
					     uint32_t count)
{
	unsigned char listed[OBJECTS_MAX] = {0};

	for (uint32_t i = 0; i < count; i++) {
		cr_assert(!listed[victim[i]], "%s: twice", policy_name(life->policy));
		listed[victim[i]] = 1;
	}
	for (uint32_t i = 0; i < life->world.objects; i++)
		cr_assert_eq(listed[i], may_go(life, i, sought), "%s, pool %d: object %u of layer %u for %u",
			     policy_name(life->policy), policy_pool_of(life->policy), i, life->world.layer_of[i], sought);
}

static void expect_same(struct policy *policy, const struct world *world, uint32_t sought, const uint32_t *victim,
			uint32_t count)
{
	uint32_t again[OBJECTS_MAX];

	cr_assert_eq(list_victims(policy, world, sought, again), count);
	cr_assert_eq(memcmp(again, victim, count * sizeof *victim), 0, "%s, pool %d: another order", policy_name(policy),
		     policy_pool_of(policy));
}

static uint32_t draw_sought(struct world *world)
{
	return draw(world, 4) == 0 ? POLICY_NONE : draw(world, world->objects);
}

/* A caller may leave off wherever it likes. */
static void browse(struct life *life)
{
	policy_seek(life->policy, draw_sought(&life->world));
	for (uint32_t i = draw(&life->world, 4); i > 0; i--)
		(void)policy_next(life->policy);
}

/* A budget that is the same makes a policy forget what it remembers of the merge, and nothing else. */
static void check(struct life *life)
{
	struct world *world = &life->world;
	uint32_t sought = draw_sought(world), victim[OBJECTS_MAX], count;

	browse(life);
	count = list_victims(life->policy, world, sought, victim);
	expect_exactly_those_that_may_go(life, sought, victim, count);
	expect_same(life->policy, world, sought, victim, count);
	if (draw(world, 4) == 0)
		expect_same(life->twin, world, sought, victim, count);
	if (draw(world, 4) == 0) {
		policy_set_budget(life->policy, world->budget_bytes);
		expect_same(life->policy, world, sought, victim, count);
	}
}

/* ---- what may happen ---- */

static void do_remove(struct life *life, uint32_t object)
{
	policy_remove(life->policy, object);
	policy_remove(life->twin, object);
	life->resident[object] = 0;
	life->resident_of[life->world.layer_of[object]]--;
}

/* The first victim that is not leased; a quarter is. */
static int make_room(struct life *life, uint32_t object)
{
	uint32_t victim;

	policy_seek(life->policy, object);
	do
		victim = policy_next(life->policy);
	while (victim != POLICY_NONE && draw(&life->world, 4) == 0);
	if (victim != POLICY_NONE)
		do_remove(life, victim);
	return victim != POLICY_NONE;
}

static void do_add(struct life *life, uint32_t object)
{
	if (life->resident[object])
		return;
	while (policy_must_replace(life->policy, object))
		if (!make_room(life, object))
			return;
	if (draw(&life->world, 3) == 0 && !make_room(life, object))
		return;
	policy_add(life->policy, object);
	policy_add(life->twin, object);
	life->resident[object] = 1;
	life->resident_of[life->world.layer_of[object]]++;
}

static void do_budget(struct life *life)
{
	life->world.budget_bytes = life->world.all_bytes * draw(&life->world, 110) / 100;
	policy_set_budget(life->policy, life->world.budget_bytes);
	policy_set_budget(life->twin, life->world.budget_bytes);
}

static void do_capacities(struct life *life)
{
	uint32_t capacity[LAYERS_MAX];

	for (uint32_t layer = 0; layer < life->world.layers; layer++)
		capacity[layer] = draw(&life->world, 12);
	cr_assert_eq(policy_set_capacities(life->policy, capacity), 0);
	cr_assert_eq(policy_set_capacities(life->twin, capacity), 0);
}

static void do_miss_us(struct life *life)
{
	uint32_t layer = draw(&life->world, life->world.layers);
	float miss_us = (float)draw(&life->world, 9);

	policy_set_miss_us(life->policy, layer, miss_us);
	policy_set_miss_us(life->twin, layer, miss_us);
}

static void do_visit(struct life *life)
{
	uint32_t layer = draw(&life->world, life->world.layers), tokens = 1 + draw(&life->world, 3);

	policy_visit(life->policy, layer, tokens);
	policy_visit(life->twin, layer, tokens);
}

static void step(struct life *life)
{
	uint32_t what = draw(&life->world, 100), object = draw(&life->world, life->world.objects);

	if (what < 20) {
		do_visit(life);
	} else if (what < 50) {
		policy_access(life->policy, object);
		policy_access(life->twin, object);
	} else if (what < 75) {
		do_add(life, object);
	} else if (what < 80) {
		if (life->resident[object])
			do_remove(life, object);
	} else if (what < 81) {
		do_budget(life);
	} else if (what < 82) {
		do_capacities(life);
	} else if (what < 84) {
		do_miss_us(life);
	} else {
		check(life);
	}
}

static void live(const char *name, enum policy_pool pool, uint32_t seed)
{
	static struct life life;
	int r;

	memset(&life, 0, sizeof life);
	make_world(&life.world, seed);
	r = create(&life.policy, &life.world, name, pool);
	if (r == -EINVAL)
		return; /* a policy that knows one pool only */
	cr_assert_eq(r, 0);
	cr_assert_eq(create(&life.twin, &life.world, name, pool), 0);
	for (uint32_t i = 0; i < STEPS; i++)
		step(&life);
	policy_destroy(life.policy);
	policy_destroy(life.twin);
}

static void live_in_many_worlds(enum policy_pool pool)
{
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		for (uint32_t seed = 0; seed < WORLDS; seed++)
			live(policy_name_at(i), pool, seed);
}

Test(policy_every, victims_are_exactly_those_that_may_go_in_the_default_pool)
{
	live_in_many_worlds(POLICY_POOL_DEFAULT);
}

Test(policy_every, victims_are_exactly_those_that_may_go_in_a_global_pool)
{
	live_in_many_worlds(POLICY_POOL_GLOBAL);
}

Test(policy_every, victims_are_exactly_those_that_may_go_in_layer_pools)
{
	live_in_many_worlds(POLICY_POOL_LAYER);
}

Test(policy_every, victims_are_exactly_those_that_may_go_in_a_soft_pool)
{
	live_in_many_worlds(POLICY_POOL_SOFT);
}

/* ---- creation ---- */

Test(policy_every, has_a_name_by_which_it_is_made_and_a_pool)
{
	struct world world;

	make_world(&world, 1);
	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		struct policy *policy = NULL;

		cr_assert_eq(create(&policy, &world, policy_name_at(i), POLICY_POOL_DEFAULT), 0);
		cr_assert_str_eq(policy_name(policy), policy_name_at(i));
		cr_assert_neq(policy_pool_of(policy), POLICY_POOL_DEFAULT);
		cr_assert_null(policy_destroy(policy));
	}
}

Test(policy_every, says_before_it_is_made_which_pools_it_takes)
{
	struct world world;
	uint32_t refused = 0;

	make_world(&world, 1);
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		for (int pool = POLICY_POOL_DEFAULT; pool <= POLICY_POOL_SOFT; pool++) {
			struct policy *policy = NULL;
			int r = create(&policy, &world, policy_name_at(i), (enum policy_pool)pool);

			cr_expect_eq(policy_takes_pool(policy_name_at(i), (enum policy_pool)pool), r == 0, "%s, pool %d",
				     policy_name_at(i), pool);
			refused += r < 0;
			(void)policy_destroy(policy);
		}
	cr_expect_gt(refused, 0, "engine-lru has a pool a layer and no other");
}

Test(policy_every, refuses_a_setup_that_cannot_be_and_leaves_the_output_untouched)
{
	struct policy *const before = (struct policy *)&before;
	struct policy *policy = before;
	struct world world;

	make_world(&world, 3);
	world.bytes_of[world.objects - 1] = 0;
	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		cr_assert_eq(create(&policy, &world, policy_name_at(i), POLICY_POOL_DEFAULT), -EINVAL);
		cr_assert_eq(policy, before);
	}
}
