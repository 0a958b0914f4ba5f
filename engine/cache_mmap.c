/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shards mapped read-only and shared; the kernel's page cache is the cache. Experts that are not all there are
 * asked for at begin (MADV_WILLNEED) and touched before use (MADV_POPULATE_READ), so that waiting for the drive is
 * felt here, where it can be timed, and not inside a matrix product. Those that are there are left alone: touching
 * each of their pages would cost more than the faults it saves.
 *
 * A hit is an expert whose pages are all in the page cache before begin (mincore). Where the file is not this
 * user's own, the kernel reports every page as present and all lookups are hits. bytes_read is the growth of
 * read_bytes in /proc/self/io: what this process made the kernel fetch, read-ahead included. If a shard is
 * truncated while it is mapped, the process ends with SIGBUS, as every engine that maps its model.
 */
#include "engine/expert_source.h"

#include "engine/clock.h"
#include "engine/expert_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

struct mapping {
	char *base; /* NULL: not mapped */
	uint64_t bytes;
};

struct mmap_cache {
	struct expert_source source;
	const struct config *config;
	struct expert_table table;
	struct mapping *mapping; /* [mapping_count], by shard */
	uint32_t mapping_count;
	unsigned char *present; /* mincore's answer for one run */
	uint64_t page_bytes;
	uint32_t layer, count;
	struct {
		uint32_t expert;
		bool hit;
	} entry[CONFIG_TOP_K_MAX];
	uint64_t hits, misses, felt_wait_ns, read_at_open;
	bool has_bytes_read;
};

/* Growth is all that counts, so a line that cannot be read is an error and not 0. */
static int read_bytes_of_process(uint64_t *ret_bytes)
{
	FILE *file = fopen("/proc/self/io", "re");
	unsigned long long bytes;
	char line[128];
	int error = -ENODATA;

	if (!file)
		return -errno;
	while (error < 0 && fgets(line, sizeof line, file)) {
		if (sscanf(line, "read_bytes: %llu", &bytes) == 1) {
			*ret_bytes = bytes;
			error = 0;
		}
	}
	(void)fclose(file); /* read only */
	return error;
}

/* The run's address, a multiple of 4096 and of every page size up to 4096; larger pages round down in the callers. */
static char *page_of(const struct mmap_cache *cache, const struct expert_run *run)
{
	return cache->mapping[run->shard].base + run->file_off / cache->page_bytes * cache->page_bytes;
}

static uint64_t length_of(const struct mmap_cache *cache, const struct expert_run *run)
{
	return run->needed_bytes + run->file_off % cache->page_bytes;
}

static bool is_present(const struct mmap_cache *cache, const struct expert_run *run)
{
	const uint64_t pages = (length_of(cache, run) + cache->page_bytes - 1) / cache->page_bytes;

	if (mincore(page_of(cache, run), length_of(cache, run), cache->present) < 0)
		return false;
	for (uint64_t i = 0; i < pages; i++)
		if (!(cache->present[i] & 1))
			return false;
	return true;
}

static void plan_of(const struct mmap_cache *cache, uint32_t expert, struct expert_plan *ret_plan)
{
	expert_plan_make(expert_table_place(&cache->table, cache->layer, expert), ret_plan);
}

static bool ask_for(const struct mmap_cache *cache, uint32_t expert)
{
	struct expert_plan plan;
	bool hit = true;

	plan_of(cache, expert, &plan);
	for (uint32_t i = 0; i < plan.run_count; i++) {
		if (is_present(cache, &plan.run[i]))
			continue;
		hit = false;
		(void)madvise(page_of(cache, &plan.run[i]), length_of(cache, &plan.run[i]), MADV_WILLNEED); /* a hint */
	}
	return hit;
}

static int begin(struct expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct mmap_cache *cache = (struct mmap_cache *)source;
	uint64_t start = clock_now_ns();

	if (layer >= cache->config->layers || count > cache->config->top_k)
		return -EINVAL;
	cache->layer = layer;
	cache->count = count;
	for (uint32_t i = 0; i < count; i++) {
		cache->entry[i].expert = experts[i];
		cache->entry[i].hit = ask_for(cache, experts[i]);
		cache->hits += cache->entry[i].hit;
		cache->misses += !cache->entry[i].hit;
	}
	cache->felt_wait_ns += clock_now_ns() - start; /* the hint itself blocks where the drive's queue is full */
	return 0;
}

/* One byte a page; volatile keeps the compiler from dropping the loads. */
static void touch(const char *from, uint64_t bytes, uint64_t page_bytes)
{
	for (uint64_t off = 0; off < bytes; off += page_bytes)
		(void)*(const volatile char *)(from + off);
}

static int populate(const struct mmap_cache *cache, const struct expert_run *run)
{
	char *from = page_of(cache, run);
	uint64_t bytes = length_of(cache, run);

	if (madvise(from, bytes, MADV_POPULATE_READ) == 0)
		return 0;
	if (errno == EFAULT || errno == EHWPOISON)
		return -EIO; /* the read failed; touching would be SIGBUS */
	touch(from, bytes, cache->page_bytes);
	return 0;
}

