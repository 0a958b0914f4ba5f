/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's forward pass on the checkpoint of tiny_olmoe.h, experts mapped, ready for conversations. Asserts. */
#ifndef CNRE_TESTS_SUPPORT_TINY_ENGINE_H
#define CNRE_TESTS_SUPPORT_TINY_ENGINE_H

#include "engine/forward.h"
#include "engine/shard.h"

struct tiny_engine {
	char directory[64];
	struct config config;
	struct shard_set shards;
	struct weights weights;
	struct compute compute;
	struct forward forward;
};

void tiny_engine_open(struct tiny_engine *engine, uint32_t positions);
void tiny_engine_close(struct tiny_engine *engine);

/* count tokens that follow from a seed. */
void tiny_engine_tokens(uint32_t *ret_tokens, uint32_t count, uint32_t seed);

#endif
