/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text; see format.h. */
#include "tools/ctl/format.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *format_bytes(uint64_t bytes, char text[FORMAT_BYTES])
{
	return cnre_size_format(bytes, text, FORMAT_BYTES);
}

const char *format_count(uint64_t count, char text[FORMAT_BYTES])
{
	char digits[FORMAT_BYTES];
	int length = snprintf(digits, sizeof digits, "%" PRIu64, count); /* 20 digits and 6 commas at most */
	char *to = text;

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return text;
}

const char *format_share(uint64_t part, uint64_t whole, char text[FORMAT_BYTES])
{
	if (whole == 0)
		return strcpy(text, "-");
	(void)snprintf(text, FORMAT_BYTES, "%.1f %%", 100.0 * (double)part / (double)whole);
	return text;
}

/* Two units, the larger first, for what is longer than two minutes. */
static void format_long(uint64_t seconds, char text[FORMAT_BYTES])
{
	static const struct {
		uint64_t seconds;
		const char *name;
	} units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
	unsigned i = 0;

	while (seconds < units[i].seconds)
		i++;
	(void)snprintf(text, FORMAT_BYTES, "%" PRIu64 " %s %" PRIu64 " %s", seconds / units[i].seconds, units[i].name,
		       seconds % units[i].seconds / units[i + 1].seconds, units[i + 1].name);
}

const char *format_seconds(double seconds, char text[FORMAT_BYTES])
{
	if (!(seconds >= 0.0 && seconds < 1e12)) /* also what is not a number */
		return strcpy(text, "?");
	if (seconds >= 120.0)
		format_long((uint64_t)seconds, text);
	else if (seconds >= 1.0)
		(void)snprintf(text, FORMAT_BYTES, "%.1f s", seconds);
	else if (seconds >= 1e-3)
		(void)snprintf(text, FORMAT_BYTES, "%.1f ms", seconds * 1e3);
	else if (seconds > 0.0)
		(void)snprintf(text, FORMAT_BYTES, "%.1f us", seconds * 1e6);
	else
		return strcpy(text, "0 s");
	return text;
}

const char *format_average(double seconds, uint64_t count, char text[FORMAT_BYTES])
{
	return count == 0 ? strcpy(text, "-") : format_seconds(seconds / (double)count, text);
}

const char *format_seconds_of(const json_t *object, const char *key, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? format_seconds(json_number_value(value), text) : strcpy(text, "-");
}

const char *format_share_of(const json_t *object, const char *key, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		return strcpy(text, "-");
	(void)snprintf(text, FORMAT_BYTES, "%.1f %%", json_number_value(value) * 100);
	return text;
}
