/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a client's staging segment into the pool. A worker copies and checks the copy (R25), so that what is stored is what
 * is checked, whatever the client does meanwhile; then, on the core thread, the entry is filled, becomes READY, and only
 * then can be found. So nothing half-written is ever findable.
 *
 * One block at a time for each client, in the order of its tickets: a child is not looked at before its parent is there.
 *
 * Crash notes: killed before READY, the entry is FREE and the slot still SUBMITTED, so a successor copies again. Killed
 * between READY and the index, a successor frees what is READY and not indexed. Killed before DONE, the successor finds
 * the block and answers 1.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/file.h"
#include "base/log.h"
#include "base/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE_BYTES (256u << 10) /* copied and checked while it is in the cache */

/* ---- the worker's part ---- */

/*
 * Whether every page of a staged piece is there. Where a client made none, or took one away, a read through the descriptor
 * gives zeros, while touching the hole would make a page and charge us for it. Such a read takes half as long again as a
 * copy from the mapping; but a client could take pages away between this look and the copy, in each of its segments, until
 * the kernel kills us. So only what clients of our own user or root stage is copied from the mapping: they could do so anyway.
 */
static int is_filled(const struct kv_copy *copy, uint64_t off, uint64_t bytes)
{
	unsigned char there[PIECE_BYTES / CNRE_PAGE_BYTES + 1];
	uint64_t before = (copy->from_off + off) % CNRE_PAGE_BYTES;
	size_t pages = (before + bytes + CNRE_PAGE_BYTES - 1) / CNRE_PAGE_BYTES;

	if (mincore((char *)copy->from + off - before, before + bytes, there) < 0)
		return 0;
	for (size_t i = 0; i < pages; i++)
		if ((there[i] & 1) == 0)
			return 0;
	return 1;
}

static int copy_piece(const struct kv_copy *copy, uint64_t off, uint64_t bytes)
{
	int64_t got;

	if (copy->from_fd < 0 || (copy->from != NULL && is_filled(copy, off, bytes))) {
		memcpy((char *)copy->to + off, (const char *)copy->from + off, bytes);
		return 0;
	}
	got = cnre_file_read(copy->from_fd, (char *)copy->to + off, bytes, copy->from_off + off);
	return got < 0 ? (int)got : (uint64_t)got == bytes ? 0 : -EBADMSG;
}

static int copy_pieces(const struct kv_copy *copy, struct kv_check *check)
{
	for (uint64_t off = 0; off < copy->block.bytes; off += PIECE_BYTES) {
		uint64_t left = copy->block.bytes - off, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
		int r = copy_piece(copy, off, bytes);

		if (r < 0)
			return r;
		kv_check_add(check, (const char *)copy->to + off, bytes);
	}
	return 0;
}

static void run(struct worker_job *job)
{
	struct kv_copy *copy = (struct kv_copy *)job;
	struct kv_check *check;

	copy->status = kv_check_open(&check);
	if (copy->status < 0)
		return;
	kv_check_begin(check);
	copy->status = copy_pieces(copy, check);
	kv_check_end(check, copy->block.check);
	(void)kv_check_close(check);
}

/* ---- what may be stored ---- */

/* 0, or -ESTALE: nobody could find it, since what comes before it is not there. */
static int check_parent(const struct kv_namespace *space, const struct kv_block *block)
{
	const struct cnre_kv_entry *parent;
	uint32_t index;

	if (block->position == 0)
		return memcmp(block->parent, block->root, KV_KEY_BYTES) == 0 ? 0 : -EINVAL;
	index = cnre_kv_index_lookup(space->directory, block->parent);
	if (index == CNRE_KV_NONE)
		return -ESTALE;
	parent = &space->entry[index];
	return memcmp(parent->root, block->root, KV_KEY_BYTES) == 0 && parent->block_tokens == block->block_tokens &&
			       parent->token_count == parent->block_tokens &&
			       parent->position + parent->token_count == block->position ?
		       0 :
		       -EINVAL;
}

static int is_there(const struct kv_namespace *space, const struct kv_block *block)
{
	return cnre_kv_index_lookup(space->directory, block->key) != CNRE_KV_NONE;
}

/*
 * A partial block that is the beginning of this one, and nothing else, is of no more use. Of the children that a client
 * would look at: a root can have thousands.
 */
static void replace_shorter(struct kv_namespace *space, uint32_t index)
{
	const struct cnre_kv_entry *longer = &space->entry[index];
	uint32_t child = cnre_kv_index_child(space->directory, longer->parent, CNRE_KV_NONE);

	for (uint32_t i = 0; i < CNRE_KV_WALK_MAX && child != CNRE_KV_NONE; i++) {
		const struct cnre_kv_entry *entry = &space->entry[child];
		uint32_t next = cnre_kv_index_child(space->directory, longer->parent, child);

		if (entry->token_count < longer->token_count && (entry->flags & CNRE_KV_ENTRY_POINT) == 0 &&
		    memcmp(entry->root, longer->root, sizeof entry->root) == 0 &&
		    memcmp(entry->token, longer->token, entry->token_count * sizeof entry->token[0]) == 0 &&
		    (entry->media_first == entry->token_count ? longer->media_first >= entry->token_count :
								memcmp(entry->media, longer->media, sizeof entry->media) == 0))
			kv_entry_forget(space, child);
		child = next;
	}
}

