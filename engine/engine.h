/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a run or a server needs, opened once: the model, its experts, threads, and the store of prefixes. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/forward.h"
#include "engine/kv_prefix.h"
#include "engine/options.h"

#include <stdio.h>

struct engine {
	const struct options *options;
	struct config config;
	struct shard_set shards;
	struct weights weights;
	struct compute compute;
	struct cnre *client;              /* NULL: neither experts nor prefixes come from a manager */
	struct expert_source *source;
	struct kv_store store;            /* kv NULL: no prefixes are shared */
	struct forward forward;
	FILE *trace;
	int kv_error;                     /* why no prefixes are shared though --kv asked for it; 0: they are */
};

struct engine_size {
	uint32_t positions, conversations;  /* that may have rows at a time */
};

/* Reads config.json, which a caller needs before it knows the size. */
int engine_load_config(struct engine *engine, const struct options *options, char message[ENGINE_MESSAGE_BYTES]);

/* All else. engine_close in either case. */
int engine_open(struct engine *engine, struct engine_size size, char message[ENGINE_MESSAGE_BYTES]);
void engine_close(struct engine *engine);

/* NULL: no prefixes are shared. */
const struct kv_store *engine_store(const struct engine *engine);

/* The trace is complete: 0, or -EIO if it could not be written. Without one it does nothing. */
int engine_close_trace(struct engine *engine, char message[ENGINE_MESSAGE_BYTES]);

#endif
