/* SPDX-License-Identifier: Apache-2.0 */
/* Capacities: plateaus are crossed, the budget holds, and how far from the best the answer may be. */
#include "policy/allocate.h"
#include "policy/curve.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 4, POINTS_MAX = 6 };

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* A point for each capacity of a byte a slot. */
static uint32_t points_of(const double *cost, uint32_t count, struct allocate_point *point)
{
	for (uint32_t i = 0; i < count; i++)
		point[i] = (struct allocate_point){.bytes = i, .cost = cost[i], .objects = i};
	return count;
}

/*
 * The report: a trace of which no slot is of use until there are three, one layer, one byte a slot, budget 3. Greedy by
 * single slots stays at none.
 */
Test(policy_allocate, the_capacity_behind_a_plateau_is_chosen)
{
	static const uint32_t period[] = {0, 1, 2, 0, 1, 2, 3}, layer_of[4] = {0};
	struct allocate_point point[5];
	struct allocate_layer layer = {.point = point, .point_count = 5};
	struct allocate_result result;
	struct curves *curves;
	uint32_t choice;

	cr_assert_eq(curves_create(&curves, 4, 1, layer_of), 0);
	for (int i = 0; i < 20; i++)
		for (int k = 0; k < 7; k++)
			curves_access(curves, period[k]);
	for (uint32_t slots = 0; slots < 5; slots++)
		point[slots] = (struct allocate_point){
			.bytes = slots, .cost = (double)curves_misses(curves, 0, slots), .objects = slots};
	cr_assert_eq(point[0].cost, 140);
	cr_assert_eq(point[1].cost, 140);
	cr_assert_eq(point[2].cost, 140);
	cr_assert_eq(point[3].cost, 80);
	cr_assert_eq(allocate(&layer, 1, 3, &choice, &result), 0);
	cr_assert_eq(point[choice].objects, 3);
	cr_assert_eq(result.cost, 80);
	cr_assert_eq(result.used_bytes, 3);
	cr_assert_eq(result.unused_bytes, 0);
	cr_assert_eq(allocate(&layer, 1, 2, &choice, &result), 0);
	cr_assert_eq(point[choice].objects, 0);
	cr_assert_eq(result.cost, 140);
	cr_assert_eq(result.unused_bytes, 2, "what buys nothing is not spent");
	curves_destroy(curves);
}

Test(policy_allocate, of_two_plateaus_the_steeper_drop_is_bought_and_the_rest_is_said)
{
	static const double first[] = {100, 100, 100, 40, 40}, second[] = {100, 100, 10, 10, 10};
	struct allocate_point point[2][5];
	struct allocate_layer layer[2] = {{point[0], 0}, {point[1], 0}};
	/* by budget: slots of both, bytes left */
	static const uint32_t expected[][3] = {{0, 0, 0}, {0, 0, 1}, {0, 2, 0}, {0, 2, 1}, {0, 2, 2}, {3, 2, 0}, {3, 2, 1}};

	layer[0].point_count = points_of(first, 5, point[0]);
	layer[1].point_count = points_of(second, 5, point[1]);
	for (uint32_t budget = 0; budget < 7; budget++) {
		struct allocate_result result;
		uint32_t choice[2];

		cr_assert_eq(allocate(layer, 2, budget, choice, &result), 0);
		cr_assert_eq(choice[0], expected[budget][0], "budget %u", budget);
		cr_assert_eq(choice[1], expected[budget][1], "budget %u", budget);
		cr_assert_eq(result.unused_bytes, expected[budget][2], "budget %u", budget);
		cr_assert_eq(result.used_bytes + result.unused_bytes, budget);
	}
}

Test(policy_allocate, bytes_that_a_segment_does_not_fit_into_are_filled_with_less)
{
	/* The hull goes from 0 to 3 slots; with two bytes, the point above it is better than nothing. */
	static const double cost[] = {100, 90, 70, 10};
	struct allocate_point point[4];
	struct allocate_layer layer = {point, points_of(cost, 4, point)};
	struct allocate_result result;
	uint32_t choice;

	cr_assert_eq(allocate(&layer, 1, 2, &choice, &result), 0);
	cr_assert_eq(choice, 2);
	cr_assert_eq(result.cost, 70);
}

