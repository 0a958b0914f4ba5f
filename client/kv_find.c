/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a name to an entry. The index only proposes: an entry counts when, under a lease, its state says that it names
 * something and everything that it says of itself is what was asked for. A lease on the wrong entry is back at once; all
 * that it can do is keep that entry for a moment.
 */
#include "client/kv.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <string.h>

int cnre_kv_name_fill(struct cnre_kv_name *name, const struct kv_media *media, size_t media_count)
{
	int r = kv_key_media(media, media_count, name->position, name->count, &name->mark);

	return r < 0 ? r : kv_key_block(name->parent, name->tokens, name->count, &name->mark, name->key);
}

int cnre_kv_lease(struct cnre_kv_space *space, uint32_t index, uint32_t *ret_word)
{
	uint32_t word;

	(void)cnre_ledger_add(&space->ledger[index]);
	word = cnre_ledger_load_state(&space->entry[index].load);
	switch (cnre_word_state(word)) {
	case CNRE_STATE_ABSENT:
	case CNRE_STATE_LOADING:
	case CNRE_STATE_READY:
		*ret_word = word;
		return 1;
	default: /* FREE, or EVICTING: let go */
		cnre_kv_drop(space, index);
		return 0;
	}
}

void cnre_kv_drop(struct cnre_kv_space *space, uint32_t index)
{
	(void)cnre_ledger_sub(&space->ledger[index]); /* it is up: raised by this process, which counts */
}

static int is_same(const unsigned char *a, const unsigned char *b)
{
	return memcmp(a, b, CNRE_KV_KEY_BYTES) == 0;
}

int cnre_kv_is_sane(const struct cnre_kv_entry *entry, uint32_t block_tokens)
{
	/* [KV10] relaxed: one that leaves the index meanwhile is as good as one that left afterwards. */
	return atomic_load_explicit(&entry->is_indexed, memory_order_relaxed) != 0 &&
	       entry->block_tokens == block_tokens && entry->token_count > 0 && entry->token_count <= block_tokens &&
	       entry->media_first <= entry->token_count && entry->bytes > 0 && entry->bytes <= CNRE_SEGMENT_BYTES_MAX;
}

static int is_called(const struct cnre_kv_entry *entry, const struct cnre_kv_name *name)
{
	return is_same(entry->key, name->key) && is_same(entry->root, name->root) &&
	       is_same(entry->parent, name->parent) && is_same(entry->media, name->mark.digest) &&
	       entry->position == name->position && entry->token_count == name->count &&
	       entry->media_first == name->mark.first && cnre_kv_is_sane(entry, name->block_tokens) &&
	       memcmp(entry->token, name->tokens, name->count * sizeof *name->tokens) == 0;
}

uint32_t cnre_kv_find(struct cnre_kv_space *space, const struct cnre_kv_name *name, uint32_t *ret_word)
{
	struct cnre_kv_walk walk;
	uint32_t index, word;

	cnre_kv_walk_begin(&walk, space->directory, CNRE_KV_BY_KEY, name->key);
	while ((index = cnre_kv_walk_next(&walk)) != CNRE_KV_NONE) {
		if (!cnre_kv_lease(space, index, &word))
			continue;
		if (is_called(&space->entry[index], name)) {
			*ret_word = word;
			return index;
		}
		cnre_kv_drop(space, index);
	}
	return CNRE_KV_NONE;
}

int cnre_kv_is_there(struct cnre_kv_space *space, const unsigned char *root, const unsigned char *key)
{
	struct cnre_kv_walk walk;
	uint32_t index, word;
	int found = 0;

	cnre_kv_walk_begin(&walk, space->directory, CNRE_KV_BY_KEY, key);
	while (!found && (index = cnre_kv_walk_next(&walk)) != CNRE_KV_NONE) {
		const struct cnre_kv_entry *entry = &space->entry[index];

		if (!cnre_kv_lease(space, index, &word))
			continue;
		found = is_same(entry->key, key) && is_same(entry->root, root) &&
			cnre_kv_is_sane(entry, entry->block_tokens);
		cnre_kv_drop(space, index);
	}
	return found;
}
