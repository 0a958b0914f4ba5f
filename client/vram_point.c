/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks at points, and their table; see vram_point.h. */
#include "client/vram_point.h"

#include "base/clock.h"
#include "base/probe.h"
#include "client/hot.h"
#include "client/vram.h"

#include <signal.h>
#include <stdlib.h>

/* ---- the table; points->lock held ---- */

static struct cnre_point *take_unused(struct cnre_points *points)
{
	struct cnre_point *point = points->unused;

	if (point != NULL)
		points->unused = point->next;
	return point;
}

static void give_unused(struct cnre_points *points, struct cnre_point *point)
{
	point->next = points->unused;
	points->unused = point;
}

static struct cnre_point *take_all_that_came(struct cnre_points *points)
{
	struct cnre_point *first = points->come;

	points->come = NULL;
	return first;
}

/* ---- the thread ---- */

/* Its stream has passed it, or failed: then nothing after it runs, so nobody reads any more either. */
static void end(struct cnre *client, struct cnre_point *point)
{
	struct cnre_vram_table *table = point->table != 0 ? &client->vram->table[point->table - 1] : NULL;
	int r = -EINVAL;

	(void)gpu_point_free(point->point);
	if (point->is_leased)
		CNRE_PROBE(lease_released, client->session, point->object, point->lease);
	if (table == NULL) {
		if (point->is_leased)
			(void)cnre_lease_lower(client, point->object);
		return;
	}
	if (point->is_leased)
		r = cnre_vram_lease_lower(client, table, point->object);
	cnre_vram_table_unref(client, table, r < 0 ? 1 : 2); /* the point's own, and the lease's */
}

/* Ends those of a list that have passed. How many; the list is what is left. */
static uint32_t look(struct cnre *client, struct cnre_point **list, struct cnre_point **passed)
{
	uint32_t count = 0;

	while (*list != NULL) {
		struct cnre_point *point = *list;

		if (gpu_point_query(point->point) == 0) {
			list = &point->next;
			continue;
		}
		*list = point->next;
		end(client, point);
		point->next = *passed;
		*passed = point;
		count++;
	}
	return count;
}

static void append(struct cnre_point **list, struct cnre_point *more)
{
	while (*list != NULL)
		list = &(*list)->next;
	*list = more;
}

/* Lock held. Until something comes, or for a while where something is looked at. */
static void rest(struct cnre_points *points, int has_some, long *pause_ns)
{
	int64_t end_ns = cnre_clock_now_ns() + *pause_ns;
	struct timespec until = {.tv_sec = end_ns / CNRE_NS_PER_S, .tv_nsec = end_ns % CNRE_NS_PER_S};

	if (points->come != NULL || points->is_stopping)
		return;
	if (points->is_hurried && *pause_ns > CNRE_POINT_LOOK_MIN_NS) {
		points->is_hurried = 0;
		*pause_ns = CNRE_POINT_LOOK_MIN_NS;
		return;
	}
	if (has_some)
		(void)pthread_cond_timedwait(&points->changed, &points->lock, &until);
	else
		(void)pthread_cond_wait(&points->changed, &points->lock);
	*pause_ns = points->come != NULL || *pause_ns > CNRE_POINT_LOOK_MAX_NS / 2 ? *pause_ns : *pause_ns * 2;
}

static void *run(void *context)
{
	struct cnre *client = context;
	struct cnre_points *points = &client->vram->points;
	struct cnre_point *list = NULL, *passed = NULL;
	long pause_ns = CNRE_POINT_LOOK_MIN_NS;

	(void)pthread_mutex_lock(&points->lock);
	while (!points->is_stopping) {
		uint32_t count;

		append(&list, take_all_that_came(points));
		(void)pthread_mutex_unlock(&points->lock);
		count = look(client, &list, &passed);
		(void)pthread_mutex_lock(&points->lock);
		while (passed != NULL) {
			struct cnre_point *next = passed->next;

			give_unused(points, passed);
			passed = next;
		}
		points->pending -= count;
		points->passed += count;
		if (count > 0) {
			(void)pthread_cond_broadcast(&points->changed);
			pause_ns = CNRE_POINT_LOOK_MIN_NS;
		}
		rest(points, list != NULL, &pause_ns);
	}
	(void)pthread_mutex_unlock(&points->lock);
	return NULL;
}

