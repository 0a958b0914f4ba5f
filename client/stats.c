/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_model, cnre_stats, cnre_token_end and cnre_version: what can be said without asking the manager. */
#include "client/client.h"
#include "client/hot.h"
#include "client/prefetch.h"
#include "client/vram.h"
#include "shm/access_log.h"

#include <string.h>

#define MODEL_INFO_FIRST offsetof(struct cnre_model_info, view)
#define STATS_FIRST offsetof(struct cnre_stats, vram_hits)

/*
 * Copies as much of a sized struct as the caller's version has, and clears what only a later one has. first: the size
 * that the struct had in its first version, which is the shortest there is.
 */
static int copy_sized(void *to, const void *from, size_t size, size_t first)
{
	size_t wanted;

	memcpy(&wanted, to, sizeof wanted);
	if (wanted < first)
		return -EINVAL;
	if (wanted < size)
		size = wanted;
	memset((char *)to + size, 0, wanted - size);
	memcpy((char *)to + sizeof wanted, (const char *)from + sizeof wanted, size - sizeof wanted);
	return 0;
}

int cnre_model(const struct cnre *client, struct cnre_model_info *ret_info)
{
	struct cnre_model_info info = {.size = sizeof info};
	const struct cnre_catalog *catalog;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_info == NULL)
		return -EINVAL;
	catalog = client->catalog;
	memcpy(info.family, catalog->family, sizeof info.family);
	info.family[sizeof info.family - 1] = '\0';
	memcpy(info.identity, catalog->identity, sizeof info.identity);
	info.layer_count = catalog->layer_count;
	info.expert_count = catalog->expert_count;
	info.top_k = catalog->top_k;
	info.object_count = catalog->object_count;
	info.expert_bytes_min = catalog->payload_bytes_min;
	info.expert_bytes_max = catalog->payload_bytes_max;
	info.total_bytes = catalog->payload_bytes_total;
	info.capabilities = catalog->capabilities | (cnre_vram_is_offered(client) ? CNRE_CAP_VRAM : 0);
	info.reserve_bytes = client->reserve_bytes;
	info.reserve_objects = client->reserve_slabs;
	/* [S1] relaxed: a number of the manager's, current when it was read. */
	info.pool_bytes = atomic_load_explicit(&client->page->pool_bytes, memory_order_relaxed);
	memcpy(info.view, catalog->view, sizeof catalog->view);
	info.view_version = catalog->view_version;
	return copy_sized(ret_info, &info, sizeof info, MODEL_INFO_FIRST);
}

static uint64_t get(const _Atomic uint64_t *cell)
{
	/* [S2] relaxed: as [S1]. */
	return atomic_load_explicit(cell, memory_order_relaxed);
}

/* The ledger knows every access and every lease; hits are counted nowhere else, so that they cost nothing more. */
static void add_ledger(const struct cnre *client, struct cnre_stats *stats)
{
	for (uint32_t i = 0; i < client->object_count; i++) {
		uint64_t word = get(&client->ledger[i]);

		stats->requests += CNRE_LEDGER_ACCESSES(word);
		if (CNRE_LEDGER_LEASES(word) != 0)
			stats->leased_bytes += client->shape[client->object[i].shape].payload_bytes;
		stats->prefetch_hits += cnre_prefetch_is_used(client, i);
	}
}

/* Its tables have ledgers of their own, and an access is in one ledger only. */
static void add_vram(struct cnre *client, struct cnre_stats *stats)
{
	struct cnre_vram_sum sum = cnre_vram_sum(client);

	stats->requests += sum.accesses;
	stats->vram_hits = sum.accesses;
	stats->leased_bytes += sum.leased_bytes;
}

int cnre_stats(const struct cnre *client, struct cnre_stats *ret_stats)
{
	struct cnre_stats stats = {.size = sizeof stats};
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_stats == NULL)
		return -EINVAL;
	stats.misses = get(&client->tally.misses); /* before the accesses, so that hits are not negative */
	stats.joins = get(&client->tally.joins);
	stats.prefetched = get(&client->tally.prefetched);
	stats.prefetch_hits = get(&client->tally.prefetch_hits);
	stats.bytes_read = get(&client->tally.bytes_read);
	stats.wait_ns = get(&client->tally.wait_ns);
	stats.service_ns = get(&client->tally.service_ns);
	add_ledger(client, &stats);
	add_vram((struct cnre *)client, &stats);
	stats.hits = stats.requests > stats.misses ? stats.requests - stats.misses : 0;
	stats.resident_bytes = get(&client->page->resident_bytes);
	stats.capacity_bytes = get(&client->page->budget_bytes);
	return copy_sized(ret_stats, &stats, sizeof stats, STATS_FIRST);
}

void cnre_token_end(struct cnre *client, uint32_t token_count)
{
	if (cnre_client_check(client) < 0)
		return;
	cnre_access_log_put(client->log, cnre_gauge_log(client, 1), CNRE_LOG_TOKEN_END, 0, token_count);
}

const char *cnre_version(void)
{
	return CNRE_VERSION;
}
