/* SPDX-License-Identifier: Apache-2.0 */
/* Placement in VRAM: each rule alone, and what holds whatever happens. */
#include "policy/tier.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(policy_tier, .timeout = 60);

enum { OBJECTS = 8, LAYERS = 2, MANY = 600 };

/* Two layers of four objects of 100 charged bytes. */
static const uint32_t layer_of[OBJECTS] = {0, 0, 0, 0, 1, 1, 1, 1};
static const uint64_t bytes_of[OBJECTS] = {100, 100, 100, 100, 100, 100, 100, 100};
static const struct moves_limits unlimited = {.hysteresis = 0.25f};

/* The caller's world: who is in RAM, who is leased in VRAM. */
static struct {
	unsigned char in_ram[MANY], leased[MANY];
	uint32_t asked;
} world;

static int can_upload(void *context, uint32_t object)
{
	cr_assert_eq(context, &world);
	world.asked++;
	return world.in_ram[object];
}

static int can_leave(void *context, uint32_t object)
{
	cr_assert_eq(context, &world);
	return !world.leased[object];
}

static struct tier_setup setup_of(const struct moves_limits *limits)
{
	return (struct tier_setup){.object_count = OBJECTS, .layer_count = LAYERS, .layer_of = layer_of,
				   .charged_bytes_of = bytes_of, .device_count = 2, .limits = limits,
				   .can_upload = can_upload, .can_leave = can_leave, .context = &world};
}

static struct tier *created(const struct tier_setup *setup)
{
	struct tier *tier = NULL;

	memset(&world, 0, sizeof world);
	memset(world.in_ram, 1, sizeof world.in_ram);
	cr_assert_eq(tier_create(&tier, setup), 0);
	return tier;
}

/* Device 0 has room for `slots` objects, device 1 for none. */
static struct tier *opened(const struct moves_limits *limits, uint64_t slots)
{
	struct tier_setup setup = setup_of(limits);
	struct tier *tier = created(&setup);

	tier_set_budget(tier, 0, slots * 100);
	return tier;
}

static void use(struct tier *tier, uint32_t object, int times)
{
	while (times-- > 0) {
		tier_visit(tier, layer_of[object], 1);
		tier_access(tier, object);
	}
}

/* Does what tier_next says, until it says no more; how many objects came. */
static int settle(struct tier *tier)
{
	struct tier_move move;
	int count = 0;

	tier_pass(tier);
	while (tier_next(tier, &move)) {
		for (uint32_t i = 0; i < move.victim_count; i++) {
			cr_assert_eq(tier_device_of(tier, move.victim[i]), move.device);
			tier_removed(tier, move.victim[i]);
		}
		if (move.object == POLICY_NONE)
			continue;
		tier_added(tier, move.object, move.device);
		count++;
	}
	return count;
}

static int is_there(const struct tier *tier, uint32_t object)
{
	return tier_device_of(tier, object) != TIER_NO_DEVICE;
}

static void expect_none(struct tier *tier)
{
	struct tier_move move;

	tier_pass(tier);
	cr_expect_eq(tier_next(tier, &move), 0);
}

/* ---- what comes ---- */

Test(policy_tier, hits_of_a_warm_ram_fill_a_budget_that_is_raised_from_0)
{
	struct tier *tier = opened(&unlimited, 0);

	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 3);
	cr_expect_eq(settle(tier), 0);
	tier_set_budget(tier, 0, 600);
	cr_expect_eq(settle(tier), 0, "nobody was used since");
	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 1);
	cr_expect_eq(settle(tier), 6);
	tier = tier_destroy(tier);
}

Test(policy_tier, what_is_not_in_ram_is_not_uploaded)
{
	struct tier *tier = opened(&unlimited, 2);

	world.in_ram[0] = 0;
	use(tier, 0, 5);
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(!is_there(tier, 0) && is_there(tier, 1));
	world.in_ram[0] = 1;
	expect_none(tier); /* it is a candidate again when it is used */
	use(tier, 0, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 0));
	tier = tier_destroy(tier);
}

Test(policy_tier, the_candidate_that_is_worth_most_comes_first)
{
	struct tier *tier = opened(&unlimited, 4);
	struct tier_move move;

	use(tier, 1, 1);
	use(tier, 2, 8);
	use(tier, 3, 1);
	tier_pass(tier);
	cr_assert_eq(tier_next(tier, &move), 1);
	cr_expect_eq(move.object, 2);
	cr_expect_eq(move.victim_count, 0);
	tier = tier_destroy(tier);
}

