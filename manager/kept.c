/* SPDX-License-Identifier: Apache-2.0 */
/* A table of names without order, searched from its start: it is asked a few times a session. See kept.h. */
#include "manager/kept.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	char name[KEEP_NAME_BYTES];
	unsigned char state; /* enum kept_state, never KEPT_NOT */
};

struct kept {
	uint32_t count; /* used part of entry[], dense */
	uint32_t there, missing, name_bytes;
	struct entry entry[KEPT_NAMES_MAX];
};

int kept_open(struct kept **ret_kept)
{
	struct kept *kept = calloc(1, sizeof *kept);

	if (kept == NULL)
		return -ENOMEM;
	*ret_kept = kept;
	return 0;
}

struct kept *kept_close(struct kept *kept)
{
	free(kept);
	return NULL;
}

static struct entry *find(const struct kept *kept, const char *name)
{
	for (uint32_t i = 0; i < kept->count; i++)
		if (strcmp(kept->entry[i].name, name) == 0)
			return (struct entry *)&kept->entry[i];
	return NULL;
}

enum kept_state kept_state(const struct kept *kept, const char *name)
{
	const struct entry *entry = find(kept, name);

	return entry != NULL ? (enum kept_state)entry->state : KEPT_NOT;
}

/* Adds an entry to the sums, or takes it out of them. */
static void count(struct kept *kept, const struct entry *entry, int sign)
{
	int is_there = entry->state == KEPT_THERE || entry->state == KEPT_STALE;

	kept->there += (uint32_t)(sign * is_there);
	kept->name_bytes += (uint32_t)(sign * is_there * (int)(strlen(entry->name) + 1));
	kept->missing += (uint32_t)(sign * (entry->state == KEPT_MISSING));
}

int kept_set(struct kept *kept, const char *name, enum kept_state state)
{
	struct entry *entry = find(kept, name);

	if (name[0] == '\0' || (entry == NULL && state == KEPT_NOT))
		return 0;
	if (entry == NULL) {
		if (kept->count == KEPT_NAMES_MAX)
			return -ENOSPC;
		entry = &kept->entry[kept->count++];
		(void)snprintf(entry->name, sizeof entry->name, "%s", name);
	} else {
		count(kept, entry, -1);
	}
	entry->state = (unsigned char)state;
	if (state != KEPT_NOT)
		count(kept, entry, 1);
	else
		*entry = kept->entry[--kept->count];
	return 0;
}

void kept_clear(struct kept *kept)
{
	kept->count = kept->there = kept->missing = kept->name_bytes = 0;
}

uint32_t kept_there(const struct kept *kept)
{
	return kept->there;
}

uint32_t kept_missing(const struct kept *kept)
{
	return kept->missing;
}

uint32_t kept_name_bytes(const struct kept *kept)
{
	return kept->name_bytes;
}

const char *kept_find(const struct kept *kept, enum kept_state state)
{
	for (uint32_t i = 0; i < kept->count; i++)
		if (kept->entry[i].state == state)
			return kept->entry[i].name;
	return NULL;
}
