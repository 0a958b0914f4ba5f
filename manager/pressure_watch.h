/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says about memory that runs short: a trigger of pressure stall information (PSI), and the count of OOM
 * kills of the manager's cgroup.
 *
 * A trigger forgets its event when it is polled, and the loop sleeps in a ring that polls an epoll set that polls the
 * file: the outer poll would eat what the inner one is to report. So a thread of its own polls the file and nothing else,
 * and passes the event on by an eventfd, which stays readable until it is read.
 */
#ifndef CNRE_MANAGER_PRESSURE_WATCH_H
#define CNRE_MANAGER_PRESSURE_WATCH_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define PRESSURE_PATH_BYTES 4096u

/* Whose windows are multiples of 2 s may be set without privilege, from Linux 6.5 on. */
#define PRESSURE_TRIGGER "some 200000 2000000"

/* systemd's variable (sd_event_add_memory_pressure(3)): the file to watch, or /dev/null: none. */
#define PRESSURE_WATCH_VARIABLE "MEMORY_PRESSURE_WATCH"

/* For tests only: a file to read in place of memory.events. */
#define PRESSURE_TEST_EVENTS_VARIABLE "CNRE_TEST_MEMORY_EVENTS"

struct pressure_watch {
	int event_fd;                   /* readable: somebody waited for memory; -1: nothing is watched */
	char path[PRESSURE_PATH_BYTES]; /* what is watched; "": nothing */
	char reason[160];               /* why nothing is; "": it is */
	const char *advice;             /* what would help; "": nothing is needed */
	int file_fd, stop_fd, is_fifo;
	pthread_t thread;
};

/*
 * Watches $MEMORY_PRESSURE_WATCH, else memory.pressure of the own cgroup (v2), else that of the machine. 0, or -errno and
 * a reason.
 */
int pressure_watch_open(struct pressure_watch *watch);
void pressure_watch_close(struct pressure_watch *watch);

/* What to do about an -errno of pressure_watch_open. */
const char *pressure_watch_advice(int error);

/* The number behind the word oom_kill, in memory.events (v2) or memory.oom_control (v1). 0 or -EBADMSG. */
int pressure_parse_kills(const char *text, uint64_t *ret_kills);

/*
 * Where it stands how often somebody in the manager's cgroup was killed for memory, and the number. Under v2 a service asks its slice, whose count holds
 * that of its services, since the cgroup of a service is made anew when it is started again. 0 or -errno.
 */
int pressure_find_kills(char ret_path[PRESSURE_PATH_BYTES]);
int pressure_read_kills(const char *path, uint64_t *ret_kills);

#endif
