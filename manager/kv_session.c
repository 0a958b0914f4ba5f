/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client in a namespace: its channel and its staging segment. Made at its first KV_OPEN, stored before they are passed
 * (R10), and gone with the session. A copy out of its staging segment that is under way keeps the segments mapped until it
 * is over, and nothing else.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "manager/session.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const part_name[] = {"ch", "st"};

static const char *name_of(const struct kv_session *client, unsigned part, char name[KEEP_NAME_BYTES])
{
	(void)snprintf(name, KEEP_NAME_BYTES, "c%u.kv%u.%s", client->number, client->space->number, part_name[part]);
	return name;
}

static void close_segments(struct kv_session *client)
{
	cnre_segment_close(&client->channel_segment);
	cnre_segment_close(&client->staging_segment);
}

static int create_segments(struct kv_session *client)
{
	const struct kv_namespace *space = client->space;
	uint64_t bytes = CNRE_KV_CHANNEL_BYTES(space->entry_count);
	struct cnre_kv_channel *channel;
	int r = cnre_segment_create(&client->channel_segment, "cnre-kv-channel", bytes, CNRE_BACKING_4K, -1,
				    CNRE_SEGMENT_CLIENT_WRITES);

	if (r == 0)
		r = cnre_segment_create(&client->staging_segment, "cnre-kv-staging", space->store->staging_bytes,
					CNRE_BACKING_4K, -1,
					CNRE_SEGMENT_CLIENT_WRITES | CNRE_SEGMENT_SPARSE | CNRE_SEGMENT_NO_DUMP);
	if (r < 0) {
		close_segments(client);
		return r;
	}
	channel = client->channel_segment.base;
	cnre_segment_fill_header(&channel->header, CNRE_SEGMENT_KV_CHANNEL, bytes);
	channel->session = client->number;
	channel->number = space->number;
	channel->entry_count = space->entry_count;
	channel->staging_bytes = client->staging_segment.bytes;
	cnre_segment_publish(&channel->header);
	return 0;
}

static void use_segments(struct kv_session *client)
{
	client->channel = client->channel_segment.base;
	client->ledger = cnre_kv_ledger(client->channel);
}

static struct kv_session *allocate(struct session *session, struct kv_namespace *space)
{
	struct kv_session *client = calloc(1, sizeof *client);

	if (client == NULL)
		return NULL;
	client->session = session;
	client->space = space;
	client->number = session->number;
	client->place = session->slot;
	client->may_be_believed = peer_may_administer(&session->peer);
	client->channel_segment.fd = client->staging_segment.fd = -1;
	return client;
}

static void set_holder(const struct kv_session *client, uint32_t number)
{
	struct cnre_kv_holder *holder = &client->space->directory->holder[client->place];

	if (number != 0)
		(void)snprintf(holder->name, sizeof holder->name, "%s", client->session->name);
	/* [KVH1] release, pairs with [KV20] and [KV21] in client/kv_route.c: the name. A reader that comes between two clients
	 * of a place looks at the number again. */
	atomic_store_explicit(&holder->session, number, memory_order_release);
}

/* From here on its leases count. */
static int enter(struct session *session, struct kv_session *client)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++) {
		if (session->kv[i] != NULL)
			continue;
		session->kv[i] = client;
		client->next = client->space->sessions;
		client->space->sessions = client;
		client->space->session_count++;
		set_holder(client, client->number);
		return 0;
	}
	return -ENOSPC; /* looked at before: kv_namespace_find */
}

static void leave(struct kv_session *client)
{
	struct kv_session **link = &client->space->sessions;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		if (client->session->kv[i] == client)
			client->session->kv[i] = NULL;
	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	client->space->session_count--;
	set_holder(client, 0);
}

static int put_segments(struct kv_session *client)
{
	struct store *store = client->space->store->manager->store;
	const int fds[] = {client->channel_segment.fd, client->staging_segment.fd};
	char name[KEEP_NAME_BYTES];
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++)
		if (!store_has(store, name_of(client, i, name)))
			r = store_put(store, name, fds[i]);
	return r;
}