Test(policy_allocate, ties_go_to_the_lower_layer)
{
	static const double cost[] = {10, 5, 0};
	struct allocate_point point[3][3];
	struct allocate_layer layer[3];
	static const uint32_t expected[][3] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 2}};
	struct allocate_result result;

	for (uint32_t i = 0; i < 3; i++)
		layer[i] = (struct allocate_layer){point[i], points_of(cost, 3, point[i])};
	for (uint32_t budget = 0; budget < 7; budget++) {
		uint32_t choice[3];

		cr_assert_eq(allocate(layer, 3, budget, choice, &result), 0);
		cr_assert_eq(memcmp(choice, expected[budget], sizeof choice), 0, "budget %u", budget);
	}
}

Test(policy_allocate, order_of_points_and_points_of_no_use_make_no_difference)
{
	static const struct allocate_point shuffled[] = {
		{30, 40, 3, 0}, {0, 100, 0, 0}, {20, 120, 2, 0}, {10, 60, 1, 0}, {40, 40, 4, 0}, {0, 110, 0, 0}, {10, 60, 1, 1}};
	struct allocate_layer layer = {shuffled, 7};
	struct allocate_result result;
	uint32_t choice;

	cr_assert_eq(allocate(&layer, 1, 15, &choice, &result), 0);
	cr_assert_eq(choice, 3, "of two that are alike, the first");
	cr_assert_eq(allocate(&layer, 1, 1000, &choice, &result), 0);
	cr_assert_eq(choice, 0);
	cr_assert_eq(result.unused_bytes, 970);
	cr_assert_eq(allocate(&layer, 1, 9, &choice, &result), 0);
	cr_assert_eq(choice, 1);
}

/* Compressed, an object takes half the bytes, and a hit costs 20. Little room: compressed; much: plain. */
Test(policy_allocate, a_representation_is_a_point_like_any_other)
{
	static const struct allocate_point point[] = {{0, 1000, 0, 0},    {100, 900, 1, 0},   {200, 800, 2, 0},
						      {400, 600, 4, 0},   {800, 200, 8, 0},   {50, 920, 1, 1},
						      {100, 840, 2, 1},   {200, 680, 4, 1},   {400, 360, 8, 1}};
	static const struct { uint64_t budget; uint32_t objects, representation; } expected[] = {
		{49, 0, 0}, {50, 1, 1}, {100, 2, 1}, {399, 4, 1}, {400, 8, 1}, {799, 8, 1}, {800, 8, 0}};
	struct allocate_layer layer = {point, 9};

	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		struct allocate_result result;
		uint32_t choice;

		cr_assert_eq(allocate(&layer, 1, expected[i].budget, &choice, &result), 0);
		cr_assert_eq(point[choice].objects, expected[i].objects, "budget %u", (unsigned)expected[i].budget);
		cr_assert_eq(point[choice].representation, expected[i].representation);
	}
}

Test(policy_allocate, what_cannot_be_allocated_is_einval_and_the_output_is_untouched)
{
	struct allocate_point none_at_0[] = {{1, 5, 1, 0}}, no_number[] = {{0, 5, 0, 0}, {1, NAN, 1, 0}};
	struct allocate_point infinite[] = {{0, INFINITY, 0, 0}};
	struct allocate_layer layer[] = {{none_at_0, 1}, {no_number, 2}, {infinite, 1}, {NULL, 0}};
	struct allocate_result result = {.cost = 7};
	uint32_t choice = 9;

	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(allocate(&layer[i], 1, 10, &choice, &result), -EINVAL);
	cr_assert_eq(choice, 9);
	cr_assert_eq(result.cost, 7);
	cr_assert_eq(allocate(NULL, 0, 10, &choice, &result), 0);
	cr_assert_eq(result.unused_bytes, 10);
}

Test(policy_allocate, sizes_near_the_end_of_64_bits_do_not_wrap)
{
	static const struct allocate_point point[] = {{0, 9, 0, 0}, {UINT64_MAX, 1, 1, 0}, {UINT64_MAX - 1, 2, 1, 0}};
	struct allocate_layer layer[2] = {{point, 3}, {point, 3}};
	struct allocate_result result;
	uint32_t choice[2];

	cr_assert_eq(allocate(layer, 2, UINT64_MAX, choice, &result), 0);
	cr_assert_eq(choice[0], 1);
	cr_assert_eq(choice[1], 0);
	cr_assert_eq(allocate(layer, 2, UINT64_MAX - 1, choice, &result), 0);
	cr_assert_eq(choice[0], 2);
	cr_assert_eq(result.unused_bytes, 0);
}

/* ---- against all choices there are ---- */

struct instance {
	struct allocate_point point[LAYERS_MAX][POINTS_MAX];
	struct allocate_layer layer[LAYERS_MAX];
	uint32_t layer_count;
	uint64_t budget;
};

