/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_kv.h. One lock: the test's thread and the host's thread of sockets. */
#include "tests/support/fake_kv.h"

#include "kvstore/key.h"
#include "shm/futex.h"
#include "shm/kv_channel.h"
#include "shm/kv_index.h"
#include "shm/ledger.h"
#include "shm/segment.h"
#include "shm/wire.h"
#include "shm/word.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPACES_MAX 4u
#define SESSIONS_MAX 4u
#define SEGMENTS_MAX 8u

struct session {
	uint32_t number;
	struct cnre_segment channel, staging;
};

struct space {
	char name[CNRE_WIRE_KV_NAME_BYTES];
	uint32_t is_named, number;
	struct cnre_segment directory, pool[SEGMENTS_MAX];
	struct session session[SESSIONS_MAX];
};

struct fake_kv {
	struct fake_kv_setup setup;
	pthread_mutex_t lock;
	struct space space[SPACES_MAX];
	uint32_t space_count, opens, segment_asks, loads;
	uint64_t next_id;
	struct cnre_kv_request published;
};

#define MUST(e) ((e) ? (void)0 : fail(#e, __LINE__))

static void fail(const char *what, int line)
{
	(void)fprintf(stderr, "fake_kv: line %d: %s (%s)\n", line, what, strerror(errno));
	abort();
}

static void make_segment(struct cnre_segment *segment, const char *name, enum cnre_segment_kind kind, uint64_t bytes,
			 unsigned flags)
{
	MUST(cnre_segment_create(segment, name, bytes, CNRE_BACKING_4K, -1, flags) == 0);
	if (kind != 0)
		cnre_segment_fill_header(segment->base, kind, segment->bytes);
}

/* ---- namespaces and sessions ---- */

static struct cnre_kv_directory *directory_of(const struct space *space)
{
	return space->directory.base;
}

static void make_space(struct fake_kv *kv, struct space *space, const struct cnre_wire_kv_open *open)
{
	struct cnre_kv_directory *directory;

	space->is_named = open->is_named;
	(void)snprintf(space->name, sizeof space->name, "%.*s", (int)sizeof open->kv_namespace - 1, open->kv_namespace);
	space->number = kv->space_count;
	make_segment(&space->directory, "fake-kv-directory", CNRE_SEGMENT_KV_DIRECTORY,
		     CNRE_KV_DIRECTORY_BYTES(kv->setup.entry_count, kv->setup.bucket_count), 0);
	directory = space->directory.base;
	directory->number = kv->setup.said_number != 0 ? kv->setup.said_number : space->number;
	directory->entry_count = kv->setup.entry_count;
	directory->bucket_count = kv->setup.bucket_count;
	directory->pin_bytes_max = kv->setup.pin_bytes_max;
	cnre_kv_index_init(directory);
	if (kv->setup.said_entries != 0)
		directory->entry_count = kv->setup.said_entries;
	if (kv->setup.said_buckets != 0)
		directory->bucket_count = kv->setup.said_buckets;
	cnre_segment_publish(&directory->header);
	for (uint32_t i = 0; i < kv->setup.segment_count; i++)
		make_segment(&space->pool[i], "fake-kv-pool", 0, kv->setup.entry_count * kv->setup.block_bytes, 0);
}

static void make_session(struct fake_kv *kv, const struct space *space, struct session *session, uint32_t number)
{
	struct cnre_kv_channel *channel;

	session->number = number;
	make_segment(&session->channel, "fake-kv-channel", CNRE_SEGMENT_KV_CHANNEL,
		     CNRE_KV_CHANNEL_BYTES(kv->setup.entry_count), CNRE_SEGMENT_CLIENT_WRITES);
	make_segment(&session->staging, "fake-kv-staging", 0, kv->setup.staging_bytes, CNRE_SEGMENT_CLIENT_WRITES);
	channel = session->channel.base;
	channel->session = number;
	channel->number = space->number;
	channel->entry_count = kv->setup.said_channel_entries != 0 ? kv->setup.said_channel_entries
								   : kv->setup.entry_count;
	channel->staging_bytes = kv->setup.said_staging_bytes != 0 ? kv->setup.said_staging_bytes
								   : kv->setup.staging_bytes;
	cnre_segment_publish(&channel->header);
}