/* An entry that nobody uses; where there is none, the least valuable block is forgotten for the next one. */
static uint32_t take_entry(struct kv_namespace *space)
{
	uint32_t index = kv_entry_take(space), victim;

	if (index != CNRE_KV_NONE)
		return index;
	victim = kv_evict_choose(space, 0);
	if (victim == CNRE_KV_NONE)
		victim = kv_evict_choose(space, 1);
	if (victim != CNRE_KV_NONE)
		kv_entry_forget(space, victim);
	kv_entry_sweep(space);
	return kv_entry_take(space);
}

int kv_publish_begin(struct kv_namespace *space, const struct kv_copy *what, struct kv_copy **ret_copy)
{
	struct kv_store *store = space->store;
	struct kv_copy *copy;
	uint64_t place;
	uint32_t index;
	int r;

	index = cnre_kv_index_lookup(space->directory, what->block.key);
	if (index != CNRE_KV_NONE) {
		replace_shorter(space, index); /* who stored it may have been killed before that */
		return 1;
	}
	r = check_parent(space, &what->block);
	if (r < 0)
		return r;
	if (store->copies == KV_COPIES_MAX)
		return -EAGAIN;
	index = take_entry(space);
	if (index == CNRE_KV_NONE)
		return -ENOSPC;
	space->note[index].doing = KV_DOING_COPY;
	r = kv_memory_take(space, what->block.bytes, index, &place);
	if (r == -ENOSPC)
		store->is_short = 1;
	copy = r < 0 ? NULL : malloc(sizeof *copy);
	if (copy == NULL) {
		if (r == 0)
			kv_memory_give(space, place);
		kv_entry_give(space, index);
		return r < 0 ? r : -ENOMEM;
	}
	*copy = *what;
	copy->job = (struct worker_job){.run = run, .done = what->job.done};
	copy->space = space;
	copy->index = index;
	copy->place = place;
	copy->to = kv_address(space, place);
	store->copies++;
	*ret_copy = copy;
	worker_submit(store->copier, &copy->job);
	return 0;
}

/* ---- done ---- */

static void insert(struct kv_copy *copy)
{
	struct kv_namespace *space = copy->space;
	struct kv_note *note = &space->note[copy->index];

	kv_entry_fill(space, copy->index, &copy->block);
	CNRE_CRASH_POINT("kv-publish-filled");
	kv_entry_ready(space, copy->index, copy->place);
	CNRE_CRASH_POINT("kv-publish-ready");
	cnre_kv_index_insert(space->directory, copy->index);
	CNRE_CRASH_POINT("kv-publish-indexed");
	note->doing = 0;
	kv_use_add(&note->use, KV_USE_OF_NEW, cnre_clock_now_ns());
	note->young_until_ns = cnre_clock_now_ns() + KV_YOUNG_NS;
	replace_shorter(space, copy->index);
	kv_files_new(space);
}

/* 0, 1 or -errno: what became of it, now that the world has gone on. */
static int settle(struct kv_copy *copy, int is_wanted)
{
	struct kv_namespace *space = copy->space;
	int r = copy->status;

	if (r == 0 && !is_wanted)
		r = -ECANCELED;
	if (r == 0)
		r = is_there(space, &copy->block) ? 1 : check_parent(space, &copy->block);
	if (r == 0) {
		insert(copy);
		return 0;
	}
	kv_memory_give(space, copy->place);
	kv_entry_give(space, copy->index);
	return r;
}

static void count(struct kv_namespace *space, uint32_t index, uint64_t bytes, int r)
{
	struct cnre_counters *counters = space->store->manager->counters;

	CNRE_PROBE(kv_publish, space->number, index, bytes, (int32_t)r);
	if (r == 0) {
		space->tally.published++;
		cnre_counter_add(&counters->kv_published, 1);
	} else if (r > 0) {
		space->tally.present++;
	} else {
		space->tally.publish_failed++;
		cnre_counter_add(&counters->kv_publish_failed, 1);
	}
}

void kv_publish_settle(struct kv_copy *copy, int is_wanted)
{
	int r = settle(copy, is_wanted);

	copy->space->store->copies--;
	count(copy->space, copy->index, copy->block.bytes, r);
	copy->ended(copy, r);
	free(copy);
}

/* ---- a client's request ---- */

static int is_unchanged(struct kv_session *client, const struct kv_copy *copy)
{
	struct cnre_kv_request now;

	return cnre_kv_channel_take(client->channel, copy->slot, &now) && memcmp(&now, &copy->request, sizeof now) == 0;
}

static void client_done(struct worker_job *job)
{
	struct kv_copy *copy = (struct kv_copy *)job;
	struct kv_session *client = copy->owner;

	kv_publish_settle(copy, is_unchanged(client, copy));
}

