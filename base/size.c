/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of byte sizes; see size.h. */
#include "base/size.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int suffix_shift(const char *suffix, unsigned *ret_shift)
{
	static const char letters[] = "kmgt";
	const char *found;

	if (suffix[0] == '\0' || strcasecmp(suffix, "b") == 0) {
		*ret_shift = 0;
		return 0;
	}
	found = strchr(letters, suffix[0] | 0x20);
	if (found == NULL || *found == '\0')
		return -EINVAL;
	if (suffix[1] != '\0' && strcasecmp(suffix + 1, "b") != 0 && strcasecmp(suffix + 1, "ib") != 0)
		return -EINVAL;
	*ret_shift = 10 * (unsigned)(found - letters + 1);
	return 0;
}

int cnre_size_parse(const char *text, uint64_t *ret_bytes)
{
	uint64_t value = 0;
	unsigned shift;
	const char *at = text;

	if (*at < '0' || *at > '9')
		return -EINVAL;
	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -EINVAL;
	if (suffix_shift(at, &shift) < 0)
		return -EINVAL;
	if (value > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_bytes = value << shift;
	return 0;
}

const char *cnre_size_format(uint64_t bytes, char *text, size_t text_bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned unit = 0;
	double value = (double)bytes;

	while (value >= 1024.0 && unit < 6) {
		value /= 1024.0;
		unit++;
	}
	(void)snprintf(text, text_bytes, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
	return text;
}