static void generate(struct instance *instance, uint64_t *random, int convex)
{
	instance->layer_count = 1 + next_random(random) % LAYERS_MAX;
	instance->budget = next_random(random) % (convex ? 20 : 60);
	for (uint32_t i = 0; i < instance->layer_count; i++) {
		uint32_t count = 1 + next_random(random) % POINTS_MAX;
		double cost = 100 + next_random(random) % 50, step = 40;

		instance->layer[i] = (struct allocate_layer){instance->point[i], count};
		for (uint32_t k = 0; k < count; k++) {
			struct allocate_point *point = &instance->point[i][k];

			*point = (struct allocate_point){.bytes = convex ? k : k * (1 + next_random(random) % 9), .cost = cost};
			step = convex ? fmin(step, next_random(random) % 40) : next_random(random) % 40;
			cost -= step;
		}
	}
}

static double best_of_all(const struct instance *instance, uint32_t layer, uint64_t left)
{
	double best = INFINITY;

	if (layer == instance->layer_count)
		return 0;
	for (uint32_t i = 0; i < instance->layer[layer].point_count; i++) {
		const struct allocate_point *point = &instance->point[layer][i];

		if (point->bytes <= left)
			best = fmin(best, point->cost + best_of_all(instance, layer + 1, left - point->bytes));
	}
	return best;
}

/* The most that one segment of any hull saves: hulls walked by the steepest way down, to the nearest of equals. */
static double largest_segment(const struct instance *instance)
{
	double largest = 0;

	for (uint32_t i = 0; i < instance->layer_count; i++) {
		const struct allocate_point *at = &instance->point[i][0];

		for (const struct allocate_point *next = at; next != NULL;) {
			double steepest = 1e-12;

			next = NULL;
			for (uint32_t k = 0; k < instance->layer[i].point_count; k++) {
				const struct allocate_point *point = &instance->point[i][k];
				double slope = point->bytes > at->bytes
						       ? (at->cost - point->cost) / (double)(point->bytes - at->bytes) : 0;

				if (slope > steepest || (slope == steepest && next != NULL && point->bytes < next->bytes)) {
					steepest = slope;
					next = point;
				}
			}
			if (next != NULL) {
				largest = fmax(largest, at->cost - next->cost);
				at = next;
			}
		}
	}
	return largest;
}

static void expect_nothing_fits(const struct instance *instance, const uint32_t *choice, uint64_t left)
{
	for (uint32_t i = 0; i < instance->layer_count; i++) {
		const struct allocate_point *from = &instance->point[i][choice[i]];

		for (uint32_t k = 0; k < instance->layer[i].point_count; k++)
			cr_assert(instance->point[i][k].cost >= from->cost || instance->point[i][k].bytes > from->bytes + left);
	}
}

/* How many of the answers were the best there is. */
static uint32_t compare_with_all(uint32_t runs, int convex)
{
	uint64_t random = 17;
	uint32_t exact = 0;

	for (uint32_t run = 0; run < runs; run++) {
		struct instance instance;
		struct allocate_result result;
		uint32_t choice[LAYERS_MAX];
		uint64_t bytes = 0;
		double cost = 0, best;

		generate(&instance, &random, convex);
		cr_assert_eq(allocate(instance.layer, instance.layer_count, instance.budget, choice, &result), 0);
		for (uint32_t i = 0; i < instance.layer_count; i++) {
			bytes += instance.point[i][choice[i]].bytes;
			cost += instance.point[i][choice[i]].cost;
		}
		best = best_of_all(&instance, 0, instance.budget);
		cr_assert_leq(bytes, instance.budget);
		cr_assert_eq(result.used_bytes, bytes);
		cr_assert_eq(result.unused_bytes, instance.budget - bytes);
		cr_assert_eq(result.cost, cost);
		cr_assert_leq(cost, best + largest_segment(&instance), "run %u", run);
		expect_nothing_fits(&instance, choice, result.unused_bytes);
		exact += cost == best;
	}
	return exact;
}

Test(policy_allocate, convex_curves_of_equal_slots_get_the_best_there_is, .timeout = 60)
{
	cr_assert_eq(compare_with_all(5000, 1), 5000);
}

Test(policy_allocate, any_curves_get_the_best_but_for_one_segment_of_a_hull, .timeout = 60)
{
	uint32_t exact = compare_with_all(10000, 0);

	cr_assert_geq(exact, 8000, "%u of 10000 were the best", exact);
}
