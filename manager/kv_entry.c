/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block's entry: filled while nobody can find it, changed only by the rules of shm/kv.h. Every way out of READY or
 * ABSENT leads through EVICTING and a look at all ledgers, so what a client has leased and seen stays as it was.
 *
 * Ordering map (with shm/ledger.h):
 *   [X1] release store of a state (manager) -> [L2] seq_cst load (client)      the entry's fields, the payload
 *   [L3], [L4] EVICTING and the scan                                           no lease is overlooked
 */
#include "manager/kv_inner.h"

#include "base/check.h"
#include "base/crash.h"
#include "base/probe.h"
#include "base/size.h"
#include "shm/futex.h"
#include "shm/ledger.h"

#include <errno.h>
#include <string.h>

_Static_assert(KV_KEY_BYTES == CNRE_KV_KEY_BYTES && KV_BLOCK_TOKENS_MAX == CNRE_KV_TOKENS_MAX, "one block, two tellers");
_Static_assert((int)KV_BLOCK_POINT == (int)CNRE_KV_ENTRY_POINT &&
		       (int)KV_BLOCK_CHECKPOINTS == (int)CNRE_KV_ENTRY_CHECKPOINTS,
	       "as above");

static uint32_t word_of(const struct cnre_kv_entry *entry)
{
	/* [X2] relaxed: only this thread writes it. */
	return atomic_load_explicit(&entry->load.state, memory_order_relaxed);
}

enum cnre_state kv_state(const struct cnre_kv_entry *entry)
{
	return cnre_word_state(word_of(entry));
}

int kv_is_indexed(const struct cnre_kv_entry *entry)
{
	/* [X3] relaxed: only this thread writes it. */
	return atomic_load_explicit(&entry->is_indexed, memory_order_relaxed) != 0;
}

int kv_is_on_disk(const struct cnre_kv_entry *entry)
{
	/* [X4] relaxed: as [X3]. */
	return atomic_load_explicit(&entry->on_disk, memory_order_relaxed) != 0;
}

void kv_set_on_disk(struct kv_namespace *space, uint32_t index, int is_on_disk)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	uint64_t bytes = KV_BLOCK_HEADER_BYTES + entry->bytes;

	if (kv_is_on_disk(entry) == is_on_disk)
		return;
	/* [X5] relaxed: clients and a successor only look; states have their own order. */
	atomic_store_explicit(&entry->on_disk, (uint32_t)is_on_disk, memory_order_relaxed);
	space->disk_blocks += is_on_disk ? 1 : UINT32_MAX;
	space->disk_bytes += is_on_disk ? bytes : -bytes;
}

uint64_t kv_place(const struct cnre_kv_entry *entry)
{
	/* [X6] relaxed: as [X3]. */
	return atomic_load_explicit(&entry->load.place, memory_order_relaxed);
}

static void set_place(struct cnre_kv_entry *entry, uint64_t place)
{
	/* [X7] relaxed: carried by the state that follows ([X1]). */
	atomic_store_explicit(&entry->load.place, place, memory_order_relaxed);
}

uint64_t kv_room(uint64_t bytes)
{
	return cnre_size_align_up(bytes, EXTENT_GRAIN);
}

void *kv_address(const struct kv_namespace *space, uint64_t place)
{
	return (char *)space->segment[cnre_place_segment(place)].memory.base + cnre_place_offset(place);
}

int kv_is_leased(const struct kv_namespace *space, uint32_t index)
{
	for (const struct kv_session *client = space->sessions; client != NULL; client = client->next)
		if (CNRE_LEDGER_LEASES(cnre_ledger_scan(&client->ledger[index])) > 0)
			return 1;
	return 0;
}

uint32_t kv_entry_take(struct kv_namespace *space)
{
	return space->unused_count == 0 ? CNRE_KV_NONE : space->unused[--space->unused_count];
}

void kv_entry_give(struct kv_namespace *space, uint32_t index)
{
	CNRE_CHECK(space->unused_count < space->entry_count);
	space->note[index] = (struct kv_note){0};
	space->unused[space->unused_count++] = index;
}

