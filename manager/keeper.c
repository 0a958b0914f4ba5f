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
#include <sys/eventfd.h>
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
	int socket; /* our end; -1: the other one is closed */
	int signals;
	int pidfd;     /* of the manager; -1: none runs */
	int sign;      /* of the manager that started us (struct keeper_link); -1: our child says it by its status */
	pid_t pid;     /* 0: it is not our child (keeper_run_for_manager) */
	int was_ready; /* some incarnation has served */
	int ready, stopping;    /* what this one said */
	int told_to_end;        /* by a signal: nothing is started any more */
	int64_t start_at_ns;    /* the next one, when none runs */
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

static size_t name_bytes(void)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < keeper.kept_count; i++)
		bytes += keeper.kept[i].name[0] != '\0' ? strlen(keeper.kept[i].name) + 1 : 0;
	return bytes;
}

/* A name that is kept already is replaced. More names than the next manager can be given would end them all. */
static void keep(const char *name, int fd)
{
	int fits;

	forget(name);
	fits = name_bytes() + strlen(name) + 1 <= KEEP_NAMES_BYTES_MAX;
	for (uint32_t i = 0; fits && i < STORE_FDS_MAX; i++) {
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
			cnre_log(
				CNRE_LOG_WARNING,
				"keeper: no descriptor came with %s: it will not survive a restart; raise the limit: ulimit -Hn",
				message.name);
	}
	while (used < fd_count)
		(void)close(fds[used++]); /* also a barrier's: closing it is the answer */
	return r == 0 ? -EPIPE : 0;
}

static void take_all(void)
{
	int r = 0;

	while (keeper.socket >= 0 && r == 0)
		r = take_datagram();
	if (r == 0 || r == -EAGAIN || r == -EINTR)
		return;
	(void)close(keeper.socket); /* or poll would tell of it again and again */
	keeper.socket = -1;
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
	static char names[KEEP_NAMES_BYTES_MAX];
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
		cnre_log(CNRE_LOG_ERROR,
			 "keeper: cannot hand over %u descriptors: %s: raise the limit: ulimit -Hn, prlimit -n -p %d",
			 keeper.kept_count, strerror(-r), (int)getppid());
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
	int pair[2], pidfd, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	pid = fork();
	if (pid == 0)
		exec_manager(pair[1]);
	r = pid < 0 ? -errno : 0;
	(void)close(pair[1]);
	if (r < 0)
		goto close_ours;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) { /* its end would not be seen */
		r = -errno;
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		goto close_ours;
	}
	if (keeper.socket >= 0)
		(void)close(keeper.socket);
	keeper.socket = pair[0];
	keeper.pidfd = pidfd;
	keeper.pid = pid;
	keeper.stopping = keeper.ready = 0;
	return 0;

close_ours:
	(void)close(pair[0]);
	return r;
}

/* ---- watching ---- */

static int64_t backoff_ns(uint32_t failed_starts)
{
	int64_t pause_ns = failed_starts > 0 ? KEEPER_BACKOFF_NS : 0;

	for (uint32_t i = 1; i < failed_starts && pause_ns < KEEPER_BACKOFF_MOST_NS; i++)
		pause_ns *= 2;
	return pause_ns < KEEPER_BACKOFF_MOST_NS ? pause_ns : KEEPER_BACKOFF_MOST_NS;
}

static int give_up(uint32_t count, const char *what)
{
	cnre_log(
		CNRE_LOG_ERROR,
		"keeper: giving up: the manager %s %u times: its clients read on what they hold and get nothing new; mend what "
		"the lines above tell of, start cnre-managerd again as before, and let clients attach again",
		what, count);
	return 1;
}

/* -1: the next one is going to be started, or the exit status of the whole. */
static int plan_start(void)
{
	int64_t now_ns = cnre_clock_now_ns(), pause_ns = backoff_ns(keeper.failed_starts);

	if (keeper.failed_starts >= KEEPER_FAILED_STARTS_MAX)
		return give_up(keeper.failed_starts, "could not be started");
	if (now_ns - keeper.restarts_since_ns > KEEPER_RESTARTS_NS) {
		keeper.restarts_since_ns = now_ns;
		keeper.restarts = 0;
	}
	if (keeper.restarts++ >= KEEPER_RESTARTS_MAX)
		return give_up(KEEPER_RESTARTS_MAX, "ended within a minute");
	keeper.start_at_ns = now_ns + pause_ns;
	cnre_log(CNRE_LOG_WARNING, "keeper: starting the next manager with %u descriptors in %d ms", keeper.kept_count,
		 (int)(pause_ns / 1000000));
	return -1;
}

static int start_next(void)
{
	int r = start_manager();

	if (r == 0)
		return -1;
	cnre_log(CNRE_LOG_ERROR, "keeper: cannot start a manager: %s: see the limits of processes and memory",
		 strerror(-r));
	keeper.failed_starts++;
	return plan_start();
}

