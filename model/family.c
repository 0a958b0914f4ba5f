/* SPDX-License-Identifier: Apache-2.0 */
/* The list of families, and matching of tensor names against patterns; see family.h. */
#include "model/family.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 6

const struct family *const family_table[] = {
	&family_glm,    &family_glm53,       &family_kimi_k3,      &family_inkling, &family_olmoe, &family_qwen36,
	&family_qwen38, &family_deepseek_v4, &family_deepseek_v41, &family_mimo,    NULL,
};

int family_has_type(const struct family *family, const char *model_type)
{
	for (size_t i = 0; family->model_types[i] != NULL; i++)
		if (strcmp(family->model_types[i], model_type) == 0)
			return 1;
	return 0;
}

const struct family *family_find(const char *model_type)
{
	for (size_t i = 0; family_table[i] != NULL; i++)
		if (family_has_type(family_table[i], model_type))
			return family_table[i];
	return NULL;
}

const struct family *family_by_name(const char *name)
{
	for (size_t i = 0; family_table[i] != NULL; i++)
		if (strcmp(family_table[i]->name, name) == 0)
			return family_table[i];
	return NULL;
}

const char *family_list(char *text, size_t text_bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; family_table[i] != NULL; i++)
		for (size_t k = 0; family_table[i]->model_types[k] != NULL && used < text_bytes; k++)
			used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used == 0 ? "" : ", ",
						 family_table[i]->model_types[k]);
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

/* Takes what the pattern says off the front of *name. 1 taken. */
static int take_pattern(const char *pattern, const char **name, struct family_place *place)
{
	for (; *pattern != '\0'; pattern++) {
		if (*pattern != '%') {
			if (*(*name)++ != *pattern)
				return 0; /* also when name has ended */
			continue;
		}
		pattern++;
		place->is_mtp |= *pattern == 'M';
		if (take_number(name, *pattern == 'E' ? &place->expert : &place->number) < 0)
			return 0;
	}
	return 1;
}

static int match_names(const struct family *family, const char *rest, struct family_place *place)
{
	for (place->name = 0; place->name < family->name_count; place->name++) {
		const char *at = rest;

		place->expert = UINT32_MAX;
		if (take_pattern(family->names[place->name], &at, place) && *at == '\0')
			return 1;
	}
	return 0;
}

int family_match(const struct family *family, const char *name, struct family_place *ret_place)
{
	for (uint32_t i = 0; family->stems[i] != NULL; i++) {
		struct family_place place = {.stem = i};
		const char *rest = name;

		if (!take_pattern(family->stems[i], &rest, &place) || !match_names(family, rest, &place))
			continue;
		*ret_place = place;
		return 1;
	}
	return 0;
}

int family_match_router(const struct family *family, const char *name, struct family_place *ret_place)
{
	for (uint32_t i = 0; family->routers != NULL && family->routers[i] != NULL; i++) {
		struct family_place place = {.stem = i};
		const char *rest = name;

		if (!take_pattern(family->routers[i], &rest, &place) || *rest != '\0')
			continue;
		*ret_place = place;
		return 1;
	}
	return 0;
}

static size_t add_pattern(const char *pattern, const struct family_place *place, char *text, size_t text_bytes,
			  size_t used)
{
	for (; *pattern != '\0' && used < text_bytes; pattern++) {
		if (*pattern == '%')
			used += (size_t)snprintf(text + used, text_bytes - used, "%u",
						 *++pattern == 'E' ? place->expert : place->number);
		else
			used += (size_t)snprintf(text + used, text_bytes - used, "%c", *pattern);
	}
	return used;
}

const char *family_make_name(const struct family *family, const struct family_place *place, char *text,
			     size_t text_bytes)
{
	size_t used;

	CNRE_CHECK(place->name < family->name_count && text_bytes > 0);
	text[0] = '\0';
	used = add_pattern(family->stems[place->stem], place, text, text_bytes, 0);
	(void)add_pattern(family->names[place->name], place, text, text_bytes, used);
	return text;
}
