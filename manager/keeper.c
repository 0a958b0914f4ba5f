/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping descriptors for a manager that may die; see keeper.h. */
#include "manager/keeper.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/keep_wire.h"
#include "manager/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_PASSED 3

struct kept {
	char name[KEEP_NAME_BYTES]; /* empty: free */
	int fd;
};

/* All of it static: nothing is allocated while it runs. */
struct keeper {
	char *const *argv;
	int socket; /* our end */
	int signals;
	int pidfd;              /* of the manager */
	pid_t pid;              /* 0: it is not our child (keeper_run_for_manager) */
	int was_ready;          /* some incarnation has served */
	int ready, stopping;    /* what this one said */
	uint32_t failed_starts; /* in a row */
	uint32_t restarts;
	int64_t restarts_since_ns;
	uint32_t kept_count; /* used part of kept[] */
	struct kept kept[STORE_FDS_MAX];
};
static struct keeper keeper;

/* ---- descriptors ---- */

static void forget(const char *name)
{
	for (uint32_t i = 0; i < keeper.kept_count; i++) {
		if (strcmp(keeper.kept[i].name, name) != 0)
			continue;
		(void)close(keeper.kept[i].fd);
		keeper.kept[i].name[0] = '\0';
	}
	while (keeper.kept_count > 0 && keeper.kept[keeper.kept_count - 1].name[0] == '\0')
		keeper.kept_count--;
}

/* A name that is kept already is replaced: after a new keeper came the manager sends everything once more. */
static void keep(const char *name, int fd)
{
	forget(name);
	for (uint32_t i = 0; i < STORE_FDS_MAX; i++) {
		if (keeper.kept[i].name[0] != '\0')
			continue;
		(void)snprintf(keeper.kept[i].name, sizeof keeper.kept[i].name, "%s", name);
		keeper.kept[i].fd = fd;
		if (i >= keeper.kept_count)
			keeper.kept_count = i + 1;
		return;
	}
	(void)close(fd);
	cnre_log(CNRE_LOG_WARNING, "keeper: no room for %s: it will not survive a restart", name);
}

/* One datagram of the manager. 0 there may be more, negative none now. */
static int take_datagram(void)
{
	char text[KEEP_TEXT_MAX];
	int fds[KEEP_FDS_MAX];
	size_t fd_count = 0, used = 0;
	struct keep_message message = {0};
	int r = keep_receive(keeper.socket, text, fds, &fd_count);

	if (r < 0)
		return r;
	if (keep_parse(text, (size_t)r, &message) == 0) {
		keeper.ready |= message.ready;
		keeper.was_ready |= message.ready;
		keeper.stopping |= message.stopping;
		if (message.remove && message.name[0] != '\0')
			forget(message.name);
		if (message.store && message.name[0] != '\0' && fd_count > 0)
			keep(message.name, fds[used++]);
		else if (message.store)
			cnre_log(CNRE_LOG_WARNING, "keeper: no descriptor came with %s: it will not survive a restart",
				 message.name);
	}
	while (used < fd_count)
		(void)close(fds[used++]); /* also a barrier's: closing it is the answer */
	return r == 0 ? -EPIPE : 0;
}

static void take_all(void)
{
	while (take_datagram() == 0)
		;
}

/* ---- starting a manager ---- */

static void set_number(const char *name, long value)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%ld", value);
	(void)setenv(name, text, 1);
}

/*
 * In the child: descriptors to 3, 4, …; the keeper's socket behind them. Each is first moved out of the way, above
 * everything that is open, so that no target is overwritten before it was moved itself.
 */
static int place_descriptors(int socket)
{
	static char names[STORE_FDS_MAX * KEEP_NAME_BYTES];
	size_t length = 0;
	int above = FIRST_PASSED + (int)keeper.kept_count + 1, count = 0;

	for (uint32_t i = 0; i < keeper.kept_count; i++) {
		if (keeper.kept[i].name[0] == '\0')
			continue;
		keeper.kept[count].fd = fcntl(keeper.kept[i].fd, F_DUPFD, above);
		if (keeper.kept[count].fd < 0)
			return -errno;
		length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", count > 0 ? ":" : "",
					   keeper.kept[i].name);
		count++;
	}
	socket = fcntl(socket, F_DUPFD, above);
	if (socket < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		if (dup2(keeper.kept[i].fd, FIRST_PASSED + i) < 0)
			return -errno;
		(void)close(keeper.kept[i].fd);
	}
	if (dup2(socket, FIRST_PASSED + count) < 0)
		return -errno;
	(void)close(socket);
	set_number("LISTEN_PID", getpid());
	set_number("LISTEN_FDS", count);
	(void)setenv("LISTEN_FDNAMES", names, 1);
	set_number(STORE_KEEPER_ENVIRONMENT, FIRST_PASSED + count);
	return 0;
}

static void exec_manager(int socket)
{
	sigset_t none;
	int r = place_descriptors(socket);

	if (r < 0) { /* rather none than one who takes a number for another's descriptor */
		cnre_log(CNRE_LOG_ERROR, "keeper: cannot hand over %u descriptors: %s", keeper.kept_count,
			 strerror(-r));
		_exit(1);
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execv("/proc/self/exe", keeper.argv);
	cnre_log(CNRE_LOG_ERROR, "keeper: cannot start the manager: %s", strerror(errno));
	_exit(1);
}

static int start_manager(void)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	keeper.pid = fork();
	if (keeper.pid < 0) {
		r = -errno;
		(void)close(pair[0]);
		(void)close(pair[1]);
		return r;
	}
	if (keeper.pid == 0)
		exec_manager(pair[1]);
	(void)close(pair[1]);
	if (keeper.socket >= 0)
		(void)close(keeper.socket);
	keeper.socket = pair[0];
	keeper.stopping = keeper.ready = 0;
	keeper.pidfd = (int)syscall(SYS_pidfd_open, keeper.pid, 0);
	return keeper.pidfd < 0 ? -errno : 0;
}