void kv_session_persist(struct kv_session *client)
{
	(void)put_segments(client); /* what is not taken is told of as missing */
}

static void remove_segments(struct kv_session *client)
{
	char name[KEEP_NAME_BYTES];

	for (unsigned i = 0; i < 2; i++)
		store_remove(client->space->store->manager->store, name_of(client, i, name));
}

static int store_segments(struct kv_session *client)
{
	struct store *store = client->space->store->manager->store;
	int r = store_has_room(store, 2) ? put_segments(client) : -ENOSPC;

	if (r == 0)
		r = store_barrier(store);
	if (r < 0)
		remove_segments(client);
	return r;
}

static struct kv_session *find(const struct session *session, const struct kv_namespace *space)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		if (session->kv[i] != NULL && session->kv[i]->space == space)
			return session->kv[i];
	return NULL;
}

/* Crash note: killed before its segments are stored, a successor knows of none, and the client, which got none, asks again. */
static int begin(struct session *session, struct kv_namespace *space, struct kv_session **ret_client)
{
	struct kv_session *client = allocate(session, space);
	int r = client == NULL ? -ENOMEM : create_segments(client);

	if (r < 0) {
		free(client);
		return r;
	}
	use_segments(client);
	CNRE_CRASH_POINT("kv-open-segments");
	r = store_segments(client);
	if (r == 0) {
		CNRE_CRASH_POINT("kv-open-stored");
		r = enter(session, client);
		if (r < 0)
			remove_segments(client);
	}
	if (r < 0) {
		close_segments(client);
		free(client);
		return r;
	}
	*ret_client = client;
	return 0;
}

static void close_session(struct kv_session *client)
{
	close_segments(client);
	free(client);
}

/* What it posts from now on, if it lives, is not looked at. */
void kv_session_end(struct kv_session *client, int drops)
{
	struct kv_store *store = client->space->store;

	(void)kv_uses_follow(client, CNRE_LOG_ENTRIES);
	leave(client);
	remove_segments(client);
	client->session = NULL;
	client->pending |= cnre_kv_channel_submitted(client->channel);
	if (drops || store->draining_count >= KV_DRAINING_MAX)
		client->pending = 0;
	client->next = store->draining;
	store->draining = client;
	store->draining_count++;
}

/* Serving one puts nobody else on the list: who is in breach ends in the turn, not in the middle of this. */
void kv_session_drain(struct kv_store *store)
{
	struct kv_session **link = &store->draining;

	while (*link != NULL) {
		struct kv_session *client = *link;

		(void)kv_publish_serve(client);
		if (client->copy != NULL || client->pending != 0) {
			link = &client->next;
			continue;
		}
		*link = client->next;
		store->draining_count--;
		close_session(client);
	}
}

void kv_end_session(struct session *session)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		if (session->kv[i] != NULL)
			kv_session_end(session->kv[i], 0);
}

/* ---- adoption ---- */

static int map_part(const struct kv_session *client, unsigned part, enum cnre_segment_kind kind, uint64_t bytes,
		    struct cnre_segment *ret_segment)
{
	char name[KEEP_NAME_BYTES];
	int fd = store_take(client->space->store->manager->store, name_of(client, part, name));
	int r = fd < 0 ? fd : cnre_segment_map(ret_segment, fd, kind, bytes, 1);

	if (r < 0 && fd >= 0)
		(void)close(fd);
	if (r == 0)
		ret_segment->fd = fd;
	return r;
}

static int map_parts(struct kv_session *client)
{
	int r = map_part(client, 0, CNRE_SEGMENT_KV_CHANNEL, CNRE_KV_CHANNEL_BYTES(client->space->entry_count),
			 &client->channel_segment);

	if (r == 0)
		r = map_part(client, 1, 0, CNRE_PAGE_BYTES, &client->staging_segment);
	return r;
}

