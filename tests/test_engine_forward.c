/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/forward.c and below on a small checkpoint written here: the logits do not depend on the weights' type,
 * the kernel, the thread count, the cache mode or how a prompt is cut.
 */
#include "engine/forward.h"
#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12 };

struct setup {
	int dense, experts;
	const char *kernel;
	uint32_t threads, slots; /* slots 0: mmap */
	int is_cut;              /* the prompt one token at a time */
};

struct outcome {
	uint32_t token[STEPS];
	float logits[TINY_VOCAB]; /* after the last step */
};

static const uint32_t prompt[] = {3, 17, 29, 0, 39, 8, 8};

static char message[ENGINE_MESSAGE_BYTES];

static void decode(struct forward *forward, const struct setup *setup, struct outcome *ret_outcome)
{
	const uint32_t count = sizeof prompt / sizeof prompt[0];
	uint32_t next = 0;

	for (uint32_t i = 0; setup->is_cut && i < count; i++)
		cr_assert_eq(forward_run(forward, prompt + i, 1, &next), 0);
	if (!setup->is_cut)
		cr_assert_eq(forward_run(forward, prompt, count, &next), 0);
	for (int step = 0; step < STEPS; step++) {
		ret_outcome->token[step] = next;
		cr_assert_eq(forward_run(forward, &ret_outcome->token[step], 1, &next), 0);
	}
	memcpy(ret_outcome->logits, forward->logits, sizeof ret_outcome->logits);
	cr_expect_eq(forward_run(forward, prompt, 1, &next), -EINVAL, "there is no room for one more position");
}

static struct outcome run(const struct setup *setup)
{
	char directory[] = "/tmp/cnre-forward-XXXXXX";
	const struct private_size size = {.slots_per_layer = setup->slots};
	struct outcome outcome = {0};
	struct config config;
	struct shard_set shards;
	struct weights weights;
	struct compute compute = {.kernel = kernel_find(setup->kernel)};
	struct kv_cache cache;
	struct forward forward = {.compute = &compute, .config = &config, .weights = &weights, .cache = &cache};

	cr_assert_not_null(mkdtemp(directory));
	cr_assert_eq(tiny_olmoe_write(directory, setup->dense, setup->experts), 0);
	cr_assert_eq(config_load(&config, directory, message), 0, "%s", message);
	cr_assert_eq(shard_open(&shards, directory, message), 0, "%s", message);
	cr_assert_eq(weights_load(&weights, &config, &shards, message), 0, "%s", message);
	cr_assert_eq(pool_open(&compute.pool, setup->threads), 0);
	if (setup->slots)
		cr_assert_eq(cache_private_open(&forward.source, &config, &shards, &size, message), 0, "%s", message);
	else
		cr_assert_eq(cache_mmap_open(&forward.source, &config, &shards, message), 0, "%s", message);
	cr_assert_eq(kv_cache_init(&cache, &config, sizeof prompt / sizeof prompt[0] + STEPS), 0);
	cr_assert_eq(forward_init(&forward, cache.positions), 0);
	decode(&forward, setup, &outcome);
	forward_done(&forward);
	kv_cache_done(&cache);
	forward.source->ops->close(forward.source);
	pool_close(compute.pool);
	weights_free(&weights);
	shard_close(&shards);
	tiny_olmoe_remove(directory);
	return outcome;
}

static void expect_same(const struct outcome *expected, const struct setup *setup, const char *what)
{
	struct outcome outcome;

	if (!kernel_find(setup->kernel))
		return; /* not for this CPU */
	outcome = run(setup);
	cr_expect_arr_eq(outcome.token, expected->token, sizeof outcome.token, "%s: other tokens", what);
	cr_expect_arr_eq(outcome.logits, expected->logits, sizeof outcome.logits, "%s: other logits", what);
}

TestSuite(engine_forward, .timeout = 60);

Test(engine_forward, types_that_hold_the_same_numbers_give_the_same_logits)
{
	const struct setup f32 = {CNRE_F32, CNRE_F32, "plain", 1, 0, 0};
	const struct outcome expected = run(&f32);

	expect_same(&expected, &(struct setup){CNRE_BF16, CNRE_F32, "plain", 1, 0, 0}, "dense BF16");
	expect_same(&expected, &(struct setup){CNRE_F16, CNRE_F16, "plain", 1, 0, 0}, "all F16");
	expect_same(&expected, &(struct setup){CNRE_F32, CNRE_BF16, "plain", 1, 0, 0}, "experts BF16");
}

Test(engine_forward, kernels_threads_and_prompt_cuts_do_not_show)
{
	static const int experts[] = {CNRE_BF16, CNRE_I8};

	for (size_t i = 0; i < 2; i++) {
		const struct setup plain = {CNRE_F32, experts[i], "plain", 1, 0, 0};
		const struct outcome expected = run(&plain);

		expect_same(&expected, &(struct setup){CNRE_F32, experts[i], "avx2", 1, 0, 0}, "avx2");
		expect_same(&expected, &(struct setup){CNRE_F32, experts[i], "avx512", 3, 0, 0}, "avx512, 3 threads");
		expect_same(&expected, &(struct setup){CNRE_F32, experts[i], "plain", 2, 0, 1},
			    "cut prompt, 2 threads");
	}
}

/* One slot is the hardest case: every expert of a token evicts the one before it, which is still needed. */
Test(engine_forward, private_caches_of_any_size_give_what_mmap_gives)
{
	static const int experts[] = {CNRE_F16, CNRE_I8};

	for (size_t i = 0; i < 2; i++) {
		const struct setup mapped = {CNRE_F32, experts[i], "plain", 1, 0, 0};
		const struct outcome expected = run(&mapped);

		for (uint32_t slots = 1; slots <= TINY_EXPERTS + 1; slots++)
			expect_same(&expected, &(struct setup){CNRE_F32, experts[i], "plain", 1, slots, 0}, "private");
	}
}

Test(engine_forward, the_model_says_more_than_one_thing)
{
	const struct setup setup = {CNRE_F32, CNRE_F32, "plain", 1, 0, 0};
	const struct outcome outcome = run(&setup);
	int changes = 0;

	for (int i = 1; i < STEPS; i++)
		changes += outcome.token[i] != outcome.token[i - 1];
	cr_expect_geq(changes, 2, "tokens that never change would make the tests above too easy");
}
