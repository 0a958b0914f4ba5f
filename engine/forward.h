/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass of OLMoE and greedy decoding on top of it. Rows of a prompt go through a layer together, but
 * each row takes its experts by itself, row after row in the router's order: that is what Colibri's engine does,
 * and it makes the lookups of a per-layer cache the same as if positions were run one at a time.
 */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H

#include "engine/attention.h"
#include "engine/config.h"
#include "engine/expert_source.h"
#include "engine/matmul.h"
#include "engine/router.h"
#include "engine/weights.h"

#define FORWARD_ROWS_MAX 256u             /* a longer prompt goes in pieces of this many rows */

/* Told of every routing decision; call counts layers run, row is the position inside that call. */
typedef void forward_route(void *context, uint64_t call, uint32_t row, uint32_t layer, const struct route *route,
			   uint32_t top_k);

struct forward {
	const struct compute *compute;
	const struct config *config;
	const struct weights *weights;
	struct expert_source *source;
	struct kv_cache *cache;           /* the conversation that runs; may change between two calls */
	forward_route *on_route;          /* NULL: nobody listens */
	void *route_context;

	/* Private to forward.c. */
	struct attention_scratch attention;
	float *x, *normed, *added;        /* [rows][hidden] */
	float *router;                    /* [rows][experts] */
	float *middle, *output;           /* [intermediate], [hidden] */
	float *logits;                    /* [vocab] */
	uint64_t call_count;
	uint32_t positions;               /* room of the largest cache */
	uint32_t last_row;                /* of the last piece: its x is what the next token follows from */
};

/* Scratch for caches of up to positions tokens. Returns 0 or -ENOMEM; forward_done in either case. */
int forward_init(struct forward *forward, uint32_t positions);
void forward_done(struct forward *forward);

/* Bytes that forward_init reserves for positions tokens, nearly; caches are besides. */
uint64_t forward_bytes(const struct config *config, uint32_t positions);

/*
 * forward_append - run tokens, and leave their rows in the cache
 *
 * Rows are the same bits however tokens are cut into calls. On failure the cache has the rows of whole pieces of
 * FORWARD_ROWS_MAX tokens.
 *
 * Returns:  as forward_run
 */
int forward_append(struct forward *forward, const uint32_t *tokens, uint32_t count);

/*
 * forward_run - run tokens and choose the next
 *
 * Tokens are below vocab and fit the room that is left. *ret_next is the token of the largest logit, the lowest of
 * equals; set on success only.
 *
 * Returns:  0, -EINVAL (a token or the count does not fit), -EDOM (the router saw only NaN), -EINTR
 *           (stop.h), or an error of the source.
 */
int forward_run(struct forward *forward, const uint32_t *tokens, uint32_t count, uint32_t *ret_next);

#endif
