/* SPDX-License-Identifier: Apache-2.0 */
/* The view rows16 by the words of the manual; see packed.h. */
#include "tests/support/packed.h"

#include <string.h>

static int is_packed(const struct cnre_part *raw, const struct cnre_part *prepared)
{
	const unsigned char *from = raw->data, *to = prepared->data;
	const uint64_t quads = (raw->columns + 3u) / 4u;

	if (prepared->rows != (raw->rows + 15u) / 16u || prepared->columns != quads * 64 ||
	    prepared->bytes != (uint64_t)prepared->rows * prepared->columns || prepared->block_rows != 16 ||
	    prepared->block_columns != 4 || prepared->dtype != CNRE_I8)
		return 0;
	for (uint64_t row = 0; row < prepared->rows * 16ull; row++)
		for (uint64_t column = 0; column < quads * 4; column++)
			if (to[((row / 16 * quads + column / 4) * 16 + row % 16) * 4 + column % 4] !=
			    (row < raw->rows && column < raw->columns ? from[row * raw->columns + column] : 0))
				return 0;
	return 1;
}

int packed_is_right(const struct cnre_expert *raw, const struct cnre_expert *prepared)
{
	for (int role = CNRE_GATE; role <= CNRE_DOWN; role++)
		if (!is_packed(&raw->part[role], &prepared->part[role]))
			return 0;
	for (int role = CNRE_GATE_SCALE; role <= CNRE_DOWN_SCALE; role++)
		if (raw->part[role].bytes != prepared->part[role].bytes ||
		    memcmp(raw->part[role].data, prepared->part[role].data, raw->part[role].bytes) != 0)
			return 0;
	return 1;
}
