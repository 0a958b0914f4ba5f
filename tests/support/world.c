/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping real programs for system tests; see world.h. */
#include "tests/support/world.h"

#include "tests/support/ready.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

const char *world_program(const char *name, char *path, size_t bytes)
{
	const char *build = getenv("CNRE_BUILD");

	(void)snprintf(path, bytes, "%s/%s", build != NULL ? build : "build", name);
	return path;
}

void world_open(struct world *world)
{
	memset(world, 0, sizeof *world);
	(void)snprintf(world->directory, sizeof world->directory, "%s/cnre-world-XXXXXX",
		       getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/var/tmp");
	cr_assert_not_null(mkdtemp(world->directory), "%s: %s", world->directory, strerror(errno));
	cr_assert_eq(chmod(world->directory, 0755), 0);
	(void)snprintf(world->model, sizeof world->model, "%s/tiny-olmoe", world->directory);
	(void)snprintf(world->socket, sizeof world->socket, "%s/socket", world->directory);
	(void)snprintf(world->log, sizeof world->log, "%s/log", world->directory);
}

void world_close(struct world *world)
{
	const char *const arguments[] = {"-rf", world->directory, NULL};

	(void)world_stop(world, SIGTERM);
	if (strstr(world->directory, "/cnre-world-") != NULL)
		(void)world_run("/bin/rm", arguments, NULL, 0);
}

static void add(const char **argv, size_t *count, const char *argument)
{
	cr_assert_lt(*count, ARGUMENTS_MAX - 1);
	argv[(*count)++] = argument;
	argv[*count] = NULL;
}

static void add_all(const char **argv, size_t *count, const char *const *arguments)
{
	for (; arguments != NULL && *arguments != NULL; arguments++)
		add(argv, count, *arguments);
}

static int has_option(const char *const *options, const char *name)
{
	for (; options != NULL && *options != NULL; options++)
		if (strcmp(*options, name) == 0)
			return 1;
	return 0;
}

void world_generate(struct world *world, const char *const *options)
{
	static const char *const defaults[][2] = {{"--family", "olmoe"}, {"--layers", "4"},  {"--experts", "16"},
						  {"--top-k", "4"},      {"--hidden", "64"}, {"--intermediate", "64"},
						  {"--vocab", "128"},    {"--seed", "1"}};
	const char *arguments[ARGUMENTS_MAX];
	char output[1024] = "";
	size_t count = 0;

	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
		if (has_option(options, defaults[i][0]))
			continue;
		add(arguments, &count, defaults[i][0]);
		add(arguments, &count, defaults[i][1]);
	}
	add(arguments, &count, "--out");
	add(arguments, &count, world->model);
	add_all(arguments, &count, options);
	cr_assert_eq(world_run("cnre-gen", arguments, output, sizeof output), 0, "cnre-gen: %s", output);
}

