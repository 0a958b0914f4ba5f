/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversations of a server, by the ids its callers give them. Rows are large, tokens small: of the conversations that
 * are known, only those used last keep rows. A known one without rows goes on all the same; only its first token takes
 * longer, unless a store of prefixes has them.
 */
#ifndef ENGINE_CONVERSATIONS_H
#define ENGINE_CONVERSATIONS_H

#include "engine/conversation.h"
#include "engine/request.h"

#define CONVERSATIONS_KNOWN_MAX 1024u     /* beyond: the one not used for longest is forgotten */

struct known_conversation;

struct conversations {
	const struct kv_store *store;     /* NULL: none */
	uint32_t rows_max, positions;     /* conversations with rows; tokens of each */
	struct known_conversation *known[CONVERSATIONS_KNOWN_MAX];
	uint32_t count;
	uint64_t use_count;
};

void conversations_done(struct conversations *table);

/* NULL: not known. */
struct conversation *conversations_find(struct conversations *table, const char *id);

/* An empty one by this id; an earlier one of the id is ended. Returns 0 or -ENOMEM. */
int conversations_begin(struct conversations *table, const char *id, struct conversation **ret_conversation);

/* Makes it the one used last, and drops rows of others so that it may have some. */
void conversations_use(struct conversations *table, struct conversation *conversation);

/* Returns 0, or -ENOENT. */
int conversations_end(struct conversations *table, const char *id);

#endif