/* ---- watching ---- */

static int may_restart(void)
{
	int64_t now_ns = cnre_clock_now_ns();

	keeper.failed_starts = keeper.ready ? 0 : keeper.failed_starts + 1;
	if (keeper.failed_starts >= KEEPER_FAILED_STARTS_MAX)
		return 0;
	if (now_ns - keeper.restarts_since_ns > KEEPER_RESTARTS_NS) {
		keeper.restarts_since_ns = now_ns;
		keeper.restarts = 0;
	}
	return keeper.restarts++ < KEEPER_RESTARTS_MAX;
}

/* The manager has ended: -1 another one runs, or the exit status of the whole. */
static int manager_ended(void)
{
	int status = 0;

	take_all(); /* what it sent before its end counts */
	(void)close(keeper.pidfd);
	keeper.pidfd = -1;
	if (keeper.pid > 0)
		(void)waitpid(keeper.pid, &status, 0);
	if (keeper.stopping || (keeper.pid > 0 && WIFEXITED(status) && (!keeper.was_ready || WEXITSTATUS(status) == 0)))
		return keeper.pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	if (!keeper.was_ready && keeper.pid > 0 && WIFSIGNALED(status))
		return 1;
	if (!may_restart()) {
		cnre_log(CNRE_LOG_ERROR, "keeper: the manager ended %u times within a minute: giving up",
			 KEEPER_RESTARTS_MAX);
		return 1;
	}
	cnre_log(CNRE_LOG_WARNING, "keeper: the manager ended unexpectedly: starting the next one with %u descriptors",
		 keeper.kept_count);
	if (start_manager() < 0)
		return 1;
	return -1;
}

static void pass_on_signal(void)
{
	struct signalfd_siginfo info;

	if (read(keeper.signals, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	if (info.ssi_signo != SIGCHLD)
		(void)syscall(SYS_pidfd_send_signal, keeper.pidfd, (int)info.ssi_signo, NULL, 0);
}

static int open_signals(void)
{
	sigset_t wanted;

	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGTERM);
	(void)sigaddset(&wanted, SIGINT);
	(void)sigaddset(&wanted, SIGHUP);
	(void)sigaddset(&wanted, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &wanted, NULL);
	keeper.signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return keeper.signals < 0 ? -errno : 0;
}

/* Most descriptors are the keeper's: it may open as many as the hard limit says. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int watch(void)
{
	for (;;) {
		struct pollfd ready[] = {{.fd = keeper.socket, .events = POLLIN},
					 {.fd = keeper.signals, .events = POLLIN},
					 {.fd = keeper.pidfd, .events = POLLIN}};

		if (poll(ready, 3, -1) < 0)
			continue;
		if (ready[0].revents != 0)
			take_all();
		if (ready[1].revents != 0)
			pass_on_signal();
		if (ready[2].revents != 0) {
			int status = manager_ended();

			if (status >= 0)
				return status;
		}
	}
}

static void begin(char *const argv[])
{
	keeper.argv = argv;
	keeper.socket = keeper.pidfd = -1;
	(void)prctl(PR_SET_NAME, "cnre-keeper");
	raise_descriptor_limit();
}

int keeper_run(char *const argv[], int listen_fd)
{
	int r;

	begin(argv);
	if (listen_fd >= 0)
		keep("listen", listen_fd);
	r = open_signals();
	if (r == 0)
		r = start_manager();
	if (r < 0) {
		cnre_log(CNRE_LOG_ERROR, "keeper: cannot start: %s", strerror(-r));
		return 1;
	}
	return watch();
}

int keeper_run_for_manager(char *const argv[], int *ret_status)
{
	const char *text = getenv(KEEPER_FOR_ENVIRONMENT);
	int socket, pidfd;

	if (text == NULL)
		return 0;
	(void)unsetenv(KEEPER_FOR_ENVIRONMENT);
	*ret_status = 1;
	if (sscanf(text, "%d,%d", &socket, &pidfd) != 2)
		return 1;
	begin(argv);
	if (open_signals() < 0)
		return 1;
	keeper.socket = socket;
	keeper.pidfd = pidfd;
	keeper.ready = keeper.was_ready = 1;
	(void)fcntl(socket, F_SETFD, FD_CLOEXEC);
	(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(socket, F_SETFL, O_NONBLOCK);
	*ret_status = watch();
	return 1;
}

int keeper_start(char *const argv[])
{
	int pair[2], pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	pid_t child;

	if (pidfd < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		(void)close(pidfd);
		return -errno;
	}
	child = fork();
	if (child == 0) {
		char text[32];

		if (fork() != 0)
			_exit(0); /* nobody's child: the manager never waits for it */
		(void)setsid();
		(void)fcntl(pair[1], F_SETFD, 0);
		(void)fcntl(pidfd, F_SETFD, 0);
		(void)snprintf(text, sizeof text, "%d,%d", pair[1], pidfd);
		(void)setenv(KEEPER_FOR_ENVIRONMENT, text, 1);
		(void)execv("/proc/self/exe", argv);
		_exit(1);
	}
	(void)close(pair[1]);
	(void)close(pidfd);
	if (child < 0) {
		(void)close(pair[0]);
		return -EAGAIN;
	}
	(void)waitpid(child, NULL, 0); /* ends at once */
	return pair[0];
}