static void exec_manager(struct world *world, const char *const *options, int ready, void (*prepare)(void))
{
	const char *argv[ARGUMENTS_MAX];
	char program[256];
	size_t count = 0;
	int log = open(world->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed leaves no manager behind */
	add(argv, &count, world_program("cnre-managerd", program, sizeof program));
	if (!has_option(options, "--model")) {
		add(argv, &count, "--model");
		add(argv, &count, world->model);
	}
	add(argv, &count, "--socket");
	add(argv, &count, world->socket);
	if (!has_option(options, "--keeper")) { /* world->manager is the manager itself */
		add(argv, &count, "--keeper");
		add(argv, &count, "no");
	}
	add_all(argv, &count, options);
	(void)dup2(ready, STDOUT_FILENO);
	if (log >= 0)
		(void)dup2(log, STDERR_FILENO);
	/* Other programs on this machine that wait for memory shall not evict what a test counts. */
	(void)setenv("MEMORY_PRESSURE_WATCH", "/dev/null", 1);
	if (prepare != NULL)
		prepare();
	(void)execv(program, (char *const *)argv);
	_exit(127);
}

int world_start_with(struct world *world, const char *const *options, void (*prepare)(void))
{
	int pipe_fds[2], ready, status = 0;

	cr_assert_eq(world->manager, 0, "a manager runs already");
	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	world->manager = fork();
	cr_assert_geq(world->manager, 0);
	if (world->manager == 0)
		exec_manager(world, options, pipe_fds[1], prepare);
	(void)close(pipe_fds[1]);
	ready = ready_wait(pipe_fds[0]);
	(void)close(pipe_fds[0]);
	if (ready)
		return world->manager;
	(void)kill(world->manager, SIGKILL);
	(void)waitpid(world->manager, &status, 0);
	world->manager = 0;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -1000;
}

int world_start(struct world *world, const char *const *options)
{
	return world_start_with(world, options, NULL);
}

int world_stop(struct world *world, int signal)
{
	int status = 0;

	if (world->manager <= 0)
		return 0;
	(void)kill(world->manager, signal);
	(void)waitpid(world->manager, &status, 0);
	world->manager = 0;
	return status;
}

static void exec_program(const char *program, const char *const *arguments, int out)
{
	const char *argv[ARGUMENTS_MAX];
	char path[256];
	size_t count = 0;
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (program[0] != '/')
		program = world_program(program, path, sizeof path);
	add(argv, &count, program);
	add_all(argv, &count, arguments);
	(void)dup2(nothing, STDIN_FILENO);
	(void)dup2(out >= 0 ? out : nothing, STDOUT_FILENO);
	(void)dup2(out >= 0 ? out : nothing, STDERR_FILENO);
	(void)execv(program, (char *const *)argv);
	_exit(127);
}

int world_run(const char *program, const char *const *arguments, char *output, size_t output_bytes)
{
	int pipe_fds[2], status = 0;
	size_t length = 0;
	pid_t child;

	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0)
		exec_program(program, arguments, output != NULL ? pipe_fds[1] : -1);
	(void)close(pipe_fds[1]);
	for (;;) {
		char scrap[4096];
		int room = output != NULL && length + 1 < output_bytes;
		ssize_t n = room ? read(pipe_fds[0], output + length, output_bytes - 1 - length)
				 : read(pipe_fds[0], scrap, sizeof scrap);

		if (n <= 0)
			break;
		length += room ? (size_t)n : 0;
	}
	if (output != NULL && output_bytes > 0)
		output[length] = '\0';
	(void)close(pipe_fds[0]);
	(void)waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint64_t ask(struct world *world, const char *verb, const char *path)
{
	static char output[1 << 18];
	const char *const arguments[] = {"--socket", world->socket, verb, "--json", NULL};
	char key[128], *rest = key, *part;
	uint64_t value = UINT64_MAX;
	json_t *root, *at;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "cnrectl %s: %s", verb, output);
	root = json_loads(output, 0, NULL);
	cr_assert_not_null(root, "cnrectl %s printed no JSON: %.200s", verb, output);
	(void)snprintf(key, sizeof key, "%s", path);
	at = root;
	while ((part = strsep(&rest, ".")) != NULL && at != NULL)
		at = json_object_get(at, part);
	if (json_is_integer(at))
		value = (uint64_t)json_integer_value(at);
	else if (json_is_boolean(at))
		value = json_is_true(at);
	json_decref(root);
	return value;
}

uint64_t world_stat(struct world *world, const char *key)
{
	return ask(world, "stats", key);
}

uint64_t world_status(struct world *world, const char *path)
{
	return ask(world, "status", path);
}

int world_log_has(const struct world *world, const char *text)
{
	static char content[1 << 18];
	int fd = open(world->log, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, content, sizeof content - 1);
	(void)close(fd);
	content[n > 0 ? n : 0] = '\0';
	return strstr(content, text) != NULL;
}

int world_wait_until(int (*condition)(void *context), void *context, int seconds)
{
	struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < seconds * 1000; i++) {
		if (condition(context))
			return 1;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

/* ---- what it says, and the next incarnation ---- */

static char status_text[1 << 18];

/* Without asserting: while nobody serves it fails, and that is expected. */
static int ask_status(const struct world *world)
{
	const char *const arguments[] = {"--socket", world->socket, "status", "--json", NULL};

	return world_run("cnrectl", arguments, status_text, sizeof status_text);
}

const char *world_status_text(const struct world *world)
{
	cr_assert_eq(ask_status(world), 0, "%s", status_text);
	return status_text;
}

struct incarnation {
	const struct world *world;
	uint64_t epoch;
};

static int is_serving(void *context)
{
	const struct incarnation *expected = context;
	char wanted[64];

	(void)snprintf(wanted, sizeof wanted, "\"epoch\":%llu,", (unsigned long long)expected->epoch);
	return ask_status(expected->world) == 0 && strstr(status_text, wanted) != NULL;
}

void world_await_epoch(const struct world *world, uint64_t epoch)
{
	struct incarnation next = {.world = world, .epoch = epoch};

	cr_assert(world_wait_until(is_serving, &next, 30), "no incarnation %llu came", (unsigned long long)epoch);
}

void world_kill_manager(struct world *world)
{
	uint64_t epoch = world_status(world, "epoch");

	cr_assert_eq(kill((pid_t)world_status(world, "pid"), SIGKILL), 0);
	world_await_epoch(world, epoch + 1);
}
