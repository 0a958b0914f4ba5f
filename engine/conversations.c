/* SPDX-License-Identifier: Apache-2.0 */
/* See conversations.h. A thousand ids are compared in less time than one token takes: a plain array does. */
#include "engine/conversations.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known_conversation {
	struct conversation conversation; /* first: conversations_use comes back from it */
	char id[REQUEST_ID_BYTES];
	uint64_t last_use; /* use_count at that time */
};

static uint32_t find(const struct conversations *table, const char *id)
{
	uint32_t i = 0;

	while (i < table->count && strcmp(table->known[i]->id, id) != 0)
		i++;
	return i;
}

static void forget(struct conversations *table, uint32_t index)
{
	conversation_done(&table->known[index]->conversation);
	free(table->known[index]);
	table->known[index] = table->known[--table->count];
}

/* Of all, or of those with rows: the one not used for longest. There is one. */
static uint32_t find_oldest(const struct conversations *table, bool with_rows)
{
	uint32_t oldest = table->count;

	for (uint32_t i = 0; i < table->count; i++) {
		const struct known_conversation *known = table->known[i];

		if ((!with_rows || known->conversation.cache.positions > 0) &&
		    (oldest == table->count || known->last_use < table->known[oldest]->last_use))
			oldest = i;
	}
	return oldest;
}

void conversations_done(struct conversations *table)
{
	while (table->count > 0)
		forget(table, table->count - 1);
}

struct conversation *conversations_find(struct conversations *table, const char *id)
{
	uint32_t index = find(table, id);

	return index < table->count ? &table->known[index]->conversation : NULL;
}

int conversations_begin(struct conversations *table, const char *id, struct conversation **ret_conversation)
{
	struct known_conversation *known = calloc(1, sizeof *known);

	if (!known || conversation_init(&known->conversation, table->store, table->positions) < 0) {
		free(known);
		return -ENOMEM;
	}
	(void)conversations_end(table, id); /* mostly there is none */
	if (table->count == CONVERSATIONS_KNOWN_MAX)
		forget(table, find_oldest(table, false));
	(void)snprintf(known->id, sizeof known->id, "%s", id);
	table->known[table->count++] = known;
	*ret_conversation = &known->conversation;
	return 0;
}

static uint32_t count_rows(const struct conversations *table)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < table->count; i++)
		count += table->known[i]->conversation.cache.positions > 0;
	return count;
}

void conversations_use(struct conversations *table, struct conversation *conversation)
{
	((struct known_conversation *)conversation)->last_use = ++table->use_count;
	if (conversation->cache.positions > 0)
		return;
	while (count_rows(table) >= table->rows_max)
		conversation_drop_rows(&table->known[find_oldest(table, true)]->conversation);
}

int conversations_end(struct conversations *table, const char *id)
{
	uint32_t index = find(table, id);

	if (index == table->count)
		return -ENOENT;
	forget(table, index);
	return 0;
}