void kv_entry_fill(struct kv_namespace *space, uint32_t index, const struct kv_block *block)
{
	struct cnre_kv_entry *entry = &space->entry[index];

	CNRE_CHECK(kv_state(entry) == (enum cnre_state)CNRE_KV_STATE_FREE);
	/* [X8] relaxed: only this thread writes it. */
	entry->id = atomic_fetch_add_explicit(&space->directory->next_id, 1, memory_order_relaxed) + 1;
	memcpy(entry->root, block->root, sizeof entry->root);
	memcpy(entry->parent, block->parent, sizeof entry->parent);
	memcpy(entry->key, block->key, sizeof entry->key);
	memcpy(entry->media, block->mark.digest, sizeof entry->media);
	memcpy(entry->check, block->check, sizeof entry->check);
	entry->position = block->position;
	entry->bytes = block->bytes;
	entry->compute_ns = block->compute_ns;
	entry->token_count = block->token_count;
	entry->block_tokens = block->block_tokens;
	entry->media_first = block->mark.first;
	entry->flags = block->flags;
	memcpy(entry->token, block->token, block->token_count * sizeof entry->token[0]);
	memset(&entry->token[block->token_count], 0,
	       (CNRE_KV_TOKENS_MAX - block->token_count) * sizeof entry->token[0]);
	set_place(entry, KV_NO_PLACE);
	/* [X12] relaxed: as [X5]. A manager that died between a found file and its entry left it. */
	atomic_store_explicit(&entry->on_disk, 0, memory_order_relaxed);
}

void kv_entry_tell(const struct cnre_kv_entry *entry, struct kv_block *ret_block)
{
	memcpy(ret_block->root, entry->root, sizeof entry->root);
	memcpy(ret_block->parent, entry->parent, sizeof entry->parent);
	memcpy(ret_block->key, entry->key, sizeof entry->key);
	memcpy(ret_block->mark.digest, entry->media, sizeof entry->media);
	memcpy(ret_block->check, entry->check, sizeof entry->check);
	ret_block->position = entry->position;
	ret_block->bytes = entry->bytes;
	ret_block->compute_ns = entry->compute_ns;
	ret_block->token_count = entry->token_count;
	ret_block->block_tokens = entry->block_tokens;
	ret_block->mark.first = entry->media_first;
	ret_block->flags = entry->flags;
	memcpy(ret_block->token, entry->token, sizeof entry->token);
}

void kv_entry_set(struct kv_namespace *space, uint32_t index, enum cnre_state state, enum cnre_load_error error, int moves)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	uint32_t generation = cnre_word_generation(word_of(entry)) + (moves ? 1 : 0);

	/* [X1] release, pairs with [L2]: whatever this state promises is there. */
	atomic_store_explicit(&entry->load.state, cnre_word_pack(generation, error, state), memory_order_release);
	(void)cnre_futex_wake_all(&entry->load.state);
}

void kv_entry_ready(struct kv_namespace *space, uint32_t index, uint64_t place)
{
	set_place(&space->entry[index], place);
	space->resident_blocks++;
	space->resident_bytes += kv_room(space->entry[index].bytes);
	kv_entry_set(space, index, CNRE_STATE_READY, CNRE_LOAD_OK, 0);
}

void kv_entry_loading(struct kv_namespace *space, uint32_t index, uint64_t place)
{
	struct cnre_kv_entry *entry = &space->entry[index];

	set_place(entry, place);
	/* [X9] relaxed: whose read may land there, for a successor ([X1] carries it). */
	atomic_store_explicit(&entry->load.starter, space->store->manager->state->epoch, memory_order_relaxed);
	kv_entry_set(space, index, CNRE_STATE_LOADING, CNRE_LOAD_OK, 0);
}

uint32_t kv_loader_epoch(const struct cnre_kv_entry *entry)
{
	/* [X11] relaxed: as [X9]. */
	return atomic_load_explicit(&entry->load.starter, memory_order_relaxed);
}

void kv_entry_absent(struct kv_namespace *space, uint32_t index)
{
	set_place(&space->entry[index], KV_NO_PLACE);
	kv_entry_set(space, index, CNRE_STATE_ABSENT, CNRE_LOAD_EIO, 1);
}

static void give_memory(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];

	space->resident_blocks--;
	space->resident_bytes -= kv_room(entry->bytes);
	kv_memory_give(space, kv_place(entry));
	set_place(entry, KV_NO_PLACE);
}