/* The word of a manager whose exit status goes to somebody else. */
static int has_signed(void)
{
	uint64_t count;
	int has = keeper.sign >= 0 && read(keeper.sign, &count, sizeof count) == (ssize_t)sizeof count;

	if (keeper.sign >= 0)
		(void)close(keeper.sign);
	keeper.sign = -1; /* the next one is our child */
	return has;
}

/* The manager has ended: -1 another one comes, or the exit status of the whole. */
static int manager_ended(void)
{
	int status = 0, is_over, has_status;

	take_all(); /* what it sent before its end counts */
	(void)close(keeper.pidfd);
	keeper.pidfd = -1;
	if (keeper.pid > 0)
		(void)waitpid(keeper.pid, &status, 0);
	has_status = keeper.pid > 0 && WIFEXITED(status);
	is_over = has_signed() | keeper.stopping | keeper.told_to_end;
	if (is_over || (has_status && (!keeper.was_ready || WEXITSTATUS(status) == 0)))
		return has_status ? WEXITSTATUS(status) : 0;
	if (!keeper.was_ready)
		return 1;
	keeper.failed_starts = keeper.ready ? 0 : keeper.failed_starts + 1;
	cnre_log(CNRE_LOG_WARNING, "keeper: the manager ended unexpectedly");
	return plan_start();
}

static void take_signal(void)
{
	struct signalfd_siginfo info;

	if (read(keeper.signals, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	keeper.told_to_end |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
	if (keeper.pidfd >= 0)
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

/* Milliseconds, rounded up; -1: a manager runs, and may do so for ever. */
static int until_start(void)
{
	int64_t left_ns = keeper.start_at_ns - cnre_clock_now_ns();

	if (keeper.pidfd >= 0)
		return -1;
	return left_ns > 0 ? (int)((left_ns + 999999) / 1000000) : 0;
}

/* One event or none. -1 it goes on, or the exit status of the whole. */
static int watch_once(void)
{
	struct pollfd ready[] = {{.fd = keeper.socket, .events = POLLIN},
				 {.fd = keeper.signals, .events = POLLIN},
				 {.fd = keeper.pidfd, .events = POLLIN}};

	if (poll(ready, 3, until_start()) < 0)
		return -1;
	if (ready[0].revents != 0)
		take_all();
	if (ready[1].revents != 0)
		take_signal();
	if (ready[2].revents != 0)
		return manager_ended();
	if (keeper.pidfd < 0 && keeper.told_to_end)
		return 0;
	return until_start() == 0 ? start_next() : -1;
}

static int watch(void)
{
	int status;

	do
		status = watch_once();
	while (status < 0);
	return status;
}

static void begin(char *const argv[])
{
	keeper.argv = argv;
	keeper.socket = keeper.pidfd = keeper.sign = -1;
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
	int socket, pidfd, sign;

	if (text == NULL)
		return 0;
	*ret_status = 1;
	if (sscanf(text, "%d,%d,%d", &socket, &pidfd, &sign) != 3)
		return 1;
	(void)unsetenv(KEEPER_FOR_ENVIRONMENT);
	begin(argv);
	if (open_signals() < 0)
		return 1;
	keeper.socket = socket;
	keeper.pidfd = pidfd;
	keeper.sign = sign;
	keeper.ready = keeper.was_ready = 1;
	(void)fcntl(socket, F_SETFD, FD_CLOEXEC);
	(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(sign, F_SETFD, FD_CLOEXEC);
	(void)fcntl(socket, F_SETFL, O_NONBLOCK);
	*ret_status = watch();
	return 1;
}

/* In the child of a child: nobody's, so that the manager never waits for it. */
static void exec_keeper(char *const argv[], int socket, int pidfd, int sign)
{
	char text[48];

	(void)setsid();
	(void)fcntl(socket, F_SETFD, 0);
	(void)fcntl(pidfd, F_SETFD, 0);
	(void)fcntl(sign, F_SETFD, 0);
	(void)snprintf(text, sizeof text, "%d,%d,%d", socket, pidfd, sign);
	(void)setenv(KEEPER_FOR_ENVIRONMENT, text, 1);
	(void)execv("/proc/self/exe", argv);
	_exit(1);
}

static int fork_keeper(char *const argv[], int socket, int sign)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), r;
	pid_t child;

	if (pidfd < 0)
		return -errno;
	child = fork();
	if (child == 0) {
		if (fork() == 0)
			exec_keeper(argv, socket, pidfd, sign);
		_exit(0);
	}
	r = child < 0 ? -errno : 0;
	(void)close(pidfd);
	if (child > 0)
		(void)waitpid(child, NULL, 0); /* ends at once */
	return r;
}

int keeper_start(char *const argv[], struct keeper_link *ret_link)
{
	int pair[2], sign, r;

	sign = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sign < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		goto close_sign;
	}
	r = fork_keeper(argv, pair[1], sign);
	(void)close(pair[1]);
	if (r < 0)
		goto close_ours;
	*ret_link = (struct keeper_link){.socket = pair[0], .sign = sign};
	return 0;

close_ours:
	(void)close(pair[0]);
close_sign:
	(void)close(sign);
	return r;
}
