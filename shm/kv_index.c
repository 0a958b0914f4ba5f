/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two chains of a namespace's index; the ordering map is in kv_index.h. What keeps a reader on its way: a new entry
 * goes to the head of a chain, and a removed one keeps its link, so everything else stays reachable from the head at any
 * moment. Only an entry that is used again under another name leads a reader astray, and then the sequence has changed.
 *
 * Crash note: is_indexed is stored first. A manager killed at work leaves the sequence odd and chains half changed;
 * cnre_kv_index_rebuild makes them anew from is_indexed, which finishes what was begun. Readers meanwhile miss at worst.
 */
#include "shm/kv_index.h"

#include <string.h>

static uint64_t tag_of(const unsigned char name[CNRE_KV_KEY_BYTES])
{
	uint64_t tag;

	memcpy(&tag, name, sizeof tag);
	return tag;
}

/* Names are digests: their bits are as good as those of a hash of them. */
static const struct cnre_kv_bucket *bucket_of(const struct cnre_kv_directory *directory, uint64_t tag)
{
	return &directory->bucket[tag & (directory->bucket_count - 1)];
}

static const _Atomic uint32_t *head_of(const struct cnre_kv_bucket *bucket, enum cnre_kv_chain_kind kind)
{
	return kind == CNRE_KV_BY_KEY ? &bucket->of_key : &bucket->of_parent;
}

static const _Atomic uint32_t *link_of(const struct cnre_kv_entry *entry, enum cnre_kv_chain_kind kind)
{
	return kind == CNRE_KV_BY_KEY ? &entry->next_of_key : &entry->next_of_parent;
}

static const _Atomic uint64_t *tag_in(const struct cnre_kv_entry *entry, enum cnre_kv_chain_kind kind)
{
	return kind == CNRE_KV_BY_KEY ? &entry->tag : &entry->parent_tag;
}

static const unsigned char *name_in(const struct cnre_kv_entry *entry, enum cnre_kv_chain_kind kind)
{
	return kind == CNRE_KV_BY_KEY ? entry->key : entry->parent;
}

/* ---- manager ---- */

static void store_link(const _Atomic uint32_t *link, uint32_t index)
{
	/* [K1] release, pairs with [K2]: the entry behind it, and the odd sequence that this change began with. */
	atomic_store_explicit((_Atomic uint32_t *)link, index, memory_order_release);
}

static void store_tag(const _Atomic uint64_t *tag, uint64_t value)
{
	/* [K5] release, pairs with [K6]: the odd sequence, as [K1]. */
	atomic_store_explicit((_Atomic uint64_t *)tag, value, memory_order_release);
}

static uint32_t own_link(const _Atomic uint32_t *link)
{
	/* [K7] relaxed: the writer reads what it wrote. */
	return atomic_load_explicit(link, memory_order_relaxed);
}

static int is_indexed(const struct cnre_kv_entry *entry)
{
	/* [K8] relaxed: as [K7]. */
	return atomic_load_explicit(&entry->is_indexed, memory_order_relaxed) != 0;
}

static void store_indexed(struct cnre_kv_entry *entry, uint32_t value)
{
	/* [K9] relaxed: for the writer's successor, and a hint for readers, who compare names anyhow. */
	atomic_store_explicit(&entry->is_indexed, value, memory_order_relaxed);
}

/* A writer that died at work left it odd: then it stays so. */
static void begin_change(struct cnre_kv_directory *directory)
{
	/* [K10] relaxed: as [K7]. */
	uint64_t sequence = atomic_load_explicit(&directory->sequence, memory_order_relaxed);

	/* [K11] relaxed: carried by every store of the change, [K1] and [K5]. */
	atomic_store_explicit(&directory->sequence, sequence | 1, memory_order_relaxed);
}

static void end_change(struct cnre_kv_directory *directory)
{
	/* [K12] relaxed: as [K7]. */
	uint64_t sequence = atomic_load_explicit(&directory->sequence, memory_order_relaxed);

	/* [K3] release, pairs with [K4]: who begins at the even number sees the whole change. */
	atomic_store_explicit(&directory->sequence, sequence + 1, memory_order_release);
}

