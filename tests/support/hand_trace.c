/* SPDX-License-Identifier: Apache-2.0 */
/* Traces by hand; see hand_trace.h. */
#include "tests/support/hand_trace.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

void hand_trace_open(struct hand_trace *hand, uint32_t layers, uint32_t experts, uint32_t top_k)
{
	*hand = (struct hand_trace){0};
	hand->geometry.layer_count = layers;
	hand->geometry.object_count = layers * experts;
	hand->geometry.top_k = top_k;
	hand->geometry.layer_of = calloc(layers * experts, sizeof(uint32_t));
	hand->manifest.layer = calloc(layers, sizeof *hand->manifest.layer);
	cr_assert(hand->geometry.layer_of != NULL && hand->manifest.layer != NULL);
	for (uint32_t i = 0; i < layers; i++) {
		hand->geometry.number[i] = i;
		hand->geometry.experts[i] = experts;
		hand->geometry.first_object[i + 1] = (i + 1) * experts;
		for (uint32_t k = 0; k < experts; k++)
			hand->geometry.layer_of[i * experts + k] = i;
		hand->manifest.layer[i] = (struct sim_layer_cost){.resident_bytes = 1,
								  .read_bytes = 1,
								  .felt_miss_us = 1000,
								  .max_experts = experts,
								  .numa_node = -1,
								  .tier = "ram"};
	}
	hand->model = (struct sim_model){.geometry = &hand->geometry, .manifest = &hand->manifest};
}

void hand_trace_close(struct hand_trace *hand)
{
	free(hand->geometry.layer_of);
	free(hand->manifest.layer);
	free(hand->row);
	free(hand->object);
}

static void add_object(struct hand_trace *hand, uint32_t object)
{
	if (hand->trace.access_count == hand->object_room) {
		hand->object_room = hand->object_room * 2 + 64;
		hand->object = realloc(hand->object, hand->object_room * sizeof *hand->object);
		cr_assert(hand->object != NULL);
		hand->trace.object = hand->object;
	}
	hand->object[hand->trace.access_count++] = object;
}

static struct sim_row *add_row(struct hand_trace *hand, uint32_t token, uint32_t layer)
{
	struct sim_row *row;

	if (hand->trace.row_count == hand->row_room) {
		hand->row_room = hand->row_room * 2 + 64;
		hand->row = realloc(hand->row, hand->row_room * sizeof *hand->row);
		cr_assert(hand->row != NULL);
		hand->trace.row = hand->row;
	}
	row = &hand->row[hand->trace.row_count];
	*row = (struct sim_row){.first = hand->trace.access_count,
				.layer = layer,
				.tokens = 1,
				.token = token,
				.call = (uint32_t)hand->trace.row_count};
	hand->trace.row_count++;
	if (hand->trace.token_count <= token)
		hand->trace.token_count = token + 1;
	return row;
}

void hand_trace_add(struct hand_trace *hand, uint32_t token, uint32_t layer, const int *experts)
{
	struct sim_row *row = add_row(hand, token, layer);

	for (; *experts >= 0; experts++) {
		add_object(hand, hand->geometry.first_object[layer] + (uint32_t)*experts);
		row->count++;
	}
}

void hand_trace_join(struct hand_trace *hand)
{
	struct sim_row *last = &hand->row[hand->trace.row_count - 1];

	cr_assert(hand->trace.row_count > 1 && last[-1].layer == last->layer);
	last->call = last[-1].call;
}

/* xorshift64*, so that a test's trace is the same everywhere. */
static double draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (double)((*state * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0;
}

static int has(const struct hand_trace *hand, const struct sim_row *row, uint32_t object)
{
	for (uint32_t i = 0; i < row->count; i++)
		if (hand->object[row->first + i] == object)
			return 1;
	return 0;
}

void hand_trace_fill(struct hand_trace *hand, uint32_t tokens, double skew, uint32_t rotate, uint64_t seed)
{
	uint64_t state = seed * 2 + 1, first = hand->trace.token_count;

	for (uint32_t token = 0; token < tokens; token++)
		for (uint32_t layer = 0; layer < hand->geometry.layer_count; layer++) {
			struct sim_row *row = add_row(hand, (uint32_t)first + token, layer);
			uint32_t experts = hand->geometry.experts[layer];

			while (row->count < hand->geometry.top_k) {
				uint32_t expert = (uint32_t)(pow(draw(&state), 1 + skew) * experts);
				uint32_t object = hand->geometry.first_object[layer] + (expert + rotate) % experts;

				if (has(hand, row, object))
					continue;
				add_object(hand, object);
				row->count++;
			}
		}
}

struct sim_counts hand_trace_replay(const struct hand_trace *hand, const struct sim_arm *arm)
{
	struct sim_future future = {0};
	struct sim_counts counts;

	if (sim_policy_is_belady(arm->policy))
		cr_assert_eq(
			sim_future_open(&future, &hand->trace, &hand->geometry, arm->semantics != SIM_ACCESS, NULL), 0);
	cr_assert_eq(sim_replay(arm, &hand->model, &hand->trace, &future, &counts), 0, "%s", arm->policy);
	sim_future_close(&future);
	sim_counts_finish(&counts);
	return counts;
}