/* Lock held. Signals are the program's own threads'. */
static int start(struct cnre *client)
{
	struct cnre_points *points = &client->vram->points;
	sigset_t all, before;
	int r;

	if (points->is_running)
		return 0;
	points->place = calloc(CNRE_POINTS_MAX, sizeof *points->place);
	if (points->place == NULL)
		return -ENOMEM;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&points->thread, NULL, run, client);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0) {
		free(points->place);
		points->place = NULL;
		return -r;
	}
	(void)pthread_setname_np(points->thread, "cnre-points");
	for (uint32_t i = 0; i < CNRE_POINTS_MAX; i++)
		give_unused(points, &points->place[i]);
	points->is_running = 1;
	return 0;
}

/* ---- from outside ---- */

void cnre_points_init(struct cnre_points *points)
{
	pthread_condattr_t attributes;

	(void)pthread_mutex_init(&points->lock, NULL); /* these do not fail on Linux */
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&points->changed, &attributes);
	(void)pthread_condattr_destroy(&attributes);
}

void cnre_points_free(struct cnre_points *points)
{
	free(points->place);
}

/* A place for one; -EAGAIN: all are pending. */
static int reserve(struct cnre *client, struct cnre_point **ret_point)
{
	struct cnre_points *points = &client->vram->points;
	int r;

	(void)pthread_mutex_lock(&points->lock);
	r = start(client);
	if (r == 0) {
		*ret_point = take_unused(points);
		r = *ret_point == NULL ? -EAGAIN : 0;
	}
	(void)pthread_mutex_unlock(&points->lock);
	return r;
}

static void unreserve(struct cnre_points *points, struct cnre_point *point)
{
	(void)pthread_mutex_lock(&points->lock);
	give_unused(points, point);
	(void)pthread_mutex_unlock(&points->lock);
}

static void hand_over(struct cnre_points *points, struct cnre_point *point)
{
	(void)pthread_mutex_lock(&points->lock);
	point->next = points->come;
	points->come = point;
	points->pending++;
	(void)pthread_cond_broadcast(&points->changed);
	(void)pthread_mutex_unlock(&points->lock);
}

uint32_t cnre_points_wait(struct cnre_points *points, int64_t deadline_ns)
{
	const struct timespec end = {.tv_sec = deadline_ns / CNRE_NS_PER_S, .tv_nsec = deadline_ns % CNRE_NS_PER_S};
	uint32_t pending;
	int r = 0;

	(void)pthread_mutex_lock(&points->lock);
	while (points->pending > 0 && r == 0)
		r = pthread_cond_timedwait(&points->changed, &points->lock, &end);
	pending = points->pending;
	(void)pthread_mutex_unlock(&points->lock);
	return pending;
}

int cnre_points_wait_one(struct cnre_points *points, int64_t deadline_ns)
{
	const struct timespec end = {.tv_sec = deadline_ns / CNRE_NS_PER_S, .tv_nsec = deadline_ns % CNRE_NS_PER_S};
	uint32_t passed;
	int r = 0;

	(void)pthread_mutex_lock(&points->lock);
	passed = points->passed;
	points->is_hurried = points->pending > 0;
	(void)pthread_cond_broadcast(&points->changed);
	while (points->pending > 0 && points->passed == passed && r == 0)
		r = pthread_cond_timedwait(&points->changed, &points->lock, &end);
	r = points->passed != passed;
	(void)pthread_mutex_unlock(&points->lock);
	return r;
}