static struct space *find_space(struct fake_kv *kv, const struct cnre_wire_kv_open *open)
{
	for (uint32_t i = 0; i < kv->space_count; i++)
		if (kv->space[i].is_named == open->is_named && strcmp(kv->space[i].name, open->kv_namespace) == 0)
			return &kv->space[i];
	MUST(kv->space_count < SPACES_MAX);
	kv->space_count++;
	make_space(kv, &kv->space[kv->space_count - 1], open);
	return &kv->space[kv->space_count - 1];
}

static struct session *find_session(struct fake_kv *kv, struct space *space, uint32_t number)
{
	uint32_t i = 0;

	while (i < SESSIONS_MAX && space->session[i].number != 0 && space->session[i].number != number)
		i++;
	MUST(i < SESSIONS_MAX);
	if (space->session[i].number == 0)
		make_session(kv, space, &space->session[i], number);
	return &space->session[i];
}

/* ---- messages ---- */

static void answer_open(struct fake_kv *kv, int socket, uint32_t session_number, const struct cnre_wire_kv_open *open)
{
	struct cnre_wire_kv_opened opened = {.status = kv->setup.open_status};
	int fds[CNRE_KV_FD_COUNT];
	size_t fd_count = 0;

	kv->opens++;
	if (opened.status == 0 && open->block_bytes_max > kv->setup.staging_bytes)
		opened.status = -E2BIG;
	if (opened.status == 0) {
		struct space *space = find_space(kv, open);
		struct session *session = find_session(kv, space, session_number);

		opened.number = space->number;
		fds[CNRE_KV_FD_DIRECTORY] = cnre_segment_reopen_readonly(&space->directory);
		fds[CNRE_KV_FD_CHANNEL] = session->channel.fd;
		fds[CNRE_KV_FD_STAGING] = session->staging.fd;
		fd_count = CNRE_KV_FD_COUNT;
	}
	cnre_wire_fill(&opened.header, CNRE_WIRE_KV_OPENED, open->header.id, sizeof opened);
	(void)cnre_wire_send(socket, &opened, sizeof opened, fds, fd_count);
	if (fd_count > 0)
		(void)close(fds[CNRE_KV_FD_DIRECTORY]);
}

static void answer_segments(struct fake_kv *kv, int socket, const struct cnre_wire_kv_segments *asked)
{
	const struct space *space = &kv->space[asked->number - 1];
	struct cnre_wire_kv_segments told = {
		.number = asked->number, .first = asked->first, .total = kv->setup.segment_count};
	int fds[SEGMENTS_MAX];

	kv->segment_asks++;
	while (!kv->setup.segments_lie && asked->first + told.count < told.total) {
		fds[told.count] = cnre_segment_reopen_readonly(&space->pool[asked->first + told.count]);
		MUST(fds[told.count] >= 0);
		told.count++;
	}
	cnre_wire_fill(&told.header, CNRE_WIRE_KV_SEGMENTS, asked->header.id, sizeof told);
	(void)cnre_wire_send(socket, &told, sizeof told, fds, told.count);
	for (uint32_t i = 0; i < told.count; i++)
		(void)close(fds[i]);
}

static int forget_locked(struct space *space, uint32_t index);

static void answer_invalidate(struct fake_kv *kv, int socket, const struct cnre_wire_kv_invalidate *asked)
{
	struct space *space = &kv->space[asked->number - 1];
	struct cnre_wire_kv_invalidate told = {.number = asked->number};

	for (uint32_t i = 0; i < kv->setup.entry_count; i++) {
		struct cnre_kv_entry *entry = &cnre_kv_entries(directory_of(space))[i];

		if (entry->is_indexed && memcmp(entry->root, asked->root, sizeof entry->root) == 0)
			told.status += forget_locked(space, i);
	}
	cnre_wire_fill(&told.header, CNRE_WIRE_KV_INVALIDATE, asked->header.id, sizeof told);
	(void)cnre_wire_send(socket, &told, sizeof told, NULL, 0);
}

