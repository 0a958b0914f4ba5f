/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts from the shared manager. A layer's selection is one batch: begun whole, waited for in the router's order
 * (sums of floats depend on the order), each lease given back right after its use. The felt wait is libcnre's own
 * account.
 */
#include "engine/expert_source.h"

#include "cnre/cnre.h"
#include "engine/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_TIMEOUT_NS (300 * INT64_C(1000000000)) /* a drive that hangs this long is as good as gone */
#define WAIT_SLICE_NS (1 * INT64_C(1000000000)) /* how long ^C may go unseen if a read hangs; libcnre looks 4 times */

_Static_assert(EXPERT_PARTS == CNRE_DOWN_SCALE + 1, "the engine numbers parts as cnre.h numbers roles");

struct cnre_source {
	struct expert_source source;
	const struct config *config;
	struct cnre *client;
	struct cnre_batch *batch;                   /* NULL between batches */
	struct cnre_expert lease[CONFIG_TOP_K_MAX]; /* lease 0: not held */
	uint32_t count;
	uint16_t layout;                            /* of weights: what the client was attached for */
};

static int begin(struct expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	if (count > cnre->config->top_k)
		return -EINVAL;
	memset(cnre->lease, 0, count * sizeof *cnre->lease);
	cnre->count = count;
	return cnre_batch_begin(cnre->client, layer, experts, count, 1, &cnre->batch);
}

static int wait_for(struct expert_source *source, uint32_t index, struct expert *ret_expert)
{
	struct cnre_source *cnre = (struct cnre_source *)source;
	struct cnre_expert *lease = &cnre->lease[index];
	struct expert_part part[EXPERT_PARTS];
	int64_t left_ns = WAIT_TIMEOUT_NS;
	int error;

	do {
		error = cnre_batch_wait(cnre->batch, index, WAIT_SLICE_NS, lease);
		left_ns -= WAIT_SLICE_NS;
	} while (error == -ETIMEDOUT && left_ns > 0 && !stop_is_asked());
	if (error < 0)
		return error;
	for (uint32_t i = 0; i < EXPERT_PARTS; i++)
		part[i] = (struct expert_part){.data = lease->part[i].data,
					       .bytes = lease->part[i].bytes,
					       .dtype = lease->part[i].dtype,
					       .layout = i < CNRE_GATE_SCALE ? cnre->layout : MATRIX_ROWS};
	return expert_make(cnre->config, part, ret_expert);
}

static void release(struct expert_source *source, uint32_t index)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	if (cnre->lease[index].lease != 0)
		(void)cnre_release(cnre->client, &cnre->lease[index]); /* our own lease: never refused */
	cnre->lease[index].lease = 0;
}

static void end(struct expert_source *source)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	for (uint32_t i = 0; i < cnre->count; i++)
		release(source, i);
	if (cnre->batch)
		(void)cnre_batch_end(cnre->batch);
	cnre->batch = NULL;
	cnre->count = 0;
}

static void token_end(struct expert_source *source, uint32_t token_count)
{
	cnre_token_end(((struct cnre_source *)source)->client, token_count);
}

static int counters(struct expert_source *source, struct source_counters *ret_counters)
{
	struct cnre_source *cnre = (struct cnre_source *)source;
	struct cnre_stats stats = {.size = sizeof stats};
	int error = cnre_stats(cnre->client, &stats);

	if (error < 0)
		return error;
	*ret_counters = (struct source_counters){
		.hits = stats.hits,
		.misses = stats.misses,
		.joins = stats.joins,
		.felt_wait_ns = stats.wait_ns,
		.bytes_read = stats.bytes_read,
		.has_bytes_read = true,
		.resident_bytes = stats.resident_bytes,
	};
	return 0;
}

static void close_source(struct expert_source *source)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	end(source);
	free(cnre);
}

static const struct expert_source_ops cnre_ops = {begin, wait_for, release, end, token_end, counters, close_source};

int cache_cnre_open(struct expert_source **ret_source, const struct config *config, struct cnre *client,
		    enum matrix_layout layout, char message[ENGINE_MESSAGE_BYTES])
{
	struct cnre_source *cnre = calloc(1, sizeof *cnre);

	if (!cnre)
		return engine_fail(message, -ENOMEM, "out of memory");
	*cnre = (struct cnre_source){.source = {&cnre_ops}, .config = config, .client = client, .layout = (uint16_t)layout};
	*ret_source = &cnre->source;
	return 0;
}