Test(policy_tier, a_move_that_was_not_made_is_not_named_again_until_the_object_is_used)
{
	struct tier *tier = opened(&unlimited, 4);
	struct tier_move move;

	use(tier, 1, 1);
	cr_assert_eq(tier_next(tier, &move), 1);
	cr_expect_eq(tier_next(tier, &move), 0);
	use(tier, 1, 1);
	cr_expect_eq(tier_next(tier, &move), 1);
	tier = tier_destroy(tier);
}

Test(policy_tier, room_is_taken_where_there_is_most_and_an_object_is_on_one_device)
{
	struct tier *tier = opened(&unlimited, 1);

	tier_set_budget(tier, 1, 300);
	use(tier, 0, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect_eq(tier_device_of(tier, 0), 1);
	use(tier, 0, 3);
	cr_expect_eq(settle(tier), 0);
	for (uint32_t i = 1; i < OBJECTS; i++)
		use(tier, i, 1);
	(void)settle(tier);
	for (uint32_t d = 0; d < 2; d++) {
		struct tier_device device;

		tier_get_device(tier, d, &device);
		cr_expect_eq(device.used_bytes, device.budget_bytes);
		cr_expect_eq(device.object_count, device.budget_bytes / 100);
	}
	tier = tier_destroy(tier);
}

Test(policy_tier, what_fits_on_no_device_is_no_candidate)
{
	struct tier *tier = opened(&unlimited, 1);

	tier_set_budget(tier, 0, 99);
	use(tier, 0, 9);
	expect_none(tier);
	cr_expect_eq(world.asked, 0);
	tier = tier_destroy(tier);
}

Test(policy_tier, of_too_many_candidates_the_latest_are_kept)
{
	static uint32_t one_layer[MANY];
	static uint64_t bytes[MANY];
	struct tier_setup setup = setup_of(&unlimited);
	struct tier *tier;

	for (uint32_t i = 0; i < MANY; i++)
		bytes[i] = 100;
	setup.object_count = MANY;
	setup.layer_count = 1;
	setup.layer_of = one_layer;
	setup.charged_bytes_of = bytes;
	tier = created(&setup);
	tier_set_budget(tier, 0, MANY * 100);
	tier_visit(tier, 0, 1);
	for (uint32_t i = 0; i < MANY; i++)
		tier_access(tier, i);
	cr_expect_eq(settle(tier), (int)TIER_CANDIDATES_MAX);
	for (uint32_t i = 0; i < MANY; i++)
		cr_expect_eq(is_there(tier, i), i >= MANY - TIER_CANDIDATES_MAX, "%u", i);
	for (uint32_t i = 0; i < MANY; i = i == 0 ? MANY - TIER_CANDIDATES_MAX : i + 1)
		tier_access(tier, i);
	cr_expect_eq(settle(tier), 1, "who is there already crowds nobody out");
	cr_expect(is_there(tier, 0));
	tier = tier_destroy(tier);
}

Test(policy_tier, who_is_used_often_crowds_nobody_out)
{
	struct tier *tier = opened(&unlimited, 8);

	use(tier, 1, 1);
	use(tier, 0, (int)TIER_CANDIDATES_MAX + 1);
	cr_expect_eq(settle(tier), 2);
	cr_expect(is_there(tier, 0) && is_there(tier, 1));
	tier = tier_destroy(tier);
}

Test(policy_tier, a_candidate_that_came_by_itself_is_none_any_more)
{
	struct tier *tier = opened(&unlimited, 8);

	use(tier, 0, 1);
	tier_added(tier, 0, 0); /* found there, say */
	expect_none(tier);
	tier = tier_destroy(tier);
}

Test(policy_tier, candidates_that_did_not_pay_are_forgotten)
{
	struct tier *tier = opened(&unlimited, 1);

	use(tier, 0, 8);
	cr_expect_eq(settle(tier), 1);
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 0);
	tier_set_budget(tier, 0, 800);
	cr_expect_eq(settle(tier), 0);
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 1);
	tier = tier_destroy(tier);
}

/* ---- who goes ---- */

