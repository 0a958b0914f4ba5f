/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engines do today: every process has its own experts. Lookups are exactly sequential in the router's order
 * (lru.h), reads overlap. The two are reconciled by buffers that are not bound to slots: an expert of this batch
 * that loses its slot to a later one keeps its buffer until it is released, and the later one reads into a spare.
 * So memory is the slots, and at most top_k spare buffers when a layer has fewer slots than a batch is wide.
 */
#include "engine/expert_source.h"

#include "engine/clock.h"
#include "engine/expert_table.h"
#include "engine/lru.h"
#include "engine/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TAIL_BYTES 64u

struct entry { /* one expert of the batch */
	struct reader_ticket ticket;
	uint32_t expert, buffer;
	bool held;
	bool orphan; /* its slot went to a later expert: the buffer is free after the release */
};

struct private_cache {
	struct expert_source source;
	const struct config *config;
	struct expert_table table;
	struct lru lru;
	struct reader *reader;
	uint32_t *buffer_of;   /* [slot]: the buffer that holds the slot's expert */
	uint32_t *free_buffer; /* stack of buffers that were used before and are free */
	uint32_t free_count, buffer_count, buffer_room;
	char *arena; /* buffer_room buffers, touched when first used */
	uint64_t buffer_bytes, arena_bytes;
	uint32_t layer, count; /* the batch */
	struct entry entry[CONFIG_TOP_K_MAX];
	uint64_t hits, misses, felt_wait_ns;
};

static uint32_t take_buffer(struct private_cache *cache)
{
	return cache->free_count > 0 ? cache->free_buffer[--cache->free_count] : cache->buffer_count++;
}

/* The buffer of a slot whose expert was just evicted, or a spare while an earlier expert of the batch needs it. */
static uint32_t reuse_buffer(struct private_cache *cache, uint32_t slot)
{
	for (uint32_t i = 0; i < cache->count; i++) {
		if (cache->entry[i].buffer == cache->buffer_of[slot] && cache->entry[i].held) {
			cache->entry[i].orphan = true;
			return take_buffer(cache);
		}
	}
	return cache->buffer_of[slot];
}

static int look_up(struct private_cache *cache, struct entry *entry)
{
	struct lru_access access = lru_access(&cache->lru, cache->layer, entry->expert);
	struct expert_plan plan;

	if (access.hit) {
		cache->hits++;
		entry->buffer = cache->buffer_of[access.slot];
		return 0;
	}
	cache->misses++;
	entry->buffer = access.evicted ? reuse_buffer(cache, access.slot) : take_buffer(cache);
	cache->buffer_of[access.slot] = entry->buffer;
	expert_plan_make(expert_table_place(&cache->table, cache->layer, entry->expert), &plan);
	return reader_submit(cache->reader, &plan, cache->arena + entry->buffer * cache->buffer_bytes, &entry->ticket);
}

static void release(struct expert_source *source, uint32_t index)
{
	struct private_cache *cache = (struct private_cache *)source;
	struct entry *entry = &cache->entry[index];

	if (!entry->held)
		return;
	(void)reader_wait(cache->reader, &entry->ticket); /* a read still under way owns the buffer */
	if (entry->orphan)
		cache->free_buffer[cache->free_count++] = entry->buffer;
	entry->held = false;
}

static void end(struct expert_source *source)
{
	struct private_cache *cache = (struct private_cache *)source;

	for (uint32_t i = 0; i < cache->count; i++)
		release(source, i);
	cache->count = 0;
}

static int begin(struct expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct private_cache *cache = (struct private_cache *)source;

	if (layer >= cache->config->layers || count > cache->config->top_k)
		return -EINVAL;
	cache->layer = layer;
	for (uint32_t i = 0; i < count; i++) {
		struct entry *entry = &cache->entry[i];
		int error;

		*entry = (struct entry){.expert = experts[i]};
		error = look_up(cache, entry);
		entry->held = true;
		cache->count = i + 1;
		if (error < 0) {
			end(source);
			return error;
		}
	}
	return 0;
}

static int wait_for(struct expert_source *source, uint32_t index, struct expert *ret_expert)
{
	struct private_cache *cache = (struct private_cache *)source;
	struct entry *entry = &cache->entry[index];
	const struct expert_place *place = expert_table_place(&cache->table, cache->layer, entry->expert);
	struct expert_part part[EXPERT_PARTS];
	struct expert_plan plan;
	uint64_t start = clock_now_ns();
	int error = reader_wait(cache->reader, &entry->ticket);

	cache->felt_wait_ns += clock_now_ns() - start;
	if (error < 0)
		return error; /* the run ends here, so that the slot claims to hold the expert does not matter */
	expert_plan_make(place, &plan);
	for (uint32_t i = 0; i < EXPERT_PARTS; i++)
		part[i] = (struct expert_part){
			.data = cache->arena + entry->buffer * cache->buffer_bytes + plan.part_off[i],
			.bytes = place->part[i].bytes,
			.dtype = place->part[i].dtype,
		};
	return expert_make(cache->config, part, ret_expert);
}