/* Brings a missing expert's pages into memory and into this process's tables; the time it takes is felt. */
static int fetch(struct mmap_cache *cache, uint32_t expert)
{
	uint64_t start = clock_now_ns();
	struct expert_plan plan;
	int error = 0;

	plan_of(cache, expert, &plan);
	for (uint32_t i = 0; i < plan.run_count && error == 0; i++)
		error = populate(cache, &plan.run[i]);
	cache->felt_wait_ns += clock_now_ns() - start;
	return error;
}

static int wait_for(struct expert_source *source, uint32_t index, struct expert *ret_expert)
{
	struct mmap_cache *cache = (struct mmap_cache *)source;
	const uint32_t expert = cache->entry[index].expert;
	const struct expert_place *place = expert_table_place(&cache->table, cache->layer, expert);
	struct expert_part part[EXPERT_PARTS] = {0};
	int error = cache->entry[index].hit ? 0 : fetch(cache, expert);

	if (error < 0)
		return error;
	for (uint32_t i = 0; i < EXPERT_PARTS; i++) {
		if (place->part[i].bytes == 0)
			continue;
		part[i] = (struct expert_part){
			.data = cache->mapping[place->part[i].shard].base + place->part[i].file_off,
			.bytes = place->part[i].bytes,
			.dtype = place->part[i].dtype,
		};
	}
	return expert_make(cache->config, part, ret_expert);
}

static void release(struct expert_source *source, uint32_t index)
{
	(void)source;
	(void)index;
}

static void end(struct expert_source *source)
{
	((struct mmap_cache *)source)->count = 0;
}

static void token_end(struct expert_source *source, uint32_t token_count)
{
	(void)source;
	(void)token_count;
}

/* Expert bytes whose pages are in the page cache now, whoever brought them there; whole experts only. */
static uint64_t resident_bytes(struct mmap_cache *cache)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < cache->config->layers * cache->config->experts; i++) {
		struct expert_plan plan;
		bool present = true;

		expert_plan_make(&cache->table.place[i], &plan);
		for (uint32_t j = 0; j < plan.run_count && present; j++)
			present = is_present(cache, &plan.run[j]);
		bytes += present ? cache->table.place[i].bytes : 0;
	}
	return bytes;
}

static int counters(struct expert_source *source, struct source_counters *ret_counters)
{
	struct mmap_cache *cache = (struct mmap_cache *)source;
	uint64_t read_now = 0;
	bool has_bytes_read = cache->has_bytes_read && read_bytes_of_process(&read_now) == 0;

	*ret_counters = (struct source_counters){
		.hits = cache->hits,
		.misses = cache->misses,
		.felt_wait_ns = cache->felt_wait_ns,
		.bytes_read = has_bytes_read ? read_now - cache->read_at_open : 0,
		.has_bytes_read = has_bytes_read,
		.resident_bytes = resident_bytes(cache),
	};
	return 0;
}

static void close_cache(struct expert_source *source)
{
	struct mmap_cache *cache = (struct mmap_cache *)source;

	for (uint32_t i = 0; i < cache->mapping_count; i++)
		if (cache->mapping[i].base)
			(void)munmap(cache->mapping[i].base, cache->mapping[i].bytes);
	expert_table_free(&cache->table);
	free(cache->mapping);
	free(cache->present);
	free(cache);
}

static const struct expert_source_ops mmap_ops = {begin, wait_for, release, end, token_end, counters, close_cache};

static int map_shards(struct mmap_cache *cache, const struct shard_set *shards, char *message)
{
	cache->mapping = calloc(shards->file_count, sizeof *cache->mapping);
	cache->present = malloc(cache->table.buffer_bytes / cache->page_bytes + 2);
	if (!cache->mapping || !cache->present)
		return engine_fail(message, -ENOMEM, "out of memory for the mappings");
	for (uint32_t i = 0; i < shards->file_count; i++) {
		const struct shard_file *file = &shards->file[i];
		void *base = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);

		if (base == MAP_FAILED) {
			int error = -errno;

			return engine_fail(message, error, "cannot map %.300s: %s", file->path, strerror(-error));
		}
		cache->mapping[i] = (struct mapping){base, file->bytes};
		cache->mapping_count = i + 1;
	}
	return 0;
}

int cache_mmap_open(struct expert_source **ret_source, const struct config *config, const struct shard_set *shards,
		    char message[ENGINE_MESSAGE_BYTES])
{
	struct mmap_cache *cache = calloc(1, sizeof *cache);
	int error;

	if (!cache)
		return engine_fail(message, -ENOMEM, "out of memory for the mappings");
	cache->source.ops = &mmap_ops;
	cache->config = config;
	cache->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	error = expert_table_make(&cache->table, config, shards, message);
	if (error == 0)
		error = map_shards(cache, shards, message);
	if (error < 0) {
		close_cache(&cache->source);
		return error;
	}
	cache->has_bytes_read = read_bytes_of_process(&cache->read_at_open) == 0;
	*ret_source = &cache->source;
	return 0;
}