Test(policy_tier, a_newcomer_must_be_worth_a_quarter_more)
{
	struct tier *tier = opened(&unlimited, 1);

	for (int i = 0; i < 8; i++) { /* 0 is used eight times, 1 seven, 2 four */
		tier_visit(tier, 0, 1);
		tier_access(tier, 0);
		if (i != 3)
			tier_access(tier, 1);
		if (i % 2 == 0)
			tier_access(tier, 2);
	}
	tier_added(tier, 1, 0);
	cr_assert(tier_worth(tier, 0) > tier_worth(tier, 1));
	cr_expect_eq(settle(tier), 0, "more, but not by a quarter");
	cr_expect(is_there(tier, 1));
	tier_removed(tier, 1);
	tier_added(tier, 2, 0);
	tier_access(tier, 0); /* a candidate again */
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 0) && !is_there(tier, 2));
	tier = tier_destroy(tier);
}

Test(policy_tier, without_hysteresis_it_must_still_be_worth_more)
{
	struct tier *tier = opened(&(struct moves_limits){0}, 1);

	tier_visit(tier, 0, 1);
	tier_access(tier, 0);
	tier_access(tier, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 0));
	tier_visit(tier, 0, 1);
	tier_access(tier, 0);
	tier_access(tier, 1);
	cr_expect_eq(settle(tier), 0, "as much");
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 1));
	tier = tier_destroy(tier);
}

Test(policy_tier, who_has_just_come_stays_for_its_least_age)
{
	struct tier *tier = opened(&(struct moves_limits){.min_age_visits = 3}, 1);

	use(tier, 0, 1);
	cr_expect_eq(settle(tier), 1);
	use(tier, 1, 2);
	cr_expect_eq(settle(tier), 0, "two visits");
	for (int i = 0; i < 9; i++)
		tier_visit(tier, 1, 1); /* another layer's clock */
	tier_access(tier, 1);
	cr_expect_eq(settle(tier), 0);
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 1) && !is_there(tier, 0));
	tier = tier_destroy(tier);
}

Test(policy_tier, the_young_do_not_hide_the_old)
{
	struct tier *tier = opened(&(struct moves_limits){.min_age_visits = 4}, 2);

	world.in_ram[2] = 0;
	use(tier, 2, 30);
	use(tier, 0, 8);
	(void)settle(tier);
	use(tier, 0, 8);
	use(tier, 1, 1);
	(void)settle(tier);
	cr_assert(is_there(tier, 0) && is_there(tier, 1));
	world.in_ram[2] = 1;
	use(tier, 2, 1);
	cr_assert(tier_worth(tier, 2) > tier_worth(tier, 0) && tier_worth(tier, 0) > tier_worth(tier, 1));
	cr_expect_eq(settle(tier), 1);
	cr_expect(!is_there(tier, 0) && is_there(tier, 1) && is_there(tier, 2));
	tier = tier_destroy(tier);
}

Test(policy_tier, what_has_just_gone_comes_back_after_the_interval)
{
	struct tier *tier = opened(&(struct moves_limits){.min_interval_visits = 4}, 1);

	use(tier, 0, 4);
	(void)settle(tier);
	use(tier, 0, 9);
	tier_removed(tier, 0);
	use(tier, 0, 3);
	use(tier, 4, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 4), "who may not come does not stand in another's way");
	tier_removed(tier, 4);
	use(tier, 0, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 0));
	tier = tier_destroy(tier);
}

Test(policy_tier, a_leased_victim_is_passed_over)
{
	struct tier *tier = opened(&unlimited, 2);

	use(tier, 0, 1);
	use(tier, 1, 2);
	(void)settle(tier);
	world.leased[0] = 1;
	use(tier, 2, 12);
	cr_expect_eq(settle(tier), 1);
	cr_expect(is_there(tier, 0) && !is_there(tier, 1) && is_there(tier, 2));
	world.leased[2] = 1;
	use(tier, 3, 30);
	cr_expect_eq(settle(tier), 0, "all are leased");
	tier = tier_destroy(tier);
}