static void token_end(struct expert_source *source, uint32_t token_count)
{
	(void)source;
	(void)token_count;
}

static int counters(struct expert_source *source, struct source_counters *ret_counters)
{
	struct private_cache *cache = (struct private_cache *)source;

	*ret_counters = (struct source_counters){
		.hits = cache->hits,
		.misses = cache->misses,
		.felt_wait_ns = cache->felt_wait_ns,
		.bytes_read = reader_bytes(cache->reader),
		.has_bytes_read = true,
		.resident_bytes = cache->buffer_count * cache->buffer_bytes,
	};
	return 0;
}

static void close_cache(struct expert_source *source)
{
	struct private_cache *cache = (struct private_cache *)source;

	end(source);
	reader_close(cache->reader);
	if (cache->arena)
		(void)munmap(cache->arena, cache->arena_bytes);
	lru_done(&cache->lru);
	expert_table_free(&cache->table);
	free(cache->buffer_of);
	free(cache->free_buffer);
	free(cache);
}

static const struct expert_source_ops private_ops = {begin, wait_for, release, end, token_end, counters, close_cache};

/* Slots a layer; more than there are experts would never be used. */
static int slots_per_layer(const struct private_cache *cache, const struct private_size *size, uint32_t *ret_slots,
			   char *message)
{
	const struct config *config = cache->config;
	const uint64_t per_slot = cache->table.bytes_max * config->layers;
	uint64_t slots = size->slots_per_layer ? size->slots_per_layer : size->bytes / per_slot;

	if (slots == 0)
		return engine_fail(message, -ENOSPC,
				   "a private cache of %llu bytes is less than one expert a layer; give "
				   "at least private:%llu",
				   (unsigned long long)size->bytes, (unsigned long long)per_slot);
	*ret_slots = (uint32_t)(slots < config->experts ? slots : config->experts);
	return 0;
}

static int reserve_buffers(struct private_cache *cache, uint32_t slots)
{
	const struct config *config = cache->config;
	uint64_t room = (uint64_t)slots * config->layers + config->top_k;
	void *arena;

	cache->buffer_bytes = (cache->table.buffer_bytes + TAIL_BYTES + EXPERT_READ_ALIGNMENT - 1) /
			      EXPERT_READ_ALIGNMENT * EXPERT_READ_ALIGNMENT;
	if (room > UINT32_MAX || __builtin_mul_overflow(room, cache->buffer_bytes, &cache->arena_bytes))
		return -ENOMEM;
	cache->buffer_of = calloc(room, sizeof *cache->buffer_of);
	cache->free_buffer = calloc(room, sizeof *cache->free_buffer);
	if (!cache->buffer_of || !cache->free_buffer)
		return -ENOMEM;
	arena = mmap(NULL, cache->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	if (arena == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(arena, cache->arena_bytes, MADV_HUGEPAGE); /* fewer TLB misses where the kernel grants it */
	cache->arena = arena;
	cache->buffer_room = (uint32_t)room;
	return 0;
}

/* As many jobs as a batch of nothing but misses can queue. */
static uint32_t jobs_max(const struct private_cache *cache)
{
	uint64_t chunks = cache->buffer_bytes / READER_CHUNK_BYTES + 2 * EXPERT_PARTS;

	return (uint32_t)chunks * cache->config->top_k;
}

int cache_private_open(struct expert_source **ret_source, const struct config *config, const struct shard_set *shards,
		       const struct private_size *size, char message[ENGINE_MESSAGE_BYTES])
{
	struct private_cache *cache = calloc(1, sizeof *cache);
	uint32_t slots = 0;
	int error;

	if (!cache)
		return engine_fail(message, -ENOMEM, "out of memory for the private cache");
	cache->source.ops = &private_ops;
	cache->config = config;
	error = expert_table_make(&cache->table, config, shards, message);
	if (error == 0)
		error = slots_per_layer(cache, size, &slots, message);
	if (error < 0)
		goto fail;
	error = lru_init(&cache->lru, config->layers, slots);
	if (error == 0)
		error = reserve_buffers(cache, slots);
	if (error == 0)
		error = reader_open(&cache->reader, shards, jobs_max(cache));
	if (error < 0) {
		(void)engine_fail(message, error, "cannot set up a private cache of %u slots a layer: %s", slots,
				  strerror(-error));
		goto fail;
	}
	*ret_source = &cache->source;
	return 0;
fail:
	close_cache(&cache->source);
	return error;
}