int kv_session_adopt(struct session *session, struct kv_namespace *space)
{
	struct kv_session *client = allocate(session, space);
	int r = client == NULL ? -ENOMEM : map_parts(client);

	if (r == 0) {
		use_segments(client);
		client->pending = UINT64_MAX; /* slots are the truth (R13) */
		cnre_access_log_resume(cnre_kv_log(client->channel), &client->log);
		r = enter(session, client);
	}
	if (r < 0 && client != NULL) {
		remove_segments(client);
		close_session(client);
	}
	/* One that was not stored whole was never passed: it asks again. One whose head its client wrote over is its own loss. */
	return r == -ENOENT || r == -EBADMSG || r == -EPROTO ? 0 : r;
}

/* ---- messages ---- */

static int send_opened(struct session *session, uint32_t id, const struct kv_session *client, int status, const char *message)
{
	struct cnre_wire_kv_opened answer = {.status = status};
	int fds[CNRE_KV_FD_COUNT], count = 0, r;

	(void)snprintf(answer.message, sizeof answer.message, "%s", message);
	if (status == 0) {
		fds[CNRE_KV_FD_DIRECTORY] = cnre_segment_reopen_readonly(&client->space->directory_segment);
		fds[CNRE_KV_FD_CHANNEL] = client->channel_segment.fd;
		fds[CNRE_KV_FD_STAGING] = client->staging_segment.fd;
		answer.number = client->space->number;
		answer.status = fds[CNRE_KV_FD_DIRECTORY] < 0 ? fds[CNRE_KV_FD_DIRECTORY] : 0;
		count = answer.status < 0 ? 0 : CNRE_KV_FD_COUNT;
	}
	cnre_wire_fill(&answer.header, CNRE_WIRE_KV_OPENED, id, sizeof answer);
	r = cnre_wire_send(session->socket.fd, &answer, sizeof answer, fds, (size_t)count);
	if (count > 0)
		(void)close(fds[CNRE_KV_FD_DIRECTORY]);
	return r;
}

static int check_block(const struct kv_store *store, uint64_t block_bytes, char *message)
{
	uint64_t most = store->staging_bytes / KV_STAGING_SHARE;

	if (block_bytes <= most && kv_room(block_bytes) <= store->budget_bytes / KV_PIN_SHARE)
		return 0;
	(void)snprintf(message, KV_MESSAGE_BYTES,
		       "blocks of %llu bytes: at most %llu (half of --kv-staging) and %llu (a quarter of --kv-ram): raise them, or take fewer tokens a block",
		       (unsigned long long)block_bytes, (unsigned long long)most,
		       (unsigned long long)(store->budget_bytes / KV_PIN_SHARE));
	return -E2BIG;
}

static int open_for(struct session *session, const struct cnre_wire_kv_open *asked, struct kv_session **ret_client,
		    char message[KV_MESSAGE_BYTES])
{
	struct kv_store *store = session->manager->kv;
	char name[CNRE_WIRE_KV_NAME_BYTES];
	struct kv_namespace *space;
	int r;

	if (store == NULL) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "this manager keeps no KV prefixes: start it with --kv-ram");
		return -ENOTSUP;
	}
	memcpy(name, asked->kv_namespace, sizeof name);
	if (memchr(name, '\0', sizeof name) == NULL)
		name[0] = '\0'; /* too long, and refused as an empty one is */
	r = check_block(store, asked->block_bytes_max, message);
	if (r == 0)
		r = kv_namespace_find(store, session, asked->is_named ? name : NULL, &space, message);
	if (r < 0)
		return r;
	*ret_client = find(session, space);
	if (*ret_client != NULL)
		return 0;
	r = begin(session, space, ret_client);
	if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "the KV namespace cannot be opened: %s", strerror(-r));
	return r;
}

