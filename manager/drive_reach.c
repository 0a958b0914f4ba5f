/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file of a degraded drive can be opened and read, found out by a thread of that drive. The loader opens files on the
 * core thread, and an open may take as long as a network's file system waits for its server: everybody would wait with it, at
 * each probe again. So the loader opens what a thread could open a moment ago.
 *
 * Core thread only; the thread touches the struct drive_reach of its job, until it is done.
 */
#include "manager/drive_inner.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void try_to_reach(struct worker_job *job)
{
	struct drive_reach *reach = (struct drive_reach *)job;
	char page[512];
	uint64_t bytes;
	int64_t got;
	int fd = cnre_file_open(AT_FDCWD, reach->path, &bytes);

	reach->result = fd < 0 ? fd : 0;
	if (fd < 0)
		return;
	got = cnre_file_read(fd, page, sizeof page, reach->off); /* how much, the loader shall judge */
	reach->result = got < 0 ? (int)got : 0;
	(void)close(fd);
}

static void reached(struct worker_job *job)
{
	struct drive_reach *reach = (struct drive_reach *)job;

	free(reach->path);
	reach->path = NULL;
	reach->is_out = 0;
	drive_probe_reached(reach->manager, reach->drive, reach->result);
}

static void something_reached(struct loop_source *source, uint32_t events)
{
	struct drive_reach *reach = (struct drive_reach *)((char *)source - offsetof(struct drive_reach, source));

	(void)events;
	(void)worker_reap(reach->worker);
}

static int open_thread(struct drive_reach *reach)
{
	int r = worker_open_background(&reach->worker, 1);

	if (r < 0)
		return r;
	reach->job = (struct worker_job){.run = try_to_reach, .done = reached};
	reach->source = (struct loop_source){.fd = worker_event_fd(reach->worker), .ready = something_reached};
	r = loop_add(reach->manager->loop, &reach->source, EPOLLIN);
	if (r < 0)
		reach->worker = worker_close(reach->worker);
	return r;
}

int drive_reach_begin(struct manager *manager, uint32_t drive, const char *path, uint64_t off)
{
	struct drive_reach *reach = &manager->drives->drive[drive].reach;
	int r = 0;

	reach->manager = manager;
	reach->drive = drive;
	if (reach->worker == NULL)
		r = open_thread(reach);
	if (r < 0)
		return r;
	reach->path = strdup(path);
	if (reach->path == NULL)
		return -ENOMEM;
	reach->off = off;
	reach->is_out = 1;
	worker_submit(reach->worker, &reach->job);
	return 0;
}

int drive_reach_close(struct drive_reach *reach)
{
	if (reach->worker == NULL)
		return 0;
	loop_remove(reach->manager->loop, &reach->source);
	if (worker_drain(reach->worker, DRIVE_REACH_STOP_NS) < 0)
		return -ETIMEDOUT;
	reach->worker = worker_close(reach->worker);
	free(reach->path);
	reach->path = NULL;
	return 0;
}
