/* SPDX-License-Identifier: Apache-2.0 */
/* The list of families; see family.h. */
#include "tools/gen/family.h"

#include "base/check.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SPELLING_BYTES 64

static const struct gen_family *const families[] = {
	&gen_family_olmoe,  &gen_family_glm,    &gen_family_glm53,       &gen_family_kimi_k3,      &gen_family_inkling,
	&gen_family_qwen36, &gen_family_qwen38, &gen_family_deepseek_v4, &gen_family_deepseek_v41, &gen_family_mimo,
};

/* Without case and without - . and _, which people use as they like. */
static void normalise(const char *name, char text[SPELLING_BYTES])
{
	size_t used = 0;

	for (; *name != '\0' && used < SPELLING_BYTES - 1; name++)
		if (strchr("-._ ", *name) == NULL)
			text[used++] = (char)tolower((unsigned char)*name);
	text[used] = '\0';
}

const struct gen_family *gen_family_find(const char *name)
{
	const char *const *alias;
	char text[SPELLING_BYTES];
	size_t i;

	normalise(name, text);
	for (i = 0; i < CNRE_COUNT_OF(families); i++)
		for (alias = families[i]->aliases; *alias != NULL; alias++)
			if (strcmp(text, *alias) == 0)
				return families[i];
	return NULL;
}

const char *gen_family_list(char *text, uint32_t text_bytes)
{
	uint32_t used = 0;
	size_t i;

	text[0] = '\0';
	for (i = 0; i < CNRE_COUNT_OF(families) && used < text_bytes; i++)
		used += (uint32_t)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : " ",
					   families[i]->name);
	return text;
}

const struct gen_arrangement *gen_family_arrangement(const struct gen_family *family, enum gen_format format)
{
	uint32_t i;

	for (i = 0; i < family->arrangement_count; i++)
		if ((family->arrangements[i].formats & GEN_FORMAT_BIT(format)) != 0)
			return &family->arrangements[i];
	return NULL;
}

const char *gen_family_prefix(const struct gen_family *family, const char *prefix)
{
	const char *const *known;

	for (known = family->prefixes; *known != NULL; known++)
		if (strcmp(prefix, *known) == 0)
			return *known;
	return NULL;
}