void cnre_kv_index_init(struct cnre_kv_directory *directory)
{
	struct cnre_kv_entry *entry = cnre_kv_entries(directory);

	for (uint32_t i = 0; i < directory->bucket_count; i++) {
		store_link(&directory->bucket[i].of_key, CNRE_KV_NONE);
		store_link(&directory->bucket[i].of_parent, CNRE_KV_NONE);
	}
	for (uint32_t i = 0; i < directory->entry_count; i++) {
		store_link(&entry[i].next_of_key, CNRE_KV_NONE);
		store_link(&entry[i].next_of_parent, CNRE_KV_NONE);
		store_indexed(&entry[i], 0);
		/* [K13] relaxed: nobody has the segment yet. */
		atomic_store_explicit(&entry[i].load.state, CNRE_KV_STATE_FREE, memory_order_relaxed);
	}
}

/* Puts an entry in front; the caller has begun a change. */
static void put_in_front(struct cnre_kv_directory *directory, uint32_t index, enum cnre_kv_chain_kind kind)
{
	const struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];
	uint64_t tag = tag_of(name_in(entry, kind));
	const _Atomic uint32_t *head = head_of(bucket_of(directory, tag), kind);

	store_tag(tag_in(entry, kind), tag);
	store_link(link_of(entry, kind), own_link(head));
	store_link(head, index);
}

void cnre_kv_index_insert(struct cnre_kv_directory *directory, uint32_t index)
{
	struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];

	if (is_indexed(entry))
		return;
	begin_change(directory);
	store_indexed(entry, 1);
	put_in_front(directory, index, CNRE_KV_BY_KEY);
	put_in_front(directory, index, CNRE_KV_BY_PARENT);
	end_change(directory);
}

/* The link that leads to an entry, or NULL. No chain is longer than there are entries. */
static const _Atomic uint32_t *find_link(const struct cnre_kv_directory *directory, uint32_t index,
					 enum cnre_kv_chain_kind kind)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(directory);
	const _Atomic uint32_t *link = head_of(bucket_of(directory, tag_of(name_in(&entry[index], kind))), kind);

	for (uint32_t i = 0; i < directory->entry_count; i++) {
		uint32_t next = own_link(link);

		if (next == index)
			return link;
		if (next >= directory->entry_count)
			return NULL;
		link = link_of(&entry[next], kind);
	}
	return NULL;
}

/* It keeps its own link, for readers that stand on it. */
static void take_out(struct cnre_kv_directory *directory, uint32_t index, enum cnre_kv_chain_kind kind)
{
	const _Atomic uint32_t *link = find_link(directory, index, kind);

	if (link != NULL)
		store_link(link, own_link(link_of(&cnre_kv_entries(directory)[index], kind)));
}

void cnre_kv_index_remove(struct cnre_kv_directory *directory, uint32_t index)
{
	struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];

	if (!is_indexed(entry))
		return;
	begin_change(directory);
	store_indexed(entry, 0);
	take_out(directory, index, CNRE_KV_BY_KEY);
	take_out(directory, index, CNRE_KV_BY_PARENT);
	end_change(directory);
}

/* What is not indexed any more goes out of a chain; it keeps its own link, as above. */
static void clean_chain(struct cnre_kv_directory *directory, const _Atomic uint32_t *link, enum cnre_kv_chain_kind kind)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(directory);

	for (uint32_t i = 0; i < directory->entry_count; i++) {
		uint32_t next = own_link(link);

		if (next >= directory->entry_count)
			return;
		if (is_indexed(&entry[next]))
			link = link_of(&entry[next], kind);
		else
			store_link(link, own_link(link_of(&entry[next], kind)));
	}
}

uint32_t cnre_kv_index_remove_if(struct cnre_kv_directory *directory, int (*is_out)(void *context, uint32_t index),
				 void *context)
{
	struct cnre_kv_entry *entry = cnre_kv_entries(directory);
	uint32_t count = 0;

	begin_change(directory);
	for (uint32_t i = 0; i < directory->entry_count; i++)
		if (is_indexed(&entry[i]) && is_out(context, i)) {
			store_indexed(&entry[i], 0);
			count++;
		}
	for (uint32_t i = 0; i < directory->bucket_count && count > 0; i++) {
		clean_chain(directory, &directory->bucket[i].of_key, CNRE_KV_BY_KEY);
		clean_chain(directory, &directory->bucket[i].of_parent, CNRE_KV_BY_PARENT);
	}
	end_change(directory);
	return count;
}

