/* SPDX-License-Identifier: Apache-2.0 */
/* Files of PSI and of cgroups; see pressure_watch.h. */
#include "manager/pressure_watch.h"

#include "manager/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MACHINE_PRESSURE "/proc/pressure/memory"
#define EVENTS_BYTES 1024u /* memory.events has a few short lines */

/* ---- the thread ---- */

static void drain(int fd)
{
	char bytes[256];

	while (read(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes)
		;
}

/* Ends when it is told to, or when the file ends: POLLERR, its cgroup was removed. */
static void *watch_file(void *argument)
{
	const struct pressure_watch *watch = argument;
	const short wanted = watch->is_fifo ? POLLIN : POLLPRI;
	struct pollfd ready[2] = {{.fd = watch->file_fd, .events = wanted}, {.fd = watch->stop_fd, .events = POLLIN}};
	const uint64_t one = 1;

	for (;;) {
		int n = poll(ready, 2, -1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || ready[1].revents != 0 || (ready[0].revents & (POLLERR | POLLNVAL)) != 0)
			return NULL;
		if ((ready[0].revents & wanted) == 0)
			continue;
		if (watch->is_fifo)
			drain(watch->file_fd);
		(void)!write(watch->event_fd, &one, sizeof one); /* a full count is as good */
	}
}

static int start_thread(struct pressure_watch *watch)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&watch->thread, NULL, watch_file, watch);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

/* ---- the file ---- */

static int is_of_kernel(int fd)
{
	struct statfs system;

	return fstatfs(fd, &system) == 0 && (system.f_type == PROC_SUPER_MAGIC || system.f_type == CGROUP2_SUPER_MAGIC);
}

/* A trigger lives as long as its descriptor. A descriptor, or -errno; *ret_is_fifo: a service manager writes into it. */
static int open_trigger(const char *path, int *ret_is_fifo)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), r;
	struct stat status;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) < 0)
		goto failed;
	*ret_is_fifo = S_ISFIFO(status.st_mode);
	if (*ret_is_fifo)
		return fd;
	/* A wrong name must not have its first bytes overwritten. */
	if (!S_ISREG(status.st_mode) || !is_of_kernel(fd)) {
		(void)close(fd);
		return -EINVAL;
	}
	if (write(fd, PRESSURE_TRIGGER, sizeof PRESSURE_TRIGGER) >= 0) /* with its end, as the kernel wants it */
		return fd;
failed:
	r = -errno;
	(void)close(fd);
	return r;
}

const char *pressure_watch_advice(int error)
{
	switch (-error) {
	case EPERM:
	case EACCES:
	case EROFS:
		return "use Linux 6.5, where every user may, or systemd 254 and MemoryPressureWatch=on in a drop-in; before, only root may";
	case ENOENT:
	case EOPNOTSUPP:
		return "start the kernel with psi=1; it must be built with CONFIG_PSI";
	case ECANCELED:
		return "start the manager without " PRESSURE_WATCH_VARIABLE "=/dev/null";
	default:
		return "free memory, descriptors or threads, and start the manager again";
	}
}

static int try_file(struct pressure_watch *watch, const char *path)
{
	int fd = open_trigger(path, &watch->is_fifo);

	if (fd < 0) {
		(void)snprintf(watch->reason, sizeof watch->reason, "%.100s: %s", path, strerror(-fd));
		return fd;
	}
	watch->file_fd = fd;
	(void)snprintf(watch->path, sizeof watch->path, "%s", path);
	watch->reason[0] = '\0';
	return 0;
}

static int find_file(struct pressure_watch *watch)
{
	const char *named = getenv(PRESSURE_WATCH_VARIABLE);
	char directory[2 * BUDGET_PATH_BYTES], path[2 * BUDGET_PATH_BYTES + 32];

	if (named != NULL && strcmp(named, "/dev/null") == 0) {
		(void)snprintf(watch->reason, sizeof watch->reason, "turned off by " PRESSURE_WATCH_VARIABLE);
		return -ECANCELED;
	}
	if (named != NULL && named[0] == '/' && strlen(named) < sizeof watch->path && try_file(watch, named) == 0)
		return 0;
	if (budget_memory_group("/", directory, sizeof directory) == 2) {
		(void)snprintf(path, sizeof path, "%s/memory.pressure", directory);
		if (try_file(watch, path) == 0)
			return 0;
	}
	return try_file(watch, MACHINE_PRESSURE);
}

static void close_all(struct pressure_watch *watch)
{
	int *const fds[] = {&watch->file_fd, &watch->event_fd, &watch->stop_fd};

	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
		if (*fds[i] >= 0)
			(void)close(*fds[i]);
		*fds[i] = -1;
	}
	watch->path[0] = '\0';
}

int pressure_watch_open(struct pressure_watch *watch)
{
	int r;

	memset(watch, 0, sizeof *watch);
	watch->file_fd = watch->event_fd = watch->stop_fd = -1;
	watch->advice = "";
	r = find_file(watch);
	if (r < 0)
		goto not_found;
	watch->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	watch->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = watch->event_fd < 0 || watch->stop_fd < 0 ? -errno : start_thread(watch);
	if (r < 0) {
		(void)snprintf(watch->reason, sizeof watch->reason, "cannot start its thread: %s", strerror(-r));
		close_all(watch);
	}
not_found:
	if (r < 0)
		watch->advice = pressure_watch_advice(r);
	return r;
}

void pressure_watch_close(struct pressure_watch *watch)
{
	const uint64_t one = 1;

	if (watch->event_fd < 0)
		return;
	(void)!write(watch->stop_fd, &one, sizeof one);
	(void)pthread_join(watch->thread, NULL);
	close_all(watch);
}

/* ---- OOM kills ---- */

int pressure_parse_kills(const char *text, uint64_t *ret_kills)
{
	static const char key[] = "oom_kill ";

	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		unsigned long long kills;
		char *end;

		line += *line == '\n';
		if (strncmp(line, key, sizeof key - 1) != 0)
			continue;
		line += sizeof key - 1;
		if (*line < '0' || *line > '9')
			return -EBADMSG;
		errno = 0;
		kills = strtoull(line, &end, 10);
		if (errno != 0 || (*end != '\n' && *end != '\0'))
			return -EBADMSG;
		*ret_kills = kills;
		return 0;
	}
	return -EBADMSG;
}

int pressure_read_kills(const char *path, uint64_t *ret_kills)
{
	char text[EVENTS_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	if (n < 0)
		return -EIO;
	text[n] = '\0';
	return pressure_parse_kills(text, ret_kills);
}

static int ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), end_length = strlen(end);

	return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

int pressure_find_kills(char ret_path[PRESSURE_PATH_BYTES])
{
	const char *instead = getenv(PRESSURE_TEST_EVENTS_VARIABLE);
	char directory[2 * BUDGET_PATH_BYTES];
	int version;

	if (instead != NULL) {
		(void)snprintf(ret_path, PRESSURE_PATH_BYTES, "%s", instead);
		return 0;
	}
	version = budget_memory_group("/", directory, sizeof directory);
	if (version < 0)
		return version;
	if (version == 2 && ends_with(directory, ".service"))
		*strrchr(directory, '/') = '\0';
	(void)snprintf(ret_path, PRESSURE_PATH_BYTES, "%s/%s", directory,
		       version == 2 ? "memory.events" : "memory.oom_control");
	return 0;
}
