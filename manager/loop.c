/* SPDX-License-Identifier: Apache-2.0 */
/* epoll for the control plane, the ring or epoll_wait to sleep in; see loop.h. */
#include "manager/loop.h"

#include "base/check.h"
#include "base/clock.h"
#include "manager/loader.h"

#include <errno.h>
#include <liburing.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64

struct loop {
	int epoll_fd;
	int ring_poll_armed;
	int event_count;
	struct epoll_event event[EVENTS_MAX];
};

int loop_open(struct loop **ret_loop)
{
	struct loop *loop = calloc(1, sizeof *loop);
	int r;

	if (loop == NULL)
		return -ENOMEM;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0) {
		r = -errno;
		free(loop);
		return r;
	}
	*ret_loop = loop;
	return 0;
}

struct loop *loop_close(struct loop *loop)
{
	if (loop != NULL) {
		(void)close(loop->epoll_fd);
		free(loop);
	}
	return NULL;
}

static int control(struct loop *loop, int operation, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(loop->epoll_fd, operation, source->fd, &event) < 0 ? -errno : 0;
}

int loop_add(struct loop *loop, struct loop_source *source, uint32_t events)
{
	source->pending = 0;
	return control(loop, EPOLL_CTL_ADD, source, events);
}

int loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
	return control(loop, EPOLL_CTL_MOD, source, events);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	(void)control(loop, EPOLL_CTL_DEL, source, 0); /* the descriptor may be gone already */
	/* An event of this source may be waiting in the batch being handed out; its object is about to be freed. */
	if (source->pending > 0)
		loop->event[source->pending - 1].data.ptr = NULL;
	source->pending = 0;
}

static void hand_out(struct loop *loop, int count)
{
	for (int i = 0; i < count; i++)
		((struct loop_source *)loop->event[i].data.ptr)->pending = i + 1;
	for (int i = 0; i < count; i++) {
		struct loop_source *source = loop->event[i].data.ptr;

		if (source == NULL)
			continue;
		source->pending = 0;
		source->ready(source, loop->event[i].events);
	}
}

static void wait_epoll(struct loop *loop, int timeout_ms)
{
	int count = epoll_wait(loop->epoll_fd, loop->event, EVENTS_MAX, timeout_ms);

	if (count > 0)
		hand_out(loop, count);
}

void loop_poll(struct loop *loop)
{
	wait_epoll(loop, 0);
}

void loop_ring_fired(struct loop *loop)
{
	loop->ring_poll_armed = 0;
}

/* The one poll operation on the epoll set. A full submission queue leaves it for the next turn: then do not sleep. */
static int arm_ring_poll(struct loop *loop, struct io_uring *ring)
{
	struct io_uring_sqe *entry;

	if (loop->ring_poll_armed)
		return 0;
	entry = io_uring_get_sqe(ring);
	if (entry == NULL)
		return -EAGAIN;
	io_uring_prep_poll_add(entry, loop->epoll_fd, POLLIN);
	io_uring_sqe_set_data64(entry, LOOP_RING_USER_DATA);
	loop->ring_poll_armed = 1;
	return 0;
}

static void wait_ring(struct loop *loop, struct io_uring *ring, int64_t left_ns)
{
	struct __kernel_timespec timeout = {.tv_sec = left_ns / CNRE_NS_PER_S, .tv_nsec = left_ns % CNRE_NS_PER_S};
	struct io_uring_cqe *completion;

	if (arm_ring_poll(loop, ring) < 0) {
		(void)io_uring_submit(ring);
		return;
	}
	/* -ETIME, -EINTR and a full completion queue all mean: look at everything once more. */
	(void)io_uring_submit_and_wait_timeout(ring, &completion, 1, left_ns == CNRE_NEVER ? NULL : &timeout, NULL);
}

void loop_wait(struct loop *loop, struct loader *loader, int64_t deadline_ns)
{
	struct io_uring *ring = loader_ring(loader);
	int64_t left_ns = cnre_clock_left_ns(deadline_ns);

	if (ring != NULL) {
		wait_ring(loop, ring, left_ns);
		return;
	}
	if (left_ns == CNRE_NEVER)
		wait_epoll(loop, -1);
	else
		wait_epoll(loop, left_ns / CNRE_NS_PER_MS >= INT_MAX
					 ? INT_MAX
					 : (int)((left_ns + CNRE_NS_PER_MS - 1) / CNRE_NS_PER_MS));
}