int fake_kv_answer(struct fake_kv *kv, int socket, uint32_t session, const void *message)
{
	const struct cnre_wire_header *header = message;

	(void)pthread_mutex_lock(&kv->lock);
	if (header->type == CNRE_WIRE_KV_OPEN)
		answer_open(kv, socket, session, message);
	else if (header->type == CNRE_WIRE_KV_SEGMENTS)
		answer_segments(kv, socket, message);
	else if (header->type == CNRE_WIRE_KV_INVALIDATE)
		answer_invalidate(kv, socket, message);
	(void)pthread_mutex_unlock(&kv->lock);
	return header->type >= CNRE_WIRE_KV_OPEN && header->type <= CNRE_WIRE_KV_INVALIDATE;
}

/* ---- blocks ---- */

static struct cnre_kv_entry *entry_of(const struct space *space, uint32_t index)
{
	return &cnre_kv_entries(directory_of(space))[index];
}

static void set_state(struct cnre_kv_entry *entry, uint32_t word)
{
	atomic_store_explicit(&entry->load.state, word, memory_order_seq_cst);
	(void)cnre_futex_wake_all(&entry->load.state);
}

static uint32_t generation_of(const struct cnre_kv_entry *entry)
{
	return cnre_word_generation(atomic_load_explicit(&entry->load.state, memory_order_seq_cst));
}

static enum cnre_state state_of(const struct cnre_kv_entry *entry)
{
	return cnre_word_state(atomic_load_explicit(&entry->load.state, memory_order_seq_cst));
}

static uint32_t leases_locked(const struct space *space, uint32_t index)
{
	uint32_t leases = 0;

	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		if (space->session[i].number != 0)
			leases += CNRE_LEDGER_LEASES(
				cnre_ledger_scan(&cnre_kv_ledger(space->session[i].channel.base)[index]));
	return leases;
}

