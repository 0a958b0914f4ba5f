/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-olmoe beside a real manager: the shared cache changes where bytes come from and never what is computed. */
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_engine, .timeout = 120);

enum { OUTPUT_BYTES = 8192 };

static struct world world;

static void open_world(void)
{
	char program[256];

	if (access(world_program("cnre-olmoe", program, sizeof program), X_OK) != 0)
		cr_skip("cnre-olmoe is not built; make it, or name its folder in CNRE_BUILD");
	world_open(&world);
}

/* The reference checkpoint instead of a generated one. */
static void use_vector(const char *name)
{
	const char *vectors = getenv("CNRE_VECTORS");

	snprintf(world.model, sizeof world.model, "%s/%s", vectors ? vectors : "../shared/vectors", name);
	if (access(world.model, R_OK) != 0) {
		world_close(&world);
		cr_skip("no reference vectors; CNRE_VECTORS names their directory");
	}
}

static json_t *run(const char *tokens, const char *cache)
{
	const char *arguments[] = {"--model", world.model, "--tokens", tokens,     "--steps",    "24",
				   "--json",  "--cache",   cache,      "--socket", world.socket, NULL};
	char output[OUTPUT_BYTES] = "";
	json_t *result;

	cr_assert_eq(world_run("cnre-olmoe", arguments, output, sizeof output), 0, "%s: %s", cache, output);
	result = json_loads(output, 0, NULL);
	cr_assert_not_null(result, "not JSON: %s", output);
	return result;
}

static long number(const json_t *result, const char *key)
{
	cr_expect(json_is_integer(json_object_get(result, key)), "no integer: %s", key);
	return (long)json_integer_value(json_object_get(result, key));
}

static void expect_tokens(const json_t *result, const char *expected)
{
	char *tokens = json_dumps(json_object_get(result, "tokens"), JSON_COMPACT);

	cr_expect_str_eq(tokens, expected);
	free(tokens);
}

Test(system_engine, the_shared_cache_gives_the_reference_tokens)
{
	static const struct {
		const char *model, *prompt, *tokens;
		long lookups;
	} vectors[] = {
		{"olmoe-a", "95 28 14 118 36 110",
		 "[102,80,87,120,115,92,27,0,106,121,56,122,20,32,56,65,39,23,70,49,41,58,1,34]", 464},
		{"olmoe-b", "180 109 106 87 152 152",
		 "[86,44,115,111,114,141,104,129,24,167,33,155,167,138,141,175,154,9,176,50,114,57,14,22]", 1044},
	};

	for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
		json_t *cold, *warm;

		open_world();
		use_vector(vectors[i].model);
		cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "64M", NULL}), 0);
		cold = run(vectors[i].prompt, "cnre");
		warm = run(vectors[i].prompt, "cnre");
		expect_tokens(cold, vectors[i].tokens);
		expect_tokens(warm, vectors[i].tokens);
		cr_expect_eq(number(cold, "hits") + number(cold, "misses") + number(cold, "joins"), vectors[i].lookups);
		cr_expect_gt(number(cold, "bytes_read"), 0);
		cr_expect_eq(number(warm, "hits"), vectors[i].lookups,
			     "the first engine's experts stay for the second");
		cr_expect_eq(number(warm, "bytes_read"), 0);
		json_decref(cold);
		json_decref(warm);
		world_stop(&world, SIGTERM);
		world_close(&world);
	}
}

/*
 * Goal: no format and no mode is computed differently. Method: a checkpoint with one format a layer, packed
 * unaligned.
 */
Test(system_engine, all_modes_agree_on_a_checkpoint_of_mixed_formats)
{
	static const char *const options[] = {"--mixed-layer", "1:bf16", "--mixed-layer",  "2:f16",
					      "--mixed-layer", "3:f32",  "--dense-format", "bf16",
					      "--unaligned",   NULL};
	static const char *const modes[] = {"mmap", "private:2slots", "private:16slots"};
	json_t *shared;

	open_world();
	world_generate(&world, options);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "64M", NULL}), 0);
	shared = run("1 2 3 4 5", "cnre");
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		json_t *other = run("1 2 3 4 5", modes[i]);

		cr_expect(json_equal(json_object_get(other, "tokens"), json_object_get(shared, "tokens")), "%s",
			  modes[i]);
		json_decref(other);
	}
	json_decref(shared);
	world_stop(&world, SIGTERM);
	world_close(&world);
}
