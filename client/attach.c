/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_attach and cnre_detach: a struct cnre from the first allocation to the last. */
#include "base/clock.h"
#include "base/places.h"
#include "client/batch.h"
#include "client/client.h"
#include "client/fork.h"
#include "client/kv.h"
#include "client/map.h"
#include "client/session.h"
#include "client/vram.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ATTACH_TRIES_MAX 8 /* sessions that end before the pool is mapped; each costs a manager its life */
#define ATTACH_PAUSE_NS 50000000

static uint32_t spin_limit(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	/* On one CPU a spin only keeps the manager from running. More CPUs than a set holds are many. */
	if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2)
		return 0;
	return CNRE_SPIN_MAX_NS;
}

/* What complete() made: an attempt that starts over begins empty. */
static void free_completed(struct cnre *client)
{
	cnre_cookies_done(&client->cookies);
	free((void *)client->shape_view);
	free(client->shape_part_off);
	free((void *)client->claim);
	free((void *)client->prefetch);
	client->shape_view = NULL;
	client->shape_part_off = NULL;
	client->claim = NULL;
	client->prefetch = NULL;
}

/* Only this process's own memory: what a forked child may free, too. */
static void free_private(struct cnre *client)
{
	while (client->spare != NULL) {
		struct cnre_batch *next = client->spare->next;

		free(client->spare);
		client->spare = next;
	}
	free_completed(client);
	cnre_kv_space_free_all(client);
	cnre_vram_free(client);
	(void)cnre_places_close(client->places);
	free(client->pool);
	free(client->buffer);
	cnre_owner_close(client->owner);
	free(client);
}

static void init_monotonic(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	(void)pthread_condattr_init(&attributes); /* these do not fail on Linux */
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(condition, &attributes);
	(void)pthread_condattr_destroy(&attributes);
}

static int make_client(struct cnre **ret_client)
{
	struct cnre *client = aligned_alloc(_Alignof(struct cnre), sizeof *client);
	int r;

	if (client == NULL)
		return -ENOMEM;
	memset(client, 0, sizeof *client);
	client->socket = -1;
	for (unsigned i = 0; i < CNRE_FD_COUNT; i++)
		client->fixed[i].fd = -1;
	/* [O4] relaxed: no other thread knows the client yet. */
	atomic_store_explicit(&client->last_layer, CNRE_NO_LAYER, memory_order_relaxed);
	client->spin_limit_ns = spin_limit();
	/* [O5] relaxed: as [O4]. */
	atomic_store_explicit(&client->spin_ns, client->spin_limit_ns, memory_order_relaxed);
	(void)pthread_mutex_init(&client->control, NULL); /* cannot fail for a default mutex */
	(void)pthread_mutex_init(&client->admission, NULL);
	(void)pthread_mutex_init(&client->kv_lock, NULL);
	init_monotonic(&client->asked);
	client->buffer = malloc(CNRE_WIRE_MESSAGE_MAX);
	client->pool = calloc(CNRE_SEGMENTS_MAX, sizeof *client->pool);
	r = client->buffer == NULL || client->pool == NULL ? -ENOMEM : cnre_owner_open(&client->owner);
	if (r < 0)
		free_private(client);
	else
		*ret_client = client;
	return r;
}

/* What depends on the catalog. */
static int complete(struct cnre *client, const struct cnre_attach_request *request)
{
	int r = cnre_view_init(client);

	/* Bytes that lie otherwise than the caller thinks would be silent garbage. */
	if (r == 0 && strncmp(client->catalog->view, request->options.view, sizeof client->catalog->view) != 0)
		r = -EBADMSG;
	if (r == 0 && cnre_cookies_wanted())
		r = cnre_cookies_init(&client->cookies, client->reserve_slabs);
	if (r < 0)
		return r;
	client->claim = calloc(client->object_count, sizeof *client->claim);
	client->prefetch = calloc(client->object_count, sizeof *client->prefetch);
	if ((client->claim == NULL || client->prefetch == NULL) && client->object_count > 0)
		return -ENOMEM;
	if ((request->options.flags & CNRE_NO_EXPERTS) == 0) {
		r = cnre_map_pool(client, request->deadline_ns);
		if (r < 0)
			return r;
	}
	return cnre_registry_enter(client);
}

static int attach_once(struct cnre *client, const struct cnre_attach_request *request,
		       const struct cnre_endpoint *endpoint)
{
	int r = cnre_session_open(client, request, endpoint);

	if (r < 0)
		return r;
	r = complete(client, request);
	if (r < 0) {
		cnre_map_done(client);
		cnre_session_close(client);
		free_completed(client);
	}
	return r;
}