/* 1: it is EVICTING and nobody has it. */
static int begin_eviction(struct space *space, uint32_t index)
{
	struct cnre_kv_entry *entry = entry_of(space, index);
	uint32_t word = atomic_load_explicit(&entry->load.state, memory_order_seq_cst);

	cnre_ledger_store_evicting(&entry->load,
				   cnre_word_pack(generation_of(entry), CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (leases_locked(space, index) == 0)
		return 1;
	set_state(entry, word);
	return 0;
}

static int forget_locked(struct space *space, uint32_t index)
{
	struct cnre_kv_entry *entry = entry_of(space, index);

	cnre_kv_index_remove(directory_of(space), index);
	if (!begin_eviction(space, index))
		return 0;
	set_state(entry, (generation_of(entry) + 1) << CNRE_GENERATION_SHIFT | CNRE_KV_STATE_FREE);
	return 1;
}

static int publish(struct fake_kv *kv, struct space *space, const struct session *session,
		   const struct cnre_kv_request *request)
{
	struct kv_media_mark mark = {.first = request->media_first};
	uint32_t index = 0, segment;
	struct cnre_kv_entry *entry;
	unsigned char key[KV_KEY_BYTES];
	uint64_t off;

	memcpy(mark.digest, request->media, sizeof mark.digest);
	MUST(request->count > 0 && request->count <= request->block_tokens);
	MUST(request->bytes <= kv->setup.block_bytes &&
	     request->staging_off + request->bytes <= session->staging.bytes);
	MUST(kv_key_block(request->parent, request->token, request->count, &mark, key) == 0);
	if (cnre_kv_index_lookup(directory_of(space), key) != CNRE_KV_NONE)
		return 1;
	while (index < kv->setup.entry_count && (uint32_t)state_of(entry_of(space, index)) != CNRE_KV_STATE_FREE)
		index++;
	if (index == kv->setup.entry_count)
		return -ENOSPC;
	entry = entry_of(space, index);
	segment = index % kv->setup.segment_count;
	off = index * kv->setup.block_bytes;
	memcpy((char *)space->pool[segment].base + off, (char *)session->staging.base + request->staging_off,
	       request->bytes);
	entry->load.place = cnre_place_pack(segment, off);
	entry->id = ++kv->next_id;
	memcpy(entry->root, request->root, sizeof entry->root);
	memcpy(entry->parent, request->parent, sizeof entry->parent);
	memcpy(entry->key, key, sizeof entry->key);
	memcpy(entry->media, request->media, sizeof entry->media);
	entry->position = request->position;
	entry->bytes = request->bytes;
	entry->compute_ns = request->compute_ns;
	entry->token_count = request->count;
	entry->block_tokens = request->block_tokens;
	entry->media_first = request->media_first;
	entry->flags = request->flags;
	memcpy(entry->token, request->token, sizeof entry->token);
	set_state(entry, cnre_word_pack(generation_of(entry), CNRE_LOAD_OK, CNRE_STATE_READY));
	cnre_kv_index_insert(directory_of(space), index);
	return 0;
}

static void load(struct fake_kv *kv, struct space *space, const struct cnre_kv_request *request)
{
	MUST(request->count <= CNRE_KV_TOKENS_MAX);
	for (uint32_t i = 0; i < request->count; i++) {
		struct cnre_kv_entry *entry = entry_of(space, (uint32_t)request->token[i]);

		kv->loads++;
		if (state_of(entry) == CNRE_STATE_ABSENT)
			set_state(entry, cnre_word_pack(generation_of(entry), CNRE_LOAD_OK, CNRE_STATE_LOADING));
	}
}

static uint32_t serve_session(struct fake_kv *kv, struct space *space, struct session *session, int status)
{
	struct cnre_kv_channel *channel = session->channel.base;
	uint64_t bits = cnre_kv_channel_submitted(channel);
	struct cnre_kv_request request;
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < CNRE_KV_SLOTS; slot++) {
		int result = status;

		if ((bits >> slot & 1) == 0 || !cnre_kv_channel_take(channel, slot, &request))
			continue;
		count++;
		if (request.kind == CNRE_KV_LOAD)
			load(kv, space, &request);
		else
			kv->published = request;
		if (request.kind == CNRE_KV_PUBLISH && status == 0)
			result = publish(kv, space, session, &request);
		cnre_kv_channel_finish(channel, slot, result);
	}
	return count;
}

uint32_t fake_kv_serve(struct fake_kv *kv, int status)
{
	uint32_t count = 0;

	(void)pthread_mutex_lock(&kv->lock);
	for (uint32_t i = 0; i < kv->space_count; i++)
		for (uint32_t k = 0; k < SESSIONS_MAX; k++)
			if (kv->space[i].session[k].number != 0)
				count += serve_session(kv, &kv->space[i], &kv->space[i].session[k], status);
	(void)pthread_mutex_unlock(&kv->lock);
	return count;
}

void fake_kv_await_posts(struct fake_kv *kv)
{
	while (!cnre_kv_channel_is_pending(fake_kv_channel(kv)))
		(void)sched_yield(); /* a word that nobody wakes anyone for */
}

void fake_kv_finish(struct fake_kv *kv, uint32_t index, enum cnre_load_error error)
{
	struct cnre_kv_entry *entry = fake_kv_entry(kv, index);
	uint32_t generation = generation_of(entry);

	if (error == CNRE_LOAD_OK)
		set_state(entry, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_READY));
	else
		set_state(entry, cnre_word_pack(generation + 1, error, CNRE_STATE_ABSENT));
}

int fake_kv_evict(struct fake_kv *kv, uint32_t index)
{
	struct cnre_kv_entry *entry = fake_kv_entry(kv, index);

	if (!begin_eviction(&kv->space[0], index))
		return 0;
	set_state(entry, cnre_word_pack(generation_of(entry) + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT));
	return 1;
}