static void client_ended(struct kv_copy *copy, int result)
{
	struct kv_session *client = copy->owner;

	client->copy = NULL;
	if (result == 0)
		kv_uses_hold(client, copy->index);
	CNRE_CRASH_POINT("kv-publish-finishing");
	client->pending &= ~(1ull << copy->slot);
	cnre_kv_channel_finish(client->channel, copy->slot, result);
}

/* No digest, no media: a name says nothing else of them, and who looks for the block would not know it by this one. */
static int is_media_sane(const struct cnre_kv_request *request)
{
	static const unsigned char none[KV_KEY_BYTES];
	int has_none = memcmp(request->media, none, sizeof none) == 0;

	return has_none ? request->media_first == request->count : request->media_first < request->count;
}

static int check_request(const struct kv_session *client, const struct cnre_kv_request *request)
{
	uint64_t staging_bytes = client->staging_segment.bytes;

	if (request->kind != CNRE_KV_PUBLISH || request->block_tokens == 0 ||
	    request->block_tokens > CNRE_KV_TOKENS_MAX || request->count == 0 ||
	    request->count > request->block_tokens || !is_media_sane(request) ||
	    request->position % request->block_tokens != 0 || request->position > INT64_MAX)
		return -EINVAL;
	if (request->bytes == 0 || request->bytes > staging_bytes || request->staging_off > staging_bytes - request->bytes)
		return -EINVAL;
	if (kv_room(request->bytes) > kv_pin_bytes_max(client->space->store))
		return -E2BIG;
	return (request->flags & ~(uint32_t)(CNRE_KV_ENTRY_POINT | CNRE_KV_ENTRY_CHECKPOINTS)) == 0 ? 0 : -EINVAL;
}

static int tell_block(const struct cnre_kv_request *request, struct kv_block *ret_block)
{
	memset(ret_block, 0, sizeof *ret_block);
	memcpy(ret_block->root, request->root, KV_KEY_BYTES);
	memcpy(ret_block->parent, request->parent, KV_KEY_BYTES);
	memcpy(ret_block->mark.digest, request->media, KV_KEY_BYTES);
	ret_block->mark.first = request->media_first;
	ret_block->position = request->position;
	ret_block->bytes = request->bytes;
	ret_block->compute_ns = request->compute_ns < KV_COMPUTE_NS_MAX ? request->compute_ns : KV_COMPUTE_NS_MAX;
	ret_block->token_count = request->count;
	ret_block->block_tokens = request->block_tokens;
	ret_block->flags = request->flags;
	memcpy(ret_block->token, request->token, request->count * sizeof request->token[0]);
	return kv_key_block(ret_block->parent, ret_block->token, ret_block->token_count, &ret_block->mark, ret_block->key);
}

static int begin(struct kv_session *client, uint32_t slot, const struct cnre_kv_request *request)
{
	struct kv_copy what = {.job.done = client_done, .ended = client_ended, .owner = client, .slot = slot};
	int r = check_request(client, request);

	if (r < 0) {
		cnre_counter_add(&client->space->store->manager->counters->requests_invalid, 1);
		return r;
	}
	r = tell_block(request, &what.block);
	if (r < 0)
		return r;
	what.request = *request;
	if (client->may_be_believed)
		what.from = (const char *)client->staging_segment.base + request->staging_off;
	what.from_fd = client->staging_segment.fd;
	what.from_off = request->staging_off;
	return kv_publish_begin(client->space, &what, &client->copy);
}

/* The oldest PUBLISH, by the client's own tickets. LOADs are served on the way. CNRE_KV_SLOTS: none. */
static uint32_t look(struct kv_session *client, struct cnre_kv_request *ret_request)
{
	uint32_t found = CNRE_KV_SLOTS;
	struct cnre_kv_request request;

	for (uint64_t left = client->pending; left != 0; left &= left - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(left);
		int is_over = !cnre_kv_channel_take(client->channel, slot, &request);

		if (!is_over && request.kind == CNRE_KV_LOAD)
			is_over = kv_load_serve(client, slot, &request);
		else if (!is_over && (found == CNRE_KV_SLOTS || request.ticket < ret_request->ticket)) {
			found = slot;
			*ret_request = request;
		}
		if (is_over)
			client->pending &= ~(1ull << slot);
	}
	return found;
}

int kv_publish_serve(struct kv_session *client)
{
	struct cnre_kv_request request;
	uint32_t slot;
	int r;

	if (client->session != NULL)
		client->pending |= cnre_kv_channel_submitted(client->channel);
	if (client->pending == 0 || client->copy != NULL)
		return 0;
	slot = look(client, &request);
	if (slot == CNRE_KV_SLOTS)
		return 0;
	r = begin(client, slot, &request);
	if (r == 0 || r == -EAGAIN)
		return r == 0;
	count(client->space, CNRE_KV_NONE, request.bytes, r);
	client->pending &= ~(1ull << slot);
	cnre_kv_channel_finish(client->channel, slot, r);
	return 1;
}