/* Before the next try, where the manager is short of something for a while. 0: there is no time for one. */
static int rest(int64_t deadline_ns)
{
	int64_t left_ns = cnre_clock_left_ns(deadline_ns);
	const struct timespec pause = {.tv_nsec = left_ns < ATTACH_PAUSE_NS ? left_ns : ATTACH_PAUSE_NS};

	if (left_ns > 0)
		(void)nanosleep(&pause, NULL);
	return left_ns > 0;
}

/*
 * -EPIPE: the manager welcomed us and hung up before the pool was mapped, as one does that cannot be continued by its
 * successor. Nobody has seen the session yet, so this is no other case than an end of file before the welcome (R30).
 */
static int attach_at(struct cnre *client, const struct cnre_attach_request *request,
		     const struct cnre_endpoint *endpoint)
{
	int r, was_short = 0;

	if (cnre_registry_has(endpoint->path, request->by_path ? request->fingerprint.identity : NULL, request->model,
			      request->options.view))
		return -EBUSY;
	do {
		r = -EPIPE;
		for (int i = 0; i < ATTACH_TRIES_MAX && r == -EPIPE; i++)
			r = attach_once(client, request, endpoint);
		was_short |= r == -EAGAIN;
	} while (r == -EAGAIN && rest(request->deadline_ns));
	if (was_short && (r == -EAGAIN || r == -ETIMEDOUT))
		return -EMFILE; /* what time ran out for */
	return r == -EPIPE ? -ECONNREFUSED : r;
}

/* The system's manager may not be there, not be for us, or not serve this model; then this user's own is asked. */
static int may_try_next(int r)
{
	return r == -ECONNREFUSED || r == -EACCES || r == -EPERM || r == -ENOENT;
}

static int attach_somewhere(struct cnre *client, const struct cnre_attach_request *request)
{
	struct cnre_endpoint endpoints[CNRE_ENDPOINTS_MAX];
	int count = cnre_endpoint_list(request->options.socket, request->by_path ? request->fingerprint.identity : NULL,
				       endpoints);
	int r = count;

	for (int i = 0; i < count; i++) {
		r = attach_at(client, request, &endpoints[i]);
		if (r == 0 || !may_try_next(r))
			break;
	}
	return r;
}

static int64_t attach_deadline(int64_t timeout_ns)
{
	return cnre_clock_deadline_ns(timeout_ns == 0 ? CNRE_ATTACH_POLL_NS : timeout_ns);
}

static int read_request(struct cnre_attach_request *request, const char *model, const struct cnre_options *options)
{
	struct cnre_endpoint endpoints[CNRE_ENDPOINTS_MAX];
	int r = cnre_options_read(options, &request->options);

	if (r < 0)
		return r;
	request->deadline_ns = attach_deadline(request->options.timeout_ns);
	r = cnre_endpoint_list(request->options.socket, NULL, endpoints); /* "none" fails before anything is read */
	return r < 0 ? r : cnre_options_find_model(request, model);
}

int cnre_attach(struct cnre **ret_client, const char *model, const struct cnre_options *options)
{
	struct cnre_attach_request *request;
	struct cnre *client;
	int r;

	if (ret_client == NULL || model == NULL)
		return -EINVAL;
	request = calloc(1, sizeof *request);
	if (request == NULL)
		return -ENOMEM;
	r = read_request(request, model, options);
	if (r < 0)
		goto free_request;
	r = make_client(&client);
	if (r < 0)
		goto free_request;
	r = cnre_vram_init(client, request->options.flags);
	if (r == 0)
		r = attach_somewhere(client, request);
	if (r < 0) {
		free_private(client);
	} else {
		client->places = request->places;
		request->places = NULL;
		*ret_client = client;
	}
free_request:
	(void)cnre_places_close(request->places);
	free(request);
	return r;
}

void cnre_detach(struct cnre *client)
{
	if (client == NULL)
		return;
	if (cnre_client_check(client) == -ECHILD) {
		free_private(client); /* the mappings did not come along, the socket is closed */
		return;
	}
	/* It waits for streams first, whose leases are of either kind. */
	if (cnre_vram_is_busy(client) || cnre_gauge_held(client) > 0 || cnre_kv_space_pins(client) > 0) {
		/* Someone still reads: mappings, session and socket stay until this process ends. */
		cnre_registry_linger(client);
		return;
	}
	cnre_registry_leave(client);
	cnre_kv_space_close_all(client);
	cnre_vram_close(client);
	cnre_map_done(client);
	cnre_session_close(client);
	(void)pthread_cond_destroy(&client->asked);
	(void)pthread_mutex_destroy(&client->control);
	(void)pthread_mutex_destroy(&client->admission);
	(void)pthread_mutex_destroy(&client->kv_lock);
	free_private(client);
}
