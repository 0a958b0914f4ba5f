/* SPDX-License-Identifier: Apache-2.0 */
/* Real programs under plain test programs; see daemon.h. */
#include "tests/support/daemon.h"

#include "tests/support/ready.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES (1u << 18)

int daemon_open(struct daemon *daemon)
{
	memset(daemon, 0, sizeof *daemon);
	(void)snprintf(daemon->directory, sizeof daemon->directory, "%s/cnre-test-XXXXXX",
		       getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/var/tmp");
	if (mkdtemp(daemon->directory) == NULL) {
		int r = -errno;

		daemon->directory[0] = '\0';
		return r;
	}
	(void)snprintf(daemon->model, sizeof daemon->model, "%s/model", daemon->directory);
	(void)snprintf(daemon->socket, sizeof daemon->socket, "%s/socket", daemon->directory);
	(void)snprintf(daemon->log, sizeof daemon->log, "%s/log", daemon->directory);
	return 0;
}

void daemon_close(struct daemon *daemon)
{
	const char *const arguments[] = {"-rf", daemon->directory, NULL};

	(void)daemon_stop(daemon, 20);
	if (strstr(daemon->directory, "/cnre-test-") != NULL)
		(void)daemon_run("/bin/rm", arguments, NULL, 0);
	daemon->directory[0] = '\0';
}

/* ---- programs ---- */

static void path_of(const char *program, char *path, size_t bytes)
{
	const char *build = getenv("CNRE_BUILD");

	if (program[0] == '/')
		(void)snprintf(path, bytes, "%s", program);
	else
		(void)snprintf(path, bytes, "%s/%s", build != NULL ? build : "build", program);
}

static void execute(const char *program, const char *const *arguments, int out, int err)
{
	const char *argv[DAEMON_ARGUMENTS_MAX + 1];
	char path[256];
	size_t count = 0;
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed leaves nobody behind */
	path_of(program, path, sizeof path);
	argv[count++] = path;
	for (; *arguments != NULL && count < DAEMON_ARGUMENTS_MAX; arguments++)
		argv[count++] = *arguments;
	argv[count] = NULL;
	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(out >= 0 ? out : nothing, STDOUT_FILENO);
	(void)dup2(err >= 0 ? err : nothing, STDERR_FILENO);
	(void)execv(path, (char *const *)argv);
	_exit(127);
}

static int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_all(int fd, char *output, size_t output_bytes)
{
	char scrap[4096];
	size_t length = 0;

	for (;;) {
		int has_room = output != NULL && length + 1 < output_bytes;
		ssize_t n = has_room ? read(fd, output + length, output_bytes - 1 - length)
				     : read(fd, scrap, sizeof scrap);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		length += has_room ? (size_t)n : 0;
	}
	if (output != NULL && output_bytes > 0)
		output[length] = '\0';
}

int daemon_run(const char *program, const char *const *arguments, char *output, size_t output_bytes)
{
	int pipe_fds[2], status = 0;
	pid_t child;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child == 0)
		execute(program, arguments, pipe_fds[1], pipe_fds[1]);
	(void)close(pipe_fds[1]);
	if (child > 0)
		read_all(pipe_fds[0], output, output_bytes);
	(void)close(pipe_fds[0]);
	if (child < 0)
		return -EAGAIN;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status_of(status);
}

int daemon_generate(struct daemon *daemon, const char *const *options)
{
	const char *arguments[DAEMON_ARGUMENTS_MAX + 1] = {"--family", "olmoe", "--out", daemon->model};
	char output[256] = "";
	size_t count = 4;

	for (; *options != NULL && count < DAEMON_ARGUMENTS_MAX; options++)
		arguments[count++] = *options;
	arguments[count] = NULL;
	if (daemon_run("cnre-gen", arguments, output, sizeof output) == 0)
		return 0;
	(void)snprintf(daemon->reason, sizeof daemon->reason, "cnre-gen: %s", output);
	return -1;
}

