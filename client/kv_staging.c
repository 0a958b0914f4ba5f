/* SPDX-License-Identifier: Apache-2.0 */
/* Room in the staging segment; see kv_staging.h. */
#include "client/kv_staging.h"

#include <errno.h>
#include <string.h>

/* Where the gap before a range begins. */
static uint64_t gap_off(const struct cnre_kv_staging *staging, uint32_t index)
{
	return index == 0 ? 0 : staging->range[index - 1].off + staging->range[index - 1].bytes;
}

static uint64_t gap_bytes(const struct cnre_kv_staging *staging, uint32_t index)
{
	uint64_t end = index == staging->count ? staging->bytes : staging->range[index].off;

	return end - gap_off(staging, index);
}

int cnre_kv_staging_take(struct cnre_kv_staging *staging, uint64_t bytes, uint64_t *ret_off)
{
	uint64_t whole = (bytes + CNRE_KV_STAGING_ALIGNMENT - 1) & ~(uint64_t)(CNRE_KV_STAGING_ALIGNMENT - 1);
	uint32_t index = 0;

	if (staging->count == CNRE_KV_SLOTS || bytes > staging->bytes)
		return -EAGAIN;
	while (index < staging->count && gap_bytes(staging, index) < whole)
		index++;
	if (gap_bytes(staging, index) < whole)
		return -EAGAIN;
	*ret_off = gap_off(staging, index);
	memmove(&staging->range[index + 1], &staging->range[index],
		(staging->count - index) * sizeof staging->range[0]);
	staging->range[index].off = *ret_off;
	staging->range[index].bytes = whole;
	staging->count++;
	return 0;
}

void cnre_kv_staging_give(struct cnre_kv_staging *staging, uint64_t off)
{
	for (uint32_t i = 0; i < staging->count; i++)
		if (staging->range[i].off == off) {
			staging->count--;
			memmove(&staging->range[i], &staging->range[i + 1],
				(staging->count - i) * sizeof staging->range[0]);
			return;
		}
}