static int answer_open(struct session *session, const struct cnre_wire_kv_open *asked)
{
	char message[KV_MESSAGE_BYTES] = "";
	struct kv_session *client = NULL;
	int r = session->peer.question.link != NULL || cnre_wire_has_unread(session->socket.fd) ? -EAGAIN : 0;

	if (r == 0)
		r = open_for(session, asked, &client, message);
	if (r < 0 && message[0] != '\0' && cnre_log_allowed(&session->manager->sessions->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_NOTICE, "kv: %s (pid %d, uid %u): %s", session->name, (int)session->peer.pid,
			 session->peer.uid, message);
	return send_opened(session, asked->header.id, client, r, message);
}

static struct kv_session *numbered(const struct session *session, uint32_t number)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		if (session->kv[i] != NULL && session->kv[i]->space->number == number)
			return session->kv[i];
	return NULL;
}

#define SEGMENTS_PER_MESSAGE 100u

static uint32_t collect(const struct kv_namespace *space, uint32_t *first, int *fds)
{
	uint32_t count = 0;

	while (*first < space->segments_made && !space->segment[*first].is_live)
		(*first)++;
	while (count < SEGMENTS_PER_MESSAGE && *first + count < space->segments_made) {
		const struct kv_segment *segment = &space->segment[*first + count];
		int fd = segment->is_live ? cnre_segment_reopen_readonly(&segment->memory) : -ENOENT;

		if (fd < 0)
			break; /* given back, or no descriptor free now: the client asks on from here */
		fds[count++] = fd;
	}
	return count;
}

static int answer_segments(struct session *session, const struct cnre_wire_kv_segments *asked)
{
	struct kv_session *client = numbered(session, asked->number);
	struct cnre_wire_kv_segments answer = {.number = asked->number, .first = asked->first};
	int fds[SEGMENTS_PER_MESSAGE], r;

	if (client == NULL)
		answer.status = -ENOENT;
	else if (session->peer.question.link != NULL || cnre_wire_has_unread(session->socket.fd))
		answer.status = -EAGAIN;
	else
		answer.count = collect(client->space, &answer.first, fds);
	answer.total = client == NULL ? 0 : client->space->segments_made;
	cnre_wire_fill(&answer.header, CNRE_WIRE_KV_SEGMENTS, asked->header.id, sizeof answer);
	r = cnre_wire_send(session->socket.fd, &answer, sizeof answer, fds, answer.count);
	for (uint32_t i = 0; i < answer.count; i++)
		(void)close(fds[i]);
	return r;
}

static int32_t invalidate(struct kv_namespace *space, const unsigned char *root)
{
	uint32_t dropped = kv_entry_forget_root(space, root);

	space->tally.invalidated += dropped;
	kv_entry_sweep(space);
	return (int32_t)dropped;
}

static int answer_invalidate(struct session *session, const struct cnre_wire_kv_invalidate *asked)
{
	struct kv_session *client = numbered(session, asked->number);
	struct cnre_wire_kv_invalidate answer = *asked;

	answer.status = client == NULL ? -ENOENT : invalidate(client->space, asked->root);
	cnre_wire_fill(&answer.header, CNRE_WIRE_KV_INVALIDATE, asked->header.id, sizeof answer);
	return cnre_wire_send(session->socket.fd, &answer, sizeof answer, NULL, 0);
}

int kv_answer(struct session *session, const void *buffer, int received_bytes)
{
	int r = 0;

	if (cnre_wire_expect(buffer, received_bytes, CNRE_WIRE_KV_OPEN, sizeof(struct cnre_wire_kv_open)) == 0)
		r = answer_open(session, buffer);
	else if (cnre_wire_expect(buffer, received_bytes, CNRE_WIRE_KV_SEGMENTS, sizeof(struct cnre_wire_kv_segments)) == 0)
		r = answer_segments(session, buffer);
	else if (cnre_wire_expect(buffer, received_bytes, CNRE_WIRE_KV_INVALIDATE, sizeof(struct cnre_wire_kv_invalidate)) == 0)
		r = answer_invalidate(session, buffer);
	else
		return 0;
	return r < 0 ? r : 1;
}
