/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core thread sleeps on. Control descriptors (sockets, pidfds, signals, timers' deadlines) are in one epoll
 * set. Where io_uring is allowed the thread sleeps in the ring, which also carries reads and bells, with a poll of the
 * epoll set among its operations; where it is forbidden, in epoll_wait with the pread pool's eventfd in the set.
 */
#ifndef CNRE_MANAGER_LOOP_H
#define CNRE_MANAGER_LOOP_H

#include <stdint.h>

struct loader;
struct loop;

/* A descriptor to watch, inside the object it belongs to. The callback may remove any source, itself too. */
struct loop_source {
	int fd;
	void (*ready)(struct loop_source *source, uint32_t events); /* EPOLL* bits */
	int pending;                      /* the loop's own: index + 1 among the events being handed out */
};

int loop_open(struct loop **ret_loop);
struct loop *loop_close(struct loop *loop);

int loop_add(struct loop *loop, struct loop_source *source, uint32_t events);
int loop_change(struct loop *loop, struct loop_source *source, uint32_t events);
void loop_remove(struct loop *loop, struct loop_source *source);

/*
 * Sleeps until something is ready, at most until deadline_ns (CNRE_NEVER: for ever), then hands out what is ready. The
 * loader's completions are reaped by the caller.
 */
void loop_wait(struct loop *loop, struct loader *loader, int64_t deadline_ns);

/* Hands out what is ready now, without sleeping. */
void loop_poll(struct loop *loop);

/* The loader's ring reports the poll of the epoll set with this user data (see loader_set_foreign). */
#define LOOP_RING_USER_DATA 1u
void loop_ring_fired(struct loop *loop);

#endif
