/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing pages; see mirror_sample.h. */
#include "manager/mirror_sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mirror_density mirror_sample_density(uint64_t parts, uint64_t objects, uint64_t bytes_max)
{
	uint64_t pages = bytes_max / MIRROR_PAGE_BYTES;

	if (parts <= pages)
		return (struct mirror_density){.has_every_part = 1, .every_object = 1};
	return (struct mirror_density){.every_object = objects <= pages ? 1
									: (uint32_t)((objects + pages - 1) / pages)};
}

/* Of one object, as in the checkpoint. */
static const struct model_shape *shape_of(const struct model_catalog *catalog, uint32_t object)
{
	return &catalog->shape[catalog->object[object].shape];
}

uint64_t mirror_sample_parts(const struct model_catalog *catalog)
{
	uint64_t parts = 0;

	for (uint32_t i = 0; i < catalog->object_count; i++)
		for (uint32_t role = 0; role < MODEL_ROLES; role++)
			parts += shape_of(catalog, i)->part[role].bytes > 0;
	return parts;
}

/* Of any two numbers: all bits of the result depend on all bits of both (the finalizer of splitmix64). */
static uint64_t scatter(uint64_t object, uint64_t role)
{
	uint64_t x = object * MODEL_ROLES + role + 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t page_in_part(const struct model_catalog *catalog, uint32_t object, uint32_t role)
{
	uint64_t bytes = shape_of(catalog, object)->part[role].bytes;
	uint64_t at = catalog->object[object].piece[role].file_off + scatter(object, role) % bytes;

	return at - at % MIRROR_PAGE_BYTES;
}

static uint32_t largest_part(const struct model_shape *shape)
{
	uint32_t largest = 0;

	for (uint32_t role = 1; role < MODEL_ROLES; role++)
		if (shape->part[role].bytes > shape->part[largest].bytes)
			largest = role;
	return largest;
}

static int is_sampled(const struct model_catalog *catalog, struct mirror_density density, uint32_t object,
		      uint32_t role)
{
	const struct model_shape *shape = shape_of(catalog, object);

	if (shape->part[role].bytes == 0 || object % density.every_object != 0)
		return 0;
	return density.has_every_part || role == largest_part(shape);
}

/* A count of pages for each shard; then, with memory for them, the pages. */
static void collect(const struct model_catalog *catalog, struct mirror_density density, struct mirror_shard *shard)
{
	for (uint32_t i = 0; i < catalog->object_count; i++) {
		for (uint32_t role = 0; role < MODEL_ROLES; role++) {
			struct mirror_shard *at = &shard[catalog->object[i].piece[role].shard];
			uint64_t bytes = shape_of(catalog, i)->part[role].bytes;

			if (bytes == 0)
				continue;
			if (at->page == NULL)
				at->expert_bytes += bytes;
			if (!is_sampled(catalog, density, i, role))
				continue;
			if (at->page != NULL)
				at->page[at->page_count] = page_in_part(catalog, i, role);
			at->page_count++;
		}
	}
}

static int by_offset(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return first < second ? -1 : first > second;
}

static void order(struct mirror_shard *shard)
{
	uint32_t kept = 0;

	qsort(shard->page, shard->page_count, sizeof *shard->page, by_offset);
	for (uint32_t i = 0; i < shard->page_count; i++)
		if (kept == 0 || shard->page[i] != shard->page[kept - 1])
			shard->page[kept++] = shard->page[i];
	shard->page_count = kept;
}

static int describe(const struct model_catalog *catalog, uint32_t index, struct mirror_shard *shard)
{
	const struct model_shard *of = &catalog->shard[index];
	const char *slash = strrchr(catalog->directory, '/');

	shard->path = strdup(of->path);
	shard->name = strdup(of->name);
	shard->model_name = strdup(slash + 1); /* catalog->name may be cut */
	shard->bytes = of->bytes;
	shard->header_bytes = of->data_off;
	shard->index = index;
	shard->page = malloc(((size_t)shard->page_count + 2) * sizeof *shard->page);
	shard->page_count = 0;
	return shard->path != NULL && shard->name != NULL && shard->model_name != NULL && shard->page != NULL ? 0
													      : -ENOMEM;
}

/* Experts lie in it, so there is payload. */
static void add_ends(struct mirror_shard *shard)
{
	shard->page[shard->page_count++] = shard->header_bytes - shard->header_bytes % MIRROR_PAGE_BYTES;
	shard->page[shard->page_count++] = (shard->bytes - 1) - (shard->bytes - 1) % MIRROR_PAGE_BYTES;
}

static void clear(struct mirror_shard *shard)
{
	free(shard->path);
	free(shard->name);
	free(shard->model_name);
	free(shard->page);
}

void mirror_sample_free(struct mirror_shard *shard, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		clear(&shard[i]);
	free(shard);
}

/* Those without experts are never read by the manager: a copy of one is no use, and its absence no lack. */
static uint32_t leave_out_dense(struct mirror_shard *shard, uint32_t count)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (shard[i].expert_bytes > 0)
			shard[kept++] = shard[i];
		else
			clear(&shard[i]);
	}
	return kept;
}

int mirror_sample(const struct model_catalog *catalog, struct mirror_density density, struct mirror_shard **ret_shard,
		  uint32_t *ret_count)
{
	struct mirror_shard *shard = calloc(catalog->shard_count, sizeof *shard);
	int r = 0;

	if (shard == NULL)
		return -ENOMEM;
	collect(catalog, density, shard);
	for (uint32_t i = 0; i < catalog->shard_count && r == 0; i++)
		r = describe(catalog, i, &shard[i]);
	if (r < 0) {
		mirror_sample_free(shard, catalog->shard_count);
		return r;
	}
	collect(catalog, density, shard);
	for (uint32_t i = 0; i < catalog->shard_count; i++) {
		if (shard[i].expert_bytes > 0)
			add_ends(&shard[i]);
		order(&shard[i]);
	}
	*ret_count = leave_out_dense(shard, catalog->shard_count);
	*ret_shard = shard;
	return 0;
}
