/* SPDX-License-Identifier: Apache-2.0 */
/* The list of families, and matching of tensor names against patterns; see family.h. */
#include "model/family.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 6

static const struct family *const families[] = {
	&family_olmoe,
};

const struct family *family_find(const char *model_type)
{
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(families); i++)
		if (strcmp(families[i]->model_type, model_type) == 0)
			return families[i];
	return NULL;
}

const char *family_list(char *text, size_t text_bytes)
{
	size_t i, used = 0;

	text[0] = '\0';
	for (i = 0; i < CNRE_COUNT_OF(families) && used < text_bytes; i++)
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ",
					 families[i]->model_type);
	return text;
}

/* Takes a decimal number off the front of *name. */
static int take_number(const char **name, uint32_t *ret_value)
{
	const char *at = *name;
	uint32_t value = 0;

	for (; *at >= '0' && *at <= '9' && at - *name < DIGITS_MAX; at++)
		value = value * 10 + (uint32_t)(*at - '0');
	if (at == *name || (**name == '0' && at - *name > 1))
		return -1;
	*name = at;
	*ret_value = value;
	return 0;
}

static int matches(const char *pattern, const char *name, uint32_t *layer, uint32_t *expert)
{
	*expert = UINT32_MAX;
	for (; *pattern != '\0'; pattern++) {
		if (*pattern != '%') {
			if (*name++ != *pattern)
				return 0; /* also when name has ended */
			continue;
		}
		pattern++;
		if (take_number(&name, *pattern == 'L' ? layer : expert) < 0)
			return 0;
	}
	return *name == '\0';
}

int family_match(const struct family *family, const char *name, uint32_t *ret_layer, uint32_t *ret_expert)
{
	uint32_t i, layer = 0, expert;

	for (i = 0; i < family->name_count; i++) {
		if (!matches(family->names[i], name, &layer, &expert))
			continue;
		*ret_layer = layer;
		*ret_expert = expert;
		return (int)i;
	}
	return -1;
}

const char *family_make_name(const struct family *family, uint32_t pattern, uint32_t layer, uint32_t expert, char *text,
			     size_t text_bytes)
{
	const char *at;
	size_t used = 0;

	CNRE_CHECK(pattern < family->name_count && text_bytes > 0);
	text[0] = '\0';
	for (at = family->names[pattern]; *at != '\0' && used < text_bytes; at++) {
		if (*at == '%')
			used += (size_t)snprintf(text + used, text_bytes - used, "%u", *++at == 'L' ? layer : expert);
		else
			used += (size_t)snprintf(text + used, text_bytes - used, "%c", *at);
	}
	return text;
}
