/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a manager on demand; see autostart.h. Everything that could allocate is done before fork(): between fork and
 * exec in a process with threads only async-signal-safe calls are allowed.
 */
#include "client/autostart.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "cnre-managerd"
#define IDLE_EXIT "10s"

static int is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

/* Beside the library as in a build tree, or where it would be installed with it. */
static int find_near_library(char *path)
{
	static const char *const places[] = {"", "../sbin/", "../../sbin/", NULL};
	char library[PATH_MAX];
	char *slash;
	Dl_info found;

	if (dladdr((const void *)&cnre_autostart, &found) == 0 || found.dli_fname == NULL ||
	    realpath(found.dli_fname, library) == NULL)
		return 0;
	slash = strrchr(library, '/');
	if (slash == NULL)
		return 0;
	slash[1] = '\0';
	for (unsigned i = 0; places[i] != NULL; i++) {
		int n = snprintf(path, PATH_MAX, "%s%s" PROGRAM, library, places[i]);

		if (n > 0 && n < PATH_MAX && is_program(path))
			return 1;
	}
	return 0;
}

static int find_in_path(char *path)
{
	const char *at = getenv("PATH");

	while (at != NULL && *at != '\0') {
		int bytes = (int)strcspn(at, ":");
		int n = snprintf(path, PATH_MAX, "%.*s/" PROGRAM, bytes, at);

		if (bytes > 0 && n > 0 && n < PATH_MAX && is_program(path))
			return 1;
		at += bytes;
		at += *at == ':';
	}
	return 0;
}

/* Where none is found the log (-1: there is none) says so, as a manager would say why it left. */
static int find_program(char path[PATH_MAX], int log)
{
	const char *given = getenv("CNRE_MANAGERD");

	if (given != NULL && given[0] != '\0') {
		int n = snprintf(path, PATH_MAX, "%s", given);

		if (n < PATH_MAX && is_program(path))
			return 0;
		if (log >= 0)
			(void)dprintf(log, "libcnre: CNRE_MANAGERD=%s: not a program that may be run\n", given);
		return -ENOENT;
	}
	if (find_near_library(path))
		return 0;
	(void)strcpy(path, "/usr/sbin/" PROGRAM);
	if (is_program(path) || find_in_path(path))
		return 0;
	if (log >= 0)
		(void)dprintf(log, "libcnre: no " PROGRAM " beside the library, in /usr/sbin or in PATH: "
				   "install it, or name it in CNRE_MANAGERD\n");
	return -ENOENT;
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_DFL); /* not possible for some, and then not needed */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Linux 5.9 has close_range; before it, up to a bound that covers any sane process. */
static void close_from_three(void)
{
	if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
		return;
	for (int fd = 3; fd < 65536; fd++)
		(void)close(fd);
}

/* Between fork and exec, where stdio is forbidden. */
static void say(const char *text)
{
	ssize_t written = write(STDERR_FILENO, text, strlen(text));

	(void)written; /* a log that takes no more: nobody is left to hear of it */
}

/* In the grandchild. Its standard input is the pipe's write end: never used, but it hangs up when the manager ends. */
static _Noreturn void become_manager(const char *program, char *const argv[], int life, int log)
{
	int null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, 3); /* the engine may have 0, 1 or 2 closed */
	int error;

	(void)dup2(life, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	(void)dup2(log >= 0 ? log : null, STDERR_FILENO);
	close_from_three();
	reset_signals();
	(void)execv(program, argv);
	error = errno;
	say("libcnre: cannot run ");
	say(program);
	say(": ");
	say(strerrordesc_np(error)); /* strerror may allocate */
	say("\n");
	_exit(127);
}

static int start(const char *program, char *const argv[], int life, int log)
{
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0) {
		pid_t manager;

		(void)setsid();
		manager = fork();
		if (manager == 0)
			become_manager(program, argv, life, log);
		_exit(manager < 0 ? 1 : 0);
	}
	for (int status;;) {
		if (waitpid(child, &status, 0) == child)
			return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EAGAIN;
		if (errno != EINTR)
			return 0; /* the engine's own SIGCHLD handler took it; whether a manager comes shows soon */
	}
}

/* A pipe whose ends are not 0, 1 or 2, where the manager's own descriptors will be put. */
static int make_pipe(int ends[2])
{
	int low[2], r = 0;

	if (pipe2(low, O_CLOEXEC) < 0)
		return -errno;
	ends[0] = fcntl(low[0], F_DUPFD_CLOEXEC, 3);
	ends[1] = fcntl(low[1], F_DUPFD_CLOEXEC, 3);
	if (ends[0] < 0 || ends[1] < 0)
		r = -errno;
	(void)close(low[0]);
	(void)close(low[1]);
	if (r < 0 && ends[0] >= 0)
		(void)close(ends[0]);
	if (r < 0 && ends[1] >= 0)
		(void)close(ends[1]);
	return r;
}

static int open_log(const char *path)
{
	int low = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	int fd;

	if (low < 0)
		return -errno;
	fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
	(void)close(low);
	return fd;
}

int cnre_autostart(const char *model_directory, const struct cnre_endpoint *endpoint, uint64_t private_bytes,
		   const char *view, int *ret_life)
{
	char program[PATH_MAX];
	char bytes[24];
	char *const argv[] = {(char *)PROGRAM,
			      (char *)"--model",
			      (char *)model_directory,
			      (char *)"--socket",
			      (char *)endpoint->path,
			      (char *)"--idle-exit",
			      (char *)IDLE_EXIT,
			      (char *)"--private-bytes",
			      bytes,
			      (char *)"--client-policy", /* whoever may connect to it may give it orders */
			      (char *)"own",
			      view[0] != '\0' ? (char *)"--try-view" : NULL,
			      (char *)view,
			      NULL};
	int ends[2] = {-1, -1};
	int log = open_log(endpoint->log); /* without a log it runs in silence */
	int r = find_program(program, log);

	if (r < 0)
		goto close_log;
	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)private_bytes);
	r = make_pipe(ends);
	if (r < 0)
		goto close_log;
	r = start(program, argv, ends[1], log);
	(void)close(ends[1]);
	if (r < 0)
		(void)close(ends[0]);
	else
		*ret_life = ends[0];
close_log:
	if (log >= 0)
		(void)close(log);
	return r;
}

/*
 * The manager holds an exclusive lock on this file for life (R30). A shared try is enough to see it, and is over before
 * a manager that starts now could mind: if it does, it leaves and is started again.
 */
int cnre_autostart_is_locked(const struct cnre_endpoint *endpoint)
{
	char path[CNRE_ENDPOINT_PATH_MAX + 8];
	int fd, locked;

	(void)snprintf(path, sizeof path, "%s.lock", endpoint->path);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return 0;
	locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	(void)close(fd);
	return locked;
}

int cnre_autostart_has_ended(int life)
{
	struct pollfd wanted = {.fd = life};

	return poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}