uint32_t cnre_kv_index_rebuild(struct cnre_kv_directory *directory)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(directory);
	uint32_t count = 0;

	begin_change(directory);
	for (uint32_t i = 0; i < directory->bucket_count; i++) {
		store_link(&directory->bucket[i].of_key, CNRE_KV_NONE);
		store_link(&directory->bucket[i].of_parent, CNRE_KV_NONE);
	}
	for (uint32_t i = 0; i < directory->entry_count; i++) {
		if (!is_indexed(&entry[i]))
			continue;
		put_in_front(directory, i, CNRE_KV_BY_KEY);
		put_in_front(directory, i, CNRE_KV_BY_PARENT);
		count++;
	}
	end_change(directory);
	return count;
}

/* The first entry of that name from `next` on. */
static uint32_t find_name(const struct cnre_kv_directory *directory, const unsigned char *name,
			  enum cnre_kv_chain_kind kind, uint32_t next)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(directory);

	for (uint32_t i = 0; i < directory->entry_count && next < directory->entry_count; i++) {
		if (memcmp(name_in(&entry[next], kind), name, CNRE_KV_KEY_BYTES) == 0)
			return next;
		next = own_link(link_of(&entry[next], kind));
	}
	return CNRE_KV_NONE;
}

uint32_t cnre_kv_index_lookup(const struct cnre_kv_directory *directory, const unsigned char key[CNRE_KV_KEY_BYTES])
{
	const struct cnre_kv_bucket *bucket = bucket_of(directory, tag_of(key));

	return find_name(directory, key, CNRE_KV_BY_KEY, own_link(&bucket->of_key));
}

uint32_t cnre_kv_index_child(const struct cnre_kv_directory *directory, const unsigned char parent[CNRE_KV_KEY_BYTES],
			     uint32_t after)
{
	const _Atomic uint32_t *link = &bucket_of(directory, tag_of(parent))->of_parent;

	if (after != CNRE_KV_NONE)
		link = &cnre_kv_entries(directory)[after].next_of_parent;
	return find_name(directory, parent, CNRE_KV_BY_PARENT, own_link(link));
}

/* ---- client ---- */

static uint32_t load_link(const _Atomic uint32_t *link)
{
	/* [K2] acquire, pairs with [K1]: the entry's tag and link; and a changed link shows at the end that it was changed. */
	return atomic_load_explicit(link, memory_order_acquire);
}

static void begin_try(struct cnre_kv_walk *walk)
{
	/* [K4] acquire, pairs with [K3]: every change up to this number. */
	walk->sequence = atomic_load_explicit(&walk->directory->sequence, memory_order_acquire);
	walk->next = load_link(head_of(bucket_of(walk->directory, walk->tag), walk->kind));
	walk->steps = 0;
	walk->tries++;
}

/* Odd: a change was going on all the time, and nobody knows how far it came. */
static int was_disturbed(const struct cnre_kv_walk *walk)
{
	/* [K14] relaxed: ordered by [K2] and [K6]: who read a word of a change reads its odd number, or a later one, here. */
	uint64_t sequence = atomic_load_explicit(&walk->directory->sequence, memory_order_relaxed);

	return sequence != walk->sequence || (sequence & 1) != 0;
}

void cnre_kv_walk_begin(struct cnre_kv_walk *walk, const struct cnre_kv_directory *directory,
			enum cnre_kv_chain_kind kind, const unsigned char name[CNRE_KV_KEY_BYTES])
{
	*walk = (struct cnre_kv_walk){.directory = directory, .kind = kind, .tag = tag_of(name)};
	begin_try(walk);
}

uint32_t cnre_kv_walk_next(struct cnre_kv_walk *walk)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(walk->directory);

	for (;;) {
		uint32_t index = walk->next;
		uint64_t tag;

		if (index >= walk->directory->entry_count || walk->steps == CNRE_KV_WALK_MAX) {
			if (walk->tries == CNRE_KV_WALK_TRIES || !was_disturbed(walk))
				return CNRE_KV_NONE;
			begin_try(walk);
			continue;
		}
		walk->steps++;
		/* [K6] acquire, pairs with [K5]: an entry of another name by now belongs to a change that shows at the end. */
		tag = atomic_load_explicit(tag_in(&entry[index], walk->kind), memory_order_acquire);
		walk->next = load_link(link_of(&entry[index], walk->kind));
		if (tag == walk->tag)
			return index;
	}
}
