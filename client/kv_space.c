/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces of a client: asked for once, kept until detach, so that an identity more (one per tenant salt) costs a hash
 * and no message. A manager's restart leaves them as they are: its successor has the same segments.
 */
#include "client/kv.h"

#include "base/clock.h"
#include "client/connection.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list; client->kv_lock ---- */

static int is_called(const struct cnre_kv_space *space, const char *name)
{
	return space->is_named == (name != NULL) && (name == NULL || strcmp(space->name, name) == 0);
}

/* NULL, too, when the manager was not asked yet whether blocks of that size fit. */
static struct cnre_kv_space *find_name(struct cnre *client, const char *name, uint64_t block_bytes_max)
{
	struct cnre_kv_space *found = NULL;

	(void)pthread_mutex_lock(&client->kv_lock);
	for (uint32_t i = 0; i < client->kv_space_count && found == NULL; i++)
		if (is_called(client->kv_space[i], name) && block_bytes_max <= client->kv_space[i]->granted_bytes)
			found = client->kv_space[i];
	(void)pthread_mutex_unlock(&client->kv_lock);
	return found;
}

/* What the manager has just said yes to, if it is mapped already. */
static struct cnre_kv_space *find_number(struct cnre *client, uint32_t number, uint64_t block_bytes_max)
{
	struct cnre_kv_space *found = NULL;

	(void)pthread_mutex_lock(&client->kv_lock);
	for (uint32_t i = 0; i < client->kv_space_count && found == NULL; i++)
		if (client->kv_space[i]->number == number)
			found = client->kv_space[i];
	if (found != NULL && found->granted_bytes < block_bytes_max)
		found->granted_bytes = block_bytes_max;
	(void)pthread_mutex_unlock(&client->kv_lock);
	return found;
}

static int enter(struct cnre *client, struct cnre_kv_space *space)
{
	int r = -ENOSPC;

	(void)pthread_mutex_lock(&client->kv_lock);
	if (client->kv_space_count < CNRE_KV_NAMESPACES_PER_CLIENT) {
		client->kv_space[client->kv_space_count++] = space;
		r = 0;
	}
	(void)pthread_mutex_unlock(&client->kv_lock);
	return r;
}

/* ---- one namespace ---- */

static void free_space(struct cnre_kv_space *space)
{
	free(space->pins);
	free(space->pool);
	free(space);
}

static int make_space(struct cnre *client, const char *name, struct cnre_kv_space **ret_space)
{
	struct cnre_kv_space *space = calloc(1, sizeof *space);

	if (space == NULL)
		return -ENOMEM;
	space->client = client;
	space->is_named = name != NULL;
	if (name != NULL)
		memcpy(space->name, name, strlen(name) + 1);
	for (unsigned i = 0; i < CNRE_KV_FD_COUNT; i++)
		space->fixed[i].fd = -1;
	(void)pthread_mutex_init(&space->lock, NULL); /* cannot fail for a default mutex */
	space->pool = calloc(CNRE_KV_SEGMENTS_MAX, sizeof *space->pool);
	if (space->pool == NULL) {
		free_space(space);
		return -ENOMEM;
	}
	*ret_space = space;
	return 0;
}

static int use_opened(struct cnre_kv_space *space, const struct cnre_answer *answer, uint32_t number)
{
	int r;

	space->number = number;
	r = cnre_kv_map_fixed(space, answer->fds);
	if (r < 0)
		return r;
	space->pins = calloc(space->entry_count, sizeof *space->pins);
	r = space->pins == NULL ? -ENOMEM : enter(space->client, space);
	if (r < 0)
		cnre_kv_map_done(space);
	return r;
}

static int map_new(struct cnre *client, const char *name, uint64_t block_bytes_max, const struct cnre_answer *answer,
		   uint32_t number, struct cnre_kv_space **ret_space)
{
	struct cnre_kv_space *space;
	int r = make_space(client, name, &space);

	if (r < 0)
		return r;
	space->granted_bytes = block_bytes_max;
	r = use_opened(space, answer, number);
	if (r < 0)
		free_space(space);
	else
		*ret_space = space;
	return r;
}

/* Connection's lock held. */
static int ask_open(struct cnre *client, const char *name, uint64_t block_bytes_max, int64_t deadline_ns,
		    struct cnre_kv_space **ret_space)
{
	struct cnre_wire_kv_open ask = {.is_named = name != NULL, .block_bytes_max = block_bytes_max};
	struct cnre_wire_kv_opened opened;
	struct cnre_kv_space *space;
	struct cnre_answer answer;
	int r;

	if (name != NULL)
		memcpy(ask.kv_namespace, name, strlen(name) + 1);
	r = cnre_connection_ask(client, &ask, sizeof ask, CNRE_WIRE_KV_OPEN, CNRE_WIRE_KV_OPENED, sizeof opened,
				deadline_ns, &answer);
	if (r < 0)
		return r;
	memcpy(&opened, answer.message, sizeof opened);
	r = opened.status > 0 ? -EBADMSG : opened.status;
	if (r == 0 && answer.fd_count != CNRE_KV_FD_COUNT)
		r = -EBADMSG;
	if (r == 0) {
		space = find_number(client, opened.number, block_bytes_max);
		if (space != NULL)
			*ret_space = space;
		else
			r = map_new(client, name, block_bytes_max, &answer, opened.number, ret_space);
	}
	cnre_connection_close_fds(&answer);
	return r;
}

/* -EAGAIN: descriptors of an earlier answer were unread (R27); they have been read by now. */
static int ask_again(struct cnre *client, const char *name, uint64_t block_bytes_max, int64_t deadline_ns,
		     struct cnre_kv_space **ret_space)
{
	int r = -EAGAIN;

	for (int i = 0; i < CNRE_KV_OPEN_TRIES_MAX && r == -EAGAIN; i++)
		r = ask_open(client, name, block_bytes_max, deadline_ns, ret_space);
	return r;
}

int cnre_kv_space_get(struct cnre *client, const char *name, uint64_t block_bytes_max, struct cnre_kv_space **ret_space)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(CNRE_KV_ANSWER_NS);
	struct cnre_kv_space *space = find_name(client, name, block_bytes_max);
	int r = 0;

	if (space == NULL) {
		r = cnre_connection_lock(client, deadline_ns);
		if (r < 0)
			return r;
		space = find_name(client, name, block_bytes_max); /* another thread may have been first */
		if (space == NULL)
			r = ask_again(client, name, block_bytes_max, deadline_ns, &space);
		cnre_connection_unlock(client);
	}
	if (r == 0)
		*ret_space = space;
	return r;
}

/* ---- the end ---- */

uint32_t cnre_kv_space_pins(struct cnre *client)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < client->kv_space_count; i++) {
		(void)pthread_mutex_lock(&client->kv_space[i]->lock);
		count += client->kv_space[i]->pinned_count;
		(void)pthread_mutex_unlock(&client->kv_space[i]->lock);
	}
	return count;
}

void cnre_kv_space_close_all(struct cnre *client)
{
	for (uint32_t i = 0; i < client->kv_space_count; i++) {
		cnre_kv_map_done(client->kv_space[i]);
		(void)pthread_mutex_destroy(&client->kv_space[i]->lock);
	}
	cnre_kv_space_free_all(client);
}

void cnre_kv_space_free_all(struct cnre *client)
{
	for (uint32_t i = 0; i < client->kv_space_count; i++)
		free_space(client->kv_space[i]);
	client->kv_space_count = 0;
}
