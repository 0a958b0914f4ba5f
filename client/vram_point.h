/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases that a stream still uses: each waits at a point in its stream, and goes down when the stream has passed it, or has
 * failed. One thread of the library looks at all of them and waits at none, so that a stream that hangs holds up no other;
 * it begins with the first point, and sleeps while there is none.
 *
 * Threads: any. A forked child has no such thread and calls nothing here.
 */
#ifndef CNRE_CLIENT_VRAM_POINT_H
#define CNRE_CLIENT_VRAM_POINT_H

#include <pthread.h>
#include <stdint.h>

#define CNRE_POINTS_MAX 1024u             /* pending at once; one more is -EAGAIN */
#define CNRE_POINT_LOOK_MIN_NS 50000L     /* between two looks; doubles while nothing passes */
#define CNRE_POINT_LOOK_MAX_NS 2000000L
#define CNRE_POINTS_ROOM_NS 2000000000LL /* how long an acquire beyond the reservation waits for one to pass */
#define CNRE_POINTS_DETACH_NS 2000000000LL /* how long cnre_detach waits for the last of them */

struct cnre;
struct gpu_point;

struct cnre_point {
	struct cnre_point *next;
	struct gpu_point *point;
	uint64_t lease;                   /* for the probe of its end */
	uint32_t object;
	uint32_t table;                   /* number + 1, and a use of it; 0: a lease of memory */
	int is_leased;                    /* 0: the lease was not the caller's; only the point is freed */
};

struct cnre_points {
	pthread_mutex_t lock;
	pthread_cond_t changed;           /* on CLOCK_MONOTONIC: something came, or all have passed, or the end is near */
	pthread_t thread;
	int is_running, is_stopping;
	int is_hurried;                   /* somebody waits for room: look now */
	uint32_t pending, passed;         /* passed: how many so far */
	struct cnre_point *unused, *come; /* come: not yet taken by the thread */
	struct cnre_point *place;         /* [CNRE_POINTS_MAX], with the thread */
};

void cnre_points_init(struct cnre_points *points);
void cnre_points_free(struct cnre_points *points);           /* memory only */
/* Waits until none is pending, or the deadline. How many are left. */
uint32_t cnre_points_wait(struct cnre_points *points, int64_t deadline_ns);
/* Looks now, and waits until one more has passed, or the deadline. 1, or 0: none did, or none is pending. */
int cnre_points_wait_one(struct cnre_points *points, int64_t deadline_ns);
void cnre_points_stop(struct cnre_points *points);           /* none is pending; joins the thread */

#endif