void cnre_points_stop(struct cnre_points *points)
{
	int was_running;

	(void)pthread_mutex_lock(&points->lock);
	was_running = points->is_running;
	points->is_stopping = 1;
	(void)pthread_cond_broadcast(&points->changed);
	(void)pthread_mutex_unlock(&points->lock);
	if (was_running)
		(void)pthread_join(points->thread, NULL);
	(void)pthread_cond_destroy(&points->changed);
	(void)pthread_mutex_destroy(&points->lock);
}

/* ---- cnre_release_on_stream ---- */

/* The default streams have the same names on every device. */
static int is_named(const void *stream)
{
	return (uintptr_t)stream > 2;
}

/* Of a lease of memory nobody has said which device reads it: the stream is of one that the caller has used here. */
static int record_anywhere(struct cnre *client, void *stream, struct gpu_point **ret_point)
{
	struct gpu_import *found[CNRE_VRAM_DEVICES_MAX];
	uint32_t count = 0;
	int r = -ENODEV;

	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX; i++) {
		struct cnre_vram_device *device = &client->vram->device[i];

		/* [VP1] relaxed: set before the lease was made, or it is no business of this release. */
		if (atomic_load_explicit(&device->is_wanted, memory_order_relaxed) == 0)
			continue;
		if (cnre_vram_device_open(device, i) == 0)
			found[count++] = device->import; /* stays until detach */
	}
	if (count > 1 && !is_named(stream))
		return -EINVAL;
	for (uint32_t i = 0; i < count && r != 0; i++)
		r = gpu_point_record(found[i], stream, ret_point);
	return r;
}

/*
 * The lease is the caller's until here, so that a stream that cannot be recorded leaves it there. Of two releases of one copy
 * the later one finds it ended, or finds nothing that this client leases; its point passes for nothing.
 */
static int take_over(struct cnre *client, uint64_t lease, const struct cnre_vram_table *table, struct cnre_point *point)
{
	const _Atomic uint64_t *words = table != NULL ? table->ledger->word : client->ledger;
	int r = table != NULL ? cnre_vram_lease_object(client, lease, &point->object) : cnre_lease_object(client, lease, &point->object);

	/* [VP2] relaxed: a lease of the caller's own is seen. */
	if (r == 0 && CNRE_LEDGER_LEASES(atomic_load_explicit(&words[point->object], memory_order_relaxed)) == 0)
		r = -EINVAL;
	point->is_leased = r == 0;
	return r;
}

/* A use of the table goes with the point. */
static int release_at(struct cnre *client, struct cnre_expert *expert, struct cnre_vram_table *table, void *stream)
{
	struct cnre_points *points = &client->vram->points;
	struct cnre_point *point = NULL;
	int r = reserve(client, &point);

	if (r == 0) {
		r = table != NULL ? gpu_point_record(table->import, stream, &point->point) : record_anywhere(client, stream, &point->point);
		if (r < 0)
			unreserve(points, point);
	}
	if (r < 0) {
		if (table != NULL)
			cnre_vram_table_unref(client, table, 1);
		return r;
	}
	point->table = table != NULL ? table->number + 1 : 0;
	point->lease = expert->lease;
	r = take_over(client, expert->lease, table, point);
	if (r == 0)
		expert->lease = 0;
	if (r == 0 && table != NULL && cnre_vram_table_is_dead(table))
		r = -EPIPE;
	hand_over(points, point);
	return r;
}

int cnre_release_on_stream(struct cnre *client, struct cnre_expert *expert, void *cu_stream)
{
	struct cnre_vram_table *table = NULL;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (expert == NULL)
		return -EINVAL;
	if (expert->lease == 0)
		return 0;
	if (client->vram == NULL)
		return -ENODEV;
	if (cnre_vram_is_lease(expert->lease)) {
		table = cnre_vram_table_ref(client, cnre_vram_lease_table(expert->lease));
		if (table == NULL)
			return -EINVAL;
	}
	return release_at(client, expert, table, cu_stream);
}