/* ---- the manager ---- */

static void execute_manager(struct daemon *daemon, const char *const *options, int ready)
{
	const char *arguments[DAEMON_ARGUMENTS_MAX + 1] = {"--model", daemon->model, "--socket", daemon->socket};
	int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	size_t count = 4;

	for (; *options != NULL && count < DAEMON_ARGUMENTS_MAX; options++)
		arguments[count++] = *options;
	arguments[count] = NULL;
	for (size_t i = 0; daemon->environment[i] != NULL; i++)
		(void)putenv((char *)daemon->environment[i]);
	execute("cnre-managerd", arguments, ready, log);
}

static void read_last_line(const char *path, char *line, size_t bytes)
{
	char text[1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, end > 1023 ? end - 1023 : 0);
	char *at;

	if (fd >= 0)
		(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	at = strrchr(text, '\n');
	(void)snprintf(line, bytes, "%.250s", at != NULL ? at + 1 : text);
}

int daemon_start(struct daemon *daemon, const char *const *options)
{
	char line[300];
	int pipe_fds[2], ready;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -1;
	daemon->pid = fork();
	if (daemon->pid == 0)
		execute_manager(daemon, options, pipe_fds[1]);
	(void)close(pipe_fds[1]);
	ready = daemon->pid > 0 && ready_wait(pipe_fds[0]);
	(void)close(pipe_fds[0]);
	if (ready)
		return 0;
	(void)daemon_stop(daemon, 5);
	read_last_line(daemon->log, line, sizeof line);
	(void)snprintf(daemon->reason, sizeof daemon->reason, "the manager did not get ready: %s", line);
	return -1;
}

int daemon_stop(struct daemon *daemon, int seconds)
{
	struct timespec pause = {.tv_nsec = 2000000};
	pid_t below = daemon_manager_pid(daemon);
	int status = 0, was_killed = 0;

	if (daemon->pid <= 0)
		return 0;
	(void)kill(daemon->pid, SIGTERM);
	for (int i = 0; waitpid(daemon->pid, &status, WNOHANG) == 0; i++) {
		if (i == seconds * 500) {
			(void)kill(daemon->pid, SIGKILL);
			if (below > 0 && below != daemon->pid)
				(void)kill(below, SIGKILL);
			was_killed = 1;
		}
		(void)nanosleep(&pause, NULL);
	}
	daemon->pid = 0;
	return was_killed ? -1 : status_of(status);
}

int daemon_has_keeper(void)
{
	static char output[16384];
	static int known = -1;
	const char *const arguments[] = {"--help", NULL};

	if (known < 0)
		known = daemon_run("cnre-managerd", arguments, output, sizeof output) == 0 &&
			strstr(output, "--keeper") != NULL;
	return known;
}

pid_t daemon_manager_pid(const struct daemon *daemon)
{
	char path[96], text[64] = "";
	ssize_t n;
	int fd;

	if (daemon->pid <= 0 || !daemon_has_keeper())
		return daemon->pid;
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)daemon->pid, (int)daemon->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	return (pid_t)strtol(text, NULL, 10);
}

/* ---- numbers ---- */

json_t *daemon_ask(struct daemon *daemon, const char *verb)
{
	static char output[ANSWER_BYTES];
	const char *const arguments[] = {"--socket", daemon->socket, "--json", verb, NULL};

	return daemon_run("cnrectl", arguments, output, sizeof output) == 0 ? json_loads(output, 0, NULL) : NULL;
}

long long daemon_number(const json_t *answer, const char *path)
{
	char key[128], *rest = key, *part;

	(void)snprintf(key, sizeof key, "%s", path);
	while (answer != NULL && (part = strsep(&rest, ".")) != NULL)
		answer = json_object_get(answer, part);
	if (json_is_real(answer))
		return (long long)json_real_value(answer);
	return json_is_integer(answer) ? json_integer_value(answer) : -1;
}
