/* SPDX-License-Identifier: Apache-2.0 */
/* See tiny_engine.h. */
#include "tests/support/tiny_engine.h"

#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void tiny_engine_open(struct tiny_engine *engine, uint32_t positions)
{
	char message[ENGINE_MESSAGE_BYTES] = "";

	memset(engine, 0, sizeof *engine);
	strcpy(engine->directory, "/tmp/cnre-tiny-XXXXXX");
	cr_assert_not_null(mkdtemp(engine->directory));
	cr_assert_eq(tiny_olmoe_write(engine->directory, CNRE_F32, CNRE_F32), 0);
	engine->compute.kernel = kernel_best();
	engine->forward =
		(struct forward){.compute = &engine->compute, .config = &engine->config, .weights = &engine->weights};
	cr_assert_eq(config_load(&engine->config, engine->directory, message), 0, "%s", message);
	cr_assert_eq(shard_open(&engine->shards, engine->directory, message), 0, "%s", message);
	cr_assert_eq(weights_load(&engine->weights, &engine->config, &engine->shards, message), 0, "%s", message);
	cr_assert_eq(pool_open(&engine->compute.pool, 2), 0);
	cr_assert_eq(cache_mmap_open(&engine->forward.source, &engine->config, &engine->shards, message), 0, "%s",
		     message);
	cr_assert_eq(forward_init(&engine->forward, positions), 0);
}

void tiny_engine_close(struct tiny_engine *engine)
{
	forward_done(&engine->forward);
	engine->forward.source->ops->close(engine->forward.source);
	pool_close(engine->compute.pool);
	weights_free(&engine->weights);
	shard_close(&engine->shards);
	tiny_olmoe_remove(engine->directory);
}

void tiny_engine_tokens(uint32_t *ret_tokens, uint32_t count, uint32_t seed)
{
	for (uint32_t i = 0; i < count; i++) {
		seed = seed * 1664525u + 1013904223u;
		ret_tokens[i] = (seed >> 16) % TINY_VOCAB;
	}
}