Test(policy_tier, victims_of_one_device_make_room_for_a_large_one)
{
	static const uint64_t mixed[OBJECTS] = {100, 100, 100, 100, 250, 250, 250, 250};
	struct tier_setup setup = setup_of(&unlimited);
	struct tier_move move;
	struct tier *tier;

	setup.charged_bytes_of = mixed;
	tier = created(&setup);
	tier_set_budget(tier, 0, 300);
	tier_set_budget(tier, 1, 100);
	for (uint32_t i = 0; i < 4; i++) /* the worst is alone on device 1, where the large one has no room in any case */
		use(tier, i, (int)i + 1);
	tier_added(tier, 0, 1);
	for (uint32_t i = 1; i < 4; i++)
		tier_added(tier, i, 0);
	use(tier, 4, 40);
	tier_set_gain(tier, 1, 1000); /* by its bytes it is worth less than half */
	tier_pass(tier);
	cr_assert_eq(tier_next(tier, &move), 1);
	cr_expect_eq(move.object, 4);
	cr_expect_eq(move.device, 0);
	cr_assert_eq(move.victim_count, 3);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(move.victim[i], i + 1, "worst first");
	tier = tier_destroy(tier);
}

/* ---- bytes ---- */

Test(policy_tier, bytes_a_token_hold_and_candidates_wait_for_them)
{
	struct tier *tier = opened(&(struct moves_limits){.bytes_per_token = 50}, 8);
	int count = 0;

	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 1);
	cr_expect_eq(settle(tier), 0, "no token yet");
	for (int token = 0; token < 10; token++) {
		tier_tokens(tier, 1);
		count += settle(tier);
	}
	cr_expect_eq(count, 5, "%d in 500 bytes", count);
	tier_tokens(tier, 100);
	cr_expect_eq(settle(tier), 3, "the rest waited, unused");
	tier = tier_destroy(tier);
}

Test(policy_tier, moves_of_a_pass_hold)
{
	struct tier *tier = opened(&(struct moves_limits){.moves_per_pass = 3}, 8);

	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 1);
	cr_expect_eq(settle(tier), 3);
	cr_expect_eq(settle(tier), 3);
	cr_expect_eq(settle(tier), 2);
	tier = tier_destroy(tier);
}

Test(policy_tier, a_lesser_budget_sends_the_worst_away_but_not_the_leased)
{
	struct tier *tier = opened(&(struct moves_limits){.min_age_visits = 100, .bytes_per_token = 1000}, 4);
	struct tier_move move;

	tier_tokens(tier, 1);
	for (uint32_t i = 0; i < 4; i++)
		use(tier, i, 1 + (int)i);
	cr_assert_eq(settle(tier), 4);
	world.leased[1] = 1;
	tier_set_budget(tier, 0, 200);
	tier_pass(tier);
	cr_assert_eq(tier_next(tier, &move), 1);
	cr_expect_eq(move.object, POLICY_NONE);
	cr_expect_eq(move.device, 0);
	cr_assert_eq(move.victim_count, 2);
	cr_expect(move.victim[0] == 0 && move.victim[1] == 2, "worst first, neither worth nor age protects them");
	(void)settle(tier);
	memset(world.leased, 1, sizeof world.leased);
	tier_set_budget(tier, 0, 100);
	expect_none(tier);
	tier = tier_destroy(tier);
}

Test(policy_tier, a_lesser_budget_takes_from_its_own_device)
{
	struct tier *tier = opened(&unlimited, 2);
	struct tier_move move;

	tier_set_budget(tier, 1, 200);
	for (uint32_t i = 0; i < 4; i++) {
		use(tier, i, 1 + (int)i);
		tier_added(tier, i, i / 2); /* the worst are on device 0 */
	}
	tier_set_budget(tier, 1, 100);
	cr_assert_eq(tier_next(tier, &move), 1);
	cr_expect(move.object == POLICY_NONE && move.device == 1 && move.victim_count == 1 && move.victim[0] == 2);
	tier = tier_destroy(tier);
}

Test(policy_tier, a_lost_device_holds_nothing_and_gets_nothing)
{
	struct tier *tier = opened(&unlimited, 2);
	struct tier_device device;

	tier_set_budget(tier, 1, 300);
	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 1);
	cr_assert_eq(settle(tier), 5);
	tier_lost(tier, 1);
	tier_get_device(tier, 1, &device);
	cr_expect(device.used_bytes == 0 && device.budget_bytes == 0 && device.object_count == 0);
	for (uint32_t i = 0; i < OBJECTS; i++)
		cr_expect_neq(tier_device_of(tier, i), 1);
	tier_get_device(tier, 0, &device);
	cr_expect_eq(device.object_count, 2);
	for (uint32_t i = 0; i < OBJECTS; i++)
		use(tier, i, 30);
	(void)settle(tier);
	tier_get_device(tier, 1, &device);
	cr_expect_eq(device.object_count, 0);
	tier = tier_destroy(tier);
}

