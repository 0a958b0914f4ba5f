/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a shard are compared: bounded, the same at every start, and something of every expert. */
#include "manager/mirror_sample.h"

#include "tests/support/mirrored.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct mirrored mirrored;
static struct model_catalog *catalog;

static void make(void)
{
	char message[MODEL_MESSAGE_BYTES];

	mirrored_open(&mirrored);
	cr_assert_eq(model_catalog_open(&catalog, mirrored.model, message), 0, "%s", message);
}

static void clean(void)
{
	(void)model_catalog_close(catalog);
	mirrored_close(&mirrored);
}

TestSuite(manager_mirror_sample, .init = make, .fini = clean, .timeout = 30);

Test(manager_mirror_sample, density_keeps_the_bound_and_every_expert_as_long_as_it_can)
{
	uint64_t pages = MIRROR_SAMPLE_BYTES_MAX / MIRROR_PAGE_BYTES;
	static const uint64_t experts[] = {1, 1024, 11008, 19456, 32768, 40000, 82432};

	for (size_t i = 0; i < sizeof experts / sizeof experts[0]; i++) {
		struct mirror_density density =
			mirror_sample_density(experts[i] * 6, experts[i], MIRROR_SAMPLE_BYTES_MAX);
		uint64_t sampled = (experts[i] + density.every_object - 1) / density.every_object;

		if (density.has_every_part)
			sampled *= 6;
		cr_expect_leq(sampled, pages, "%llu experts", (unsigned long long)experts[i]);
		cr_expect_eq(density.every_object == 1, experts[i] <= pages);
		cr_expect_eq(density.has_every_part, experts[i] * 6 <= pages);
	}
}

static int covers(const struct mirror_shard *shard, uint64_t begin, uint64_t end)
{
	for (uint32_t i = 0; i < shard->page_count; i++)
		if (shard->page[i] < end && shard->page[i] + MIRROR_PAGE_BYTES > begin)
			return 1;
	return 0;
}

Test(manager_mirror_sample, every_part_of_every_expert_and_both_ends_have_a_page)
{
	struct mirror_shard *shard;
	uint32_t count;

	cr_assert_eq(mirror_sample(catalog, (struct mirror_density){1, 1}, &shard, &count), 0);
	cr_assert_eq(count, 2);
	for (uint32_t s = 0; s < count; s++) {
		cr_expect(covers(&shard[s], shard[s].header_bytes, shard[s].header_bytes + 1));
		cr_expect(covers(&shard[s], shard[s].bytes - 1, shard[s].bytes));
		cr_expect_eq(shard[s].expert_bytes, shard[s].bytes - shard[s].header_bytes);
		for (uint32_t i = 1; i < shard[s].page_count; i++)
			cr_expect_lt(shard[s].page[i - 1], shard[s].page[i]);
	}
	for (uint32_t i = 0; i < catalog->object_count; i++) {
		for (uint32_t role = 0; role < MODEL_ROLES; role++) {
			const struct model_piece *piece = &catalog->object[i].piece[role];
			uint64_t bytes = catalog->shape[catalog->object[i].shape].part[role].bytes;

			cr_expect(bytes == 0 || covers(&shard[piece->shard], piece->file_off, piece->file_off + bytes));
		}
	}
	mirror_sample_free(shard, count);
}

Test(manager_mirror_sample, a_lower_density_has_fewer_pages_and_the_same_twice)
{
	struct mirror_shard *all, *some, *again;
	uint32_t count;

	cr_assert_eq(mirror_sample(catalog, (struct mirror_density){1, 1}, &all, &count), 0);
	cr_assert_eq(mirror_sample(catalog, (struct mirror_density){0, 2}, &some, &count), 0);
	cr_assert_eq(mirror_sample(catalog, (struct mirror_density){0, 2}, &again, &count), 0);
	for (uint32_t s = 0; s < count; s++) {
		cr_expect_leq(some[s].page_count, MIRRORED_EXPERTS / 2 + 2);
		cr_expect_lt(some[s].page_count, all[s].page_count);
		cr_expect_eq(some[s].expert_bytes, all[s].expert_bytes);
		cr_assert_eq(some[s].page_count, again[s].page_count);
		cr_expect_arr_eq(some[s].page, again[s].page, some[s].page_count * sizeof(uint64_t));
	}
	mirror_sample_free(all, count);
	mirror_sample_free(some, count);
	mirror_sample_free(again, count);
}