int fake_kv_forget(struct fake_kv *kv, uint32_t index)
{
	return forget_locked(&kv->space[0], index);
}

void fake_kv_hold(struct fake_kv *kv, uint32_t index, uint32_t session, uint32_t place, const char *name)
{
	struct cnre_kv_holder *holder = &fake_kv_directory(kv)->holder[place];

	(void)snprintf(holder->name, sizeof holder->name, "%s", name);
	atomic_store_explicit(&holder->session, session, memory_order_release);
	atomic_store_explicit(&fake_kv_entry(kv, index)->holder, (uint64_t)session << 32 | place, memory_order_relaxed);
}

/* ---- what it saw ---- */

static uint32_t read_locked(struct fake_kv *kv, const uint32_t *counter)
{
	uint32_t count;

	(void)pthread_mutex_lock(&kv->lock);
	count = *counter;
	(void)pthread_mutex_unlock(&kv->lock);
	return count;
}

uint32_t fake_kv_opens(struct fake_kv *kv)
{
	return read_locked(kv, &kv->opens);
}

uint32_t fake_kv_segment_asks(struct fake_kv *kv)
{
	return read_locked(kv, &kv->segment_asks);
}

uint32_t fake_kv_loads(struct fake_kv *kv)
{
	return read_locked(kv, &kv->loads);
}

struct cnre_kv_directory *fake_kv_directory(struct fake_kv *kv)
{
	return directory_of(&kv->space[0]);
}

struct cnre_kv_entry *fake_kv_entry(struct fake_kv *kv, uint32_t index)
{
	return entry_of(&kv->space[0], index);
}

struct cnre_kv_channel *fake_kv_channel(struct fake_kv *kv)
{
	return kv->space[0].session[0].channel.base;
}

uint32_t fake_kv_leases(struct fake_kv *kv, uint32_t index)
{
	return leases_locked(&kv->space[0], index);
}

const struct cnre_kv_request *fake_kv_published(struct fake_kv *kv)
{
	return &kv->published;
}

/* ---- life ---- */

struct fake_kv *fake_kv_start(const struct fake_kv_setup *setup)
{
	struct fake_kv *kv = calloc(1, sizeof *kv);

	MUST(kv != NULL);
	if (setup != NULL)
		kv->setup = *setup;
	kv->setup.entry_count = kv->setup.entry_count != 0 ? kv->setup.entry_count : 64;
	kv->setup.bucket_count = kv->setup.bucket_count != 0 ? kv->setup.bucket_count : 16;
	kv->setup.segment_count = kv->setup.segment_count != 0 ? kv->setup.segment_count : 1;
	kv->setup.block_bytes = kv->setup.block_bytes != 0 ? kv->setup.block_bytes : 4096;
	kv->setup.staging_bytes = kv->setup.staging_bytes != 0 ? kv->setup.staging_bytes : 1u << 20;
	kv->setup.pin_bytes_max = kv->setup.pin_bytes_max != 0 ? kv->setup.pin_bytes_max : UINT64_MAX;
	MUST(kv->setup.segment_count <= SEGMENTS_MAX);
	MUST(pthread_mutex_init(&kv->lock, NULL) == 0);
	return kv;
}

void fake_kv_stop(struct fake_kv *kv)
{
	for (uint32_t i = 0; i < kv->space_count; i++) {
		struct space *space = &kv->space[i];

		cnre_segment_close(&space->directory);
		for (uint32_t k = 0; k < kv->setup.segment_count; k++)
			cnre_segment_close(&space->pool[k]);
		for (uint32_t k = 0; k < SESSIONS_MAX; k++)
			if (space->session[k].number != 0) {
				cnre_segment_close(&space->session[k].channel);
				cnre_segment_close(&space->session[k].staging);
			}
	}
	(void)pthread_mutex_destroy(&kv->lock);
	free(kv);
}