/* ---- worth ---- */

Test(policy_tier, worth_is_rate_times_gain_by_charged_bytes)
{
	static const uint64_t mixed[OBJECTS] = {100, 200, 100, 100, 100, 100, 100, 100};
	static const float gain_us[LAYERS] = {10, 30};
	struct tier_setup setup = setup_of(&unlimited);
	struct tier *tier;

	setup.charged_bytes_of = mixed;
	setup.gain_us_of_layer = gain_us;
	tier = created(&setup);
	for (uint32_t layer = 0; layer < 2; layer++)
		tier_visit(tier, layer, 1);
	tier_access(tier, 0);
	tier_access(tier, 1);
	tier_access(tier, 4);
	cr_expect_float_eq(tier_worth(tier, 0) / tier_worth(tier, 1), 2, 1e-6);
	cr_expect_float_eq(tier_worth(tier, 4) / tier_worth(tier, 0), 3, 1e-6);
	tier_set_gain(tier, 1, NAN);
	tier_set_gain(tier, 1, -1);
	cr_expect_float_eq(tier_worth(tier, 4) / tier_worth(tier, 0), 3, 1e-6, "what is no gain is not taken");
	tier_set_gain(tier, 1, 5);
	cr_expect_float_eq(tier_worth(tier, 4) / tier_worth(tier, 0), 0.5, 1e-6);
	tier = tier_destroy(tier);
}

Test(policy_tier, without_gains_a_hit_in_ram_costs_its_bytes)
{
	static const uint64_t mixed[OBJECTS] = {100, 100, 100, 100, 300, 300, 300, 300};
	struct tier_setup setup = setup_of(&unlimited);
	struct tier *tier;

	setup.charged_bytes_of = mixed;
	tier = created(&setup);
	use(tier, 0, 1);
	use(tier, 4, 1);
	cr_expect_float_eq(tier_worth(tier, 0), tier_worth(tier, 4), 1e-6 * tier_worth(tier, 0));
	tier = tier_destroy(tier);
}

Test(policy_tier, what_gains_nothing_is_not_promoted_and_goes_first)
{
	struct tier *tier = opened(&unlimited, 2);

	use(tier, 4, 50);
	use(tier, 0, 1);
	cr_assert_eq(settle(tier), 2);
	tier_set_gain(tier, 1, 0);
	use(tier, 5, 50);
	cr_expect_eq(settle(tier), 0);
	use(tier, 1, 1);
	cr_expect_eq(settle(tier), 1);
	cr_expect(!is_there(tier, 4) && is_there(tier, 0) && is_there(tier, 1));
	tier_set_budget(tier, 0, 800);
	use(tier, 5, 1);
	cr_expect_eq(settle(tier), 0, "though there is room");
	tier = tier_destroy(tier);
}

Test(policy_tier, facts_have_names_and_describing_changes_nothing)
{
	static const char *const names[] = {"use_rate_1", "gain_us", "worth", "least_worth", "charged_bytes", "is_candidate"};
	struct tier *tier = opened(&unlimited, 1);
	struct policy_fact fact[TIER_FACTS_MAX], again[TIER_FACTS_MAX];
	uint32_t count;

	use(tier, 1, 1);
	(void)settle(tier);
	use(tier, 0, 3);
	count = tier_describe(tier, 0, fact);
	cr_assert_leq(count, TIER_FACTS_MAX);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		int found = 0;

		for (uint32_t k = 0; k < count; k++)
			found += strcmp(fact[k].name, names[i]) == 0;
		cr_expect_eq(found, 1, "%s", names[i]);
	}
	for (uint32_t k = 0; k < count; k++) {
		if (strcmp(fact[k].name, "worth") == 0)
			cr_expect_eq(fact[k].value, tier_worth(tier, 0));
		if (strcmp(fact[k].name, "least_worth") == 0)
			cr_expect_eq(fact[k].value, tier_worth(tier, 1));
		if (strcmp(fact[k].name, "is_candidate") == 0)
			cr_expect_eq(fact[k].value, 1);
	}
	cr_expect_eq(tier_describe(tier, 0, again), count);
	for (uint32_t k = 0; k < count; k++)
		cr_expect(strcmp(fact[k].name, again[k].name) == 0 && fact[k].value == again[k].value);
	cr_expect_eq(settle(tier), 1);
	tier = tier_destroy(tier);
}

