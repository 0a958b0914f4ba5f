/* SPDX-License-Identifier: Apache-2.0 */
/* engine/kv_rows.c and kv_identity.c: the payload's order, whole and partial copies, and what tells two models apart. */
#include "engine/kv_identity.h"
#include "engine/kv_rows.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LAYERS = 3, HEADS = 2, DIM = 4, POSITIONS = 100 };

static const struct config config = {.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM};

/* A number that says which element it is. */
static float mark(int side, uint32_t layer, uint32_t head, uint32_t position, uint32_t i)
{
	return (float)((((side * LAYERS + layer) * HEADS + head) * POSITIONS + position) * DIM + i);
}

static void fill(struct kv_cache *cache)
{
	for (uint32_t i = 0; i < LAYERS * HEADS * POSITIONS * DIM; i++) {
		cache->key[i] = (float)i;
		cache->value[i] = (float)(LAYERS * HEADS * POSITIONS * DIM + i);
	}
	cache->count = POSITIONS;
}

Test(engine_kv_rows, the_payload_is_layer_major_keys_before_values)
{
	const struct kv_span span = {37, 5};
	float payload[2 * LAYERS * HEADS * 5 * DIM];
	struct kv_cache cache;
	size_t at = 0;

	cr_assert_eq(kv_cache_init(&cache, &config, POSITIONS), 0);
	cr_assert_eq(kv_cache_token_bytes(&config) * span.count, sizeof payload);
	fill(&cache);
	kv_rows_gather(&cache, &config, span, payload);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (int side = 0; side < 2; side++)
			for (uint32_t head = 0; head < HEADS; head++)
				for (uint32_t t = 0; t < span.count; t++)
					for (uint32_t i = 0; i < DIM; i++, at++)
						cr_assert_eq(payload[at], mark(side, layer, head, span.first + t, i),
							     "layer %u side %d head %u token %u", layer, side, head, t);
	kv_cache_done(&cache);
}

/* The first tokens of a block go where they were, and nothing else is touched. */
Test(engine_kv_rows, any_beginning_of_a_block_comes_back)
{
	const struct kv_span whole = {32, 64};
	static float payload[2 * LAYERS * HEADS * 64 * DIM];
	struct kv_cache from, to;

	cr_assert_eq(kv_cache_init(&from, &config, POSITIONS), 0);
	fill(&from);
	kv_rows_gather(&from, &config, whole, payload);
	for (uint32_t usable = 1; usable <= 64; usable += 21) {
		cr_assert_eq(kv_cache_init(&to, &config, POSITIONS), 0);
		kv_rows_scatter(&to, &config, (struct kv_span){32, usable}, payload, 64);
		for (uint32_t i = 0; i < LAYERS * HEADS * POSITIONS * DIM; i++) {
			const uint32_t position = i / DIM % POSITIONS;
			const int is_copied = position >= 32 && position < 32 + usable;

			cr_assert_eq(to.key[i], is_copied ? from.key[i] : 0, "key %u of %u", i, usable);
			cr_assert_eq(to.value[i], is_copied ? from.value[i] : 0, "value %u of %u", i, usable);
		}
		kv_cache_done(&to);
	}
	kv_cache_done(&from);
}

static int differs(const struct config *other)
{
	struct kv_identity ours, theirs;

	kv_identity_make(&ours, &config);
	kv_identity_make(&theirs, other);
	return strcmp(ours.representation, theirs.representation) != 0 || strcmp(ours.position, theirs.position) != 0;
}

Test(engine_kv_rows, whatever_changes_rows_changes_the_identity)
{
	const struct config changed[] = {
		{.layers = 4, .heads = 4, .kv_heads = HEADS, .head_dim = DIM},
		{.layers = LAYERS, .heads = 2, .kv_heads = HEADS, .head_dim = DIM},
		{.layers = LAYERS, .heads = 4, .kv_heads = 1, .head_dim = DIM},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = 8},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM, .rope_theta = 5e5f},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM, .rms_norm_eps = 1e-6f},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM, .clip_qkv = 8},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM, .top_k = 2},
		{.layers = LAYERS, .heads = 4, .kv_heads = HEADS, .head_dim = DIM, .norm_top_k = true},
	};
	const struct config largest = {.layers = CONFIG_LAYERS_MAX,
				       .heads = CONFIG_HEADS_MAX,
				       .kv_heads = CONFIG_HEADS_MAX,
				       .head_dim = CONFIG_HIDDEN_MAX,
				       .rope_theta = 1.23456789e30f,
				       .rms_norm_eps = 1.23456789e-30f,
				       .clip_qkv = 1.23456789e30f,
				       .top_k = CONFIG_TOP_K_MAX,
				       .norm_top_k = true};
	struct kv_identity identity;

	cr_expect_not(differs(&config));
	for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
		cr_expect(differs(&changed[i]), "change %zu does not show", i);
	kv_identity_make(&identity, &largest);
	cr_expect_lt(strlen(identity.representation), sizeof identity.representation - 1, "cut: %s",
		     identity.representation);
}
