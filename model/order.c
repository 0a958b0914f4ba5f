/* SPDX-License-Identifier: Apache-2.0 */
/* Bottom-up merge sort; see order.h. */
#include "model/order.h"

#include <string.h>

struct sorting {
	size_t size;
	model_compare *compare;
	const void *context;
};

/* Merges [0, middle) and [middle, count) of from into to. */
static void merge(const struct sorting *sorting, const char *from, char *to, size_t middle, size_t count)
{
	size_t left = 0, right = middle, size = sorting->size;
	int take_left;

	if (middle >= count ||
	    sorting->compare(from + (middle - 1) * size, from + middle * size, sorting->context) <= 0) {
		memcpy(to, from, count * size);
		return;
	}
	while (left < middle || right < count) {
		take_left = right == count ||
			    (left < middle &&
			     sorting->compare(from + left * size, from + right * size, sorting->context) <= 0);
		memcpy(to, from + (take_left ? left++ : right++) * size, size);
		to += size;
	}
}

void model_sort(void *base, void *scratch, size_t count, size_t size, model_compare *compare, const void *context)
{
	const struct sorting sorting = {.size = size, .compare = compare, .context = context};
	char *from = base, *to = scratch, *swap;
	size_t width, start, left;

	for (width = 1; width < count; width *= 2) {
		for (start = 0; start < count; start += left) {
			left = count - start < 2 * width ? count - start : 2 * width;
			merge(&sorting, from + start * size, to + start * size, width, left);
		}
		swap = from;
		from = to;
		to = swap;
	}
	if (from != base)
		memcpy(base, from, count * size);
}