/* ---- in general ---- */

Test(policy_tier, setups_that_cannot_be_are_refused)
{
	static const uint32_t falling[OBJECTS] = {1, 1, 1, 1, 0, 0, 0, 0};
	static const uint64_t nothing[OBJECTS] = {100, 0, 100, 100, 100, 100, 100, 100};
	static const float bad_gain[LAYERS] = {1, NAN};
	struct tier *tier = NULL;
	struct tier_setup setup[] = {setup_of(NULL), setup_of(NULL), setup_of(NULL), setup_of(NULL), setup_of(NULL),
				     setup_of(NULL), setup_of(NULL)};

	setup[0].device_count = 0;
	setup[1].device_count = TIER_DEVICES_MAX + 1;
	setup[2].layer_of = falling;
	setup[3].charged_bytes_of = nothing;
	setup[4].gain_us_of_layer = bad_gain;
	setup[5].can_upload = NULL;
	setup[6].object_count = 0;
	for (size_t i = 0; i < sizeof setup / sizeof setup[0]; i++)
		cr_expect_eq(tier_create(&tier, &setup[i]), -EINVAL, "%zu", i);
	cr_expect_null(tier);
	cr_expect_null(tier_destroy(NULL));
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* What came and went, as one number. Budgets rise and fall, leases come and go, a device is lost and found. */
static uint64_t random_life(uint64_t seed, uint64_t *ret_moved_bytes, uint64_t *ret_tokens)
{
	static uint32_t layers[MANY];
	static uint64_t sizes[MANY];
	const struct moves_limits limits = {.hysteresis = 0.1f, .min_age_visits = 2, .bytes_per_token = 700};
	struct tier_setup setup = setup_of(&limits);
	struct tier *tier;
	uint64_t hash = 0;

	for (uint32_t i = 0; i < MANY; i++) {
		layers[i] = i / 60;
		sizes[i] = 100 + 50 * (i / 60 % 3);
	}
	setup.object_count = MANY;
	setup.layer_count = MANY / 60;
	setup.layer_of = layers;
	setup.charged_bytes_of = sizes;
	setup.device_count = 3;
	tier = created(&setup);
	*ret_moved_bytes = *ret_tokens = 0;
	for (int step = 0; step < 4000; step++) {
		uint32_t layer = (uint32_t)step % setup.layer_count;
		struct tier_move move;

		tier_visit(tier, layer, 1);
		for (int k = 0; k < 6; k++)
			tier_access(tier, layer * 60 + (uint32_t)(next_random(&seed) % 60 * (next_random(&seed) % 60) / 60));
		world.leased[next_random(&seed) % MANY] ^= 1;
		world.in_ram[next_random(&seed) % MANY] ^= 1;
		if (layer == 0) {
			tier_tokens(tier, 1);
			++*ret_tokens;
		}
		if (step % 97 == 0)
			tier_set_budget(tier, (uint32_t)(next_random(&seed) % 3), next_random(&seed) % 9000);
		if (step == 2000)
			tier_lost(tier, 1);
		tier_pass(tier);
		while (tier_next(tier, &move)) {
			struct tier_device device;

			for (uint32_t i = 0; i < move.victim_count; i++) {
				cr_assert(!world.leased[move.victim[i]]);
				tier_removed(tier, move.victim[i]);
				hash = hash * 31 + move.victim[i];
			}
			if (move.object == POLICY_NONE)
				continue;
			cr_assert(world.in_ram[move.object]);
			tier_added(tier, move.object, move.device);
			tier_get_device(tier, move.device, &device);
			cr_assert_leq(device.used_bytes, device.budget_bytes);
			*ret_moved_bytes += sizes[move.object];
			hash = hash * 31 + move.object * 3 + move.device;
		}
	}
	tier = tier_destroy(tier);
	return hash;
}

Test(policy_tier, the_same_calls_make_the_same_moves_within_all_bounds)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		uint64_t bytes, tokens, again_bytes, again_tokens;
		uint64_t hash = random_life(seed, &bytes, &tokens);

		cr_expect_eq(random_life(seed, &again_bytes, &again_tokens), hash);
		cr_expect_eq(bytes, again_bytes);
		cr_expect_leq(bytes, tokens * 700 + 200);
		cr_expect_gt(bytes, 20000);
	}
}