/* EVICTING, and then a look at every ledger; -EBUSY: it is what it was. */
static int close_to_clients(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	uint32_t before = word_of(entry);

	if (cnre_word_state(before) == CNRE_STATE_ABSENT)
		set_place(entry, KV_NO_PLACE); /* of a read that failed; a successor believes a place of what is EVICTING */
	cnre_ledger_store_evicting(&entry->load,
				   cnre_word_pack(cnre_word_generation(before), CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (!kv_is_leased(space, index))
		return 0;
	/* [X10] release, pairs with [L2]: as [X1]. */
	atomic_store_explicit(&entry->load.state, before, memory_order_release);
	(void)cnre_futex_wake_all(&entry->load.state);
	return -EBUSY;
}

static void set_free(struct kv_namespace *space, uint32_t index)
{
	cnre_kv_index_remove(space->directory, index);
	kv_entry_set(space, index, (enum cnre_state)CNRE_KV_STATE_FREE, CNRE_LOAD_OK, 1);
	kv_entry_give(space, index);
}

/*
 * Crash note: killed at EVICTING with its place, a successor makes it READY again (adopt_resident); without, ABSENT, or free where
 * there is no file (adopt_entry).
 */
int kv_entry_evict(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	int r;

	CNRE_CHECK(kv_state(entry) == CNRE_STATE_READY && kv_is_indexed(entry));
	if (space->note[index].doing != 0)
		return -EBUSY;
	r = close_to_clients(space, index);
	if (r < 0)
		return r;
	CNRE_CRASH_POINT("kv-evict-closed");
	give_memory(space, index);
	CNRE_CRASH_POINT("kv-evict-given");
	space->tally.evictions++;
	cnre_counter_add(&space->store->manager->counters->kv_evictions, 1);
	CNRE_PROBE(kv_evict, space->number, index, entry->bytes);
	if (kv_is_on_disk(entry))
		kv_entry_set(space, index, CNRE_STATE_ABSENT, CNRE_LOAD_OK, 1);
	else
		set_free(space, index);
	return 0;
}

void kv_entry_forget(struct kv_namespace *space, uint32_t index)
{
	if (!kv_is_indexed(&space->entry[index]))
		return;
	cnre_kv_index_remove(space->directory, index);
	kv_entry_doom(space, index);
}

/* Or is about to have one. */
static int has_file(const struct kv_namespace *space, uint32_t index)
{
	return kv_is_on_disk(&space->entry[index]) || (space->note[index].doing & KV_DOING_SAVE) != 0;
}

static void list_doomed(struct kv_namespace *space, uint32_t index)
{
	CNRE_CHECK(space->doomed_count < space->entry_count);
	space->doomed[space->doomed_count++] = index;
	space->doomed_files += has_file(space, index);
}

/*
 * Nobody reads its file any more: who waits for that hears so, and computes. After it left the index: who finds it still has
 * seen the generation before.
 */
static void tell_waiters(struct kv_namespace *space, uint32_t index)
{
	if (kv_state(&space->entry[index]) == CNRE_STATE_ABSENT)
		kv_entry_set(space, index, CNRE_STATE_ABSENT, CNRE_LOAD_EIO, 1);
}

void kv_entry_doom(struct kv_namespace *space, uint32_t index)
{
	list_doomed(space, index);
	tell_waiters(space, index);
}

struct choice {
	struct kv_namespace *space;
	const unsigned char *root;
};

static int choose(void *context, uint32_t index)
{
	const struct choice *choice = context;
	struct kv_namespace *space = choice->space;

	if (memcmp(space->entry[index].root, choice->root, KV_KEY_BYTES) != 0)
		return 0;
	list_doomed(space, index);
	return 1;
}

uint32_t kv_entry_forget_root(struct kv_namespace *space, const unsigned char root[KV_KEY_BYTES])
{
	struct choice choice = {.space = space, .root = root};
	uint32_t first = space->doomed_count, count = cnre_kv_index_remove_if(space->directory, choose, &choice);

	for (uint32_t i = first; i < space->doomed_count; i++)
		tell_waiters(space, space->doomed[i]);
	return count;
}

int kv_entry_is_going(const struct kv_namespace *space, const unsigned char key[KV_KEY_BYTES])
{
	for (uint32_t i = 0; space->doomed_files > 0 && i < space->doomed_count; i++) {
		uint32_t index = space->doomed[i];

		if (memcmp(space->entry[index].key, key, KV_KEY_BYTES) == 0 && has_file(space, index))
			return 1;
	}
	return 0;
}

/* 1: it is FREE now. Its file goes first: what is FREE is nobody's to remove. */
static int release(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	enum cnre_state state = kv_state(entry);

	if (space->note[index].doing != 0 || state == CNRE_STATE_LOADING)
		return 0;
	if (kv_is_on_disk(entry)) {
		kv_files_remove(space, index);
		return 0;
	}
	if (kv_is_leased(space, index) || close_to_clients(space, index) < 0)
		return 0; /* no EVICTING for what is surely held: its reader may have no time to wait */
	if (state == CNRE_STATE_READY)
		give_memory(space, index);
	set_free(space, index);
	return 1;
}

void kv_entry_sweep(struct kv_namespace *space)
{
	uint32_t files = 0;

	for (uint32_t i = 0; i < space->doomed_count;) {
		if (release(space, space->doomed[i])) {
			space->doomed[i] = space->doomed[--space->doomed_count];
			continue;
		}
		files += has_file(space, space->doomed[i]) != 0;
		i++;
	}
	space->doomed_files = files;
}
